//! The floor under attacks that only connect: a server that refuses every CONNECT with as few system calls as possible.
//!
//! An attack on it beside the measured server shows the part of the harm that the machine and the generator do. Each
//! connection costs accept, one read, one write and close; the poller is asked only for connections without bytes.

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::net::SocketAddr;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use slab::Slab;

use crate::error::{Error, Result};
use crate::relay::{LISTENER, watched_listener};

/// Events taken from the kernel at a time.
const EVENTS_PER_TURN: usize = 1024;

/// Bytes read of a connection; a CONNECT of an attacker is shorter.
const READ_LEN: usize = 4096;

/// CONNACK of MQTT 5.0 with the reason code 0x86, Bad User Name or Password (3.2.2.2).
const REFUSAL: [u8; 5] = [0x20, 3, 0, 0x86, 0];

/// A decoy that is ready to run.
#[derive(Debug)]
pub(crate) struct Decoy {
    poll: Poll,
    listener: TcpListener,
    /// Connections whose CONNECT has not come yet.
    silent: Slab<TcpStream>,
}

impl Decoy {
    /// Listens on `address`.
    ///
    /// # Errors
    /// If the address is taken.
    pub(crate) fn bind(address: SocketAddr) -> Result<Self> {
        let (poll, listener) = watched_listener(address)?;
        Ok(Self { poll, listener, silent: Slab::new() })
    }

    /// The address that the decoy listens on; asked for by tests, which let the system choose the port.
    ///
    /// # Errors
    /// If the system does not know it.
    #[cfg(test)]
    pub(crate) fn local_address(&self) -> Result<SocketAddr> {
        self.listener.local_addr().map_err(Error::io("read the decoy's address"))
    }

    /// Refuses clients for as long as the process lives.
    ///
    /// # Errors
    /// If the system has no descriptors left.
    pub(crate) fn run(mut self) -> Result<Infallible> {
        let mut events = Events::with_capacity(EVENTS_PER_TURN);
        loop {
            match self.poll.poll(&mut events, None) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    return Err(Error::io("poll")(error));
                }
                _ => {}
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.accept().map_err(Error::io("accept a connection"))?,
                    Token(key) => self.hear(key),
                }
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let mut stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            if !refuse(&mut stream) {
                let entry = self.silent.vacant_entry();
                self.poll.registry().register(&mut stream, Token(entry.key()), Interest::READABLE)?;
                entry.insert(stream);
            }
        }
    }

    /// A silent connection has bytes, or its end.
    fn hear(&mut self, key: usize) {
        if self.silent.get_mut(key).is_some_and(refuse) {
            self.silent.remove(key);
        }
    }
}

/// Answers a CONNECT, if there is one. Returns whether the connection is over.
fn refuse(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; READ_LEN]) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
        Ok(0) | Err(_) => true,
        Ok(_) => {
            // The client may have gone.
            let _ = stream.write(&REFUSAL);
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_client_is_refused_at_once_or_when_it_speaks() {
        let decoy = Decoy::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = decoy.local_address().unwrap();
        thread::spawn(|| decoy.run());
        let mut clients: Vec<_> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
        // The last one to connect speaks first: the others are silent for a while.
        for client in clients.iter_mut().rev() {
            client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            client.write_all(&[0x10, 0]).unwrap();
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).unwrap();
            assert_eq!(answer, REFUSAL);
        }
    }
}
