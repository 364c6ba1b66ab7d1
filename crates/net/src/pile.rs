//! A shard reads its inbox piece by piece.

use std::collections::VecDeque;

use ledger::Reply;
use session::Charge;

use crate::inbox::Inbox;
use crate::mail::{Letter, Note};

/// A turn ends its reading with the piece that reaches this weight, in bytes: letters may weigh megabytes, and whoever is
/// served by this shard waits for the turn. Less would make more and smaller writes where the ledger is busy.
const BYTES_PER_TURN: usize = 1024 * 1024;
/// Weight of a piece without a message, in bytes: to acknowledge costs little.
const PIECE_BYTES: usize = 16;

/// Letters in the order in which they were posted.
#[derive(Default)]
pub(crate) struct Pile {
    fresh: Vec<Letter>,
    letters: VecDeque<Letter>,
    /// The answers of the first letter, as far as they were not read.
    begun: Option<Answers>,
}

struct Answers {
    replies: std::vec::IntoIter<Reply>,
    bytes: usize,
    _charge: Charge,
}

/// A part of a letter, or a letter, that is handled at a time.
pub(crate) enum Piece {
    Reply(Reply),
    /// All of a letter of answers, which weighed so much, is read.
    RepliesRead(usize),
    Note(Note),
}

impl Piece {
    fn weight_bytes(&self) -> usize {
        match self {
            Self::Reply(Reply::Stored { .. } | Reply::Decided { .. }) => PIECE_BYTES,
            Self::Reply(reply) => reply.weight_bytes(),
            Self::Note(Note::Mail { batch, .. }) => batch.weight_bytes(),
            Self::RepliesRead(_) | Self::Note(_) => PIECE_BYTES,
        }
    }
}

impl Pile {
    pub(crate) fn take(&mut self, inbox: &Inbox<Letter>) {
        inbox.take(&mut self.fresh);
        self.letters.extend(self.fresh.drain(..));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.letters.is_empty() && self.begun.is_none()
    }

    /// Hands out what one turn reads.
    pub(crate) fn read(&mut self, mut each: impl FnMut(Piece)) {
        let mut read_bytes = 0;
        while read_bytes < BYTES_PER_TURN
            && let Some(piece) = self.next()
        {
            read_bytes += piece.weight_bytes();
            each(piece);
        }
    }

    fn next(&mut self) -> Option<Piece> {
        if let Some(answers) = &mut self.begun {
            if let Some(reply) = answers.replies.next() {
                return Some(Piece::Reply(reply));
            }
            return self.begun.take().map(|answers| Piece::RepliesRead(answers.bytes));
        }
        match self.letters.pop_front()? {
            Letter::Replies { replies, bytes, charge } => {
                self.begun = Some(Answers { replies: replies.into_iter(), bytes, _charge: charge });
                self.next()
            }
            Letter::Note(note) => Some(Piece::Note(note)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use index::ShardId;
    use session::{Budget, Message, Purpose};

    use super::*;
    use crate::inbox::Wake;

    /// Of every turn, how many answers it has read, and of how many bytes it has told.
    fn turns(pile: &mut Pile) -> Vec<(usize, usize)> {
        let mut turns = Vec::new();
        while !pile.is_empty() {
            let (mut replies, mut bytes_read) = (0, 0);
            pile.read(|piece| match piece {
                Piece::Reply(_) => replies += 1,
                Piece::RepliesRead(bytes) => bytes_read += bytes,
                Piece::Note(_) => {}
            });
            turns.push((replies, bytes_read));
        }
        turns
    }

    #[test]
    fn a_turn_reads_a_bounded_part_of_what_a_shard_was_answered() {
        let inbox = Inbox::new(Wake::Thread(std::thread::current()));
        let budget = Arc::new(Budget::default());
        let message = Arc::new(Message::of_server("t", &[0; 400_000]).expect("a topic"));
        let live = || Reply::Live { message: Arc::clone(&message), targets: Arc::new([]), stored: false };
        for bytes in [7, 8] {
            let replies = (0..4).map(|_| live()).collect();
            let charge = budget.charge(Purpose::Mail, 1_000);
            inbox.post(Letter::Replies { replies, bytes, charge });
        }
        let mut pile = Pile::default();
        pile.take(&inbox);
        assert_eq!(turns(&mut pile), [(3, 0), (3, 7), (2, 8)]);
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn letters_keep_their_order_around_answers() {
        let inbox = Inbox::new(Wake::Thread(std::thread::current()));
        let budget = Arc::new(Budget::default());
        inbox.post(Letter::Note(Note::MailRead(ShardId::new(1))));
        let evict = Reply::Evict { connection: index::ConnectionId { slot: 1, generation: 0 } };
        inbox.post(Letter::Replies {
            replies: vec![evict],
            bytes: 9,
            charge: budget.charge(Purpose::Mail, 1),
        });
        inbox.post(Letter::Note(Note::CommandsRead));
        let mut pile = Pile::default();
        pile.take(&inbox);
        let mut read = Vec::new();
        pile.read(|piece| {
            read.push(match piece {
                Piece::Note(Note::MailRead(_)) => "mail",
                Piece::Reply(Reply::Evict { .. }) => "evict",
                Piece::RepliesRead(9) => "all",
                Piece::Note(Note::CommandsRead) => "commands",
                _ => "something else",
            });
        });
        assert_eq!(read, ["mail", "evict", "all", "commands"]);
    }
}
