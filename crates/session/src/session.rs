//! The server's end of one connection.

use std::num::NonZeroU32;

use base::Now;
use wire::{
    DisconnectReason, Limits, Packet, PacketId, PublishTopic, ReasonCode, Role, Subscribe, TopicAlias,
    TopicName, Unsubscribe, Version,
};

use crate::Settings;
use crate::alias::{IncomingAliases, OutgoingAliases};
use crate::authentication::{Authentication, AuthenticationStep};
use crate::connect::Asked;
use crate::inbound::Inbound;
use crate::incoming::Incoming;
use crate::sending::Sending;
use crate::terms::Terms;

/// One session, the server's part.
///
/// ```text
///                CONNECT                 accept              DISCONNECT
/// AwaitingConnect ──────► Claiming ───────────────► Connected ────────► Closed
///       │                     ▲
///       └──► Authenticating ──┘
///            AUTH, as often as the method needs
/// ```
///
/// From every state a violation leads out: the connection ends, and the session is dropped.
///
/// `T` is what comes with messages that wait ([`Waiting`](crate::Waiting)).
#[derive(Debug)]
pub struct Session<T = u64> {
    pub(crate) state: State,
    /// When a packet was last read, or the connection made.
    pub(crate) heard_ms: u64,
    /// Bytes of the packet that is under way, and how many of them had come when we last looked.
    pub(crate) partial_bytes: u32,
    pub(crate) counted_bytes: u32,
    pub(crate) version: Option<Version>,
    /// Keep Alive in seconds. The longest silence is one and a half times this; 0 is none.
    pub(crate) keep_alive_secs: u16,
    /// The largest packet that the client takes.
    pub(crate) packet_bytes_max: Option<NonZeroU32>,
    pub(crate) clean_start: bool,
    /// CONNECT asked for a session that outlives its connection.
    pub(crate) asks_to_last: bool,
    /// How long the session is kept after the connection.
    pub(crate) expiry_secs: u32,
    /// Aliases that the client takes, and that we use.
    pub(crate) alias_out_max: u16,
    pub(crate) takes_problem_information: bool,
    pub(crate) terms: Terms,
    /// The limits that CONNACK has announced. They hold for the connection whatever the settings say later.
    pub(crate) announced: Announced,
    /// Maximum number of messages of QoS 1 and 2 in flight to the client.
    pub(crate) window: u16,
    // Parts that most sessions do not need are behind pointers.
    pub(crate) authentication: Option<Box<Authentication>>,
    pub(crate) incoming_aliases: Option<Box<IncomingAliases>>,
    outgoing_aliases: Option<Box<OutgoingAliases>>,
    pub(crate) inbound: Option<Box<Inbound>>,
    pub(crate) sending: Option<Box<Sending<T>>>,
}

/// Limits that a client was told, and that it relies on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Announced {
    /// Maximum Packet Size, in bytes.
    pub(crate) packet_bytes_max: u32,
    /// Receive Maximum: number of unacknowledged messages of QoS 1 and 2 that the client may send.
    pub(crate) receive_max: u16,
    /// Topic Alias Maximum: the highest alias that the client may use.
    pub(crate) topic_alias_max: u16,
}

impl Announced {
    fn of(settings: &Settings) -> Self {
        let Settings { packet_bytes_max, receive_max, topic_alias_max, .. } = *settings;
        Self { packet_bytes_max, receive_max, topic_alias_max }
    }
}

#[derive(Debug)]
pub(crate) enum State {
    AwaitingConnect,
    Authenticating(Asked),
    Claiming(Asked),
    Connected,
    Closed,
}

/// The request of a packet to the world outside its session.
#[derive(Debug)]
pub enum Request<'p> {
    /// The packet needs no action.
    None,
    /// To be judged by an authenticator; [`Session::authenticated`] takes the answer. Only with
    /// [`Settings::authentication_methods`].
    Authenticate(AuthenticationStep<'p>),
    /// To be let in, under the client identifier of the packet or, if that is empty, one that it is given.
    Connect(wire::Connect<'p>),
    /// To be routed. [`Incoming::ticket`] is to be completed when what it promises is true.
    Publish(Incoming<'p>),
    /// Subscriptions; SUBACK when they are made.
    Subscribe(Subscribe<'p>),
    /// Subscriptions to be ended; UNSUBACK when they are.
    Unsubscribe(Unsubscribe<'p>),
    /// A packet in return.
    Answer(Packet<'static>),
    /// An exchange of a message that was sent with QoS 1 or 2 is over, and its place is free.
    Acknowledged {
        /// The identifier of the PUBLISH.
        packet_id: PacketId,
        /// From 0x80 on the client has refused it.
        reason: ReasonCode,
    },
    /// A message that was sent with QoS 2 has arrived: [`Ticket::PubRel`](base::Ticket::PubRel) when that is noted.
    Received {
        /// The identifier of the PUBLISH.
        packet_id: PacketId,
    },
    /// A message that was received with QoS 2 will not be sent again: [`Ticket::PubComp`](base::Ticket::PubComp) when
    /// that is noted.
    Released {
        /// The identifier of the PUBLISH.
        packet_id: PacketId,
    },
    /// The end. Only with 0x00 the will is not published.
    Disconnect {
        /// As the client gave it; before MQTT 5 it is 0x00.
        reason: DisconnectReason,
        /// New expiry of the session in seconds, if the client has changed it; at most
        /// [`Settings::session_expiry_secs_max`] and the granted expiry.
        session_expiry_interval_secs: Option<u32>,
    },
}

impl<T> Session<T> {
    /// A connection on which nothing has been read, and that may have everything in the [`Settings`].
    #[must_use]
    pub fn new(now: Now) -> Self {
        Self {
            state: State::AwaitingConnect,
            heard_ms: now.monotonic_ms,
            partial_bytes: 0,
            counted_bytes: 0,
            version: None,
            keep_alive_secs: 0,
            packet_bytes_max: None,
            clean_start: true,
            asks_to_last: false,
            expiry_secs: 0,
            alias_out_max: 0,
            takes_problem_information: true,
            terms: Terms::default(),
            announced: Announced::default(),
            window: 1,
            authentication: None,
            incoming_aliases: None,
            outgoing_aliases: None,
            inbound: None,
            sending: None,
        }
    }

    /// The same on a listener that offers less.
    #[must_use]
    pub fn with_terms(self, terms: Terms) -> Self {
        Self { terms, ..self }
    }

    /// The terms of this connection.
    #[must_use]
    pub fn offered(&self, settings: &Settings) -> Terms {
        self.terms.within(settings)
    }

    /// The version that CONNECT named.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        self.version
    }

    /// Whether CONNECT was read and waits for an answer from outside: nothing behind it may be processed before.
    #[must_use]
    pub fn is_claiming(&self) -> bool {
        let is_judging = || self.authentication.as_deref().is_some_and(Authentication::is_judging);
        matches!(self.state, State::Claiming(_))
            || matches!(self.state, State::Authenticating(_)) && is_judging()
    }

    /// Whether CONNACK has been sent with Success, and no DISCONNECT has come.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        matches!(self.state, State::Connected)
    }

    /// Returns the keep alive that the client must keep, in seconds; 0 is none.
    #[must_use]
    pub fn keep_alive_secs(&self) -> u16 {
        self.keep_alive_secs
    }

    /// The largest packet that the client takes [MQTT-3.1.2-24].
    #[must_use]
    pub fn packet_bytes_max(&self) -> usize {
        self.packet_bytes_max.map_or(usize::MAX, |max| max.get() as usize)
    }

    /// Returns the limits for the packets of the client.
    #[must_use]
    pub fn limits(&self, settings: &Settings) -> Limits {
        let max = match self.state {
            State::AwaitingConnect | State::Authenticating(_) => settings.connect_packet_bytes_max,
            State::Claiming(_) => settings.packet_bytes_max,
            State::Connected | State::Closed => self.announced.packet_bytes_max,
        };
        Limits { max_packet_bytes: max as usize, sender: Some(Role::Client) }
    }

    /// Returns the requests of CONNECT, while it waits for its answer.
    pub(crate) fn asked(&self) -> Option<Asked> {
        match self.state {
            State::Claiming(asked) => Some(asked),
            State::AwaitingConnect | State::Authenticating(_) | State::Connected | State::Closed => None,
        }
    }

    /// The client has shown who it is.
    pub(crate) fn claims(&mut self) {
        if let State::Authenticating(asked) = self.state {
            self.state = State::Claiming(asked);
        }
    }

    /// Messages of QoS 1 and 2 that the client may have published without an answer.
    #[must_use]
    pub fn unanswered_max(&self) -> u16 {
        self.announced.receive_max
    }

    /// CONNECT was accepted, and the packet that says so is written.
    pub(crate) fn connected(&mut self, unreleased: &[PacketId], settings: &Settings) {
        self.state = State::Connected;
        self.announced = Announced::of(settings);
        if !unreleased.is_empty() {
            self.inbound.get_or_insert_default().resume(unreleased);
        }
    }

    /// Returns the memory for topic aliases and exchanges of QoS 2 of the client, in bytes.
    #[must_use]
    pub fn inbound_bytes(&self) -> usize {
        let aliases = self.incoming_aliases.as_ref().map_or(0, |aliases| aliases.size_bytes());
        aliases + self.inbound.as_ref().map_or(0, |inbound| inbound.size_bytes())
    }

    /// The topic for which an alias of the client stands.
    #[must_use]
    pub fn name_of_alias(&self, alias: TopicAlias) -> Option<TopicName<'_>> {
        self.incoming_aliases.as_ref()?.name(alias)
    }

    /// Whether the client takes topic aliases, and we use them.
    #[must_use]
    pub fn uses_aliases(&self) -> bool {
        self.alias_out_max > 0
    }

    /// How a PUBLISH to this topic names it: with an alias, if the topic comes often enough for that to repay. The
    /// packet must then be written, or [`unsent_topic`](Self::unsent_topic) told.
    pub fn outgoing_topic<'t>(&mut self, topic: TopicName<'t>) -> PublishTopic<'t> {
        if self.alias_out_max == 0 {
            return PublishTopic::Name(topic);
        }
        let alias_max = self.alias_out_max;
        let aliases = self.outgoing_aliases.get_or_insert_with(|| Box::new(OutgoingAliases::new(alias_max)));
        aliases.outgoing(topic)
    }

    /// A packet for which [`outgoing_topic`](Self::outgoing_topic) was asked is not written after all.
    pub fn unsent_topic(&mut self, topic: PublishTopic<'_>) {
        if let Some(aliases) = &mut self.outgoing_aliases {
            aliases.unsent(topic);
        }
    }
}
