//! A TLS client that keeps the rules, or damages its own records.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use pondhawk_tests::{Random, pondhawk};
use tempfile::TempDir;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, Error, RootCertStore};

use crate::mutation;

/// The certificates of the broker, and the clients that trust them.
pub(crate) struct Authority {
    /// Clients of TLS 1.2 and 1.3, with and without resumption.
    clients: Vec<Arc<ClientConfig>>,
    directory: TempDir,
}

impl Authority {
    /// Makes certificates with the program under test.
    ///
    /// # Errors
    /// If the program fails, or its certificate cannot be used.
    pub(crate) fn new() -> Result<Self, String> {
        let directory = TempDir::new().map_err(|error| error.to_string())?;
        let mut program = Command::new(pondhawk());
        program.args(["certs", "init"]).arg(directory.path()).args(["--host", "localhost"]);
        let made = program.output().map_err(|error| error.to_string())?;
        if !made.status.success() {
            return Err(format!("certs init: {}", String::from_utf8_lossy(&made.stderr)));
        }
        let clients = clients(&directory.path().join("ca.pem"))?;
        Ok(Self { clients, directory })
    }

    /// The lines of a listener with TLS.
    pub(crate) fn listener(&self) -> String {
        let file = |name: &str| self.directory.path().join(name).display().to_string();
        let (certificate, key) = (file("server.pem"), file("server.key"));
        format!(
            "[[listener]]\naddress = \"127.0.0.1:0\"\ntls_certificate = {certificate:?}\ntls_key = {key:?}\n"
        )
    }
}

fn clients(authority: &Path) -> Result<Vec<Arc<ClientConfig>>, String> {
    let certificate = CertificateDer::from_pem_file(authority).map_err(|error| error.to_string())?;
    let mut roots = RootCertStore::empty();
    roots.add(certificate).map_err(|error| error.to_string())?;
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let mut clients = Vec::new();
    for version in [&TLS12, &TLS13] {
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[version])
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots.clone())
            .with_no_client_auth();
        let mut anew = client.clone();
        anew.resumption = Resumption::disabled();
        clients.extend([Arc::new(client), Arc::new(anew)]);
    }
    Ok(clients)
}

/// A connection over TLS.
pub(crate) struct Secure {
    socket: TcpStream,
    tls: ClientConnection,
    random: Random,
    /// One in this number of flights is damaged. `None` keeps the rules.
    damage: Option<usize>,
    is_damaged: bool,
    /// The end of the stream was sent.
    is_ended: bool,
    /// Records that wait for the socket.
    records: Vec<u8>,
}

impl Secure {
    /// Connects. Returns `None` if the broker has refused damaged records.
    ///
    /// # Errors
    /// If the handshake fails although nothing was damaged.
    pub(crate) fn connect(
        socket: TcpStream,
        authority: &Authority,
        random: &mut Random,
    ) -> Result<Option<Self>, String> {
        let client = &authority.clients[random.below(authority.clients.len())];
        let name = ServerName::try_from("localhost").map_err(|error| error.to_string())?;
        let tls = ClientConnection::new(Arc::clone(client), name).map_err(|error| error.to_string())?;
        let damage = [None, None, Some(2), Some(8)][random.below(4)];
        let mut secure = Self {
            socket,
            tls,
            random: random.clone(),
            damage,
            is_damaged: false,
            is_ended: false,
            records: Vec::new(),
        };
        secure.tls.set_buffer_limit(None);
        random.next();
        match secure.shake_hands() {
            Ok(()) => Ok(Some(secure)),
            Err(error) if secure.is_damaged && error.kind() != ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(format!("the handshake: {error}")),
        }
    }

    fn shake_hands(&mut self) -> io::Result<()> {
        while self.tls.is_handshaking() {
            self.flush()?;
            if self.is_damaged {
                // The broker may wait for the rest of a record.
                self.socket.shutdown(Shutdown::Write)?;
                while self.receive()? != 0 {}
                return Err(ErrorKind::UnexpectedEof.into());
            }
            if self.tls.is_handshaking() && self.receive()? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Sends close_notify most of the time.
    pub(crate) fn end(&mut self) {
        self.is_ended = true;
        if !self.random.one_in(4) {
            self.tls.send_close_notify();
        }
        // The broker may have ended the connection already.
        let _ = self.flush();
    }

    /// Reads from the socket once. Returns 0 at the end of the stream.
    fn receive(&mut self) -> io::Result<usize> {
        let length = self.tls.read_tls(&mut self.socket)?;
        match self.tls.process_new_packets() {
            Ok(_) => Ok(length),
            // An alert of the broker is the answer to damaged records. Damage in a handshake may have another answer.
            Err(Error::AlertReceived(_)) if self.is_damaged => Ok(0),
            Err(_) if self.is_damaged && self.tls.is_handshaking() => Ok(0),
            Err(error) => Err(io::Error::new(ErrorKind::InvalidData, error)),
        }
    }
}

impl Read for Secure {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.tls.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // A client that keeps the rules receives close_notify before the end.
                Err(error)
                    if error.kind() == ErrorKind::UnexpectedEof && (self.is_damaged || self.is_ended) =>
                {
                    return Ok(0);
                }
                outcome => return outcome,
            }
            if self.receive()? == 0 && self.is_damaged {
                return Ok(0);
            }
        }
    }
}

impl Write for Secure {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.tls.writer().write(bytes)
    }

    /// Sends the records, damaged or not, in one piece or cut somewhere.
    fn flush(&mut self) -> io::Result<()> {
        let waiting = self.records.len();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.records)?;
        }
        if self.records.len() > waiting && self.damage.is_some_and(|times| self.random.one_in(times)) {
            let before = self.records.clone();
            mutation::damage(&mut self.random, &mut self.records);
            self.is_damaged |= self.records != before;
        }
        let mut cut = if self.random.one_in(4) { self.random.below(self.records.len() + 1) } else { 0 };
        while !self.records.is_empty() {
            let end = if cut == 0 { self.records.len() } else { cut };
            // The socket may have no room now. The rest of the records goes first next time.
            let written = self.socket.write(&self.records[..end])?;
            self.records.drain(..written);
            cut = cut.saturating_sub(written);
        }
        Ok(())
    }
}
