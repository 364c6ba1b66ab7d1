//! H: shared subscriptions under stress.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use pondhawk_tests::conversation::{
    Conversation, PUBACK, PUBCOMP, PUBREC, PUBREL, ack, filter, publish, request, resume,
};
use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{Broker, Client, Version};

use crate::stage::{play, sized, wait_for_sys};

const GROUP: &str = "$share/pond/t";

/// Publishes at QoS 1 and reads the acknowledgements until it is over. Returns how many messages that were.
fn flood(broker: &Broker, is_over: &AtomicBool) -> u64 {
    let mut publisher = broker.client(Version::V5, "publisher");
    let mut count = 0;
    while !is_over.load(Ordering::SeqCst) {
        publisher.publish_at(1, 1, "t", b"flood");
        publisher.expect_ack(PUBACK, 1);
        count += 1;
    }
    publisher.leave();
    count
}

#[test]
fn h_02_all_members_leave_in_the_middle_of_a_flood() {
    const MEMBERS: usize = 3;
    let rounds = sized(20, 2_000);
    play("", |broker| {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let flood = scope.spawn(|| flood(broker, &is_over));
            for round in 0..rounds {
                let mut members: Vec<Client> = (0..MEMBERS)
                    .map(|number| broker.client(Version::ALL[number], &format!("member {round} {number}")))
                    .collect();
                members.iter_mut().for_each(|member| member.subscribe_with(GROUP, 1));
                // The flood may be over its first member's bound before the last one reads: each gets something.
                for member in &mut members {
                    assert_eq!(member.message().payload, b"flood");
                }
                for member in members {
                    if round % 2 == 0 { member.into_raw().reset() } else { drop(member) }
                }
            }
            is_over.store(true, Ordering::SeqCst);
            assert!(flood.join().expect("the publisher is served") > 0);
        });
    });
}

#[test]
fn h_02_what_comes_while_all_members_are_away_waits_within_bounds() {
    const ROOM: u16 = 20;
    let settings = format!("[sessions]\nqueue_messages = {ROOM}\nqueue_full = \"refuse\"\n");
    play(&settings, |broker| {
        for number in 0..2 {
            let (mut member, _) = resume(broker, Version::V5, &format!("member {number}"));
            member.subscribe_with(GROUP, 1);
            member.leave();
        }
        let mut publisher = broker.client(Version::V5, "publisher");
        for packet_id in 1..=ROOM {
            publisher.publish_at(1, packet_id, "t", packet_id.to_string().as_bytes());
            publisher.expect(&ack(PUBACK, packet_id));
        }
        publisher.publish_at(1, 99, "t", b"one more");
        publisher.expect(b"\x40\x03\x00\x63\x97");
        let (mut member, was_there) = resume(broker, Version::V5, "member 1");
        assert!(was_there);
        (1..=ROOM).for_each(|number| drop(member.take_message(number.to_string().as_bytes())));
        member.expect_only_pong();
        member.leave();
        (0..2).for_each(|number| broker.client(Version::V5, &format!("member {number}")).leave());
    });
}

/// A member of the group with this Receive Maximum.
fn member(broker: &Broker, client_id: &str, receive_maximum: u8) -> Client {
    let properties = [0x21, 0x00, receive_maximum];
    let mut member =
        broker.client_with(&Connect { properties: &properties, ..Connect::new(Version::V5, client_id) });
    member.subscribe_with(GROUP, 1);
    member
}

#[test]
fn h_03_a_member_that_acknowledges_nothing_and_one_that_refuses_everything() {
    const WINDOW: u8 = 5;
    let messages = u16::try_from(sized(200, 20_000)).expect("a count");
    play("[sys]\ninterval = \"1 s\"\n", |broker| {
        let mut deaf = member(broker, "deaf", WINDOW);
        let mut unwilling = member(broker, "unwilling", WINDOW);
        let mut good = member(broker, "good", WINDOW);
        let heard = thread::scope(|scope| {
            let good = scope.spawn(move || {
                let mut heard = Vec::new();
                while let message = good.message()
                    && message.payload != b"the end"
                {
                    good.acknowledge(PUBACK, message.packet_id);
                    heard.push(message.payload);
                }
                heard
            });
            let unwilling = scope.spawn(move || {
                let mut refused = Vec::new();
                while let message = unwilling.message()
                    && message.payload != b"the end"
                {
                    let [high, low] = message.packet_id.to_be_bytes();
                    unwilling.send(&[PUBACK, 0x03, high, low, 0x83]);
                    refused.push(message.payload);
                }
                refused
            });
            let mut publisher = broker.client(Version::V5, "publisher");
            for number in 0..messages {
                publisher.deliver(1, "t", number.to_string().as_bytes());
            }
            // At QoS 1 too, because QoS 0 may overtake messages that wait for a place in a window. The group gives it to
            // one member each time, so the publisher repeats it until both have received it.
            let mut heard = None;
            while !(good.is_finished() && unwilling.is_finished()) {
                publisher.deliver(1, "t", b"the end");
            }
            if let (Ok(good), Ok(unwilling)) = (good.join(), unwilling.join()) {
                heard = Some((good, unwilling));
            }
            heard.expect("both are served")
        });
        let kept: Vec<Vec<u8>> = (0..WINDOW).map(|_| deaf.message().payload).collect();
        deaf.expect_only_pong();
        // Nobody has heard what another one has, and what was refused is gone.
        let mut all: Vec<Vec<u8>> = [kept, heard.0, heard.1].concat();
        all.sort_unstable();
        let mut expected: Vec<Vec<u8>> =
            (0..messages).map(|number| number.to_string().into_bytes()).collect();
        expected.sort_unstable();
        assert_eq!(all, expected);
        wait_for_sys(broker, "account/queues/refused_by_client", |count| count > 0);
    });
}

/// [MQTT-4.8.2-4, MQTT-4.8.2-5]
#[test]
fn h_04_a_member_that_dies_inside_qos_2() {
    play("", |broker| {
        for comes_back in [true, false] {
            let mut other = broker.client(Version::V5, "other");
            other.subscribe_with(GROUP, 2);
            let mut publisher = broker.client(Version::V5, "publisher");
            let (mut holder, _) = resume(broker, Version::V5, "holder");
            holder.subscribe_with(GROUP, 2);
            // Each gets one.
            (0..2).for_each(|_| publisher.deliver(2, "t", b"mine"));
            let message = holder.message();
            other.take_message(b"mine");
            holder.acknowledge(PUBREC, message.packet_id);
            holder.expect_ack(PUBREL, message.packet_id);
            holder.into_raw().reset();
            if comes_back {
                let (mut holder, was_there) = resume(broker, Version::V5, "holder");
                assert!(was_there);
                holder.expect_ack(PUBREL, message.packet_id);
                holder.acknowledge(PUBCOMP, message.packet_id);
                holder.expect_only_pong();
                holder.leave();
            }
            broker.client(Version::V5, "holder").leave();
            publisher.deliver(2, "t", b"next");
            other.take_message(b"next");
            other.expect_only_pong();
            other.leave();
        }
    });
}

#[test]
fn h_05_many_groups_on_one_filter_that_are_left_by_a_reset() {
    const BATCH: usize = 1_000;
    let groups = sized(2_000, 100_000);
    let limits = format!(
        "subscriptions_per_client = {groups}\nshared_subscriptions_per_client = {groups}\ngroups_per_filter = {}\n",
        2 * groups
    );
    let settings = format!("[limits]\n{limits}[sys]\ninterval = \"1 s\"\n");
    play(&settings, |broker| {
        wait_for_sys(broker, "shared_subscriptions/count", |count| count == 0);
        let numbers: Vec<usize> = (0..groups).collect();
        for version in Version::ALL {
            let mut greedy = broker.client(version, "greedy");
            for batch in numbers.chunks(BATCH) {
                let filters = batch.iter().flat_map(|number| filter(&format!("$share/g{number}/t"), 1));
                greedy.send(&request(version, 0x82, 1, &[], &filters.collect::<Vec<u8>>()));
                let suback = greedy.read_packet();
                assert!(suback.ends_with(&vec![0x01; batch.len()]), "{:02x?}", &suback[..8]);
            }
            if version.is_5() {
                greedy.send(&packet::subscribe(version, 2, "$share/one-more/t"));
                greedy.expect(&packet::suback(version, 2, 0x97));
            }
            let mut publisher = broker.client(version, "publisher");
            publisher.send(&publish(version, 0x30, 0, "t", &[], b"to each group"));
            for _ in 0..groups {
                assert_eq!(greedy.message().payload, b"to each group");
            }
            greedy.into_raw().reset();
        }
        wait_for_sys(broker, "shared_subscriptions/count", |count| count == 0);
        wait_for_sys(broker, "subscriptions/count", |count| count == 2);
    });
}
