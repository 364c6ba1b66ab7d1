"""Sessions of a paho-mqtt client that reconnects, step by step.

usage: resume.py PORT {3.1.1|5.0} {1|2}
"""

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from client import DEADLINE_SECS, IS_5, QOS, Client, carry_out

COUNT = 100


def numbers_until_the_end(client):
    """Returns the numbers that arrive before the message `end`."""
    numbers = []
    while (payload := client.messages.get(timeout=DEADLINE_SECS).payload) != b"end":
        numbers.append(int(payload))
    return numbers


def check(numbers, may_repeat):
    """Checks that all numbers arrived in order and once, or more than once where a lost connection allows it."""
    if may_repeat and QOS == 1:
        first_arrivals = list(dict.fromkeys(numbers))
        assert first_arrivals == list(range(COUNT)), numbers
    else:
        assert numbers == list(range(COUNT)), numbers


def begin_to_publish(client, topic):
    return [client.publish(topic, f"{payload}") for payload in [*range(COUNT), "end"]]


def wait_until_acknowledged(published):
    for message in published:
        message.wait_for_publish(DEADLINE_SECS)
        assert message.is_published()


def publish_all(client, topic):
    wait_until_acknowledged(begin_to_publish(client, topic))


def messages_wait_for_a_session_that_is_away():
    frog, toad = Client("frog", lasting=True), Client("toad")
    assert not frog.session_present
    frog.subscribe("away/#")
    frog.subscribe("careless", 0)
    frog.disconnect()
    toad.publish("careless", "nobody keeps it", 0)
    publish_all(toad, "away/from/home")
    frog.come_back()
    assert frog.session_present
    check(numbers_until_the_end(frog), may_repeat=False)
    toad.publish("careless", "now it is heard", 0)
    frog.expect("careless", "now it is heard", qos=0)
    frog.disconnect()
    toad.disconnect()


def a_lost_connection_loses_and_repeats_nothing():
    frog, toad = Client("newt", lasting=True), Client("toad")
    frog.subscribe("stream")
    frog.vanishes_after = COUNT // 3
    published = begin_to_publish(toad, "stream")
    frog.wait_for_end()
    frog.come_back()
    assert frog.session_present
    check(numbers_until_the_end(frog), may_repeat=True)
    wait_until_acknowledged(published)
    frog.disconnect()
    toad.disconnect()


def a_publisher_completes_its_messages_after_a_reconnect():
    frog, toad = Client("frog"), Client("publisher", lasting=True)
    frog.subscribe("begun")
    toad.vanishes_after = COUNT // 3
    published = begin_to_publish(toad, "begun")
    toad.wait_for_end()
    toad.come_back()
    assert toad.session_present
    wait_until_acknowledged(published)
    check(numbers_until_the_end(frog), may_repeat=True)
    frog.disconnect()
    toad.disconnect()


def messages_wait_in_a_group_for_its_absent_member():
    frog, toad = Client("member", lasting=True), Client("toad")
    frog.subscribe("$share/pond/job")
    frog.disconnect()
    publish_all(toad, "job")
    frog.come_back()
    assert frog.session_present
    check(numbers_until_the_end(frog), may_repeat=False)
    frog.disconnect()
    toad.disconnect()


def a_clean_start_discards_the_session():
    frog, toad = Client("forgetful", lasting=True), Client("toad")
    frog.subscribe("past")
    frog.disconnect()
    toad.publish("past", "forgotten").wait_for_publish(DEADLINE_SECS)
    again = Client("forgetful")
    assert not again.session_present
    toad.publish("past", "unheard").wait_for_publish(DEADLINE_SECS)
    again.subscribe("present")
    toad.publish("present", "heard")
    again.expect("present", "heard")
    again.disconnect()
    toad.disconnect()


def a_delayed_will_is_not_published_if_its_client_returns():
    frog = Client("frog")
    frog.subscribe("will/delayed")
    newt = Client("delayed", lasting=True)
    newt.disconnect()
    delay = Properties(PacketTypes.WILLMESSAGE)
    delay.WillDelayInterval = 3600
    newt.paho.will_set("will/delayed", "never", QOS, properties=delay)
    newt.come_back()
    newt.vanish()
    newt.come_back()
    assert newt.session_present
    newt.publish("will/delayed", "alive")
    frog.expect("will/delayed", "alive")
    newt.disconnect()
    frog.disconnect()


def a_disconnect_may_end_the_session():
    frog = Client("brief", lasting=True)
    at_once = Properties(PacketTypes.DISCONNECT)
    at_once.SessionExpiryInterval = 0
    frog.paho.disconnect(properties=at_once)
    frog.wait_for_end()
    frog.come_back()
    assert not frog.session_present
    frog.disconnect()


STEPS = [
    messages_wait_for_a_session_that_is_away,
    a_lost_connection_loses_and_repeats_nothing,
    a_publisher_completes_its_messages_after_a_reconnect,
    messages_wait_in_a_group_for_its_absent_member,
    a_clean_start_discards_the_session,
]
STEPS_OF_5 = [
    a_delayed_will_is_not_published_if_its_client_returns,
    a_disconnect_may_end_the_session,
]

carry_out(STEPS + (STEPS_OF_5 if IS_5 else []))
