//! Generated questions about generated rules, asked of Pondhawk and of Mosquitto through clients: the answers are the same.
//!
//! In CI some thousand questions; with `PONDHAWK_ABUSE_LONG` more than 50,000.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{Broker, Client, Mosquitto, Options, Random, Version, is_long, pondhawk};
use tempfile::TempDir;

const SEED: u64 = 18;
/// User names; the first is nobody's.
const USERS: [Option<&str>; 6] = [None, Some("ann"), Some("bob"), Some("x"), Some("a+b"), Some("c/d")];
const CLIENT_IDS: [&str; 6] = ["ann", "one", "x", "#", "a/b", "é"];
const LEVELS: [&str; 8] = ["a", "b", "", "ann", "x", "one", "dev-x", "é"];
/// Questions of one kind that a client asks of one file.
const TOPICS: usize = 15;

fn topic(random: &mut Random) -> String {
    loop {
        let levels: Vec<&str> = (0..=random.below(3)).map(|_| random.of_list(&LEVELS)).collect();
        let topic = levels.join("/");
        if !topic.is_empty() {
            return topic;
        }
    }
}

fn filter(random: &mut Random, is_pattern: bool) -> String {
    let mut levels = Vec::new();
    for _ in 0..=random.below(3) {
        levels.push(match random.below(if is_pattern { 9 } else { 6 }) {
            0 => "+",
            1 if random.one_in(2) => {
                levels.push("#");
                break;
            }
            6 => "%c",
            7 => "%u",
            8 => "dev-%c",
            _ => random.of_list(&LEVELS),
        });
    }
    let filter = levels.join("/");
    if filter.is_empty() { "+".to_owned() } else { filter }
}

/// A file with some users and many rules. The user `all` may do everything.
fn rules(random: &mut Random) -> String {
    let mut text = String::new();
    for _ in 0..random.below(20) {
        let access = random.of_list(&["read ", "write ", "readwrite ", "deny ", ""]);
        let is_pattern = random.one_in(3);
        let kind = if is_pattern { "pattern" } else { "topic" };
        if random.one_in(4) {
            let user = random.of_list(&USERS[1..]).expect("not nobody");
            let _ = writeln!(text, "user {user}");
        }
        let _ = writeln!(text, "{kind} {access}{}", filter(random, is_pattern));
    }
    text + "user all\ntopic readwrite #\n"
}

fn client(address: SocketAddr, user: Option<&str>, client_id: &str) -> Client {
    let connect = Connect::new(Version::V5, client_id);
    let connect = user.map_or(connect, |user| connect.of(user, "any"));
    Client::connect(address, &connect)
}

/// Publishes to all topics at QoS 1. Returns which of them are not refused.
fn writes(client: &mut Client, topics: &[String]) -> Vec<bool> {
    for (topic, packet_id) in topics.iter().zip(1..) {
        client.send(&packet::packet(0x32, &[&packet::string(topic), &[0, packet_id, 0][..], b"x"].concat()));
    }
    let mut allowed = vec![true; topics.len()];
    for _ in topics {
        let answer = client.read_packet();
        assert_eq!(answer[0], 0x40, "{answer:02x?}");
        allowed[usize::from(answer[3]) - 1] = answer.get(4) != Some(&0x87);
    }
    allowed
}

/// Which of the topics a subscriber to everything receives when `publisher` publishes to all of them.
fn reads(client: &mut Client, publisher: &mut Client, topics: &[String]) -> Vec<bool> {
    client.subscribe("#");
    writes(publisher, topics);
    client.send(&[0xC0, 0]);
    let mut received = vec![false; topics.len()];
    loop {
        let packet = client.read_packet();
        if packet[0] == 0xD0 {
            return received;
        }
        let length = usize::from(packet[3]);
        let topic = std::str::from_utf8(&packet[4..4 + length]).expect("a topic");
        let place = topics.iter().position(|known| known == topic);
        received[place.expect("a topic that was published to")] = true;
    }
}

/// The answers to all questions about one file.
fn answers(address: SocketAddr, topics: &[String]) -> Vec<(String, Vec<bool>)> {
    let mut publisher = client(address, Some("all"), "publisher");
    let mut answers = Vec::new();
    for user in USERS {
        for client_id in CLIENT_IDS {
            let mut client = client(address, user, client_id);
            let who = format!("user {user:?}, client {client_id:?}");
            answers.push((format!("{who}, write"), writes(&mut client, topics)));
            answers.push((format!("{who}, read"), reads(&mut client, &mut publisher, topics)));
            client.leave();
        }
    }
    answers
}

#[test]
fn rules_decide_as_in_mosquitto() {
    let files = if is_long() { 60 } else { 3 };
    let mut questions = 0;
    for number in 0..files {
        let mut random = Random::of(SEED, number);
        let directory = TempDir::new().expect("there is a place for temporary files");
        let path = directory.path().join("rules");
        let text = rules(&mut random);
        fs::write(&path, &text).expect("a temporary file can be written");
        let mut topics: Vec<String> = (0..TOPICS).map(|_| topic(&mut random)).collect();
        topics.sort_unstable();
        topics.dedup();
        let settings = format!("allow_anonymous = true\n[auth]\nacl_file = {path:?}\n");
        let ours = Broker::start(&Options { settings, ..Options::default() });
        // Without a bound for queues, Mosquitto 2.0.11 ends the connection of a client whose PUBLISH it refuses.
        let theirs = format!("max_queued_messages 1000\nacl_file {}\n", path.display());
        let theirs = Mosquitto::start(&theirs);
        let (ours, theirs) = (answers(ours.address(), &topics), answers(theirs.address(), &topics));
        for ((question, ours), (_, theirs)) in ours.iter().zip(&theirs) {
            for ((topic, ours), theirs) in topics.iter().zip(ours).zip(theirs) {
                questions += 1;
                assert_eq!(ours, theirs, "{question} {topic:?} with the rules of seed {number}:\n{text}");
            }
        }
    }
    println!("{questions} questions");
    assert!(questions > if is_long() { 50_000 } else { 2_000 }, "{questions}");
}

/// Mosquitto 2.0 puts such a name in place, and shows the topics of the broker to each client that chooses it. The generated questions
/// have no such names.
#[test]
fn a_name_that_begins_with_a_dollar_sign_opens_no_topics_of_the_broker() {
    let directory = TempDir::new().expect("there is a place for temporary files");
    let path = directory.path().join("rules");
    fs::write(&path, "pattern readwrite %c/#\n").expect("a temporary file can be written");
    let settings = format!("allow_anonymous = true\n[auth]\nacl_file = {path:?}\n");
    let ours = Broker::start(&Options { settings, ..Options::default() });
    let theirs = format!("max_queued_messages 1000\nacl_file {}\n", path.display());
    let theirs = Mosquitto::start(&theirs);
    let topics = ["$a/x".to_owned()];
    let may = |address| writes(&mut client(address, None, "$a"), &topics);
    assert_eq!((may(ours.address()), may(theirs.address())), (vec![false], vec![true]));
}

/// Each program's file works with the other broker.
#[test]
fn password_files_go_in_both_directions() {
    let directory = TempDir::new().expect("there is a place for temporary files");
    let path = |name: &str| directory.path().join(name);
    let run = |mut command: Command| {
        assert!(command.status().expect("the program can be run").success(), "{command:?}");
    };
    for (hash, name) in [("sha512", "old"), ("sha512-pbkdf2", "new")] {
        let mut theirs = Command::new("mosquitto_passwd");
        theirs.args(["-H", hash, "-c", "-b"]).arg(path("theirs")).args([name, "a password"]);
        run(theirs);
        let settings = format!("[auth]\npassword_file = {:?}\n", path("theirs"));
        let broker = Broker::start(&Options { settings, ..Options::default() });
        drop(broker.client_with(&Connect::new(Version::V5, "c").of(name, "a password")));
        let mut ours = Command::new(pondhawk());
        ours.args(["passwd", "-H", hash, "-c", "-b"]).arg(path("ours")).args([name, "a password"]);
        run(ours);
        let settings = format!("password_file {}\n", path("ours").display());
        let mosquitto = Mosquitto::start(&settings);
        let connect = Connect::new(Version::V5, "c").of(name, "a password");
        drop(Client::connect(mosquitto.address(), &connect));
        let mut wrong = pondhawk_tests::RawClient::connect(mosquitto.address());
        wrong.send(&Connect::new(Version::V5, "c").of(name, "another").bytes());
        assert!(!packet::is_accepted(&wrong.read_packet()));
    }
}
