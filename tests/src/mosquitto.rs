//! Mosquitto, as Debian has it, in a process of its own.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::Program;

/// Where Debian keeps servers, which is not on every user's path.
const OF_THE_SYSTEM: &str = "/usr/sbin/mosquitto";

/// A running Mosquitto, ended when this is dropped. Its log is shown if the test fails.
#[derive(Debug)]
pub struct Mosquitto {
    _program: Program,
    address: SocketAddr,
    _configuration: TempDir,
}

impl Mosquitto {
    /// Starts it on a free port of 127.0.0.1, and waits until it listens. Anybody may connect, no queue drops
    /// anything, and nothing waits for more to be sent with it; else it is as it comes, but for these lines of its configuration.
    ///
    /// # Panics
    /// When it is not installed, or does not listen before the deadline.
    pub fn start(settings: &str) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = free.expect("there is a free port");
        // Where root starts it, it stays root: another user could not read what a test gives it.
        let text = format!(
            "listener {} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\nset_tcp_nodelay true\nuser root\nlog_dest stderr\n{settings}",
            address.port()
        );
        let configuration = TempDir::new().expect("there is a place for temporary files");
        let path = configuration.path().join("mosquitto.conf");
        fs::write(&path, text).expect("a temporary file can be written");
        let is_there = Path::new(OF_THE_SYSTEM).exists();
        let mut command = Command::new(if is_there { OF_THE_SYSTEM } else { "mosquitto" });
        command.arg("-c").arg(path);
        let program = Program::start(command);
        program.wait_for(" running");
        Self { _program: program, address, _configuration: configuration }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
