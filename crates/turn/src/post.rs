//! Mail and commands of a shard, collected during a turn and posted at its end.

use std::sync::Arc;

use base::{Purpose, ShardId, Tally};
use broker::{Mail, Room};
use protocol::Command;

use crate::batch::Batch;
use crate::board::Board;
use crate::bounds::Bounds;
use crate::bundle::Bundle;
use crate::faults::Fault;
use crate::host::Host;
use crate::letter::{Note, ToLedger};

/// Batches that are kept for reuse, and the largest that is.
const SPARE_BATCHES: usize = 8;
const SPARE_BYTES: usize = 1024 * 1024;

/// A command to the ledger weighs at least this part of the bound of commands. The ledger takes a few microseconds for a
/// command, however small it is, and carries out commands in their order: the sender of a command waits for all that are
/// under way. The ledger carries out this number of commands in one or two milliseconds.
const COMMANDS_UNDER_WAY: usize = 512;

/// One shard's outgoing mail.
pub(crate) struct Post {
    shard: ShardId,
    board: Arc<Board>,
    outgoing: Vec<Option<Box<Batch>>>,
    commands: Bundle<Command>,
    command_bytes: usize,
    /// Boxed as they travel.
    #[allow(clippy::vec_box)]
    spare: Vec<Box<Batch>>,
    /// Memory that buffers of this shard's connections hold.
    tally: Tally,
    bounds: Bounds,
    /// Bytes that waited in outputs of other shards, and all memory but this shard's outputs, at the last look.
    others_waiting_bytes: usize,
    others_bytes: usize,
}

impl Post {
    pub(crate) fn new(shard: ShardId, board: Arc<Board>, bounds: Bounds) -> Self {
        let outgoing = (0..board.shards()).map(|_| None).collect();
        let tally = Tally::new(Arc::clone(board.budget()));
        Self {
            shard,
            board,
            outgoing,
            commands: Bundle::default(),
            command_bytes: 0,
            spare: Vec::new(),
            tally,
            bounds,
            others_waiting_bytes: 0,
            others_bytes: 0,
        }
    }

    pub(crate) fn board(&self) -> &Board {
        &self.board
    }

    pub(crate) fn change_bounds(&mut self, outputs_bytes: usize) {
        self.bounds.outputs = outputs_bytes;
    }

    pub(crate) fn tally(&mut self) -> &mut Tally {
        &mut self.tally
    }

    /// Whether messages of QoS 0 are dropped because outputs are at their limit or memory is short.
    pub(crate) fn is_full(&self) -> bool {
        let own_bytes = self.tally.held_bytes(Purpose::Outputs);
        self.others_waiting_bytes + own_bytes > self.bounds.outputs
            || self.others_bytes.saturating_add(own_bytes) > self.board.budget().tight_bytes()
    }

    /// Whether there is memory to write a stored message of this many bytes: below the limit, or in the part of it above
    /// the mark of short memory. Outputs may take so much in any case. Otherwise nobody could acknowledge anything while
    /// others hold all memory, and stored messages would hold it for ever.
    pub(crate) fn has_memory_for(&self, bytes: usize) -> bool {
        let own_bytes = self.tally.held_bytes(Purpose::Outputs);
        let budget = self.board.budget();
        let outputs_bytes = self.others_waiting_bytes + own_bytes;
        self.others_bytes.saturating_add(own_bytes + bytes) <= budget.limit_bytes()
            || outputs_bytes == 0
            || outputs_bytes + bytes <= budget.limit_bytes().saturating_sub(budget.tight_bytes())
    }

    pub(crate) fn mail(&mut self, to: ShardId, mail: Mail<'_>) -> Room {
        let place = &mut self.outgoing[to.number()];
        let batch = place.get_or_insert_with(|| self.spare.pop().unwrap_or_default());
        let weight = batch.push(mail);
        self.board.mail(self.shard, to).add(weight, self.bounds.mail)
    }

    pub(crate) fn mail_room(&self, to: ShardId) -> Room {
        self.board.mail(self.shard, to).room(self.bounds.mail)
    }

    pub(crate) fn command(&mut self, command: Command) -> Room {
        let bytes = command.weight_bytes().max(self.bounds.commands / COMMANDS_UNDER_WAY);
        self.command_bytes += bytes;
        self.commands.push(command);
        self.board.commands(self.shard).add(bytes, self.bounds.commands)
    }

    pub(crate) fn command_room(&self) -> Room {
        self.board.commands(self.shard).room(self.bounds.commands)
    }

    /// Posts what the turn has collected: to the shards first, so that what happened before a command
    /// is handled before the ledger's answer to it (rule 3 of `protocol::order`).
    pub(crate) fn send(&mut self, host: &mut impl Host) {
        let from = self.shard;
        if Fault::MailBehindCommands.is_planted() {
            self.send_commands(host);
        }
        for (to, batch) in self.outgoing.iter_mut().enumerate() {
            if let Some(mut batch) = batch.take() {
                batch.charge = Some(self.board.budget().charge(Purpose::Mail, batch.weight_bytes()));
                host.post(ShardId::new(to), Note::Mail { from, batch }.into());
            }
        }
        self.send_commands(host);
        self.look();
    }

    fn send_commands(&mut self, host: &mut impl Host) {
        if !self.commands.is_empty() {
            let commands = self.commands.take();
            let bytes = std::mem::take(&mut self.command_bytes);
            host.post_to_ledger(ToLedger::Commands { from: self.shard, commands, bytes });
        }
    }

    /// Looks how full the process is. Other shards have run while this one slept.
    pub(crate) fn look(&mut self) {
        self.tally.settle();
        let (budget, own_bytes) = (self.board.budget(), self.tally.held_bytes(Purpose::Outputs));
        self.others_waiting_bytes = budget.held_bytes(Purpose::Outputs).saturating_sub(own_bytes);
        self.others_bytes = budget.used_bytes().saturating_sub(own_bytes);
    }

    /// Notes that a batch of another shard was read, and keeps its memory for reuse.
    pub(crate) fn mail_read(&mut self, from: ShardId, mut batch: Box<Batch>, host: &mut impl Host) {
        let is_waited_for = self.board.mail(from, self.shard).handled(batch.reset());
        if is_waited_for && !Fault::ForgottenResume.is_planted() {
            host.post(from, Note::MailRead(self.shard).into());
        }
        if self.spare.len() < SPARE_BATCHES && batch.capacity_bytes() <= SPARE_BYTES {
            self.spare.push(batch);
        }
    }

    /// Notes that answers of the ledger were read.
    pub(crate) fn answers_read(&self, bytes: usize, host: &mut impl Host) {
        if self.board.answers(self.shard).handled(bytes) {
            host.post_to_ledger(ToLedger::AnswersRead);
        }
    }

    /// Notes that a connection of this shard is gone, which this listener had accepted.
    pub(crate) fn left(&self, listener: u16) {
        self.board.discharge(self.shard);
        self.board.discharge_listener(listener);
    }
}

#[cfg(test)]
mod tests {
    use base::{ConnectionId, Subscriber};
    use protocol::CursorId;

    use super::*;
    use crate::double::Double;

    /// Each takes the ledger a while, and whoever sends another one waits for all of them.
    #[test]
    fn a_shard_has_a_bounded_number_of_commands_under_way_however_small_they_are() {
        let shard = ShardId::new(0);
        let board = Arc::new(Board::new(1, Arc::default()));
        let mut post = Post::new(shard, Arc::clone(&board), Bounds::default());
        let command = |slot| {
            let connection = ConnectionId { slot, generation: 0 };
            Command::Close { connection, id: CursorId(1) }
        };
        let sent = (0..).take_while(|slot| post.command(command(*slot)) == Room::Open).count();
        assert_eq!(sent, COMMANDS_UNDER_WAY);
        let mut host = Double::default();
        post.send(&mut host);
        assert_eq!(post.command_room(), Room::Over);
        let Some(ToLedger::Commands { commands, bytes, .. }) = host.to_ledger.pop() else {
            panic!("one turn's")
        };
        assert_eq!(commands.len(), COMMANDS_UNDER_WAY + 1);
        assert!(board.commands(shard).handled(bytes), "the shard waits, and is told");
        assert_eq!(post.command_room(), Room::Open);
    }

    #[test]
    fn the_mail_of_a_turn_is_posted_before_its_commands() {
        let shard = ShardId::new(0);
        let board = Arc::new(Board::new(3, Arc::default()));
        let mut post = Post::new(shard, board, Bounds::default());
        let connection = ConnectionId { slot: 0, generation: 0 };
        let subscriber = Arc::new(Subscriber::new("s".into(), shard, connection));
        post.command(Command::Close { connection, id: CursorId(1) });
        for to in [2, 1] {
            post.mail(ShardId::new(to), Mail::Resume(Arc::clone(&subscriber)));
        }
        let mut host = Double::default();
        post.send(&mut host);
        assert_eq!(host.addressees, [Some(ShardId::new(1)), Some(ShardId::new(2)), None]);
    }
}
