//! A server that plays a script on each of its connections, over any of its layers.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::bytes::{connack, frame, numbered, packet};

/// Time for which a step of a script waits for the client at most.
const PAUSE: Duration = Duration::from_millis(300);

/// Time between two bytes that are sent one by one.
const BETWEEN_BYTES: Duration = Duration::from_millis(30);

/// The way of the clients to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Tcp,
    Tls,
    WebSocket,
}

/// The lowest layer that a script plays. The layers below it behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layer {
    Mqtt,
    /// Frames, after the handshake.
    Frames,
    /// The answer to the request of WebSocket.
    Http,
    /// The records of TLS.
    Records,
}

/// A step of a script.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Waits for a packet of the client with this type.
    Hear(u8),
    /// Sends these bytes to the client.
    Say(Vec<u8>),
    /// Sends bytes that depend on the packet identifier of the last packet heard.
    Answer(fn(u16) -> Vec<u8>),
    /// Sends bytes one by one.
    Trickle(Vec<u8>),
    /// Sends bytes again and again, this many in total, and reads nothing.
    Flood(Vec<u8>, usize),
    /// Sends bytes again and again, this many in total, and reads what the client sends.
    FloodAndRead(Vec<u8>, usize),
    /// Answers each packet as a broker does, until the client is silent.
    Behave,
    /// Ends its own direction of the connection.
    HalfClose,
    /// Closes the whole connection.
    Close,
    /// Neither reads nor writes any more.
    Deaf,
}

/// The certificates of a server for `localhost`.
#[derive(Clone)]
pub(crate) struct Certificates {
    acceptor: TlsAcceptor,
    /// The certificate in PEM, which clients trust.
    pub(crate) pem: String,
}

impl Certificates {
    pub(crate) fn new() -> Self {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate can be made");
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let config = ServerConfig::builder().with_no_client_auth();
        let config = config.with_single_cert(vec![made.cert.der().clone()], key).expect("they fit");
        Self { acceptor: TlsAcceptor::from(Arc::new(config)), pem: made.cert.pem() }
    }
}

pub(crate) struct Server {
    listener: TcpListener,
    pub(crate) port: u16,
}

impl Server {
    pub(crate) async fn bind() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        Self { listener, port }
    }

    /// Plays the script on each connection, without end.
    pub(crate) async fn play(
        self,
        way: Way,
        layer: Layer,
        script: &'static [Step],
        certificates: Certificates,
    ) {
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let Ok((stream, _)) = self.listener.accept().await else { continue };
            let acceptor = certificates.acceptor.clone();
            connections.spawn(async move {
                // The client may end the connection at any time.
                let _ = carry(stream, way, layer, script, acceptor).await;
            });
        }
    }
}

async fn carry(
    stream: TcpStream,
    way: Way,
    layer: Layer,
    script: &[Step],
    acceptor: TlsAcceptor,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    match (way, layer) {
        (Way::Tls, Layer::Mqtt) => Connection::new(acceptor.accept(stream).await?, false).play(script).await,
        (Way::WebSocket, Layer::Mqtt | Layer::Frames) => {
            let mut connection = Connection::new(stream, layer == Layer::Mqtt);
            connection.shake_hands().await?;
            connection.play(script).await
        }
        (Way::WebSocket, Layer::Http) => {
            let mut connection = Connection::new(stream, false);
            connection.request().await?;
            connection.play(script).await
        }
        _ => Connection::new(stream, false).play(script).await,
    }
}

struct Connection<S> {
    stream: S,
    /// Packets travel in WebSocket frames.
    is_framed: bool,
    raw: Vec<u8>,
    packets: Vec<u8>,
    /// Packet identifier of the last packet that had one.
    id: u16,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    fn new(stream: S, is_framed: bool) -> Self {
        Self { stream, is_framed, raw: Vec::new(), packets: Vec::new(), id: 1 }
    }

    /// Reads a request of HTTP.
    async fn request(&mut self) -> io::Result<String> {
        while !self.raw.ends_with(b"\r\n\r\n") {
            if self.stream.read_buf(&mut self.raw).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(String::from_utf8_lossy(&std::mem::take(&mut self.raw)).into_owned())
    }

    async fn shake_hands(&mut self) -> io::Result<()> {
        let request = self.request().await?;
        let key = request.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("sec-websocket-key").then(|| value.to_owned())
        });
        let accept = derive_accept_key(key.unwrap_or_default().as_bytes());
        let answer = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
        );
        self.stream.write_all(answer.as_bytes()).await
    }

    async fn play(&mut self, script: &[Step]) -> io::Result<()> {
        for step in script {
            match step {
                Step::Hear(kind) => {
                    let _ = timeout(2 * PAUSE, self.hear(*kind)).await;
                }
                Step::Say(bytes) => self.say(bytes).await?,
                Step::Answer(bytes) => self.say(&bytes(self.id)).await?,
                Step::Trickle(bytes) => {
                    for byte in bytes {
                        self.say(&[*byte]).await?;
                        let _ = timeout(BETWEEN_BYTES, std::future::pending::<()>()).await;
                    }
                }
                Step::Flood(bytes, total) => {
                    let bytes = bytes.repeat((64 << 10) / bytes.len().min(64 << 10));
                    for _ in 0..total.div_ceil(bytes.len()) {
                        match timeout(PAUSE, self.say(&bytes)).await {
                            Ok(said) => said?,
                            Err(_) => break,
                        }
                    }
                }
                Step::FloodAndRead(bytes, total) => self.flood_and_read(bytes, *total).await?,
                Step::Behave => {
                    while let Ok(Ok(Some(packet))) = timeout(4 * PAUSE, self.next()).await {
                        self.behave(&packet).await?;
                    }
                }
                Step::HalfClose => self.stream.shutdown().await?,
                Step::Close => return Ok(()),
                Step::Deaf => std::future::pending().await,
            }
        }
        while self.stream.read_buf(&mut self.raw).await? > 0 {
            self.raw.clear();
        }
        Ok(())
    }

    async fn flood_and_read(&mut self, bytes: &[u8], total: usize) -> io::Result<()> {
        let bytes = bytes.repeat((64 << 10) / bytes.len().min(64 << 10));
        let bytes = if self.is_framed { frame(0x82, &bytes) } else { bytes };
        let (mut reader, mut writer) = tokio::io::split(&mut self.stream);
        let read = async {
            let mut heard = vec![0; 64 << 10];
            while reader.read(&mut heard).await? > 0 {}
            Ok(())
        };
        let write = async {
            for _ in 0..total.div_ceil(bytes.len()) {
                writer.write_all(&bytes).await?;
            }
            Ok(())
        };
        tokio::select! { done = read => done, done = write => done }
    }

    async fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.is_framed {
            self.stream.write_all(&frame(0x82, bytes)).await?;
        } else {
            self.stream.write_all(bytes).await?;
        }
        self.stream.flush().await
    }

    /// Waits for a packet of this type.
    async fn hear(&mut self, kind: u8) -> io::Result<()> {
        while let Some(packet) = self.next().await? {
            if packet[0] >> 4 == kind {
                break;
            }
        }
        Ok(())
    }

    /// The client's next packet; `None` at the end.
    async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(length) = length_of(&self.packets) {
                let packet: Vec<u8> = self.packets.drain(..length).collect();
                self.id = id_of(&packet).unwrap_or(self.id);
                return Ok(Some(packet));
            }
            if self.stream.read_buf(&mut self.raw).await? == 0 {
                return Ok(None);
            }
            if self.is_framed {
                while let Some((payload, length)) = unmasked(&self.raw) {
                    self.raw.drain(..length);
                    self.packets.extend(payload);
                }
            } else {
                self.packets.append(&mut self.raw);
            }
        }
    }

    /// Answers a packet as a broker of MQTT 5 does. A message of the client also comes back to it.
    async fn behave(&mut self, heard: &[u8]) -> io::Result<()> {
        let id = self.id;
        match heard[0] >> 4 {
            1 => self.say(&connack(&[])).await,
            3 => {
                let qos = heard[0] >> 1 & 3;
                if qos > 0 {
                    self.say(&numbered(if qos == 1 { 0x40 } else { 0x50 }, id)).await?;
                }
                let echo = [&[heard[0] & 0xf9][..], &heard[1..]].concat();
                if qos == 0 { self.say(&echo).await } else { Ok(()) }
            }
            5 => self.say(&numbered(0x62, id)).await,
            6 => self.say(&numbered(0x70, id)).await,
            8 => {
                let granted = [&id.to_be_bytes()[..], &[0, heard.last().map_or(0, |options| options & 3)]];
                self.say(&packet(0x90, &granted.concat())).await
            }
            10 => self.say(&packet(0xb0, &[&id.to_be_bytes()[..], &[0, 0]].concat())).await,
            12 => self.say(&[0xd0, 0]).await,
            _ => Ok(()),
        }
    }
}

/// Length of the first packet, if all of it is there.
fn length_of(bytes: &[u8]) -> Option<usize> {
    let (_, rest) = bytes.split_first()?;
    let mut body = 0;
    for (place, byte) in rest.iter().take(4).enumerate() {
        body |= usize::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            let length = place + 2 + body;
            return (bytes.len() >= length).then_some(length);
        }
    }
    None
}

/// Packet identifier of a packet, if it has one.
fn id_of(packet: &[u8]) -> Option<u16> {
    let begin = 1 + packet.iter().skip(1).position(|byte| byte & 0x80 == 0)? + 1;
    let body = packet.get(begin..)?;
    let at = match packet[0] >> 4 {
        3 if packet[0] & 6 == 0 => return None,
        3 => 2 + usize::from(u16::from_be_bytes(*body.first_chunk()?)),
        4..=11 => 0,
        _ => return None,
    };
    Some(u16::from_be_bytes(*body.get(at..)?.first_chunk()?))
}

/// Payload of the client's first frame, and the length of the frame, if all of it is there.
fn unmasked(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (length, begin) = match bytes.get(1)? & 0x7f {
        126 => (usize::from(u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?)), 4),
        127 => (usize::try_from(u64::from_be_bytes(*bytes.get(2..)?.first_chunk()?)).ok()?, 10),
        short => (usize::from(short), 2),
    };
    let mask: [u8; 4] = *bytes.get(begin..)?.first_chunk()?;
    let payload = bytes.get(begin + 4..begin + 4 + length)?;
    let is_data = bytes[0] & 0x0f <= 2;
    let payload = payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask);
    Some((payload.filter(|_| is_data).collect(), begin + 4 + length))
}
