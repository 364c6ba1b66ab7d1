//! Memory: one budget for whatever peers can make the broker hold.

use pondhawk_tests::conversation::{Conversation, PUBACK, lasting, publish, resume};
use pondhawk_tests::packet::{self, Connect, Will};
use pondhawk_tests::{Broker, Client, RawClient, Version, until};

use crate::stage::{crowd, play, sized, wait_for_sys};

const QUOTA_EXCEEDED: u8 = 0x97;
const SERVER_UNAVAILABLE: u8 = 0x03;

/// The smallest budget; what is retained may take all of it.
const TIGHT: &str = "[limits]\nmemory_budget_bytes = \"16 MiB\"\nretained_bytes = \"1 GiB\"\n\
    [sys]\ninterval = \"1 s\"\n";

/// Sum of the budget, of allocators and of the rest of the process.
const RESIDENT_GROWTH_MAX_BYTES: usize = 64 << 20;

/// More connections than the smallest budget has memory for.
const CONNECTIONS_MAX: usize = 30_000;

/// The answer to a CONNECT.
fn greet(broker: &Broker, connect: &Connect<'_>) -> (RawClient, Vec<u8>) {
    let mut connection = broker.connect();
    connection.send(&connect.bytes());
    let answer = connection.read_packet();
    (connection, answer)
}

/// Answer to a client that cannot be accepted now.
fn refusal(version: Version) -> Vec<u8> {
    match version.is_5() {
        true => vec![0x20, 0x03, 0x00, QUOTA_EXCEEDED, 0x00],
        false => vec![0x20, 0x02, 0x00, SERVER_UNAVAILABLE],
    }
}

/// Lets one connection after the other do something that takes memory, until one is refused, or may not do that. Returns
/// the others.
fn until_refused(
    broker: &Broker,
    name: &str,
    connect: &Connect<'_>,
    act: impl Fn(&mut RawClient) -> bool,
) -> Vec<RawClient> {
    let mut greedy = Vec::new();
    // Each connection has the time limit of an event. Memory for all of them would be a fault.
    for number in 0..CONNECTIONS_MAX {
        let client_id = format!("{name} {number}");
        let (mut connection, answer) = greet(broker, &Connect { client_id: &client_id, ..*connect });
        if !packet::is_accepted(&answer) {
            assert_eq!(answer, refusal(connect.version));
            connection.expect_closed();
            return greedy;
        }
        let may_go_on = act(&mut connection);
        greedy.push(connection);
        if !may_go_on {
            return greedy;
        }
    }
    panic!("memory is not short after {CONNECTIONS_MAX} connections");
}

/// Grows by no more than the budget allows while something is done.
fn within_the_budget<T>(broker: &Broker, act: impl FnOnce() -> T) -> T {
    within(RESIDENT_GROWTH_MAX_BYTES, broker, act)
}

fn within<T>(bytes: usize, broker: &Broker, act: impl FnOnce() -> T) -> T {
    let before = broker.resident_bytes();
    let outcome = act();
    if let (Some(before), Some(after)) = (before, broker.resident_bytes()) {
        let grown = after.saturating_sub(before);
        assert!(grown < bytes, "{grown} bytes");
    }
    outcome
}

#[test]
fn p_13_every_alias_with_the_longest_topic_on_every_connection() {
    const ALIASES: u16 = 16;
    play(TIGHT, |broker| {
        let topic = "t".repeat(65_000);
        let set_all = |connection: &mut RawClient| {
            for alias in 1..=ALIASES {
                let [high, low] = alias.to_be_bytes();
                connection.send(&publish(Version::V5, 0x30, 0, &topic, &[0x23, high, low], b""));
            }
            connection.send(&[0xC0, 0x00]);
            let answer = connection.read_packet();
            assert!(answer == [0xD0, 0x00] || answer == packet::disconnect(Version::V5, QUOTA_EXCEEDED));
            answer == [0xD0, 0x00]
        };
        let greedy = within_the_budget(broker, || {
            until_refused(broker, "greedy", &Connect::new(Version::V5, ""), set_all)
        });
        // Aliases take at most half of the budget.
        assert!((5..10).contains(&greedy.len()), "{} connections with a megabyte each", greedy.len());
        drop(greedy);
        until("memory is given back", || {
            packet::is_accepted(&greet(broker, &lasting(Version::V5, "frog")).1).then_some(())
        });
        broker.client(Version::V5, "frog").leave();
    });
}

/// They send nothing more, and none of them has to: what they hold leaves room for everybody else.
#[test]
fn f_03_beginnings_of_packets_that_go_no_further_lock_nobody_out() {
    // A PUBLISH of two megabytes.
    let beginning = [b"\x30\xF0\xFF\x7F\x00\x01t", &[b'x'; 100_000][..]].concat();
    play(TIGHT, |broker| {
        let idle: Vec<RawClient> = (0..300)
            .map(|number| {
                let client_id = format!("idle {number}");
                let (mut connection, answer) = greet(broker, &Connect::new(Version::V3_1_1, &client_id));
                assert!(packet::is_accepted(&answer), "{client_id}: {answer:?}");
                connection.send(&beginning);
                connection
            })
            .collect();
        wait_for_sys(broker, "ended/memory", |count| count > 100);
        broker.client(Version::V5, "frog").leave();
        // A large packet in several reads is served, though others go on like that.
        let mut large = broker.client(Version::V5, "large");
        let packet = publish(Version::V5, 0x32, 1, "t", &[], &[b'x'; 200_000]);
        let mut late = Vec::new();
        for part in packet.chunks(50_000) {
            large.send(part);
            let (mut connection, answer) = greet(broker, &Connect::new(Version::V3_1_1, ""));
            assert!(packet::is_accepted(&answer));
            connection.send(&beginning);
            late.push(connection);
        }
        large.expect_ack(PUBACK, 1);
        drop((idle, late));
    });
}

#[test]
fn w_04_wills_are_on_the_account_of_all_memory() {
    let payload = [b'x'; 60_000];
    play(TIGHT, |broker| {
        for version in Version::ALL {
            let will = Some(Will::new("w", &payload));
            let with_will = Connect { will, ..Connect::new(version, "late") };
            let greedy = within_the_budget(broker, || until_refused(broker, "greedy", &with_will, |_| true));
            assert!((200..300).contains(&greedy.len()), "{} wills", greedy.len());
            greedy.into_iter().for_each(RawClient::reset);
            until("memory is given back", || packet::is_accepted(&greet(broker, &with_will).1).then_some(()));
        }
    });
}

/// Retains a message at QoS 1. Returns the reason in its PUBACK.
fn retain(client: &mut Client, topic: &str, payload: &[u8]) -> u8 {
    let version = client.version();
    client.send(&publish(version, 0x33, 1, topic, &[], payload));
    let answer = client.read_packet();
    assert_eq!(answer[0], PUBACK);
    answer.get(4).copied().unwrap_or(0)
}

#[test]
fn w_08_a_flood_of_retained_messages_meets_its_bound() {
    let most = sized(1 << 20, 1 << 30);
    let payload = [b'x'; 4_096];
    let topics = 2 * most / payload.len();
    let settings = format!("[limits]\nretained_bytes = {most}\n[sys]\ninterval = \"1 s\"\n");
    play(&settings, |broker| {
        let mut peer = broker.client(Version::V5, "peer");
        let answers: Vec<u8> =
            (0..topics).map(|number| retain(&mut peer, &format!("r/{number}"), &payload)).collect();
        let kept = answers.iter().take_while(|reason| **reason < 0x80).count();
        assert!((topics / 4..topics / 2).contains(&kept), "{kept} of {topics} messages");
        assert!(answers[kept..].iter().all(|reason| *reason == QUOTA_EXCEEDED), "{answers:?}");
        // Replacing and clearing go on, and make room.
        assert!(retain(&mut peer, "r/0", &payload) < 0x80, "replaced");
        assert!(retain(&mut peer, "r/1", b"") < 0x80, "cleared");
        assert!(retain(&mut peer, "r/in its place", &payload) < 0x80, "another in its place");
        let refused = u64::try_from(topics - kept).expect("a count");
        // The broker's own values need none of that room.
        wait_for_sys(broker, "refused/retained", |count| count == refused);
        (0..topics).for_each(|number| peer.retain(&format!("r/{number}"), b""));
        peer.retain("r/in its place", b"");
        peer.expect_only_pong();
    });
}

/// One message of the largest size, to many of whom half do not read.
#[test]
fn r_09_the_largest_message_to_many() {
    /// Bytes in the buffers of one client.
    const BUFFERS_BYTES: usize = 16 << 10;
    // Bytes on their way to the clients fill the buffers of the system, some megabytes for each.
    let subscribers = crowd(100, 1_000);
    for qos in [0, 1] {
        play("[limits]\nmemory_budget_bytes = \"1 GiB\"\n", |broker| {
            let mut all: Vec<Client> = (0..subscribers)
                .map(|number| {
                    let mut client = broker.client(Version::V3_1_1, &format!("subscriber {number}"));
                    client.subscribe_with("t", qos);
                    client
                })
                .collect();
            let payload = vec![b'x'; (2 << 20) - 16];
            let mut publisher = broker.client(Version::V3_1_1, "publisher");
            within(RESIDENT_GROWTH_MAX_BYTES + subscribers * BUFFERS_BYTES, broker, || {
                publisher.publish_at(qos, 1, "t", &payload);
                if qos > 0 {
                    publisher.expect_ack(PUBACK, 1);
                }
                for client in all.iter_mut().skip(subscribers / 2) {
                    assert_eq!(client.message().payload, payload);
                }
            });
            // And it is there for the others still.
            for client in all.iter_mut().take(subscribers / 2) {
                assert_eq!(client.message().payload, payload);
            }
        });
    }
}

/// An old client sends more requests while memory is short. A refusal may free enough for one more request, which is
/// then refused too.
fn new_work_is_refused(client: &mut Client) {
    let version = client.version();
    let refusal = packet::suback(version, 1, if version.is_5() { QUOTA_EXCEEDED } else { 0x80 });
    let mut asked = 0;
    until("a subscription is refused", || {
        asked += 1;
        client.send(&packet::subscribe(version, 1, &format!("another/{asked}")));
        // MQTT 3.1 cannot say so.
        let Some(answer) = client.next_packet() else { return Some(()) };
        (answer == refusal).then_some(())
    });
    if version == Version::V3_1 {
        return;
    }
    until("a message that would have to wait is refused", || {
        client.send(&publish(version, 0x32, 2, "for/absent", &[], &[b'x'; 1_000]));
        let Some(answer) = client.next_packet() else { return (!version.is_5()).then_some(()) };
        (answer == [PUBACK, 0x03, 0x00, 0x02, QUOTA_EXCEEDED]).then_some(())
    });
}

#[test]
fn r_10_when_all_memory_is_taken_old_clients_are_served_and_new_work_is_refused() {
    play(TIGHT, |broker| {
        let (mut absent, _) = resume(broker, Version::V5, "absent");
        absent.subscribe_with("for/absent", 1);
        absent.leave();
        let mut old = Version::ALL.map(|version| broker.client(version, &format!("old {version}")));
        let mut hoarder = broker.client(Version::V5, "hoarder");
        let mut kept = 0;
        within_the_budget(broker, || {
            while retain(&mut hoarder, &format!("hoard/{kept}"), &[b'x'; 4_096]) < 0x80 {
                kept += 1;
            }
            // The rest of the memory is for clients that want a connection, and for the memory that a refusal gives
            // back.
            let more = |name: &str| until_refused(broker, name, &Connect::new(Version::V3_1_1, ""), |_| true);
            let mut greedy = Vec::new();
            for version in Version::ALL {
                let name = format!("greedy in {version}");
                greedy.extend(until_refused(broker, &name, &Connect::new(version, ""), |_| true));
            }
            for client in &mut old {
                greedy.extend(more(&format!("greedier than {}", client.version())));
                new_work_is_refused(client);
            }
        });
        (0..=kept).for_each(|number| hoarder.retain(&format!("hoard/{number}"), b""));
        hoarder.expect_only_pong();
        until("there is room again", || {
            packet::is_accepted(&greet(broker, &Connect::new(Version::V5, "new")).1).then_some(())
        });
        wait_for_sys(broker, "refused/memory/connects", |count| count >= 3);
        broker.client(Version::V5, "absent").leave();
    });
}
