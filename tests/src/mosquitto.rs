//! Mosquitto in the version of Debian, in a process of its own.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::{Program, free_port};

/// The path at which Debian installs the server. The folder is not in every user's path.
const OF_THE_SYSTEM: &str = "/usr/sbin/mosquitto";

/// A running Mosquitto, which is killed on drop. Its log is shown if the test fails.
#[derive(Debug)]
pub struct Mosquitto {
    program: Program,
    address: SocketAddr,
    _configuration: TempDir,
}

impl Mosquitto {
    /// Starts Mosquitto on a free port of 127.0.0.1, and waits until it listens.
    ///
    /// Anybody may connect, queues have no limit, and small packets are sent without delay. All other settings are
    /// Mosquitto's defaults, except the lines in `settings`.
    ///
    /// # Panics
    /// If Mosquitto is not installed, or does not listen before the deadline.
    pub fn start(settings: &str) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        // A server that root starts keeps running as root. Another user could not read the test's files.
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
        Self { program, address, _configuration: configuration }
    }

    /// Stops Mosquitto in order, and waits for its end.
    ///
    /// # Panics
    /// If Mosquitto does not end with success.
    pub fn stop(self) {
        self.program.terminate();
        self.program.finish();
    }

    /// The address at which Mosquitto listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
