//! An application at one end of a client and a server at the other, with a clock that is set by hand.

use base::Now;
use pondhawk_session::client::{
    Client, ConnectError, Event, Outgoing, PublishError, Publishing, RequestError, Settings, TimedOut,
};
use wire::{
    ConnAck, ConnAckProperties, Connect, Connected, Decoded, Limits, OneOrMore, Packet, PacketId, Qos, Role,
    SubscribeProperties, Subscription, TopicFilter, Utf8, Version, Violation, decode,
};

pub(crate) struct World {
    pub(crate) client: Client<&'static str>,
    pub(crate) version: Version,
    pub(crate) now_ms: u64,
    out: Vec<u8>,
}

pub(crate) fn id(number: u16) -> PacketId {
    PacketId::new(number).expect("not 0")
}

pub(crate) fn utf8(text: &str) -> Utf8<'_> {
    Utf8::new(text).expect("a string")
}

/// The CONNECT of a client with a session that lasts.
pub(crate) fn connect(version: Version) -> Connect<'static> {
    let mut connect = Connect::new(version, utf8("me"));
    connect.clean_start = false;
    connect.properties.session_expiry_interval_secs = Some(u32::MAX);
    connect
}

pub(crate) fn connack(properties: ConnAckProperties<'_>) -> ConnAck<'_> {
    ConnAck { outcome: Connected::Accepted { session_present: false }, properties }
}

pub(crate) fn outgoing(qos: Qos) -> Outgoing<'static> {
    Outgoing::new(topic::topic!("a/b"), b"hey").qos(qos)
}

impl World {
    /// Makes a client without a connection.
    pub(crate) fn apart(version: Version, settings: Settings) -> Self {
        Self { client: Client::new(settings), version, now_ms: 1_000, out: Vec::new() }
    }

    /// A client that is connected, with a session that lasts.
    pub(crate) fn new(version: Version) -> Self {
        Self::offered(version, ConnAckProperties::EMPTY)
    }

    /// A client whose server offers something.
    pub(crate) fn offered(version: Version, properties: ConnAckProperties<'_>) -> Self {
        let mut world = Self::apart(version, Settings::default());
        world.connect_with(&connect(version)).expect("in order");
        world.take(connack(properties)).expect("in order");
        world.sent();
        world
    }

    pub(crate) fn now(&self) -> Now {
        Now { monotonic_ms: self.now_ms, unix_ms: self.now_ms }
    }

    pub(crate) fn connect_with(&mut self, connect: &Connect<'_>) -> Result<(), ConnectError> {
        let now = self.now();
        self.client.connect(connect, now, &mut self.out)
    }

    /// The connection is cut, and there is another one.
    pub(crate) fn reconnect(&mut self, connack: ConnAck<'_>) {
        self.client.connection_lost();
        self.out.clear();
        self.connect_with(&connect(self.version)).expect("in order");
        self.out.clear();
        self.take(connack).expect("in order");
    }

    /// The server sends a packet.
    pub(crate) fn take<'p>(
        &mut self,
        packet: impl Into<Packet<'p>>,
    ) -> Result<Event<'p, &'static str>, Violation> {
        let now = self.now();
        self.client.handle_packet(packet.into(), now, &mut self.out)
    }

    /// The server sends a packet that it should not.
    pub(crate) fn refused<'p>(&mut self, packet: impl Into<Packet<'p>>) -> Violation {
        let violation = self.take(packet).expect_err("a violation");
        self.client.answer(&violation, &mut self.out);
        violation
    }

    pub(crate) fn publish(
        &mut self,
        outgoing: &Outgoing<'_>,
        tag: &'static str,
    ) -> Result<Publishing, PublishError> {
        let now = self.now();
        self.client.publish(outgoing, tag, now, &mut self.out)
    }

    /// Publishes a message that is sent at once.
    pub(crate) fn send(&mut self, qos: Qos, tag: &'static str) -> PacketId {
        match self.publish(&outgoing(qos), tag) {
            Ok(Publishing::Sent(Some(packet_id))) => packet_id,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn subscribe(
        &mut self,
        filter: &str,
        properties: SubscribeProperties<'_>,
    ) -> Result<PacketId, RequestError> {
        let now = self.now();
        let filter = TopicFilter::new(filter).expect("a filter");
        let subscription = Subscription::with_qos(filter, Qos::ExactlyOnce);
        self.client.subscribe(OneOrMore::one(&subscription), properties, now, &mut self.out)
    }

    pub(crate) fn timeout(&mut self) -> Result<(), TimedOut> {
        let now = self.now();
        self.client.handle_timeout(now, &mut self.out)
    }

    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// The packets that the server has received since the last call, one line for each.
    pub(crate) fn sent(&mut self) -> Vec<String> {
        let bytes = std::mem::take(&mut self.out);
        lines(&bytes, self.version)
    }

    /// The tags of what has failed.
    pub(crate) fn failed(&mut self) -> Vec<(&'static str, PublishError)> {
        std::iter::from_fn(|| self.client.next_failed()).map(|failed| (failed.tag, failed.why)).collect()
    }
}

/// As a strict server reads it.
fn lines(mut bytes: &[u8], version: Version) -> Vec<String> {
    let limits = Limits { sender: Some(Role::Client), ..Limits::default() };
    let mut lines = Vec::new();
    while let Some(first) = bytes.first() {
        let known = (first >> 4 != 1).then_some(version);
        let Decoded::Packet { packet, len } = decode(bytes, known, &limits).expect("in order") else {
            panic!("a packet that is not whole: {bytes:?}");
        };
        lines.push(packet.to_string());
        bytes = &bytes[len..];
    }
    lines
}
