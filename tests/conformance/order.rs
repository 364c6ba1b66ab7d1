//! The order of messages and of answers (section 4.6).

use pondhawk_tests::Client;

use crate::peer::{BOTH, Conversation, PUBACK, PUBCOMP, PUBREC, PUBREL, ack, in_each, publish};

/// Number of messages, less than any receiver's window.
const MESSAGES: u16 = 80;

const TOPIC_NAME_INVALID: u8 = 0x90;

/// Publishes to a topic in one write, numbered from 1.
fn publish_all(client: &mut Client, qos: u8, topic: &str) {
    let version = client.version();
    let packet = |number: u16| publish(version, 0x30 | qos << 1, number, topic, &[], &number.to_be_bytes());
    client.send(&(1..=MESSAGES).flat_map(packet).collect::<Vec<u8>>());
}

/// [MQTT-4.6.0-5, MQTT-4.6.0-6, 3.1.1 MQTT-4.6.0-5, 3.1.1 MQTT-4.6.0-6]
#[test]
fn messages_of_one_publisher_topic_and_qos_arrive_in_their_order() {
    in_each(BOTH, |broker, version| {
        for qos in [0, 1, 2] {
            let mut receivers = ["frog", "newt", "fish"].map(|name| broker.client(version, name));
            for (receiver, filter) in receivers.iter_mut().zip(["t", "+", "#"]) {
                receiver.subscribe_with(filter, qos);
            }
            let mut toad = broker.client(version, "toad");
            publish_all(&mut toad, qos, "t");
            for receiver in &mut receivers {
                for number in 1..=MESSAGES {
                    assert_eq!(receiver.message().payload, number.to_be_bytes(), "QoS {qos}");
                }
            }
        }
    });
}

/// [3.1.1 MQTT-4.6.0-2, 3.1.1 MQTT-4.6.0-3]
#[test]
fn pubacks_and_pubrecs_come_in_the_order_of_the_messages() {
    in_each(BOTH, |broker, version| {
        for (qos, first) in [(1, PUBACK), (2, PUBREC)] {
            let mut frog = broker.client(version, "frog");
            frog.subscribe_with("#", 0);
            let mut toad = broker.client(version, "toad");
            // Some are retained and take another way; of those that follow them some are refused, which is known at once.
            let is_refused = |number: u16| number % 5 == 1;
            let packets = (1..=MESSAGES).flat_map(|number| {
                let retain = u8::from(number % 5 == 0);
                let topic =
                    if is_refused(number) { "$SYS/t" } else { ["t/0", "t/1"][usize::from(number % 2)] };
                publish(version, 0x30 | qos << 1 | retain, number, topic, &[], b"hey")
            });
            toad.send(&packets.collect::<Vec<u8>>());
            for number in 1..=MESSAGES {
                let [high, low] = number.to_be_bytes();
                if is_refused(number) && version.is_5() {
                    toad.expect(&[first, 3, high, low, TOPIC_NAME_INVALID]);
                } else {
                    toad.expect(&ack(first, number));
                }
            }
        }
    });
}

/// [3.1.1 MQTT-4.6.0-4]
#[test]
fn pubrels_come_in_the_order_of_the_pubrecs() {
    in_each(BOTH, |broker, version| {
        let mut frog = broker.client(version, "frog");
        frog.subscribe_with("t", 2);
        let mut toad = broker.client(version, "toad");
        publish_all(&mut toad, 2, "t");
        let identifiers: Vec<u16> = (1..=MESSAGES).map(|_| frog.message().packet_id).collect();
        let order: Vec<u16> = identifiers.iter().rev().copied().collect();
        frog.send(&order.iter().flat_map(|packet_id| ack(PUBREC, *packet_id)).collect::<Vec<u8>>());
        for packet_id in order {
            frog.expect(&ack(PUBREL, packet_id));
        }
        frog.send(&identifiers.iter().flat_map(|packet_id| ack(PUBCOMP, *packet_id)).collect::<Vec<u8>>());
        frog.expect_only_pong();
    });
}
