//! Writes the file, and the parts of answers that look like it.

use serde_json::{Value, json};

use super::json::object;
use super::role::Role;
use super::{AclKind, Client, DynamicSecurity, Group, NO_PRIORITY, Ranked, Texts};
use crate::{PasswordHash, Scheme};

impl DynamicSecurity {
    /// The text of the file.
    #[must_use]
    pub fn to_json(&self) -> String {
        let clients = self.clients.iter().map(|(name, client)| client_in_file(name, client));
        let groups = self.groups.iter().map(|(name, group)| group_in_file(name, group));
        let roles = self.roles.iter().map(|(name, role)| role_as_json(name, role));
        let tree = object([
            (
                "defaultACLAccess",
                Some(json!({
                    "publishClientSend": self.defaults.send,
                    "publishClientReceive": self.defaults.receive,
                    "subscribe": self.defaults.subscribe,
                    "unsubscribe": self.defaults.unsubscribe,
                })),
            ),
            ("clients", Some(clients.collect())),
            ("groups", Some(groups.collect())),
            ("roles", Some(roles.collect())),
            ("anonymousGroup", self.anonymous_group.as_deref().map(Value::from)),
        ]);
        format!("{tree:#}\n")
    }
}

fn client_in_file(name: &str, client: &Client) -> Value {
    let mut tree = client_as_json(name, client);
    let password = client.password.as_deref().map(password_fields).unwrap_or_default();
    if let Some(fields) = tree.as_object_mut() {
        fields.remove("groups");
        fields.extend(password.into_iter().map(|(name, value)| (name.to_owned(), value)));
    }
    tree
}

fn group_in_file(name: &str, group: &Group) -> Value {
    let mut tree = group_as_json(name, group);
    if let Some(fields) = tree.as_object_mut() {
        fields.insert("clients".to_owned(), ranked(&group.clients, "username"));
    }
    tree
}

/// Mosquitto 2.0 has the fields of PBKDF2 one by one. Other hashes are in one field, as in Mosquitto 2.1.
fn password_fields(hash: &PasswordHash) -> Vec<(&'static str, Value)> {
    let text = hash.to_string();
    let parts: Vec<&str> = text.split('$').collect();
    match (hash.scheme(), &parts[..]) {
        (Scheme::Pbkdf2 { rounds }, [.., salt, hash]) => {
            vec![("password", (*hash).into()), ("salt", (*salt).into()), ("iterations", rounds.into())]
        }
        _ => vec![("encoded_password", text.into())],
    }
}

/// A client, as answers show it: without its password.
pub(super) fn client_as_json(name: &str, client: &Client) -> Value {
    let [text_name, text_description] = texts(&client.texts);
    object([
        ("username", Some(name.into())),
        ("clientid", client.client_id.as_deref().map(Value::from)),
        text_name,
        text_description,
        ("disabled", client.is_disabled.then_some(true.into())),
        ("roles", Some(ranked(&client.roles, "rolename"))),
        ("groups", Some(ranked(&client.groups, "groupname"))),
    ])
}

/// A group, as answers show it: without the priorities of its members.
pub(super) fn group_as_json(name: &str, group: &Group) -> Value {
    let [text_name, text_description] = texts(&group.texts);
    let clients = group.clients.iter().map(|client| json!({ "username": &*client.name }));
    object([
        ("groupname", Some(name.into())),
        text_name,
        text_description,
        ("roles", Some(ranked(&group.roles, "rolename"))),
        ("clients", Some(clients.collect())),
    ])
}

/// A role, as the file and answers show it.
pub(super) fn role_as_json(name: &str, role: &Role) -> Value {
    let [text_name, text_description] = texts(&role.texts);
    let acls = AclKind::ALL.into_iter().flat_map(|kind| role.acls(kind).iter().map(move |acl| (kind, acl)));
    let acls = acls.map(|(kind, acl)| {
        json!({
            "acltype": kind.name(),
            "topic": &*acl.topic,
            "priority": acl.priority,
            "allow": acl.is_allowed,
        })
    });
    object([
        ("rolename", Some(name.into())),
        text_name,
        text_description,
        ("allowwildcardsubs", role.refuses_wildcards.then_some(false.into())),
        ("acls", Some(acls.collect())),
    ])
}

fn texts(texts: &Texts) -> [(&'static str, Option<Value>); 2] {
    let text = |text: &Option<Box<str>>| text.as_deref().map(Value::from);
    [("textname", text(&texts.name)), ("textdescription", text(&texts.description))]
}

fn ranked(list: &[Ranked], of: &str) -> Value {
    let one = |ranked: &Ranked| {
        let priority = (ranked.priority != NO_PRIORITY).then_some(ranked.priority.into());
        object([(of, Some((*ranked.name).into())), ("priority", priority)])
    };
    list.iter().map(one).collect()
}
