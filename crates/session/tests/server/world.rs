//! A client at one end of a session and the world at the other, with a clock that is set by hand.

use base::{Now, Ticket};
use pondhawk_session::{Accepted, Authenticated, AuthenticationOutcome, Request, Session, Settings};
use wire::{
    Connect, Decoded, Delivery, Limits, Packet, PacketId, Publish, Qos, ReasonCode, Role, Utf8, Version,
    Violation, decode,
};

pub(crate) struct World {
    pub(crate) session: Session,
    pub(crate) settings: Settings,
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

/// The CONNECT of a client that begins with nothing.
pub(crate) fn connect(version: Version) -> Connect<'static> {
    Connect::new(version, utf8("me"))
}

/// The same, asking for something.
pub(crate) fn connect_with(version: Version, ask: impl FnOnce(&mut Connect<'static>)) -> Connect<'static> {
    let mut connect = connect(version);
    ask(&mut connect);
    connect
}

pub(crate) fn publish(qos: Qos, packet_id: u16) -> Publish<'static> {
    let delivery = match qos {
        Qos::AtMostOnce => Delivery::AtMostOnce,
        Qos::AtLeastOnce => Delivery::AtLeastOnce { packet_id: id(packet_id), dup: false },
        Qos::ExactlyOnce => Delivery::ExactlyOnce { packet_id: id(packet_id), dup: false },
    };
    Publish { delivery, ..Publish::new(topic::topic!("a/b"), b"hey") }
}

impl World {
    /// Nothing has been read.
    pub(crate) fn silent(version: Version, settings: Settings) -> Self {
        let now_ms = 1_000;
        let session = Session::new(Now { monotonic_ms: now_ms, unix_ms: now_ms });
        Self { session, settings, version, now_ms, out: Vec::new() }
    }

    /// A client that is connected.
    pub(crate) fn new(version: Version) -> Self {
        Self::connected(&connect(version), Settings::default())
    }

    pub(crate) fn connected(connect: &Connect<'_>, settings: Settings) -> Self {
        let mut world = Self::silent(connect.version(), settings);
        world.take(*connect).expect("a CONNECT that is in order");
        world.accept(false, &[]);
        world.sent();
        world
    }

    pub(crate) fn accept(&mut self, session_present: bool, unreleased: &[PacketId]) -> bool {
        let accepted = Accepted { client_id: "me", session_present, unreleased };
        self.session.accept(&accepted, &self.settings, &mut self.out)
    }

    pub(crate) fn now(&self) -> Now {
        Now { monotonic_ms: self.now_ms, unix_ms: self.now_ms }
    }

    /// The client sends a packet. Immediate answers are sent.
    pub(crate) fn take<'p>(&mut self, packet: impl Into<Packet<'p>>) -> Result<Request<'p>, Violation> {
        let now = self.now();
        let request = self.session.handle_packet(&packet.into(), &self.settings, now)?;
        if let Request::Answer(packet) = &request {
            self.session.write(packet, &mut self.out);
        }
        Ok(request)
    }

    /// The client sends bytes of one packet; what they break is answered.
    pub(crate) fn take_bytes(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        let limits = self.session.limits(&self.settings);
        let outcome = match decode(bytes, self.session.version(), &limits) {
            Ok(Decoded::Packet { packet, .. }) => self.take(packet).map(|_| ()),
            Ok(Decoded::Need { .. }) => panic!("not a whole packet"),
            Err(violation) => Err(violation),
        };
        outcome.inspect_err(|violation| self.session.answer(violation, &mut self.out))
    }

    /// The client sends a packet that it should not.
    pub(crate) fn refused<'p>(&mut self, packet: impl Into<Packet<'p>>) -> Violation {
        let violation = self.take(packet).expect_err("a violation");
        self.session.answer(&violation, &mut self.out);
        violation
    }

    pub(crate) fn complete(&mut self, ticket: Ticket) {
        self.complete_with(ticket, ReasonCode::Success);
    }

    pub(crate) fn complete_with(&mut self, ticket: Ticket, reason: ReasonCode) {
        self.session.complete(ticket, reason, &mut self.out);
    }

    pub(crate) fn complete_last(&mut self, count: usize, reason: ReasonCode) -> usize {
        self.session.complete_last(count, reason, &mut self.out)
    }

    /// Sends a packet as the client takes it.
    pub(crate) fn write<'p>(&mut self, packet: impl Into<Packet<'p>>) -> bool {
        self.session.write(&packet.into(), &mut self.out)
    }

    pub(crate) fn answer(&mut self, violation: &Violation) {
        self.session.answer(violation, &mut self.out);
    }

    pub(crate) fn authenticated(&mut self, outcome: AuthenticationOutcome<'_>) -> Authenticated {
        self.session.authenticated(outcome, &mut self.out)
    }

    pub(crate) fn release_answers(&mut self) {
        self.session.release_answers(&mut self.out);
    }

    pub(crate) fn begin_release(&mut self, packet_id: PacketId) {
        self.session.begin_release(packet_id, &mut self.out);
    }

    /// Ignores the packets that were sent so far.
    pub(crate) fn discard_sent(&mut self) {
        self.out.clear();
    }

    /// The packets that were sent so far, as bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.out
    }

    pub(crate) fn timeout(&mut self) -> Result<(), Violation> {
        let now = self.now();
        self.session.handle_timeout(&self.settings, now, &mut self.out)
    }

    /// The packets that the client has received since the last call, one line for each.
    pub(crate) fn sent(&mut self) -> Vec<String> {
        lines(&std::mem::take(&mut self.out), self.version)
    }
}

pub(crate) fn lines(mut bytes: &[u8], version: Version) -> Vec<String> {
    let limits = Limits { sender: Some(Role::Server), ..Limits::default() };
    let mut lines = Vec::new();
    while !bytes.is_empty() {
        let Decoded::Packet { packet, len } = decode(bytes, Some(version), &limits).expect("in order") else {
            panic!("a packet that is not whole: {bytes:?}");
        };
        lines.push(packet.to_string());
        bytes = &bytes[len..];
    }
    lines
}
