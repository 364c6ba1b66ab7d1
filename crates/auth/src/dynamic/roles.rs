//! Commands that make, change and show roles.

use std::sync::Arc;

use serde_json::{Value, json};

use super::clients::{change_texts, new_texts};
use super::control::{Answered, INTERNAL, Outcome, Refusal, is_plain, part, required};
use super::json::{field, flag, list, number, text};
use super::read::read_acls;
use super::role::{Acl, Role};
use super::write::role_as_json;
use super::{AclKind, DynamicSecurity, Group, remove};
use crate::tree::is_filter;

const NAME: (Refusal, Refusal) = ("Invalid/missing rolename", "Role name not valid UTF-8");
const NOT_FOUND: Refusal = "Role not found";

impl DynamicSecurity {
    pub(super) fn create_role(&mut self, command: &Value) -> Answered {
        let name = required(command, "rolename", NAME)?;
        if name.is_empty() {
            return Err("Empty rolename");
        }
        let mut role = Role::new(new_texts(command)?);
        if self.roles.contains_key(name) {
            return Err("Role already exists");
        }
        change_entries(&mut role, command)?;
        self.roles.insert(name.into(), Arc::new(role));
        Ok(Outcome::Done)
    }

    pub(super) fn delete_role(&mut self, command: &Value) -> Answered {
        let name = required(command, "rolename", NAME)?;
        self.roles.remove(name).ok_or(NOT_FOUND)?;
        for client in
            self.clients.values_mut().filter(|client| client.roles.iter().any(|role| *role.name == *name))
        {
            remove(&mut Arc::make_mut(client).roles, name);
        }
        let has_role = |group: &&mut Arc<Group>| group.roles.iter().any(|role| *role.name == *name);
        for group in self.groups.values_mut().filter(has_role) {
            remove(&mut Arc::make_mut(group).roles, name);
        }
        Ok(Outcome::Done)
    }

    pub(super) fn tell_role(&self, command: &Value) -> Answered {
        let name = required(command, "rolename", NAME)?;
        let role = self.roles.get(name).ok_or(NOT_FOUND)?;
        Ok(Outcome::Data(json!({ "role": role_as_json(name, role) })))
    }

    pub(super) fn list_roles(&self, command: &Value) -> Answered {
        let (is_verbose, roles) = part(self.roles.iter().map(|(name, role)| (&**name, role)), command);
        let one = |(name, role): (&str, &Arc<Role>)| match is_verbose {
            true => role_as_json(name, role),
            false => Value::from(name),
        };
        let roles: Value = roles.map(one).collect();
        Ok(Outcome::Data(json!({ "totalCount": self.roles.len(), "roles": roles })))
    }

    pub(super) fn modify_role(&mut self, command: &Value) -> Answered {
        let name = required(command, "rolename", NAME)?;
        let role = self.role_mut(name).ok_or("Role does not exist")?;
        change_entries(role, command)?;
        change_texts(&mut role.texts, command);
        Ok(Outcome::Done)
    }

    pub(super) fn add_role_acl(&mut self, command: &Value) -> Answered {
        let (name, kind) = self.role_and_kind(command)?;
        let topic = topic(command)?;
        let role = self.role_mut(name).ok_or(NOT_FOUND)?;
        if role.has(kind, topic) {
            return Err("ACL with this topic already exists");
        }
        let is_allowed = flag(command, "allow").unwrap_or(false);
        role.add(kind, Acl { topic: topic.into(), priority: number(command, "priority", 0), is_allowed });
        Ok(Outcome::Done)
    }

    pub(super) fn remove_role_acl(&mut self, command: &Value) -> Answered {
        let (name, kind) = self.role_and_kind(command)?;
        let topic = topic(command)?;
        let role = self.role_mut(name).ok_or(NOT_FOUND)?;
        if role.remove(kind, topic) { Ok(Outcome::Done) } else { Err("ACL not found") }
    }

    fn role_and_kind<'a>(&self, command: &'a Value) -> Result<(&'a str, AclKind), Refusal> {
        let name = required(command, "rolename", NAME)?;
        if !self.roles.contains_key(name) {
            return Err(NOT_FOUND);
        }
        let kind = text(command, "acltype").ok().flatten().ok_or("Invalid/missing acltype")?;
        Ok((name, AclKind::of_name(kind).ok_or("Unknown acltype")?))
    }
}

/// The topic or filter of an entry.
fn topic(command: &Value) -> Result<&str, Refusal> {
    let topic = text(command, "topic").ok().flatten().ok_or("Invalid/missing topic")?;
    if !is_plain(topic) {
        return Err("Topic not valid UTF-8");
    }
    if is_filter(topic) { Ok(topic) } else { Err("Invalid ACL topic") }
}

/// Replaces the entries of a role, if the command has some.
fn change_entries(role: &mut Role, command: &Value) -> Result<(), Refusal> {
    if let Some(acls) = list(command, "acls") {
        role.set_all(read_acls(acls));
    } else if field(command, "acls").is_some() {
        return Err(INTERNAL);
    }
    if let Some(may) = flag(command, "allowwildcardsubs") {
        role.refuses_wildcards = !may;
    }
    Ok(())
}
