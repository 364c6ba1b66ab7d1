//! The outside of a shard: virtual connections, and the letters that it has posted and not delivered.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice};

use auth::{Check, Unchecked, Wish, Workspace};
use base::{ConnectionId, ShardId};
use broker::Notice;
use stream::{Peer, Received, Stream};
use turn::{Answers, Host, LedgerHost, Letter, Note, ToLedger};
use wire::ReasonCode;

use crate::network::{LinkId, Network, Read};
use crate::random::Random;

/// Out of a thousand calls: a stream takes or gives only a part, or says that it would block.
const PARTIAL_PER_MILLE: usize = 300;
const BLOCKS_PER_MILLE: usize = 50;

/// The broker's end of a link, to be used as the event loop uses a socket.
pub(crate) struct Socket {
    pub(crate) link: LinkId,
    network: Network,
    random: Random,
}

impl Socket {
    pub(crate) fn new(link: LinkId, network: &Network, random: Random) -> Self {
        Self { link, network: network.clone(), random }
    }
}

impl Stream for Socket {
    /// Like a socket under TLS, it may give less than it has; it says then that there may be more.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        let bytes_max = match self.random.chance(PARTIAL_PER_MILLE) {
            true => self.random.between(1, buffer.len()),
            false => buffer.len(),
        };
        match self.network.broker_reads(self.link, bytes_max) {
            Read::Bytes(bytes) => {
                buffer[..bytes.len()].copy_from_slice(&bytes);
                Ok(Received { bytes: bytes.len(), is_drained: bytes.len() < bytes_max })
            }
            Read::Nothing => Err(io::ErrorKind::WouldBlock.into()),
            Read::EndOfStream => Ok(Received { bytes: 0, is_drained: true }),
            Read::Reset => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }

    fn has_arrived(&mut self) -> bool {
        self.network.broker_may_read(self.link)
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let all = pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let room = match self.network.broker_may_write(self.link) {
            None => return Err(io::ErrorKind::ConnectionReset.into()),
            Some(0) => 0,
            Some(_) if self.random.chance(BLOCKS_PER_MILLE) => 0,
            Some(room) if self.random.chance(PARTIAL_PER_MILLE) => self.random.between(1, room),
            Some(room) => room,
        };
        if room == 0 {
            self.network.broker_waits_for_room(self.link);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let bytes = pieces.iter().flat_map(|piece| piece.iter().copied());
        self.network.broker_writes(self.link, bytes.take(room));
        Ok(all.min(room))
    }

    fn shut_down_write(&mut self) {
        self.network.broker_shuts(self.link);
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.network.broker_forgets(self.link);
    }
}

/// The receiver of a letter.
pub(crate) enum Addressed {
    Shard(ShardId, Letter<Socket>),
    Ledger(ToLedger),
}

/// The outside of one shard.
pub(crate) struct Outside {
    /// Connections that are watched.
    pub(crate) watched: BTreeMap<(u32, u32), LinkId>,
    pub(crate) inbox: VecDeque<Letter<Socket>>,
    /// Posted one after the other, when the thread has its turn.
    pub(crate) outbox: VecDeque<Addressed>,
    pub(crate) notices: Vec<Noted>,
    /// The reload whose limits are in force since this turn.
    pub(crate) reloaded: Option<u64>,
    shard: ShardId,
    random: Random,
}

/// A line of the log, as far as it matters.
#[derive(Debug)]
pub(crate) struct Noted {
    pub(crate) connection: ConnectionId,
    pub(crate) link: LinkId,
    pub(crate) client_id: String,
    pub(crate) what: What,
}

#[derive(Debug)]
pub(crate) enum What {
    Connected,
    Refused(ReasonCode, String),
    Disconnected(ReasonCode, String),
}

impl Outside {
    pub(crate) fn new(shard: ShardId, random: Random) -> Self {
        Self {
            watched: BTreeMap::new(),
            inbox: VecDeque::new(),
            outbox: VecDeque::new(),
            notices: Vec::new(),
            reloaded: None,
            shard,
            random,
        }
    }
}

impl Host for Outside {
    type Stream = Socket;

    fn watch(&mut self, stream: &mut Socket, id: ConnectionId) -> io::Result<()> {
        self.watched.insert((id.slot, id.generation), stream.link);
        Ok(())
    }

    fn unwatch(&mut self, stream: &mut Socket) {
        self.watched.retain(|_, link| *link != stream.link);
    }

    fn post(&mut self, to: ShardId, letter: Letter<Socket>) {
        self.outbox.push_back(Addressed::Shard(to, letter));
    }

    fn post_to_ledger(&mut self, letter: ToLedger) {
        self.outbox.push_back(Addressed::Ledger(letter));
    }

    /// Letters that others post while the turn runs may arrive in the next one.
    fn take_letters(&mut self, into: &mut Vec<Letter<Socket>>) {
        let count = self.random.some_of(self.inbox.len());
        into.extend(self.inbox.drain(..count));
    }

    /// Another thread checks the password, and is done when its note is posted.
    fn verify(
        &mut self,
        _: u64,
        connection: ConnectionId,
        _: &Peer,
        check: Check,
    ) -> Result<Wish, Unchecked> {
        let checked = check.run_in(&mut Workspace::default(), 0);
        let note = Note::Verified { connection, checked };
        self.outbox.push_back(Addressed::Shard(self.shard, note.into()));
        Ok(Wish::default())
    }

    fn random(&mut self) -> u128 {
        u128::from(self.random.next()) << 64 | u128::from(self.random.next())
    }

    fn notice(&mut self, _: u64, connection: ConnectionId, peer: &Peer, notice: Notice<'_>) {
        let (client_id, what) = match notice {
            Notice::Connected { client_id, .. } => (client_id, What::Connected),
            Notice::Refused { client_id, reason, why } => (client_id, What::Refused(reason, why.to_owned())),
            Notice::Disconnected { client_id, reason, why } => {
                (client_id, What::Disconnected(reason, why.to_owned()))
            }
            Notice::Denied { .. } | Notice::Subscribed { .. } | Notice::Unsubscribed { .. } => return,
        };
        let Peer::Simulated(link) = *peer else { panic!("{peer} is no connection of the simulator") };
        let client_id = client_id.to_owned();
        self.notices.push(Noted { connection, link: LinkId(link), client_id, what });
    }

    fn not_watched(&mut self, peer: &Peer, error: &io::Error) {
        panic!("{peer} can be watched: {error}");
    }

    fn reloaded(&mut self, reload: u64) {
        self.reloaded = Some(reload);
    }
}

/// The outside of the ledger: letters that it has posted and not delivered.
#[derive(Default)]
pub(crate) struct Outbox {
    letters: VecDeque<Addressed>,
    /// The reload whose limits are in force since this turn.
    pub(crate) reloaded: Option<u64>,
}

impl Outbox {
    /// The next letter that is posted.
    pub(crate) fn pop(&mut self) -> Option<Addressed> {
        self.letters.pop_front()
    }
}

impl LedgerHost for Outbox {
    fn post_answers(&mut self, to: ShardId, answers: Answers) {
        self.letters.push_back(Addressed::Shard(to, Letter::Answers(answers)));
    }

    fn post_commands_read(&mut self, to: ShardId) {
        self.letters.push_back(Addressed::Shard(to, Note::CommandsRead.into()));
    }

    fn reloaded(&mut self, reload: u64) {
        self.reloaded = Some(reload);
    }
}
