//! Dynamic security under attack, and while it changes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use pondhawk_tests::packet::{self, Connect, Will};
use pondhawk_tests::{Broker, RawClient, Version, until};
use serde_json::{Value, json};

use super::{RESPONSE, Secured, TOPIC, admin, control, control_bytes, create, subscribe, succeed, user};
use crate::publish;

const ANYBODY: &str = "[[listener]]\naddress = \"127.0.0.1:0\"\nallow_anonymous = true\n";

/// The reason code of CONNACK.
fn code(broker: &Broker, connect: &Connect<'_>) -> u8 {
    let mut client = broker.connect();
    client.send(&connect.bytes());
    client.read_packet()[3]
}

#[test]
fn a_client_that_is_deleted_or_disabled_or_gets_another_password_or_identifier_is_disconnected() {
    let secured = Secured::new();
    let broker = secured.broker("");
    let mut admin = admin(&broker);
    let names = ["gone", "off", "new", "bound", "stays"];
    names.iter().for_each(|name| create(&mut admin, name, "a/#"));
    let [mut gone, mut off, mut new, mut bound, mut stays] = names.map(|name| user(&broker, name, name));
    succeed(
        &mut admin,
        &json!([
            { "command": "deleteClient", "username": "gone" },
            { "command": "disableClient", "username": "off" },
            { "command": "setClientPassword", "username": "new", "password": "other" },
            { "command": "setClientId", "username": "bound", "clientid": "another" },
        ]),
    );
    for client in [&mut gone, &mut off, &mut new, &mut bound] {
        client.expect_disconnect(0x87);
    }
    assert_eq!(publish(&mut stays, "a/x", b""), 0x10);
    let connect = Connect::new(Version::V5, "off");
    for (name, password, answer) in [
        ("gone", "gone", 0x86),
        ("off", "off", 0x86),
        ("new", "new", 0x86),
        ("new", "other", 0),
        ("bound", "bound", 0),
    ] {
        let client_id = if name == "bound" { "another" } else { name };
        let connect = Connect::new(Version::V5, client_id);
        assert_eq!(code(&broker, &connect.of(name, password)), answer, "{name} {password}");
    }
    assert_eq!(
        code(&broker, &Connect::new(Version::V5, "bound").of("bound", "bound")),
        0x86,
        "another identifier"
    );
    assert_eq!(code(&broker, &Connect { user: Some("stays"), ..connect }), 0x86, "no password");
    succeed(&mut admin, &json!([{ "command": "enableClient", "username": "off" }]));
    assert_eq!(code(&broker, &connect.of("off", "off")), 0);
}

#[test]
fn changed_roles_hold_for_the_next_message_of_clients_that_are_connected() {
    let secured = Secured::new();
    let broker = secured.broker("");
    let mut admin = admin(&broker);
    create(&mut admin, "ann", "a/#");
    create(&mut admin, "bob", "a/#");
    let (mut ann, mut bob) = (user(&broker, "ann", "ann"), user(&broker, "bob", "bob"));
    assert_eq!([subscribe(&mut bob, "a/+"), subscribe(&mut bob, "b")], [0, 0x87]);
    assert_eq!(publish(&mut ann, "a/x", b"1"), 0);
    bob.expect_message("a/x", b"1");
    let deny = |kind: &str, role: &str, topic: &str| json!([{ "command": "addRoleACL", "rolename": role, "acltype": kind, "topic": topic, "priority": 9 }]);
    succeed(&mut admin, &deny("publishClientReceive", "bob", "a/x"));
    assert_eq!(publish(&mut ann, "a/x", b"2"), 0x10, "nobody may receive it");
    assert_eq!(publish(&mut ann, "a/y", b"3"), 0);
    bob.expect_message("a/y", b"3");
    succeed(&mut admin, &deny("publishClientSend", "ann", "a/y"));
    assert_eq!(publish(&mut ann, "a/y", b"4"), 0x87);
    succeed(&mut admin, &deny("unsubscribePattern", "bob", "a/+"));
    bob.send(&packet::packet(0xA2, &[&[0, 9, 0][..], &packet::string("a/+")].concat()));
    bob.expect(&[0xB0, 4, 0, 9, 0, 0x87]);
    assert_eq!(publish(&mut ann, "a/z", b"5"), 0);
    bob.expect_message("a/z", b"5");
}

#[test]
fn the_file_is_private_and_knows_everything_after_a_restart() {
    let secured = Secured::new();
    fs::set_permissions(secured.file(), fs::Permissions::from_mode(0o644)).expect("it is there");
    let broker = secured.broker("");
    let mut hears = admin(&broker);
    create(&mut hears, "ann", "a/#");
    let questions = json!([
        { "command": "listClients", "verbose": true },
        { "command": "listGroups", "verbose": true },
        { "command": "listRoles", "verbose": true },
        { "command": "getDefaultACLAccess" },
    ]);
    let before = control(&mut hears, &questions);
    let mode = fs::metadata(secured.file()).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let files = fs::read_dir(secured.file().parent().expect("a directory")).expect("it can be read").count();
    assert_eq!(files, 1, "nothing else is left");
    drop(broker);
    let broker = secured.broker("");
    assert_eq!(control(&mut admin(&broker), &questions), before);
    assert_eq!(publish(&mut user(&broker, "ann", "ann"), "a", b""), 0x10);
}

#[test]
fn a_command_whose_result_cannot_be_stored_is_refused_and_changes_nothing() {
    let secured = Secured::new();
    let broker = secured.broker("");
    let mut admin = admin(&broker);
    create(&mut admin, "ann", "a/#");
    let directory = secured.file().parent().expect("a directory").to_owned();
    fs::remove_dir_all(&directory).expect("it can be removed");
    let answers = control(
        &mut admin,
        &json!([
            { "command": "deleteClient", "username": "ann", "correlationData": "x" },
            { "command": "createRole", "rolename": "r" },
        ]),
    );
    for (answer, command) in answers.iter().zip(["deleteClient", "createRole"]) {
        assert_eq!(answer["command"], command);
        assert!(
            answer["error"].as_str().is_some_and(|why| why.contains("dynamic-security.json")),
            "{answer}"
        );
    }
    assert_eq!(answers[0]["correlationData"], "x");
    let answers = control(&mut admin, &json!([{ "command": "listRoles" }, { "command": "listClients" }]));
    assert_eq!(answers[0]["data"]["roles"], json!(["admin", "ann"]));
    assert_eq!(publish(&mut user(&broker, "ann", "ann"), "a", b""), 0x10);
    fs::create_dir(&directory).expect("it can be made");
    succeed(&mut admin, &json!([{ "command": "deleteClient", "username": "ann" }]));
}

/// A listener without users of its own is open, and no way to the users of others.
#[test]
fn commands_and_answers_stay_on_listeners_with_dynamic_security() {
    let secured = Secured::new();
    let broker = secured.broker(
        "[[listener]]\naddress = \"127.0.0.1:0\"\n[[listener]]\naddress = \"127.0.0.1:0\"\n\
         dynamic_security_file = \"off\"\nallow_anonymous = true\nprotocol = \"mqtt\"\n",
    );
    let open = broker.address_of("tcp, no websocket");
    let mut stranger = pondhawk_tests::Client::connect(open, &Connect::new(Version::V5, "stranger"));
    stranger.subscribe(RESPONSE);
    stranger.subscribe("mark");
    assert_eq!(publish(&mut stranger, TOPIC, br#"{"commands":[{"command":"listClients"}]}"#), 0x87);
    assert_eq!(publish(&mut stranger, RESPONSE, b"{}"), 0x87);
    control(&mut admin(&broker), &json!([{ "command": "listClients" }]));
    stranger.send(&packet::publish(Version::V5, "mark", b"mark"));
    stranger.expect_message("mark", b"mark");
}

#[test]
fn only_those_who_may_publish_to_the_topic_give_commands() {
    let secured = Secured::new();
    let broker = secured.broker(ANYBODY);
    let mut admin = admin(&broker);
    create(&mut admin, "ann", "#");
    succeed(
        &mut admin,
        &json!([{ "command": "setDefaultACLAccess", "acls": [
            { "acltype": "publishClientSend", "allow": true }, { "acltype": "subscribe", "allow": true },
        ] }]),
    );
    let command = json!({ "commands": [{ "command": "createClient", "username": "thief" }] }).to_string();
    let mut ann = user(&broker, "ann", "ann");
    let mut nobody = broker.client(Version::V5, "nobody");
    for client in [&mut ann, &mut nobody] {
        assert_eq!(publish(client, TOPIC, command.as_bytes()), 0x87, "the default never covers commands");
        assert_eq!(publish(client, "x", b""), 0x10);
    }
    assert_eq!(subscribe(&mut nobody, RESPONSE), 0x87);
    // A will is no command either.
    let will = Some(Will::new(TOPIC, command.as_bytes()));
    let connect = Connect { will, ..Connect::new(Version::V5, "dies") };
    broker.client_with(&connect.of("admin", "admin")).into_raw().reset();
    // Other topics of this kind have no receivers.
    create(&mut admin, "bob", "$CONTROL/#");
    assert_eq!(publish(&mut user(&broker, "bob", "bob"), "$CONTROL/other/v1", b""), 0x10);
    let answers = control(&mut admin, &json!([{ "command": "listClients" }]));
    assert_eq!(answers[0]["data"]["clients"], json!(["admin", "ann", "bob"]));
}

/// The text of a name never means more than the name.
#[test]
fn names_with_wildcards_cover_no_filters() {
    let secured = Secured::new();
    let broker = secured.broker("");
    let mut admin = admin(&broker);
    create(&mut admin, "+", "dev/%c/#");
    create(&mut admin, "ann", "%u/%c");
    for (client_id, filter, answer) in [
        ("+", "dev/+/#", 0x87),
        ("#", "dev/#", 0x87),
        ("x", "dev/x/#", 0),
        ("x", "dev/x/+", 0),
        ("x", "dev/%c/a", 0x87),
    ] {
        assert_eq!(subscribe(&mut user(&broker, client_id, "+"), filter), answer, "{client_id} {filter}");
    }
    let mut ann = user(&broker, "a/b", "ann");
    assert_eq!(publish(&mut ann, "ann/a/b", b""), 0x87, "an identifier is one level");
    assert_eq!(publish(&mut user(&broker, "b", "ann"), "ann/b", b""), 0x10);
}

#[test]
fn a_group_that_shares_a_subscription_is_no_way_around_a_rule() {
    let secured = Secured::new();
    let broker = secured.broker("");
    let mut admin = admin(&broker);
    create(&mut admin, "ann", "#");
    let mut ann = user(&broker, "ann", "ann");
    assert_eq!(subscribe(&mut ann, "$share/g/secret/x"), 0);
    succeed(
        &mut admin,
        &json!([{ "command": "addRoleACL", "rolename": "ann", "acltype": "subscribePattern", "topic": "secret/#",
                  "priority": 5, "allow": false }]),
    );
    for filter in ["secret/x", "$share/g/secret/x", "$share/other/secret/+"] {
        assert_eq!(subscribe(&mut ann, filter), 0x87, "{filter}");
    }
    assert_eq!(subscribe(&mut ann, "$share/g/open"), 0);
}

/// Each command waits for the one before, so that the flood of one client fills no memory and keeps nobody else waiting.
#[test]
fn a_flood_of_commands_is_answered_one_by_one() {
    let secured = Secured::new();
    let broker = secured.broker("");
    let mut hears = admin(&broker);
    create(&mut hears, "ann", "a/#");
    let mut flood: RawClient = user(&broker, "flood", "admin").into_raw();
    let one = |number: usize| {
        let command = json!({ "commands": [{ "command": "createRole", "rolename": number.to_string() }] });
        packet::publish(Version::V5, TOPIC, command.to_string().as_bytes())
    };
    const COUNT: usize = 500;
    flood.send(&(0..COUNT).flat_map(one).collect::<Vec<u8>>());
    let mut ann = user(&broker, "ann", "ann");
    assert_eq!(publish(&mut ann, "a", b""), 0x10);
    for _ in 0..COUNT {
        let packet = hears.read_packet();
        let answer: Value =
            serde_json::from_slice(super::payload(&packet, RESPONSE).expect("an answer")).expect("JSON");
        assert_eq!(answer, json!({ "responses": [{ "command": "createRole" }] }));
    }
    let answers = control(&mut hears, &json!([{ "command": "listRoles", "count": 1 }]));
    assert_eq!(answers[0]["data"]["totalCount"], COUNT + 2);
}

#[test]
fn huge_and_deep_and_invalid_texts_are_refused() {
    let secured = Secured::new();
    let broker = secured.broker("");
    let mut admin = admin(&broker);
    let deep = "[".repeat(1 << 20);
    for text in [deep.as_bytes(), b"\xFF", br#"{"commands":[{"command":"getRole","rolename":"\ud800"}]}"#] {
        let answer = control_bytes(&mut admin, text);
        assert_eq!(answer["responses"][0]["error"], "Payload not valid JSON");
    }
    let long = "x".repeat(1 << 17);
    let commands: Vec<Value> = ["", "\u{0}", "a\u{7f}", "\u{fffe}", &long]
        .into_iter()
        .map(|name| json!({ "command": "createClient", "username": name, "password": "p" }))
        .collect();
    for answer in control(&mut admin, &Value::from(commands)) {
        assert!(answer["error"].is_string(), "{answer}");
    }
    for topic in ["", "a#", "a/#/b", "+a"] {
        let command = json!([{ "command": "addRoleACL", "rolename": "admin", "acltype": "subscribePattern", "topic": topic }]);
        assert_eq!(control(&mut admin, &command)[0]["error"], "Invalid ACL topic", "{topic:?}");
    }
}

/// Each change of users makes every shard look at its clients. Changes in a row do not keep it from coming to the end.
#[test]
fn commands_are_counted() {
    let secured = Secured::new();
    let broker = secured.broker("");
    let mut admin = admin(&broker);
    control(&mut admin, &json!([{ "command": "dance" }, { "command": "createRole", "rolename": "r" }]));
    for (topic, value) in [("commands", &b"1"[..]), ("refused", b"1"), ("written", b"1")] {
        let topic = format!("$SYS/broker/dynamic_security/{topic}");
        admin.subscribe(&topic);
        until("it is counted", || admin.read_packet().ends_with(value).then_some(()));
        admin.unsubscribe(&topic);
    }
}
