"""Meets other clients: says its name when asked to, and ends when it has heard everybody's.

usage: meet.py PORT {3.1.1|5.0} NAME EVERYBODY…
"""

import sys

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

PORT, VERSION, NAME = int(sys.argv[1]), sys.argv[2], sys.argv[3]
missing = set(sys.argv[4:])


def on_connect(client, _, flags, reason, properties):
    assert not reason.is_failure, reason
    client.subscribe("meeting/#")


def on_subscribe(client, _, mid, reasons, properties):
    print("ready", flush=True)


def on_message(client, _, message):
    if message.topic == "meeting/open":
        client.publish(f"meeting/names/{NAME}", NAME)
        return
    name = message.payload.decode()
    assert message.topic == f"meeting/names/{name}"
    print("heard", name, flush=True)
    missing.remove(name)
    if not missing:
        client.disconnect()


protocol = mqtt.MQTTv5 if VERSION == "5.0" else mqtt.MQTTv311
client = mqtt.Client(
    CallbackAPIVersion.VERSION2, client_id=NAME, protocol=protocol, reconnect_on_failure=False
)
client.on_connect, client.on_subscribe, client.on_message = on_connect, on_subscribe, on_message
client.connect("127.0.0.1", PORT)
client.loop_forever()
assert not missing, missing
