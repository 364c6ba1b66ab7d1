//! `pondhawk acl test`: the rule that decides.

use std::hash::DefaultHasher;
use std::path::PathBuf;
use std::sync::Arc;

use auth::{
    Access, Action, Client, Deciding, Decision, DynamicSecurity, FilterAction, Held, Permissions, Permit,
    Reason, Rule, RuleKind,
};
use base::Claims;
use config::{Listener, Machine, parse_rules};
use topic::{TopicFilter, TopicName};
use wire::Qos;

use crate::access::parse;
use crate::args::AclQuestion;
use crate::file;

/// The answer to a question.
pub(super) struct Answer {
    pub(super) is_allowed: bool,
    pub(super) text: String,
}

/// The files with the rules that are asked.
#[derive(Default)]
struct Files {
    acl: Option<PathBuf>,
    rules: Option<PathBuf>,
    dynamic: Option<PathBuf>,
}

/// Answers whether a client may use a topic, or subscribe to a filter.
///
/// # Errors
/// There is no such file, or it has a mistake, or the question has one.
pub(super) fn test(question: &AclQuestion, machine: &Machine) -> Result<Answer, String> {
    let files = files(question, machine)?;
    let mut text = String::new();
    let access = read(&files, &mut text)?;
    let groups: Vec<Box<str>> = question.groups.iter().map(|name| name.as_str().into()).collect();
    let has_groups = !groups.is_empty();
    let claims = Claims::new(groups, None);
    if has_groups && claims.is_none() {
        return Err("no token may name these groups".to_owned());
    }
    let (user, claims) = (question.user.as_deref(), claims.as_ref());
    let client = Client { user, client_id: &question.client_id, claims };
    let decision = decide(&access, client, question)?;
    let mut text = explain(decision, &files, &text);
    if let (Reason::Role(_), Some(filter)) = (decision.reason, &question.topic.subscribe)
        && let Some(qos) = TopicFilter::new(filter).ok().and_then(|filter| access.granted(client, filter))
    {
        text += &format!("; at QoS {} at most", qos as u8);
    }
    text += &match access.limits(client).map_or(Ok(None), |limits| limits.topic_prefix_of(client.user)) {
        Ok(None) => String::new(),
        Ok(Some(prefix)) => {
            format!("; the client itself leaves out `{prefix}`, the topic prefix of its roles")
        }
        Err(reason) => format!("; this client cannot connect: {}", reason.why()),
    };
    Ok(Answer { is_allowed: decision.is_allowed, text })
}

fn decide<'a>(
    access: &'a Access,
    client: Client<'_>,
    question: &AclQuestion,
) -> Result<Decision<'a>, String> {
    let asked = &question.topic;
    let topic = |text| TopicName::new(text).map_err(|error| format!("{text:?} is no topic: {error}"));
    let filter =
        |text| TopicFilter::new(text).map_err(|error| format!("{text:?} is no topic filter: {error}"));
    if let Some(text) = &asked.publish {
        let qos = match question.qos {
            0 => Qos::AtMostOnce,
            1 => Qos::AtLeastOnce,
            _ => Qos::ExactlyOnce,
        };
        return Ok(access.decide_publish(client, topic(text)?, (qos, question.retain)));
    }
    if let Some(text) = &asked.receive {
        return Ok(access.decide(client, topic(text)?, Action::Receive));
    }
    if let Some(text) = &asked.subscribe {
        return Ok(access.decide_filter(client, filter(text)?, FilterAction::Subscribe));
    }
    let Some(text) = &asked.unsubscribe else {
        return Err("ask with --publish, --receive, --subscribe or --unsubscribe".to_owned());
    };
    Ok(access.decide_filter(client, filter(text)?, FilterAction::Unsubscribe))
}

/// Reads the files. `text` becomes that of the access control list.
fn read(files: &Files, text: &mut String) -> Result<Access, String> {
    let permissions = files.acl.as_ref().map(|file| {
        parse("acl_file", file, &mut DefaultHasher::new(), |read| {
            read.clone_into(text);
            Permissions::of_mosquitto(read)
        })
    });
    let mut access = Access::new(None, permissions.transpose().map_err(|error| error.to_string())?);
    if let Some(file) = &files.rules {
        let roles = parse("rules_file", file, &mut DefaultHasher::new(), parse_rules);
        access = access.with_roles(roles.map_err(|error| error.to_string())?);
    }
    let Some(file) = &files.dynamic else { return Ok(access) };
    let dynamic = parse("dynamic_security_file", file, &mut DefaultHasher::new(), DynamicSecurity::parse);
    Ok(access.with_dynamic_security(Arc::new(dynamic.map_err(|error| error.to_string())?)))
}

fn explain(Decision { is_allowed, reason }: Decision<'_>, files: &Files, text: &str) -> String {
    let verdict = if is_allowed { "allowed" } else { "denied" };
    let shown =
        |file: &Option<PathBuf>| file.as_ref().map_or_else(String::new, |file| file.display().to_string());
    let why = match reason {
        Reason::Rule(Rule { line, .. }) => {
            let number = usize::try_from(line).unwrap_or(usize::MAX);
            let rule = text.lines().nth(number.saturating_sub(1)).unwrap_or_default().trim();
            return format!("{verdict} by {}:{line}: {rule}", shown(&files.acl));
        }
        Reason::Entry { role, group, kind, topic } => {
            let group = group.map_or_else(String::new, |group| format!(", of group {group:?}"));
            let entry = format!("{} {topic}", kind.name());
            return format!("{verdict} by role {role:?}{group}: {entry} ({})", shown(&files.dynamic));
        }
        Reason::Wildcards { role } => {
            return format!(
                "{verdict} by role {role:?}: it has no filters with wildcards ({})",
                shown(&files.dynamic)
            );
        }
        Reason::Default => return format!("{verdict} by the default ({})", shown(&files.dynamic)),
        Reason::Role(rule) => return explain_role(is_allowed, &rule, &shown(&files.rules)),
        Reason::Unsubscribe => "neither roles nor tokens have rules about the end of a subscription",
        Reason::NoRules => "there is no acl_file and no rules_file, so everything is allowed",
        Reason::Token(_) => "a rule of the token decides",
        Reason::NoMatch => "no rule matches",
        Reason::WildcardInName => {
            "no rule of the user matches, and a name with + or # is refused by patterns"
        }
        Reason::Subscription => {
            "an acl_file says nothing about subscriptions; ask with --receive about messages"
        }
    };
    let files: Vec<String> = files
        .dynamic
        .iter()
        .chain(&files.rules)
        .chain(&files.acl)
        .map(|file| file.display().to_string())
        .collect();
    if files.is_empty() {
        format!("{verdict}: {why}")
    } else {
        format!("{verdict}: {why} ({})", files.join(", "))
    }
}

fn explain_role(is_allowed: bool, rule: &Deciding<'_>, file: &str) -> String {
    let Deciding { role, held, kind, filter, permit, line } = rule;
    let verdict = if is_allowed { "allowed" } else { "denied" };
    let held = match held {
        Held::User => String::new(),
        Held::Group(group) => format!(" of group {group:?}"),
        Held::EveryUser => " of every user".to_owned(),
        Held::Anonymous => " of clients without a name".to_owned(),
    };
    let list = if permit.is_some() { "" } else { "deny." };
    let rule = format!("role {role:?}{held}: {list}{} {filter:?} ({file}:{line})", kind.name());
    let qos_max = permit.and_then(Permit::qos_max).map_or(0, |qos| qos as u8);
    match permit {
        Some(permit) if *kind == RuleKind::Publish && !is_allowed => {
            let retain = if permit.allows(Qos::AtMostOnce, true) { "may" } else { "may not" };
            format!("{verdict}: messages have QoS {qos_max} at most, and {retain} be retained, by {rule}")
        }
        _ => format!("{verdict} by {rule}"),
    }
}

/// The files with the rules, as far as the configuration has some.
fn files(question: &AclQuestion, machine: &Machine) -> Result<Files, String> {
    let AclQuestion { acl_file, rules_file, dynamic_security_file, .. } = question;
    if [acl_file, rules_file, dynamic_security_file].into_iter().any(Option::is_some) {
        let (acl, rules, dynamic) = (acl_file.clone(), rules_file.clone(), dynamic_security_file.clone());
        return Ok(Files { acl, rules, dynamic });
    }
    let path = &question.config;
    let config = file::load_ours(path, machine)?;
    let Some(address) = &question.listener else {
        let (acl, rules) = (config.auth.acl_file, config.auth.rules_file);
        return Ok(Files { acl, rules, dynamic: config.auth.dynamic_security_file });
    };
    let is_it = |listener: &&Listener| listener.address == *address;
    let listener = config.listeners.iter().find(is_it);
    let listener =
        listener.ok_or_else(|| format!("{} has no listener on {address}", wire::Shown(path.display())))?;
    let (acl, rules) = (listener.acl_file.clone(), listener.rules_file.clone());
    Ok(Files { acl, rules, dynamic: listener.dynamic_security_file.clone() })
}
