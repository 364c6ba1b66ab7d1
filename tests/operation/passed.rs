//! Sockets that a service manager passes. The test does as systemd does.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Output, Stdio};

use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{DEADLINE, RawClient, Version, pondhawk};
use tempfile::TempDir;

/// A process that is killed on drop.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A broker with these listeners that gets two sockets as files 3 and 4, with these names.
fn program(directory: &TempDir, addresses: &[&str], names: &str, sockets: [OwnedFd; 2]) -> Command {
    let listener = |address: &&str| format!("[[listener]]\naddress = {address:?}\nallow_anonymous = true\n");
    let file = directory.path().join("pond.toml");
    fs::write(&file, addresses.iter().map(listener).collect::<String>()).expect("a temporary file");
    let [first, second] = sockets;
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec 3<&0 4<&1 </dev/null >/dev/null; export LISTEN_PID=$$; exec \"$0\" \"$@\""]);
    shell.arg(pondhawk()).args(["serve", "--config"]).arg(file);
    shell.arg("--data-dir").arg(directory.path().join("data"));
    shell.env("LISTEN_FDS", "2").env("LISTEN_FDNAMES", names);
    shell.stdin(Stdio::from(first)).stdout(Stdio::from(second)).stderr(Stdio::piped());
    shell
}

#[test]
fn sockets_of_the_service_manager_are_listened_on() {
    let directory = TempDir::new().expect("a temporary directory");
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let path = directory.path().join("pond.sock");
    let unix = UnixListener::bind(&path).expect("a free name");
    // Clients may come before the broker runs.
    let mut early = RawClient::connect(tcp.local_addr().expect("it is bound"));
    early.send(&Connect::new(Version::V5, "early").bytes());
    let addresses = ["systemd:web", "systemd:mqtt"];
    let mut program = program(&directory, &addresses, "mqtt:web", [tcp.into(), unix.into()]);
    let broker = Process(program.spawn().expect("a shell"));
    assert!(packet::is_accepted(&early.read_packet()));
    let mut local = UnixStream::connect(&path).expect("the socket listens");
    local.set_read_timeout(Some(DEADLINE)).expect("a duration");
    local.write_all(&Connect::new(Version::V3_1_1, "local").bytes()).expect("the broker reads");
    let mut connack = [0; 4];
    local.read_exact(&mut connack).expect("the broker answers");
    assert!(packet::is_accepted(&connack), "{connack:02x?}");
    drop(broker);
    assert!(path.exists(), "the file is the service manager's");
}

#[test]
fn a_socket_that_is_not_passed_or_not_clear_is_an_error() {
    let rows = [
        ("systemd:lost", "mqtt:web", "no socket with this name"),
        ("systemd:mqtt", "mqtt:mqtt", "several sockets have this name"),
        ("systemd:mqtt", "mqtt:web", "the socket does not listen"),
    ];
    for (address, names, message) in rows {
        let directory = TempDir::new().expect("a temporary directory");
        let (connected, other) = UnixStream::pair().expect("two sockets");
        let sockets = [connected.into(), other.into()];
        let Output { status, stderr, .. } =
            program(&directory, &[address], names, sockets).output().expect("a shell");
        let text = String::from_utf8_lossy(&stderr);
        assert!(!status.success() && text.contains(message), "{address} of {names}: {text}");
    }
}
