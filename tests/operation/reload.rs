//! Reloads of the configuration: they are all or nothing, and connections that may stay stay.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};

use pondhawk_tests::conversation;
use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{
    Broker, Client, Innocents, Options, Program, Random, RawClient, Version, free_ports, pondhawk, until,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::admin::Server;

/// The log says this at the end of a reload.
pub(super) const DONE: &str = "the configuration was read again";
/// The log says this when a file is refused.
pub(super) const REFUSED: &str = "the configuration stays as it was";

/// A configuration file, and the broker that has read it.
pub(super) struct Place {
    directory: TempDir,
    pub(super) broker: Broker,
}

impl Place {
    pub(super) fn new(shards: u16, text: &str) -> Self {
        let directory = TempDir::new().expect("there is a place for temporary files");
        let file = directory.path().join("pond.toml");
        fs::write(&file, format!("shards = {shards}\n{text}")).expect("a temporary file can be written");
        let broker = Broker::start(&Options { file: Some(file), ..Options::default() });
        Self { directory, broker }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Replaces a file at once, as editors do.
    pub(super) fn write(&self, name: &str, text: &str) {
        fs::write(self.path("new"), text).expect("a temporary file can be written");
        fs::rename(self.path("new"), self.path(name)).expect("it can be renamed");
    }

    /// Replaces the configuration, and waits until the broker has read it. Returns the line in the log.
    pub(super) fn reload(&self, text: &str, said: &str) -> String {
        self.write("pond.toml", text);
        self.hang_up(said)
    }

    pub(super) fn hang_up(&self, said: &str) -> String {
        let before = self.broker.log_length();
        self.broker.hang_up();
        self.broker.wait_for_log_behind(before, said)
    }
}

pub(super) fn listener(port: u16, keys: &str) -> String {
    format!("[[listener]]\naddress = \"127.0.0.1:{port}\"\n{keys}\n")
}

fn local(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

pub(super) fn client(port: u16, version: Version, name: &str) -> Client {
    Client::connect(local(port), &Connect::new(version, name))
}

/// The largest packet that a new client is told.
pub(super) fn packet_bytes(port: u16) -> u32 {
    let mut connection = RawClient::connect(local(port));
    connection.send(&Connect::new(Version::V5, "asks").bytes());
    let answer = connection.read_packet();
    assert!(packet::is_accepted(&answer), "{answer:02x?}");
    let place = answer.iter().position(|byte| *byte == 0x27).expect("Maximum Packet Size is announced");
    u32::from_be_bytes(answer[place + 1..place + 5].try_into().expect("four bytes"))
}

fn is_closed(port: u16) -> bool {
    TcpStream::connect(local(port)).is_err()
}

#[test]
fn listeners_come_and_go_and_the_connections_of_others_stay() {
    for shards in [1, 3] {
        let [first, second, third] = free_ports();
        let place = Place::new(shards, &(listener(first, "") + &listener(second, "")));
        let mut stays = client(first, Version::V5, "stays");
        stays.subscribe("pond");
        let mut goes: Vec<Client> = [Version::V3_1_1, Version::V5]
            .into_iter()
            .enumerate()
            .map(|(number, version)| client(second, version, &format!("goes{number}")))
            .collect();
        let mut silent = RawClient::connect(local(second));
        place.reload(&(listener(first, "") + &listener(third, "")), DONE);
        assert!(is_closed(second));
        goes.iter_mut().for_each(|client| client.expect_disconnect(0x98));
        silent.expect_closed();
        client(third, Version::V5, "new").publish("pond", b"fish");
        stays.expect_message("pond", b"fish");
        // The address is free again, and gets other clients.
        place.reload(&(listener(second, "") + &listener(first, "")), DONE);
        assert!(is_closed(third));
        client(second, Version::V3_1_1, "back").publish("pond", b"frog");
        stays.expect_message("pond", b"frog");
    }
}

/// Lasting sessions of a listener that is gone wait for it, also if one listener alone is left.
#[test]
fn nobody_gets_the_sessions_of_a_listener_that_was_removed() {
    let [first, second] = free_ports();
    let behind = |port, mount| listener(port, &format!("mount_point = \"{mount}/\"\nallow_anonymous = true"));
    let both = behind(first, "a") + &behind(second, "b");
    let place = Place::new(2, &both);
    // Session Expiry Interval
    let connect =
        Connect { clean_start: false, properties: &[0x11, 0, 0, 1, 0], ..Connect::new(Version::V5, "phone") };
    let mut owner = Client::connect(local(first), &connect);
    owner.subscribe("secret");
    place.reload(&behind(second, "b"), DONE);
    owner.expect_disconnect(0x98);
    let mut thief = RawClient::connect(local(second));
    thief.send(&connect.bytes());
    assert_eq!(thief.read_packet()[3], 0x87);
    place.reload(&both, DONE);
    let mut owner = Client::connect(local(first), &connect);
    client(first, Version::V5, "other").publish("secret", b"fish");
    owner.expect_message("secret", b"fish");
}

/// A file may be empty while it is written, and a pipe would hold the main thread for ever.
#[test]
fn an_empty_file_and_a_pipe_are_refused() {
    let [port] = free_ports();
    let directory = TempDir::new().expect("there is a place for temporary files");
    let acl = directory.path().join("rules");
    fs::write(&acl, "topic readwrite #\n").expect("a temporary file can be written");
    let good = listener(port, "") + &format!("[auth]\nacl_file = {acl:?}\n");
    let place = Place::new(1, &good);
    let mut stays = client(port, Version::V5, "stays");
    place.reload("", REFUSED);
    fs::remove_file(&acl).expect("it is ours");
    let status = Command::new("mkfifo").arg(&acl).status().expect("mkfifo can be run");
    assert!(status.success());
    place.reload(&good, REFUSED);
    place.broker.wait_for_log("it is no regular file");
    stays.expect_only_pong();
    client(port, Version::V5, "new").expect_only_pong();
}

#[test]
fn an_invalid_file_changes_nothing_and_the_log_names_the_place() {
    let [first, second, taken] = free_ports();
    let good = listener(first, "") + "[limits]\npacket_bytes = 4000\n";
    let place = Place::new(2, &good);
    let mut stays = client(first, Version::V5, "stays");
    let socket = TcpListener::bind(local(taken)).expect("the port was free");
    let users = place.path("users");
    let bad = [
        ("[limits]\npacket_bytes = 5000\nno_such_key = 1\n".to_owned(), "pond.toml:3"),
        (listener(second, "") + &listener(taken, ""), "another program uses it"),
        (listener(second, "") + &format!("[auth]\npassword_file = {users:?}\n"), "users"),
        (listener(second, "tls_certificate = \"/nowhere\"\ntls_key = \"/nowhere\""), "tls_certificate"),
    ];
    for (text, why) in bad {
        place.reload(&text, REFUSED);
        // The place is on a further line.
        place.broker.wait_for_log(why);
        assert_eq!(packet_bytes(first), 4000);
        assert!(is_closed(second), "{why}");
        stays.subscribe("a");
    }
    drop(socket);
    fs::remove_file(place.path("pond.toml")).expect("it is there");
    place.hang_up(REFUSED);
    stays.subscribe("b");
    place.reload(&good, DONE);
}

/// The new address needs the port of the former one.
#[test]
fn an_address_that_overlaps_with_a_former_one_takes_its_port_and_gives_it_back() {
    let [port, taken] = free_ports();
    let place = Place::new(2, &listener(port, ""));
    let everywhere = format!("[[listener]]\naddress = \"0.0.0.0:{port}\"\nallow_anonymous = true\n");
    let socket = TcpListener::bind(local(taken)).expect("the port was free");
    let mut stays = client(port, Version::V5, "stays");
    place.reload(&(everywhere.clone() + &listener(taken, "")), REFUSED);
    stays.subscribe("pond");
    client(port, Version::V5, "new").publish("pond", b"fish");
    stays.expect_message("pond", b"fish");
    drop(socket);
    place.reload(&everywhere, DONE);
    stays.expect_disconnect(0x98);
    drop(client(port, Version::V5, "new"));
}

#[test]
fn the_server_for_operators_shows_what_a_reload_has_changed() {
    let [first, second, third] = free_ports();
    let admin = "[admin]\naddress = \"127.0.0.1:0\"\n";
    let place = Place::new(2, &(listener(first, "") + &listener(second, "") + admin));
    let server = Server::of(&place.broker);
    let _stays = client(second, Version::V5, "stays");
    let sessions = "[sessions]\nqueue_messages = 77\n";
    place.write("pond.toml", &(listener(third, "") + &listener(second, "max_qos = 1") + admin + sessions));
    assert_eq!(server.send("POST", "/api/v1/reload", "", "").status, 200);
    place.broker.wait_for_log(DONE);
    let _new = client(third, Version::V5, "new");
    let listeners = server.value("/api/v1/listeners");
    let shown = |listener: &Value| (listener["address"].to_string(), listener["connections"].as_u64());
    let shown: Vec<_> = listeners["listeners"].as_array().into_iter().flatten().map(shown).collect();
    let expected = [third, second].map(|port| (format!("\"127.0.0.1:{port}\""), Some(1)));
    assert_eq!(shown, expected);
    for (client_id, port) in [("stays", second), ("new", third)] {
        let client = server.value(&format!("/api/v1/clients/{client_id}"));
        assert_eq!(client["listener"], format!("127.0.0.1:{port}"));
    }
    let configuration = server.value("/api/v1/configuration").to_string();
    for (text, is_in_force) in
        [("queue_messages = 77", true), ("max_qos = 1", true), (&format!("127.0.0.1:{first}"), false)]
    {
        assert_eq!(configuration.contains(text), is_in_force, "{text}: {configuration}");
    }
}

#[test]
fn limits_hold_for_new_connections_and_clients_keep_what_they_were_told() {
    let [port] = free_ports();
    let text = |bytes: u32, more: &str| listener(port, more) + &format!("[limits]\npacket_bytes = {bytes}\n");
    let place = Place::new(2, &text(10_000, ""));
    let mut old = client(port, Version::V5, "old");
    old.subscribe("pond");
    place.reload(&text(2_000, "max_qos = 0"), DONE);
    assert_eq!(packet_bytes(port), 2_000);
    old.publish("pond", &[7; 9_000]);
    old.expect_message("pond", &[7; 9_000]);
    let mut new = client(port, Version::V5, "new");
    new.send(&packet::publish(Version::V5, "pond", &[7; 3_000]));
    new.expect_disconnect(0x95);
    // QoS 1 as well.
    old.send(&packet::packet(0x32, &[&packet::string("pond"), &[0, 9][..], &[0], b"x"].concat()));
    until("it is acknowledged", || old.read_packet().starts_with(&[0x40]).then_some(()));
}

/// Nobody new is admitted before there is less, and only the client of the queue can make it less.
#[test]
fn the_client_of_a_queue_larger_than_a_lowered_limit_of_memory_connects_and_takes_it() {
    const MESSAGES: u16 = 2_000;
    const PAYLOAD: [u8; 12 << 10] = [7; 12 << 10];
    const QUOTA_EXCEEDED: u8 = 0x97;
    let [port] = free_ports();
    let text = |limit: &str| listener(port, "") + &format!("[limits]\nmemory_budget_bytes = \"{limit}\"\n");
    let place = Place::new(2, &text("256 MiB"));
    let lasting = Connect { clean_start: false, ..Connect::new(Version::V3_1_1, "away") };
    let mut away = Client::connect(local(port), &lasting);
    away.send(&packet::subscribe_with(Version::V3_1_1, 1, "queue", 1));
    away.expect(&packet::suback(Version::V3_1_1, 1, 1));
    away.leave();
    let mut publisher = client(port, Version::V3_1_1, "publisher");
    for packet_id in 1..=MESSAGES {
        let body = [&packet::string("queue"), &packet_id.to_be_bytes()[..], &PAYLOAD].concat();
        publisher.send(&packet::packet(0x32, &body));
        publisher.expect(&conversation::ack(conversation::PUBACK, packet_id));
    }
    publisher.leave();
    place.reload(&text("16 MiB"), DONE);
    let mut stranger = RawClient::connect(local(port));
    stranger.send(&Connect::new(Version::V5, "stranger").bytes());
    assert_eq!(stranger.read_packet()[3], QUOTA_EXCEEDED);
    let mut away = RawClient::connect(local(port));
    away.send(&lasting.bytes());
    assert_eq!(away.read_packet(), [0x20, 2, 1, 0], "it has its session");
    for _ in 0..MESSAGES {
        let publish = away.read_packet();
        let packet_id = &publish[publish.len() - PAYLOAD.len() - 2..][..2];
        let packet_id = u16::from_be_bytes([packet_id[0], packet_id[1]]);
        away.send(&conversation::ack(conversation::PUBACK, packet_id));
    }
    until("a new client is admitted", || {
        let mut stranger = RawClient::connect(local(port));
        stranger.send(&Connect::new(Version::V5, "stranger").bytes());
        (stranger.read_packet()[3] == 0).then_some(())
    });
}

#[test]
fn a_key_that_needs_a_restart_is_named_and_the_others_count() {
    let [port] = free_ports();
    let place = Place::new(1, &(listener(port, "") + "[limits]\npacket_bytes = 3000\n"));
    place.reload(&format!("shards = 2\n{}[limits]\npacket_bytes = 4000\n", listener(port, "")), DONE);
    assert_eq!(place.broker.log_lines("shards = 2 needs a restart").len(), 1);
    assert_eq!(packet_bytes(port), 4_000);
}

#[test]
fn clients_that_may_not_connect_any_more_leave() {
    let [first, second] = free_ports();
    let place = Place::new(2, &(listener(first, "allow_anonymous = true") + &listener(second, "")));
    let mut stranger = client(first, Version::V5, "stranger");
    let mut other = client(second, Version::V5, "other");
    place.reload(&(listener(first, "allow_anonymous = false") + &listener(second, "")), DONE);
    stranger.expect_disconnect(0x98);
    other.subscribe("a");
    place.reload(
        &(listener(first, "allow_anonymous = true") + &listener(second, "mount_point = \"a/\"")),
        DONE,
    );
    other.expect_disconnect(0x98);
    drop(client(first, Version::V5, "stranger"));
}

/// Many signals at once, and a file that changes meanwhile.
#[test]
fn a_burst_of_signals_ends_with_the_last_file() {
    let [port] = free_ports();
    let text = |bytes: u32| listener(port, "") + &format!("[limits]\npacket_bytes = {bytes}\n");
    let place = Place::new(2, &text(2_000));
    let mut stays = client(port, Version::V5, "stays");
    for number in 1..=100 {
        place.write("pond.toml", &text(2_000 + number));
        place.broker.hang_up();
    }
    until("the last file counts", || (packet_bytes(port) == 2_100).then_some(()));
    stays.subscribe("a");
}

/// Makes an authority and a certificate of `localhost`, and returns the keys that name them.
fn certificate(directory: &Path) -> String {
    let mut program = Command::new(pondhawk());
    let made = program.args(["certs", "init"]).arg(directory).args(["--host", "localhost"]).output();
    assert!(made.is_ok_and(|output| output.status.success()), "the certificate is made");
    let [certificate, key] = ["server.pem", "server.key"].map(|name| directory.join(name));
    format!("tls_certificate = {certificate:?}\ntls_key = {key:?}\n")
}

#[test]
fn handshakes_of_a_listener_that_is_removed_end_and_so_do_its_connections_of_quic() {
    let [plain, secure] = free_ports();
    let place = Place::new(3, &listener(plain, ""));
    let mut stays = client(plain, Version::V5, "stays");
    let keys = certificate(&place.path("certificates"));
    let quic = format!("[[listener]]\naddress = \"quic://127.0.0.1:{secure}\"\n{keys}");
    place.reload(&(listener(plain, "") + &listener(secure, &keys) + &quic), DONE);
    // The beginning of a record of TLS.
    let mut handshakes: Vec<RawClient> = (0..5).map(|_| RawClient::connect(local(secure))).collect();
    handshakes.iter_mut().for_each(|handshake| handshake.send(b"\x16\x03\x01\x01\x00\x01"));
    let mut program = Command::new(pondhawk());
    program.args(["sub", "-i", "over-quic", "-L", &format!("quic://localhost:{secure}/pond"), "--cafile"]);
    program.arg(place.path("certificates/ca.pem"));
    let _subscriber = Program::start(program);
    place.broker.wait_for_log("connected client_id=over-quic");
    place.reload(&listener(plain, ""), DONE);
    handshakes.iter_mut().for_each(RawClient::expect_closed);
    let line = place.broker.wait_for_log("disconnected client_id=over-quic");
    assert!(line.contains("reason=0x98"), "{line}");
    assert!(is_closed(secure));
    stays.subscribe("a");
}

/// Files that only the superuser may read stay in use as they were read at the start. Other users than the superuser have
/// nothing to give up, so that the test shows nothing then.
#[test]
fn files_that_may_not_be_read_any_more_stay_as_they_were() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let [port, second] = free_ports();
    let directory = TempDir::new().expect("there is a place for temporary files");
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    let (file, users) = (directory.path().join("pond.toml"), directory.path().join("users"));
    fs::write(&users, "").expect("a temporary file can be written");
    fs::set_permissions(&users, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let top = format!("user = \"nobody\"\nallow_anonymous = true\n[auth]\npassword_file = {users:?}\n");
    fs::write(&file, top.clone() + &listener(port, "")).expect("it can be written");
    // The broker makes the directory for its user.
    let data_dir = Some(directory.path().join("data"));
    let broker = Broker::start(&Options { file: Some(file.clone()), data_dir, ..Options::default() });
    let mut stays = client(port, Version::V5, "stays");
    fs::write(&file, top + &listener(port, "") + &listener(second, "")).expect("it can be written");
    broker.hang_up();
    broker.wait_for_log(DONE);
    assert_eq!(broker.log_lines("users and rules stay as they were read at the start").len(), 1);
    assert!(broker.log_lines("new users and rules are in use").is_empty());
    drop(client(second, Version::V5, "new"));
    stays.subscribe("a");
}

/// Mosquitto's own file, with Mosquitto's signal.
#[test]
fn a_file_of_mosquitto_is_read_again_too() {
    let [first, second] = free_ports();
    let directory = TempDir::new().expect("there is a place for temporary files");
    let file = directory.path().join("mosquitto.conf");
    let text = |port: u16| format!("listener {port} 127.0.0.1\n");
    let all = "user root\nallow_anonymous true\n";
    fs::write(&file, all.to_owned() + &text(first)).expect("a temporary file can be written");
    let broker = Broker::start(&Options { file: Some(file.clone()), ..Options::default() });
    let mut stays = client(first, Version::V3_1_1, "stays");
    fs::write(&file, all.to_owned() + &text(first) + &text(second)).expect("it can be written");
    broker.hang_up();
    broker.wait_for_log(DONE);
    drop(client(second, Version::V5, "new"));
    fs::write(&file, "listener 1883 127.0.0.1\nno_such_directive\n").expect("it can be written");
    broker.hang_up();
    broker.wait_for_log(REFUSED);
    assert!(broker.log().contains("mosquitto.conf:2"), "the line is named");
    stays.subscribe("a");
}

/// Number of reloads. A longer run sets `PONDHAWK_RELOADS`.
fn reloads() -> usize {
    std::env::var("PONDHAWK_RELOADS").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000)
}

fn seed() -> u64 {
    std::env::var("PONDHAWK_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(19)
}

/// Pairs of clients that exchange messages during all reloads.
const PAIRS: usize = 3;

/// After each reload, clients are connected where they should be and nowhere else, and messages go through. Meanwhile, pairs of
/// clients exchange messages at every QoS, of which none is lost.
#[test]
fn random_files_under_load_lose_no_connection_that_should_stay() {
    let ports: [u16; 4] = free_ports();
    let seed = seed();
    println!("PONDHAWK_SEED={seed}");
    let mut random = Random::of(seed, 0);
    let place = Place::new(2, &listener(ports[0], ""));
    let is_over = AtomicBool::new(false);
    let exchanged = thread::scope(|scope| {
        let load = (0..PAIRS).map(|number| {
            let mut pair = Innocents::connect(&place.broker, &format!("pair {number}"));
            let is_over = &is_over;
            scope.spawn(move || {
                let mut rounds = 0;
                while !is_over.load(Ordering::Relaxed) {
                    pair.speak();
                    pair.hear();
                    rounds += 1;
                }
                rounds
            })
        });
        let load: Vec<ScopedJoinHandle<'_, usize>> = load.collect();
        let over = Over(&is_over);
        reload_at_random(&place, &ports, &mut random);
        drop(over);
        load.into_iter().map(|pair| pair.join().expect("a pair has noticed nothing")).sum::<usize>()
    });
    println!("{exchanged} rounds of messages beside {} reloads", reloads());
    assert!(exchanged >= PAIRS);
}

/// Ends the load, also if a test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn reload_at_random(place: &Place, ports: &[u16; 4], random: &mut Random) {
    let mut always = client(ports[0], Version::V5, "always");
    always.subscribe("pond/#");
    let mut is_open = [true, false, false, false];
    let mut others: [Vec<Client>; 4] = Default::default();
    let mut bytes = 2 << 20;
    for number in 0..reloads() {
        let mut wanted = [true; 4];
        wanted[1..].iter_mut().for_each(|open| *open = random.below(2) == 1);
        let wanted_bytes = 2_000 + u32::try_from(random.below(100_000)).expect("it is small");
        let text = ports.iter().zip(wanted).filter(|(_, open)| *open);
        let text: String = text.map(|(port, _)| listener(*port, "")).collect();
        let text = format!("{text}[limits]\npacket_bytes = {wanted_bytes}\n");
        let is_valid = random.below(4) > 0;
        let (text, said) = if is_valid { (text, DONE) } else { (text + "nonsense = 1\n", REFUSED) };
        place.reload(&text, said);
        if is_valid {
            bytes = wanted_bytes;
            for (clients, (was, now)) in others.iter_mut().zip(is_open.into_iter().zip(wanted)) {
                if was && !now {
                    clients.drain(..).for_each(|mut client| client.expect_disconnect(0x98));
                }
            }
            is_open = wanted;
        }
        assert_eq!(packet_bytes(ports[0]), bytes, "reload {number}");
        for (place, (port, open)) in ports.iter().zip(is_open).enumerate() {
            assert_eq!(is_closed(*port), !open, "port {place}, reload {number}");
            if open && others[place].len() < 3 {
                others[place].push(client(*port, Version::V5, &format!("{place}-{number}")));
            }
            for client in &mut others[place] {
                client.publish("pond/a", b"fish");
                always.expect_message("pond/a", b"fish");
            }
        }
    }
}
