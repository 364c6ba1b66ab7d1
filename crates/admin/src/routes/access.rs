//! The routes about users and rules of MQTT clients.

use super::{Action, CURSOR, LIMIT, Parameter, Route, change, get, optional, required};
use crate::tokens::Role;

/// The code behind a route about users and rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessAction {
    AccessSources,
    AccessUsers,
    AccessUser,
    AccessRoles,
    AccessGroups,
    AccessRules,
    NewUser,
    DeleteUser,
    SetPassword,
    EnableUser,
    GrantRole,
    RevokeRole,
    JoinGroup,
    LeaveGroup,
    Commands,
}

const PRIORITY: Parameter = optional(
    "priority",
    "integer",
    "The priority in the list of the user. A higher one decides first. Default: -1",
);

/// The routes, in the order of the manual.
pub(super) const ACCESS: &[Route] = &[
    get(
        "/api/v1/access/sources",
        Action::Access(AccessAction::AccessSources),
        &[],
        "The sources of users and rules of all listeners",
    ),
    get(
        "/api/v1/access/users",
        Action::Access(AccessAction::AccessUsers),
        &[LIMIT, CURSOR, optional("match", "string", "Only users whose name has this text in it")],
        "Users of password files and of dynamic security, with their roles",
    ),
    get(
        "/api/v1/access/users/{user}",
        Action::Access(AccessAction::AccessUser),
        &[],
        "A user in all sources that have it",
    ),
    get(
        "/api/v1/access/roles",
        Action::Access(AccessAction::AccessRoles),
        &[LIMIT, CURSOR],
        "Roles of dynamic security with their rules",
    ),
    get(
        "/api/v1/access/groups",
        Action::Access(AccessAction::AccessGroups),
        &[LIMIT, CURSOR],
        "Groups of dynamic security with their members",
    ),
    get(
        "/api/v1/access/rules",
        Action::Access(AccessAction::AccessRules),
        &[required("place", "string", "The `place` of a source of the kind `acl_file` or `rules_file`")],
        "The text of a file with rules",
    ),
    change(
        ("POST", "/api/v1/access/users"),
        Role::Admin,
        Action::Access(AccessAction::NewUser),
        (
            &[],
            &[
                required("name", "string", "The name of the user"),
                optional("password", "string", "The password. Without one, nobody logs in under this name"),
                optional("client_id", "string", "The only client identifier that the user may have"),
                optional("text", "string", "A text for people"),
                optional("roles", "array", "Names of its roles"),
                optional("groups", "array", "Names of its groups"),
            ],
        ),
        "Make a user of dynamic security",
    ),
    change(
        ("DELETE", "/api/v1/access/users/{user}"),
        Role::Admin,
        Action::Access(AccessAction::DeleteUser),
        (&[], &[]),
        "Delete a user of dynamic security. Its clients are disconnected",
    ),
    change(
        ("PUT", "/api/v1/access/users/{user}/password"),
        Role::Admin,
        Action::Access(AccessAction::SetPassword),
        (&[], &[required("password", "string", "The new password")]),
        "Give a user of dynamic security another password. Its clients are disconnected",
    ),
    change(
        ("PUT", "/api/v1/access/users/{user}/enabled"),
        Role::Admin,
        Action::Access(AccessAction::EnableUser),
        (
            &[],
            &[required("enabled", "boolean", "Whether the user may log in. `false` disconnects its clients")],
        ),
        "Enable or disable a user of dynamic security",
    ),
    change(
        ("PUT", "/api/v1/access/users/{user}/roles/{role}"),
        Role::Admin,
        Action::Access(AccessAction::GrantRole),
        (&[PRIORITY], &[]),
        "Give a user of dynamic security a role",
    ),
    change(
        ("DELETE", "/api/v1/access/users/{user}/roles/{role}"),
        Role::Admin,
        Action::Access(AccessAction::RevokeRole),
        (&[], &[]),
        "Take a role from a user of dynamic security",
    ),
    change(
        ("PUT", "/api/v1/access/users/{user}/groups/{group}"),
        Role::Admin,
        Action::Access(AccessAction::JoinGroup),
        (&[PRIORITY], &[]),
        "Make a user of dynamic security a member of a group",
    ),
    change(
        ("DELETE", "/api/v1/access/users/{user}/groups/{group}"),
        Role::Admin,
        Action::Access(AccessAction::LeaveGroup),
        (&[], &[]),
        "End the membership of a user in a group of dynamic security",
    ),
    change(
        ("POST", "/api/v1/access/commands"),
        Role::Admin,
        Action::Access(AccessAction::Commands),
        (
            &[],
            &[required(
                "commands",
                "array",
                "Commands as of mosquitto_ctrl dynsec: objects with `command` and its fields",
            )],
        ),
        "Carry out commands of dynamic security, as a message to $CONTROL/dynamic-security/v1 does",
    ),
];
