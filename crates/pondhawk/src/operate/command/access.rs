//! Subcommands about users and rules.

use clap::Subcommand;
use serde_json::json;

use super::{Request, Work, delete, get, list, put};
use crate::operate::PIECE;
use crate::operate::client::encode;
use crate::operate::table;

/// Subcommands about users and rules.
#[derive(Debug, Subcommand)]
pub(in crate::operate) enum AccessCommand {
    /// List users, and change those of dynamic security
    #[command(subcommand)]
    Users(UsersCommand),
    /// List the roles of dynamic security, with their rules
    Roles {
        /// The most roles to list
        #[arg(long, default_value_t = PIECE)]
        limit: usize,
    },
    /// List the groups of users of dynamic security, with their members
    UserGroups {
        /// The most groups to list
        #[arg(long, default_value_t = PIECE)]
        limit: usize,
    },
    /// List the sources of users and rules of all listeners
    Sources,
    /// Print a file of rules
    Rules {
        /// The file, as `sources` lists it
        file: String,
    },
}

/// Subcommands about users of MQTT clients.
#[derive(Debug, Subcommand)]
pub(in crate::operate) enum UsersCommand {
    /// List the users of password files and of dynamic security
    List {
        /// Only users whose name has this text in it
        #[arg(value_name = "TEXT", default_value = "")]
        text: String,
        /// The most users to list
        #[arg(long, default_value_t = PIECE)]
        limit: usize,
    },
    /// Show a user in all sources that have it
    Show {
        /// Name of the user
        user: String,
    },
    /// Make a user of dynamic security; asks for the password, or reads it from standard input
    Add {
        /// Name of the user
        user: String,
        /// A role of the user; may be given several times
        #[arg(long, value_name = "ROLE")]
        role: Vec<String>,
        /// A group of the user; may be given several times
        #[arg(long, value_name = "GROUP")]
        group: Vec<String>,
        /// The only client identifier that the user may have
        #[arg(long, value_name = "ID")]
        client_id: Option<String>,
        /// Make a user without a password, under whose name nobody logs in
        #[arg(long)]
        no_password: bool,
    },
    /// Delete a user of dynamic security, and disconnect its clients
    Delete {
        /// Name of the user
        user: String,
    },
    /// Give a user of dynamic security another password, and disconnect its clients
    Password {
        /// Name of the user
        user: String,
    },
    /// Let a user of dynamic security log in again
    Enable {
        /// Name of the user
        user: String,
    },
    /// Keep a user of dynamic security out, and disconnect its clients
    Disable {
        /// Name of the user
        user: String,
    },
    /// Give a user of dynamic security a role
    Grant {
        /// Name of the user
        user: String,
        /// Name of the role
        role: String,
        /// The priority of the role: a higher one decides first
        #[arg(long, value_name = "N", default_value_t = -1, allow_negative_numbers = true)]
        priority: i32,
    },
    /// Take a role from a user of dynamic security
    Revoke {
        /// Name of the user
        user: String,
        /// Name of the role
        role: String,
    },
    /// Make a user of dynamic security a member of a group
    Join {
        /// Name of the user
        user: String,
        /// Name of the group
        group: String,
        /// The priority of the group: a higher one decides first
        #[arg(long, value_name = "N", default_value_t = -1, allow_negative_numbers = true)]
        priority: i32,
    },
    /// End the membership of a user in a group of dynamic security
    Leave {
        /// Name of the user
        user: String,
        /// Name of the group
        group: String,
    },
}

impl AccessCommand {
    pub(super) fn work(&self) -> Work<'_> {
        match self {
            Self::Users(command) => command.work(),
            Self::Roles { limit } => list("/api/v1/access/roles?".to_owned(), "roles", table::ROLES, *limit),
            Self::UserGroups { limit } => {
                list("/api/v1/access/groups?".to_owned(), "groups", table::USER_GROUPS, *limit)
            }
            Self::Sources => {
                list("/api/v1/access/sources?".to_owned(), "sources", table::SOURCES, usize::MAX)
            }
            Self::Rules { file } => {
                Work::Text(format!("/api/v1/access/rules?place={}", encode(file)), "text")
            }
        }
    }
}

const USERS: &str = "/api/v1/access/users";

impl UsersCommand {
    fn work(&self) -> Work<'_> {
        let at = |user: &str| format!("{USERS}/{}", encode(user));
        let part = |user: &str, kind: &str, name: &str| format!("{}/{kind}/{}", at(user), encode(name));
        let add = |path: String, priority: &i32| {
            let path = format!("{path}?priority={priority}");
            Work::One(Request { method: "PUT", path, body: None })
        };
        match self {
            Self::List { text, limit } => {
                list(format!("{USERS}?match={}", encode(text)), "users", table::USERS, *limit)
            }
            Self::Show { user } => get(&at(user)),
            Self::Add { user, role, group, client_id, no_password } => {
                let body = json!({ "name": user, "roles": role, "groups": group, "client_id": client_id });
                let request = Request { method: "POST", path: USERS.to_owned(), body: Some(body) };
                if *no_password { Work::One(request) } else { Work::WithPassword(request) }
            }
            Self::Delete { user } => delete(at(user)),
            Self::Password { user } => Work::WithPassword(Request {
                method: "PUT",
                path: format!("{}/password", at(user)),
                body: Some(json!({})),
            }),
            Self::Enable { user } => put(&format!("{}/enabled", at(user)), json!({ "enabled": true })),
            Self::Disable { user } => put(&format!("{}/enabled", at(user)), json!({ "enabled": false })),
            Self::Grant { user, role, priority } => add(part(user, "roles", role), priority),
            Self::Revoke { user, role } => delete(part(user, "roles", role)),
            Self::Join { user, group, priority } => add(part(user, "groups", group), priority),
            Self::Leave { user, group } => delete(part(user, "groups", group)),
        }
    }
}
