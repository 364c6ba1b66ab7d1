//! The client's end: a session with its application on a disk. Bytes leave when what they follow from is on it.

use base::Now;
use pondhawk_session::client::{Acknowledge, Client, Event, Outgoing, Receipt, Settings, Stored};
use wire::{Connect, Decoded, Packet, PublishTopic, Qos, ReasonCode, Utf8, Version, decode};

use crate::journal::{Item, Journal};
use crate::random::Random;

pub(crate) const NOW: Now = Now { monotonic_ms: 0, unix_ms: 0 };

pub(crate) struct ClientEnd {
    client: Client<Item>,
    journal: Journal,
    disk: (Stored<Item>, Journal),
    settings: Settings,
    version: Version,
    /// Read and not decoded yet.
    input: Vec<u8>,
    /// Waits for the disk.
    output: Vec<u8>,
    /// Messages that the application has not accepted yet.
    unaccepted: Vec<(Item, Qos, Receipt)>,
    /// Makes sure that names and not aliases of the connection before are used.
    pub(crate) topic_alias_maximum: u16,
    pub(crate) receive_maximum: u16,
}

impl ClientEnd {
    pub(crate) fn new(version: Version, acknowledge: Acknowledge, random: &mut Random) -> Self {
        let inflight_max = u16::try_from(1 + random.below(4)).expect("small");
        let settings = Settings { acknowledge, inflight_max, ..Settings::default() };
        let stored = Stored {
            client_id: "me".into(),
            has_session: true,
            is_inherited: random.below(2) == 0,
            under_way: Vec::new(),
            waiting: Vec::new(),
            unreleased: Vec::new(),
        };
        Self {
            client: Client::restore(stored.clone(), settings.clone()),
            journal: Journal::default(),
            disk: (stored, Journal::default()),
            settings,
            version,
            input: Vec::new(),
            output: Vec::new(),
            unaccepted: Vec::new(),
            topic_alias_maximum: u16::try_from(random.below(3)).expect("small"),
            receive_maximum: u16::try_from(1 + random.below(4)).expect("small"),
        }
    }

    pub(crate) fn connect(&mut self) {
        let mut connect = Connect::new(self.version, Utf8::new("me").expect("a string"));
        connect.clean_start = false;
        connect.properties.session_expiry_interval_secs = Some(u32::MAX);
        connect.properties.topic_alias_maximum = Some(self.topic_alias_maximum);
        connect.properties.receive_maximum = std::num::NonZeroU16::new(self.receive_maximum);
        self.client.connect(&connect, NOW, &mut self.output).expect("a CONNECT that is in order");
    }

    pub(crate) fn publish(&mut self, qos: Qos) {
        let item = self.journal.publish(qos);
        let payload = item.payload();
        let outgoing = Outgoing::new(topic::topic!("from/the/client"), &payload).qos(qos);
        self.client.publish(&outgoing, item, NOW, &mut self.output).expect("it may wait");
    }

    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        let mut input = std::mem::take(&mut self.input);
        input.extend_from_slice(bytes);
        let mut at = 0;
        while let Ok(Decoded::Packet { packet, len }) =
            decode(&input[at..], Some(self.version), &self.client.limits())
        {
            self.handle(packet);
            at += len;
        }
        input.drain(..at);
        self.input = input;
    }

    fn handle(&mut self, packet: Packet<'_>) {
        if let Packet::Publish(publish) = packet {
            let alias = publish.topic.alias().map_or(0, |alias| alias.value());
            assert!(alias <= self.topic_alias_maximum);
            assert!(alias == 0 || !matches!(publish.topic, PublishTopic::Name(_)));
        }
        let event =
            self.client.handle_packet(packet, NOW, &mut self.output).expect("a server that is in order");
        match event {
            Event::Message { message, receipt } => {
                assert_eq!(message.topic().as_str(), "from/the/server");
                let item = Item::from_payload(message.packet.payload);
                let qos = message.packet.delivery.qos();
                match receipt {
                    Some(receipt) => self.unaccepted.push((item, qos, receipt)),
                    None => self.journal.get(item, qos),
                }
            }
            Event::Published { reason, .. } => {
                // The server had finished an exchange whose PUBCOMP was lost.
                assert!([ReasonCode::Success, ReasonCode::PacketIdentifierNotFound].contains(&reason));
            }
            _ => {}
        }
    }

    /// The application accepts the message that came first; it may not let it wait for later ones.
    pub(crate) fn accept_one(&mut self) {
        if self.unaccepted.is_empty() {
            return;
        }
        let (item, qos, receipt) = self.unaccepted.remove(0);
        self.journal.get(item, qos);
        self.client.acknowledge(receipt, ReasonCode::Success, NOW, &mut self.output);
    }

    /// Everything is written to disk; what waited for it leaves.
    pub(crate) fn sync(&mut self) -> Vec<u8> {
        self.disk = (self.client.stored(), self.journal.clone());
        std::mem::take(&mut self.output)
    }

    pub(crate) fn cut(&mut self) {
        self.client.connection_lost();
        self.input.clear();
        self.output.clear();
        self.unaccepted.clear();
    }

    pub(crate) fn crash(&mut self) {
        self.cut();
        let (stored, journal) = self.disk.clone();
        self.client = Client::restore(stored, self.settings.clone());
        self.journal = journal;
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.client.in_flight() == 0
            && self.client.waiting_messages() == 0
            && self.unaccepted.is_empty()
            && self.client.stored().unreleased.is_empty()
    }

    pub(crate) fn finish(&mut self) -> &Journal {
        assert!(self.client.next_failed().is_none());
        &self.journal
    }
}
