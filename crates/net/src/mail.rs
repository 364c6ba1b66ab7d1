//! What the threads tell each other, collected during a turn and posted at its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use broker::{Mail, Room, Run};
use index::{ShardId, Subscriber, Target};
use ledger::{Command, Reply};
use session::{Budget, Charge, Purpose, Tally};
use wire::{Qos, Version};

use crate::inbox::{Inbox, UnderWay};
use crate::listener::Accepted;

/// One sender may have this much under way to one inbox before it stops reading what adds to it.
const UNDER_WAY_BYTES: usize = 1024 * 1024;
/// Minimum weight of a command to the ledger, in bytes. The ledger takes a few microseconds for a command, however small it
/// is, and carries out commands in their order: the sender of a command waits for all that are under way. The ledger
/// carries out this number of commands in one or two milliseconds.
const COMMAND_BYTES: usize = UNDER_WAY_BYTES / COMMANDS_UNDER_WAY;
const COMMANDS_UNDER_WAY: usize = 512;
/// The ledger may have answered a shard so much that is not read, and then waits before it does anything more. It
/// answers all that it finds in its inbox at a time, and is not to wait for each shard's turn.
pub(crate) const ANSWERS_BYTES: usize = 4 * UNDER_WAY_BYTES;
/// While a shard has more than so much of that to read, the ledger adds nothing that nobody waits for: wills, and steps of
/// cursors. A shard delivers all that it was answered in one turn, and its clients wait for that turn.
pub(crate) const UNASKED_BYTES: usize = UNDER_WAY_BYTES / 4;
/// What an item of mail weighs beside its bytes.
const ITEM_BYTES: usize = 64;
/// Batches that are kept for reuse, and the largest that is.
const SPARE_BATCHES: usize = 8;
const SPARE_BYTES: usize = 1024 * 1024;

/// What arrives in a shard's inbox.
pub(crate) enum Letter {
    /// What the ledger answered, which weighs so much. It is read piece by piece.
    Replies { replies: Vec<Reply>, bytes: usize, charge: Charge },
    /// It is read at once.
    Note(Note),
}

/// All that a shard is told beside the answers of the ledger.
pub(crate) enum Note {
    /// Another shard's turn.
    Mail { from: ShardId, batch: Box<Batch> },
    /// A new socket for this shard.
    Accepted(Accepted),
    /// That shard has read our mail; those who waited for it may go on.
    MailRead(ShardId),
    /// The ledger has read our commands.
    CommandsRead,
    /// Say goodbye and end.
    Shutdown,
}

/// What arrives in the ledger's inbox.
pub(crate) enum ToLedger {
    /// One shard's turn.
    Commands { from: ShardId, commands: Vec<Command>, bytes: usize },
    /// A shard has read what it was answered, which the ledger waits for.
    RepliesRead,
    /// No shard is left.
    Stop,
}

/// Everything that one shard tells another in one turn: all bytes in one piece.
#[derive(Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    items: Vec<Item>,
    weight: usize,
    /// While it is under way.
    charge: Option<Charge>,
}

enum Item {
    Forward { end: usize, count: u32, payload_bytes: u64, version: Version, qos: Qos, targets: Arc<[Target]> },
    Resume(Arc<Subscriber>),
}

impl Batch {
    fn push(&mut self, mail: Mail<'_>) -> usize {
        let before = self.bytes.len();
        self.items.push(match mail {
            Mail::Forward(run, targets) => {
                self.bytes.extend_from_slice(run.bytes);
                let Run { count, payload_bytes, version, qos, .. } = run;
                Item::Forward { end: self.bytes.len(), count, payload_bytes, version, qos, targets }
            }
            Mail::Resume(subscriber) => Item::Resume(subscriber),
        });
        let weight = self.bytes.len() - before + ITEM_BYTES;
        self.weight += weight;
        weight
    }

    pub(crate) fn weight_bytes(&self) -> usize {
        self.weight
    }

    /// Hands each piece of mail to `read`, in the order in which it was written.
    pub(crate) fn drain(&mut self, mut read: impl FnMut(Mail<'_>)) {
        let mut start = 0;
        for item in self.items.drain(..) {
            read(match item {
                Item::Forward { end, count, payload_bytes, version, qos, targets } => {
                    let bytes = &self.bytes[start..end];
                    start = end;
                    Mail::Forward(Run { bytes, count, payload_bytes, version, qos }, targets)
                }
                Item::Resume(subscriber) => Mail::Resume(subscriber),
            });
        }
        self.bytes.clear();
    }
}

/// The inboxes of all threads, and how full the ways between them are.
pub(crate) struct Switchboard {
    pub(crate) shards: Vec<Inbox<Letter>>,
    pub(crate) ledger: Inbox<ToLedger>,
    /// By sender, then receiver.
    under_way: Vec<Vec<UnderWay>>,
    to_ledger: Vec<UnderWay>,
    /// What the ledger has answered, by shard.
    pub(crate) answers: Arc<[UnderWay]>,
    pub(crate) budget: Arc<Budget>,
    /// Connections of each shard, lingering ones included.
    loads: Vec<AtomicUsize>,
}

impl Switchboard {
    pub(crate) fn new(shards: Vec<Inbox<Letter>>, ledger: Inbox<ToLedger>, budget: Arc<Budget>) -> Self {
        let count = shards.len();
        let gauges = || (0..count).map(|_| UnderWay::default()).collect::<Vec<_>>();
        Self {
            shards,
            ledger,
            under_way: (0..count).map(|_| gauges()).collect(),
            to_ledger: gauges(),
            answers: gauges().into(),
            budget,
            loads: (0..count).map(|_| AtomicUsize::new(0)).collect(),
        }
    }

    /// All connections of the process.
    pub(crate) fn connections(&self) -> usize {
        self.loads.iter().map(|load| load.load(Ordering::Relaxed)).sum()
    }

    /// The shard with the fewest connections takes the next one, and is charged for it at once.
    pub(crate) fn charge_least_loaded(&self) -> ShardId {
        let loads = self.loads.iter().map(|load| load.load(Ordering::Relaxed));
        let least = loads.enumerate().min_by_key(|(_, load)| *load).map_or(0, |(number, _)| number);
        self.loads[least].fetch_add(1, Ordering::Relaxed);
        ShardId::new(least)
    }

    pub(crate) fn discharge(&self, shard: ShardId) {
        self.loads[shard.number()].fetch_sub(1, Ordering::Relaxed);
    }

    /// The ledger has carried out a shard's commands.
    pub(crate) fn commands_handled(&self, from: ShardId, bytes: usize) {
        if self.to_ledger[from.number()].handled(bytes) {
            self.shards[from.number()].post(Letter::Note(Note::CommandsRead));
        }
    }
}

impl Switchboard {
    /// What the ledger has answered is on its way.
    pub(crate) fn post_replies(&self, to: ShardId, replies: Vec<Reply>, bytes: usize) {
        self.answers[to.number()].add(bytes);
        // Messages are on the account already.
        let charge = self.budget.charge(Purpose::Mail, replies.capacity() * size_of::<Reply>());
        self.shards[to.number()].post(Letter::Replies { replies, bytes, charge });
    }

    /// A shard has read that.
    pub(crate) fn replies_handled(&self, by: ShardId, bytes: usize) {
        if self.answers[by.number()].handled(bytes) {
            self.ledger.post(ToLedger::RepliesRead);
        }
    }

    /// Whether no shard has more than `bound` bytes to read of what the ledger has answered. If one has, the ledger hears
    /// [`ToLedger::RepliesRead`].
    pub(crate) fn has_room_for_replies(&self, bound: usize) -> bool {
        !self.answers.iter().any(|way| way.bytes() > bound && way.wait_above(bound))
    }
}

/// One shard's outgoing mail.
pub(crate) struct Post {
    shard: ShardId,
    board: Arc<Switchboard>,
    outgoing: Vec<Option<Box<Batch>>>,
    commands: Vec<Command>,
    command_bytes: usize,
    /// Boxed as they travel.
    #[allow(clippy::vec_box)]
    spare: Vec<Box<Batch>>,
    /// What buffers of this shard's connections hold.
    tally: Tally,
    /// Bytes that may wait to be written in the whole process.
    waiting_bytes_max: usize,
    /// What others had waiting, and whatever else was held, when this shard last looked.
    others_waiting_bytes: usize,
    others_bytes: usize,
}

impl Post {
    pub(crate) fn new(shard: ShardId, board: Arc<Switchboard>, waiting_bytes_max: usize) -> Self {
        let outgoing = board.shards.iter().map(|_| None).collect();
        let tally = Tally::new(Arc::clone(&board.budget));
        Self {
            shard,
            board,
            outgoing,
            commands: Vec::new(),
            command_bytes: 0,
            spare: Vec::new(),
            tally,
            waiting_bytes_max,
            others_waiting_bytes: 0,
            others_bytes: 0,
        }
    }

    pub(crate) fn board(&self) -> &Switchboard {
        &self.board
    }

    pub(crate) fn tally(&mut self) -> &mut Tally {
        &mut self.tally
    }

    /// Whether so much waits to be written that more is dropped where it can be: as much as may, or memory is short.
    pub(crate) fn is_full(&self) -> bool {
        let own_bytes = self.tally.held_bytes(Purpose::Outputs);
        self.others_waiting_bytes + own_bytes > self.waiting_bytes_max
            || self.others_bytes.saturating_add(own_bytes) > self.board.budget.tight_bytes()
    }

    pub(crate) fn mail(&mut self, to: ShardId, mail: Mail<'_>) -> Room {
        let place = &mut self.outgoing[to.number()];
        let batch = place.get_or_insert_with(|| self.spare.pop().unwrap_or_default());
        let weight = batch.push(mail);
        let under_way = self.board.under_way[self.shard.number()][to.number()].add(weight);
        if under_way > UNDER_WAY_BYTES { Room::Over } else { Room::Open }
    }

    pub(crate) fn mail_room(&self, to: ShardId) -> Room {
        room(&self.board.under_way[self.shard.number()][to.number()])
    }

    pub(crate) fn command(&mut self, command: Command) -> Room {
        let bytes = command.weight_bytes().max(COMMAND_BYTES);
        self.command_bytes += bytes;
        self.commands.push(command);
        let under_way = self.board.to_ledger[self.shard.number()].add(bytes);
        if under_way > UNDER_WAY_BYTES { Room::Over } else { Room::Open }
    }

    pub(crate) fn command_room(&self) -> Room {
        room(&self.board.to_ledger[self.shard.number()])
    }

    /// Posts what the turn has collected: to the shards first, so that what happened before a command
    /// is handled before the ledger's answer to it.
    pub(crate) fn send(&mut self) {
        for (to, batch) in self.outgoing.iter_mut().enumerate() {
            if let Some(mut batch) = batch.take() {
                batch.charge = Some(self.board.budget.charge(Purpose::Mail, batch.weight));
                self.board.shards[to].post(Letter::Note(Note::Mail { from: self.shard, batch }));
            }
        }
        if !self.commands.is_empty() {
            let commands = std::mem::take(&mut self.commands);
            let bytes = std::mem::take(&mut self.command_bytes);
            self.board.ledger.post(ToLedger::Commands { from: self.shard, commands, bytes });
        }
        self.look();
    }

    /// Learns how full the process is by now: while this shard has slept, others have not.
    pub(crate) fn look(&mut self) {
        self.tally.settle();
        let (budget, own_bytes) = (&self.board.budget, self.tally.held_bytes(Purpose::Outputs));
        self.others_waiting_bytes = budget.held_bytes(Purpose::Outputs).saturating_sub(own_bytes);
        self.others_bytes = budget.used_bytes().saturating_sub(own_bytes);
    }

    /// A batch from another shard has been read: frees its way, keeps its memory.
    pub(crate) fn read(&mut self, from: ShardId, mut batch: Box<Batch>) {
        let weight = std::mem::take(&mut batch.weight);
        batch.charge = None;
        if self.board.under_way[from.number()][self.shard.number()].handled(weight) {
            self.board.shards[from.number()].post(Letter::Note(Note::MailRead(self.shard)));
        }
        if self.spare.len() < SPARE_BATCHES && batch.bytes.capacity() <= SPARE_BYTES {
            self.spare.push(batch);
        }
    }

    /// A connection of this shard is gone.
    pub(crate) fn left(&self) {
        self.board.discharge(self.shard);
    }
}

fn room(way: &UnderWay) -> Room {
    if way.bytes() > UNDER_WAY_BYTES && way.wait_above(UNDER_WAY_BYTES) { Room::Over } else { Room::Open }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use index::ConnectionId;
    use ledger::CursorId;

    use super::*;
    use crate::inbox::Wake;

    /// Each takes the ledger a while, and whoever sends another one waits for all of them.
    #[test]
    fn a_shard_has_a_bounded_number_of_commands_under_way_however_small_they_are() {
        let inbox = || Wake::Thread(thread::current());
        let board =
            Arc::new(Switchboard::new(vec![Inbox::new(inbox())], Inbox::new(inbox()), Arc::default()));
        let shard = ShardId::new(0);
        let mut post = Post::new(shard, Arc::clone(&board), usize::MAX);
        let command = |slot| {
            let connection = ConnectionId { slot, generation: 0 };
            Command::Close { connection, id: CursorId(1) }
        };
        let sent = (0..).take_while(|slot| post.command(command(*slot)) == Room::Open).count();
        assert_eq!(sent, COMMANDS_UNDER_WAY);
        post.send();
        assert_eq!(post.command_room(), Room::Over);
        let mut letters = Vec::new();
        board.ledger.take(&mut letters);
        let Some(ToLedger::Commands { commands, bytes, .. }) = letters.pop() else { panic!("one turn's") };
        assert_eq!(commands.len(), COMMANDS_UNDER_WAY + 1);
        board.commands_handled(shard, bytes);
        assert_eq!(post.command_room(), Room::Open);
        let mut told = Vec::new();
        board.shards[0].take(&mut told);
        assert!(matches!(told[..], [Letter::Note(Note::CommandsRead)]), "the shard has waited for that");
    }
}
