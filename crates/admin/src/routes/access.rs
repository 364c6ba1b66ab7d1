//! The routes about users and rules of MQTT clients.

use super::{Action, CURSOR, LIMIT, Parameter, Route, change, get, optional, required};
use crate::tokens::Role;

const PRIORITY: Parameter = optional(
    "priority",
    "integer",
    "The priority in the list of the user. A higher one decides first. Default: -1",
);

/// The routes, in the order of the manual.
pub(super) const ACCESS: &[Route] = &[
    get(
        "/api/v1/access/sources",
        Action::AccessSources,
        &[],
        "The sources of users and rules of all listeners",
    ),
    get(
        "/api/v1/access/users",
        Action::AccessUsers,
        &[LIMIT, CURSOR, optional("match", "string", "Only users whose name has this text in it")],
        "Users of password files and of dynamic security, with their roles",
    ),
    get("/api/v1/access/users/{user}", Action::AccessUser, &[], "A user in all sources that have it"),
    get(
        "/api/v1/access/roles",
        Action::AccessRoles,
        &[LIMIT, CURSOR],
        "Roles of dynamic security with their rules",
    ),
    get(
        "/api/v1/access/groups",
        Action::AccessGroups,
        &[LIMIT, CURSOR],
        "Groups of dynamic security with their members",
    ),
    get(
        "/api/v1/access/rules",
        Action::AccessRules,
        &[required("place", "string", "The `place` of a source of the kind `acl_file` or `rules_file`")],
        "The text of a file with rules",
    ),
    change(
        ("POST", "/api/v1/access/users"),
        Role::Admin,
        Action::NewUser,
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
        Action::DeleteUser,
        (&[], &[]),
        "Delete a user of dynamic security. Its clients are disconnected",
    ),
    change(
        ("PUT", "/api/v1/access/users/{user}/password"),
        Role::Admin,
        Action::SetPassword,
        (&[], &[required("password", "string", "The new password")]),
        "Give a user of dynamic security another password. Its clients are disconnected",
    ),
    change(
        ("PUT", "/api/v1/access/users/{user}/enabled"),
        Role::Admin,
        Action::EnableUser,
        (
            &[],
            &[required("enabled", "boolean", "Whether the user may log in. `false` disconnects its clients")],
        ),
        "Enable or disable a user of dynamic security",
    ),
    change(
        ("PUT", "/api/v1/access/users/{user}/roles/{role}"),
        Role::Admin,
        Action::GrantRole,
        (&[PRIORITY], &[]),
        "Give a user of dynamic security a role",
    ),
    change(
        ("DELETE", "/api/v1/access/users/{user}/roles/{role}"),
        Role::Admin,
        Action::RevokeRole,
        (&[], &[]),
        "Take a role from a user of dynamic security",
    ),
    change(
        ("PUT", "/api/v1/access/users/{user}/groups/{group}"),
        Role::Admin,
        Action::JoinGroup,
        (&[PRIORITY], &[]),
        "Make a user of dynamic security a member of a group",
    ),
    change(
        ("DELETE", "/api/v1/access/users/{user}/groups/{group}"),
        Role::Admin,
        Action::LeaveGroup,
        (&[], &[]),
        "End the membership of a user in a group of dynamic security",
    ),
    change(
        ("POST", "/api/v1/access/commands"),
        Role::Admin,
        Action::Commands,
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
