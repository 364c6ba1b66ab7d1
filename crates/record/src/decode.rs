//! Bytes to groups of records.

use std::iter::FusedIterator;

use super::bytes::Reader;
use super::publishers::Publishers;
use super::{DecodeError, ENQUEUE, LAST, error, field, take};

use crate::record::{Away, Needs, Record};

/// Makes records again of the bytes of one frame after the other, in their order.
#[derive(Default)]
pub struct Decoder {
    publishers: Publishers,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").finish_non_exhaustive()
    }
}

/// One record of a group.
#[derive(Debug)]
pub struct Decoded {
    /// `None` for what is not needed.
    pub record: Option<Record<'static>>,
    /// Whether its group ends with it.
    pub is_last: bool,
}

impl Decoder {
    /// The first record in `bytes`, without those of its group; none if there is none.
    pub fn first_record(&mut self, bytes: &[u8]) -> Option<Record<'static>> {
        self.records(bytes).next()?.ok()?.record
    }

    /// Returns the records in `bytes`, which are whole. After an error there are no more records. The memory for them
    /// is bounded by the number of bytes.
    pub fn records<'a>(&'a mut self, bytes: &'a [u8]) -> Records<'a> {
        self.records_from(bytes, 0)
    }

    /// The records in `bytes` that begin at the offset `at` or behind it.
    pub fn records_from<'a>(&'a mut self, bytes: &'a [u8], at: usize) -> Records<'a> {
        Records { from: Reader::new(bytes, at, &mut self.publishers), needs: None }
    }

    /// The same without records that begin nothing, and without messages that no queue needs: those are passed over, which
    /// takes an eighth of the time.
    pub fn needed<'a>(&'a mut self, bytes: &'a [u8], needs: Needs<'a>) -> Records<'a> {
        Records { needs: Some(needs), ..self.records(bytes) }
    }
}

/// Iterates over the records of a frame; see [`Decoder::records`].
pub struct Records<'a> {
    from: Reader<'a>,
    needs: Option<Needs<'a>>,
}

impl Records<'_> {
    /// How far it is in the bytes of the frame.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.from.at()
    }

    /// The next record; there must be one.
    ///
    /// # Errors
    /// The bytes are no record, or end before it does.
    #[inline]
    pub fn next_record(&mut self) -> Result<Decoded, Box<DecodeError>> {
        let first = self.from.field("kind", Reader::byte)?;
        let (kind, is_last) = (first & !LAST, first & LAST != 0);
        if kind == ENQUEUE && self.passes_over()? {
            return Ok(Decoded { record: None, is_last });
        }
        let record = take(kind, &mut self.from)?;
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
        }
        Ok(!is_needed)
    }

    /// The next record without its message, and whether its group ends with it; it goes nowhere if that is none which is
    /// put in any queue, or if it is retained.
    ///
    /// # Errors
    /// It can be seen that it is no record: the message itself is not looked at.
    #[inline]
    pub fn next_away(&mut self) -> Result<Option<(Away, bool)>, Box<DecodeError>> {
        let begins_at = self.from.at();
        if self.from.is_at_end() {
            return Ok(None);
        }
        let first = self.from.field("kind", Reader::byte)?;
        let away = if first & !LAST == ENQUEUE { self.take_away()? } else { None };
        if away.is_none() {
            self.from.go_back(begins_at);
        }
        Ok(away.map(|away| (away, first & LAST != 0)))
    }

    #[inline]
    fn take_away(&mut self) -> Result<Option<Away>, Box<DecodeError>> {
        error::of_record("Enqueue", || {
            let message = self.from.field("message", field::message_id::take)?;
            if self.from.field("is_retained", field::flag::take)? {
                return Ok(None);
            }
            let (size_bytes, expires_unix_ms) = self.from.field("body", field::message::pass)?;
            let queues = self.from.field("queues", field::queues::split)?;
            Ok(queues.map(|(queue, others)| Away { message, queue, others, size_bytes, expires_unix_ms }))
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
        let taken = self.next_record();
        if taken.is_err() {
            self.from.stop();
        }
        Some(taken)
    }
}

impl FusedIterator for Records<'_> {}
