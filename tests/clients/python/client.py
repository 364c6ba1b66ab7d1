"""A paho-mqtt client that keeps what happens to it until somebody asks."""

import os
import queue
import socket
import sys

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

PORT, IS_5, QOS = int(sys.argv[1]), sys.argv[2] == "5.0", int(sys.argv[3])
# Plain TCP, unless these name another way: `tls` or `wss`, and the certificate of the authority.
LINK, AUTHORITY = os.environ.get("PONDHAWK_LINK", "tcp"), os.environ.get("PONDHAWK_CA")
DEADLINE_SECS = 30
SESSION_SECS = 3600


class Client:
    """A connected client. Its messages and subscriptions are at the QoS of this run."""

    def __init__(self, name, will=None, lasting=False, **connect):
        """With `lasting` the session outlives the connection."""
        self.messages, self.answers = queue.Queue(), queue.Queue()
        self.vanishes_after = 0
        session = {} if IS_5 else {"clean_session": not lasting}
        self.paho = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id=name,
            protocol=mqtt.MQTTv5 if IS_5 else mqtt.MQTTv311,
            transport="websockets" if LINK == "wss" else "tcp",
            reconnect_on_failure=False,
            **session,
        )
        self.paho.on_connect = lambda _, __, flags, reason, more: self.answers.put((flags, reason, more))
        self.paho.on_subscribe = lambda _, __, mid, reasons, more: self.answers.put(reasons)
        self.paho.on_unsubscribe = lambda _, __, mid, reasons, more: self.answers.put(reasons)
        self.paho.on_disconnect = lambda _, __, flags, reason, more: self.answers.put(reason)
        self.paho.on_publish = lambda _, __, mid, reason, more: self.count()
        self.paho.on_message = lambda _, __, message: (self.messages.put(message), self.count())
        if AUTHORITY:
            self.paho.tls_set(AUTHORITY)
        if will:
            self.paho.will_set(*will)
        if IS_5:
            connect.setdefault("clean_start", not lasting)
            connect["properties"] = Properties(PacketTypes.CONNECT)
            connect["properties"].SessionExpiryInterval = SESSION_SECS if lasting else 0
        self.paho.connect("127.0.0.1", PORT, **connect)
        self.greet()

    def greet(self):
        self.paho.loop_start()
        flags, reason, self.connack = self.answer()
        assert not reason.is_failure, reason
        self.session_present = flags.session_present

    def come_back(self):
        """Connects again, with all that this side knows of the session."""
        self.paho.reconnect()
        self.greet()

    def count(self):
        """One message less, sent or received, before the connection is to be lost."""
        self.vanishes_after -= 1
        if self.vanishes_after == 0:
            self.cut()

    def answer(self):
        return self.answers.get(timeout=DEADLINE_SECS)

    def subscribe(self, topic_filter, qos=QOS, **options):
        if options:
            self.paho.subscribe(topic_filter, options=SubscribeOptions(qos=qos, **options))
        else:
            self.paho.subscribe(topic_filter, qos)
        granted = [reason.value for reason in self.answer()]
        assert granted == [qos], granted

    def unsubscribe(self, topic_filter):
        self.paho.unsubscribe(topic_filter)
        self.answer()

    def publish(self, topic, payload, qos=QOS, **more):
        return self.paho.publish(topic, payload, qos, **more)

    def expect(self, topic, payload, retain=False, qos=QOS):
        """The next message is this one."""
        message = self.messages.get(timeout=DEADLINE_SECS)
        found = (message.topic, message.payload.decode(), message.retain, message.qos)
        assert found == (topic, payload, retain, qos), found
        return message

    def disconnect(self):
        self.paho.disconnect()
        self.answer()
        self.paho.loop_stop()

    def cut(self):
        link = self.paho.socket()
        # A WebSocket has a socket inside.
        getattr(link, "_socket", link).shutdown(socket.SHUT_RDWR)

    def vanish(self):
        """The connection ends without DISCONNECT."""
        self.cut()
        self.wait_for_end()

    def wait_for_end(self):
        self.answer()
        self.paho.loop_stop()


def carry_out(steps):
    for step in steps:
        print(step.__name__.replace("_", " "), flush=True)
        step()
    print("all said", flush=True)
