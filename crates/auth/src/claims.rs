//! Decisions of the rules in a token. Each rule is looked at: there are at most 64.

use base::{ClaimRule, Uses};
use topic::{TopicFilter, TopicName};

use crate::client::Client;
use crate::roles::{Permit, RuleKind};
use crate::tree::Name;

/// The rights that several rules give together. A rule that denies decides before those that allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) is_denied: bool,
    /// The messages that rules allow, apart from those that deny.
    pub(crate) allowed: Permit,
}

impl Standing {
    /// No rule says anything.
    pub(crate) const NONE: Self = Self { is_denied: false, allowed: Permit::NONE };
    /// A rule allows everything.
    pub(crate) const ALL: Self = Self { is_denied: false, allowed: Permit::ALL };
    /// A rule denies everything.
    pub(crate) const DENIED: Self = Self { is_denied: true, allowed: Permit::NONE };

    /// The rights that these rules and others give together.
    pub(crate) fn and(self, others: Self) -> Self {
        Self { is_denied: self.is_denied || others.is_denied, allowed: self.allowed.or(others.allowed) }
    }

    /// The messages that remain.
    pub(crate) fn permit(self) -> Permit {
        if self.is_denied { Permit::NONE } else { self.allowed }
    }
}

/// The object of a question about rights.
#[derive(Clone, Copy)]
pub(crate) enum Asked<'a> {
    /// A message that the client publishes.
    Publish(TopicName<'a>),
    /// A message that the client gets.
    Receive(TopicName<'a>),
    /// A subscription that the client makes.
    Subscribe(TopicFilter<'a>),
}

impl Asked<'_> {
    fn kind(self) -> (RuleKind, Uses) {
        match self {
            Self::Publish(_) => (RuleKind::Publish, Uses::PUBLISH),
            Self::Receive(_) => (RuleKind::Receive, Uses::RECEIVE),
            Self::Subscribe(_) => (RuleKind::Subscribe, Uses::SUBSCRIBE),
        }
    }

    fn is_about(self, filter: &str, client: Client<'_>) -> bool {
        match self {
            Self::Publish(topic) | Self::Receive(topic) => matches(filter, topic.as_str(), client),
            Self::Subscribe(asked) => {
                let inner = asked.shared().map_or(asked, |shared| shared.filter);
                covers(filter, inner.as_str(), client)
            }
        }
    }
}

/// The rules of a token that say something about a question, each with its number from 1 and what it allows.
pub(crate) fn deciding<'a>(
    rules: &'a [ClaimRule],
    asked: Asked<'a>,
    client: Client<'a>,
) -> impl Iterator<Item = (u32, Option<Permit>)> + 'a {
    let (kind, uses) = asked.kind();
    let deciding = (1..)
        .zip(rules)
        .filter(move |(_, rule)| rule.uses.is_any_of(uses) && asked.is_about(&rule.filter, client));
    deciding.map(move |(number, rule)| {
        let permit = rule.allows.map(|levels| match kind {
            RuleKind::Publish => Permit::up_to(levels.qos_max, levels.retain),
            RuleKind::Subscribe => Permit::up_to(levels.qos_max, true),
            RuleKind::Receive => Permit::ALL,
        });
        (number, permit)
    })
}

/// The rights that the rules of a token give.
pub(crate) fn standing(rules: &[ClaimRule], asked: Asked<'_>, client: Client<'_>) -> Standing {
    deciding(rules, asked, client).fold(Standing::NONE, |all, (_, permit)| {
        all.and(permit.map_or(Standing::DENIED, |allowed| Standing { is_denied: false, allowed }))
    })
}

/// Whether a level of a rule, in which `%u` and `%c` stand for names, is a level of a topic.
fn is_level(pattern: &str, level: &str, client: Client<'_>) -> bool {
    let (mut pattern, mut level) = (pattern, level);
    loop {
        let found = Name::find(pattern);
        let text = found.map_or(pattern, |(at, _)| &pattern[..at]);
        let Some(rest) = level.strip_prefix(text) else { return false };
        let Some((at, name)) = found else { return rest.is_empty() };
        let Some(rest) = name.of(client).and_then(|name| rest.strip_prefix(name)) else { return false };
        (pattern, level) = (&pattern[at + 2..], rest);
    }
}

/// Whether a filter matches no topic that begins with `$`: its first level is a wildcard [MQTT-4.7.2-1], or has a name, which would
/// open topics of the broker to each client that has chosen the name.
fn is_kept_away(filter: &str) -> bool {
    let first = filter.split('/').next().unwrap_or_default();
    matches!(first, "+" | "#") || Name::find(first).is_some()
}

/// Whether a filter matches a topic.
fn matches(filter: &str, topic: &str, client: Client<'_>) -> bool {
    if topic.starts_with('$') && is_kept_away(filter) {
        return false;
    }
    let (mut levels, mut patterns) = (topic.split('/'), filter.split('/'));
    loop {
        match (patterns.next(), levels.next()) {
            (Some("#"), _) | (None, None) => return true,
            (Some("+"), Some(_)) => {}
            (Some(pattern), Some(level)) if is_level(pattern, level, client) => {}
            _ => return false,
        }
    }
}

/// Whether a filter matches every topic that another one matches. A name never stands for a wildcard.
fn covers(filter: &str, asked: &str, client: Client<'_>) -> bool {
    if asked.starts_with('$') && is_kept_away(filter) {
        return false;
    }
    // Every topic has a first level.
    if filter == "+/#" && asked == "#" {
        return true;
    }
    let (mut levels, mut patterns) = (asked.split('/'), filter.split('/'));
    loop {
        match (patterns.next(), levels.next()) {
            (Some("#"), _) | (None, None) => return true,
            (_, Some("#")) => return false,
            (Some("+"), Some(_)) => {}
            (_, Some("+")) => return false,
            (Some(pattern), Some(level)) if is_level(pattern, level, client) => {}
            _ => return false,
        }
    }
}
