//! A server, played by a test over a stream in memory.

use client::{Client, ConnectError, Options, Version};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;
use wire::{ConnAck, Decoded, Limits, Packet, PacketId, Role, SubAck, SubAckReason, decode};

pub(crate) struct Peer {
    stream: DuplexStream,
    version: Version,
    input: Vec<u8>,
}

/// The end of the stream, where a packet was expected.
pub(crate) const END: &str = "end";

pub(crate) fn id(number: u16) -> PacketId {
    PacketId::new(number).expect("not 0")
}

impl Peer {
    /// A server, and a client that waits for its CONNACK.
    pub(crate) fn new(
        version: Version,
        options: Options,
    ) -> (Self, JoinHandle<Result<Client, ConnectError>>) {
        let (ours, theirs) = duplex(1 << 20);
        let client = tokio::spawn(Client::connect(theirs, options));
        (Self { stream: ours, version, input: Vec::new() }, client)
    }

    /// A server that has accepted a client.
    pub(crate) async fn accepted(version: Version) -> (Self, Client) {
        Self::accepted_with(version, Options::new(version).client_id("me")).await
    }

    pub(crate) async fn accepted_with(version: Version, options: Options) -> (Self, Client) {
        let (mut peer, client) = Self::new(version, options);
        assert!(peer.next().await.starts_with("CONNECT"));
        peer.send(ConnAck::accepted(false)).await;
        let client = client.await.expect("no panic").expect("it is accepted");
        (peer, client)
    }

    /// A server on a stream that a client has made itself.
    pub(crate) fn on(stream: DuplexStream, version: Version) -> Self {
        Self { stream, version, input: Vec::new() }
    }

    /// The next packet of the client, on one line.
    pub(crate) async fn next(&mut self) -> String {
        let limits = Limits { sender: Some(Role::Client), ..Limits::default() };
        loop {
            let is_connect = self.input.first().is_some_and(|first| first >> 4 == 1);
            let version = (!is_connect).then_some(self.version);
            if let Decoded::Packet { packet, len } = decode(&self.input, version, &limits).expect("in order")
            {
                let line = packet.to_string();
                self.input.drain(..len);
                return line;
            }
            if self.stream.read_buf(&mut self.input).await.expect("a stream in memory") == 0 {
                return END.to_owned();
            }
        }
    }

    pub(crate) async fn send<'p>(&mut self, packet: impl Into<Packet<'p>>) {
        let mut bytes = Vec::new();
        packet.into().encode(self.version, &mut bytes).expect("in order");
        self.stream.write_all(&bytes).await.expect("a stream in memory");
    }

    /// Answers the next SUBSCRIBE.
    pub(crate) async fn suback(&mut self, reason: SubAckReason) {
        let line = self.next().await;
        let number = line.strip_prefix("SUBSCRIBE id=").and_then(|rest| rest.split(' ').next());
        let packet_id = number.and_then(|number| number.parse().ok()).expect("a SUBSCRIBE");
        let reasons = [reason];
        let reasons = wire::OneOrMore::new(&reasons).expect("one");
        self.send(SubAck { packet_id: id(packet_id), properties: wire::AckProperties::EMPTY, reasons }).await;
    }
}
