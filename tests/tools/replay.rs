//! Tests of `tap --record` and `replay`.

use std::fs;
use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use pondhawk_tests::conversation::{Conversation, PUBACK, PUBCOMP, PUBREC, PUBREL, lasting, lose, publish};
use pondhawk_tests::packet::{self, Connect, Will};
use pondhawk_tests::{Broker, Client, Options, Program, RawClient, Version, pondhawk, until};
use tempfile::TempDir;

use crate::faulty::{Fault, LAST, proxy};

/// Number of messages of each publisher, and of a burst.
const MESSAGES: u32 = 30;
const BURST_MESSAGES: u32 = 100;

/// Clients that are recorded.
struct Stage {
    address: SocketAddr,
    connections: u32,
}

impl Stage {
    fn connect(&mut self, connect: &Connect<'_>) -> Client {
        self.connections += 1;
        Client::connect(self.address, connect)
    }
}

/// A recording in a folder that is removed at the end of the test.
struct Recording {
    folder: TempDir,
}

impl Recording {
    /// Records the clients of `act`, in front of a broker of their own.
    fn of(act: impl FnOnce(&mut Stage)) -> Self {
        let broker = broker();
        let recording = Self { folder: tempfile::tempdir().expect("there is a place for temporary files") };
        let mut command = Command::new(pondhawk());
        command.args(["tap", "--listen", "127.0.0.1:0", "--to", &broker.address().to_string(), "--record"]);
        command.arg(recording.path());
        let tap = Program::start(command);
        let line = tap.wait_for("listening on ");
        let address = line.rsplit(' ').next().and_then(|text| text.parse().ok()).expect("an address");
        let mut stage = Stage { address, connections: 0 };
        act(&mut stage);
        for number in 1..=stage.connections {
            tap.wait_for(&format!(" {number} -- closed"));
        }
        tap.kill();
        recording
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("recorded.pcap")
    }

    /// Plays the recording against a broker.
    fn play(&self, to: SocketAddr, arguments: &[&str]) -> Output {
        play(&self.path(), to, arguments)
    }
}

fn broker() -> Broker {
    Broker::start(&Options { shards: 2, ..Options::default() })
}

fn play(file: &Path, to: SocketAddr, arguments: &[&str]) -> Output {
    let mut command = Command::new(pondhawk());
    command.arg("replay").arg(file).args(["--to", &to.to_string()]).args(arguments);
    command.output().expect("a program can be run")
}

/// The report of a replay with this exit code.
fn report(played: &Output, code: i32) -> String {
    let said = [&played.stdout[..], &played.stderr].map(String::from_utf8_lossy).concat();
    assert_eq!(played.status.code(), Some(code), "{said}");
    said
}

/// Clients of all versions with messages of every QoS, retained messages, wills, lasting sessions, a group, and lost
/// connections.
fn mixed_load(stage: &mut Stage) {
    let mut witness = stage.connect(&Connect::new(Version::V5, ""));
    witness.subscribe("wills/#");
    let mut members = ["first", "second"].map(|name| stage.connect(&Connect::new(Version::V5, name)));
    members.iter_mut().for_each(|member| member.subscribe_with("$share/group/jobs/#", 1));
    let names = Version::ALL.map(|version| format!("listener {version}"));
    let mut listeners: Vec<_> = Version::ALL
        .iter()
        .zip(&names)
        .map(|(version, name)| {
            let mut listener = stage.connect(&lasting(*version, name));
            listener.subscribe_with("news/+", 2);
            listener
        })
        .collect();
    for version in Version::ALL {
        let (name, topic) = (format!("publisher {version}"), format!("news/{version}"));
        let will = Some(Will { qos: 1, ..Will::new("wills/publisher", b"is gone") });
        let mut publisher = stage.connect(&Connect { will, ..Connect::new(version, &name) });
        for number in 0..MESSAGES {
            let payload = format!("{topic} {number}");
            publisher.deliver((number % 3) as u8, &topic, payload.as_bytes());
            listeners.iter_mut().for_each(|listener| drop(listener.take_message(payload.as_bytes())));
            let job = format!("job {number}");
            publisher.deliver(1, "jobs/of the group", job.as_bytes());
            take_job(&mut members, job.as_bytes());
        }
        retain(&mut publisher, "kept", name.as_bytes());
        let mut late = stage.connect(&Connect::new(version, "late"));
        late.subscribe("kept");
        late.expect_retained("kept", name.as_bytes());
        late.leave();
        lose(publisher);
        witness.expect_message("wills/publisher", b"is gone");
    }
    burst(stage, &mut listeners);
    away(stage, listeners, &names);
    Version::ALL.into_iter().for_each(|version| interrupted(stage, version));
    members.into_iter().for_each(Client::leave);
    witness.leave();
}

/// Publishes a retained message, and waits until the broker has stored it.
fn retain(client: &mut Client, topic: &str, payload: &[u8]) {
    let version = client.version();
    client.send(&publish(version, 0x33, 1, topic, &[], payload));
    client.expect_ack(PUBACK, 1);
}

/// One member takes a job, and acknowledges it.
fn take_job(members: &mut [Client], job: &[u8]) {
    until("a member has the job", || {
        members.iter_mut().find_map(|member| {
            let (packets, _) = member.arrived();
            let packet = packets.into_iter().next()?;
            assert!(packet.ends_with(job));
            let topic_len = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
            let id = [packet[4 + topic_len], packet[5 + topic_len]];
            member.acknowledge(PUBACK, u16::from_be_bytes(id));
            Some(())
        })
    });
}

/// Messages that are sent without waiting for each other.
fn burst(stage: &mut Stage, listeners: &mut [Client]) {
    let mut hasty = stage.connect(&Connect::new(Version::V3_1_1, "hasty"));
    let payloads: Vec<_> = (0..BURST_MESSAGES).map(|number| format!("burst {number}").into_bytes()).collect();
    let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).chain([LAST]).collect();
    let bytes = payloads.iter().map(|payload| packet::publish(Version::V3_1_1, "news/of a burst", payload));
    hasty.send(&bytes.collect::<Vec<_>>().concat());
    for listener in listeners {
        payloads.iter().for_each(|payload| drop(listener.take_message(payload)));
    }
    hasty.leave();
}

/// Messages that wait for the sessions of absent clients.
fn away(stage: &mut Stage, listeners: Vec<Client>, names: &[String]) {
    listeners.into_iter().for_each(lose);
    let mut publisher = stage.connect(&Connect::new(Version::V5, "publisher for the absent"));
    for number in 0..MESSAGES {
        publisher.deliver(1, "news/missed", format!("missed {number}").as_bytes());
    }
    publisher.leave();
    for (version, name) in Version::ALL.into_iter().zip(names) {
        let mut listener = stage.connect(&lasting(version, name));
        for number in 0..MESSAGES {
            listener.take_message(format!("missed {number}").as_bytes());
        }
        listener.leave();
    }
}

/// Exchanges of QoS 2 that end on a later connection than they begin, in both directions.
fn interrupted(stage: &mut Stage, version: Version) {
    let [listener, publisher] = ["interrupted listener", "interrupted publisher"];
    let mut to = stage.connect(&lasting(version, listener));
    to.subscribe_with("exact", 2);
    let mut from = stage.connect(&lasting(version, publisher));
    from.publish_at(2, 7, "exact", b"once");
    from.expect_ack(PUBREC, 7);
    lose(from);
    let mut from = stage.connect(&lasting(version, publisher));
    from.acknowledge(PUBREL, 7);
    from.expect_ack(PUBCOMP, 7);
    let packet_id = to.message().packet_id;
    lose(to);
    let mut to = stage.connect(&lasting(version, listener));
    assert!(to.message().dup);
    to.acknowledge(PUBREC, packet_id);
    to.expect_ack(PUBREL, packet_id);
    lose(to);
    let mut to = stage.connect(&lasting(version, listener));
    to.expect_ack(PUBREL, packet_id);
    to.acknowledge(PUBCOMP, packet_id);
    lose(to);
    let mut to = stage.connect(&lasting(version, listener));
    from.deliver(2, "exact", b"another one");
    to.take_message(b"another one");
    to.leave();
    from.leave();
}

#[test]
fn a_mixed_load_has_no_difference_at_any_speed_and_planted_faults_are_found() {
    let recording = Recording::of(mixed_load);
    for speed in ["1", "max"] {
        let broker = broker();
        let said = report(&recording.play(broker.address(), &["--speed", speed]), 0);
        assert!(said.contains(": no difference\n"), "{said}");
    }
    for (fault, kind, named) in [
        (Fault::None, "no difference", "connections in "),
        (Fault::Drop, " missing", ": missing: PUBLISH "),
        (Fault::Repeat, " extra", ": extra: PUBLISH "),
        (Fault::Swap, " out of order)", ": out of order: PUBLISH q0 \"news/of a burst\" "),
        (Fault::Payload, " different", "  received: PUBLISH "),
        (Fault::Reason, " different", "  received: SUBACK id=9 Granted QoS 0"),
    ] {
        let broker = broker();
        let to = proxy(broker.address(), fault);
        let played = recording.play(to, &["--speed", "max", "--patience", "2", "--lines", "1000"]);
        let said = report(&played, i32::from(fault != Fault::None));
        assert!(said.contains(kind) && said.contains(named), "{fault:?}:\n{said}");
    }
}

/// The differences have the client, and the report as JSON has the same content.
#[test]
fn stored_state_of_the_broker_is_a_difference() {
    let recording = Recording::of(|stage| stage.connect(&lasting(Version::V5, "frog")).leave());
    let broker = broker();
    broker.client_with(&lasting(Version::V5, "frog")).leave();
    let said = report(&recording.play(broker.address(), &[]), 1);
    assert!(said.contains(" \"frog\", connection 1: different\n  recorded: CONNACK Success "), "{said}");
    assert!(said.contains("\n  received: CONNACK Success session-present "), "{said}");
    let said = report(&recording.play(broker.address(), &["--json"]), 1);
    assert!(said.contains("\"clean\":false") && said.contains("\"counts\":{\"different\":1}"), "{said}");
    assert!(said.contains("\"client\":\"\\\"frog\\\", connection 1\""), "{said}");
}

#[test]
fn a_connection_that_ends_too_early_is_a_difference() {
    let recording = Recording::of(|stage| {
        let mut frog = stage.connect(&Connect::new(Version::V5, "frog"));
        frog.subscribe("pond/#");
        frog.leave();
    });
    let deaf = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = deaf.local_addr().expect("it is bound");
    std::thread::spawn(move || deaf.incoming().for_each(drop));
    let said = report(&recording.play(address, &["--patience", "1"]), 1);
    assert!(said.contains("closed too early"), "{said}");
}

#[test]
fn a_file_that_cannot_be_played_is_refused_with_the_reason() {
    let recording = Recording::of(|stage| stage.connect(&Connect::new(Version::V5, "frog")).leave());
    let other = Recording::of(|stage| {
        stage.connections += 1;
        let mut raw = RawClient::connect(stage.address);
        raw.send(b"GET / HTTP/1.1\r\n\r\n");
        raw.read_to_end();
    });
    let broker = broker();
    let whole = fs::read(recording.path()).expect("it was recorded");
    let file = recording.folder.path().join("broken.pcap");
    for (content, error) in [
        (&whole[..whole.len() - 1], "the file is cut off"),
        (b"# some notes", "this is not a pcap file"),
        (b"\x0a\x0d\x0d\x0a\x1c\0\0\0", "this is a pcapng file"),
    ] {
        fs::write(&file, content).expect("a temporary file can be written");
        let said = report(&play(&file, broker.address(), &[]), 2);
        assert!(said.starts_with("error: ") && said.contains(error) && said.contains("\nhint: "), "{said}");
    }
    fs::write(&file, &whole[..whole.len() - 1]).expect("a temporary file can be written");
    let said = report(&play(&file, broker.address(), &["--incomplete"]), 0);
    assert!(said.contains("only a part was played: the file is cut off"), "{said}");
    let said = report(&other.play(broker.address(), &[]), 2);
    assert!(said.contains("no client in this file connects with MQTT"), "{said}");
    let said = report(&play(Path::new("nowhere.pcap"), broker.address(), &[]), 2);
    assert!(said.contains("nowhere.pcap: No such file"), "{said}");
    let said = report(&recording.play("127.0.0.1:1".parse().expect("an address"), &[]), 2);
    assert!(said.contains("no connection to the broker"), "{said}");
}

#[test]
fn an_interrupted_replay_reports_its_results() {
    let recording = Recording::of(|stage| stage.connect(&Connect::new(Version::V5, "frog")).leave());
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let to = silent.local_addr().expect("it is bound").to_string();
    let mut command = Command::new(pondhawk());
    command.arg("replay").arg(recording.path()).args(["--to", &to, "--patience", "3600"]);
    let replay = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a program can be run");
    let (mut client, _) = silent.accept().expect("the replay connects");
    client.read_exact(&mut [0]).expect("the replay sends CONNECT, and waits for CONNACK");
    let kill = Command::new("kill").args(["-INT", &replay.id().to_string()]).status();
    assert!(kill.expect("kill can be run").success());
    let said = report(&replay.wait_with_output().expect("our own child can be waited for"), 130);
    assert!(said.contains("only a part was played: the replay was interrupted"), "{said}");
}
