//! The server's end: a session, and a queue on a disk that stands for the ledger.

use base::Ticket;
use pondhawk_session::{Accepted, Request, Session, Settings};
use wire::{Decoded, Delivery, Packet, PacketId, Publish, Qos, ReasonCode, TopicName, decode};

use crate::client::NOW;
use crate::journal::{Item, Journal};
use crate::random::Random;

const TOPIC: TopicName<'static> = topic::topic!("from/the/server");

/// State that is on disk, or will be.
#[derive(Clone, Default)]
struct Store {
    journal: Journal,
    has_session: bool,
    unreleased: Vec<PacketId>,
    queue: Vec<Entry>,
    last_id: u16,
}

#[derive(Clone, Copy)]
struct Entry {
    item: Item,
    /// Given when it is sent for the first time.
    packet_id: Option<PacketId>,
    /// PUBREC for the message has arrived.
    is_received: bool,
}

/// Operations that wait for the disk.
#[derive(Clone, Copy)]
enum Held {
    Accept { session_present: bool },
    Ticket(Ticket),
    Publish(PacketId, Item, bool),
}

pub(crate) struct ServerEnd {
    session: Option<Session>,
    settings: Settings,
    store: Store,
    disk: Store,
    held: Vec<Held>,
    /// Of the entries of the queue, those that were sent on this connection.
    on_wire: Vec<PacketId>,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl ServerEnd {
    pub(crate) fn new(random: &mut Random) -> Self {
        let mut small = || u16::try_from(1 + random.below(4)).expect("small");
        let settings = Settings {
            receive_max: small(),
            inflight_max: small(),
            inflight_max_3: small(),
            topic_alias_max: small() - 1,
            ..Settings::default()
        };
        Self {
            session: None,
            settings,
            store: Store::default(),
            disk: Store::default(),
            held: Vec::new(),
            on_wire: Vec::new(),
            input: Vec::new(),
            output: Vec::new(),
        }
    }

    pub(crate) fn accept(&mut self) {
        self.session = Some(Session::new(NOW));
    }

    pub(crate) fn publish(&mut self, qos: Qos) {
        let item = self.store.journal.publish(qos);
        self.store.queue.push(Entry { item, packet_id: None, is_received: false });
        self.pump();
    }

    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        let mut input = std::mem::take(&mut self.input);
        input.extend_from_slice(bytes);
        let mut at = 0;
        while let Some(session) = &mut self.session
            && !session.is_claiming()
        {
            let limits = session.limits(&self.settings);
            let Decoded::Packet { packet, len } =
                decode(&input[at..], session.version(), &limits).expect("a client that is in order")
            else {
                break;
            };
            self.handle(packet);
            at += len;
        }
        input.drain(..at);
        self.input = input;
    }

    fn handle(&mut self, packet: Packet<'_>) {
        let Some(session) = &mut self.session else { return };
        match session.handle_packet(&packet, &self.settings, NOW).expect("a client that is in order") {
            Request::Connect(_) => {
                self.held.push(Held::Accept { session_present: self.store.has_session });
                self.store.has_session = true;
            }
            Request::Publish(message) => {
                assert_eq!(message.topic().as_str(), "from/the/client");
                let qos = message.packet.delivery.qos();
                self.store.journal.get(Item::from_payload(message.packet.payload), qos);
                let ticket = message.ticket().expect("QoS 1 or 2");
                if let Ticket::PubRec(packet_id) = ticket {
                    self.store.unreleased.push(packet_id);
                }
                self.held.push(Held::Ticket(ticket));
            }
            Request::Released { packet_id } => {
                self.store.unreleased.retain(|unreleased| *unreleased != packet_id);
                self.held.push(Held::Ticket(Ticket::PubComp(packet_id)));
            }
            Request::Received { packet_id } => {
                let entry = self.store.queue.iter_mut().find(|entry| entry.packet_id == Some(packet_id));
                entry.expect("a message of ours").is_received = true;
                self.held.push(Held::Ticket(Ticket::PubRel(packet_id)));
            }
            Request::Acknowledged { packet_id, .. } => {
                self.store.queue.retain(|entry| entry.packet_id != Some(packet_id));
                self.pump();
            }
            Request::Answer(packet) => {
                session.write(&packet, &mut self.output);
            }
            _ => {}
        }
    }

    /// Sends as much of the queue as the client takes, in order.
    fn pump(&mut self) {
        let Some(session) = &mut self.session else { return };
        if !session.is_connected() {
            return;
        }
        let window = usize::from(session.window());
        let mut used: Vec<_> = self.store.queue.iter().filter_map(|entry| entry.packet_id).collect();
        for entry in &mut self.store.queue {
            if session.in_flight() >= window {
                return;
            }
            if entry.packet_id.is_some_and(|packet_id| self.on_wire.contains(&packet_id)) {
                continue;
            }
            let dup = entry.packet_id.is_some();
            let packet_id = *entry.packet_id.get_or_insert_with(|| unused(&mut self.store.last_id, &used));
            used.push(packet_id);
            self.on_wire.push(packet_id);
            session.begin_as(packet_id, entry.item.qos, dup);
            match entry.item.qos {
                // A packet with a new identifier must not overtake its record.
                Qos::ExactlyOnce => self.held.push(Held::Publish(packet_id, entry.item, dup)),
                _ => write(session, packet_id, entry.item, dup, &mut self.output),
            }
        }
    }

    /// Everything is written to disk; what waited for it leaves, in whatever order the disk reports it.
    pub(crate) fn sync(&mut self, random: &mut Random) -> Vec<u8> {
        self.disk = self.store.clone();
        let mut held = std::mem::take(&mut self.held);
        while !held.is_empty() {
            // Deliveries keep their order; nothing else does.
            let mut next = random.below(held.len());
            if matches!(held[next], Held::Publish(..)) {
                next = held.iter().position(|held| matches!(held, Held::Publish(..))).unwrap_or(next);
            }
            self.finish_held(held.remove(next));
        }
        std::mem::take(&mut self.output)
    }

    fn finish_held(&mut self, held: Held) {
        let Some(session) = &mut self.session else { return };
        match held {
            Held::Ticket(ticket) => session.complete(ticket, ReasonCode::Success, &mut self.output),
            Held::Publish(packet_id, item, dup) => write(session, packet_id, item, dup, &mut self.output),
            Held::Accept { session_present } => {
                let accepted =
                    Accepted { client_id: "me", session_present, unreleased: &self.store.unreleased };
                assert!(session.accept(&accepted, &self.settings, &mut self.output));
                self.on_wire.clear();
                for entry in self.store.queue.iter().filter(|entry| entry.is_received) {
                    let packet_id = entry.packet_id.expect("it was sent");
                    session.begin_release(packet_id, &mut self.output);
                    self.on_wire.push(packet_id);
                }
                self.pump();
                self.receive(&[]);
            }
        }
    }

    pub(crate) fn cut(&mut self) {
        self.session = None;
        self.input.clear();
        self.output.clear();
        self.held.clear();
        self.on_wire.clear();
    }

    pub(crate) fn crash(&mut self) {
        self.cut();
        self.store = self.disk.clone();
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.store.queue.is_empty() && self.store.unreleased.is_empty() && self.held.is_empty()
    }

    pub(crate) fn finish(&self) -> &Journal {
        &self.store.journal
    }
}

/// Few identifiers, so that each is used again soon.
fn unused(last: &mut u16, used: &[PacketId]) -> PacketId {
    loop {
        *last = *last % 7 + 1;
        let packet_id = PacketId::new(*last).expect("not 0");
        if !used.contains(&packet_id) {
            return packet_id;
        }
    }
}

fn write(session: &mut Session, packet_id: PacketId, item: Item, dup: bool, into: &mut Vec<u8>) {
    let delivery = match item.qos {
        Qos::ExactlyOnce => Delivery::ExactlyOnce { packet_id, dup },
        _ => Delivery::AtLeastOnce { packet_id, dup },
    };
    let payload = item.payload();
    let publish = Publish { delivery, topic: session.outgoing_topic(TOPIC), ..Publish::new(TOPIC, &payload) };
    assert!(session.write(&publish.into(), into));
}
