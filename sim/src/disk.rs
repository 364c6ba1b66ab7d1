//! Where the ledger's records go: a disk that is slow, full, or fails, that forgets what was not synced, and hands the
//! oldest records back to have their space again.

use std::collections::VecDeque;

use ledger::{Lsn, Progress, Record, Refusal};

use crate::random::Random;

/// The records of all groups, in their order.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    groups: VecDeque<Vec<Record<'static>>>,
    /// So many were before those, and are forgotten.
    forgotten: usize,
    /// So many groups survive whatever happens.
    durable: usize,
    cleaning: Option<Cleaning>,
    /// There is no space but for records that free some.
    pub(crate) is_full: bool,
    /// A write or a sync has failed. That is final until the process starts again.
    has_failed: bool,
    /// How often something was refused for want of space.
    pub(crate) refusals: usize,
}

/// The oldest groups are to be forgotten.
#[derive(Debug)]
struct Cleaning {
    /// So many.
    upto: usize,
    /// So many of them have been handed out.
    handed: usize,
    /// The last copy of what was still true of them, when all are made.
    copied: Option<Lsn>,
}

impl Disk {
    pub(crate) fn commit(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal> {
        if self.has_failed {
            return Err(Refusal::Poisoned);
        }
        if self.is_full && !group.iter().all(Record::frees_space) {
            self.refusals += 1;
            return Err(Refusal::NoSpace);
        }
        self.copy(group)
    }

    /// For what is written once more there is always space.
    pub(crate) fn copy(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal> {
        if self.has_failed {
            return Err(Refusal::Poisoned);
        }
        self.groups.push_back(group.iter().cloned().map(Record::into_owned).collect());
        Ok(self.committed())
    }

    /// Some of the oldest records; what was handed out before is copied, as far as it is still true.
    pub(crate) fn next_to_copy(&mut self, random: &mut Random) -> VecDeque<Record<'static>> {
        let (groups, committed) = (self.groups.len(), self.committed());
        let Some(cleaning) = &mut self.cleaning else {
            if groups > 0 && random.chance(300) {
                let most = *random.pick(&[groups, groups.div_ceil(4)]);
                let upto = random.between(1, most);
                self.cleaning = Some(Cleaning { upto, handed: 0, copied: None });
            }
            return VecDeque::new();
        };
        let piece = random.some_of(cleaning.upto - cleaning.handed);
        let first = cleaning.handed;
        cleaning.handed += piece;
        if piece == 0 {
            cleaning.copied.get_or_insert(committed);
        }
        self.groups.range(first..first + piece).flatten().cloned().collect()
    }

    pub(crate) fn committed(&self) -> Lsn {
        Lsn((self.forgotten + self.groups.len()) as u64)
    }

    pub(crate) fn durable(&self) -> Lsn {
        Lsn((self.forgotten + self.durable) as u64)
    }

    /// How far it has come: what a process has written is gone with the machine, which is what ends here.
    pub(crate) fn progress(&self) -> Progress {
        Progress { written: self.committed(), durable: self.durable(), has_failed: self.has_failed }
    }

    /// How many groups wait to be synced.
    pub(crate) fn unsynced(&self) -> usize {
        if self.has_failed { 0 } else { self.undecided() }
    }

    /// So many more groups are durable.
    pub(crate) fn sync(&mut self, groups: usize) {
        self.durable += groups.min(self.unsynced());
        if self.has_failed {
            return;
        }
        let durable = self.durable();
        let done = |cleaning: &mut Cleaning| cleaning.copied.is_some_and(|copied| copied <= durable);
        if let Some(Cleaning { upto, .. }) = self.cleaning.take_if(done) {
            self.groups.drain(..upto);
            self.durable -= upto;
            self.forgotten += upto;
        }
    }

    pub(crate) fn fail(&mut self) {
        self.has_failed = true;
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// The process is gone. Of what was not durable so many groups have reached the disk all the same.
    pub(crate) fn crash(&mut self, survivors: usize) {
        self.groups.truncate(self.durable + survivors);
        self.durable = self.groups.len();
        self.has_failed = false;
        self.cleaning = None;
    }

    /// Groups that a crash may keep or lose.
    pub(crate) fn undecided(&self) -> usize {
        self.groups.len() - self.durable
    }

    /// What the next process finds.
    pub(crate) fn records(&self) -> impl Iterator<Item = Record<'static>> {
        self.groups.iter().flatten().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::MessageId;

    fn group(will: u64) -> [Record<'static>; 1] {
        [Record::WillDone { will: MessageId(will) }]
    }

    #[test]
    fn a_crash_keeps_what_was_durable_and_perhaps_more() {
        let mut disk = Disk::default();
        assert!((1..=4).all(|will| disk.commit(&group(will)).is_ok()));
        disk.sync(2);
        disk.fail();
        assert_eq!(disk.commit(&group(5)), Err(Refusal::Poisoned));
        disk.sync(1);
        assert_eq!(disk.durable(), Lsn(2), "nothing is durable after a failure");
        disk.crash(1);
        assert_eq!(disk.records().count(), 3);
        assert_eq!(disk.commit(&group(6)), Ok(Lsn(4)));
    }

    #[test]
    fn a_full_disk_takes_what_frees_space() {
        let mut disk = Disk { is_full: true, ..Disk::default() };
        assert!(disk.commit(&group(1)).is_ok());
        let begins = Record::Session { session: ledger::Incarnation(1), client_id: "c".into() };
        assert_eq!(disk.commit(&[begins]), Err(Refusal::NoSpace));
    }
}
