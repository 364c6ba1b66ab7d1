//! Shared subscriptions (section 4.8.2).

use pondhawk_tests::Client;
use pondhawk_tests::packet::Connect;

use crate::peer::{Conversation, PUBACK, PUBCOMP, PUBREC, PUBREL, V5, ack, in_each, lasting, lose, resume};

const FILTER: &str = "$share/group/t";

/// Every member's next message is the end: there is nothing else for anybody.
fn expect_the_end(members: &mut [Client], publisher: &mut Client) {
    publisher.deliver(0, "end", b"");
    for member in members {
        member.expect_message("end", b"");
    }
}

/// [MQTT-4.8.2-3]
#[test]
fn each_member_gets_messages_at_the_qos_it_was_granted() {
    const MESSAGES: u8 = 30;
    in_each(V5, |broker, version| {
        let mut members = [0, 1, 2].map(|qos| {
            let mut member = broker.client(version, &format!("member {qos}"));
            member.subscribe_with("end", 0);
            member.subscribe_with(FILTER, qos);
            member
        });
        let mut toad = broker.client(version, "toad");
        for number in 0..MESSAGES {
            toad.deliver(2, "t", &[number]);
        }
        toad.deliver(0, "end", b"");
        let mut all = Vec::new();
        for (granted, member) in [0, 1, 2].into_iter().zip(&mut members) {
            loop {
                let message = member.message();
                if message.topic == "end" {
                    break;
                }
                assert_eq!(message.qos, granted);
                all.extend(message.payload);
            }
        }
        all.sort_unstable();
        assert_eq!(all, (0..MESSAGES).collect::<Vec<u8>>(), "each message to one member");
    });
}

/// [MQTT-4.8.2-4]
#[test]
fn a_message_of_qos_2_that_a_member_has_begun_is_its_own_when_it_comes_back() {
    in_each(V5, |broker, version| {
        let mut toad = broker.client(version, "toad");
        for is_received in [false, true] {
            let (mut frog, _) = resume(broker, version, "frog");
            frog.subscribe_with(FILTER, 2);
            toad.deliver(2, "t", b"job");
            let message = frog.message();
            if is_received {
                frog.acknowledge(PUBREC, message.packet_id);
                frog.expect(&ack(PUBREL, message.packet_id));
            }
            let mut other = broker.client(version, "other");
            other.subscribe("end");
            other.subscribe_with(FILTER, 2);
            lose(frog);
            expect_the_end(std::slice::from_mut(&mut other), &mut toad);
            let (mut frog, _) = resume(broker, version, "frog");
            if !is_received {
                let again = frog.message();
                assert_eq!((again.packet_id, again.dup), (message.packet_id, true));
                frog.acknowledge(PUBREC, message.packet_id);
            }
            frog.expect(&ack(PUBREL, message.packet_id));
            frog.acknowledge(PUBCOMP, message.packet_id);
            frog.expect_only_pong();
            other.leave();
            frog.unsubscribe(FILTER);
            frog.leave();
        }
    });
}

/// [MQTT-4.8.2-5]
#[test]
fn a_message_of_qos_2_goes_to_nobody_else_when_its_members_session_ends() {
    in_each(V5, |broker, version| {
        let mut toad = broker.client(version, "toad");
        let (mut frog, _) = resume(broker, version, "frog");
        frog.subscribe_with(FILTER, 2);
        toad.deliver(2, "t", b"job");
        assert_eq!(frog.message().payload, b"job");
        let mut other = broker.client(version, "other");
        other.subscribe("end");
        other.subscribe_with(FILTER, 2);
        lose(frog);
        let clean = Connect { clean_start: true, ..lasting(version, "frog") };
        let mut frog = broker.client_with(&clean);
        frog.subscribe("end");
        expect_the_end(&mut [other, frog], &mut toad);
    });
}

/// [MQTT-4.8.2-6]
#[test]
fn messages_that_a_member_refuses_are_discarded() {
    in_each(V5, |broker, version| {
        let mut toad = broker.client(version, "toad");
        for (qos, first) in [(1, PUBACK), (2, PUBREC)] {
            let (mut frog, _) = resume(broker, version, "frog");
            frog.subscribe("end");
            frog.subscribe_with(FILTER, 2);
            toad.deliver(qos, "t", b"job");
            let [high, low] = frog.message().packet_id.to_be_bytes();
            let mut other = broker.client(version, "other");
            other.subscribe("end");
            other.subscribe_with(FILTER, 2);
            frog.send(&[first, 0x03, high, low, 0x80]);
            frog.expect_only_pong();
            let mut members = [frog, other];
            expect_the_end(&mut members, &mut toad);
            for member in members {
                member.leave();
            }
            let (mut frog, _) = resume(broker, version, "frog");
            frog.expect_only_pong();
            frog.unsubscribe(FILTER);
            frog.leave();
        }
    });
}
