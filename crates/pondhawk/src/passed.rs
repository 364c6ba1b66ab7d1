//! Sockets that a service manager has made and passes to this process (sd_listen_fds(3)).

use std::io;

use listenfd::ListenFd;
use net::Acceptor;

/// The sockets that were passed and are not taken yet.
pub(crate) struct Passed {
    sockets: ListenFd,
    /// Names in the order of the sockets.
    names: Vec<String>,
}

impl Passed {
    /// Reads the environment, and removes the variables. No other thread may run.
    pub(crate) fn from_environment() -> Self {
        // They are for this process only, which `LISTEN_PID` says. listenfd would do without.
        let is_ours = std::env::var("LISTEN_PID").is_ok_and(|id| id.parse() == Ok(std::process::id()));
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let sockets = if is_ours { ListenFd::from_env() } else { ListenFd::empty() };
        Self { sockets, names: names.split(':').map(str::to_owned).collect() }
    }

    /// Takes the socket with this name.
    ///
    /// # Errors
    /// No socket has the name, several have it, or the socket is no TCP or Unix socket that listens.
    pub(crate) fn take(&mut self, name: &str) -> io::Result<Acceptor> {
        let passed = self.names.iter().take(self.sockets.len());
        let mut places = passed.enumerate().filter_map(|(place, of)| (of == name).then_some(place));
        let place = match (places.next(), places.next()) {
            (Some(place), None) => place,
            (Some(_), Some(_)) => {
                return Err(other("several sockets have this name; `FileDescriptorName=` tells them apart"));
            }
            (None, _) => {
                return Err(other(
                    "the service manager passes no socket with this name (`FileDescriptorName=`)",
                ));
            }
        };
        // A socket of another kind stays where it is.
        if let Ok(Some(socket)) = self.sockets.take_tcp_listener(place) {
            return Acceptor::passed_tcp(socket);
        }
        match self.sockets.take_unix_listener(place)? {
            Some(socket) => Acceptor::passed_unix(socket),
            None => Err(other("the socket is used by another listener")),
        }
    }
}

fn other(text: &str) -> io::Error {
    io::Error::other(text)
}
