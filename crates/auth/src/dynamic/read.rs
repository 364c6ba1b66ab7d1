//! Reads the file of dynamic security.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::json::{field, flag, list, number, text};
use super::role::{Acl, Role};
use super::{AclKind, Client, Defaults, DynamicSecurity, Group, NO_PRIORITY, Texts, insert};
use crate::{HashError, PasswordHash};

/// The reason why a file is not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DynamicError {
    /// The text is not JSON.
    Json(String),
    /// The value of this name is not the list that it should be.
    List(&'static str),
    /// The password of this client is no hash.
    Password {
        /// The name of the client.
        user: String,
        /// The rule that the hash breaks.
        problem: HashError,
    },
}

impl DynamicSecurity {
    /// Reads a file of Mosquitto's dynamic security. An empty text has nobody in it.
    ///
    /// Names of fields count without regard to case. Fields of an unknown name, entries of another type, and roles and clients
    /// that are not there are skipped. Of several entries with the same name, the first counts.
    ///
    /// # Errors
    /// The text is not JSON, a list is none, or the password of a client is no hash. A client that is silently missing would
    /// be a worse surprise.
    pub fn parse(read: &str) -> Result<Self, DynamicError> {
        if read.is_empty() {
            return Ok(Self::default());
        }
        let tree: Value =
            serde_json::from_str(read).map_err(|error| DynamicError::Json(error.to_string()))?;
        let mut all = Self::default();
        if let Some(defaults) = field(&tree, "defaultACLAccess") {
            let is_open = |name| flag(defaults, name).unwrap_or(false);
            all.defaults = Defaults {
                send: is_open("publishClientSend"),
                receive: is_open("publishClientReceive"),
                subscribe: is_open("subscribe"),
                unsubscribe: is_open("unsubscribe"),
            };
        }
        for role in items(&tree, "roles")? {
            if let Some(name) = name(role, "rolename") {
                all.roles.entry(name.into()).or_insert_with(|| Arc::new(read_role(role)));
            }
        }
        for client in items(&tree, "clients")? {
            if let Some(name) = name(client, "username").filter(|name| !all.clients.contains_key(*name)) {
                let client = all.read_client(name, client)?;
                all.clients.insert(name.into(), Arc::new(client));
            }
        }
        for group in items(&tree, "groups")? {
            if let Some(name) = name(group, "groupname").filter(|name| !all.groups.contains_key(*name)) {
                all.read_group(name, group);
            }
        }
        let anonymous = text(&tree, "anonymousGroup").ok().flatten();
        all.anonymous_group = anonymous.filter(|group| all.groups.contains_key(*group)).map(Into::into);
        Ok(all)
    }

    fn read_client(&self, name: &str, from: &Value) -> Result<Client, DynamicError> {
        let password =
            password(from).map_err(|problem| DynamicError::Password { user: name.to_owned(), problem })?;
        let mut client = Client {
            texts: read_texts(from),
            client_id: optional_text(from, "clientid"),
            is_disabled: flag(from, "disabled").unwrap_or(false),
            password: password.map(Arc::new),
            ..Client::default()
        };
        for (role, priority) in self.known_roles(from) {
            insert(&mut client.roles, role, priority);
        }
        Ok(client)
    }

    fn read_group(&mut self, name: &str, from: &Value) {
        let mut group = Group { texts: read_texts(from), ..Group::default() };
        for (role, priority) in self.known_roles(from) {
            insert(&mut group.roles, role, priority);
        }
        self.groups.insert(name.into(), Arc::new(group));
        for member in list(from, "clients").unwrap_or_default() {
            if let Some(user) = self::name(member, "username").filter(|user| self.knows(user)) {
                self.join(user, name, number(member, "priority", NO_PRIORITY));
            }
        }
    }

    /// The roles in a list, without those that are not there.
    fn known_roles<'a>(&self, from: &'a Value) -> impl Iterator<Item = (&'a str, i32)> {
        let roles = list(from, "roles").unwrap_or_default().iter();
        let named =
            roles.filter_map(|role| Some((name(role, "rolename")?, number(role, "priority", NO_PRIORITY))));
        named.filter(|(name, _)| self.roles.contains_key(*name))
    }
}

/// The items of a list that may be missing, and may be nothing but a list.
fn items<'a>(tree: &'a Value, name: &'static str) -> Result<&'a [Value], DynamicError> {
    match field(tree, name) {
        None => Ok(&[]),
        Some(value) => value.as_array().map(Vec::as_slice).ok_or(DynamicError::List(name)),
    }
}

/// A name that is not empty.
fn name<'a>(object: &'a Value, of: &str) -> Option<&'a str> {
    text(object, of).ok().flatten().filter(|name| !name.is_empty())
}

fn optional_text(object: &Value, name: &str) -> Option<Box<str>> {
    text(object, name).ok().flatten().map(Into::into)
}

fn read_texts(object: &Value) -> Texts {
    Texts { name: optional_text(object, "textname"), description: optional_text(object, "textdescription") }
}

fn read_role(from: &Value) -> Role {
    let mut role = Role::new(read_texts(from));
    role.refuses_wildcards = flag(from, "allowwildcardsubs") == Some(false);
    role.set_all(read_acls(list(from, "acls").unwrap_or_default()));
    role.compile();
    role
}

/// The entries in a list, without those of unknown kinds and those without a topic.
pub(super) fn read_acls(acls: &[Value]) -> impl Iterator<Item = (AclKind, Acl)> {
    acls.iter().filter_map(|acl| {
        let kind = AclKind::of_name(text(acl, "acltype").ok()??)?;
        let topic = text(acl, "topic").ok()??.into();
        let is_allowed = flag(acl, "allow").unwrap_or(false);
        Some((kind, Acl { topic, priority: number(acl, "priority", 0), is_allowed }))
    })
}

/// The password of Mosquitto 2.0 in three fields, or that of 2.1 in one.
fn password(client: &Value) -> Result<Option<PasswordHash>, HashError> {
    let of = |name| text(client, name).ok().flatten();
    if let Some(encoded) = of("encoded_password") {
        return PasswordHash::parse(encoded).map(Some);
    }
    let rounds = field(client, "iterations").and_then(Value::as_f64);
    let (Some(hash), Some(salt), Some(rounds)) = (of("password"), of("salt"), rounds) else {
        return Ok(None);
    };
    if hash.contains('$') || salt.contains('$') {
        return Err(HashError::Base64);
    }
    PasswordHash::parse(&format!("$7${}${salt}${hash}", rounds.trunc())).map(Some)
}

impl fmt::Display for DynamicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(problem) => write!(f, "this is not JSON: {problem}"),
            Self::List(name) => write!(f, "`{name}` is not a list"),
            Self::Password { user, problem } => write!(f, "the password of {user:?}: {problem}"),
        }
    }
}

impl std::error::Error for DynamicError {}
