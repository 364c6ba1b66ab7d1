//! A situation in which a message reaches its subscriber, and the parts of it that a row changes.

use std::sync::Arc;

use auth::{Access, DynamicSecurity, Holder, Permissions, Permit, RolesBuilder, RuleKind};
use base::{Realm, Tenant};

use super::super::*;

/// The parts of a situation that a case changes.
pub(super) struct Case<'a> {
    pub(super) topic: &'a str,
    pub(super) publisher: &'a str,
    pub(super) qos: Qos,
    pub(super) rules: Rules<'a>,
    pub(super) subscriptions: Vec<(Box<str>, Option<Interest>)>,
    pub(super) has_all: bool,
    pub(super) groups: Vec<Group>,
    pub(super) connection: Option<Connection>,
    /// Whether the broker knows the publisher, and the subscriber.
    pub(super) are_known: [bool; 2],
    pub(super) publisher_limits: ClientLimits,
    pub(super) is_blocked: bool,
    pub(super) is_lasting: bool,
    pub(super) queue: Queue,
    pub(super) queue_full: &'a str,
    pub(super) memory: Memory,
    pub(super) mount: &'a str,
    /// The bans of the publisher and of the subscriber.
    pub(super) bans: [Option<&'a str>; 2],
}

/// The rules about topics in this case.
#[derive(Clone, Copy)]
pub(super) enum Rules<'a> {
    None,
    /// An access control list.
    List(&'a str),
    /// A role of the user that allows to publish this, and to receive everything.
    Role(Permit),
    /// Dynamic security that allows the user everything, commands included.
    Dynamic,
    /// No rules but in tokens of sessions.
    Tokens,
}

pub(super) const LIMITS: ClientLimits = ClientLimits {
    qos_max: Qos::ExactlyOnce,
    retain_available: true,
    packet_bytes_max: usize::MAX,
    window: 10,
};

pub(super) const CONNECTION: Connection = Connection { level: Level::Open, limits: LIMITS, in_flight: 0 };

pub(super) const QUEUE: Queue = Queue { messages: 0, messages_max: 100, bytes: 0, bytes_max: 1_000_000 };

pub(super) const LONG_QUEUE: Queue = Queue { messages: 5, bytes: 100_000, ..QUEUE };

pub(super) const CASE: Case<'static> = Case {
    topic: "pond/frog",
    publisher: "a",
    qos: Qos::AtLeastOnce,
    rules: Rules::None,
    subscriptions: Vec::new(),
    has_all: true,
    groups: Vec::new(),
    connection: Some(CONNECTION),
    are_known: [true; 2],
    publisher_limits: LIMITS,
    is_blocked: false,
    is_lasting: true,
    queue: QUEUE,
    queue_full: "end-session",
    memory: Memory::Enough,
    mount: "",
    bans: [None; 2],
};

/// A case with this one filter.
pub(super) fn subscribed(filter: &str) -> Case<'static> {
    Case { subscriptions: vec![plain(filter)], ..CASE }
}

/// A case with a subscription to everything that is granted QoS 0.
pub(super) fn granted_qos_0() -> Case<'static> {
    Case { subscriptions: vec![("#".into(), Some(Interest::new(Qos::AtMostOnce)))], ..CASE }
}

/// A case in a group with this number of connected members among three.
pub(super) fn shared(connected: usize, choice: Choice) -> Case<'static> {
    let group = Group { filter: "$share/g/pond/+".into(), members: 3, connected, choice, queue: QUEUE };
    Case { groups: vec![group], ..subscribed("$share/g/pond/+") }
}

pub(super) fn plain(filter: &str) -> (Box<str>, Option<Interest>) {
    (filter.into(), Some(Interest::new(Qos::AtLeastOnce)))
}

impl<'a> Case<'a> {
    pub(super) fn at_qos_0(self) -> Self {
        Self { qos: Qos::AtMostOnce, ..self }
    }

    pub(super) fn offline(self) -> Self {
        Self { connection: None, ..self }
    }

    pub(super) fn connected(self, connection: Connection) -> Self {
        Self { connection: Some(connection), ..self }
    }

    pub(super) fn ends_with_its_connection(self) -> Self {
        Self { is_lasting: false, ..self }
    }

    pub(super) fn under(self, rules: Rules<'a>) -> Self {
        Self { rules, ..self }
    }

    pub(super) fn of_unknown_publisher(self) -> Self {
        Self { are_known: [false, true], ..self }
    }

    pub(super) fn outcome(&self) -> (Outcome, &'static str, String) {
        let mut principal = Principal { user: Some("ann".into()), realm: Realm(0), ..Principal::default() };
        principal.tenant = Some(Arc::new(Tenant::new("", self.mount, "")));
        let [publisher_known, subscriber_known] = self.are_known;
        let realms = self.rules.realms();
        let explanation = explain(&Situation {
            publisher: Publisher {
                client_id: self.publisher,
                principal: publisher_known.then_some(&principal),
                ban: self.bans[0],
                limits: publisher_known.then_some(self.publisher_limits),
                is_blocked: self.is_blocked,
            },
            topic: self.topic,
            qos: self.qos,
            subscriber: "b",
            subscriber_ban: self.bans[1],
            receiver: subscriber_known.then_some(Receiver {
                principal: &principal,
                connection: self.connection,
                is_lasting: self.is_lasting,
                subscriptions: &self.subscriptions,
                has_all: self.has_all,
                subscription_count: self.subscriptions.len(),
                groups: &self.groups,
                queue: self.queue,
                waiting: self.queue.messages,
            }),
            broker: Broker {
                realms: &realms,
                has_rules: !matches!(self.rules, Rules::None),
                topic_levels_max: 4,
                queue_full: self.queue_full,
                memory: self.memory,
            },
        });
        (explanation.outcome, explanation.reason, explanation.steps.join("; "))
    }
}

impl Rules<'_> {
    fn realms(self) -> Realms {
        let access = match self {
            Self::None | Self::Tokens => Access::new(None, None),
            Self::List(text) => Access::new(None, Some(Permissions::of_mosquitto(text).expect("rules"))),
            Self::Role(permit) => {
                let mut builder = RolesBuilder::default();
                let role = builder.role("keeper");
                for (kind, permit) in [(RuleKind::Publish, permit), (RuleKind::Receive, Permit::ALL)] {
                    builder.rule(role, kind, "#", Some(permit), 1).expect("a filter");
                }
                builder.give(Holder::User("ann"), role);
                Access::new(None, None).with_roles(builder.build().expect("few rules"))
            }
            Self::Dynamic => {
                let all = r##"{
                    "defaultACLAccess": { "publishClientSend": true, "publishClientReceive": true },
                    "clients": [{ "username": "ann", "roles": [{ "rolename": "admin" }] }],
                    "roles": [{ "rolename": "admin", "acls": [
                        { "acltype": "publishClientSend", "topic": "$CONTROL/#", "allow": true } ] }]
                }"##;
                let dynamic = DynamicSecurity::parse(all).expect("a file");
                Access::new(None, None).with_dynamic_security(Arc::new(dynamic))
            }
        };
        Realms::new(vec![("".into(), Arc::new(access))])
    }
}
