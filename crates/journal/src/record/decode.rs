//! Bytes to groups of records.

use std::borrow::Cow;
use std::iter::FusedIterator;
use std::sync::Arc;

use ledger::{MessageId, Needs, Record};
use session::Message;

use super::bytes::Reader;
use super::error::Fault;
use super::publishers::Publishers;
use super::{CONTINUED, DecodeError, ENQUEUE, LAST, error, field, take};

/// Makes records again of the bytes of one piece after the other, in their order.
#[derive(Default)]
pub struct Decoder {
    publishers: Publishers,
    /// The message that a group under way has put in queues last.
    head: Option<(MessageId, Arc<Message>)>,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").finish_non_exhaustive()
    }
}

/// One record.
#[derive(Debug)]
pub struct Decoded {
    /// `None` for what is not needed; and for more queues of a message whose body was in a piece that is not there any
    /// more: where that was given up, what is still true of it was recorded again.
    pub record: Option<Record<'static>>,
    /// Whether its group ends with it.
    pub is_last: bool,
}

impl Decoder {
    /// The first record in `bytes`, without those of its group; none if there is none.
    pub(crate) fn first(&mut self, bytes: &[u8]) -> Option<Record<'static>> {
        let decoded = self.records(bytes).next();
        // Nobody else has its message.
        self.head = None;
        decoded?.ok()?.record
    }

    /// The records in `bytes`, which are whole; or what is wrong with them, and then no more. What is set aside for them is
    /// bounded by the bytes that are there.
    pub fn records<'a>(&'a mut self, bytes: &'a [u8]) -> Records<'a> {
        Records { from: Reader::new(bytes, &mut self.publishers), head: &mut self.head, needs: None }
    }

    /// The same without records that begin nothing, and without messages that no queue needs: those are passed over, which
    /// takes an eighth of the time.
    pub fn needed<'a>(&'a mut self, bytes: &'a [u8], needs: Needs<'a>) -> Records<'a> {
        Records { needs: Some(needs), ..self.records(bytes) }
    }
}

/// Iterates over the records of a piece; see [`Decoder::records`].
pub struct Records<'a> {
    from: Reader<'a>,
    head: &'a mut Option<(MessageId, Arc<Message>)>,
    needs: Option<Needs<'a>>,
}

impl Records<'_> {
    /// How far it is in the bytes of the piece.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.from.at()
    }

    #[inline]
    fn take(&mut self) -> Result<Decoded, Box<DecodeError>> {
        let first = self.from.field("kind", Reader::byte)?;
        let (kind, is_last) = (first & !LAST, first & LAST != 0);
        if kind == CONTINUED {
            let record = self.take_continued()?;
            if is_last {
                *self.head = None;
            }
            return Ok(Decoded { record, is_last });
        }
        // Where it is not the last of its group, more queues may follow.
        if kind == ENQUEUE && is_last && self.passes_over()? {
            return Ok(Decoded { record: None, is_last });
        }
        let record = take(kind, &mut self.from)?;
        if is_last {
            *self.head = None;
        } else if let Record::Enqueue { message, body, .. } = &record {
            *self.head = Some((*message, Arc::clone(body)));
        }
        let is_needed = self.needs.is_none() || record.begins_something();
        Ok(Decoded { record: is_needed.then_some(record), is_last })
    }

    /// Passes over a message that is not needed; goes nowhere if it is.
    fn passes_over(&mut self) -> Result<bool, Box<DecodeError>> {
        let Some(needs) = &mut self.needs else { return Ok(false) };
        let begins_at = self.from.at();
        let is_needed = error::of_record("Enqueue", || {
            let message = self.from.field("message", field::message_id::take)?;
            let is_retained = self.from.field("is_retained", field::flag::take)?;
            self.from.field("body", field::message::pass)?;
            let any = |from: &mut Reader<'_>| field::queues::any(from, |queue| needs(queue, message));
            Ok(is_retained || self.from.field("queues", any)?)
        })?;
        if is_needed {
            self.from.go_back(begins_at);
        } else {
            *self.head = None;
        }
        Ok(!is_needed)
    }

    fn take_continued(&mut self) -> Result<Option<Record<'static>>, Box<DecodeError>> {
        let head = self.head.as_ref();
        let check = |from: &mut Reader<'_>| {
            let message = field::message_id::take(from)?;
            let is_other = head.is_some_and(|(head, _)| *head != message);
            if is_other { Err(Fault::Continued) } else { Ok(message) }
        };
        error::of_record("Enqueue, continued", || {
            let message = self.from.field("message", check)?;
            let queues = self.from.field("queues", field::queues::take)?;
            Ok(head.map(|(_, body)| {
                let body = Cow::Owned(Arc::clone(body));
                Record::Enqueue { message, body, queues, is_retained: false }
            }))
        })
    }
}

impl Iterator for Records<'_> {
    /// The error is boxed because it is larger than nearly every record.
    type Item = Result<Decoded, Box<DecodeError>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.from.is_at_end() {
            return None;
        }
        let taken = self.take();
        if taken.is_err() {
            self.from.stop();
        }
        Some(taken)
    }
}

impl FusedIterator for Records<'_> {}
