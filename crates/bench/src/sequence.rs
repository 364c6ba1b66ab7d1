//! Exact bookkeeping of what arrived: lost, duplicated, out of order.

use serde::Serialize;

/// What one subscriber received of one publisher's messages, numbered from 0.
///
/// A message counts as *lost* if it never arrived, as *duplicated* each time it arrives again, and as *out of
/// order* if it arrives after one with a higher number. In order, a message costs one comparison; the set of
/// missing numbers (one bit each) is made at the first gap.
#[derive(Debug, Clone)]
pub(crate) struct Sequence {
    /// One past the highest number seen.
    next: u64,
    /// Number of messages that are published in total.
    total: u64,
    /// Bit n is set if n is below `next` and has not arrived.
    missing: Vec<u64>,
    missing_count: u64,
    duplicated: u64,
    out_of_order: u64,
}

/// Meaning of one arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// A message that had not arrived before, in order or late.
    New,
    /// A message that had arrived before.
    Duplicate,
    /// A number that was never published.
    Unknown,
}

impl Sequence {
    /// Expects the numbers 0 to `total` - 1.
    pub(crate) fn new(total: u64) -> Self {
        Self { next: 0, total, missing: Vec::new(), missing_count: 0, duplicated: 0, out_of_order: 0 }
    }

    /// Notes that message `number` arrived.
    #[inline]
    pub(crate) fn record(&mut self, number: u64) -> Arrival {
        if number == self.next && number < self.total {
            self.next += 1;
            return Arrival::New;
        }
        self.record_irregular(number)
    }

    /// Number of different messages that have arrived.
    pub(crate) fn arrived(&self) -> u64 {
        self.next - self.missing_count
    }

    /// Expects one message more, for loads that do not know beforehand how many there will be.
    pub(crate) fn expect_another(&mut self) {
        self.total += 1;
    }

    /// The account, once nothing more is expected.
    pub(crate) fn tally(&self) -> Tally {
        Tally {
            lost: self.total - self.arrived(),
            duplicated: self.duplicated,
            out_of_order: self.out_of_order,
            unexpected: 0,
        }
    }

    #[cold]
    fn record_irregular(&mut self, number: u64) -> Arrival {
        if number >= self.total {
            return Arrival::Unknown;
        }
        if number > self.next {
            self.set_missing(self.next..number);
            self.next = number + 1;
            return Arrival::New;
        }
        if self.take_missing(number) {
            self.out_of_order += 1;
            return Arrival::New;
        }
        self.duplicated += 1;
        Arrival::Duplicate
    }

    fn set_missing(&mut self, numbers: std::ops::Range<u64>) {
        let words = index(numbers.end) / 64 + 1;
        if self.missing.len() < words {
            self.missing.resize(words, 0);
        }
        self.missing_count += numbers.end - numbers.start;
        for number in numbers {
            self.missing[index(number) / 64] |= 1 << (number % 64);
        }
    }

    fn take_missing(&mut self, number: u64) -> bool {
        let Some(word) = self.missing.get_mut(index(number) / 64) else { return false };
        let bit = 1 << (number % 64);
        let was_missing = *word & bit != 0;
        *word &= !bit;
        self.missing_count -= u64::from(was_missing);
        was_missing
    }
}

/// The account of a run. Everything in it is a fault of the server under test.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Tally {
    /// Published and never received.
    pub(crate) lost: u64,
    /// Received again after the first time.
    pub(crate) duplicated: u64,
    /// Received after a later message of the same publisher.
    pub(crate) out_of_order: u64,
    /// Received, but never published to that topic, or altered.
    pub(crate) unexpected: u64,
}

impl Tally {
    /// Whether every message arrived once, in order, and nothing else did.
    pub(crate) fn is_clean(&self) -> bool {
        *self == Self::default()
    }

    /// Adds another account to this one.
    pub(crate) fn add(&mut self, other: Self) {
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.out_of_order += other.out_of_order;
        self.unexpected += other.unexpected;
    }
}

/// A message number as an index into memory that exists, so that it fits.
fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally_of(total: u64, numbers: &[u64]) -> Tally {
        let mut sequence = Sequence::new(total);
        for &number in numbers {
            sequence.record(number);
        }
        sequence.tally()
    }

    #[test]
    fn everything_once_in_order_is_clean() {
        assert!(tally_of(5, &[0, 1, 2, 3, 4]).is_clean());
    }

    #[test]
    fn missing_messages_count_as_lost_at_the_start_in_the_middle_and_at_the_end() {
        assert_eq!(tally_of(8, &[1, 2, 4, 5]).lost, 4);
        assert_eq!(tally_of(3, &[]).lost, 3);
    }

    #[test]
    fn a_second_copy_is_a_duplicate_and_not_out_of_order() {
        let tally = tally_of(4, &[0, 1, 1, 0, 2, 3, 3]);
        assert_eq!(tally, Tally { duplicated: 3, ..Tally::default() });
    }

    #[test]
    fn a_late_message_is_out_of_order_and_not_lost() {
        let tally = tally_of(4, &[0, 2, 3, 1]);
        assert_eq!(tally, Tally { out_of_order: 1, ..Tally::default() });
    }

    #[test]
    fn a_late_message_that_comes_twice_is_out_of_order_once_and_duplicated_once() {
        let tally = tally_of(200, &[0, 150, 70, 70]);
        assert_eq!(tally, Tally { lost: 197, duplicated: 1, out_of_order: 1, unexpected: 0 });
    }

    #[test]
    fn a_number_that_was_never_published_is_unknown() {
        let mut sequence = Sequence::new(2);
        assert_eq!(sequence.record(2), Arrival::Unknown);
        assert_eq!(sequence.record(0), Arrival::New);
        assert_eq!(sequence.arrived(), 1);
    }

    #[test]
    fn every_shuffle_without_loss_is_accounted_as_late_arrivals_only() {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut numbers: Vec<u64> = (0..500).collect();
        for at in (1..numbers.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            numbers.swap(at, index(state >> 33) % (at + 1));
        }
        let late = numbers.iter().enumerate().filter(|&(at, n)| numbers[..at].iter().any(|m| m > n)).count();
        let expected = Tally { out_of_order: late as u64, ..Tally::default() };
        assert_eq!(tally_of(500, &numbers), expected);
    }
}
