//! Decisions of rules, in words.

use auth::{Action, Decision, Held, Realms, Reason};
use base::Principal;
use topic::TopicName;

/// Whether a client may use a topic, in words.
///
/// # Errors
/// The client may not, for this reason.
pub(super) fn may(
    realms: &Realms,
    principal: &Principal,
    (client_id, topic): (&str, TopicName<'_>),
    action: Action,
) -> Result<String, String> {
    let what = match action {
        Action::Publish => "publish to",
        Action::Receive => "receive from",
    };
    let Decision { is_allowed, reason } = realms.decide(principal, client_id, topic, action);
    let user =
        principal.user.as_deref().map_or_else(|| "anonymous".to_owned(), |user| format!("user {user}"));
    let why = in_words(reason);
    let verb = if is_allowed { "may" } else { "may not" };
    let text = format!("{client_id} ({user}) {verb} {what} {topic}: {why}", topic = topic.as_str());
    if is_allowed { Ok(text) } else { Err(text) }
}

fn in_words(reason: Reason<'_>) -> String {
    match reason {
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
    }
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
