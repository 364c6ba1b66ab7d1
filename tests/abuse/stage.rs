//! The stage for the rows: a broker with one shard and one with four, innocent clients beside the abuse, and a check of
//! the broker afterwards.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use pondhawk_tests::conversation::Message;
use pondhawk_tests::{Broker, Innocents, Options, RawClient, Version, in_log, is_long, packet, until};
use rustix::process::{Resource, getrlimit};

pub(crate) const ALL: &[Version] = &Version::ALL;
pub(crate) const BEFORE_5: &[Version] = &[Version::V3_1, Version::V3_1_1];
/// MQTT 3.1 does not look at what it does not use.
pub(crate) const FROM_3_1_1: &[Version] = &[Version::V3_1_1, Version::V5];
pub(crate) const V3_1: &[Version] = &[Version::V3_1];
pub(crate) const V3_1_1: &[Version] = &[Version::V3_1_1];
pub(crate) const V5: &[Version] = &[Version::V5];

pub(crate) const MALFORMED_PACKET: u8 = 0x81;
pub(crate) const PROTOCOL_ERROR: u8 = 0x82;

/// Answer to some bytes.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    /// 0x81, in CONNACK or DISCONNECT, and closed; before MQTT 5 closed.
    Malformed,
    /// The same with 0x82.
    ProtocolError,
    /// The same with another reason.
    Reason(u8),
    /// CONNACK with a reason code or, before MQTT 5, a return code; then closed.
    Refused(u8, u8),
    /// Closed, and no byte before.
    Quiet,
    /// These bytes, then closed.
    Exactly(&'static [u8]),
    /// Nothing but, for a CONNECT, a CONNACK that accepts; the connection goes on.
    Served,
    /// These bytes, and the connection goes on.
    Reply(Vec<u8>),
}

impl Answer {
    /// Packet that is sent before the connection is closed; `None` if it is not closed.
    fn farewell(&self, version: Version, is_first: bool) -> Option<Vec<u8>> {
        let reason = match *self {
            Self::Malformed => MALFORMED_PACKET,
            Self::ProtocolError => PROTOCOL_ERROR,
            Self::Reason(reason) => reason,
            Self::Refused(reason, _) if version.is_5() => reason,
            Self::Refused(_, return_code) => return Some(vec![0x20, 0x02, 0x00, return_code]),
            Self::Quiet => return Some(Vec::new()),
            Self::Exactly(bytes) => return Some(bytes.to_vec()),
            Self::Served | Self::Reply(_) => return None,
        };
        Some(match (version.is_5(), is_first) {
            (false, _) => Vec::new(),
            (true, true) => vec![0x20, 0x03, 0x00, reason, 0x00],
            (true, false) => vec![0xE0, 0x01, reason],
        })
    }
}

/// Bytes, and what comes of them.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    version: Version,
    /// Whether they are the first of their connection.
    is_first: bool,
    client_id: String,
    bytes: Vec<u8>,
    answer: Answer,
}

/// Bytes that are the same in every version.
pub(crate) fn raw(bytes: &[u8]) -> impl Fn(Version, &str) -> Vec<u8> {
    move |_, _| bytes.to_vec()
}

/// Bytes of a client that is connected, made for each version.
pub(crate) fn connected(
    versions: &[Version],
    bytes: impl Fn(Version, &str) -> Vec<u8>,
    answer: &Answer,
) -> Vec<Case> {
    cases(versions, false, bytes, answer)
}

/// Bytes at the beginning of a connection, made for each version and client identifier.
pub(crate) fn first(
    versions: &[Version],
    bytes: impl Fn(Version, &str) -> Vec<u8>,
    answer: &Answer,
) -> Vec<Case> {
    cases(versions, true, bytes, answer)
}

fn cases(
    versions: &[Version],
    is_first: bool,
    bytes: impl Fn(Version, &str) -> Vec<u8>,
    answer: &Answer,
) -> Vec<Case> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let case = |version: &Version| {
        let client_id = format!("peer {}", COUNT.fetch_add(1, Ordering::Relaxed));
        let bytes = bytes(*version, &client_id);
        Case { version: *version, is_first, client_id, bytes, answer: answer.clone() }
    };
    versions.iter().map(case).collect()
}

/// Number of repetitions: few in CI, many in `cargo xtask abuse`.
pub(crate) fn sized(short: usize, long: usize) -> usize {
    if is_long() { long } else { short }
}

/// Number of connections; in the long form, as many as this process may have.
pub(crate) fn crowd(short: usize, long: usize) -> usize {
    let files_max = getrlimit(Resource::Nofile).current.and_then(|most| usize::try_from(most).ok());
    sized(short, long.min(files_max.unwrap_or(usize::MAX) / 4 * 3))
}

/// Memory that allocators keep, and that is in the buffers of connections.
fn memory_slack_bytes() -> usize {
    sized(32 << 20, 512 << 20)
}

/// Plays a row against a broker with one shard and against one with four. Innocent clients, connected before, talk
/// while it runs and after it; what is left of its connections goes away, and its memory; nothing has panicked.
pub(crate) fn play(settings: &str, row: impl Fn(&Broker)) {
    for shards in [1, 4] {
        let broker = Broker::start(&Options { shards, settings: settings.to_owned(), ..Options::default() });
        let mut innocents = Innocents::connect(&broker, "one");
        innocents.notice_nothing_of(|| ());
        let open_sockets = broker.open_sockets();
        let resident_bytes = broker.resident_bytes();
        innocents.notice_nothing_of(|| row(&broker));
        until("the peers' sockets are closed", || (broker.open_sockets() == open_sockets).then_some(()));
        if let Some(before) = resident_bytes {
            until("the peers' memory is given back", || {
                (broker.resident_bytes()? < before + memory_slack_bytes()).then_some(())
            });
        }
        innocents.notice_nothing_of(|| ());
        assert!(broker.log_lines("panicked").is_empty());
        drop(innocents);
        assert!(broker.stop().success());
    }
}

/// Waits until the broker says this of itself; it has to be told to speak every second.
pub(crate) fn wait_for_sys(broker: &Broker, topic: &str, is_enough: impl Fn(u64) -> bool) {
    let mut watcher = broker.client(Version::V3_1_1, "watcher");
    watcher.subscribe(&format!("$SYS/broker/{topic}"));
    until(topic, || {
        let said = Message::parse(Version::V3_1_1, &watcher.read_packet()).payload;
        let value = String::from_utf8_lossy(&said).parse().expect("a counter is a number");
        is_enough(value).then_some(())
    });
}

/// Number of peers at a time.
const PEERS: usize = 8;

/// Plays a row that consists of bytes and answers: each whole, and again one byte per segment.
pub(crate) fn answers(cases: &[Case]) {
    answers_with("", cases);
}

/// The same against brokers with these settings.
pub(crate) fn answers_with(settings: &str, cases: &[Case]) {
    play(settings, |broker| {
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            for peer in 0..PEERS.min(cases.len()) {
                let next = &next;
                scope.spawn(move || {
                    let mut innocents = Innocents::connect(broker, &format!("beside peer {peer}"));
                    while let number = next.fetch_add(1, Ordering::Relaxed)
                        && let Some(case) = cases.get(number)
                    {
                        let _named = Named(case);
                        innocents.notice_nothing_of(|| {
                            case.play(broker, RawClient::send);
                            case.play(broker, RawClient::send_bytewise);
                        });
                    }
                });
            }
        });
        assert_logged(broker, cases);
    });
}

impl Case {
    fn play(&self, broker: &Broker, send: impl Fn(&mut RawClient, &[u8])) {
        let mut peer = if self.is_first {
            broker.connect()
        } else {
            broker.client(self.version, &self.client_id).into_raw()
        };
        send(&mut peer, &self.bytes);
        if let Some(farewell) = self.answer.farewell(self.version, self.is_first) {
            peer.expect(&farewell);
            return peer.expect_closed();
        }
        if self.is_first {
            let connack = peer.read_packet();
            assert!(packet::is_accepted(&connack), "{connack:02x?}");
        }
        if let Answer::Reply(reply) = &self.answer {
            peer.expect(reply);
        }
        peer.expect_only_pong();
        peer.send(&packet::disconnect(self.version, 0));
        peer.expect_closed();
    }
}

/// A row with this number of cases stays below the lines of the log in a second.
const LOGGED_CASES_MAX: usize = 100;

/// The peer and the reason are named once for each connection.
fn assert_logged(broker: &Broker, cases: &[Case]) {
    if cases.len() > LOGGED_CASES_MAX {
        return;
    }
    let is_refused = |case: &&Case| case.is_first && case.answer.farewell(case.version, true).is_some();
    let refused = 2 * cases.iter().filter(is_refused).count();
    until("every refusal is logged once", || {
        (broker.log_lines("refused client_id=").len() == refused).then_some(())
    });
    for case in cases.iter().filter(|case| !case.is_first) {
        let needle = format!("disconnected client_id={} ", in_log(&case.client_id));
        until("every end is logged once", || (broker.log_lines(&needle).len() == 2).then_some(()));
    }
}

/// Says which case it was, if the test fails during it.
struct Named<'a>(&'a Case);

impl Drop for Named<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let Case { version, bytes, answer, .. } = self.0;
            eprintln!("MQTT {version}: {:02x?}, expected {answer:?}", &bytes[..bytes.len().min(64)]);
        }
    }
}
