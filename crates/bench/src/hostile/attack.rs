//! The attacks: each does, within what MQTT allows, as much harm as it can.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use super::innocent::TOPICS;
use super::packets::{self, Credentials, Opening, Options};
use super::peer::Peer;

/// Topics and client identifiers of attackers.
const ROOT: &str = "hostile";

/// One way to hurt a server.
pub(super) struct Attack {
    /// Its name on the command line and in the table.
    pub(super) name: &'static str,
    /// Actions of the attackers, in a sentence.
    pub(super) what: &'static str,
    /// Whether the attackers only connect and are refused, so that a decoy can take the place of the server.
    pub(super) suits_decoy: bool,
    /// Brings the attackers to where they can begin. They stay connected as long as the result lives.
    prepare: fn(&mut Arena) -> io::Result<()>,
    /// One short piece of the attack; it is repeated until the time is over.
    strike: fn(&mut Arena) -> io::Result<()>,
}

/// Resources of an attack.
pub(super) struct Arena {
    address: SocketAddr,
    /// Divisor of all numbers of the long form.
    divisor: usize,
    peers: Vec<Peer>,
    /// Never the same twice.
    number: u64,
    /// The user of the innocent clients.
    user: String,
}

impl Arena {
    pub(super) fn new(address: SocketAddr, divisor: usize, user: Option<&str>) -> Self {
        let user = user.unwrap_or("innocent").to_owned();
        Self { address, divisor, peers: Vec::new(), number: 0, user }
    }

    fn next(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Sends a CONNECT from each of 100 addresses, with the name and the password of its number, and takes this time for it or
    /// longer. Nobody waits for the answers. Where the server is not at 127.0.0.1, all come from one address.
    fn guess_within(&mut self, time: Duration, of: impl Fn(u64) -> (String, String)) -> io::Result<()> {
        let due = Instant::now() + time;
        for address in 1..=GUESSERS {
            let from =
                (self.address.ip() == Ipv4Addr::LOCALHOST).then_some(Ipv4Addr::new(127, 1, 0, address));
            let mut peer = Peer::open_from(from.map(IpAddr::V4), self.address)?;
            let number = self.next();
            peer.send(&guess(number, &of(number)))?;
            self.peers.push(peer);
            // Innocent clients of this processor, and the threads of the system that write its disk, go first.
            thread::yield_now();
        }
        let surplus = self.peers.len().saturating_sub(GUESSING_MAX);
        self.peers.drain(..surplus);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        Ok(())
    }

    /// Waits for the answer to one guess.
    ///
    /// # Errors
    /// If the server lets the client in: there is nothing to guess then.
    fn guess_once(&mut self, of: impl Fn(u64) -> (String, String)) -> io::Result<()> {
        let number = self.next();
        let mut peer = Peer::open(self.address)?;
        peer.send(&guess(number, &of(number)))?;
        match packets::accepted(&peer.wait_for(packets::CONNACK)?) {
            Ok(()) => Err(io::Error::other("the server lets a client with a wrong password in")),
            Err(_) => Ok(()),
        }
    }

    /// A count of the long form, or what is left of it in the short one.
    fn count(&self, long: usize) -> usize {
        (long / self.divisor).max(2)
    }

    /// Another attacker whose session ends with its connection.
    fn join(&mut self) -> io::Result<&mut Peer> {
        self.join_for(0)
    }

    /// Another attacker whose session lasts so long.
    fn join_for(&mut self, expiry_secs: u32) -> io::Result<&mut Peer> {
        let id = format!("{ROOT}-{}", self.next());
        self.peers.push(Peer::connect(
            self.address,
            &packets::connect(&id, Opening { expiry_secs, ..Opening::default() }),
        )?);
        Ok(self.peers.last_mut().expect("pushed just now"))
    }

    fn peer(&mut self, at: usize) -> io::Result<&mut Peer> {
        self.peers.get_mut(at).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Lets `count` attackers begin. The server may end or refuse some of them; the attack goes on with the others.
    ///
    /// # Errors
    /// If nobody is left.
    fn begin_some(
        &mut self,
        count: usize,
        mut begin: impl FnMut(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut last = Ok(());
        for _ in 0..count {
            last = begin(self);
        }
        if self.peers.is_empty() { last } else { Ok(()) }
    }

    /// Throws away what has arrived for any attacker, and forgets those whose connection has ended.
    fn discard(&mut self) {
        self.peers.retain_mut(Peer::discard);
    }
}

/// Record of an attack.
#[derive(Debug, Default)]
pub(super) struct Conduct {
    /// Why the attackers could not begin.
    pub(super) unprepared: Option<String>,
    /// Number of strikes that succeeded.
    pub(super) strikes: u64,
    /// Strikes that failed. The attackers then begin again.
    pub(super) failed: u64,
    /// Why the last strike failed that did, or why the attackers could not begin again.
    pub(super) last_failure: Option<String>,
}

impl Conduct {
    /// Why there was no attack, if there was none.
    pub(super) fn fault(&self) -> Option<String> {
        if let Some(why) = &self.unprepared {
            return Some(format!("the attack could not be prepared: {why}"));
        }
        let why = self.last_failure.as_deref().unwrap_or("there was no time");
        (self.strikes == 0).then(|| format!("the attack was never carried out: {why}"))
    }
}

impl Attack {
    /// Attacks until `is_over`. Attackers whose connections the server ends begin again.
    pub(super) fn carry_out(&self, arena: &mut Arena, mut is_over: impl FnMut() -> bool) -> Conduct {
        let mut conduct = Conduct::default();
        while !is_over() {
            match (self.strike)(arena) {
                Ok(()) => conduct.strikes += 1,
                Err(error) => {
                    conduct.failed += 1;
                    conduct.last_failure = Some(error.to_string());
                    arena.peers.clear();
                    thread::sleep(Duration::from_millis(10));
                    if let Err(error) = self.prepare(arena) {
                        conduct.last_failure = Some(error.to_string());
                    }
                }
            }
        }
        conduct
    }

    /// See [`Attack::prepare`].
    ///
    /// # Errors
    /// If the attackers cannot begin.
    pub(super) fn prepare(&self, arena: &mut Arena) -> io::Result<()> {
        (self.prepare)(arena)
    }
}

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "nothing",
        what: "No attack. The row shows how much the figures differ without one.",
        suits_decoy: false,
        prepare: |_| Ok(()),
        strike: |_| {
            thread::sleep(Duration::from_millis(10));
            Ok(())
        },
    },
    Attack {
        name: "expiring-topics",
        what: "Retained messages under topics of 65,000 bytes that expire after a second.",
        suits_decoy: false,
        prepare: |arena| arena.join().map(drop),
        strike: expiring_topics,
    },
    Attack {
        name: "stored-messages",
        what: "64 KiB messages at QoS 1 to a lasting session that acknowledges each.",
        suits_decoy: false,
        prepare: |arena| {
            let subscriber = arena.join_for(3_600)?;
            subscriber.send(&packets::subscribe(1, [format!("{ROOT}/stored")], 1))?;
            subscriber.wait_for(packets::SUBACK)?;
            arena.join().map(drop)
        },
        strike: stored_messages,
    },
    Attack {
        name: "replaced-value",
        what: "One retained value of 1 MB, replaced again and again.",
        suits_decoy: false,
        prepare: |arena| arena.join().map(drop),
        strike: |arena| {
            let packet_id = packet_id(arena.next());
            let publish =
                packets::publish(&format!("{ROOT}/value"), &vec![b'v'; 1_000_000], stored(packet_id));
            let publisher = arena.peer(0)?;
            publisher.send(&publish)?;
            publisher.wait_for(packets::PUBACK).map(drop)
        },
    },
    Attack {
        name: "cleared-nothing",
        what: "Topics of 60,000 bytes that have no retained value are cleared.",
        suits_decoy: false,
        prepare: |arena| arena.join().map(drop),
        strike: |arena| {
            let packet_id = packet_id(arena.next());
            let topic = long_topic(arena.next(), 60_000);
            let publisher = arena.peer(0)?;
            publisher.send(&packets::publish(&topic, b"", stored(packet_id)))?;
            publisher.wait_for(packets::PUBACK).map(drop)
        },
    },
    Attack {
        name: "last-words",
        what: "Clients send CONNECT, SUBSCRIBE, UNSUBSCRIBE and DISCONNECT in one segment.",
        suits_decoy: false,
        prepare: |_| Ok(()),
        strike: last_words,
    },
    Attack {
        name: "slow-acknowledger",
        what: "A lasting session subscribes to the innocent clients and acknowledges ten messages a second.",
        suits_decoy: false,
        prepare: |arena| {
            let subscriber = arena.join_for(3_600)?;
            subscriber.send(&packets::subscribe(1, [format!("{TOPICS}/#")], 1))?;
            subscriber.wait_for(packets::SUBACK).map(drop)
        },
        strike: |arena| {
            let subscriber = arena.peer(0)?;
            let packet = subscriber.wait_for(packets::PUBLISH)?;
            if let Some(id) = packets::packet_id_of(&packet) {
                subscriber.send(&packets::puback(id))?;
                thread::sleep(Duration::from_millis(100));
            }
            Ok(())
        },
    },
    Attack {
        name: "stuck-readers",
        what: "Fifty clients subscribe to the innocent clients and read nothing.",
        suits_decoy: false,
        prepare: |arena| {
            for _ in 0..arena.count(50) {
                let subscriber = arena.join()?;
                subscriber.send(&packets::subscribe(1, [format!("{TOPICS}/#")], 1))?;
                subscriber.wait_for(packets::SUBACK)?;
            }
            Ok(())
        },
        strike: rest,
    },
    Attack {
        name: "many-groups",
        what: "One client is in 100,000 groups that get what the innocent clients publish.",
        suits_decoy: false,
        prepare: |arena| {
            let groups = arena.count(100_000);
            arena.join()?;
            join_groups(arena, groups)
        },
        strike: |arena| {
            arena.discard();
            thread::sleep(Duration::from_millis(5));
            arena.peer(0).map(drop)
        },
    },
    Attack {
        name: "left-groups",
        what: "Clients join 100,000 groups and leave them all at once.",
        suits_decoy: false,
        prepare: |_| Ok(()),
        strike: |arena| {
            let groups = arena.count(100_000);
            arena.peers.clear();
            arena.join()?;
            join_groups(arena, groups)?;
            arena.peer(0)?.send(&packets::DISCONNECT)?;
            arena.peers.remove(0).finish()
        },
    },
    Attack {
        name: "absent-members",
        what: "A group that gets what the innocent clients publish has 10,000 members, all of them away.",
        suits_decoy: false,
        prepare: absent_members,
        strike: rest,
    },
    Attack {
        name: "unfinished-packets",
        what: "400 clients send 620 kB of a PUBLISH of 2 MB, and nothing more.",
        suits_decoy: false,
        prepare: |arena| {
            let unfinished = packets::unfinished_publish(&format!("{ROOT}/unfinished"), 2_000_000, 620_000);
            arena.begin_some(arena.count(400), |arena| arena.join()?.send(&unfinished))
        },
        strike: rest,
    },
    Attack {
        name: "user-properties",
        what: "800 subscribers get PUBLISH packets with 250,000 User Properties.",
        suits_decoy: false,
        prepare: |arena| {
            arena.join()?;
            for _ in 0..arena.count(800) {
                let subscriber = arena.join()?;
                subscriber.send(&packets::subscribe(1, [format!("{ROOT}/properties")], 0))?;
                subscriber.wait_for(packets::SUBACK)?;
            }
            Ok(())
        },
        strike: |arena| {
            let user_properties = 250_000;
            let options = Options { user_properties, ..Options::default() };
            let publish = packets::publish(&format!("{ROOT}/properties"), b"", options);
            arena.peer(0)?.send(&publish)?;
            arena.discard();
            thread::sleep(Duration::from_millis(200));
            Ok(())
        },
    },
    Attack {
        name: "deep-filters",
        what: "One client subscribes to 5,000 filters of twelve levels, each with its wildcards elsewhere.",
        suits_decoy: false,
        prepare: |arena| {
            let filters: Vec<String> = (1..=arena.count(5_000)).map(deep_filter).collect();
            let subscriber = arena.join()?;
            for some in filters.chunks(500) {
                subscriber.send(&packets::subscribe(1, some, 0))?;
                subscriber.wait_for(packets::SUBACK)?;
            }
            Ok(())
        },
        strike: rest,
    },
    Attack {
        name: "huge-subscribe",
        what: "SUBSCRIBE packets of nearly 2 MB, each followed by the end of the connection.",
        suits_decoy: false,
        prepare: |_| Ok(()),
        strike: |arena| {
            let filters = (0..arena.count(90_000)).map(|at| format!("{ROOT}/filter/{at:05}"));
            let subscribe = packets::subscribe(1, filters, 1);
            arena.peers.clear();
            let subscriber = arena.join()?;
            subscriber.send(&subscribe)?;
            subscriber.wait_for(packets::SUBACK).map(drop)
        },
    },
    Attack {
        name: "unread-pings",
        what: "PINGREQ as fast as the server takes them, and no answer is read.",
        suits_decoy: false,
        prepare: |arena| arena.join().map(drop),
        strike: |arena| {
            let pings = packets::PINGREQ.repeat(8_192);
            arena.peer(0)?.push(&pings);
            thread::sleep(Duration::from_millis(1));
            Ok(())
        },
    },
    Attack {
        name: "unreleased-messages",
        what: "QoS 2 messages that are never released, sent again and again under the same identifiers.",
        suits_decoy: false,
        prepare: |arena| arena.join().map(drop),
        strike: |arena| {
            let number = arena.next();
            let mut batch = Vec::new();
            for packet_id in 1..=64 {
                let options = Options { qos: 2, packet_id, ..Options::default() };
                batch.extend(packets::publish(&format!("{ROOT}/{number}"), &[b'u'; 1_000], options));
            }
            let publisher = arena.peer(0)?;
            publisher.send(&batch)?;
            thread::sleep(Duration::from_millis(2));
            if publisher.discard() { Ok(()) } else { Err(io::ErrorKind::NotConnected.into()) }
        },
    },
    Attack {
        name: "topic-aliases",
        what: "500 clients set up every topic alias that they may, each for a topic of 60,000 bytes.",
        suits_decoy: false,
        prepare: |arena| {
            arena.begin_some(arena.count(500), |arena| {
                let mut batch = Vec::new();
                for alias in 1..=10 {
                    let topic = long_topic(arena.next(), 60_000);
                    let options = Options { topic_alias: Some(alias), ..Options::default() };
                    batch.extend(packets::publish(&topic, b"", options));
                }
                arena.join()?.send(&batch)
            })
        },
        strike: rest,
    },
    Attack {
        name: "retained-walks",
        what: "Clients subscribe to 50,000 retained messages again and again, and leave before they have them.",
        suits_decoy: false,
        prepare: |arena| {
            let messages = arena.count(50_000);
            let publisher = arena.join()?;
            for at in 0..messages {
                let options = Options { retain: true, ..Options::default() };
                publisher.send(&packets::publish(&format!("{ROOT}/walk/{at}"), &[b'w'; 100], options))?;
            }
            Ok(())
        },
        strike: |arena| {
            arena.peers.truncate(1);
            for _ in 0..8 {
                arena.join()?.send(&packets::subscribe(1, [format!("{ROOT}/walk/#")], 0))?;
            }
            thread::sleep(Duration::from_millis(5));
            Ok(())
        },
    },
    Attack {
        name: "cut-wills",
        what: "A thousand clients with wills of 60,000 bytes to a subscriber are cut at once, again and again.",
        suits_decoy: false,
        prepare: |arena| {
            let subscriber = arena.join()?;
            subscriber.send(&packets::subscribe(1, [format!("{ROOT}/will")], 0))?;
            subscriber.wait_for(packets::SUBACK).map(drop)
        },
        strike: |arena| {
            let (topic, payload) = (format!("{ROOT}/will"), vec![b'w'; 60_000]);
            let will = Some((topic.as_str(), payload.as_slice()));
            let clients = arena.count(1_000);
            for _ in 0..clients {
                let id = format!("{ROOT}-{}", arena.next());
                let connect = packets::connect(&id, Opening { will, ..Opening::default() });
                arena.peers.push(Peer::connect(arena.address, &connect)?);
            }
            arena.peers.truncate(1);
            if arena.peer(0)?.discard() { Ok(()) } else { Err(io::ErrorKind::NotConnected.into()) }
        },
    },
    Attack {
        name: "wrong-passwords",
        what: "Up to 10,000 wrong passwords a second, from 100 addresses, for the user of the innocent clients.",
        suits_decoy: true,
        prepare: |arena| arena.guess_once(wrong_password_of(arena.user.clone())),
        strike: |arena| arena.guess_within(Duration::from_millis(10), wrong_password_of(arena.user.clone())),
    },
    Attack {
        name: "strangers",
        what: "500 users a second whom nobody knows, from 100 addresses. They wait for their answers.",
        suits_decoy: true,
        prepare: |arena| arena.guess_once(stranger),
        strike: |arena| arena.guess_within(Duration::from_millis(200), stranger),
    },
    Attack {
        name: "takeovers",
        what: "Connections take one client identifier from each other as fast as they can.",
        suits_decoy: false,
        prepare: |_| Ok(()),
        strike: |arena| {
            let connect = packets::connect(
                &format!("{ROOT}-one"),
                Opening { resumes: true, expiry_secs: 3_600, ..Opening::default() },
            );
            for _ in 0..16 {
                let mut peer = Peer::open(arena.address)?;
                peer.send(&connect)?;
                arena.peers.push(peer);
            }
            arena.discard();
            let surplus = arena.peers.len().saturating_sub(64);
            arena.peers.drain(..surplus);
            thread::sleep(Duration::from_millis(2));
            Ok(())
        },
    },
];

/// Attackers that have done what they wanted, and stay.
fn rest(arena: &mut Arena) -> io::Result<()> {
    thread::sleep(Duration::from_millis(20));
    // Whoever was ended is gone; the attack goes on with the others.
    let _ = arena;
    Ok(())
}

fn expiring_topics(arena: &mut Arena) -> io::Result<()> {
    for _ in 0..arena.count(120) {
        let topic = long_topic(arena.next(), 65_000);
        let options = Options { retain: true, expiry_secs: Some(1), ..Options::default() };
        arena.peer(0)?.send(&packets::publish(&topic, b"x", options))?;
    }
    thread::sleep(Duration::from_millis(500));
    Ok(())
}

fn stored_messages(arena: &mut Arena) -> io::Result<()> {
    const BATCH: usize = 16;
    let first = arena.next();
    let mut batch = Vec::new();
    for at in 0..BATCH {
        let packet_id = packet_id(first * BATCH as u64 + at as u64);
        let options = Options { qos: 1, packet_id, ..Options::default() };
        batch.extend(packets::publish(&format!("{ROOT}/stored"), &[b's'; 64 << 10], options));
    }
    arena.peer(1)?.send(&batch)?;
    let mut delivered = 0;
    for _ in 0..BATCH {
        delivered += usize::from(packets::published(&arena.peer(1)?.wait_for(packets::PUBACK)?).is_ok());
    }
    for _ in 0..delivered {
        let message = arena.peer(0)?.wait_for(packets::PUBLISH)?;
        if let Some(id) = packets::packet_id_of(&message) {
            arena.peer(0)?.send(&packets::puback(id))?;
        }
    }
    Ok(())
}

fn last_words(arena: &mut Arena) -> io::Result<()> {
    let mut leaving = Vec::new();
    for _ in 0..32 {
        let number = arena.next();
        let filter = format!("{ROOT}/words/{number}/+");
        let mut words = packets::connect(&format!("{ROOT}-{number}"), Opening::default());
        words.extend(packets::subscribe(1, [&filter], 1));
        words.extend(packets::unsubscribe(2, &filter));
        words.extend(packets::DISCONNECT);
        let mut peer = Peer::open(arena.address)?;
        peer.send(&words)?;
        leaving.push(peer);
    }
    leaving.into_iter().try_for_each(Peer::finish)
}

/// Addresses of clients that guess.
const GUESSERS: u8 = 100;

/// Connections of clients that guess, at a time. The oldest are closed.
const GUESSING_MAX: usize = 3_000;

/// The CONNECT with this number, with a name and a password.
fn guess(number: u64, (user, password): &(String, String)) -> Vec<u8> {
    let credentials = Some(Credentials { user, password });
    packets::connect(&format!("{ROOT}-{number}"), Opening { credentials, ..Opening::default() })
}

/// Wrong passwords for one user.
fn wrong_password_of(user: String) -> impl Fn(u64) -> (String, String) {
    move |number| (user.clone(), format!("no {number}"))
}

/// A user whom nobody knows.
fn stranger(number: u64) -> (String, String) {
    (format!("stranger-{number}"), "pond".to_owned())
}

fn join_groups(arena: &mut Arena, groups: usize) -> io::Result<()> {
    let filters: Vec<String> = (0..groups).map(|at| format!("$share/{at}/{TOPICS}/#")).collect();
    let member = arena.peer(0)?;
    for some in filters.chunks(1_000) {
        member.send(&packets::subscribe(1, some, 0))?;
        member.wait_for(packets::SUBACK)?;
    }
    Ok(())
}

fn absent_members(arena: &mut Arena) -> io::Result<()> {
    const AT_A_TIME: usize = 100;
    let members = arena.count(10_000);
    let lasting = Opening { expiry_secs: 3_600, ..Opening::default() };
    let mut away = 0;
    while away < members {
        let mut leaving = Vec::new();
        for _ in 0..AT_A_TIME.min(members - away) {
            let mut words = packets::connect(&format!("{ROOT}-{}", arena.next()), lasting);
            words.extend(packets::subscribe(1, [format!("$share/absent/{TOPICS}/#")], 0));
            let mut peer = Peer::open(arena.address)?;
            peer.send(&words)?;
            leaving.push(peer);
        }
        away += leaving.len();
        for mut peer in leaving {
            peer.wait_for(packets::SUBACK)?;
            peer.send(&packets::DISCONNECT)?;
            peer.finish()?;
        }
    }
    Ok(())
}

/// A filter of twelve levels; its wildcards stand where `number` has its bits.
fn deep_filter(number: usize) -> String {
    let level = |at: usize| if number >> at & 1 == 1 { "+" } else { "l" };
    (0..13).map(level).collect::<Vec<_>>().join("/")
}

/// A topic of about this length, in bytes.
fn long_topic(number: u64, len: usize) -> String {
    format!("{ROOT}/{number:020}/{}", "t".repeat(len.saturating_sub(ROOT.len() + 22)))
}

fn packet_id(number: u64) -> u16 {
    u16::try_from(number % 60_000).expect("less than 60,000") + 1
}

/// A retained message at QoS 1.
fn stored(packet_id: u16) -> Options {
    Options { qos: 1, retain: true, packet_id, ..Options::default() }
}
