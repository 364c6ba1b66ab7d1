//! Rules about topics, compiled for decisions.

use std::collections::HashMap;

use topic::TopicName;

use crate::claims::{Asked, Standing};
use crate::client::Client;
use crate::tree::{Line, Marks, Tree};
use crate::{AclKind, Deciding};

/// The use of a topic that a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// The client publishes to the topic, or its will does.
    Publish,
    /// The client gets a message that was published to the topic.
    Receive,
}

/// The change of its subscriptions that a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FilterAction {
    /// The client makes a subscription.
    Subscribe,
    /// The client ends a subscription.
    Unsubscribe,
}

/// A decision, with the reason for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision<'a> {
    /// Whether the client may.
    pub is_allowed: bool,
    /// The reason for the decision.
    pub reason: Reason<'a>,
}

impl Decision<'_> {
    /// The rights that a decision of files gives beside the rules in a client's token. `None` if such rules have no say.
    pub(crate) fn beside_token(&self) -> Option<Standing> {
        let allowed_or = |otherwise| if self.is_allowed { Standing::ALL } else { otherwise };
        match self.reason {
            // Dynamic security decides alone. A rule of a token is no decision of files.
            Reason::Entry { .. } | Reason::Wildcards { .. } | Reason::Default | Reason::Token(_) => None,
            // A rule of a role that is too low to allow a message does not deny it.
            Reason::Role(rule) if rule.permit.is_some() => Some(allowed_or(Standing::NONE)),
            Reason::Role(_) | Reason::Rule(_) => Some(allowed_or(Standing::DENIED)),
            Reason::Subscription | Reason::Unsubscribe => Some(Standing::ALL),
            Reason::NoRules | Reason::NoMatch | Reason::WildcardInName => Some(Standing::NONE),
        }
    }
}

/// The reason for a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason<'a> {
    /// There are no rules, so everything is allowed.
    NoRules,
    /// A rule matches and decides.
    Rule(Rule),
    /// No rule matches, so nothing is allowed.
    NoMatch,
    /// No rule of the user matches. A name with `+` or `#` is refused by all patterns.
    WildcardInName,
    /// An access control list says nothing about subscriptions.
    Subscription,
    /// An entry of dynamic security decides.
    Entry {
        /// The name of the role.
        role: &'a str,
        /// The group that has the role. `None` if the client has it.
        group: Option<&'a str>,
        /// The kind of the entry.
        kind: AclKind,
        /// The topic or filter of the entry.
        topic: &'a str,
    },
    /// A role of dynamic security refuses all filters with wildcards.
    Wildcards {
        /// The name of the role.
        role: &'a str,
    },
    /// No entry of dynamic security decides, and its default does.
    Default,
    /// A rule of a role decides. If it allows something and the client may not, it allows less than the client asks for.
    Role(Deciding<'a>),
    /// Neither roles nor tokens have rules about the end of a subscription.
    Unsubscribe,
    /// The rule with this number in the client's token decides, from 1, in the order of its lists.
    Token(u32),
}

/// The place of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// The number of its line, from 1.
    pub line: u32,
    /// Whether it is a pattern, which counts for every client.
    pub is_pattern: bool,
}

/// All rules of a list.
///
/// The rules of a client's user decide before patterns. In each of the two, a rule that denies decides before rules that
/// allow. Without a rule that matches, nothing is allowed.
#[derive(Debug, Default)]
pub struct Permissions {
    pub(crate) anonymous: Tree,
    pub(crate) users: HashMap<Box<str>, Tree>,
    pub(crate) patterns: Tree,
}

impl Permissions {
    /// Whether a client may use a topic.
    #[must_use]
    pub fn allows(&self, client: Client<'_>, topic: TopicName<'_>, action: Action) -> bool {
        self.decide(client, topic, action).is_allowed
    }

    /// Whether a client may use a topic, and the rule that decides. The cost is one walk over the levels of the topic, or two
    /// if there are patterns.
    #[must_use]
    pub fn decide(&self, client: Client<'_>, topic: TopicName<'_>, action: Action) -> Decision<'static> {
        let own = match client.user {
            None => Some(&self.anonymous),
            Some(user) => self.users.get(user),
        };
        let marks = own.map_or_else(Marks::default, |tree| tree.walk(topic, client));
        if let Some(decision) = decision(&marks, action, false) {
            return decision;
        }
        let denied = |reason| Decision { is_allowed: false, reason };
        if self.patterns.is_empty() {
            return denied(Reason::NoMatch);
        }
        let has_wildcard = |name: &str| name.contains(['+', '#']);
        if client.user.is_some_and(has_wildcard) || has_wildcard(client.client_id) {
            return denied(Reason::WildcardInName);
        }
        decision(&self.patterns.walk(topic, client), action, true).unwrap_or(denied(Reason::NoMatch))
    }

    /// The rights that the rules give. They say nothing about subscriptions, which all are allowed.
    pub(crate) fn standing(&self, client: Client<'_>, asked: Asked<'_>) -> Standing {
        let decision = match asked {
            Asked::Publish(topic) => self.decide(client, topic, Action::Publish),
            Asked::Receive(topic) => self.decide(client, topic, Action::Receive),
            Asked::Subscribe(_) => return Standing::ALL,
        };
        decision.beside_token().unwrap_or(Standing::NONE)
    }
}

/// The decision of rules that match, if one of them decides.
fn decision(marks: &Marks, action: Action, is_pattern: bool) -> Option<Decision<'static>> {
    let rule = |line: Line| Reason::Rule(Rule { line: line.get(), is_pattern });
    let allowing = match action {
        Action::Publish => marks.write,
        Action::Receive => marks.read,
    };
    match (marks.deny, allowing) {
        (Some(line), _) => Some(Decision { is_allowed: false, reason: rule(line) }),
        (None, Some(line)) => Some(Decision { is_allowed: true, reason: rule(line) }),
        (None, None) => None,
    }
}
