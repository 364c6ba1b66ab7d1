//! Results in numbers.

use std::fmt;

use pondhawk_tests::promises::{Findings, Killed};

use crate::disk::Syncs;
use crate::recording::Counts;

/// Maximum number of faults that are printed for each image.
const EXAMPLES_MAX: usize = 10;

/// Result of an image.
pub(crate) enum Verdict {
    /// The broker did not start, and said this.
    Refused(String),
    Opened(Findings),
}

/// Results of many images.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    images: usize,
    cut_twice: usize,
    opened: usize,
    acknowledged: usize,
    outstanding: usize,
    lost: usize,
    twice: usize,
    wrong: usize,
}

/// Result of a run.
#[derive(Debug, Default)]
pub(crate) struct Report {
    traces: usize,
    counts: Counts,
    synced: Tally,
    control: Tally,
    /// Number of kills, and their results.
    pub(crate) killed: Option<(usize, Killed)>,
}

impl Tally {
    /// Returns what there is to say about it.
    pub(crate) fn count(&mut self, verdict: &Verdict, is_cut_twice: bool) -> Vec<String> {
        self.images += 1;
        self.cut_twice += usize::from(is_cut_twice);
        let findings = match verdict {
            Verdict::Opened(findings) => findings,
            Verdict::Refused(log) => return vec![format!("refused: {log}")],
        };
        self.opened += 1;
        self.acknowledged += findings.acknowledged;
        self.outstanding += findings.outstanding;
        self.lost += findings.lost.len();
        self.twice += findings.twice.len();
        self.wrong += findings.wrong.len();
        let complaints = [("lost", &findings.lost), ("twice", &findings.twice), ("wrong", &findings.wrong)];
        let told = complaints.into_iter().flat_map(|(what, complaints)| {
            complaints.iter().take(EXAMPLES_MAX).map(move |complaint| format!("{what}: {complaint}"))
        });
        told.collect()
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.images += other.images;
        self.cut_twice += other.cut_twice;
        self.opened += other.opened;
        self.acknowledged += other.acknowledged;
        self.outstanding += other.outstanding;
        self.lost += other.lost;
        self.twice += other.twice;
        self.wrong += other.wrong;
    }

    pub(crate) fn is_good(&self) -> bool {
        self.opened == self.images && self.lost + self.twice + self.wrong == 0
    }
}

impl Report {
    pub(crate) fn add(&mut self, counts: Counts) {
        self.traces += 1;
        self.counts.lives += counts.lives;
        self.counts.writes += counts.writes;
        self.counts.syncs += counts.syncs;
        self.counts.recycled += counts.recycled;
        self.counts.refused += counts.refused;
    }

    pub(crate) fn tally_of(&mut self, syncs: Syncs) -> &mut Tally {
        if syncs == Syncs::Kept { &mut self.synced } else { &mut self.control }
    }

    pub(crate) fn progress(&self) -> String {
        let Tally { images, lost, twice, .. } = &self.synced;
        format!(
            "{} traces, {images} images, {lost} lost, {twice} twice; control: {} images, {} lost",
            self.traces, self.control.images, self.control.lost
        )
    }

    /// Nothing is lost; and the control has lost something, or this could not have seen it.
    pub(crate) fn is_good(&self) -> bool {
        let has_power = self.synced.images == 0 || self.control.lost > 0;
        has_power
            && self.synced.is_good()
            && self.killed.as_ref().is_none_or(|(_, killed)| killed.findings.is_good())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.synced.images > 0 {
            self.show_cuts(f)?;
        }
        if let Some((kills, killed)) = &self.killed {
            show_kills(f, *kills, killed)?;
        }
        if self.synced.images > 0 && self.control.lost == 0 {
            writeln!(f, "The control has lost nothing: this proves nothing.")?;
        }
        Ok(())
    }
}

/// One of its numbers.
type Figure = fn(&Tally) -> usize;

impl Report {
    fn show_cuts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { lives, writes, syncs, recycled, refused } = self.counts;
        writeln!(
            f,
            "Power cuts: {} traces of {lives} lives of a broker, with {writes} writes and {syncs} syncs; {recycled} times a \
             segment was used again, and {refused} messages were refused for want of space.\n",
            self.traces
        )?;
        let rows: [(&str, Figure); 8] = [
            ("images", |tally| tally.images),
            ("of these, cut once more while recovering", |tally| tally.cut_twice),
            ("opened", |tally| tally.opened),
            ("acknowledged messages checked", |tally| tally.acknowledged),
            ("deliveries of these that were still to come", |tally| tally.outstanding),
            ("acknowledged and lost", |tally| tally.lost),
            ("QoS 2 twice", |tally| tally.twice),
            ("otherwise wrong", |tally| tally.wrong),
        ];
        writeln!(f, "{:<44} {:>12} {:>12}", "", "as it is", "without sync")?;
        rows.into_iter().try_for_each(|(name, of)| {
            writeln!(f, "{name:<44} {:>12} {:>12}", of(&self.synced), of(&self.control))
        })
    }
}

fn show_kills(f: &mut fmt::Formatter<'_>, kills: usize, killed: &Killed) -> fmt::Result {
    let Findings { acknowledged, outstanding, lost, twice, wrong } = &killed.findings;
    writeln!(
        f,
        "\nKills: {kills}, {} of them before the broker listened; {acknowledged} acknowledged messages checked, of which \
         {outstanding} deliveries were still to come; {} lost, {} of QoS 2 twice, {} otherwise wrong.",
        killed.at_start,
        lost.len(),
        twice.len(),
        wrong.len()
    )?;
    let complaints = [lost, twice, wrong].into_iter().flatten();
    complaints.take(EXAMPLES_MAX).try_for_each(|complaint| writeln!(f, "  {complaint}"))
}
