//! Mosquitto's programs for the command line, in all versions and at every QoS.

use std::process::Command;
use std::thread;

use pondhawk_tests::{Broker, Options, Program, Version};

use crate::brokers;

/// Format of printed messages, unlike any other line of the programs with `--debug`.
const FORMAT: &str = "> %t %p %q %r";

/// A broker with one shard and with four, and every version and QoS of these, at the same time but for the QoS.
fn each_of(each_qos: &[&'static str], test: impl Fn(&Broker, Version, &'static str) + Sync) {
    thread::scope(|scope| {
        for (version, shards) in Version::ALL.into_iter().flat_map(|version| [(version, 1), (version, 4)]) {
            let test = &test;
            scope.spawn(move || {
                for qos in each_qos {
                    let broker = Broker::start(&Options { shards, ..Options::default() });
                    test(&broker, version, qos);
                    assert!(broker.stop().success());
                }
            });
        }
    });
}

/// The same with every QoS.
fn each(test: impl Fn(&Broker, Version, &'static str) + Sync) {
    each_of(&["0", "1", "2"], test);
}

/// The same with QoS 0 alone, where it makes no difference.
fn each_version(test: impl Fn(&Broker, Version) + Sync) {
    each_of(&["0"], |broker, version, _| test(broker, version));
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

/// Flags for a session that outlives the connections of its program.
fn lasting(version: Version) -> &'static [&'static str] {
    if version.is_5() { &["-c", "-x", "3600"] } else { &["-c"] }
}

/// `mosquitto_pub`, to its end: at QoS 1 and 2 until every message is acknowledged.
pub(crate) fn publish(broker: &Broker, version: Version, arguments: &[&str]) {
    let mut command = command("mosquitto_pub", broker, version);
    command.args(arguments);
    Program::start(command).finish();
}

/// `mosquitto_pub` with the numbers from 1 to 500, a message each, to its end.
fn publish_lines(broker: &Broker, version: Version, arguments: &[&str]) {
    let mut lines = Command::new("sh");
    let mut publish = command("mosquitto_pub", broker, version);
    publish.args(arguments).arg("-l");
    lines.args(["-c", "seq 500 | \"$@\"", "sh"]).arg(publish.get_program()).args(publish.get_args());
    Program::start(lines).finish();
}

/// `mosquitto_sub` at the meeting of clients, until it has heard the opening and `names` names.
pub(crate) fn guest(broker: &Broker, version: Version, name: &str, names: usize) -> Program {
    subscribe(broker, version, name, &["-t", "meeting/#", "-C", &(names + 1).to_string()])
}

/// The printed lines of messages.
fn messages(output: &str) -> Vec<&str> {
    output.lines().filter_map(|line| line.strip_prefix("> ")).collect()
}

#[test]
fn wildcards_choose_what_is_printed() {
    each(|broker, version, qos| {
        let filters = ["-q", qos, "-t", "pond/+/depth", "-t", "sky/#", "-C", "3"];
        let frog = subscribe(broker, version, "frog", &filters);
        for topic in ["pond/depth", "pond/north/depth", "skyline", "sky", "pond/a/b/depth", "sky/sun/height"]
        {
            publish(broker, version, &["-q", qos, "-t", topic, "-m", "7"]);
        }
        let heard = ["pond/north/depth", "sky", "sky/sun/height"].map(|topic| format!("{topic} 7 {qos} 0"));
        assert_eq!(messages(&frog.finish()), heard);
    });
}

#[test]
fn many_lines_are_printed_in_order() {
    each(|broker, version, qos| {
        let frog = subscribe(broker, version, "frog", &["-q", qos, "-t", "line", "-C", "500"]);
        publish_lines(broker, version, &["-q", qos, "-t", "line"]);
        let heard: Vec<String> = (1..=500).map(|number| format!("line {number} {qos} 0")).collect();
        assert_eq!(messages(&frog.finish()), heard);
    });
}

#[test]
fn a_session_waits_for_its_program_to_come_back() {
    each_of(&["1", "2"], |broker, version, qos| {
        let session = [&["-q", qos, "-t", "away/#"], lasting(version)].concat();
        // It ends as soon as it has subscribed.
        subscribe(broker, version, "frog", &[&session[..], &["-E"]].concat()).finish();
        publish_lines(broker, version, &["-q", qos, "-t", "away/from/home"]);
        let frog = subscribe(broker, version, "frog", &[&session[..], &["-C", "500"]].concat());
        let heard: Vec<String> = (1..=500).map(|number| format!("away/from/home {number} {qos} 0")).collect();
        assert_eq!(messages(&frog.finish()), heard);
    });
}

#[test]
fn a_retained_message_waits_until_it_is_cleared() {
    each(|broker, version, qos| {
        let watcher = subscribe(broker, version, "watcher", &["-q", qos, "-t", "leaf/#"]);
        publish(broker, version, &["-q", qos, "-t", "leaf/a", "-m", "green", "-r"]);
        publish(broker, version, &["-q", qos, "-t", "leaf/b", "-m", "brown", "-r"]);
        watcher.wait_for(&format!("> leaf/a green {qos} 0"));
        watcher.wait_for(&format!("> leaf/b brown {qos} 0"));
        let frog = subscribe(broker, version, "frog", &["-q", qos, "-t", "leaf/a", "-C", "1"]);
        assert_eq!(messages(&frog.finish()), [format!("leaf/a green {qos} 1")]);
        publish(broker, version, &["-q", qos, "-t", "leaf/a", "-n", "-r"]);
        watcher.wait_for(&format!("> leaf/a  {qos} 0"));
        let late = subscribe(broker, version, "late", &["-q", qos, "-t", "leaf/#", "-C", "1"]);
        assert_eq!(messages(&late.finish()), [format!("leaf/b brown {qos} 1")]);
        watcher.kill();
    });
}

#[test]
fn the_will_of_a_killed_program_is_published() {
    each(|broker, version, qos| {
        let frog = subscribe(broker, version, "frog", &["-q", qos, "-t", "will/#", "-C", "1"]);
        let topic_and_payload = ["--will-topic", "will/toad", "--will-payload", "gone"];
        let will = [&topic_and_payload[..], &["--will-qos", qos, "--will-retain", "-t", "air"]].concat();
        let polite = subscribe(broker, version, "polite", &[&will[..], &["-C", "1"]].concat());
        publish(broker, version, &["-t", "air", "-m", "leave"]);
        polite.finish();
        subscribe(broker, version, "toad", &will).kill();
        assert_eq!(messages(&frog.finish()), [format!("will/toad gone {qos} 0")]);
        let late = subscribe(broker, version, "late", &["-q", qos, "-t", "will/+", "-C", "1"]);
        assert_eq!(messages(&late.finish()), [format!("will/toad gone {qos} 1")]);
    });
}

#[test]
fn the_only_member_of_a_group_gets_everything() {
    each(|broker, version, qos| {
        let frog = subscribe(broker, version, "frog", &["-q", qos, "-t", "$share/pond/work", "-C", "500"]);
        publish_lines(broker, version, &["-q", qos, "-t", "work"]);
        let heard: Vec<String> = (1..=500).map(|number| format!("work {number} {qos} 0")).collect();
        assert_eq!(messages(&frog.finish()), heard);
    });
}

#[test]
fn an_unsubscribed_filter_brings_nothing_more() {
    each_version(|broker, version| {
        let filters = ["-t", "news/#", "-t", "end", "-U", "news/#", "-C", "1"];
        let frog = subscribe(broker, version, "frog", &filters);
        frog.wait_for("received UNSUBACK");
        publish(broker, version, &["-t", "news/1", "-m", "unheard"]);
        publish(broker, version, &["-t", "end", "-m", "heard"]);
        assert_eq!(messages(&frog.finish()), ["end heard 0 0"]);
    });
}

#[test]
fn a_program_with_the_same_client_identifier_takes_over() {
    each_version(|broker, version| {
        let first = subscribe(broker, version, "twin", &["-t", "a"]);
        let second = subscribe(broker, version, "twin", &["-t", "a"]);
        let line = broker.wait_for_log("disconnected client_id=twin");
        assert!(line.contains("reason=0x8E (Session taken over)"), "{line}");
        first.kill();
        second.kill();
    });
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
