//! Commands that make, change and show groups.

use std::sync::Arc;

use serde_json::{Value, json};

use super::clients::{change_texts, new_texts};
use super::control::{Answered, INTERNAL, Outcome, Refusal, part, required};
use super::json::{list, number, text};
use super::write::group_as_json;
use super::{DynamicSecurity, Group, NO_PRIORITY, Ranked, insert, remove};

const NAME: (Refusal, Refusal) = ("Invalid/missing groupname", "Group name not valid UTF-8");
const ROLE: (Refusal, Refusal) = ("Invalid/missing rolename", "Role name not valid UTF-8");
const CLIENT: (Refusal, Refusal) = ("Invalid/missing username", "Username not valid UTF-8");
const NOT_FOUND: Refusal = "Group not found";

impl DynamicSecurity {
    pub(super) fn create_group(&mut self, command: &Value) -> Answered {
        let name = required(command, "groupname", NAME)?;
        if name.is_empty() {
            return Err("Empty groupname");
        }
        let texts = new_texts(command)?;
        if self.groups.contains_key(name) {
            return Err("Group already exists");
        }
        let roles = self.roles_of(command).map_err(|reason| match reason {
            "Role not found" => reason,
            _ => INTERNAL,
        })?;
        let group = Group { texts, roles: roles.unwrap_or_default(), clients: Vec::new() };
        self.groups.insert(name.into(), Arc::new(group));
        Ok(Outcome::Done)
    }

    pub(super) fn delete_group(&mut self, command: &Value) -> Answered {
        let name = required(command, "groupname", NAME)?;
        let group = self.groups.get(name).ok_or(NOT_FOUND)?;
        if self.anonymous_group.as_deref() == Some(name) {
            return Err("Deleting the anonymous group is forbidden");
        }
        let members = group.clients.clone();
        members.iter().for_each(|member| self.leave(&member.name, name));
        self.groups.remove(name);
        Ok(Outcome::Done)
    }

    pub(super) fn tell_group(&self, command: &Value) -> Answered {
        let name = required(command, "groupname", NAME)?;
        let group = self.groups.get(name).ok_or(NOT_FOUND)?;
        Ok(Outcome::Data(json!({ "group": group_as_json(name, group) })))
    }

    pub(super) fn list_groups(&self, command: &Value) -> Answered {
        let (is_verbose, groups) = part(self.groups.iter().map(|(name, group)| (&**name, group)), command);
        let one = |(name, group): (&str, &Arc<Group>)| match is_verbose {
            true => group_as_json(name, group),
            false => Value::from(name),
        };
        let groups: Value = groups.map(one).collect();
        Ok(Outcome::Data(json!({ "totalCount": self.groups.len(), "groups": groups })))
    }

    pub(super) fn modify_group(&mut self, command: &Value) -> Answered {
        let name = required(command, "groupname", NAME)?;
        let mut group = Group::clone(self.groups.get(name).ok_or(NOT_FOUND)?);
        change_texts(&mut group.texts, command);
        if let Some(roles) = self.roles_of(command)? {
            group.roles = roles;
        }
        let members = self.members_of(command)?;
        let before = group.clients.clone();
        self.groups.insert(name.into(), Arc::new(group));
        if let Some(members) = members {
            before.iter().for_each(|member| self.leave(&member.name, name));
            for member in &members {
                self.join(&member.name, name, member.priority);
            }
        }
        Ok(Outcome::Done)
    }

    /// The clients that a command names.
    fn members_of(&self, command: &Value) -> Result<Option<Vec<Ranked>>, Refusal> {
        let Some(items) = list(command, "clients") else { return Ok(None) };
        let mut members = Vec::new();
        for item in items.iter().filter(|item| item.is_object()) {
            let user = text(item, "username").ok().flatten();
            let user = user.ok_or("'clients' contains an object with an invalid 'username'")?;
            if !self.knows(user) {
                return Err("'clients' contains an object with a 'username' that does not exist");
            }
            insert(&mut members, user, number(item, "priority", NO_PRIORITY));
        }
        Ok(Some(members))
    }

    pub(super) fn add_group_client(&mut self, command: &Value) -> Answered {
        let (user, group) = self.client_and_group(command)?;
        let is_new = self.join(user, group, number(command, "priority", NO_PRIORITY));
        if is_new { Ok(Outcome::Done) } else { Err("Client is already in this group") }
    }

    pub(super) fn remove_group_client(&mut self, command: &Value) -> Answered {
        let (user, group) = self.client_and_group(command)?;
        self.leave(user, group);
        Ok(Outcome::Done)
    }

    fn client_and_group<'a>(&self, command: &'a Value) -> Result<(&'a str, &'a str), Refusal> {
        let user = required(command, "username", CLIENT)?;
        let group = required(command, "groupname", NAME)?;
        if !self.knows(user) {
            return Err("Client not found");
        }
        if self.groups.contains_key(group) { Ok((user, group)) } else { Err(NOT_FOUND) }
    }

    pub(super) fn add_group_role(&mut self, command: &Value) -> Answered {
        let (group, role) = self.group_and_role(command)?;
        let group = self.group_mut(group).ok_or(NOT_FOUND)?;
        let is_new = insert(&mut group.roles, role, number(command, "priority", NO_PRIORITY));
        if is_new { Ok(Outcome::Done) } else { Err("Group is already in this role") }
    }

    pub(super) fn remove_group_role(&mut self, command: &Value) -> Answered {
        let (group, role) = self.group_and_role(command)?;
        remove(&mut self.group_mut(group).ok_or(NOT_FOUND)?.roles, role);
        Ok(Outcome::Done)
    }

    fn group_and_role<'a>(&self, command: &'a Value) -> Result<(&'a str, &'a str), Refusal> {
        let group = required(command, "groupname", NAME)?;
        let role = required(command, "rolename", ROLE)?;
        if !self.groups.contains_key(group) {
            return Err(NOT_FOUND);
        }
        if self.roles.contains_key(role) { Ok((group, role)) } else { Err("Role not found") }
    }

    pub(super) fn set_anonymous_group(&mut self, command: &Value) -> Answered {
        let name = required(command, "groupname", NAME)?;
        if !self.groups.contains_key(name) {
            return Err(NOT_FOUND);
        }
        self.anonymous_group = Some(name.into());
        Ok(Outcome::Done)
    }

    pub(super) fn tell_anonymous_group(&self) -> Answered {
        let name = self.anonymous_group.as_deref().unwrap_or_default();
        Ok(Outcome::Data(json!({ "group": { "groupname": name } })))
    }
}
