//! Dynamic security: clients, groups and roles that an administrator changes while the broker runs.
//!
//! The file has the format of Mosquitto's plugin `mosquitto_dynamic_security`, and the commands are those that `mosquitto_ctrl
//! dynsec` sends to [`TOPIC`]. A decision goes through the roles of the client by priority, then through the roles of its
//! groups. In each role, the entries of the kind that is asked for decide by priority.

mod clients;
mod control;
mod decision;
mod groups;
mod json;
mod read;
mod role;
mod roles;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use control::{ANSWER_BYTES_MAX, COMMANDS_MAX, Controlled, NewPassword};
pub use read::DynamicError;
pub use role::AclKind;

use crate::PasswordHash;
use role::Role;

/// The topic to which an administrator publishes commands.
pub const TOPIC: &str = "$CONTROL/dynamic-security/v1";
/// The topic to which the broker publishes answers.
pub const RESPONSE_TOPIC: &str = "$CONTROL/dynamic-security/v1/response";

/// Clients, groups and roles at one time.
///
/// A clone shares the entries that neither of the two changes later.
#[derive(Debug, Clone, Default)]
pub struct DynamicSecurity {
    defaults: Defaults,
    anonymous_group: Option<Box<str>>,
    clients: BTreeMap<Box<str>, Arc<Client>>,
    groups: BTreeMap<Box<str>, Arc<Group>>,
    roles: BTreeMap<Box<str>, Arc<Role>>,
}

/// The answers to questions about which no entry says anything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Defaults {
    send: bool,
    receive: bool,
    subscribe: bool,
    unsubscribe: bool,
}

/// The texts that people read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Texts {
    name: Option<Box<str>>,
    description: Option<Box<str>>,
}

/// A name in a list, with its priority there.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Ranked {
    name: Box<str>,
    priority: i32,
}

/// The priority of a name in a list that has none. The file does not mention it.
const NO_PRIORITY: i32 = -1;

#[derive(Debug, Clone, Default)]
struct Client {
    texts: Texts,
    /// The only client identifier that the client may have.
    client_id: Option<Box<str>>,
    is_disabled: bool,
    /// Without a password, nobody logs in under this name.
    password: Option<Arc<PasswordHash>>,
    /// In the order of their priorities.
    roles: Vec<Ranked>,
    /// In the order of their priorities.
    groups: Vec<Ranked>,
}

#[derive(Debug, Clone, Default)]
struct Group {
    texts: Texts,
    /// In the order of their priorities.
    roles: Vec<Ranked>,
    /// In the order of their names.
    clients: Vec<Ranked>,
}

impl DynamicSecurity {
    /// Number of clients, disabled ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.clients.len()
    }

    /// Whether there are no clients.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// The names of all clients, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.clients.keys().map(|name| &**name)
    }

    /// Whether there is a client of this name, disabled or not.
    #[must_use]
    pub fn knows(&self, user: &str) -> bool {
        self.clients.contains_key(user)
    }

    /// Whether the client of this name may not connect, whatever it proves.
    #[must_use]
    pub fn is_disabled(&self, user: &str) -> bool {
        self.clients.get(user).is_some_and(|client| client.is_disabled)
    }

    /// The hash of the password under which a user logs in with this client identifier; `None` if nobody may.
    #[must_use]
    pub fn password(&self, user: &str, client_id: &str) -> Option<&Arc<PasswordHash>> {
        self.hash(user).filter(|_| self.permits_client_id(user, client_id))
    }

    /// The same under whatever client identifier.
    pub(crate) fn hash(&self, user: &str) -> Option<&Arc<PasswordHash>> {
        self.clients.get(user).filter(|client| !client.is_disabled)?.password.as_ref()
    }

    /// Whether a user may have a client identifier: one that is bound to another has only that.
    pub(crate) fn permits_client_id(&self, user: &str, client_id: &str) -> bool {
        let bound = self.clients.get(user).and_then(|client| client.client_id.as_deref());
        bound.is_none_or(|bound| bound == client_id)
    }

    /// The hashes of all passwords.
    pub(crate) fn hashes(&self) -> impl Iterator<Item = &PasswordHash> {
        self.clients.values().filter_map(|client| client.password.as_deref())
    }

    /// Makes decisions follow the entries of roles that have changed.
    fn compile(&mut self) {
        for role in self.roles.values_mut().filter(|role| role.is_stale()) {
            Arc::make_mut(role).compile();
        }
    }

    fn client_mut(&mut self, user: &str) -> Option<&mut Client> {
        self.clients.get_mut(user).map(Arc::make_mut)
    }

    fn group_mut(&mut self, name: &str) -> Option<&mut Group> {
        self.groups.get_mut(name).map(Arc::make_mut)
    }

    fn role_mut(&mut self, name: &str) -> Option<&mut Role> {
        self.roles.get_mut(name).map(Arc::make_mut)
    }

    /// Makes a client a member of a group. Returns whether both are there, and the client was no member.
    fn join(&mut self, user: &str, group: &str, priority: i32) -> bool {
        let Some(members) = self.group_mut(group) else { return false };
        if members.clients.iter().any(|known| *known.name == *user) {
            return false;
        }
        let place = members.clients.partition_point(|known| *known.name < *user);
        members.clients.insert(place, Ranked { name: user.into(), priority });
        self.client_mut(user).is_some_and(|client| insert(&mut client.groups, group, priority))
    }

    /// Makes a client a member of groups that are there.
    fn join_all(&mut self, user: &str, groups: &[Ranked]) {
        for group in groups {
            self.join(user, &group.name, group.priority);
        }
    }

    /// Ends the membership of a client in a group.
    fn leave(&mut self, user: &str, group: &str) {
        if let Some(group) = self.group_mut(group) {
            remove(&mut group.clients, user);
        }
        if let Some(client) = self.client_mut(user) {
            remove(&mut client.groups, group);
        }
    }

    /// Ends all memberships of a client.
    fn leave_all(&mut self, user: &str) {
        let groups = self.clients.get(user).map_or_else(Vec::new, |client| client.groups.clone());
        groups.iter().for_each(|group| self.leave(user, &group.name));
    }
}

/// Adds a name to a list that is in the order of priorities, and then of names. Returns whether it was not there.
fn insert(list: &mut Vec<Ranked>, name: &str, priority: i32) -> bool {
    if list.iter().any(|known| *known.name == *name) {
        return false;
    }
    let is_before =
        |known: &Ranked| known.priority > priority || known.priority == priority && *known.name < *name;
    let place = list.partition_point(is_before);
    list.insert(place, Ranked { name: name.into(), priority });
    true
}

/// Takes a name out of a list. Returns whether it was there.
fn remove(list: &mut Vec<Ranked>, name: &str) -> bool {
    let before = list.len();
    list.retain(|known| *known.name != *name);
    list.len() < before
}
