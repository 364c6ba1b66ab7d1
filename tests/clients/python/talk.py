"""What paho-mqtt clients can say to each other through a broker at QoS 0, step by step.

usage: talk.py PORT {3.1.1|5.0}
"""

import queue
import socket
import sys

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

PORT = int(sys.argv[1])
IS_5 = sys.argv[2] == "5.0"
DEADLINE_SECS = 10
SESSION_TAKEN_OVER = 0x8E


class Client:
    """A connected client that keeps what happens to it until somebody asks."""

    def __init__(self, name, will=None):
        self.messages = queue.Queue()
        self.answers = queue.Queue()
        protocol = mqtt.MQTTv5 if IS_5 else mqtt.MQTTv311
        self.paho = mqtt.Client(
            CallbackAPIVersion.VERSION2, client_id=name, protocol=protocol, reconnect_on_failure=False
        )
        self.paho.on_connect = lambda _, __, flags, reason, properties: self.answers.put((reason, properties))
        self.paho.on_subscribe = lambda _, __, mid, reasons, properties: self.answers.put(reasons)
        self.paho.on_unsubscribe = lambda _, __, mid, reasons, properties: self.answers.put(reasons)
        self.paho.on_disconnect = lambda _, __, flags, reason, properties: self.answers.put(reason)
        self.paho.on_message = lambda _, __, message: self.messages.put(message)
        if will:
            self.paho.will_set(*will)
        self.paho.connect("127.0.0.1", PORT)
        self.paho.loop_start()
        reason, self.connack = self.answer()
        assert not reason.is_failure, reason

    def answer(self):
        return self.answers.get(timeout=DEADLINE_SECS)

    def subscribe(self, topic_filter, **options):
        if options:
            self.paho.subscribe(topic_filter, options=SubscribeOptions(**options))
        else:
            self.paho.subscribe(topic_filter)
        assert [reason.value for reason in self.answer()] == [0]

    def unsubscribe(self, topic_filter):
        self.paho.unsubscribe(topic_filter)
        self.answer()

    def publish(self, topic, payload, **more):
        self.paho.publish(topic, payload, **more)

    def expect(self, topic, payload, retain=False):
        """The next message is this one."""
        message = self.messages.get(timeout=DEADLINE_SECS)
        found = (message.topic, message.payload.decode(), message.retain)
        assert found == (topic, payload, retain), found
        return message

    def disconnect(self):
        self.paho.disconnect()
        self.answer()
        self.paho.loop_stop()

    def vanish(self):
        """The connection ends without DISCONNECT."""
        self.paho.socket().shutdown(socket.SHUT_RDWR)
        self.answer()
        self.paho.loop_stop()


def connack_says_what_is_served():
    client = Client("curious")
    if IS_5:
        assert client.connack.MaximumQoS == 0
        assert client.connack.MaximumPacketSize > 0
    nameless = Client("")
    if IS_5:
        assert nameless.connack.AssignedClientIdentifier
    client.disconnect()
    nameless.disconnect()


def wildcards_choose_what_is_received():
    frog, toad = Client("frog"), Client("toad")
    frog.subscribe("pond/+/depth")
    frog.subscribe("sky/#")
    for topic in ["pond/depth", "pond/north/depth", "pond/a/b/depth", "sky", "skyline", "sky/sun/height"]:
        toad.publish(topic, topic)
    for topic in ["pond/north/depth", "sky", "sky/sun/height"]:
        frog.expect(topic, topic)
    frog.subscribe("end")
    toad.publish("end", "")
    frog.expect("end", "")
    frog.disconnect()
    toad.disconnect()


def a_message_may_be_empty_or_large():
    frog = Client("frog")
    frog.subscribe("size")
    for payload in ["", "x", "é" * 50_000, "x" * 1_000_000]:
        frog.publish("size", payload)
        frog.expect("size", payload)
    frog.disconnect()


def a_retained_message_waits_for_subscribers():
    frog, toad = Client("frog"), Client("toad")
    toad.subscribe("leaf/#")
    frog.publish("leaf/a", "green", retain=True)
    toad.expect("leaf/a", "green")
    frog.publish("leaf/a", "brown", retain=True)
    toad.expect("leaf/a", "brown")
    newt = Client("newt")
    newt.subscribe("leaf/+")
    newt.expect("leaf/a", "brown", retain=True)
    frog.publish("leaf/a", "", retain=True)
    toad.expect("leaf/a", "")
    frog.publish("leaf/b", "here", retain=True)
    toad.expect("leaf/b", "here")
    late = Client("late")
    late.subscribe("leaf/#")
    late.expect("leaf/b", "here", retain=True)
    for client in [frog, toad, newt, late]:
        client.disconnect()


def a_will_is_published_for_who_vanishes():
    frog = Client("frog")
    frog.subscribe("will/#")
    Client("polite", will=("will/polite", "never said")).disconnect()
    Client("rude", will=("will/rude", "gone")).vanish()
    frog.expect("will/rude", "gone")
    frog.disconnect()


def an_unsubscribed_filter_brings_nothing_more():
    frog = Client("frog")
    frog.subscribe("news/#")
    frog.subscribe("end")
    frog.publish("news/1", "first")
    frog.expect("news/1", "first")
    frog.unsubscribe("news/#")
    frog.publish("news/2", "second")
    frog.publish("end", "")
    frog.expect("end", "")
    frog.disconnect()


def a_client_identifier_has_one_connection():
    first = Client("twin", will=("will/twin", "taken over"))
    witness = Client("witness")
    witness.subscribe("will/twin")
    second = Client("twin")
    reason = first.answer()
    assert not IS_5 or reason.value == SESSION_TAKEN_OVER, reason
    witness.expect("will/twin", "taken over")
    second.subscribe("end")
    second.publish("end", "")
    second.expect("end", "")
    second.disconnect()
    witness.disconnect()


def subscription_options_are_kept():
    frog, toad = Client("frog"), Client("toad")
    frog.subscribe("both", qos=0, noLocal=True)
    frog.publish("both", "mine")
    # What it does not hear itself is known to be there once somebody else's message arrives.
    toad.publish("both", "theirs")
    frog.expect("both", "theirs")
    frog.publish("kept", "leaf", retain=True)
    frog.subscribe("kept", qos=0, retainAsPublished=True)
    frog.expect("kept", "leaf", retain=True)
    frog.publish("kept", "twig", retain=True)
    frog.expect("kept", "twig", retain=True)
    toad.subscribe("kept", qos=0, retainHandling=SubscribeOptions.RETAIN_DO_NOT_SEND)
    frog.publish("kept", "bough", retain=True)
    toad.expect("kept", "bough")
    frog.disconnect()
    toad.disconnect()


def properties_arrive_as_they_were_sent():
    frog, toad = Client("frog"), Client("toad")
    frog.subscribe("request")
    properties = Properties(PacketTypes.PUBLISH)
    properties.UserProperty = [("colour", "green"), ("colour", "brown"), ("größe", "klein")]
    properties.ContentType = "text/plain"
    properties.ResponseTopic = "answer/toad"
    properties.CorrelationData = b"\x00\xff7"
    properties.PayloadFormatIndicator = 1
    properties.MessageExpiryInterval = 3600
    toad.publish("request", "how deep?", properties=properties)
    received = frog.expect("request", "how deep?").properties
    assert received.UserProperty == properties.UserProperty, received
    assert received.ContentType == "text/plain"
    assert received.ResponseTopic == "answer/toad"
    assert received.CorrelationData == b"\x00\xff7"
    assert received.PayloadFormatIndicator == 1
    assert received.MessageExpiryInterval == 3600
    frog.disconnect()
    toad.disconnect()


def a_topic_alias_stands_for_its_topic():
    frog = Client("frog")
    assert frog.connack.TopicAliasMaximum > 0
    frog.subscribe("long/topic")
    for topic in ["long/topic", ""]:
        properties = Properties(PacketTypes.PUBLISH)
        properties.TopicAlias = 1
        frog.publish(topic, "short", properties=properties)
        frog.expect("long/topic", "short")
    frog.disconnect()


STEPS = [
    connack_says_what_is_served,
    wildcards_choose_what_is_received,
    a_message_may_be_empty_or_large,
    a_retained_message_waits_for_subscribers,
    a_will_is_published_for_who_vanishes,
    an_unsubscribed_filter_brings_nothing_more,
    a_client_identifier_has_one_connection,
]
STEPS_OF_5 = [subscription_options_are_kept, properties_arrive_as_they_were_sent, a_topic_alias_stands_for_its_topic]

for step in STEPS + (STEPS_OF_5 if IS_5 else []):
    print(step.__name__.replace("_", " "), flush=True)
    step()
print("all said", flush=True)
