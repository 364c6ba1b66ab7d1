//! Random commands, entries, topics and filters.

use pondhawk_tests::Random;
use serde_json::{Map, Value, json};

const USERS: [&str; 3] = ["ann", "bob", "c/d"];
const ROLES: [&str; 4] = ["one", "two", "three", "four"];
const GROUPS: [&str; 3] = ["frogs", "toads", "newts"];
const LEVELS: [&str; 5] = ["a", "b", "", "x", "é"];
const KINDS: [&str; 6] = [
    "publishClientSend",
    "publishClientReceive",
    "subscribeLiteral",
    "subscribePattern",
    "unsubscribeLiteral",
    "unsubscribePattern",
];

pub(super) fn topic(random: &mut Random) -> String {
    let levels: Vec<&str> = (0..=random.below(3)).map(|_| random.of_list(&LEVELS)).collect();
    let topic = levels.join("/");
    if topic.is_empty() { "a".to_owned() } else { topic }
}

pub(super) fn filter(random: &mut Random) -> String {
    let mut levels = Vec::new();
    for _ in 0..=random.below(3) {
        levels.push(match random.below(6) {
            0 => "+",
            1 if random.one_in(2) => {
                levels.push("#");
                break;
            }
            _ => random.of_list(&LEVELS),
        });
    }
    match levels.join("/").as_str() {
        // Mosquitto 2.0 takes `/#` for an entry that covers `#`.
        "" | "/#" => "+".to_owned(),
        filter => filter.to_owned(),
    }
}

fn entry(random: &mut Random) -> Value {
    let kind = random.of_list(&KINDS);
    let topic = filter(random);
    json!({ "acltype": kind, "topic": topic, "priority": random.below(4), "allow": random.one_in(2) })
}

/// Entries of a role. Mosquitto 2.0 keeps a second one with the same kind and topic, which never decides.
fn entries(random: &mut Random, count: usize) -> Value {
    let mut entries: Vec<Value> = Vec::new();
    for entry in (0..count).map(|_| entry(random)).collect::<Vec<_>>() {
        let is_same =
            |known: &Value| known["acltype"] == entry["acltype"] && known["topic"] == entry["topic"];
        if !entries.iter().any(is_same) {
            entries.push(entry);
        }
    }
    entries.into()
}

fn ranked(random: &mut Random, of: &str, names: &[&str]) -> Value {
    let count = random.below(names.len().min(3));
    let mut names = names.to_vec();
    let mut one = |random: &mut Random| {
        // Mosquitto 2.0 says that a name which comes twice is an internal error.
        let name = names.swap_remove(random.below(names.len()));
        let mut item = Map::from_iter([(of.to_owned(), Value::from(name))]);
        if random.one_in(2) {
            item.insert("priority".to_owned(), random.below(3).into());
        }
        Value::Object(item)
    };
    (0..count).map(|_| one(random)).collect()
}

/// All commands of Mosquitto 2.0.
const COMMANDS: &str = "setDefaultACLAccess getDefaultACLAccess createClient deleteClient getClient listClients modifyClient \
    setClientPassword setClientId addClientRole removeClientRole enableClient disableClient addGroupClient createGroup \
    deleteGroup getGroup listGroups modifyGroup removeGroupClient addGroupRole removeGroupRole setAnonymousGroup \
    getAnonymousGroup createRole getRole listRoles modifyRole deleteRole addRoleACL removeRoleACL";
/// Commands that make something, which are drawn more often.
const MAKING: &str = "createClient createGroup createRole addRoleACL addClientRole addGroupRole";

/// One command with the fields that it needs, now and then without one of them, or with another one.
pub(super) fn command(random: &mut Random) -> Value {
    let names: Vec<&str> = if random.one_in(4) { MAKING } else { COMMANDS }.split_whitespace().collect();
    let name = random.of_list(&names);
    let mut fields = json!({
        "command": name,
        "username": random.of_list(&USERS),
        "groupname": random.of_list(&GROUPS),
        "rolename": random.of_list(&ROLES),
    });
    let entry = entry(random);
    for (field, value) in entry.as_object().expect("an object") {
        fields[field] = value.clone();
    }
    add_lists(&mut fields, name, random);
    add_texts(&mut fields, name, random);
    if random.one_in(15) {
        let field = random.of_list(&[
            "username",
            "groupname",
            "rolename",
            "password",
            "topic",
            "acltype",
            "textname",
        ]);
        fields[field] = match random.below(4) {
            0 => json!(7),
            1 => json!("nobody"),
            2 => json!("a\u{1}"),
            _ => json!(["a"]),
        };
    }
    match name {
        "setAnonymousGroup" => fields["groupname"] = GROUPS[0].into(),
        // Mosquitto 2.0 dies when the anonymous group is deleted.
        "deleteGroup" => fields["groupname"] = random.of_list(&GROUPS[1..]).into(),
        // It also dies of a role that was deleted, and had come to its group or client in a list.
        "deleteRole" => fields["rolename"] = ROLES[3].into(),
        _ => {}
    }
    fields
}

fn add_lists(fields: &mut Value, name: &str, random: &mut Random) {
    if name == "setDefaultACLAccess" {
        const KINDS: &str = "publishClientSend publishClientReceive SUBSCRIBE unsubscribe nothing";
        let kinds: Vec<&str> = KINDS.split_whitespace().collect();
        fields["acls"] = json!([{ "acltype": random.of_list(&kinds), "allow": random.one_in(2) }]);
    } else if name.ends_with("Role") && random.one_in(2) {
        let count = random.below(6);
        fields["acls"] = entries(random, count);
    }
    // Mosquitto 2.0 forgets that roles know their group, and dies when the group is deleted and the role changes.
    if random.one_in(2) && name != "modifyGroup" {
        fields["roles"] = ranked(random, "rolename", &ROLES[..3]);
    }
    if name == "createClient" && random.one_in(3) {
        // Of several groups, Mosquitto 2.0 must know all: the first one keeps a client that was not made.
        fields["groups"] = json!([{ "groupname": random.of_list(&GROUPS), "priority": random.below(3) }]);
    }
}

fn add_texts(fields: &mut Value, name: &str, random: &mut Random) {
    // Mosquitto 2.0 changes texts, and then refuses a role that is not there.
    let has_texts = !(name.starts_with("modify") && fields.get("roles").is_some());
    if has_texts && (name == "createClient" || name == "setClientPassword" || random.one_in(8)) {
        fields["password"] = "pass".into();
    }
    for (field, value, is_text) in [
        ("correlationData", json!("again"), false),
        ("textname", json!("a text"), true),
        ("textdescription", json!("a longer \"text\" with é"), true),
        ("clientid", json!("one"), true),
        ("verbose", json!(true), false),
        ("count", json!(random.below(3)), false),
        ("offset", json!(random.below(3)), false),
    ] {
        if random.one_in(6) && (has_texts || !is_text) {
            fields[field] = value;
        }
    }
}

/// Commands that come last, so that there are users with rights whatever the earlier ones were.
pub(super) fn finish(random: &mut Random) -> Value {
    let mut commands: Vec<Value> = Vec::new();
    let mut add = |command: Value| commands.push(command);
    for role in ROLES {
        add(json!({ "command": "createRole", "rolename": role }));
        let acls = entries(random, 12);
        add(json!({ "command": "modifyRole", "rolename": role, "acls": acls }));
    }
    for group in GROUPS {
        add(
            json!({ "command": "createGroup", "groupname": group, "roles": ranked(random, "rolename", &ROLES) }),
        );
    }
    let open = json!([
        { "acltype": "subscribeLiteral", "topic": "#", "allow": true },
        { "acltype": "unsubscribeLiteral", "topic": "#", "allow": true },
    ]);
    add(json!({ "command": "createRole", "rolename": "hears", "acls": open }));
    let hears = json!([{ "rolename": "hears", "priority": 100 }]);
    for user in USERS {
        add(json!({ "command": "createClient", "username": user, "password": "pass" }));
        add(
            json!({ "command": "modifyClient", "username": user, "roles": hears, "clientid": "", "password": "pass" }),
        );
        add(json!({ "command": "enableClient", "username": user }));
        for _ in 0..random.below(3) {
            let role = random.of_list(&ROLES);
            add(
                json!({ "command": "addClientRole", "username": user, "rolename": role, "priority": random.below(3) }),
            );
        }
        for _ in 0..random.below(3) {
            let group = random.of_list(&GROUPS);
            add(
                json!({ "command": "addGroupClient", "username": user, "groupname": group, "priority": random.below(3) }),
            );
        }
    }
    add(json!({ "command": "addGroupRole", "groupname": GROUPS[0], "rolename": "hears", "priority": 100 }));
    if random.one_in(2) {
        add(json!({ "command": "setAnonymousGroup", "groupname": GROUPS[0] }));
    }
    let send = json!([{ "acltype": "publishClientSend", "topic": "#", "allow": true }]);
    add(json!({ "command": "createRole", "rolename": "sends", "acls": send }));
    add(
        json!({ "command": "createClient", "username": "all", "password": "pass", "roles": [{ "rolename": "sends" }] }),
    );
    for question in ["listClients", "listGroups", "listRoles"] {
        add(json!({ "command": question, "verbose": true }));
    }
    Value::from(commands)
}
