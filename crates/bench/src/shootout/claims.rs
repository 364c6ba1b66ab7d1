//! Claims of durability: is everything there after SIGKILL that the server had acknowledged?
//!
//! ```text
//! subscriber: session that lasts, QoS 1 ── leaves                                       ── comes back, reads
//! publisher:                               QoS 1, 100 unacknowledged, until the connection breaks
//! server:                                                                              SIGKILL ── starts again
//! ```
//!
//! SIGKILL comes after some time, or earlier if the queue of the subscriber gets long: many brokers limit queues.
//!
//! SIGKILL is kinder than a power cut: the system still writes what the server has handed over.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use wire::{
    Connect, Connected, Delivery, Packet, PacketId, PubAck, PubAckReason, Publish, Qos, Role, Utf8, Version,
};

use super::Setting;
use super::peer::{Peer, Recipe};
use super::results::Claim;
use crate::error::{Error, Result};
use crate::exchange::packet_id;
use crate::frames::packet_len;
use crate::interrupt::Interrupt;
use crate::protocol::{packet_in, subscribe, to_bytes, topic_name};
use crate::server::accepts;

/// All servers speak it.
const VERSION: Version = Version::V3_1_1;

/// Messages that the publisher has unacknowledged.
const WINDOW: u64 = 100;

/// Bytes of a payload; the first eight are the number of the message.
const PAYLOAD_LEN: usize = 100;

/// Acknowledged messages after which the server is killed before its time.
const MESSAGES_MAX: u64 = 50_000;

/// Time between two looks at their number.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// Time that a server may take to answer, at least. After a start, a server has the time limit of its start.
const PATIENCE_MIN: Duration = Duration::from_secs(10);

/// Time without a message after which no more are expected.
const SILENCE: Duration = Duration::from_secs(3);

const TOPIC: &str = "claims/messages";

/// Publishes for a while, kills the server, starts it again, and counts. `None` if the server claims nothing.
///
/// # Errors
/// If the machine refuses something, or there is an interrupt. A fault of the server is part of the result.
pub(super) fn check(peer: &Peer, setting: &Setting) -> Result<Option<Claim>> {
    let Some(recipe) = peer.durable_recipe(setting)? else { return Ok(None) };
    let durable = peer.entry.durable.as_ref();
    let mut claim = Claim {
        server: peer.name().to_owned(),
        claim: durable.map(|durable| durable.claim.clone()).unwrap_or_default(),
        command: durable.map(|durable| durable.command.clone()).unwrap_or_default(),
        settings: durable.map(|durable| [&durable.fairness[..], &durable.notes].concat()).unwrap_or_default(),
        acknowledged: 0,
        seconds: 0.0,
        lost: 0,
        failure: None,
    };
    match put_to_test(&recipe, patience(peer.entry.start_secs), &mut claim, setting) {
        Err(Error::Server(what)) => claim.failure = Some(what),
        Err(error) => return Err(error),
        Ok(()) => {}
    }
    Ok(Some(claim))
}

/// Time limit for an answer of a server that has just started: many accept connections before their data are in order.
fn patience(start_secs: u64) -> Duration {
    Duration::from_secs(start_secs).max(PATIENCE_MIN)
}

fn put_to_test(recipe: &Recipe<'_>, patience: Duration, claim: &mut Claim, setting: &Setting) -> Result<()> {
    let (cpus, interrupt) = (setting.server_cpus.as_ref(), &setting.interrupt);
    let (server, _) = recipe.launch(cpus, interrupt)?;
    let address = recipe.address();
    let mut subscriber = Client::connect(address, "claims-subscriber", false, patience)?;
    subscriber.send(&subscribe(PacketId::MIN, TOPIC, Qos::AtLeastOnce, VERSION))?;
    subscriber.wait_for(|packet| matches!(packet, Packet::SubAck(_)).then_some(()))?;
    subscriber.leave()?;
    let began = Instant::now();
    let acknowledged = AtomicU64::new(0);
    claim.acknowledged = thread::scope(|scope| {
        let killer = scope.spawn(|| {
            let is_early = || began.elapsed().as_secs_f64() < setting.seconds;
            while is_early() && acknowledged.load(Relaxed) < MESSAGES_MAX {
                thread::sleep(LOOK_INTERVAL);
            }
            server.crash()
        });
        let published = publish(address, &acknowledged, interrupt);
        killer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        published
    })?;
    claim.seconds = began.elapsed().as_secs_f64();
    if accepts(address) {
        return Err(Error::Server("still accepts connections after SIGKILL".to_owned()));
    }
    let (_server, _) = recipe.launch(cpus, interrupt)?;
    let mut subscriber = Client::connect(address, "claims-subscriber", false, patience)?;
    let arrived = subscriber.receive_until_silence(SILENCE, interrupt)?;
    let kept = arrived.range(..claim.acknowledged).count();
    claim.lost = claim.acknowledged - u64::try_from(kept).unwrap_or_default();
    Ok(())
}

/// Publishes until the server is gone, and counts in `progress`. Returns the number of messages at the front of all that are
/// acknowledged.
fn publish(address: SocketAddr, progress: &AtomicU64, interrupt: &Interrupt) -> Result<u64> {
    let mut publisher = Client::connect(address, "claims-publisher", true, PATIENCE_MIN)?;
    let (mut sent, mut acknowledged) = (0, BTreeSet::new());
    let mut front = 0;
    loop {
        interrupt.check()?;
        let mut bytes = Vec::new();
        while sent < front + WINDOW {
            bytes.extend(message(sent));
            sent += 1;
        }
        // A server that is gone may still have sent acknowledgements.
        let _ = publisher.send(&bytes);
        let answer = publisher.wait_for(|packet| match packet {
            Packet::PubAck(answer) => Some(u64::from(answer.packet_id.value())),
            _ => None,
        });
        match answer {
            Ok(id) => drop(acknowledged.insert(number_of(id, front))),
            Err(Error::Server(_)) => return Ok(front),
            Err(error) => return Err(error),
        }
        while acknowledged.remove(&front) {
            front += 1;
        }
        progress.store(front, Relaxed);
    }
}

/// The PUBLISH with this number.
fn message(number: u64) -> Vec<u8> {
    let mut payload = vec![0; PAYLOAD_LEN];
    payload[..8].copy_from_slice(&number.to_le_bytes());
    let delivery = Delivery::AtLeastOnce { packet_id: packet_id(number), dup: false };
    to_bytes(Publish { delivery, ..Publish::new(topic_name(TOPIC), &payload) }, VERSION)
}

/// The number of the message with this identifier that is not below `front`, and closest to it.
fn number_of(id: u64, front: u64) -> u64 {
    let round = u64::from(u16::MAX);
    front + (id - 1 + round - front % round) % round
}

/// A blocking client.
struct Client {
    stream: TcpStream,
    received: Vec<u8>,
    /// Time that the server may take to answer.
    patience: Duration,
    /// Whether the server continues a stored session.
    has_session: bool,
}

impl Client {
    fn connect(address: SocketAddr, client_id: &str, clean_start: bool, patience: Duration) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, patience).map_err(refused)?;
        stream.set_nodelay(true).map_err(refused)?;
        let mut client = Self { stream, received: Vec::new(), patience, has_session: false };
        let client_id = Utf8::new(client_id).expect("a client id has letters");
        let mut connect = Connect::new(VERSION, client_id);
        connect.clean_start = clean_start;
        client.send(&to_bytes(connect, VERSION))?;
        let outcome = client.wait_for(|packet| match packet {
            Packet::ConnAck(answer) => Some(answer.outcome),
            _ => None,
        })?;
        let Connected::Accepted { session_present } = outcome else {
            return Err(Error::Server("refused a client".to_owned()));
        };
        client.has_session = session_present;
        Ok(client)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).map_err(refused)
    }

    /// Sends DISCONNECT, and waits until the server has closed the connection.
    fn leave(mut self) -> Result<()> {
        self.send(&to_bytes(wire::Disconnect::default(), VERSION))?;
        self.stream.set_read_timeout(Some(PATIENCE_MIN)).map_err(refused)?;
        // A server that does not close it has got the packet all the same.
        let _ = self.stream.read_to_end(&mut Vec::new());
        Ok(())
    }

    /// Reads packets until one is what is looked for.
    fn wait_for<T>(&mut self, mut wanted: impl FnMut(&Packet<'_>) -> Option<T>) -> Result<T> {
        loop {
            let limit = self.patience;
            let packet = self.next_packet(limit)?;
            let packet = packet.ok_or_else(|| Error::Server(format!("did not answer within {limit:?}")))?;
            if let Some(found) = wanted(&packet_in(&packet, Some(VERSION), Role::Server)?) {
                return Ok(found);
            }
        }
    }

    /// Time limit for the first message: a server that has just started may still be reading the queue of the session.
    fn first_limit(&self, silence: Duration) -> Duration {
        if self.has_session { self.patience } else { silence }
    }

    /// Acknowledges all messages that come before this time without a message. Returns their numbers.
    fn receive_until_silence(&mut self, silence: Duration, interrupt: &Interrupt) -> Result<BTreeSet<u64>> {
        let mut arrived = BTreeSet::new();
        let mut limit = self.first_limit(silence);
        while let Some(packet) = self.next_packet(limit)? {
            interrupt.check()?;
            let Packet::Publish(publish) = packet_in(&packet, Some(VERSION), Role::Server)? else { continue };
            let number = publish.payload.first_chunk().map(|number| u64::from_le_bytes(*number));
            arrived.extend(number);
            limit = silence;
            if let Delivery::AtLeastOnce { packet_id, .. } = publish.delivery {
                self.send(&to_bytes(PubAck::new(packet_id, PubAckReason::Success), VERSION))?;
            }
        }
        Ok(arrived)
    }

    /// The next packet; `None` if none comes in this time.
    fn next_packet(&mut self, patience: Duration) -> Result<Option<Vec<u8>>> {
        loop {
            let len = packet_len(&self.received)?;
            if let Some(len) = len.filter(|len| *len <= self.received.len()) {
                return Ok(Some(self.received.drain(..len).collect()));
            }
            self.stream.set_read_timeout(Some(patience)).map_err(refused)?;
            let mut buffer = [0; 64 << 10];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(Error::Server("closed the connection".to_owned())),
                Ok(len) => self.received.extend(&buffer[..len]),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    return Ok(None);
                }
                Err(error) => return Err(refused(error)),
            }
        }
    }
}

/// A connection that the server has broken.
#[expect(clippy::needless_pass_by_value, reason = "it is passed to `map_err`")]
fn refused(error: io::Error) -> Error {
    Error::Server(format!("broke a connection: {error}"))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[test]
    fn a_server_that_starts_slowly_may_answer_slowly() {
        assert_eq!(patience(60), Duration::from_secs(60));
        assert_eq!(patience(1), PATIENCE_MIN);
        // The kernel accepts the connection, and nobody answers.
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let patience = Duration::from_millis(20);
        let answer = Client::connect(silent.local_addr().unwrap(), "client", false, patience);
        let error = answer.err().unwrap().to_string();
        assert!(error.contains("did not answer within 20ms"), "{error}");
    }

    /// Connects to a server that sends these bytes, and is silent then. Returns the time limit for the first message, and the
    /// numbers of messages that came in time.
    fn numbers_from(bytes: &[u8], patience: Duration, silence: Duration) -> (Duration, Vec<u64>) {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = server.local_addr().unwrap();
        thread::scope(|scope| {
            let accepted = scope.spawn(|| {
                let (mut stream, _) = server.accept().unwrap();
                stream.write_all(bytes).unwrap();
                stream
            });
            let mut client = Client::connect(address, "client", false, patience).unwrap();
            let _stream = accepted.join().unwrap();
            let limit = client.first_limit(silence);
            let arrived = client.receive_until_silence(silence, &Interrupt::default()).unwrap();
            (limit, arrived.into_iter().collect())
        })
    }

    #[test]
    fn the_first_message_of_a_stored_session_has_the_time_of_a_start() {
        let (short, long) = (Duration::from_millis(20), Duration::from_secs(10));
        let (new, stored) = ([0x20, 2, 0, 0], [0x20, 2, 1, 0]);
        assert_eq!(numbers_from(&stored, short, long), (short, vec![]));
        assert_eq!(numbers_from(&new, long, short), (short, vec![]));
        assert_eq!(numbers_from(&[&stored[..], &message(7)].concat(), long, short), (long, vec![7]));
    }

    #[test]
    fn an_acknowledgement_belongs_to_the_next_message_with_its_identifier() {
        for front in [0, 1, 65_534, 65_535, 65_536, 1_000_000] {
            for ahead in [0, 1, 99] {
                let id = u64::from(packet_id(front + ahead).value());
                assert_eq!(number_of(id, front), front + ahead);
            }
        }
    }
}
