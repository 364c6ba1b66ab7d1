//! Users, groups and roles of MQTT clients: lists of all sources, and changes of dynamic security, which are the commands of
//! `$CONTROL/dynamic-security/v1`.

use std::collections::BTreeMap;
use std::time::Duration;

use auth::{Access, DynamicSecurity, Realms};
use data_encoding::HEXLOWER;
use hyper::StatusCode;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::body::Body;
use super::items::Items;
use super::{bad_cursor, limit};
use crate::answer::{Answer, Failure};
use crate::asked::Asked;
use crate::control::{AccessSource, CommandsRefused, SourceKind};
use crate::routes::AccessAction;
use crate::server::Shared;
use crate::tokens::Role;

/// Maximum time that a request waits for its command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// Why commands cannot be carried out.
const NO_DYNAMIC: &str = "no listener has dynamic security (`dynamic_security_file`): users of other sources are changed \
    where they come from";

/// Carries out a request about users and rules.
pub(super) async fn carry_out(
    action: AccessAction,
    asked: &Asked,
    shared: &Shared,
) -> Result<Answer, Failure> {
    match action {
        AccessAction::AccessSources => Ok(sources(shared)),
        AccessAction::AccessUsers => users(asked, shared),
        AccessAction::AccessUser => user(asked, shared),
        AccessAction::AccessRoles => list(("listRoles", "roles"), asked, shared),
        AccessAction::AccessGroups => list(("listGroups", "groups"), asked, shared),
        AccessAction::AccessRules => rules(asked, shared),
        AccessAction::Commands => commands(asked, shared).await,
        AccessAction::NewUser
        | AccessAction::DeleteUser
        | AccessAction::SetPassword
        | AccessAction::EnableUser
        | AccessAction::GrantRole
        | AccessAction::RevokeRole
        | AccessAction::JoinGroup
        | AccessAction::LeaveGroup => change(action, asked, shared).await,
    }
}

/// The sources of users and rules of all listeners.
fn sources(shared: &Shared) -> Answer {
    let realms = shared.operator.guard().current();
    let describe = |source: &AccessSource| {
        let access = realms.access(source.realm);
        json!({
            "kind": source.kind.word(),
            "place": source.place,
            "listeners": source.listeners,
            "users": access.and_then(|access| count(source.kind, access)),
            "editable": source.kind == SourceKind::Dynamic,
        })
    };
    let in_force = shared.control.in_force();
    Answer::json(&json!({ "sources": in_force.sources.iter().map(describe).collect::<Vec<_>>() }))
}

fn count(kind: SourceKind, access: &Access) -> Option<usize> {
    match kind {
        SourceKind::Passwords => access.users_of_file().map(auth::Users::len),
        SourceKind::Dynamic => access.dynamic_security().map(|dynamic| dynamic.len()),
        _ => None,
    }
}

/// Users of the sources that are known here, by their names in each source.
fn users(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let (mut items, text) = (Items::of(asked)?, asked.parameter("match").unwrap_or_default().to_lowercase());
    let most = limit(asked)? + 1;
    let (mut source, mut after) = position(asked)?;
    let (in_force, realms) = (shared.control.in_force(), shared.operator.guard().current());
    let mut has_more = false;
    while let Some(found) = in_force.sources.get(source).filter(|_| !has_more) {
        let Some(access) = realms.access(found.realm) else { break };
        let wanted =
            |name: &&str| **name > *after && (text.is_empty() || name.to_lowercase().contains(&text));
        let names: Vec<&str> = names(found.kind, access).filter(wanted).collect();
        for name in first(names, most) {
            has_more = items.is_full();
            if has_more {
                break;
            }
            items.push(&user_in(found, access, name, &in_force.operators.users));
            after = name.to_owned();
        }
        if !has_more {
            (source, after) = (source + 1, String::new());
        }
    }
    let cursor = has_more.then(|| format!("{source}-{}", HEXLOWER.encode(after.as_bytes())));
    Ok(items.into_answer("users", json!({ "cursor": cursor })))
}

/// The first names in their order, at most `count`. Looks at each name once, and sorts those alone.
fn first(mut names: Vec<&str>, count: usize) -> Vec<&str> {
    if names.len() > count {
        names.select_nth_unstable(count);
        names.truncate(count);
    }
    names.sort_unstable();
    names
}

/// The source and the name behind which a list goes on.
fn position(asked: &Asked) -> Result<(usize, String), Failure> {
    let Some(cursor) = asked.parameter("cursor") else { return Ok((0, String::new())) };
    let parse = || {
        let (source, name) = cursor.split_once('-')?;
        let name = HEXLOWER.decode(name.as_bytes()).ok()?;
        Some((source.parse().ok()?, String::from_utf8(name).ok()?))
    };
    parse().ok_or_else(bad_cursor)
}

fn names(kind: SourceKind, access: &Access) -> Box<dyn Iterator<Item = &str> + '_> {
    match kind {
        SourceKind::Passwords => Box::new(access.users_of_file().into_iter().flat_map(auth::Users::names)),
        SourceKind::Dynamic => {
            Box::new(access.dynamic_security().into_iter().flat_map(|dynamic| dynamic.names()))
        }
        _ => Box::new(std::iter::empty()),
    }
}

/// A user as one of its sources knows it.
fn user_in(source: &AccessSource, access: &Access, name: &str, operators: &BTreeMap<String, Role>) -> Value {
    let dynamic = access.dynamic_security().filter(|_| source.kind == SourceKind::Dynamic);
    let known = dynamic.and_then(|dynamic| asked_of(dynamic, "getClient", &[("username", name)]).ok());
    let known = known.map(|mut data| data["client"].take()).unwrap_or_default();
    let list = |field: &str| known[field].as_array().cloned().unwrap_or_default();
    json!({
        "user": name,
        "source": source.kind.word(),
        "place": source.place,
        "disabled": known["disabled"].as_bool().unwrap_or_default(),
        "client_id": known["clientid"],
        "text": known["textname"],
        "roles": list("roles"),
        "groups": list("groups"),
        "editable": dynamic.is_some(),
        "operator": operators.get(name).map(|role| role.word()),
    })
}

/// A user in all its sources.
fn user(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let name = &asked.values[0];
    let (in_force, realms) = (shared.control.in_force(), shared.operator.guard().current());
    let knows = |source: &&AccessSource| {
        realms.access(source.realm).is_some_and(|access| match source.kind {
            SourceKind::Passwords => access.users_of_file().is_some_and(|users| users.find(name).is_some()),
            SourceKind::Dynamic => access.dynamic_security().is_some_and(|dynamic| dynamic.knows(name)),
            _ => false,
        })
    };
    let describe = |source: &AccessSource| {
        Some(user_in(source, realms.access(source.realm)?, name, &in_force.operators.users))
    };
    let found: Vec<Value> = in_force.sources.iter().filter(knows).filter_map(describe).collect();
    if found.is_empty() {
        return Err(Failure::not_found("no source here has this user; services elsewhere are not asked"));
    }
    Ok(Answer::json(&json!({ "users": found })))
}

/// Roles or groups of dynamic security, a part of them by their place in the list.
fn list((command, name): (&str, &str), asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let realms = shared.operator.guard().current();
    let Some(dynamic) = realms.dynamic_security() else {
        return Ok(Answer::json(&json!({ name: [], "cursor": null })));
    };
    let mut items = Items::of(asked)?;
    let offset: usize = match asked.parameter("cursor") {
        None => 0,
        Some(text) => text.parse().map_err(|_| bad_cursor())?,
    };
    let part = json!({ "verbose": true, "count": limit(asked)?, "offset": offset });
    let found = dynamic.answer(command, &part).map_err(|why| Failure::unavailable(why.to_owned()))?;
    let total = found["totalCount"].as_u64().unwrap_or_default();
    let mut next = offset;
    for item in found[name].as_array().into_iter().flatten() {
        if items.is_full() {
            break;
        }
        items.push(item);
        next += 1;
    }
    let cursor = (u64::try_from(next).unwrap_or(u64::MAX) < total).then(|| next.to_string());
    Ok(items.into_answer(name, json!({ "cursor": cursor })))
}

/// The text of a file with rules that a listener has. Rules in force may be older, if the file has a mistake.
fn rules(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let place = asked.parameter("place").ok_or_else(|| Failure::bad("place is missing"))?;
    let in_force = shared.control.in_force();
    let is_meant = |source: &&AccessSource| source.place == place && source.kind.is_file_of_rules();
    let found = in_force.sources.iter().find(is_meant);
    let source = found.ok_or_else(|| Failure::not_found("no listener has a file of rules at this place"))?;
    let text = shared.control.read_rules(&source.place).map_err(Failure::unavailable)?;
    Ok(Answer::json(&json!({ "kind": source.kind.word(), "place": source.place, "text": text })))
}

/// Asks dynamic security a question.
fn asked_of(
    dynamic: &DynamicSecurity,
    command: &str,
    fields: &[(&str, &str)],
) -> Result<Value, &'static str> {
    let fields: Map<String, Value> =
        fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
    dynamic.answer(command, &Value::Object(fields))
}

/// Carries out the command behind a route.
async fn change(action: AccessAction, asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let command = command_of(action, asked)?;
    let realms = shared.operator.guard().current();
    note_before(asked, &command, &realms);
    let mut answers = run(json!({ "commands": [command] }), asked, shared).await?;
    let answer = answers["responses"][0].take();
    match answer["error"].as_str() {
        None => Ok(Answer::json(&json!({ "done": answer["command"] }))),
        Some(why) => Err(Failure(status_of(why), why.to_owned())),
    }
}

/// Carries out commands as they are, and answers as the broker answers to those of clients.
async fn commands(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let body = Body::of(asked)?;
    let commands = body.field("commands");
    if !commands.is_array() {
        return Err(Failure::bad("commands is a list"));
    }
    let answers = run(json!({ "commands": commands }), asked, shared).await?;
    Ok(Answer::json(&answers))
}

async fn run(commands: Value, asked: &Asked, shared: &Shared) -> Result<Value, Failure> {
    let who = asked.holder.as_ref().map(|holder| holder.name.clone()).unwrap_or_default();
    let (give, take) = oneshot::channel();
    let answer = Box::new(move |answer: Box<[u8]>| drop(give.send(answer)));
    shared.control.carry_out(commands.to_string().into_bytes(), who, answer).map_err(
        |refused| match refused {
            CommandsRefused::Busy => Failure::unavailable("too many commands wait: try again"),
            CommandsRefused::Off => Failure(StatusCode::CONFLICT, NO_DYNAMIC.to_owned()),
        },
    )?;
    let answers = timeout(COMMAND_TIMEOUT, take).await.ok().and_then(Result::ok);
    let answers = answers.and_then(|answers| serde_json::from_slice(&answers).ok());
    answers.ok_or_else(|| Failure::unavailable("the command may be carried out later: nobody has answered"))
}

/// The status for a refusal of dynamic security.
fn status_of(why: &str) -> StatusCode {
    if why.ends_with("not found") {
        StatusCode::NOT_FOUND
    } else if why.ends_with("already exists") {
        StatusCode::CONFLICT
    } else if why == "Internal error" {
        // Mosquitto has no other words for a role or a group that a client has already.
        StatusCode::CONFLICT
    } else if why.contains("the file") || why.starts_with('/') {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::BAD_REQUEST
    }
}

/// Notes the user or the role as it is before a change.
fn note_before(asked: &Asked, command: &Value, realms: &Realms) {
    let Some(dynamic) = realms.dynamic_security() else { return };
    let of = |question: &str, field: &str, part: &str| {
        let name = command[field].as_str()?;
        let mut found = asked_of(dynamic, question, &[(field, name)]).ok()?;
        Some(found[part].take())
    };
    let before = of("getClient", "username", "client").or_else(|| of("getRole", "rolename", "role"));
    asked.note_before(before.unwrap_or(Value::Null));
}

/// The command behind a route, with the fields of its path and its body.
fn command_of(action: AccessAction, asked: &Asked) -> Result<Value, Failure> {
    let value = |at: usize| asked.values.get(at).cloned().unwrap_or_default();
    let with = |command: &str, second: &str| {
        let mut command = json!({ "command": command, "username": value(0), second: value(1) });
        if let Some(priority) = asked.parameter("priority") {
            let number: i32 = priority.parse().map_err(|_| Failure::bad("priority is a whole number"))?;
            command["priority"] = number.into();
        }
        Ok(command)
    };
    match action {
        AccessAction::DeleteUser => Ok(json!({ "command": "deleteClient", "username": value(0) })),
        AccessAction::GrantRole => with("addClientRole", "rolename"),
        AccessAction::RevokeRole => with("removeClientRole", "rolename"),
        AccessAction::JoinGroup => with("addGroupClient", "groupname"),
        AccessAction::LeaveGroup => with("removeGroupClient", "groupname"),
        AccessAction::EnableUser => {
            let is_enabled = Body::of(asked)?.field("enabled").as_bool();
            let is_enabled = is_enabled.ok_or_else(|| Failure::bad("enabled is true or false"))?;
            let command = if is_enabled { "enableClient" } else { "disableClient" };
            Ok(json!({ "command": command, "username": value(0) }))
        }
        AccessAction::SetPassword => {
            let body = Body::of(asked)?;
            let password = body.needed("password")?;
            Ok(json!({ "command": "setClientPassword", "username": value(0), "password": password }))
        }
        _ => new_user(&Body::of(asked)?),
    }
}

/// The command that makes a user.
fn new_user(body: &Body) -> Result<Value, Failure> {
    let named = |field: &str, name: &str| {
        let list = match body.field(field) {
            Value::Null => return Ok(Vec::new()),
            Value::Array(list) => list,
            _ => return Err(Failure::bad(format!("{field} is a list of names"))),
        };
        let one = |value: &Value| value.as_str().map(|text| json!({ name: text }));
        let all: Option<Vec<Value>> = list.iter().map(one).collect();
        all.ok_or_else(|| Failure::bad(format!("{field} is a list of names")))
    };
    let mut command = json!({
        "command": "createClient",
        "username": body.needed("name")?,
        "roles": named("roles", "rolename")?,
        "groups": named("groups", "groupname")?,
    });
    for (field, of_command) in [("password", "password"), ("client_id", "clientid"), ("text", "textname")] {
        if let Some(text) = body.text(field)? {
            command[of_command] = text.into();
        }
    }
    Ok(command)
}
