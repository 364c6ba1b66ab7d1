//! Commands that make, change and show clients.

use std::sync::Arc;

use serde_json::{Value, json};

use super::control::{Answered, INTERNAL, NewPassword, Outcome, Refusal, is_plain, optional, part, required};
use super::json::{list, number, text};
use super::write::client_as_json;
use super::{Client, DynamicSecurity, NO_PRIORITY, Ranked, Texts, insert, remove};
use crate::PasswordHash;

const NAME: (Refusal, Refusal) = ("Invalid/missing username", "Username not valid UTF-8");
const ROLE: (Refusal, Refusal) = ("Invalid/missing rolename", "Role name not valid UTF-8");
const NOT_FOUND: Refusal = "Client not found";
const BAD_ID: Refusal = "Client ID not valid UTF-8";

impl DynamicSecurity {
    pub(super) fn create_client(&mut self, command: &Value, hash: &mut NewPassword<'_>) -> Answered {
        let name = required(command, "username", NAME)?;
        if name.is_empty() {
            return Err("Empty username");
        }
        let password = optional(command, "password", "Invalid/missing password")?;
        let client_id = optional(command, "clientid", "Invalid/missing client id")?;
        if client_id.is_some_and(|id| !is_plain(id)) {
            return Err(BAD_ID);
        }
        let texts = new_texts(command)?;
        if self.knows(name) {
            return Err("Client already exists");
        }
        let password = password.filter(|password| !password.is_empty());
        let client = Client {
            texts,
            client_id: client_id.filter(|id| !id.is_empty()).map(Into::into),
            is_disabled: false,
            password: password.map(|password| new_password(password, hash)).transpose()?,
            roles: self.roles_of(command)?.unwrap_or_default(),
            groups: Vec::new(),
        };
        let groups = self.groups_of(command, "Group not found", None)?.unwrap_or_default();
        self.clients.insert(name.into(), Arc::new(client));
        self.join_all(name, &groups);
        Ok(Outcome::Done)
    }

    pub(super) fn delete_client(&mut self, command: &Value) -> Answered {
        let name = text(command, "username").ok().flatten().ok_or(NAME.0)?;
        if !self.knows(name) {
            return Err(NOT_FOUND);
        }
        self.leave_all(name);
        self.clients.remove(name);
        Ok(Outcome::Done)
    }

    pub(super) fn tell_client(&self, command: &Value) -> Answered {
        let name = required(command, "username", NAME)?;
        let client = self.clients.get(name).ok_or(NOT_FOUND)?;
        Ok(Outcome::Data(json!({ "client": client_as_json(name, client) })))
    }

    pub(super) fn list_clients(&self, command: &Value) -> Answered {
        let (is_verbose, clients) =
            part(self.clients.iter().map(|(name, client)| (&**name, client)), command);
        let one = |(name, client): (&str, &Arc<Client>)| match is_verbose {
            true => client_as_json(name, client),
            false => Value::from(name),
        };
        let clients: Value = clients.map(one).collect();
        Ok(Outcome::Data(json!({ "totalCount": self.clients.len(), "clients": clients })))
    }

    pub(super) fn modify_client(&mut self, command: &Value, hash: &mut NewPassword<'_>) -> Answered {
        let name = required(command, "username", NAME)?;
        let before = self.clients.get(name).ok_or(NOT_FOUND)?;
        let mut client = Client::clone(before);
        let given = |name| text(command, name).ok().flatten();
        if let Some(client_id) = given("clientid") {
            if !is_plain(client_id) {
                return Err(BAD_ID);
            }
            client.client_id = Some(client_id).filter(|id| !id.is_empty()).map(Into::into);
        }
        if let Some(password) = given("password").filter(|password| !password.is_empty()) {
            client.password = Some(new_password(password, hash)?);
        }
        change_texts(&mut client.texts, command);
        if let Some(roles) = self.roles_of(command)? {
            client.roles = roles;
        }
        let unknown = "'groups' contains an object with a 'groupname' that does not exist";
        let invalid = "'groups' contains an object with an invalid 'groupname'";
        let groups = self.groups_of(command, unknown, Some(invalid))?;
        self.clients.insert(name.into(), Arc::new(client));
        if let Some(groups) = groups {
            self.leave_all(name);
            self.join_all(name, &groups);
        }
        Ok(Outcome::Done)
    }

    pub(super) fn set_client_password(&mut self, command: &Value, hash: &mut NewPassword<'_>) -> Answered {
        let name = required(command, "username", NAME)?;
        let password = text(command, "password").ok().flatten().ok_or("Invalid/missing password")?;
        if password.is_empty() {
            return Err("Empty password is not allowed");
        }
        let client = self.client_mut(name).ok_or(NOT_FOUND)?;
        client.password = Some(new_password(password, hash)?);
        Ok(Outcome::Done)
    }

    pub(super) fn set_client_id(&mut self, command: &Value) -> Answered {
        let name = required(command, "username", NAME)?;
        let client_id = optional(command, "clientid", "Invalid/missing client ID")?;
        if client_id.is_some_and(|id| !is_plain(id)) {
            return Err(BAD_ID);
        }
        let client = self.client_mut(name).ok_or(NOT_FOUND)?;
        client.client_id = client_id.filter(|id| !id.is_empty()).map(Into::into);
        Ok(Outcome::Done)
    }

    pub(super) fn enable_client(&mut self, command: &Value, is_enabled: bool) -> Answered {
        let name = required(command, "username", NAME)?;
        self.client_mut(name).ok_or(NOT_FOUND)?.is_disabled = !is_enabled;
        Ok(Outcome::Done)
    }

    pub(super) fn add_client_role(&mut self, command: &Value) -> Answered {
        let (name, role) = self.client_and_role(command)?;
        let client = self.client_mut(name).ok_or(NOT_FOUND)?;
        let is_new = insert(&mut client.roles, role, number(command, "priority", NO_PRIORITY));
        if is_new { Ok(Outcome::Done) } else { Err(INTERNAL) }
    }

    pub(super) fn remove_client_role(&mut self, command: &Value) -> Answered {
        let (name, role) = self.client_and_role(command)?;
        remove(&mut self.client_mut(name).ok_or(NOT_FOUND)?.roles, role);
        Ok(Outcome::Done)
    }

    fn client_and_role<'a>(&self, command: &'a Value) -> Result<(&'a str, &'a str), Refusal> {
        let name = required(command, "username", NAME)?;
        let role = required(command, "rolename", ROLE)?;
        if !self.knows(name) {
            return Err(NOT_FOUND);
        }
        if self.roles.contains_key(role) { Ok((name, role)) } else { Err("Role not found") }
    }

    /// The groups that a command names. With `invalid`, a group without a name is refused.
    fn groups_of(
        &self,
        command: &Value,
        unknown: Refusal,
        invalid: Option<Refusal>,
    ) -> Result<Option<Vec<Ranked>>, Refusal> {
        let Some(items) = list(command, "groups") else { return Ok(None) };
        let mut groups = Vec::new();
        for item in items.iter().filter(|item| item.is_object()) {
            match (text(item, "groupname").ok().flatten(), invalid) {
                (Some(name), _) if !self.groups.contains_key(name) => return Err(unknown),
                (Some(name), _) => {
                    insert(&mut groups, name, number(item, "priority", NO_PRIORITY));
                }
                (None, Some(invalid)) => return Err(invalid),
                (None, None) => {}
            }
        }
        Ok(Some(groups))
    }
}

fn new_password(password: &str, hash: &mut NewPassword<'_>) -> Result<Arc<PasswordHash>, Refusal> {
    hash(password.as_bytes()).map(Arc::new).map_err(|_| INTERNAL)
}

/// The texts of something new.
pub(super) fn new_texts(command: &Value) -> Result<Texts, Refusal> {
    let name = optional(command, "textname", "Invalid/missing textname")?;
    let description = optional(command, "textdescription", "Invalid/missing textdescription")?;
    Ok(Texts { name: name.map(Into::into), description: description.map(Into::into) })
}

/// Replaces the texts that a command has.
pub(super) fn change_texts(texts: &mut Texts, command: &Value) {
    for (text_of, field) in [(&mut texts.name, "textname"), (&mut texts.description, "textdescription")] {
        if let Ok(Some(new)) = text(command, field) {
            *text_of = Some(new.into());
        }
    }
}
