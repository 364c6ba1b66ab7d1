//! A shard reads its inbox piece by piece.

use std::collections::VecDeque;

use base::Charge;
use protocol::Reply;

use crate::letter::{Answers, Letter, Note};

/// Weight of a piece without a message, in bytes: to acknowledge costs little.
const PIECE_BYTES: usize = 16;
/// Weight of a question of an operator, in bytes: a turn answers at most 16 of them.
const QUESTION_BYTES: usize = 64 * 1024;

/// Letters in the order in which they were posted: rule 1 of `protocol::order`.
pub(crate) struct Pile<S> {
    letters: VecDeque<Letter<S>>,
    /// The answers of the first letter, as far as they were not read.
    begun: Option<Begun>,
}

struct Begun {
    replies: std::vec::IntoIter<Reply>,
    bytes: usize,
    _charge: Charge,
}

/// A part of a letter, or a letter, that is handled at a time.
pub(crate) enum Piece<S> {
    Reply(Reply),
    /// All of a letter of answers, which weighed so much, is read.
    AnswersRead(usize),
    Note(Note<S>),
}

impl<S> Piece<S> {
    fn weight_bytes(&self) -> usize {
        match self {
            Self::Reply(Reply::Stored { .. } | Reply::Decided { .. }) => PIECE_BYTES,
            Self::Reply(reply) => reply.weight_bytes(),
            Self::Note(Note::Mail { batch, .. }) => batch.weight_bytes(),
            Self::Note(Note::Ask(_) | Note::Census(_)) => QUESTION_BYTES,
            Self::AnswersRead(_) | Self::Note(_) => PIECE_BYTES,
        }
    }
}

impl<S> Default for Pile<S> {
    fn default() -> Self {
        Self { letters: VecDeque::new(), begun: None }
    }
}

impl<S> Pile<S> {
    /// Appends what has arrived.
    pub(crate) fn take(&mut self, fresh: &mut Vec<Letter<S>>) {
        self.letters.extend(fresh.drain(..));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.letters.is_empty() && self.begun.is_none()
    }

    /// Hands out what one turn reads: up to the piece that reaches `bytes_max`. Letters may weigh megabytes, and the clients
    /// of the shard wait for the turn. Less would make more and smaller writes where the ledger is busy.
    pub(crate) fn read(&mut self, bytes_max: usize, mut each: impl FnMut(Piece<S>)) {
        let mut read_bytes = 0;
        while read_bytes < bytes_max
            && let Some(piece) = self.next()
        {
            read_bytes += piece.weight_bytes();
            each(piece);
        }
    }

    fn next(&mut self) -> Option<Piece<S>> {
        if let Some(answers) = &mut self.begun {
            if let Some(reply) = answers.replies.next() {
                return Some(Piece::Reply(reply));
            }
            return self.begun.take().map(|answers| Piece::AnswersRead(answers.bytes));
        }
        match self.letters.pop_front()? {
            Letter::Answers(Answers { replies, bytes, charge }) => {
                self.begun = Some(Begun { replies: replies.into_iter(), bytes, _charge: charge });
                self.next()
            }
            Letter::Note(note) => Some(Piece::Note(note)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::{Budget, Message, Purpose, ShardId};

    use super::*;

    const BYTES_PER_TURN: usize = 1024 * 1024;

    /// Of every turn, how many answers it has read, and of how many bytes it has told.
    fn turns(pile: &mut Pile<()>) -> Vec<(usize, usize)> {
        let mut turns = Vec::new();
        while !pile.is_empty() {
            let (mut replies, mut bytes_read) = (0, 0);
            pile.read(BYTES_PER_TURN, |piece| match piece {
                Piece::Reply(_) => replies += 1,
                Piece::AnswersRead(bytes) => bytes_read += bytes,
                Piece::Note(_) => {}
            });
            turns.push((replies, bytes_read));
        }
        turns
    }

    #[test]
    fn a_turn_reads_a_bounded_part_of_what_a_shard_was_answered() {
        let budget = Arc::new(Budget::default());
        let message = Arc::new(Message::of_server("t", &[0; 400_000]).expect("a topic"));
        let live = || Reply::Live { message: Arc::clone(&message), targets: Arc::new([]), value: None };
        let mut pile = Pile::default();
        for bytes in [7, 8] {
            let replies = (0..4).map(|_| live()).collect();
            let charge = budget.charge(Purpose::Mail, 1_000);
            pile.take(&mut vec![Letter::Answers(Answers { replies, bytes, charge })]);
        }
        assert_eq!(turns(&mut pile), [(3, 0), (3, 7), (2, 8)]);
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn a_turn_answers_a_bounded_number_of_questions() {
        let ask = || {
            let question = broker::Question::Clients { from_slot: 0 };
            Note::Ask(Box::new(crate::AskShard { question, answer: Box::new(|_| {}) })).into()
        };
        let mut pile: Pile<()> = Pile::default();
        pile.take(&mut (0..40).map(|_| ask()).collect());
        let mut turns = Vec::new();
        while !pile.is_empty() {
            let mut questions = 0;
            pile.read(BYTES_PER_TURN, |piece| {
                questions += usize::from(matches!(piece, Piece::Note(Note::Ask(_))));
            });
            turns.push(questions);
        }
        assert_eq!(turns, [16, 16, 8]);
    }

    #[test]
    fn letters_keep_their_order_around_answers() {
        let budget = Arc::new(Budget::default());
        let evict = |slot| Reply::Evict { connection: base::ConnectionId { slot, generation: 0 } };
        let charge = budget.charge(Purpose::Mail, 1);
        let mut pile: Pile<()> = Pile::default();
        pile.take(&mut vec![
            Note::MailRead(ShardId::new(1)).into(),
            Letter::Answers(Answers { replies: vec![evict(1), evict(2)], bytes: 9, charge }),
            Note::CommandsRead.into(),
        ]);
        let mut read = Vec::new();
        pile.read(BYTES_PER_TURN, |piece| {
            read.push(match piece {
                Piece::Note(Note::MailRead(_)) => "mail",
                Piece::Reply(Reply::Evict { connection }) if connection.slot == 1 => "first reply",
                Piece::Reply(Reply::Evict { .. }) => "second reply",
                Piece::AnswersRead(9) => "all",
                Piece::Note(Note::CommandsRead) => "commands",
                _ => "something else",
            });
        });
        assert_eq!(read, ["mail", "first reply", "second reply", "all", "commands"]);
    }
}
