//! Processes of this machine that have the names of their users.

use std::io::{Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{Broker, DEADLINE, Options, Version, until};
use tempfile::TempDir;

use crate::users;

/// The login name of the user of this test, as another program says it.
fn own_name() -> String {
    let said = Command::new("id").arg("-un").output().expect("`id` is there");
    String::from_utf8(said.stdout).expect("a name").trim_end().to_owned()
}

/// Two brokers' worth of files: a socket, a password file, and rules.
struct Place(TempDir);

impl Place {
    /// The user of this test may use `own`, the user cat `cat`, and everybody `open`.
    fn new() -> Self {
        let place = Self(TempDir::new().expect("there is a place for temporary files"));
        let name = own_name();
        let rules = format!(
            "user {name}\ntopic readwrite own\ntopic readwrite open\nuser cat\ntopic readwrite cat\ntopic readwrite open\n"
        );
        std::fs::write(place.0.path().join("users"), users(&[&name, "cat"])).expect("it can be written");
        std::fs::write(place.0.path().join("rules"), rules).expect("it can be written");
        place
    }

    fn socket(&self) -> String {
        format!("unix:{}", self.0.path().join("pond.sock").display())
    }

    /// A broker with a listener for passwords, and one for processes.
    fn broker(&self, address: &str, keys: &str) -> Result<Broker, String> {
        let (users, rules) = (self.0.path().join("users"), self.0.path().join("rules"));
        let settings = format!(
            "[auth]\npassword_file = {users:?}\nacl_file = {rules:?}\n[[listener]]\naddress = \"127.0.0.1:0\"\n\
             [[listener]]\naddress = {address:?}\nunix_identity = \"user\"\n{keys}"
        );
        Broker::try_start(&Options { settings, ..Options::default() })
    }

    fn connect(&self) -> Process {
        Process::new(UnixStream::connect(self.0.path().join("pond.sock")).expect("it listens"))
    }
}

/// A connection of this process.
struct Process(UnixStream);

impl Process {
    fn new(socket: UnixStream) -> Self {
        socket.set_read_timeout(Some(DEADLINE)).expect("a duration");
        Self(socket)
    }

    fn send(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.0.write_all(bytes).expect("the broker reads");
        self.read()
    }

    /// The next packet, which is a short one.
    fn read(&mut self) -> Vec<u8> {
        let mut packet = vec![0; 2];
        self.0.read_exact(&mut packet).expect("the broker answers");
        let length = usize::from(packet[1]);
        assert!(length < 0x80, "a long packet");
        packet.resize(2 + length, 0);
        self.0.read_exact(&mut packet[2..]).expect("a whole packet");
        packet
    }

    /// The reason code of PUBACK.
    fn publish(&mut self, topic: &str) -> u8 {
        let puback =
            self.send(&packet::packet(0x32, &[&packet::string(topic), &[0, 9, 0][..], b"x"].concat()));
        assert_eq!(puback[0], 0x40, "{puback:02x?}");
        puback.get(4).copied().unwrap_or(0)
    }
}

/// Whether a client may publish here, and nobody is there to receive it.
fn may(code: u8) -> bool {
    matches!(code, 0 | 0x10)
}

#[test]
fn the_login_name_of_a_process_is_its_user_whatever_connect_says() {
    let place = Place::new();
    let _broker = place.broker(&place.socket(), "").expect("it starts");
    for (user, password) in [(Some("cat"), Some("cat")), (Some("cat"), Some("wrong")), (None, None)] {
        let connect =
            Connect { user, password: password.map(str::as_bytes), ..Connect::new(Version::V5, "p") };
        let mut process = place.connect();
        let connack = process.send(&connect.bytes());
        assert!(packet::is_accepted(&connack), "{connack:02x?}");
        assert!(may(process.publish("own")) && may(process.publish("open")), "{user:?}");
        assert_eq!(process.publish("cat"), 0x87, "{user:?}");
    }
}

#[test]
fn a_name_that_is_no_file_does_the_same() {
    let place = Place::new();
    let name = format!("pondhawk-process-{}", std::process::id());
    let broker = place.broker(&format!("unix:@{name}"), "").expect("it starts");
    broker.wait_for_log("listening on unix:@");
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let mut process = Process::new(UnixStream::connect_addr(&address).expect("it listens"));
    assert!(packet::is_accepted(&process.send(&Connect::new(Version::V3_1_1, "p").bytes())));
    let mut process = Process::new(UnixStream::connect_addr(&address).expect("it listens"));
    assert!(packet::is_accepted(&process.send(&Connect::new(Version::V5, "p").bytes())));
    assert!(may(process.publish("own")) && !may(process.publish("cat")));
}

/// A user with a password, and the user of a process, who have the same name.
#[test]
fn a_process_does_not_take_over_the_session_of_a_user_with_a_password() {
    let place = Place::new();
    let broker = place.broker(&place.socket(), "").expect("it starts");
    let name = own_name();
    let lasting = |client_id| pondhawk_tests::conversation::lasting(Version::V5, client_id);
    broker.client_with(&lasting("first").of(&name, &name)).leave();
    let connack = place.connect().send(&lasting("first").bytes());
    assert_eq!((connack[0], connack[3]), (0x20, 0x87), "{connack:02x?}");
    let mut process = place.connect();
    assert!(packet::is_accepted(&process.send(&lasting("second").bytes())));
    process.0.write_all(&packet::disconnect(Version::V5, 0)).expect("the broker reads");
    let mut thief = broker.connect();
    thief.send(&lasting("second").of(&name, &name).bytes());
    let connack = thief.read_packet();
    assert_eq!((connack[0], connack[3]), (0x20, 0x87), "{connack:02x?}");
    // Each comes back to its own.
    let (_, connack) = broker.greet(&lasting("first").of(&name, &name));
    assert!(pondhawk_tests::conversation::session_present(&connack));
    let connack = place.connect().send(&lasting("second").bytes());
    assert!(packet::is_accepted(&connack) && pondhawk_tests::conversation::session_present(&connack));
}

#[test]
fn only_a_unix_socket_knows_the_processes_at_it() {
    let place = Place::new();
    let log = place.broker("127.0.0.1:0", "").expect_err("there are no processes");
    assert!(log.contains("`unix_identity`") && log.contains("unix:/run/pondhawk.sock"), "{log}");
}

/// Only the superuser can become a user without a name.
#[test]
fn a_user_without_a_name_is_refused_with_its_number_in_the_log() {
    const NOBODY_HAS: u32 = 1_879_048_193;
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let place = Place::new();
    let broker = place.broker(&place.socket(), "unix_mode = \"0666\"\n").expect("it starts");
    let path = place.0.path().join("pond.sock");
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(place.0.path(), all).expect("the directory is ours");
    // A program that everybody may run, and that copies bytes between its streams and the socket.
    let script = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
                  s.sendall(bytes.fromhex(sys.argv[2]))\nsys.stdout.write(s.recv(100).hex())";
    let connect: String =
        Connect::new(Version::V5, "p").bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let mut program = Command::new("python3");
    program.args(["-c", script]).arg(path).arg(connect).uid(NOBODY_HAS).gid(NOBODY_HAS);
    let said = program.output().expect("python3 is there");
    let said = String::from_utf8(said.stdout).expect("digits");
    assert!(said.starts_with("20") && said.get(6..8) == Some("87"), "{said}");
    let peer = format!("unix:uid={NOBODY_HAS},");
    let why = "the user of its process has no login name on this machine";
    until(why, || broker.log_lines(why).iter().any(|line| line.contains(&peer)).then_some(()));
}
