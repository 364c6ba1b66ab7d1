//! The results, for people.

use std::fmt;
use std::time::Duration;

use crate::job::{Library, Measured};

#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    library: Library,
    qos: u8,
    rounds: Vec<Measured>,
}

impl Table {
    pub(crate) fn add(&mut self, library: Library, qos: u8, measured: Measured) {
        match self.rows.iter_mut().find(|row| (row.library, row.qos) == (library, qos)) {
            Some(row) => row.rounds.push(measured),
            None => self.rows.push(Row { library, qos, rounds: vec![measured] }),
        }
    }
}

impl Row {
    /// Thousands of messages in a second of such a time.
    fn thousands_per_second(&self, time: impl Fn(&Measured) -> Duration) -> f64 {
        median(self.rounds.iter().map(|round| round.messages as f64 / time(round).as_secs_f64() / 1e3))
    }
}

/// The figure in the middle; 0 without any.
pub(crate) fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_unstable_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        writeln!(f, "| QoS | library | published per CPU-s | received per CPU-s | both | per s |")?;
        writeln!(f, "|---|---|---|---|---|---|")?;
        for row in &self.rows {
            let publish = row.thousands_per_second(|round| round.publish_cpu);
            let receive = row.thousands_per_second(|round| round.receive_cpu);
            let both = row.thousands_per_second(|round| round.publish_cpu + round.receive_cpu);
            let wall = row.thousands_per_second(|round| round.took);
            let (qos, library) = (row.qos, row.library.name());
            writeln!(
                f,
                "| {qos} | {library} | {publish:.0} k | {receive:.0} k | {both:.0} k | {wall:.0} k |"
            )?;
        }
        Ok(())
    }
}
