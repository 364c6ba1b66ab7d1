//! `pondhawk acl test`: the rule that decides.

use std::hash::DefaultHasher;
use std::path::{Path, PathBuf};

use auth::{Access, Action, Client, Decision, Permissions, Reason, Rule};
use config::{Config, Flags, Listener, Machine};
use topic::TopicName;

use crate::access::parse;
use crate::args::AclQuestion;

/// The answer to a question.
pub(super) struct Answer {
    pub(super) is_allowed: bool,
    pub(super) text: String,
}

/// Answers whether a client may use a topic.
///
/// # Errors
/// There is no such file, or it has a mistake, or the question has one.
pub(super) fn test(question: &AclQuestion, machine: &Machine) -> Result<Answer, String> {
    let (action, topic) = match (&question.topic.publish, &question.topic.receive) {
        (Some(topic), _) => (Action::Publish, topic),
        (None, Some(topic)) => (Action::Receive, topic),
        (None, None) => return Err("ask with --publish or --receive".to_owned()),
    };
    let topic = TopicName::new(topic).map_err(|error| format!("{topic:?} is no topic: {error}"))?;
    let file = file(question, machine)?;
    let Some(file) = file else {
        let text = "allowed: there is no acl_file, so everything is allowed".to_owned();
        return Ok(Answer { is_allowed: true, text });
    };
    let mut text = String::new();
    let permissions = parse("acl_file", &file, &mut DefaultHasher::new(), |read| {
        read.clone_into(&mut text);
        Permissions::of_mosquitto(read)
    });
    let access = Access::new(None, Some(permissions.map_err(|error| error.to_string())?));
    let client = Client { user: question.user.as_deref(), client_id: &question.client_id };
    let decision = access.decide(client, topic, action);
    Ok(Answer { is_allowed: decision.is_allowed, text: explain(decision, &file, &text) })
}

fn explain(Decision { is_allowed, reason }: Decision, file: &Path, text: &str) -> String {
    let verdict = if is_allowed { "allowed" } else { "denied" };
    let why = match reason {
        Reason::Rule(Rule { line, .. }) => {
            let number = usize::try_from(line).unwrap_or(usize::MAX);
            let rule = text.lines().nth(number.saturating_sub(1)).unwrap_or_default().trim();
            return format!("{verdict} by {}:{line}: {rule}", file.display());
        }
        Reason::NoRules => "there are no rules",
        Reason::NoMatch => "no rule matches",
        Reason::WildcardInName => {
            "no rule of the user matches, and a name with + or # is refused by patterns"
        }
    };
    format!("{verdict}: {why} ({})", file.display())
}

/// The file with the rules; `None` if the configuration has none.
fn file(question: &AclQuestion, machine: &Machine) -> Result<Option<PathBuf>, String> {
    if let Some(file) = &question.acl_file {
        return Ok(Some(file.clone()));
    }
    let path = &question.config;
    let config = Config::load(Some(path), &Flags::default(), machine).map_err(|error| error.render(false))?;
    let Some(address) = &question.listener else { return Ok(config.auth.acl_file) };
    let is_it = |listener: &&Listener| listener.address == *address;
    let listener = config.listeners.iter().find(is_it);
    let listener = listener.ok_or_else(|| format!("{} has no listener on {address}", path.display()))?;
    Ok(listener.acl_file.clone())
}
