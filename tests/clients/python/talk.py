"""What paho-mqtt clients can say to each other through a broker, step by step.

usage: talk.py PORT {3.1.1|5.0} {0|1|2}
"""

import queue

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from client import DEADLINE_SECS, IS_5, QOS, Client, carry_out

SESSION_TAKEN_OVER = 0x8E


def connack_says_what_is_served():
    client = Client("curious")
    assert not client.session_present
    nameless = Client("")
    if IS_5:
        assert not hasattr(client.connack, "MaximumQoS"), client.connack
        assert client.connack.MaximumPacketSize > 0
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


def the_lower_qos_counts():
    frog, toad = Client("frog"), Client("toad")
    for granted in range(3):
        frog.subscribe("deep", granted)
        for sent in range(3):
            toad.publish("deep", f"{sent}", sent)
            frog.expect("deep", f"{sent}", qos=min(granted, sent))
    frog.disconnect()
    toad.disconnect()


def a_message_may_be_empty_or_large():
    frog = Client("frog")
    frog.subscribe("size")
    for payload in ["", "x", "é" * 50_000, "x" * 1_000_000]:
        frog.publish("size", payload)
        frog.expect("size", payload)
    frog.disconnect()


def many_messages_come_in_order():
    frog, toad = Client("frog"), Client("toad")
    frog.subscribe("count")
    for number in range(300):
        toad.publish("count", f"{number}")
    for number in range(300):
        frog.expect("count", f"{number}")
    frog.disconnect()
    toad.disconnect()


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
    frog.publish("leaf/b", "", retain=True)
    toad.expect("leaf/b", "")
    for client in [frog, toad, newt, late]:
        client.disconnect()


def a_will_is_published_for_who_vanishes():
    frog = Client("frog")
    frog.subscribe("will/#")
    Client("polite", will=("will/polite", "never said", QOS)).disconnect()
    Client("rude", will=("will/rude", "gone", QOS)).vanish()
    frog.expect("will/rude", "gone")
    Client("lost", will=("will/lost", "for good", QOS, True)).vanish()
    frog.expect("will/lost", "for good")
    late = Client("late")
    late.subscribe("will/+")
    late.expect("will/lost", "for good", retain=True)
    late.publish("will/lost", "", retain=True)
    frog.expect("will/lost", "")
    frog.disconnect()
    late.disconnect()


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
    first = Client("twin", will=("will/twin", "taken over", QOS))
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


def a_group_shares_its_messages():
    frog, toad, newt = Client("frog"), Client("toad"), Client("newt")
    # Both put what they hear into one queue, with their name.
    heard = queue.Queue()
    for name, member in [("frog", frog), ("toad", toad)]:
        member.paho.on_message = lambda _, __, message, name=name: heard.put((name, int(message.payload)))
        member.subscribe("$share/pond/work/#")
    for number in range(100):
        newt.publish("work/load", f"{number}")
    shares = {"frog": [], "toad": []}
    for _ in range(100):
        name, number = heard.get(timeout=DEADLINE_SECS)
        shares[name].append(number)
    assert sorted(shares["frog"] + shares["toad"]) == list(range(100)), shares
    assert all(share and share == sorted(share) for share in shares.values()), shares
    toad.disconnect()
    newt.publish("work/load", "100")
    assert heard.get(timeout=DEADLINE_SECS) == ("frog", 100)
    frog.disconnect()
    newt.disconnect()


def subscription_options_are_kept():
    frog, toad = Client("frog"), Client("toad")
    frog.subscribe("both", noLocal=True)
    frog.publish("both", "mine")
    # What it does not hear itself is known to be there once somebody else's message arrives.
    toad.publish("both", "theirs")
    frog.expect("both", "theirs")
    frog.publish("kept", "leaf", retain=True).wait_for_publish(DEADLINE_SECS)
    frog.subscribe("kept", retainAsPublished=True)
    frog.expect("kept", "leaf", retain=True)
    frog.publish("kept", "twig", retain=True)
    frog.expect("kept", "twig", retain=True)
    toad.subscribe("kept", retainHandling=SubscribeOptions.RETAIN_DO_NOT_SEND)
    frog.publish("kept", "bough", retain=True)
    toad.expect("kept", "bough")
    frog.publish("kept", "", retain=True)
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
    assert 3590 <= received.MessageExpiryInterval <= 3600
    frog.disconnect()
    toad.disconnect()


def a_request_is_answered_where_it_asks_to_be():
    frog, toad = Client("frog"), Client("toad")
    frog.subscribe("ask")
    toad.subscribe("answers/toad")
    for number in range(10):
        request = Properties(PacketTypes.PUBLISH)
        request.ResponseTopic, request.CorrelationData = "answers/toad", bytes([number])
        toad.publish("ask", f"{number} + 1", properties=request)
        asked = frog.expect("ask", f"{number} + 1").properties
        answer = Properties(PacketTypes.PUBLISH)
        answer.CorrelationData = asked.CorrelationData
        frog.publish(asked.ResponseTopic, f"{number + 1}", properties=answer)
        assert toad.expect("answers/toad", f"{number + 1}").properties.CorrelationData == bytes([number])
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
    the_lower_qos_counts,
    a_message_may_be_empty_or_large,
    many_messages_come_in_order,
    a_retained_message_waits_for_subscribers,
    a_will_is_published_for_who_vanishes,
    an_unsubscribed_filter_brings_nothing_more,
    a_client_identifier_has_one_connection,
    a_group_shares_its_messages,
]
STEPS_OF_5 = [
    subscription_options_are_kept,
    properties_arrive_as_they_were_sent,
    a_request_is_answered_where_it_asks_to_be,
    a_topic_alias_stands_for_its_topic,
]

carry_out(STEPS + (STEPS_OF_5 if IS_5 else []))
