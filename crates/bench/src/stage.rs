//! A ledger without a broker around it: the event loop that the broker runs, its sessions, and what a shard knows of them.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ::ledger::{Keeper, Ledger, Settings};
use base::{Budget, ConnectionId, Interest, Message, Now, ShardId, Subscriber, Ticket};
use index::{Change, Generation, Subscriptions, Targets};
use protocol::{Cause, Claim, Claimed, Command, Deliver, Durability, Left, Publish, Reply};
use topic::{TopicFilter, TopicName, TopicNameBuf};
use turn::{Answers, Board, Bounds, LedgerHost, LedgerLoop, Sleep, ToLedger};
use wire::{Delivery, PacketId, Qos, ReasonCode};

/// Messages that a client may have unacknowledged.
const WINDOW: u16 = 1_000;
/// Maximum time until this thread looks for stored records. The keeper of the records wakes the thread earlier.
const RECORDED_MAX: Duration = Duration::from_millis(10);
/// Nothing here takes time that matters to the ledger. Commands that wait for space wait until there is some.
pub(crate) const NOW: Now = Now { monotonic_ms: 1, unix_ms: 1 };

/// Topics that take turns, and the sessions that each is for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cast {
    pub(crate) topics: usize,
    /// Sessions that a message goes to.
    pub(crate) fanout: usize,
    /// Size of a payload, in bytes.
    pub(crate) payload: u32,
}

/// A ledger with its sessions, which last, and somebody who keeps its records.
pub(crate) struct Stage<K: Keeper> {
    cast: Cast,
    index: Arc<Subscriptions>,
    body: LedgerLoop<K>,
    outside: Outside,
    /// Commands for the next turn.
    commands: Vec<Command>,
    routes: Vec<Route>,
    sessions: Vec<Arc<Subscriber>>,
    payload: Vec<u8>,
    next_topic: usize,
    /// Messages that have been acknowledged to their publishers.
    pub(crate) stored: u64,
    /// Copies that were delivered and acknowledged.
    pub(crate) acknowledged: u64,
}

/// State of a shard for a topic with repeated messages.
struct Route {
    topic: TopicNameBuf,
    generation: Generation,
    targets: Arc<Targets>,
}

/// The only shard, as the ledger sees it.
struct Outside {
    board: Arc<Board>,
    /// Answers that are not read yet.
    letters: Vec<Answers>,
}

impl Outside {
    /// Reads all replies that have come. The ledger may then answer as much again.
    fn read(&mut self) -> impl Iterator<Item = Reply> + use<> {
        let board = Arc::clone(&self.board);
        std::mem::take(&mut self.letters).into_iter().flat_map(move |answers| answers.read(shard(), &board))
    }
}

impl LedgerHost for Outside {
    fn post_answers(&mut self, _: ShardId, answers: Answers) {
        self.letters.push(answers);
    }

    /// Nobody waits until there is room for commands.
    fn post_commands_read(&mut self, _: ShardId) {}
}

impl<K: Keeper> Stage<K> {
    /// Number of lasting sessions for each topic; all are connected.
    pub(crate) fn new(cast: Cast, settings: Settings, keeper: K) -> Self {
        let index = Arc::new(Subscriptions::new([1, 2]));
        let ledger = Ledger::new(settings, Arc::clone(&index));
        let mut stage = Self::of(cast, index, ledger, keeper);
        for topic in 0..cast.topics * cast.fanout {
            stage.connect_new(&format!("bench/{}", topic % cast.topics));
        }
        stage.find_routes();
        stage
    }

    /// A ledger that has sessions already, none of which is connected.
    pub(crate) fn of(cast: Cast, index: Arc<Subscriptions>, ledger: Ledger, keeper: K) -> Self {
        let board = Arc::new(Board::new(1, Arc::new(Budget::default())));
        Self {
            cast,
            index,
            body: LedgerLoop::new(ledger, Box::new(keeper), Arc::clone(&board), Bounds::default()),
            outside: Outside { board, letters: Vec::new() },
            commands: Vec::new(),
            routes: Vec::new(),
            sessions: Vec::new(),
            payload: vec![b'x'; cast.payload as usize],
            next_topic: 0,
            stored: 0,
            acknowledged: 0,
        }
    }

    pub(crate) fn keeper(&mut self) -> &mut K {
        self.body.keeper_mut()
    }

    /// One more session, with one subscription.
    fn connect_new(&mut self, filter: &str) {
        let number = self.sessions.len();
        let connection = connection(number);
        let claimed = self.claim(number);
        let filter = TopicFilter::new(filter).expect("a topic is a filter");
        let options = Interest::new(Qos::AtLeastOnce);
        let change = Change::Subscribe { filter, subscriber: &claimed.subscriber, options };
        self.index.apply([change], &mut Vec::new());
        self.commands.push(Command::Subscribe {
            subscriber: Arc::clone(&claimed.subscriber),
            connection,
            packet_id: PacketId::MIN,
            subscriptions: vec![(filter.as_str().into(), options)],
            retained: Vec::new(),
        });
        self.sessions.push(claimed.subscriber);
    }

    /// Client `number` connects, to the session that it has if it has one, and waits until it is let in.
    fn claim(&mut self, number: usize) -> Box<Claimed> {
        self.connect(number);
        loop {
            self.turns();
            let mut claimed = None;
            for reply in self.outside.read() {
                // Nobody else is told anything that matters yet.
                if let Reply::Claimed(found) = reply {
                    claimed = Some(found);
                }
            }
            if let Some(claimed) = claimed {
                return claimed;
            }
            // The promise for a message is made when its record is stored.
            self.rest();
        }
    }

    /// Client `number` asks to be let in.
    pub(crate) fn connect(&mut self, number: usize) {
        let connection = connection(number);
        let client_id = format!("session-{number}").as_str().into();
        self.commands.push(Command::Claim(Box::new(Claim {
            subscriber: Arc::new(Subscriber::new(client_id, shard(), connection)),
            connection,
            clean_start: false,
            expiry_secs: u32::MAX,
            window: WINDOW,
            packet_bytes_max: u32::MAX,
            will: None,
            durability: Durability::Fsync,
        })));
    }

    pub(crate) fn leave_all(&mut self) {
        for (number, subscriber) in std::mem::take(&mut self.sessions).into_iter().enumerate() {
            let connection = connection(number);
            let left = Left { subscriber, connection, cause: Cause::Normal, expiry_secs: None };
            self.commands.push(Command::Left(left));
        }
        self.find_routes();
    }

    /// Looks every topic up, as a shard does when somebody begins to publish to it. Commands before go first, because they
    /// may outdate a route.
    fn find_routes(&mut self) {
        self.turns();
        self.routes.clear();
        for number in 0..self.cast.topics {
            let text = format!("bench/{number}");
            let topic = TopicName::new(&text).expect("no wildcard is in it");
            let generation = self.index.generation(topic);
            let targets = Arc::new(Targets::look_up(&self.index, topic, None));
            self.routes.push(Route { generation, targets, topic: topic.into() });
        }
    }

    /// Publishes this number of messages of QoS 1, to one topic after the other, each with a ticket.
    pub(crate) fn publish(&mut self, count: u64) {
        for _ in 0..count {
            let Route { topic, generation, targets } = &self.routes[self.next_topic];
            self.next_topic = (self.next_topic + 1) % self.cast.topics;
            let delivery = Delivery::AtLeastOnce { packet_id: PacketId::MIN, dup: false };
            let packet = wire::Publish { delivery, ..wire::Publish::new(topic.name(), &self.payload) };
            let message = Arc::new(Message::new(topic.name(), &packet, None, NOW));
            let publish = Publish {
                connection: Some(connection(0)),
                publisher: None,
                ticket: Some(Ticket::PubAck(PacketId::MIN)),
                hears_refusals: true,
                message,
                route: Some((*generation, Arc::clone(targets))),
            };
            self.commands.push(Command::Publish(publish));
        }
    }

    /// Waits, if there is nothing to hear, until whoever keeps the records wakes this thread.
    pub(crate) fn rest(&self) {
        if self.outside.letters.is_empty() {
            thread::park_timeout(RECORDED_MAX);
        }
    }

    /// Whether there is something to do at once.
    pub(crate) fn is_busy(&mut self) -> bool {
        !self.commands.is_empty() || self.body.sleep(NOW.monotonic_ms) == Sleep::No
    }

    /// Runs one turn of the loop, with the commands since the last one.
    pub(crate) fn turn(&mut self) {
        if !self.commands.is_empty() {
            // The ways of the board have no weight of commands, so none is taken off.
            let letter =
                ToLedger::Commands { from: shard(), commands: std::mem::take(&mut self.commands), bytes: 0 };
            self.body.receive(&mut vec![letter], &mut self.outside);
        }
        self.body.turn(NOW, &mut self.outside);
    }

    /// Runs turns until there is nothing more to do at once.
    pub(crate) fn turns(&mut self) {
        self.turn();
        while self.is_busy() {
            self.turn();
        }
    }

    /// Hears what was answered, and acknowledges each copy that was delivered. Whether there was one.
    pub(crate) fn acknowledge(&mut self) -> bool {
        let mut has_acknowledged = false;
        for reply in self.outside.read() {
            match reply {
                Reply::Stored { reason, .. } => {
                    assert_eq!(reason, ReasonCode::Success, "the message is kept");
                    self.stored += 1;
                }
                Reply::Deliver(deliver) => {
                    let Deliver { what, connection, .. } = deliver;
                    self.acknowledged += 1;
                    has_acknowledged = true;
                    let reason = ReasonCode::Success;
                    self.commands.push(Command::Acknowledged { what, connection, reason });
                }
                _ => {}
            }
        }
        has_acknowledged
    }
}

fn shard() -> ShardId {
    ShardId::new(0)
}

fn connection(number: usize) -> ConnectionId {
    let slot = u32::try_from(number).expect("fewer sessions than a shard has connections");
    ConnectionId { slot, generation: 0 }
}
