//! Records beside the disk, as a reference for those that may be found there, and those that must be.

use std::sync::Arc;

use base::Now;
use index::Subscriptions;
use ledger::{Addressed, Ledger, Lsn, Progress, Record, Settings};
use record::encode_group;

use crate::broker::NAMES;

/// Every group of records in its order, without a disk.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    /// Records that the process found when it began.
    found: Vec<Record<'static>>,
    /// Groups recorded since then, copies of old records included.
    groups: Vec<(Lsn, Vec<Record<'static>>)>,
    /// Up to here it survives what has happened.
    promised: Lsn,
    /// Up to here it survives whatever happens.
    durable: Lsn,
}

impl Witness {
    pub(crate) fn recorded(&mut self, at: Lsn, group: &[Record<'_>]) {
        self.groups.push((at, group.iter().cloned().map(Record::into_owned).collect()));
    }

    /// The process has ended with this progress.
    pub(crate) fn ended(&mut self, progress: Progress) {
        self.promised = progress.written;
        self.durable = progress.durable;
    }

    /// The power was lost, with the process or behind it.
    pub(crate) fn power_lost(&mut self) {
        self.promised = self.durable;
    }

    /// Another process begins behind these.
    pub(crate) fn begin(&mut self, found: Vec<Record<'static>>) {
        *self = Self { found, ..Self::default() };
    }

    /// The records found must be the records written, in order and whole, up to some group behind all that was
    /// promised. The first records may be missing, if that makes no difference.
    ///
    /// # Errors
    /// What is wrong.
    pub(crate) fn judge(
        &self,
        found: &[Record<'static>],
        settings: &Settings,
        now: Now,
    ) -> Result<(), String> {
        let recorded: Vec<&Record<'static>> =
            self.found.iter().chain(self.groups.iter().flat_map(|(_, group)| group)).collect();
        let all: Vec<Vec<u8>> = recorded.iter().map(|record| bytes(record)).collect();
        let these: Vec<Vec<u8>> = found.iter().map(bytes).collect();
        let promised = self.groups.partition_point(|(at, _)| *at <= self.promised);
        let mut end =
            self.found.len() + self.groups[..promised].iter().map(|(_, group)| group.len()).sum::<usize>();
        let mut differ = None;
        for next in self.groups[promised..].iter().map(|(_, group)| group.len()).chain([0]) {
            if all[..end].ends_with(&these) {
                if these.len() == end {
                    return Ok(());
                }
                let state = |records: &mut dyn Iterator<Item = Record<'static>>| {
                    let index = Arc::new(Subscriptions::new([1, 2]));
                    Ledger::recover(settings.clone(), index, records, now).durable_state()
                };
                let before = state(&mut recorded[..end].iter().map(|record| (*record).clone()));
                let after = state(&mut found.iter().cloned());
                if before == after {
                    return Ok(());
                }
                differ = Some(difference(&before, &after));
            }
            end += next;
        }
        Err(differ.unwrap_or_else(|| {
            format!(
                "the {} records on the disk are no end of the {} that were made, of which {} must be there",
                these.len(),
                all.len(),
                promised + self.found.len()
            )
        }))
    }
}

/// The first line that differs in what two ledgers say of themselves.
pub(crate) fn difference(before: &str, after: &str) -> String {
    let mut lines = before.lines().zip(after.lines());
    let differ = lines.find(|(before, after)| before != after);
    let differ = differ.or_else(|| {
        let common = before.lines().count().min(after.lines().count());
        Some((
            before.lines().nth(common).unwrap_or("nothing"),
            after.lines().nth(common).unwrap_or("nothing"),
        ))
    });
    format!("the records do not make the same ledger again: {differ:?}")
}

/// A record, to be compared.
pub(crate) fn bytes(record: &Record<'static>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_group(std::slice::from_ref(record), &mut bytes);
    bytes
}

/// A state with the messages themselves in place of where they stand on the disk, and without the numbers of realms: a name that
/// a reload gives to rules is not on the record before the next copy.
pub(crate) fn resolved(state: &str, records: &[Addressed<'static>]) -> String {
    let body = |at: &str| {
        let stands_there =
            |found: &&Addressed<'_>| found.address.is_some_and(|address| Ok(address.at.get()) == at.parse());
        match records.iter().find(stands_there).map(|found| &found.record) {
            Some(Record::Enqueue { body, .. }) => format!("{} {:?}", body.topic().as_str(), body.payload()),
            _ => format!("nothing at {at}"),
        }
    };
    let resolve = |line: &str| match line.split_once(" at ") {
        Some((before, behind)) => {
            let (at, rest) =
                behind.split_once(' ').map_or((behind, String::new()), |(at, rest)| (at, format!(" {rest}")));
            format!("{before} {}{rest}\n", body(at))
        }
        None => format!("{line}\n"),
    };
    let state: String = state.lines().map(resolve).collect();
    (1..NAMES.len()).fold(state, |state, number| state.replace(&format!("Realm({number})"), "Realm(0)"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::MessageId;

    const NOW: Now = Now { monotonic_ms: 0, unix_ms: 0 };

    fn judge(witness: &Witness, found: &[u64]) -> bool {
        let found: Vec<_> = found.iter().map(|will| record(*will)).collect();
        witness.judge(&found, &Settings::default(), NOW).is_ok()
    }

    fn record(will: u64) -> Record<'static> {
        Record::WillDone { will: MessageId(will) }
    }

    #[test]
    fn promised_records_must_be_there_and_later_records_may_be() {
        let mut witness = Witness::default();
        witness.begin(vec![record(1)]);
        (2..=4).for_each(|will| witness.recorded(Lsn(will), &[record(will)]));
        witness.ended(Progress { written: Lsn(3), durable: Lsn(2), has_failed: false });
        assert!(judge(&witness, &[1, 2, 3]) && !judge(&witness, &[1, 2]));
        witness.power_lost();
        assert!(judge(&witness, &[1, 2]) && judge(&witness, &[1, 2, 3]) && judge(&witness, &[1, 2, 3, 4]));
        assert!(!judge(&witness, &[1]) && !judge(&witness, &[1, 2, 4]) && !judge(&witness, &[1, 2, 3, 4, 5]));
    }

    fn all(upto: u64) -> Progress {
        Progress { written: Lsn(upto), durable: Lsn(upto), has_failed: false }
    }

    #[test]
    fn old_records_may_be_gone_if_nothing_is_gone_with_them() {
        let mut witness = Witness::default();
        (1..=3).for_each(|will| witness.recorded(Lsn(will), &[record(will)]));
        let begins = Record::Session { session: ledger::Incarnation(1), client_id: "c".into() };
        witness.ended(all(3));
        assert!(judge(&witness, &[2, 3]), "that a will is done says nothing where there is none");
        let mut other = Witness::default();
        other.begin(vec![begins]);
        other.recorded(Lsn(1), &[record(1)]);
        other.ended(all(1));
        assert!(!judge(&other, &[1]), "a session is lost");
    }
}
