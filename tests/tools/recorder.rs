//! Forwards the connections of a program to its broker, and records the origin, the way and the packets of each.
//!
//! A flag without an effect on the output has an effect on this record. A row of the table therefore fails if a
//! program ignores the flag.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use wire::{Binary, Decoded, Limits, Packet, Role, decode};

use crate::encrypted::{self, Certificates};
use crate::proxy;

/// The ports of 127.0.0.1 to which a program may connect. All of them lead to the same broker.
#[derive(Clone, Copy)]
pub(crate) struct Doors {
    pub(crate) plain: u16,
    /// A port for TLS, with a certificate for localhost.
    pub(crate) encrypted: u16,
    /// A port for TLS 1.2 only, with a certificate for another host.
    pub(crate) foreign: u16,
    /// A port for SOCKS5, which forwards to any destination.
    pub(crate) proxy: u16,
}

/// The record of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conversation {
    /// The origin of the connection, and the way that it took.
    pub(crate) way: String,
    pub(crate) packets: Vec<String>,
}

impl Conversation {
    /// Applies `neutral` to every text in the record.
    pub(crate) fn neutral(self, neutral: impl Fn(&str) -> String) -> Self {
        let packets = self.packets.iter().map(|packet| neutral(packet)).collect();
        Self { way: neutral(&self.way), packets }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Plain,
    Encrypted,
    Foreign,
    Proxy,
}

/// Runs a program with the ports of the recorder, and waits for its end. Also returns the record of its
/// connections, ordered by port and then by time.
pub(crate) fn record<T: Send>(
    broker: u16,
    certificates: &Certificates,
    program: impl FnOnce(&Doors) -> T + Send,
) -> (T, Vec<Conversation>) {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be made");
    let listen = || async { TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port") };
    let listeners: [TcpListener; 4] =
        runtime.block_on(async { [listen().await, listen().await, listen().await, listen().await] });
    let port = |listener: &TcpListener| listener.local_addr().expect("it is bound").port();
    let [plain, encrypted, foreign, proxy] = listeners.each_ref().map(port);
    let doors = Doors { plain, encrypted, foreign, proxy };
    let (over, is_over) = watch::channel(());
    thread::scope(|scope| {
        let running = scope.spawn(|| {
            let outcome = program(&doors);
            drop(over);
            outcome
        });
        let conversations = runtime.block_on(async {
            let kinds = [Kind::Plain, Kind::Encrypted, Kind::Foreign, Kind::Proxy];
            let mut guards = JoinSet::new();
            for (listener, kind) in listeners.into_iter().zip(kinds) {
                let guard = Guard { kind, broker, certificates: certificates.clone(), doors };
                guards.spawn(guard.receive(listener, is_over.clone()));
            }
            let mut conversations = guards.join_all().await.concat();
            conversations.sort_by_key(|(place, _)| *place);
            conversations
        });
        let outcome = running.join().expect("a program that does not run says why");
        (outcome, conversations.into_iter().map(|(_, conversation)| conversation).collect())
    })
}

/// Accepts the connections at one of the ports.
#[derive(Clone)]
struct Guard {
    kind: Kind,
    broker: u16,
    certificates: Certificates,
    doors: Doors,
}

impl Guard {
    /// Accepts connections until the program has ended, and forwards each of them to its end.
    ///
    /// The guard makes a last connection itself. Connections are accepted in order, so that none of the program's
    /// follows it.
    async fn receive(
        self,
        listener: TcpListener,
        mut is_over: watch::Receiver<()>,
    ) -> Vec<((Kind, usize), Conversation)> {
        let mut carried = JoinSet::new();
        let mut take = |(stream, from): (TcpStream, SocketAddr)| {
            let (guard, place) = (self.clone(), (self.kind, carried.len()));
            carried.spawn(async move { (place, guard.carry(stream, from).await) });
        };
        loop {
            tokio::select! {
                accepted = listener.accept() => take(accepted.expect("a connection can be taken")),
                _ = is_over.changed() => break,
            }
        }
        let address = listener.local_addr().expect("it is bound");
        let last = TcpStream::connect(address).await.expect("it listens");
        loop {
            let (stream, from) = listener.accept().await.expect("a connection can be taken");
            if from == last.local_addr().expect("it is connected") {
                break;
            }
            take((stream, from));
        }
        carried.join_all().await
    }

    /// Forwards a connection to its end, and returns its record.
    async fn carry(self, stream: TcpStream, from: SocketAddr) -> Conversation {
        let from = from.ip();
        match self.kind {
            Kind::Plain => {
                let packets = packets(&forward(stream, self.broker).await);
                Conversation { way: format!("from {from}"), packets }
            }
            Kind::Encrypted | Kind::Foreign => {
                let is_foreign = matches!(self.kind, Kind::Foreign);
                match encrypted::accept(stream, &self.certificates, is_foreign).await {
                    Ok((stream, way)) => {
                        let packets = packets(&forward(stream, self.broker).await);
                        Conversation { way: format!("from {from}, {way}"), packets }
                    }
                    Err(why) => Conversation { way: why, packets: Vec::new() },
                }
            }
            Kind::Proxy => {
                let Doors { plain, encrypted, .. } = self.doors;
                let way = proxy::lead(stream).await;
                let way = way.replace(&plain.to_string(), "$PORT").replace(&encrypted.to_string(), "$TLS");
                Conversation { way, packets: Vec::new() }
            }
        }
    }
}

/// Forwards bytes in both directions, and returns the bytes of the client.
async fn forward(client: impl AsyncRead + AsyncWrite, broker: u16) -> Vec<u8> {
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, broker)).await.expect("the broker listens");
    let (mut from_client, mut to_client) = split(client);
    let (mut from_server, mut to_server) = server.into_split();
    let mut said = Vec::new();
    let up = async {
        let mut bytes = [0; 4_096];
        // A failure at the end of the connection has no effect.
        while let Ok(count @ 1..) = from_client.read(&mut bytes).await {
            said.extend_from_slice(&bytes[..count]);
            let _ = to_server.write_all(&bytes[..count]).await;
        }
        let _ = to_server.shutdown().await;
    };
    let down = async {
        let _ = copy(&mut from_server, &mut to_client).await;
        let _ = to_client.shutdown().await;
    };
    tokio::join!(up, down);
    said
}

/// Returns a line for each packet of a client, with all its fields.
fn packets(mut said: &[u8]) -> Vec<String> {
    let mut packets = Vec::new();
    let mut version = None;
    let limits = Limits { sender: Some(Role::Client), ..Limits::default() };
    while !said.is_empty() {
        match decode(said, version, &limits) {
            Ok(Decoded::Packet { packet, len }) => {
                if let Packet::Connect(connect) = &packet {
                    version = Some(connect.version());
                }
                packets.push(without_what_is_not_there(&format!("{packet:?}{}", hidden(&packet))));
                said = &said[len..];
            }
            other => {
                packets.push(format!("no packet ({other:?}): {said:02x?}"));
                break;
            }
        }
    }
    packets
}

/// Returns the fields that a packet's debug output hides.
fn hidden(packet: &Packet<'_>) -> String {
    let shown = |what: &str, bytes: Option<Binary<'_>>| {
        bytes.map_or(String::new(), |bytes| format!(", {what} \"{}\"", bytes.as_bytes().escape_ascii()))
    };
    match packet {
        Packet::Connect(connect) => [
            shown("password", connect.password()),
            shown("will", connect.will.map(|will| will.payload)),
            shown("will correlation data", connect.will.and_then(|will| will.properties.correlation_data)),
            shown("authentication data", connect.properties.authentication_data),
        ]
        .concat(),
        Packet::Publish(publish) => shown("correlation data", publish.properties.correlation_data),
        _ => String::new(),
    }
}

/// Removes absent properties, which are the majority, to make the line readable.
fn without_what_is_not_there(packet: &str) -> String {
    let mut short = packet.to_owned();
    for nothing in ["None", "[]"] {
        while let Some(end) = short.find(&format!(": {nothing}")) {
            let begin = short[..end].rfind([' ', '{', '(']).map_or(0, |at| at + 1);
            let behind = end + 2 + nothing.len();
            let behind = behind + if short[behind..].starts_with(", ") { 2 } else { 0 };
            short.replace_range(begin..behind, "");
        }
    }
    short
}

#[test]
fn all_that_is_in_a_packet_is_told() {
    let connect = &b"\x10\x17\0\x04MQTT\x05\xc2\0\x3c\x03\x21\0\x05\0\x02me\0\0\0\x01p"[..];
    let [told] = &packets(connect)[..] else { panic!("one packet") };
    for part in
        ["V5", "\"me\"", "clean_start: true", "keep_alive_secs: 60", "receive_maximum: Some(5)", "user_name"]
    {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!told.contains("None"), "{told}");
    let more = [connect, &b"\xc0\0\xe0\0\x30"[..]].concat();
    assert_eq!(packets(&more).len(), 4, "what is not whole is told too");
}
