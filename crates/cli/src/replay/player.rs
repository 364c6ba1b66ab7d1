//! Sends the packets of the recorded clients at their time, and in an order that keeps causes in front of effects.

use std::collections::HashMap;
use std::io::Read;
use std::time::Duration;

use client::Endpoint;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use wire::{Decoded, Limits, Packet, Publish, PublishTopic, Utf8, Version, decode};

use super::exchange::Answer;
use super::judge::Judge;
use super::packet::{Kind, Seen};
use super::past::Moment;
use super::pcap::PcapError;
use super::report::{DifferenceKind, Report};
use super::script::{Act, Posted, Said, Script, Step};
use super::wires::{ARRIVALS_WAITING_MAX, Arrival, Ping, Wire};

/// The bytes of PINGREQ.
const PING: [u8; 2] = [0xc0, 0];

/// The shortest time for which a late packet is waited for, after many packets were missing.
const PATIENCE_MIN: Duration = Duration::from_millis(100);

/// Time for which a message is waited for that a race of the recording may have caused, or that a later message of the
/// same publisher has overtaken.
const HOPELESS_MAX: Duration = Duration::from_millis(50);

/// Silence after which the replay ends, so that extra messages at the end are found too.
const SILENCE: Duration = Duration::from_millis(300);

/// Maximum number of such silences that are waited for.
const SILENCES_MAX: u32 = 20;

/// The speed of a replay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Speed {
    /// The times of the recording, divided by this number.
    Times(f64),
    /// No pauses: only answers are waited for.
    Max,
}

/// The reason why a recording was not played to its end.
#[derive(Debug)]
pub(crate) enum PlayError {
    Pcap(PcapError),
    /// The first connection could not be made.
    NoConnection(std::io::Error),
}

/// Time for which packets are waited for. Each failure halves it, so that a server without answers does not stop the
/// replay for hours. A long wait with success doubles it again.
#[derive(Debug, Clone, Copy)]
struct Patience {
    full: Duration,
    now: Duration,
}

impl Patience {
    fn fail(&mut self) {
        self.now = (self.now / 2).max(PATIENCE_MIN.min(self.full));
    }

    fn succeed(&mut self, elapsed: Duration) {
        if elapsed > self.now / 2 {
            self.now = (self.now * 2).min(self.full);
        }
    }
}

pub(crate) struct Player {
    to: Endpoint,
    speed: Speed,
    patience: Patience,
    pub(crate) judge: Judge,
    wires: HashMap<u64, Wire>,
    /// Answers for which a connection had no room. Each takes 4 bytes, and a server has at most 65,535 open exchanges.
    owed: HashMap<u64, Vec<u8>>,
    arrivals: mpsc::Receiver<Arrival>,
    arrived: mpsc::Sender<Arrival>,
    /// Number of own PINGREQ packets without an answer.
    own_pings: usize,
    began: Instant,
    /// Time of the first step.
    first: Option<Duration>,
    now: Moment,
    /// Time in the recording of the last packet that was sent.
    last_sent: Duration,
}

impl Player {
    pub(crate) fn new(to: Endpoint, speed: Speed, patience: Duration, report: Report) -> Self {
        let (arrived, arrivals) = mpsc::channel(ARRIVALS_WAITING_MAX);
        let now = Moment { step: 0, time: Duration::ZERO };
        Self {
            to,
            speed,
            patience: Patience { full: patience, now: patience },
            judge: Judge::new(now, report),
            wires: HashMap::new(),
            owed: HashMap::new(),
            arrivals,
            arrived,
            own_pings: 0,
            began: Instant::now(),
            first: None,
            now,
            last_sent: Duration::ZERO,
        }
    }

    /// Plays all steps, and waits for the last answers. `progress` gets the number of bytes that were read so far.
    pub(crate) async fn play<R: Read>(
        &mut self,
        script: &mut Script<R>,
        mut progress: impl FnMut(u64),
    ) -> Result<(), PlayError> {
        self.began = Instant::now();
        while let Some(step) = script.next().map_err(PlayError::Pcap)? {
            progress(script.bytes());
            self.step(step).await?;
        }
        self.settle().await;
        self.prove_all(None).await;
        for _ in 0..SILENCES_MAX {
            match timeout(SILENCE, self.arrivals.recv()).await {
                Ok(Some(arrival)) => self.arrive(arrival),
                _ => break,
            }
        }
        Ok(())
    }

    /// Ends all connections, and returns the report.
    pub(crate) fn finish(mut self, cut: Option<String>) -> Report {
        self.wires.clear();
        if cut.is_some() {
            self.judge.interrupt();
        }
        let mut report = self.judge.finish();
        report.recorded = self.now.time.saturating_sub(self.first.unwrap_or(self.now.time));
        report.elapsed = self.began.elapsed();
        report.cut = cut;
        report
    }

    async fn step(&mut self, step: Step) -> Result<(), PlayError> {
        let Step { number, connection, time, act } = step;
        self.first.get_or_insert(time);
        while let Ok(arrival) = self.arrivals.try_recv() {
            self.arrive(arrival);
        }
        if !matches!(act, Act::Expect(_) | Act::Abandon(_)) {
            self.wait_until_due(time).await;
            self.settle().await;
        }
        self.now = Moment { step: number, time };
        self.judge.advance(self.now);
        self.judge.sweep();
        self.answer();
        match act {
            Act::Open => return self.open(connection).await,
            Act::Expect(seen) => {
                self.judge.expect(connection, seen);
                self.answer();
            }
            Act::Send(bytes, said) => {
                let changes_session = matches!(
                    said,
                    Said::Connect(_) | Said::Subscribe(..) | Said::Unsubscribe(..) | Said::Disconnect
                );
                if changes_session {
                    self.prove_all(Some(connection)).await;
                }
                self.say(connection, bytes, &said).await;
            }
            Act::SendRaw(bytes) => {
                if let Some(wire) = self.wires.get_mut(&connection) {
                    wire.may_ping = false;
                }
                self.send(connection, bytes).await;
            }
            Act::ClientEnds => {
                self.prove_all(Some(connection)).await;
                self.judge.client_ends(connection);
                if let Some(wire) = self.wires.get_mut(&connection) {
                    (wire.to_server, wire.may_ping) = (None, false);
                }
            }
            Act::Abandon(why) => {
                self.judge.abandon(connection, &why);
                self.wires.remove(&connection);
            }
        }
        Ok(())
    }

    async fn open(&mut self, connection: u64) -> Result<(), PlayError> {
        self.judge.open(connection);
        let opened =
            timeout(self.patience.full, Wire::open(connection, &self.to, self.arrived.clone())).await;
        let error = match opened {
            Ok(Ok(wire)) => {
                self.wires.insert(connection, wire);
                return Ok(());
            }
            Ok(Err(error)) => error,
            Err(_) => std::io::ErrorKind::TimedOut.into(),
        };
        if self.wires.is_empty() && self.judge.report.sent == 0 {
            return Err(PlayError::NoConnection(error));
        }
        self.judge.lose(connection, DifferenceKind::NotConnected, Some(&error.to_string()));
        Ok(())
    }

    /// Sends a packet of a client, with the identifiers of the replay.
    async fn say(&mut self, connection: u64, mut bytes: Vec<u8>, said: &Said) {
        let packet_id_now = match said {
            Said::Acknowledge(said) => self.judge.acknowledge(connection, *said),
            _ => None,
        };
        let Some(wire) = self.wires.get_mut(&connection) else {
            return self.judge.said(connection, said);
        };
        let mut is_sent = true;
        match said {
            Said::Connect(greeting) => {
                wire.version = greeting.version;
                if let Some(client_id) = self.judge.client_id_now(&greeting.client_id) {
                    bytes = with_client_id(&bytes, client_id).unwrap_or(bytes);
                }
            }
            Said::Publish(posted) => {
                if posted.alias.is_some_and(|alias| alias.value() > wire.topic_alias_max) {
                    bytes = with_topic(&bytes, posted).unwrap_or(bytes);
                }
                wire.is_unproved |= posted.packet_id.is_none();
            }
            Said::Acknowledge(_) => match packet_id_now {
                Some(now) => set_packet_id(&mut bytes, now),
                None => is_sent = false,
            },
            Said::Ping => wire.pings.push_back(Ping::Recorded),
            Said::Disconnect => wire.may_ping = false,
            _ => {}
        }
        self.judge.said(connection, said);
        if is_sent {
            self.send(connection, bytes).await;
        }
    }

    /// Queues bytes for the server. While the queue is full, packets of all servers are read.
    async fn send(&mut self, connection: u64, bytes: Vec<u8>) {
        self.judge.report.sent += 1;
        self.last_sent = self.now.time;
        if self.judge.is_over(connection) {
            return self.judge.lose(connection, DifferenceKind::ClosedEarly, None);
        }
        let Some(to_server) = self.wires.get(&connection).and_then(|wire| wire.to_server.clone()) else {
            return;
        };
        let deadline = Instant::now() + self.patience.full;
        loop {
            tokio::select! {
                room = to_server.reserve() => {
                    match room {
                        Ok(room) => room.send(bytes),
                        Err(_) => self.judge.lose(connection, DifferenceKind::ClosedEarly, None),
                    }
                    return;
                }
                Some(arrival) = self.arrivals.recv() => self.arrive(arrival),
                () = sleep_until(deadline) => {
                    let why = Some("the server does not read");
                    return self.judge.lose(connection, DifferenceKind::ClosedEarly, why);
                }
            }
        }
    }

    /// Waits for the time of a step, and reads meanwhile.
    async fn wait_until_due(&mut self, time: Duration) {
        let (Speed::Times(speed), Some(first)) = (self.speed, self.first) else { return };
        let due = self.began + time.saturating_sub(first).div_f64(speed);
        if due <= Instant::now() {
            return;
        }
        loop {
            tokio::select! {
                Some(arrival) = self.arrivals.recv() => self.arrive(arrival),
                () = sleep_until(due) => return,
            }
        }
    }

    /// Waits until all packets have arrived that the recorded server sent before this step.
    async fn settle(&mut self) {
        if self.judge.waiting() == 0 {
            return;
        }
        let began = Instant::now();
        // Without pauses, a packet that depends on the time, such as a delayed will, comes as late as in the recording.
        let recorded = match self.speed {
            Speed::Max => self.now.time.saturating_sub(self.last_sent),
            Speed::Times(_) => Duration::ZERO,
        };
        let hopeless = began + HOPELESS_MAX.min(self.patience.now) + recorded;
        let mut deadline = hopeless;
        while self.judge.waiting() > 0 {
            match timeout_at(deadline, self.arrivals.recv()).await {
                Ok(Some(arrival)) => self.arrive(arrival),
                _ if deadline == hopeless => {
                    self.judge.give_up_hopeless();
                    deadline = began + self.patience.now.max(2 * HOPELESS_MAX) + recorded;
                }
                _ => {
                    self.judge.give_up();
                    return self.patience.fail();
                }
            }
        }
        self.patience.succeed(began.elapsed());
    }

    /// Waits until servers have read the messages of QoS 0 of all connections but one. PINGRESP shows this.
    ///
    /// A message of QoS 0 has no answer. Without this proof, a client could subscribe before an earlier message of
    /// another connection is processed, and receive it.
    async fn prove_all(&mut self, except: Option<u64>) {
        let wires = self.wires.iter_mut().filter(|(connection, _)| Some(**connection) != except);
        for (_, wire) in wires.filter(|(_, wire)| wire.is_unproved && wire.may_be_asked()) {
            let Some(to_server) = &wire.to_server else { continue };
            if to_server.try_send(PING.to_vec()).is_ok() {
                wire.pings.push_back(Ping::Own);
                wire.is_unproved = false;
                self.own_pings += 1;
            }
        }
        let deadline = Instant::now() + self.patience.now;
        while self.own_pings > 0 {
            match timeout_at(deadline, self.arrivals.recv()).await {
                Ok(Some(arrival)) => self.arrive(arrival),
                _ => {
                    let given_up: usize = self.wires.values_mut().map(Wire::give_up_pings).sum();
                    self.own_pings -= given_up.min(self.own_pings);
                    return self.patience.fail();
                }
            }
        }
    }

    fn arrive(&mut self, arrival: Arrival) {
        self.read(arrival);
        self.answer();
    }

    /// Sends the answers that are due at once.
    fn answer(&mut self) {
        for Answer { connection, bytes } in self.judge.take_answers() {
            self.owed.entry(connection).or_default().extend(bytes);
        }
        let wires = &self.wires;
        self.owed.retain(|connection, owed| {
            let Some(to_server) = wires.get(connection).and_then(|wire| wire.to_server.as_ref()) else {
                return false;
            };
            match to_server.try_send(std::mem::take(owed)) {
                Err(TrySendError::Full(bytes)) => {
                    *owed = bytes;
                    true
                }
                Ok(()) | Err(TrySendError::Closed(_)) => false,
            }
        });
    }

    fn read(&mut self, Arrival { connection, bytes }: Arrival) {
        let Some(wire) = self.wires.get_mut(&connection) else { return };
        let Some(bytes) = bytes else {
            self.own_pings -= wire.give_up_pings().min(self.own_pings);
            (wire.to_server, wire.may_ping) = (None, false);
            self.judge.receive(connection, Seen::end());
            return;
        };
        let mut seen = Vec::new();
        let read = wire.reading.take(&bytes, wire.version, |packet| seen.push(packet));
        for packet in seen {
            match &packet.kind {
                Kind::Pong => match wire.pings.pop_front() {
                    Some(Ping::Own) => {
                        self.own_pings = self.own_pings.saturating_sub(1);
                        continue;
                    }
                    Some(Ping::GivenUp) => continue,
                    Some(Ping::Recorded) | None => {}
                },
                Kind::ConnAck { is_accepted, topic_alias_max, .. } => {
                    (wire.may_ping, wire.topic_alias_max) = (*is_accepted, *topic_alias_max);
                }
                _ => {}
            }
            self.judge.receive(connection, packet);
        }
        if let Err(error) = read {
            self.judge.lose(connection, DifferenceKind::NotMqtt, Some(&error));
        }
    }
}

/// Sets the packet identifier of an acknowledgement.
fn set_packet_id(bytes: &mut [u8], packet_id: u16) {
    // The identifier is behind the type and Remaining Length, whose last byte has no upper bit.
    let length_bytes = bytes.iter().skip(1).position(|byte| byte & 0x80 == 0).map_or(0, |last| last + 1);
    if let Some(place) = bytes.get_mut(1 + length_bytes..3 + length_bytes) {
        place.copy_from_slice(&packet_id.to_be_bytes());
    }
}

fn with_client_id(bytes: &[u8], client_id: &str) -> Option<Vec<u8>> {
    let Ok(Decoded::Packet { packet: Packet::Connect(mut connect), .. }) =
        decode(bytes, None, &Limits::default())
    else {
        return None;
    };
    let mut changed = Vec::new();
    connect.client_id = Utf8::new(client_id).ok()?;
    connect.encode(connect.version(), &mut changed).ok()?;
    Some(changed)
}

/// Replaces the topic alias of a message by its topic.
fn with_topic(bytes: &[u8], posted: &Posted) -> Option<Vec<u8>> {
    let version = Version::V5;
    let Ok(Decoded::Packet { packet: Packet::Publish(publish), .. }) =
        decode(bytes, Some(version), &Limits::default())
    else {
        return None;
    };
    let mut changed = Vec::new();
    let publish = Publish { topic: PublishTopic::Name(posted.topic.name()), ..publish };
    publish.encode(version, &mut changed).ok()?;
    Some(changed)
}

#[test]
fn the_packet_identifier_of_an_acknowledgement_is_replaced() {
    let mut brief = *b"\x40\x02\0\x07";
    set_packet_id(&mut brief, 0x1234);
    assert_eq!(brief, *b"\x40\x02\x12\x34");
    let mut long = [&b"\x40\x83\x01\0\x07\0"[..], &[0; 128]].concat();
    set_packet_id(&mut long, 0x1234);
    assert_eq!(long[..6], *b"\x40\x83\x01\x12\x34\0");
}
