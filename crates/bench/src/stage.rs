//! A ledger without a broker around it: its sessions, and what a shard knows of them.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ::ledger::{
    Address, Effects, Keeper, Ledger, Lsn, Progress, Record, Refusal, Settings, Turnover, Wanted,
};
use base::{ConnectionId, Interest, Message, Now, ShardId, Subscriber, Ticket};
use index::{Change, Generation, Subscriptions, Targets};
use protocol::{Cause, Claim, Claimed, Command, Deliver, Durability, Left, Publish, Reply};
use topic::{TopicFilter, TopicName, TopicNameBuf};
use wire::{Delivery, PacketId, Qos, ReasonCode};

/// Messages that a client may have unacknowledged.
const WINDOW: u16 = 1_000;
/// Maximum time until this thread looks for stored records. The keeper of the records wakes the thread earlier.
const RECORDED_MAX: Duration = Duration::from_millis(10);
/// Nothing here takes time that matters to the ledger.
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
pub(crate) struct Stage<K> {
    cast: Cast,
    index: Arc<Subscriptions>,
    ledger: Ledger,
    outside: Outside<K>,
    routes: Vec<Route>,
    sessions: Vec<Arc<Subscriber>>,
    /// Old records whose space is wanted.
    turnover: Turnover,
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

/// Replies of the ledger, and where its records go.
struct Outside<K> {
    replies: Vec<Reply>,
    keeper: K,
}

impl<K: Keeper> Effects for Outside<K> {
    fn post(&mut self, _: ShardId, reply: Reply) {
        self.replies.push(reply);
    }

    fn commit(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal> {
        self.keeper.commit(group)
    }

    fn copy(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal> {
        self.keeper.copy(group)
    }

    fn address(&mut self) -> Option<Address> {
        self.keeper.address()
    }

    fn fetch(&mut self, wanted: Wanted) {
        self.keeper.fetch(wanted);
    }
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
        Self {
            cast,
            index,
            ledger,
            outside: Outside { replies: Vec::new(), keeper },
            routes: Vec::new(),
            sessions: Vec::new(),
            turnover: Turnover::default(),
            payload: vec![b'x'; cast.payload as usize],
            next_topic: 0,
            stored: 0,
            acknowledged: 0,
        }
    }

    pub(crate) fn keeper(&mut self) -> &mut K {
        &mut self.outside.keeper
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
        self.handle(Command::Subscribe {
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
            self.turn();
            let claimed = self.outside.replies.drain(..).find_map(|reply| match reply {
                Reply::Claimed(claimed) => Some(claimed),
                // Nobody else is told anything that matters yet.
                _ => None,
            });
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
        self.handle(Command::Claim(Box::new(Claim {
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
            self.handle(Command::Left(left));
        }
        self.find_routes();
        self.turn();
    }

    /// Looks every topic up, as a shard does when somebody begins to publish to it.
    fn find_routes(&mut self) {
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
                message,
                route: Some((*generation, Arc::clone(targets))),
            };
            self.ledger.handle(shard(), Command::Publish(publish), NOW, &mut self.outside);
        }
    }

    /// The first half of a turn: the records of what comes until its end are written together.
    pub(crate) fn begin_turn(&mut self) {
        self.outside.keeper.begin_turn();
    }

    /// Waits, if there is nothing to hear, until whoever keeps the records wakes this thread.
    pub(crate) fn rest(&self) {
        if self.outside.replies.is_empty() {
            thread::park_timeout(RECORDED_MAX);
        }
    }

    /// The other half: what was put off, and what has become safe meanwhile. Whether there is more to do at once.
    pub(crate) fn end_turn(&mut self) -> bool {
        self.outside.keeper.begin_turn();
        while let Some(fetched) = self.outside.keeper.next_fetched() {
            self.ledger.fetched(fetched, &mut self.outside);
        }
        self.ledger.work(NOW, &mut self.outside);
        let is_copying =
            self.turnover.work(&mut self.ledger, NOW, &mut self.outside, |outside| &mut outside.keeper);
        self.outside.keeper.end_turn();
        let progress: Progress = self.outside.keeper.progress();
        self.ledger.progress(progress, NOW, &mut self.outside);
        is_copying || self.ledger.has_work()
    }

    /// A turn in which nothing comes, with everything that it leads to at once.
    pub(crate) fn turn(&mut self) {
        self.begin_turn();
        while self.end_turn() {}
    }

    /// Hears what was answered, and acknowledges each copy that was delivered. Whether there was one.
    pub(crate) fn acknowledge(&mut self) -> bool {
        let mut has_acknowledged = false;
        for reply in std::mem::take(&mut self.outside.replies) {
            match reply {
                Reply::Stored { reason, .. } => {
                    assert_eq!(reason, ReasonCode::Success, "the message is kept");
                    self.stored += 1;
                }
                Reply::Deliver(deliver) => {
                    let Deliver { what, connection, .. } = *deliver;
                    self.acknowledged += 1;
                    has_acknowledged = true;
                    self.handle(Command::Acknowledged { what, connection, reason: ReasonCode::Success });
                }
                _ => {}
            }
        }
        has_acknowledged
    }

    fn handle(&mut self, command: Command) {
        self.ledger.handle(shard(), command, NOW, &mut self.outside);
    }
}

fn shard() -> ShardId {
    ShardId::new(0)
}

fn connection(number: usize) -> ConnectionId {
    let slot = u32::try_from(number).expect("fewer sessions than a shard has connections");
    ConnectionId { slot, generation: 0 }
}
