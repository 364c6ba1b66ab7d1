//! A server that a test plays over a stream in memory.

use std::time::Duration;

use pondhawk_client::{Client, ConnectError, Endpoint, Options, Version, filter, topic};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use wire::{ConnAck, Decoded, Limits, Packet, PacketId, Role, SubAck, SubAckReason, decode};

pub(crate) struct Peer<S = DuplexStream> {
    stream: S,
    version: Version,
    input: Vec<u8>,
}

/// A payload that exceeds the size of a read, a WebSocket frame and a TLS record.
pub(crate) static LARGE: [u8; 100_000] = [b'x'; 100_000];

/// The client's part of [`Peer::converse`].
pub(crate) async fn converse(endpoint: Endpoint) {
    let client = Client::connect_to(endpoint, Options::new(Version::V5)).await.expect("it is accepted");
    let mut answers =
        client.subscribe(filter!("answer"), pondhawk_client::Qos::AtMostOnce).await.expect("granted");
    let question = pondhawk_client::Outgoing::new(topic!("question"), &LARGE);
    client.publish(&question).await.expect("queued").await.expect("sent");
    assert_eq!(answers.next().await.expect("an answer").payload(), LARGE);
    client.disconnect().await.expect("nothing is under way");
}

/// Returned in place of a packet at the end of the stream.
pub(crate) const END: &str = "end";

/// Waits for `time` on the paused clock of a test, which advances when all tasks wait.
pub(crate) async fn pass(time: Duration) {
    let nothing = timeout(time, std::future::pending::<()>()).await;
    assert!(nothing.is_err());
}

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

    /// A server, and a client whose connection it has accepted.
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
}

impl<S: AsyncRead + AsyncWrite + Unpin> Peer<S> {
    /// A server on a stream from a client's own connector.
    pub(crate) fn on(stream: S, version: Version) -> Self {
        Self { stream, version, input: Vec::new() }
    }

    /// Waits for the first bytes of the client's next packet.
    pub(crate) async fn begin(&mut self) {
        self.stream.read_buf(&mut self.input).await.expect("in order");
    }

    /// Reads at most `bytes` more bytes from the client.
    pub(crate) async fn sip(&mut self, bytes: u64) {
        (&mut self.stream).take(bytes).read_buf(&mut self.input).await.expect("in order");
    }

    /// Sends bytes as long as the client reads, and returns whether the client has read all of them.
    ///
    /// Needs the paused clock of a test: time passes only when the client waits too.
    pub(crate) async fn flood(&mut self, bytes: &[u8]) -> bool {
        timeout(Duration::from_secs(1), self.stream.write_all(bytes)).await.is_ok()
    }

    /// The client's next packet, formatted on one line.
    pub(crate) async fn next(&mut self) -> String {
        self.next_of(|packet| packet.to_string()).await.unwrap_or_else(|| END.to_owned())
    }

    /// Applies `look` to the client's next packet; `None` at the end of the stream.
    pub(crate) async fn next_of<T>(&mut self, look: impl FnOnce(&Packet<'_>) -> T) -> Option<T> {
        let limits = Limits { sender: Some(Role::Client), ..Limits::default() };
        loop {
            let is_connect = self.input.first().is_some_and(|first| first >> 4 == 1);
            let version = (!is_connect).then_some(self.version);
            if let Decoded::Packet { packet, len } = decode(&self.input, version, &limits).expect("in order")
            {
                let seen = look(&packet);
                self.input.drain(..len);
                return Some(seen);
            }
            if self.stream.read_buf(&mut self.input).await.expect("in order") == 0 {
                return None;
            }
        }
    }

    /// Correlation Data of the client's next packet, which must be PUBLISH.
    pub(crate) async fn correlation(&mut self) -> Vec<u8> {
        let data = |packet: &Packet<'_>| {
            let Packet::Publish(publish) = packet else { panic!("{packet}") };
            publish.properties.correlation_data.expect("a question has it").as_bytes().to_owned()
        };
        self.next_of(data).await.expect("a PUBLISH")
    }

    pub(crate) async fn send<'p>(&mut self, packet: impl Into<Packet<'p>>) {
        let mut bytes = Vec::new();
        packet.into().encode(self.version, &mut bytes).expect("in order");
        self.stream.write_all(&bytes).await.expect("in order");
        self.stream.flush().await.expect("in order");
    }

    /// Sends a packet that the client may refuse before it has read all of it.
    pub(crate) async fn send_or_fail<'p>(&mut self, packet: impl Into<Packet<'p>>) {
        let mut bytes = Vec::new();
        packet.into().encode(self.version, &mut bytes).expect("in order");
        let _ = self.stream.write_all(&bytes).await;
    }

    /// Sends all packets in one write.
    pub(crate) async fn send_at_once<'p, P>(&mut self, packets: impl IntoIterator<Item = P>)
    where
        P: Into<Packet<'p>>,
    {
        let mut bytes = Vec::new();
        for packet in packets {
            packet.into().encode(self.version, &mut bytes).expect("in order");
        }
        self.stream.write_all(&bytes).await.expect("in order");
    }

    /// Accepts a client, receives one message, sends one back, and waits for the client's end.
    pub(crate) async fn converse(&mut self) {
        assert!(self.next().await.starts_with("CONNECT"));
        self.send(ConnAck::accepted(false)).await;
        self.suback(SubAckReason::GrantedQos0).await;
        let line = self.next().await;
        assert!(line.starts_with("PUBLISH q0 \"question\" 100000 B"), "{line}");
        self.send(wire::Publish::new(topic!("answer"), &LARGE)).await;
        assert_eq!(self.next().await, "DISCONNECT Normal disconnection");
        assert_eq!(self.next().await, END);
    }

    /// Answers the client's next packet, which must be SUBSCRIBE.
    pub(crate) async fn suback(&mut self, reason: SubAckReason) {
        let line = self.next().await;
        let number = line.strip_prefix("SUBSCRIBE id=").and_then(|rest| rest.split(' ').next());
        let packet_id = number.and_then(|number| number.parse().ok()).expect("a SUBSCRIBE");
        let reasons = [reason];
        let reasons = wire::OneOrMore::new(&reasons).expect("one");
        self.send(SubAck { packet_id: id(packet_id), properties: wire::AckProperties::EMPTY, reasons }).await;
    }
}
