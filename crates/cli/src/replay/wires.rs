//! The connections of the replay: sockets, and one task for each direction.

use std::collections::VecDeque;
use std::io;

use client::Endpoint;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use wire::Version;

use super::packet::ServerReading;

/// Maximum number of packets of a connection that wait to be written.
const WRITES_WAITING_MAX: usize = 64;

/// Maximum number of pieces that wait to be read by the player, from all connections together.
pub(super) const ARRIVALS_WAITING_MAX: usize = 256;

/// Maximum size of such a piece.
const PIECE_BYTES_MAX: usize = 16 << 10;

/// Bytes of a server, or the end of its stream.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) connection: u64,
    pub(super) bytes: Option<Vec<u8>>,
}

/// The origin of a PINGREQ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ping {
    Recorded,
    /// The player waits for the answer.
    Own,
    /// The answer did not come in time. It is not compared if it comes later.
    GivenUp,
}

/// A connection of the replay.
#[derive(Debug)]
pub(super) struct Wire {
    /// `None` after the client has ended the connection.
    pub(super) to_server: Option<mpsc::Sender<Vec<u8>>>,
    pub(super) version: Version,
    pub(super) reading: ServerReading,
    /// The PINGREQ packets without an answer, the oldest first.
    pub(super) pings: VecDeque<Ping>,
    /// A message of QoS 0 was sent, and no later answer shows that the server has read it.
    pub(super) is_unproved: bool,
    /// The server has accepted the client, which sends whole packets. The player may then send PINGREQ.
    pub(super) may_ping: bool,
    /// The server's Topic Alias Maximum.
    pub(super) topic_alias_max: u16,
}

impl Wire {
    /// Stops waiting for the answers to the player's own PINGREQ packets. Returns their number.
    pub(super) fn give_up_pings(&mut self) -> usize {
        let own = self.pings.iter_mut().filter(|ping| **ping == Ping::Own);
        own.map(|ping| *ping = Ping::GivenUp).count()
    }

    /// Whether the player may send a PINGREQ of its own: the server has accepted the client, and owes no answer.
    pub(super) fn may_be_asked(&self) -> bool {
        self.may_ping && !self.pings.contains(&Ping::GivenUp)
    }

    /// Connects, and starts the tasks.
    pub(super) async fn open(
        connection: u64,
        to: &Endpoint,
        arrivals: mpsc::Sender<Arrival>,
    ) -> io::Result<Self> {
        let stream = to.connect().await?;
        let (from_server, to_socket) = tokio::io::split(stream);
        let (to_server, waiting) = mpsc::channel(WRITES_WAITING_MAX);
        tokio::spawn(write(to_socket, waiting));
        tokio::spawn(read(connection, from_server, arrivals));
        Ok(Self {
            to_server: Some(to_server),
            // A server answers clients of an unknown version like this.
            version: Version::V5,
            reading: ServerReading::default(),
            pings: VecDeque::new(),
            is_unproved: false,
            may_ping: false,
            topic_alias_max: 0,
        })
    }
}

/// Writes packets until the client ends the connection. A server that has gone is noticed by the reading side.
async fn write(mut to: impl AsyncWrite + Unpin, mut waiting: mpsc::Receiver<Vec<u8>>) {
    while let Some(mut bytes) = waiting.recv().await {
        // Packets that wait already are written together, as far as they are small.
        while bytes.len() < PIECE_BYTES_MAX
            && let Ok(more) = waiting.try_recv()
        {
            bytes.extend(more);
        }
        let written = async {
            to.write_all(&bytes).await?;
            // TLS may keep bytes.
            to.flush().await
        };
        if written.await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}

async fn read(connection: u64, mut from: impl AsyncRead + Unpin, arrivals: mpsc::Sender<Arrival>) {
    let mut piece = vec![0; PIECE_BYTES_MAX];
    loop {
        let bytes = match from.read(&mut piece).await {
            Ok(0) | Err(_) => None,
            Ok(count) => Some(piece[..count].to_vec()),
        };
        let is_end = bytes.is_none();
        if arrivals.send(Arrival { connection, bytes }).await.is_err() || is_end {
            return;
        }
    }
}
