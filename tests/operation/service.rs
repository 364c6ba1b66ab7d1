//! The service manager hears when clients can connect, that the broker lives, and that it ends.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::Command;

use pondhawk_tests::{DEADLINE, Program, pondhawk};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A broker for a service manager, and the socket at which the manager listens.
fn service(watchdog_usec: Option<u32>) -> (TempDir, UnixDatagram, Program) {
    let directory = TempDir::new().expect("there is a place for temporary files");
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket can be made");
    socket.set_read_timeout(Some(DEADLINE)).expect("a duration");
    let file = directory.path().join("pondhawk.toml");
    fs::write(&file, "[[listener]]\naddress = \"127.0.0.1:0\"\n").expect("a file can be written");
    let mut command = Command::new(pondhawk());
    command.env("NOTIFY_SOCKET", &path).env_remove("WATCHDOG_USEC").env_remove("WATCHDOG_PID");
    if let Some(usec) = watchdog_usec {
        command.env("WATCHDOG_USEC", usec.to_string());
    }
    command.args(["serve", "--in-memory", "-c"]).arg(file);
    (directory, socket, Program::start(command))
}

fn next(socket: &UnixDatagram) -> String {
    let mut bytes = [0; 1024];
    let length = socket.recv(&mut bytes).expect("the broker says something");
    String::from_utf8_lossy(&bytes[..length]).trim().to_owned()
}

fn terminate(program: &Program) {
    let pid = i32::try_from(program.process_id()).ok().and_then(Pid::from_raw).expect("a number");
    kill_process(pid, Signal::TERM).expect("the broker runs");
}

#[test]
fn the_watchdog_hears_of_the_broker_between_its_begin_and_its_end() {
    let (_directory, socket, program) = service(Some(200_000));
    assert_eq!(next(&socket), "READY=1");
    for _ in 0..3 {
        assert_eq!(next(&socket), "WATCHDOG=1");
    }
    terminate(&program);
    let last = std::iter::repeat_with(|| next(&socket)).find(|line| line != "WATCHDOG=1");
    assert_eq!(last.as_deref(), Some("STOPPING=1"));
}

#[test]
fn without_a_watchdog_nobody_is_told() {
    let (_directory, socket, program) = service(None);
    assert_eq!(next(&socket), "READY=1");
    terminate(&program);
    assert_eq!(next(&socket), "STOPPING=1");
}
