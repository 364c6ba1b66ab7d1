//! Connections over TCP, TLS, WebSocket and Unix sockets, on which a test controls every packet.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use pondhawk_tests::DEADLINE;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::case::Door;

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// A connection through a door.
pub(crate) struct Wire {
    stream: Box<dyn Stream>,
    is_web: bool,
    /// Bytes of frames that have not come whole.
    frames: Vec<u8>,
    received: Vec<u8>,
}

/// Opens a connection through a door. `identity` is the name of a client certificate.
pub(crate) fn open(
    directory: &Path,
    door: Door,
    port: u16,
    identity: Option<&str>,
    is_web: bool,
) -> io::Result<Wire> {
    let stream: Box<dyn Stream> = if door.port == 0 {
        let socket = UnixStream::connect(directory.join("socket"))?;
        socket.set_read_timeout(Some(DEADLINE))?;
        Box::new(socket)
    } else {
        let socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_read_timeout(Some(DEADLINE))?;
        socket.set_nodelay(true)?;
        if door.is_tls { Box::new(tls(directory, socket, identity)?) } else { Box::new(socket) }
    };
    let mut wire = Wire { stream, is_web, frames: Vec::new(), received: Vec::new() };
    if is_web {
        wire.upgrade()?;
    }
    Ok(wire)
}

fn tls(
    directory: &Path,
    socket: TcpStream,
    identity: Option<&str>,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(directory.join("ca.pem")).expect("the test has written it");
    roots.add(authority).expect("it is a certificate");
    let config = ClientConfig::builder().with_root_certificates(roots);
    let config = match identity {
        None => config.with_no_client_auth(),
        Some(name) => {
            let file = |ending: &str| directory.join(format!("{name}.{ending}"));
            let chain = vec![CertificateDer::from_pem_file(file("pem")).expect("the test has written it")];
            let key = PrivateKeyDer::from_pem_file(file("key")).expect("the test has written it");
            config.with_client_auth_cert(chain, key).expect("the key fits")
        }
    };
    let name = ServerName::try_from("localhost").expect("a name");
    let session = ClientConnection::new(Arc::new(config), name).expect("a configuration");
    let mut stream = StreamOwned::new(session, socket);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

impl Wire {
    fn upgrade(&mut self) -> io::Result<()> {
        let request = "GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                       Sec-WebSocket-Protocol: mqtt\r\n\r\n";
        self.stream.write_all(request.as_bytes())?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.stream.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        if head.starts_with(b"HTTP/1.1 101") { Ok(()) } else { Err(io::ErrorKind::ConnectionRefused.into()) }
    }

    /// Sends a packet. A closed connection is found by the next read.
    pub(crate) fn send(&mut self, packet: &[u8]) {
        let mut bytes = packet.to_vec();
        if self.is_web {
            let length =
                u8::try_from(packet.len()).ok().filter(|length| *length < 126).expect("a short packet");
            // A key of zeros masks nothing.
            bytes = [&[0x82, 0x80 | length, 0, 0, 0, 0], packet].concat();
        }
        let _ = self.stream.write_all(&bytes).and_then(|()| self.stream.flush());
    }

    /// Returns the next packet, or `None` if the connection is closed.
    ///
    /// # Panics
    /// If neither happens before the deadline.
    pub(crate) fn read(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(length) = packet_length(&self.received) {
                return Some(self.received.drain(..length).collect());
            }
            let mut bytes = [0; 4096];
            let read = self.stream.read(&mut bytes);
            match read {
                Ok(0) => return None,
                Ok(length) if self.is_web => {
                    // A packet may come together with the end.
                    if self.unframe(&bytes[..length]).is_none() && packet_length(&self.received).is_none() {
                        return None;
                    }
                }
                Ok(length) => self.received.extend(&bytes[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    panic!("nothing before the deadline")
                }
                Err(_) => return None,
            }
        }
    }

    /// Takes the payload of frames. `None` after a close frame.
    fn unframe(&mut self, bytes: &[u8]) -> Option<()> {
        self.frames.extend(bytes);
        while let [first, length, ..] = self.frames[..] {
            let (begin, length) = match length {
                126 if self.frames.len() < 4 => break,
                126 => (4, usize::from(u16::from_be_bytes([self.frames[2], self.frames[3]]))),
                length => (2, usize::from(length)),
            };
            if first & 0x0F == 8 {
                return None;
            }
            if self.frames.len() < begin + length {
                break;
            }
            self.received.extend(&self.frames[begin..begin + length]);
            self.frames.drain(..begin + length);
        }
        Some(())
    }
}

/// The length of the packet at the beginning, if it is there.
fn packet_length(bytes: &[u8]) -> Option<usize> {
    let mut length = 0;
    for (index, byte) in bytes.iter().skip(1).take(4).enumerate() {
        length |= usize::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            let whole = 2 + index + length;
            return (bytes.len() >= whole).then_some(whole);
        }
    }
    None
}
