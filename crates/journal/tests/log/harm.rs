//! Whole files are truncated, emptied, zeroed, exchanged, copied or removed. Either every durable record is read, or the
//! journal is called damaged and no file has changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use journal::simulated::Simulated;
use journal::{OpenError, Pace, Recovery, Storage, Urgency, discard_damaged};

use crate::scene::{Event, Random, Scene, read, settings, storage};

/// The harm to one file. Some kinds name a second file.
#[derive(Debug, Clone, Copy)]
enum Harm {
    Truncate(usize),
    Halve,
    Zero,
    Remove,
    /// The two files exchange their names.
    Swap,
    /// The first file replaces the second.
    CopyOver,
    /// The first file is also there under the number behind the last one.
    CopyBehind,
}

const HARMS: [Harm; 9] = [
    Harm::Truncate(0),
    Harm::Truncate(1),
    Harm::Truncate(35),
    Harm::Halve,
    Harm::Zero,
    Harm::Remove,
    Harm::Swap,
    Harm::CopyOver,
    Harm::CopyBehind,
];

/// Which file of the log.
#[derive(Debug, Clone, Copy)]
enum Position {
    First,
    Middle,
    /// The last one with records.
    Last,
    /// The first one behind the records.
    Spare,
    /// Any, by its index.
    Any(u64),
    Meta,
}

/// A journal of which every record is durable, closed.
struct Written {
    disk: Simulated,
    events: Vec<Event>,
    /// Names of the files, in order.
    files: Vec<String>,
    /// Index in `files` of the last one with records.
    last: usize,
}

/// How much was written before the journal was closed.
#[derive(Debug, Clone, Copy)]
enum Age {
    /// No segment is full.
    Young,
    /// Segments were used again.
    Old,
    /// It was opened once more, and nothing was written since.
    Reopened,
}

fn written(seed: u64, age: Age) -> Written {
    let mut scene = Scene::new(seed);
    let steps = if matches!(age, Age::Young) { 40 } else { 1_500 + scene.random.below(400) };
    for _ in 0..steps {
        scene.step();
    }
    while !scene.put(10, Urgency::Durable) {
        assert!(scene.parts.preparer.prepare_once(Pace::Busy) || scene.parts.committer.commit_rest());
    }
    while scene.parts.committer.commit_rest()
        || (scene.durable() < scene.events.len() && scene.parts.preparer.prepare_once(Pace::Busy))
    {}
    assert_eq!(scene.durable(), scene.events.len(), "all of it is durable");
    let mut disk = scene.disk.after_power_cut();
    if matches!(age, Age::Reopened) {
        Recovery::begin(storage(&disk)).and_then(|it| it.finish(settings())).expect("it is whole");
        disk = disk.after_power_cut();
    }
    let mut recovery = Recovery::begin(storage(&disk)).expect("it is whole");
    assert_eq!(read(&mut recovery, &scene.events), Ok(scene.events.len()));
    let (end, _) = recovery.report().end.clone().expect("it has an end");
    let mut files = disk.list().expect("a directory");
    files.retain(|name| name.starts_with("segment-"));
    files.sort_unstable();
    let last = files.iter().position(|name| *name == end).expect("it is there");
    Written { disk, events: scene.events, files, last }
}

impl Written {
    fn file(&self, position: Position) -> String {
        let index = match position {
            Position::First => 0,
            Position::Middle => self.last / 2,
            Position::Last => self.last,
            Position::Spare => (self.last + 1).min(self.files.len() - 1),
            Position::Any(which) => usize::try_from(which).expect("few") % self.files.len(),
            Position::Meta => return "META".to_owned(),
        };
        self.files[index].clone()
    }

    fn harm(&self, disk: &Simulated, harm: Harm, position: Position, other: Position) {
        let (name, other) = (self.file(position), self.file(other));
        let Some(bytes) = disk.contents(&name) else { return };
        match harm {
            Harm::Truncate(to) => disk.set_contents(&name, bytes[..to.min(bytes.len())].into()),
            Harm::Halve => disk.set_contents(&name, bytes[..bytes.len() / 2].into()),
            Harm::Zero => disk.set_contents(&name, vec![0; bytes.len()]),
            Harm::Remove => disk.remove(&name).expect("it is there"),
            Harm::Swap => {
                let Some(others) = disk.contents(&other) else { return };
                disk.set_contents(&name, others);
                disk.set_contents(&other, bytes);
            }
            Harm::CopyOver => disk.set_contents(&other, bytes),
            Harm::CopyBehind => {
                let last: u64 = self.files.last().expect("some")[8..].parse().expect("a number");
                disk.set_contents(&format!("segment-{:016}", last + 1), bytes);
            }
        }
    }
}

/// The result for a harmed journal.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// Every record is there.
    Whole,
    /// It is called damaged, and no file has changed.
    Damaged,
}

fn files(disk: &Simulated) -> BTreeMap<String, Vec<u8>> {
    let names = disk.list().expect("a directory");
    names.into_iter().map(|name| (name.clone(), disk.contents(&name).expect("listed"))).collect()
}

fn judge(disk: &Simulated, events: &[Event]) -> Result<Verdict, String> {
    let before = files(disk);
    let opened = Recovery::begin(storage(disk)).and_then(|recovery| recovery.finish(settings()));
    match opened {
        Ok(parts) => {
            drop(parts);
            let disk = disk.after_kill();
            let mut recovery = Recovery::begin(storage(&disk)).map_err(|error| error.to_string())?;
            let found = read(&mut recovery, events)?;
            if found != events.len() {
                return Err(format!(
                    "{found} of {} durable groups are read, and nobody is told",
                    events.len()
                ));
            }
            Ok(Verdict::Whole)
        }
        Err(OpenError::Damaged(damage)) => {
            if files(disk) != before {
                return Err(format!("a file has changed although it is damaged: {damage}"));
            }
            repair(disk, events).map_err(|error| format!("{damage}, then {error}"))?;
            Ok(Verdict::Damaged)
        }
        Err(error) => Err(format!("neither opened nor called damaged: {error}")),
    }
}

/// Giving up what is damaged ends: with a journal that opens, or with damage that it names.
fn repair(disk: &Simulated, events: &[Event]) -> Result<(), String> {
    let disk = disk.copy();
    match discard_damaged(&(storage(&disk) as Arc<dyn Storage>)) {
        Ok(_) => {
            let opened = Recovery::begin(storage(&disk)).and_then(|recovery| recovery.finish(settings()));
            opened.map(drop).map_err(|error| format!("repaired, and not opened: {error}"))?;
            // The remaining records may have gaps, but nothing else is there.
            let mut recovery = Recovery::begin(storage(&disk)).map_err(|error| error.to_string())?;
            while let Some(frame) = recovery.next_frame().map_err(|error| error.to_string())? {
                let is_known = |(number, event, _): &(u64, Event, usize)| {
                    events.get(usize::try_from(*number).expect("in memory")) == Some(event)
                };
                if !crate::scene::groups(frame).iter().all(is_known) {
                    return Err("repaired, and there is a group that nobody has appended".to_owned());
                }
            }
            Ok(())
        }
        Err(OpenError::Damaged(_)) => Ok(()),
        Err(error) => Err(format!("not repaired: {error}")),
    }
}

/// Counts of each verdict, and what was lost in silence.
#[derive(Debug, Default)]
struct Tally {
    whole: u32,
    damaged: u32,
    lost: Vec<String>,
}

impl Tally {
    fn note(&mut self, verdict: Result<Verdict, String>, what: impl FnOnce() -> String) {
        match verdict {
            Ok(Verdict::Whole) => self.whole += 1,
            Ok(Verdict::Damaged) => self.damaged += 1,
            Err(error) => self.lost.push(format!("{}: {error}", what())),
        }
    }
}

const AGES: [Age; 3] = [Age::Young, Age::Old, Age::Reopened];

#[test]
fn a_harmed_file_is_called_damaged_or_costs_nothing() {
    let mut tally = Tally::default();
    let positions = [Position::First, Position::Middle, Position::Last, Position::Spare];
    for (seed, age) in (1..).zip(AGES.into_iter().cycle().take(6)) {
        let written = written(seed, age);
        for harm in HARMS {
            for position in positions {
                let others: &[Position] =
                    if matches!(harm, Harm::Swap | Harm::CopyOver) { &positions } else { &positions[..1] };
                for other in others {
                    let disk = written.disk.copy();
                    written.harm(&disk, harm, position, *other);
                    tally.note(judge(&disk, &written.events), || {
                        format!("seed {seed}, {age:?}, {harm:?} of {position:?} and {other:?}")
                    });
                }
            }
        }
    }
    assert!(tally.lost.is_empty(), "{} of them:\n{}", tally.lost.len(), tally.lost.join("\n"));
    assert!(tally.whole > 50 && tally.damaged > 100, "{tally:?}");
}

#[test]
fn several_harmed_files_are_called_damaged_or_cost_nothing() {
    let mut tally = Tally::default();
    for seed in 0..60 {
        let mut random = Random(seed);
        let age = AGES[usize::try_from(random.below(3)).expect("few")];
        let written = written(seed, age);
        for _ in 0..8 {
            let disk = written.disk.copy();
            let mut harms = Vec::new();
            for _ in 0..1 + random.below(3) {
                let harm = HARMS[usize::try_from(random.below(HARMS.len() as u64)).expect("few")];
                let mut position = || match random.below(12) {
                    0 => Position::Meta,
                    1 => Position::First,
                    2 | 3 => Position::Last,
                    _ => Position::Any(random.below(1_000)),
                };
                let (position, other) = (position(), position());
                written.harm(&disk, harm, position, other);
                harms.push((harm, position, other));
            }
            tally.note(judge(&disk, &written.events), || format!("seed {seed}, {age:?}, {harms:?}"));
        }
    }
    assert!(tally.lost.is_empty(), "{} of them:\n{}", tally.lost.len(), tally.lost.join("\n"));
    assert!(tally.whole > 20 && tally.damaged > 200, "{tally:?}");
}

/// Harm that leaves only the spares.
#[test]
fn spares_alone_are_no_journal() {
    for (seed, age) in (1..).zip(AGES) {
        let written = written(seed, age);
        let disk = written.disk.copy();
        for name in &written.files[..=written.last] {
            disk.remove(name).expect("it is there");
        }
        assert_eq!(judge(&disk, &written.events), Ok(Verdict::Damaged), "{age:?}");
    }
}
