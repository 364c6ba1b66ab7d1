//! Groups of records to bytes.

use std::sync::Arc;

use ledger::{MessageId, Queued, Record};
use session::Message;

use super::bytes::put_number;
use super::{CONTINUED, LAST, field, kind, put};

/// Appends the records of one group to `into`, the last one flagged; of an empty group nothing.
///
/// A group of more than `piece_bytes_max` comes in pieces that may be written apart, one behind the other. `cuts` gets the
/// offsets in `into` where all but the first begin: none for nearly every group. Pieces are no longer than that, but for
/// one with a single record that is longer by itself. A message with so many queues that it is longer is divided: records
/// behind the first repeat its number without its body.
///
/// Returns how long the first record is, if there is one and it was not divided.
pub fn encode_group(
    group: &[Record<'_>],
    piece_bytes_max: usize,
    into: &mut Vec<u8>,
    cuts: &mut Vec<usize>,
) -> usize {
    let begins_at = into.len();
    let mut piece = Piece { begins_at, bytes_max: piece_bytes_max, into, cuts };
    let (mut last_at, mut first_bytes) = (None, 0);
    for record in group {
        last_at = Some(piece.put(record));
        if first_bytes == 0 {
            first_bytes = piece.into.len() - begins_at;
        }
    }
    if let Some(last_at) = last_at {
        into[last_at] |= LAST;
    }
    first_bytes
}

/// The piece that is being written.
struct Piece<'a> {
    begins_at: usize,
    bytes_max: usize,
    into: &'a mut Vec<u8>,
    cuts: &'a mut Vec<usize>,
}

impl Piece<'_> {
    /// Returns where the record begins, or the last that it was divided into.
    fn put(&mut self, record: &Record<'_>) -> usize {
        let at = self.into.len();
        self.into.push(kind(record));
        put(record, self.into);
        if self.into.len() - self.begins_at <= self.bytes_max {
            return at;
        }
        self.cut(at);
        match record {
            Record::Enqueue { message, body, queues, is_retained }
                if self.into.len() - at > self.bytes_max =>
            {
                self.into.truncate(at + 1);
                self.divide(at, *message, body, queues, *is_retained)
            }
            _ => at,
        }
    }

    /// A new piece begins there, unless one does already.
    fn cut(&mut self, at: usize) {
        if at > self.begins_at {
            self.cuts.push(at);
            self.begins_at = at;
        }
    }

    /// Goes on behind the kind byte at `at`.
    fn divide(
        &mut self,
        mut at: usize,
        message: MessageId,
        body: &Arc<Message>,
        mut queues: &[Queued],
        is_retained: bool,
    ) -> usize {
        field::message_id::put(&message, self.into);
        field::flag::put(&is_retained, self.into);
        field::message::put(body, self.into);
        loop {
            let room = self.bytes_max.saturating_sub(self.into.len() - at + QUEUE_COUNT_BYTES_MAX);
            let is_first = self.into[at] != CONTINUED;
            let count = fitting(queues, room).max(usize::from(!is_first));
            let (these, rest) = queues.split_at(count.min(queues.len()));
            field::queues::put(these, self.into);
            if rest.is_empty() {
                return at;
            }
            queues = rest;
            at = self.into.len();
            self.cut(at);
            self.into.push(CONTINUED);
            field::message_id::put(&message, self.into);
        }
    }
}

/// No message has 2^35 queues.
const QUEUE_COUNT_BYTES_MAX: usize = 5;

/// How many of the queues can be written into so many bytes.
fn fitting(queues: &[Queued], mut room: usize) -> usize {
    let mut one = Vec::new();
    let fits = |queued: &&Queued| {
        one.clear();
        put_number(queued.queue.0, &mut one);
        field::granted::put(&queued.granted, &mut one);
        let left = room.checked_sub(one.len());
        room = left.unwrap_or(0);
        left.is_some()
    };
    queues.iter().take_while(fits).count()
}
