//! Mosquitto's programs for the command line, in all versions.

use std::process::Command;

use pondhawk_tests::{Broker, Program, Version};

use crate::brokers;

/// How messages are printed: as nothing else that the programs say with `--debug`.
const FORMAT: &str = "> %t %p %r";

/// A broker with one shard and with four, and every version.
fn each() -> impl Iterator<Item = (Broker, Version)> {
    Version::ALL.into_iter().flat_map(|version| brokers().map(move |broker| (broker, version)))
}

fn command(program: &str, broker: &Broker, version: Version) -> Command {
    // Line by line: what they print is to be seen when it is printed.
    let mut command = Command::new("stdbuf");
    command.args(["--output=L", program, "-h", "127.0.0.1", "-p", &broker.address().port().to_string()]);
    command.args([
        "-V",
        match version {
            Version::V3_1 => "mqttv31",
            Version::V3_1_1 => "mqttv311",
            Version::V5 => "mqttv5",
        },
    ]);
    command
}

/// `mosquitto_sub`, with its subscriptions made.
fn subscribe(broker: &Broker, version: Version, client_id: &str, arguments: &[&str]) -> Program {
    let mut command = command("mosquitto_sub", broker, version);
    command.args(["--debug", "-F", FORMAT, "-i", client_id]).args(arguments);
    let program = Program::start(command);
    program.wait_for("Subscribed (mid: 1)");
    program
}

/// `mosquitto_pub`, to its end.
pub(crate) fn publish(broker: &Broker, version: Version, arguments: &[&str]) {
    let mut command = command("mosquitto_pub", broker, version);
    command.args(arguments);
    Program::start(command).finish();
}

/// `mosquitto_sub` at the meeting of clients, until it has heard the opening and `names` names.
pub(crate) fn guest(broker: &Broker, version: Version, name: &str, names: usize) -> Program {
    subscribe(broker, version, name, &["-t", "meeting/#", "-C", &(names + 1).to_string()])
}

/// What was printed of messages.
fn messages(output: &str) -> Vec<&str> {
    output.lines().filter_map(|line| line.strip_prefix("> ")).collect()
}

#[test]
fn wildcards_choose_what_is_printed() {
    for (broker, version) in each() {
        let frog = subscribe(&broker, version, "frog", &["-t", "pond/+/depth", "-t", "sky/#", "-C", "3"]);
        for topic in ["pond/depth", "pond/north/depth", "skyline", "sky", "pond/a/b/depth", "sky/sun/height"]
        {
            publish(&broker, version, &["-t", topic, "-m", "7"]);
        }
        assert_eq!(messages(&frog.finish()), ["pond/north/depth 7 0", "sky 7 0", "sky/sun/height 7 0"]);
        assert!(broker.stop().success());
    }
}

#[test]
fn a_retained_message_waits_until_it_is_cleared() {
    for (broker, version) in each() {
        let watcher = subscribe(&broker, version, "watcher", &["-t", "leaf/#"]);
        publish(&broker, version, &["-t", "leaf/a", "-m", "green", "-r"]);
        publish(&broker, version, &["-t", "leaf/b", "-m", "brown", "-r"]);
        watcher.wait_for("> leaf/a green 0");
        watcher.wait_for("> leaf/b brown 0");
        let frog = subscribe(&broker, version, "frog", &["-t", "leaf/a", "-C", "1"]);
        assert_eq!(messages(&frog.finish()), ["leaf/a green 1"]);
        publish(&broker, version, &["-t", "leaf/a", "-n", "-r"]);
        watcher.wait_for("> leaf/a  0");
        let late = subscribe(&broker, version, "late", &["-t", "leaf/#", "-C", "1"]);
        assert_eq!(messages(&late.finish()), ["leaf/b brown 1"]);
        watcher.kill();
        assert!(broker.stop().success());
    }
}

#[test]
fn the_will_of_a_killed_program_is_published() {
    for (broker, version) in each() {
        let frog = subscribe(&broker, version, "frog", &["-t", "will/#", "-C", "1"]);
        let will = ["--will-topic", "will/toad", "--will-payload", "gone", "-t", "air"];
        let polite = subscribe(&broker, version, "polite", &[&will[..], &["-C", "1"]].concat());
        publish(&broker, version, &["-t", "air", "-m", "leave"]);
        polite.finish();
        subscribe(&broker, version, "toad", &will).kill();
        assert_eq!(messages(&frog.finish()), ["will/toad gone 0"]);
        assert!(broker.stop().success());
    }
}

#[test]
fn an_unsubscribed_filter_brings_nothing_more() {
    for (broker, version) in each() {
        let filters = ["-t", "news/#", "-t", "end", "-U", "news/#", "-C", "1"];
        let frog = subscribe(&broker, version, "frog", &filters);
        frog.wait_for("received UNSUBACK");
        publish(&broker, version, &["-t", "news/1", "-m", "unheard"]);
        publish(&broker, version, &["-t", "end", "-m", "heard"]);
        assert_eq!(messages(&frog.finish()), ["end heard 0"]);
        assert!(broker.stop().success());
    }
}

#[test]
fn a_program_with_the_same_client_identifier_takes_over() {
    for (broker, version) in each() {
        let first = subscribe(&broker, version, "twin", &["-t", "a"]);
        let second = subscribe(&broker, version, "twin", &["-t", "a"]);
        let line = broker.wait_for_log("disconnected client_id=twin");
        assert!(line.contains("reason=0x8E (Session taken over)"), "{line}");
        first.kill();
        second.kill();
        assert!(broker.stop().success());
    }
}

#[test]
fn properties_are_printed_as_they_were_sent() {
    for broker in brokers() {
        let format = ["-t", "request", "-F", "> %P %R %D %C %E", "-C", "1"];
        let frog = subscribe(&broker, Version::V5, "frog", &format);
        let property = |name: &'static str, value: &'static str| ["-D", "publish", name, value];
        let properties = [
            &["-D", "publish", "user-property", "colour", "green"][..],
            &["-D", "publish", "user-property", "colour", "brown"],
            &property("response-topic", "answer"),
            &property("correlation-data", "7"),
            &property("content-type", "text"),
            &property("message-expiry-interval", "3600"),
        ];
        let message = [&["-t", "request", "-m", "how deep?"][..], &properties.concat()].concat();
        publish(&broker, Version::V5, &message);
        assert_eq!(messages(&frog.finish()), ["colour:green colour:brown answer 7 text 3600"]);
        assert!(broker.stop().success());
    }
}

#[test]
fn a_request_is_answered() {
    for broker in brokers() {
        let mut frog = broker.client(Version::V3_1_1, "frog");
        frog.subscribe("ask");
        let mut command = command("mosquitto_rr", &broker, Version::V5);
        command.args(["-t", "ask", "-e", "answer", "-m", "how deep?"]);
        let asker = Program::start(command);
        frog.expect_message("ask", b"how deep?");
        frog.publish("answer", b"two metres");
        assert_eq!(asker.finish(), "two metres");
        assert!(broker.stop().success());
    }
}
