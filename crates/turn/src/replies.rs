//! The replies of one turn of the ledger, in an order in which they may be posted.

use std::sync::Arc;

use base::{Purpose, ShardId};
use ledger::{Address, Effects, Keeper, Lsn, Record, RecordRoom, Refusal, Wanted};
use protocol::Reply;

use crate::board::Board;
use crate::bounds::Bounds;
use crate::bundle::Bundle;
use crate::faults::Fault;
use crate::host::LedgerHost;
use crate::letter::Answers;

/// Sessions that a turn names when it reports that their queues were full. It counts the others.
const ENDED_NAMED_MAX: usize = 16;

/// Characters of their names that are kept: more than a log shows, and far fewer than a client may choose.
const ENDED_NAME_CHARS: usize = 200;

/// Replies, collected while the ledger works through what has come in, posted once or twice per shard.
///
/// Rule 4 of `protocol::order`: a publisher that has heard [`Reply::Decided`] may send the next message of a topic straight, shard to
/// shard. It must not overtake the decided one, which goes from here to each subscriber's shard as
/// [`Reply::Live`]. An inbox keeps the order in which it was posted to, so it is enough that every inbox
/// has its `Live` before any has a `Decided`: whoever acts on the permission posts later. For everything
/// else a shard is told, the order among its own replies is kept; `Decided` says nothing but "from now
/// on", so that it may come after replies it was given before.
///
/// Rule 5: the same holds for [`Reply::Claimed`]: a publisher that has come back on another shard goes on there, and what it
/// published before must have been posted to everybody. So what was posted before it is handed out in a round of its own.
pub(crate) struct Replies<K: ?Sized> {
    /// By round, then by shard.
    rounds: Vec<Vec<Bundle<Reply>>>,
    /// The last round has messages.
    has_live: bool,
    decided: Vec<Bundle<Reply>>,
    /// Weight of the replies that are not posted yet, by shard, in bytes.
    weights: Vec<usize>,
    /// Sessions that have ended because their queues were full, with the numbers of their messages.
    ended: Vec<(String, usize)>,
    /// Further ones of this turn.
    ended_unnamed: u64,
    board: Arc<Board>,
    bounds: Bounds,
    pub(crate) keeper: Box<K>,
}

impl<K: ?Sized> Replies<K> {
    pub(crate) fn new(board: Arc<Board>, bounds: Bounds, keeper: Box<K>) -> Self {
        let none = || -> Vec<Bundle<Reply>> { (0..board.shards()).map(|_| Bundle::default()).collect() };
        Self {
            rounds: vec![none()],
            has_live: false,
            decided: none(),
            weights: vec![0; board.shards()],
            ended: Vec::new(),
            ended_unnamed: 0,
            bounds,
            keeper,
            board,
        }
    }

    /// Whether no shard has more answers to read than the ledger may give before it waits.
    pub(crate) fn may_answer(&self) -> bool {
        self.is_within(self.bounds.answers)
    }

    /// Whether no shard has more than `bound` bytes to read, including replies that are not posted yet.
    fn is_within(&self, bound: usize) -> bool {
        let mut shards = self.weights.iter().enumerate();
        shards.all(|(shard, bytes)| bytes + self.board.answers(ShardId::new(shard)).bytes() <= bound)
    }

    /// Posts all replies. The first letter to each shard carries the weight of all replies to that shard.
    pub(crate) fn post_all(&mut self, host: &mut impl LedgerHost) {
        for replies in self.rounds.iter_mut().chain([&mut self.decided]) {
            for (shard, replies) in replies.iter_mut().enumerate() {
                if replies.is_empty() {
                    continue;
                }
                let bytes = std::mem::take(&mut self.weights[shard]);
                let (to, replies) = (ShardId::new(shard), replies.take());
                // The bound is the ledger's: it looks itself.
                self.board.answers(to).add(bytes, usize::MAX);
                // Messages are on the account already.
                let own_bytes = replies.capacity() * size_of::<Reply>();
                let charge = self.board.budget().charge(Purpose::Mail, own_bytes);
                host.post_answers(to, Answers { replies, bytes, charge });
            }
        }
        self.rounds.truncate(1);
        self.has_live = false;
        for (client_id, messages) in self.ended.drain(..) {
            host.ended_by_full_queue(&client_id, messages);
        }
        match std::mem::take(&mut self.ended_unnamed) {
            0 => {}
            sessions => host.more_ended_by_full_queues(sessions),
        }
    }
}

impl<K: Keeper + ?Sized> Effects for Replies<K> {
    fn post(&mut self, to: ShardId, reply: Reply) {
        self.weights[to.number()] += reply.weight_bytes();
        match reply {
            Reply::Decided { .. } => return self.decided[to.number()].push(reply),
            Reply::Claimed(_) if std::mem::take(&mut self.has_live) && !Fault::SkippedRound.is_planted() => {
                self.rounds.push(self.decided.iter().map(|_| Bundle::default()).collect());
            }
            Reply::Live { .. } => self.has_live = true,
            _ => {}
        }
        let last = self.rounds.last_mut().expect("there is a first round");
        last[to.number()].push(reply);
    }

    fn commit(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal> {
        self.keeper.commit(group)
    }

    fn copy(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal> {
        self.keeper.copy(group)
    }

    fn group_bytes_max(&self) -> usize {
        self.keeper.group_bytes_max()
    }

    fn address(&mut self) -> Option<Address> {
        self.keeper.address()
    }

    fn fetch(&mut self, wanted: Wanted) {
        self.keeper.fetch(wanted);
    }

    fn ended_by_full_queue(&mut self, client_id: &str, messages: usize) {
        if self.ended.len() < ENDED_NAMED_MAX {
            let shown: String = client_id.chars().take(ENDED_NAME_CHARS).collect();
            self.ended.push((shown, messages));
        } else {
            self.ended_unnamed += 1;
        }
    }

    fn has_room(&self) -> bool {
        self.is_within(self.bounds.unasked)
    }

    fn lacks_space(&self) -> bool {
        self.keeper.room() == RecordRoom::None
    }
}

#[cfg(test)]
mod tests {
    use base::{ConnectionId, Subscriber};
    use ledger::InMemory;
    use protocol::Claimed;

    use super::*;

    /// Letters in the order in which they were posted.
    #[derive(Default)]
    struct Posted(Vec<(ShardId, Answers)>);

    /// Sessions that have ended, with names and without.
    #[derive(Default)]
    struct Told {
        named: Vec<(String, usize)>,
        unnamed: u64,
    }

    impl LedgerHost for Told {
        fn post_answers(&mut self, _: ShardId, _: Answers) {}

        fn post_commands_read(&mut self, _: ShardId) {}

        fn ended_by_full_queue(&mut self, client_id: &str, messages: usize) {
            self.named.push((client_id.to_owned(), messages));
        }

        fn more_ended_by_full_queues(&mut self, sessions: u64) {
            self.unnamed += sessions;
        }
    }

    #[test]
    fn a_turn_names_a_few_sessions_whose_queues_were_full_and_counts_the_others() {
        let mut replies = replies();
        for number in 0..ENDED_NAMED_MAX + 3 {
            replies.ended_by_full_queue(&"x".repeat(1_000 * number), number);
        }
        let mut told = Told::default();
        replies.post_all(&mut told);
        let messages: Vec<_> = told.named.iter().map(|(_, messages)| *messages).collect();
        assert_eq!((messages, told.unnamed), ((0..ENDED_NAMED_MAX).collect(), 3));
        assert!(told.named.iter().all(|(client_id, _)| client_id.len() <= ENDED_NAME_CHARS));
        let mut told = Told::default();
        replies.post_all(&mut told);
        assert_eq!((told.named.len(), told.unnamed), (0, 0), "each is told once");
    }

    impl LedgerHost for Posted {
        fn post_answers(&mut self, to: ShardId, answers: Answers) {
            self.0.push((to, answers));
        }

        fn post_commands_read(&mut self, _: ShardId) {}
    }

    fn replies() -> Replies<InMemory> {
        let board = Arc::new(Board::new(2, Arc::default()));
        Replies::new(board, Bounds::default(), Box::new(InMemory::default()))
    }

    #[test]
    fn no_shard_hears_that_a_message_is_decided_before_all_have_the_message() {
        let [first, second] = [ShardId::new(0), ShardId::new(1)];
        let mut replies = replies();
        replies.post(first, Reply::Evict { connection: connection(1) });
        replies.post(first, Reply::Decided { connection: connection(2) });
        let reason = wire::ReasonCode::QuotaExceeded;
        replies.post(first, Reply::Refused { connection: connection(3), reason });
        replies.post(second, live_of(1));
        replies.post(first, Reply::Decided { connection: connection(4) });
        let mut posted = Posted::default();
        replies.post_all(&mut posted);
        let each = |(shard, answers): (ShardId, Answers)| {
            answers.replies.into_iter().map(move |reply| describe(shard, &reply))
        };
        let told: Vec<(ShardId, &str, u32)> = posted.0.into_iter().flat_map(each).collect();
        let expected = [
            (first, "evict", 1),
            (first, "refused", 3),
            (second, "live", 0),
            (first, "decided", 2),
            (first, "decided", 4),
        ];
        assert_eq!(told, expected);
        let mut posted = Posted::default();
        replies.post_all(&mut posted);
        assert!(posted.0.is_empty(), "everything was handed out");
    }

    /// It publishes on this shard from now on, straight to others, behind what it has published before.
    #[test]
    fn no_client_is_let_in_before_all_shards_have_what_was_published_before() {
        let [first, second] = [ShardId::new(0), ShardId::new(1)];
        let mut replies = replies();
        replies.post(second, live_of(1));
        let subscriber = Arc::new(Subscriber::new("c".into(), first, connection(5)));
        replies.post(
            first,
            Reply::Claimed(Box::new(Claimed {
                connection: connection(5),
                subscriber,
                session_present: false,
                subscriptions: Vec::new(),
                unfinished: Vec::new(),
                has_more_unfinished: false,
                unreleased: Vec::new(),
            })),
        );
        let mut posted = Posted::default();
        replies.post_all(&mut posted);
        let told: Vec<(ShardId, &str, u32)> =
            posted.0.iter().map(|(shard, answers)| describe(*shard, &answers.replies[0])).collect();
        assert_eq!(told, [(second, "live", 0), (first, "claimed", 5)]);
    }

    /// Shards are given answers up to a weight: none may weigh less than its memory.
    #[test]
    fn answers_weigh_what_they_hold() {
        let connection = ConnectionId { slot: 1, generation: 0 };
        let found = |number| protocol::Numbered {
            id: protocol::MessageId(number),
            message: Arc::new(base::Message::of_server("t", &[0; 1_000]).expect("a topic")),
        };
        let messages = vec![found(1), found(2), found(3)];
        let held: usize = messages.iter().map(|found| found.message.size_bytes()).sum();
        let retained = Reply::Retained { connection, id: protocol::CursorId(1), messages, done: true };
        let weight = retained.weight_bytes();
        assert!((held..held + 1_000).contains(&weight), "{weight} for {held}");
        let filter = "x".repeat(500).into_boxed_str();
        let claimed = Claimed {
            connection,
            subscriber: Arc::new(Subscriber::new("c".into(), ShardId::new(0), connection)),
            session_present: true,
            subscriptions: (0..10)
                .map(|_| (filter.clone(), base::Interest::new(wire::Qos::AtMostOnce)))
                .collect(),
            unfinished: Vec::new(),
            has_more_unfinished: false,
            unreleased: Vec::new(),
        };
        let weight = Reply::Claimed(Box::new(claimed)).weight_bytes();
        assert!((5_000..6_500).contains(&weight), "{weight}");
    }

    #[test]
    fn there_is_room_again_when_a_shard_has_read_what_it_was_answered() {
        let mut replies = replies();
        let unasked = replies.bounds.unasked;
        assert!(replies.has_room());
        replies.post(ShardId::new(1), live_of(unasked));
        assert!(!replies.has_room(), "what is not posted yet counts");
        assert!(replies.may_answer(), "what is waited for goes on");
        let mut posted = Posted::default();
        replies.post_all(&mut posted);
        let bytes: usize = posted.0.iter().map(|(_, answers)| answers.bytes).sum();
        let board = Arc::clone(&replies.board);
        assert!(!replies.has_room() && !board.has_room_for_answers(unasked));
        assert!(board.answers(ShardId::new(1)).handled(bytes), "the ledger waits, and is told");
        assert!(replies.has_room());
    }

    fn connection(slot: u32) -> ConnectionId {
        ConnectionId { slot, generation: 0 }
    }

    fn live_of(bytes: usize) -> Reply {
        let message = base::Message::of_server("t", &vec![0; bytes]).expect("a topic");
        Reply::Live { message: Arc::new(message), targets: Arc::new([]), value: None }
    }

    fn describe(shard: ShardId, reply: &Reply) -> (ShardId, &'static str, u32) {
        match reply {
            Reply::Evict { connection } => (shard, "evict", connection.slot),
            Reply::Refused { connection, .. } => (shard, "refused", connection.slot),
            Reply::Decided { connection } => (shard, "decided", connection.slot),
            Reply::Live { .. } => (shard, "live", 0),
            Reply::Claimed(claimed) => (shard, "claimed", claimed.connection.slot),
            _ => unreachable!("no other reply was posted"),
        }
    }
}
