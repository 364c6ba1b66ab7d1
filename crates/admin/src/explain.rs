//! Why a message reaches a subscriber, or does not. Follows the path of a message, and names each decision in words.
//!
//! The facts are gathered before ([`Situation`]); what follows from them is a function of them alone.

use auth::{Action, Decision, Held, Realms, Reason};
use base::{Interest, Level, Principal};
use serde_json::{Value, json};
use topic::{TopicFilter, TopicName};
use wire::Qos;

use crate::nearly;

/// Maximum number of filters in an answer that nearly match.
const NEARLY_MAX: usize = 10;

/// The facts about a message that may go from a publisher to a subscriber.
#[derive(Debug)]
pub(crate) struct Situation<'a> {
    pub(crate) publisher: &'a str,
    /// The user for whom the publisher acts. `None` if the broker does not know the client.
    pub(crate) publisher_principal: Option<&'a Principal>,
    pub(crate) topic: &'a str,
    pub(crate) qos: Qos,
    pub(crate) subscriber: &'a str,
    /// The ban that keeps the publisher out, in words.
    pub(crate) publisher_ban: Option<&'a str>,
    /// The ban that keeps the subscriber out, in words.
    pub(crate) subscriber_ban: Option<&'a str>,
    /// `None` if the broker does not know the client.
    pub(crate) receiver: Option<Receiver<'a>>,
    pub(crate) realms: &'a Realms,
}

/// The facts about a subscriber.
#[derive(Debug)]
pub(crate) struct Receiver<'a> {
    pub(crate) principal: &'a Principal,
    /// The level of its output, if it is connected.
    pub(crate) level: Option<Level>,
    pub(crate) subscriptions: &'a [(Box<str>, Option<Interest>)],
    /// Whether these are all of its subscriptions.
    pub(crate) has_all: bool,
    /// Messages that wait for it, and the most that may.
    pub(crate) waiting: (usize, usize),
    /// The rule for a full queue, as the configuration writes it.
    pub(crate) queue_full: &'a str,
}

/// The outcome for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The subscriber gets the message at once.
    Delivered,
    /// The message waits for the subscriber.
    Waits,
    /// The message goes to one member of a group, which may be another one.
    ToGroup,
    /// The subscriber does not get the message.
    NotDelivered,
    /// The facts do not decide.
    Unknown,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Waits => "waits",
            Self::ToGroup => "to-group",
            Self::NotDelivered => "not-delivered",
            Self::Unknown => "unknown",
        }
    }
}

/// An explanation: the outcome, the reason for it, and all steps on the way.
#[derive(Debug)]
pub(crate) struct Explanation {
    pub(crate) outcome: Outcome,
    /// A short name of the reason, for programs.
    pub(crate) reason: &'static str,
    pub(crate) steps: Vec<String>,
    /// Filters that nearly match, each with the difference.
    pub(crate) nearly: Vec<(Box<str>, String)>,
}

impl Explanation {
    /// The explanation in JSON.
    pub(crate) fn value(&self) -> Value {
        let nearly = self.nearly.iter().map(|(filter, why)| json!({ "filter": filter, "difference": why }));
        json!({
            "outcome": self.outcome.word(),
            "reason": self.reason,
            "steps": self.steps,
            "nearly_matching": nearly.collect::<Vec<_>>(),
        })
    }

    fn end(mut self, outcome: Outcome, reason: &'static str, step: impl Into<String>) -> Self {
        self.steps.push(step.into());
        Self { outcome, reason, ..self }
    }
}

/// Explains the outcome for a message.
pub(crate) fn explain(of: &Situation<'_>) -> Explanation {
    let mut so_far =
        Explanation { outcome: Outcome::Unknown, reason: "", steps: Vec::new(), nearly: Vec::new() };
    let topic = match TopicName::new(of.topic) {
        Ok(topic) => topic,
        Err(_) => {
            let text = format!("{} is no topic name: it is empty, too long, or has + or # in it", of.topic);
            return so_far.end(Outcome::NotDelivered, "no_topic_name", text);
        }
    };
    if topic.first_level() == "$SYS" {
        let text = "topics below $SYS are the broker's: messages of clients to them are dropped";
        return so_far.end(Outcome::NotDelivered, "reserved_topic", text);
    }
    if let Some(ban) = of.publisher_ban {
        let text = format!("{} is banned ({ban}): it cannot connect, and publishes nothing", of.publisher);
        return so_far.end(Outcome::NotDelivered, "publisher_banned", text);
    }
    match may(of.realms, of.publisher_principal, (of.publisher, topic), Action::Publish) {
        Ok(text) => so_far.steps.push(text),
        Err(text) => return so_far.end(Outcome::NotDelivered, "publish_not_authorized", text),
    }
    if let Some(ban) = of.subscriber_ban {
        so_far
            .steps
            .push(format!("{} is banned ({ban}): it cannot connect until the ban ends", of.subscriber));
    }
    let Some(receiver) = &of.receiver else {
        if of.subscriber_ban.is_some() {
            let text = format!("{} has no session: no message waits for it", of.subscriber);
            return so_far.end(Outcome::NotDelivered, "subscriber_banned", text);
        }
        let text = format!(
            "{} is not connected and has no session: it never connected, its session has expired, or the session ended with \
             the connection",
            of.subscriber
        );
        return so_far.end(Outcome::NotDelivered, "no_session", text);
    };
    receive(so_far, of, receiver, topic)
}

/// The part of the explanation about the subscriber.
fn receive(
    mut so_far: Explanation,
    of: &Situation<'_>,
    receiver: &Receiver<'_>,
    topic: TopicName<'_>,
) -> Explanation {
    let matching: Vec<_> =
        receiver.subscriptions.iter().filter(|(filter, _)| matches(filter, topic)).collect();
    if matching.is_empty() {
        return no_match(so_far, of, receiver, topic);
    }
    let is_own = of.publisher == of.subscriber;
    let counts = |interest: &Option<Interest>| !(is_own && interest.is_some_and(Interest::no_local));
    for (filter, interest) in &matching {
        let options = match interest {
            Some(interest) => format!(" with QoS {}", interest.qos() as u8),
            None => String::new(),
        };
        let no_local = if counts(interest) { "" } else { ", but No Local leaves out its own messages" };
        so_far.steps.push(format!("the filter {filter} of {} matches{options}{no_local}", of.subscriber));
    }
    let plain: Vec<_> = matching
        .iter()
        .filter(|(filter, interest)| !filter.starts_with("$share/") && counts(interest))
        .collect();
    let has_group = matching.iter().any(|(filter, _)| filter.starts_with("$share/"));
    if plain.is_empty() && !has_group {
        let text = format!("all of these have No Local, and {} is the publisher itself", of.subscriber);
        return so_far.end(Outcome::NotDelivered, "no_local", text);
    }
    match may(of.realms, Some(receiver.principal), (of.subscriber, topic), Action::Receive) {
        Ok(text) => so_far.steps.push(text),
        Err(text) => return so_far.end(Outcome::NotDelivered, "receive_not_authorized", text),
    }
    if plain.is_empty() {
        let text = "the matching subscription is shared: each message goes to one member of the group";
        return so_far.end(Outcome::ToGroup, "shared", text);
    }
    let granted = plain.iter().filter_map(|(_, interest)| interest.map(Interest::qos)).max();
    let qos = granted.map_or(of.qos, |granted| granted.min(of.qos));
    so_far.steps.push(format!(
        "the message has QoS {}, and reaches {} with QoS {}",
        of.qos as u8, of.subscriber, qos as u8
    ));
    let ended = state(so_far, of.subscriber, receiver, qos);
    let is_away = matches!(ended.reason, "offline" | "offline_qos_0");
    match of.subscriber_ban {
        Some(_) if is_away => Explanation { reason: "subscriber_banned", ..ended },
        _ => ended,
    }
}

/// The part of the explanation about the state of the subscriber.
fn state(so_far: Explanation, name: &str, receiver: &Receiver<'_>, qos: Qos) -> Explanation {
    let is_stored = qos != Qos::AtMostOnce;
    let (waiting, waiting_max) = receiver.waiting;
    if is_stored && waiting >= waiting_max {
        let text = format!(
            "{waiting} messages wait for {name}, and at most {waiting_max} may: `queue_full` is {}",
            receiver.queue_full
        );
        let outcome =
            if receiver.queue_full == "drop-oldest" { Outcome::Waits } else { Outcome::NotDelivered };
        return so_far.end(outcome, "queue_full", text);
    }
    match receiver.level {
        None if is_stored => {
            let text =
                format!("{name} is not connected: the message waits in its queue, behind {waiting} others");
            so_far.end(Outcome::Waits, "offline", text)
        }
        None => {
            let text = format!("{name} is not connected, and a message of QoS 0 does not wait");
            so_far.end(Outcome::NotDelivered, "offline_qos_0", text)
        }
        Some(Level::Slow) if !is_stored => {
            let text = format!("{name} reads too slowly: QoS 0 is dropped until it has caught up");
            so_far.end(Outcome::NotDelivered, "slow", text)
        }
        Some(Level::Slow | Level::Over) => {
            let text = format!("the output of {name} is full: the message waits, behind {waiting} others");
            so_far.end(Outcome::Waits, "full", text)
        }
        Some(Level::Open) if waiting > 0 && is_stored => {
            let text = format!(
                "{name} has not acknowledged earlier messages: {waiting} messages wait before this one"
            );
            so_far.end(Outcome::Waits, "window_full", text)
        }
        Some(Level::Open) => so_far.end(
            Outcome::Delivered,
            "delivered",
            format!("{name} is connected and has room: it gets the message"),
        ),
    }
}

fn no_match(
    mut so_far: Explanation,
    of: &Situation<'_>,
    receiver: &Receiver<'_>,
    topic: TopicName<'_>,
) -> Explanation {
    let filters = receiver.subscriptions.iter();
    let near = filters.filter_map(|(filter, _)| Some((filter.clone(), nearly::difference(filter, topic)?)));
    so_far.nearly = near.take(NEARLY_MAX).collect();
    let count = receiver.subscriptions.len();
    if !receiver.has_all {
        let text = format!("none of the first {count} filters of {} matches; it has more", of.subscriber);
        return so_far.end(Outcome::Unknown, "too_many_subscriptions", text);
    }
    let none_matches = match count {
        0 => format!("{} has no subscriptions", of.subscriber),
        1 => format!("{} has one subscription, which does not match", of.subscriber),
        _ => format!("{} has {count} subscriptions, and none matches", of.subscriber),
    };
    let text = match so_far.nearly.first() {
        None => none_matches,
        Some((filter, why)) => format!("{none_matches}, but {filter} nearly does: {why}"),
    };
    so_far.end(Outcome::NotDelivered, "no_matching_filter", text)
}

/// Whether a filter, which may be shared, matches.
fn matches(filter: &str, topic: TopicName<'_>) -> bool {
    TopicFilter::new(filter).is_ok_and(|filter| filter.matches(topic))
}

/// The decision of the rules, in words.
fn may(
    realms: &Realms,
    principal: Option<&Principal>,
    (client_id, topic): (&str, TopicName<'_>),
    action: Action,
) -> Result<String, String> {
    let what = match action {
        Action::Publish => "publish to",
        Action::Receive => "receive from",
    };
    let Some(principal) = principal else {
        let text = "is not connected and has no session: the rules about it are not known";
        return Ok(format!("{client_id} {text}"));
    };
    let Decision { is_allowed, reason } = realms.decide(principal, client_id, topic, action);
    let user =
        principal.user.as_deref().map_or_else(|| "anonymous".to_owned(), |user| format!("user {user}"));
    let why = match reason {
        Reason::NoRules => "there are no rules".to_owned(),
        Reason::Rule(rule) if rule.is_pattern => format!("the pattern in line {} decides", rule.line),
        Reason::Rule(rule) => format!("the rule in line {} decides", rule.line),
        Reason::Token(number) => format!("rule {number} of its token decides"),
        Reason::NoMatch => "no rule matches".to_owned(),
        Reason::WildcardInName => {
            "no rule matches, and a name with + or # is refused by all patterns".to_owned()
        }
        Reason::Subscription => "an acl_file says nothing about subscriptions".to_owned(),
        Reason::Entry { role, group, kind, topic } => {
            let group = group.map_or_else(String::new, |group| format!(" of group {group:?}"));
            format!("{} {topic} in role {role:?}{group} decides", kind.name())
        }
        Reason::Wildcards { role } => format!("role {role:?} refuses filters with wildcards"),
        Reason::Default => "the default of dynamic security decides".to_owned(),
        Reason::Role(rule) => format!(
            "{} {:?} in line {} decides, in role {:?}{}",
            rule.kind.name(),
            rule.filter,
            rule.line,
            rule.role,
            of_holder(rule.held)
        ),
        Reason::Unsubscribe => {
            "neither roles nor tokens have rules about the end of a subscription".to_owned()
        }
    };
    let verb = if is_allowed { "may" } else { "may not" };
    let text = format!("{client_id} ({user}) {verb} {what} {topic}: {why}", topic = topic.as_str());
    if is_allowed { Ok(text) } else { Err(text) }
}

/// The way on which a client has a role, behind the name of the role.
fn of_holder(held: Held<'_>) -> String {
    match held {
        Held::User => String::new(),
        Held::Group(group) => format!(" of group {group:?}"),
        Held::EveryUser => " of every user".to_owned(),
        Held::Anonymous => " of clients without a name".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use auth::{Access, Permissions};
    use base::Realm;

    use super::*;

    /// A subscription with this filter.
    fn plain(filter: &str) -> (Box<str>, Option<Interest>) {
        (filter.into(), Some(Interest::new(Qos::AtLeastOnce)))
    }

    fn realms(rules: Option<&str>) -> Realms {
        let rules = rules.map(|text| Permissions::of_mosquitto(text).expect("rules"));
        Realms::new(vec![("".into(), Arc::new(Access::new(None, rules)))])
    }

    /// The parts of a situation that a case changes.
    struct Case<'a> {
        topic: &'a str,
        publisher: &'a str,
        qos: Qos,
        rules: Option<&'a str>,
        subscriptions: Vec<(Box<str>, Option<Interest>)>,
        level: Option<Level>,
        waiting: usize,
        queue_full: &'a str,
        /// The bans of the publisher and of the subscriber.
        bans: [Option<&'a str>; 2],
    }

    const CASE: Case<'static> = Case {
        topic: "pond/frog",
        publisher: "a",
        qos: Qos::AtLeastOnce,
        rules: None,
        subscriptions: Vec::new(),
        level: Some(Level::Open),
        waiting: 0,
        queue_full: "end-session",
        bans: [None; 2],
    };

    fn outcome(case: &Case<'_>) -> (Outcome, &'static str, String) {
        let principal = Principal { user: Some("ann".into()), realm: Realm(0), ..Principal::default() };
        let realms = realms(case.rules);
        let explanation = explain(&Situation {
            publisher: case.publisher,
            publisher_principal: Some(&principal),
            topic: case.topic,
            qos: case.qos,
            subscriber: "b",
            publisher_ban: case.bans[0],
            subscriber_ban: case.bans[1],
            receiver: Some(Receiver {
                principal: &principal,
                level: case.level,
                subscriptions: &case.subscriptions,
                has_all: true,
                waiting: (case.waiting, 100),
                queue_full: case.queue_full,
            }),
            realms: &realms,
        });
        (explanation.outcome, explanation.reason, explanation.steps.join("; "))
    }

    fn subscribed(filter: &str) -> Case<'static> {
        Case { subscriptions: vec![plain(filter)], ..CASE }
    }

    #[test]
    fn each_reason_is_named() {
        use Outcome::{Delivered, NotDelivered, ToGroup, Waits};
        let interest = Interest::new(Qos::AtLeastOnce);
        let own = vec![("pond/#".into(), Some(interest.with_no_local(true)))];
        let cases: Vec<(Case<'_>, Outcome, &str)> = vec![
            (subscribed("pond/#"), Delivered, "delivered"),
            (subscribed("lake/#"), NotDelivered, "no_matching_filter"),
            (CASE, NotDelivered, "no_matching_filter"),
            (subscribed("$share/g/pond/+"), ToGroup, "shared"),
            (Case { topic: "pond/+", ..subscribed("#") }, NotDelivered, "no_topic_name"),
            (Case { topic: "$SYS/x", ..subscribed("$SYS/#") }, NotDelivered, "reserved_topic"),
            (
                Case { rules: Some("user ann\ntopic read pond/#"), ..subscribed("#") },
                NotDelivered,
                "publish_not_authorized",
            ),
            (
                Case { rules: Some("user ann\ntopic write pond/#"), ..subscribed("#") },
                NotDelivered,
                "receive_not_authorized",
            ),
            (Case { rules: Some("user ann\ntopic pond/#"), ..subscribed("#") }, Delivered, "delivered"),
            (Case { publisher: "b", subscriptions: own.clone(), ..CASE }, NotDelivered, "no_local"),
            (Case { subscriptions: own, ..CASE }, Delivered, "delivered"),
            (Case { level: None, ..subscribed("#") }, Waits, "offline"),
            (Case { level: None, qos: Qos::AtMostOnce, ..subscribed("#") }, NotDelivered, "offline_qos_0"),
            (
                Case { level: Some(Level::Slow), qos: Qos::AtMostOnce, ..subscribed("#") },
                NotDelivered,
                "slow",
            ),
            (Case { bans: [Some("noisy"), None], ..subscribed("#") }, NotDelivered, "publisher_banned"),
            (
                Case { bans: [None, Some("noisy")], level: None, ..subscribed("#") },
                Waits,
                "subscriber_banned",
            ),
            (
                Case { bans: [None, Some("noisy")], level: None, qos: Qos::AtMostOnce, ..subscribed("#") },
                NotDelivered,
                "subscriber_banned",
            ),
            (Case { bans: [None, Some("noisy")], ..subscribed("a") }, NotDelivered, "no_matching_filter"),
            (Case { level: Some(Level::Over), ..subscribed("#") }, Waits, "full"),
            (Case { waiting: 5, ..subscribed("#") }, Waits, "window_full"),
            (Case { waiting: 100, level: None, ..subscribed("#") }, NotDelivered, "queue_full"),
            (Case { waiting: 100, queue_full: "drop-oldest", ..subscribed("#") }, Waits, "queue_full"),
        ];
        for (case, expected, reason) in cases {
            let (outcome, found, steps) = outcome(&case);
            assert_eq!((outcome, found), (expected, reason), "{steps}");
        }
    }

    #[test]
    fn the_line_of_the_rule_and_the_qos_are_named() {
        let rules = Some("user ann\ntopic pond/#\n");
        let (_, _, steps) = outcome(&Case { rules, qos: Qos::ExactlyOnce, ..subscribed("pond/+") });
        assert!(
            steps.contains("a (user ann) may publish to pond/frog: the rule in line 2 decides"),
            "{steps}"
        );
        assert!(steps.contains("the message has QoS 2, and reaches b with QoS 1"), "{steps}");
    }

    #[test]
    fn a_client_that_is_not_there_is_named() {
        let realms = realms(None);
        let situation = Situation {
            publisher: "a",
            publisher_principal: None,
            topic: "t",
            qos: Qos::AtMostOnce,
            subscriber: "b",
            publisher_ban: None,
            subscriber_ban: None,
            receiver: None,
            realms: &realms,
        };
        let explanation = explain(&situation);
        assert_eq!((explanation.outcome, explanation.reason), (Outcome::NotDelivered, "no_session"));
        assert!(explanation.steps[0].contains("the rules about it are not known"), "{explanation:?}");
    }
}
