//! Generated commands and questions, asked of Pondhawk and of Mosquitto: the answers are the same.
//!
//! In CI some thousand questions; with `PONDHAWK_ABUSE_LONG` more than 50,000.

use std::net::SocketAddr;

use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{Broker, Client, Mosquitto, Options, Random, Version, is_long};
use serde_json::Value;

use super::generated::{command, filter, finish, topic};
use super::{RESPONSE, Secured, admin, control, control_bytes, ctrl};

const SEED: u64 = 1_818;

fn client(address: SocketAddr, client_id: &str, user: Option<&str>) -> Client {
    let connect = Connect::new(Version::V5, client_id);
    Client::connect(address, &user.map_or(connect, |user| connect.of(user, "pass")))
}

/// Answers to all questions about the rights of one client.
fn rights(
    client: &mut Client,
    all: &mut Client,
    topics: &[String],
    filters: &[String],
) -> Vec<(String, bool)> {
    let mut answers = Vec::new();
    for filter in filters {
        client.send(&packet::subscribe_with(Version::V5, 3, filter, 0));
        let answer = client.read_packet();
        answers.push((format!("subscribe {filter:?}"), answer[answer.len() - 1] < 0x80));
        client.send(&packet::packet(0xA2, &[&[0, 4, 0][..], &packet::string(filter)].concat()));
        let answer = client.read_packet();
        answers.push((format!("unsubscribe {filter:?}"), answer[answer.len() - 1] < 0x80));
    }
    let send = |client: &mut Client, topic: &str| {
        let body = [&packet::string(topic)[..], &[0, 5, 0, b'x']].concat();
        client.send(&packet::packet(0x32, &body));
        loop {
            let packet = client.read_packet();
            if packet[0] == 0x40 {
                return packet.get(4) != Some(&0x87);
            }
        }
    };
    for topic in topics {
        answers.push((format!("publish {topic:?}"), send(client, topic)));
    }
    // Copies of its own messages come before the answer.
    client.send(&packet::subscribe_with(Version::V5, 6, "#", 0));
    while client.read_packet()[0] != 0x90 {}
    for topic in topics {
        send(all, topic);
        client.send(&[0xC0, 0]);
        // A subscription that could not be ended may bring a message again.
        let mut is_received = false;
        while client.read_packet()[0] != 0xD0 {
            is_received = true;
        }
        answers.push((format!("receive {topic:?}"), is_received));
    }
    answers
}

#[test]
fn commands_and_rights_are_as_in_mosquitto() {
    let files = if is_long() { 280 } else { 3 };
    let (mut commands, mut questions) = (0, 0);
    for number in 0..files {
        let mut random = Random::of(SEED, number);
        let (ours, theirs) = (Secured::new(), Secured::new());
        // One shard: a message has come to its receiver before its publisher hears of it.
        let anybody = "[[listener]]\naddress = \"127.0.0.1:0\"\nallow_anonymous = true\n";
        let settings = format!("{}{anybody}", ours.keys());
        let broker = Broker::start(&Options { settings, ..Options::default() });
        let plugin = "/usr/lib/x86_64-linux-gnu/mosquitto_dynamic_security.so";
        let settings = format!(
            "max_queued_messages 1000\nplugin {plugin}\nplugin_opt_config_file {}\n",
            theirs.file().display()
        );
        let mosquitto = Mosquitto::start(&settings);
        let addresses = [broker.address(), mosquitto.address()];
        let mut admins = addresses.map(|address| {
            let connect = Connect::new(Version::V5, "the-admin").of("admin", "admin");
            let mut admin = Client::connect(address, &connect);
            admin.subscribe(RESPONSE);
            admin
        });
        for _ in 0..40 {
            let some: Value = (0..=random.below(3)).map(|_| command(&mut random)).collect();
            let [ours, theirs] = admins.each_mut().map(|admin| control(admin, &some));
            for (place, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
                commands += 1;
                assert_eq!(ours, theirs, "seed {number}: {}", some[place]);
            }
            assert_eq!(ours.len(), theirs.len(), "seed {number}: {some}");
        }
        let last = finish(&mut random);
        let [ours_last, theirs_last] = admins.each_mut().map(|admin| control(admin, &last));
        for (place, (ours, theirs)) in ours_last.iter().zip(&theirs_last).enumerate() {
            assert_eq!(ours, theirs, "seed {number}: {}", last[place]);
        }
        let topics: Vec<String> = (0..12).map(|_| topic(&mut random)).collect();
        let filters: Vec<String> = (0..12).map(|_| filter(&mut random)).collect();
        for user in [None, Some("ann"), Some("bob"), Some("c/d")] {
            let [ours, theirs] = addresses.map(|address| {
                let mut all = client(address, "all", Some("all"));
                let mut client = client(address, "asks", user);
                rights(&mut client, &mut all, &topics, &filters)
            });
            questions += ours.len();
            let differences: Vec<_> =
                ours.iter().zip(&theirs).filter(|(ours, theirs)| ours != theirs).collect();
            let subscribed: Vec<_> =
                ours.iter().filter(|(question, _)| question.contains("subscribe")).collect();
            assert!(
                differences.is_empty(),
                "seed {number}, {user:?}: {differences:?} {subscribed:?} {ours_last:?}"
            );
        }
    }
    println!("{commands} commands, {questions} questions");
    assert!(questions > if is_long() { 50_000 } else { 500 } && commands > 200, "{questions}");
}

/// Payloads that are no commands.
#[test]
fn nonsense_gets_the_same_answers_as_from_mosquitto() {
    let (ours, theirs) = (Secured::new(), Secured::new());
    let broker = ours.broker("");
    let plugin = "/usr/lib/x86_64-linux-gnu/mosquitto_dynamic_security.so";
    let mosquitto =
        Mosquitto::start(&format!("plugin {plugin}\nplugin_opt_config_file {}\n", theirs.file().display()));
    let connect = Connect::new(Version::V5, "the-admin").of("admin", "admin");
    let mut other = Client::connect(mosquitto.address(), &connect);
    other.subscribe(RESPONSE);
    let mut admin = admin(&broker);
    for text in [
        "",
        "{",
        "7",
        "[]",
        "{}",
        r#"{"commands":7}"#,
        r#"{"commands":[]}"#,
        r#"{"commands":[7]}"#,
        r#"{"commands":[{}]}"#,
        r#"{"commands":[{"command":7}]}"#,
        r#"{"commands":[{"command":"dance"}]}"#,
        r#"{"commands":[{"command":"getRole","correlationData":7},{"command":"listRoles"}]}"#,
        r#"{"COMMANDS":[{"Command":"LISTclients","correlationData":"x"}]}"#,
    ] {
        let [ours, theirs] = [&mut admin, &mut other].map(|admin| control_bytes(admin, text.as_bytes()));
        assert_eq!(ours, theirs, "{text}");
    }
}

/// Each command of the installed program, and what it prints.
#[test]
fn mosquitto_ctrl_prints_the_same() {
    let (ours, theirs) = (Secured::new(), Secured::new());
    let broker = ours.broker("");
    let plugin = "/usr/lib/x86_64-linux-gnu/mosquitto_dynamic_security.so";
    let mosquitto =
        Mosquitto::start(&format!("plugin {plugin}\nplugin_opt_config_file {}\n", theirs.file().display()));
    let rows = "\
        createRole r|addRoleACL r publishClientSend a/# allow 5|addRoleACL r subscribePattern a/+ deny|getRole r|\
        addRoleACL r dance a allow|removeRoleACL r publishClientSend a/#|removeRoleACL r publishClientSend a/#|\
        createClient ann -p secret -c one|createClient ann -p secret|addClientRole ann r 7|addClientRole ann r|\
        setClientId ann two|setClientId ann|setClientPassword ann other|getClient ann|getClient bob|\
        createGroup g|addGroupRole g r 3|addGroupRole g r|addGroupClient g ann 2|addGroupClient g ann|getGroup g|\
        getClient ann|setAnonymousGroup g|getAnonymousGroup|listClients|listClients 1 1|listGroups|listRoles 1|\
        setDefaultACLAccess subscribe allow|getDefaultACLAccess|disableClient ann|getClient ann|enableClient ann|\
        removeGroupClient g ann|removeGroupRole g r|removeClientRole ann r|getGroup g|deleteClient ann|\
        deleteClient ann|deleteRole r|deleteRole r|listClients|createGroup h|deleteGroup h|deleteGroup h|listGroups";
    for row in rows.split('|') {
        let arguments: Vec<&str> = row.split_whitespace().collect();
        let [ours, theirs] =
            [broker.address(), mosquitto.address()].map(|address| ctrl(address.port(), &arguments));
        let said = |output: &std::process::Output| {
            let text = [&output.stdout[..], &output.stderr[..]].concat();
            (String::from_utf8(text).expect("text"), output.status.code())
        };
        assert_eq!(said(&ours), said(&theirs), "{row}");
    }
}
