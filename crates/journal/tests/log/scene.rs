//! A log, somebody who appends to it and keeps in mind what, and what must be there again after a crash.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock};

use journal::simulated::Simulated;
use journal::{Log, Pace, Parts, RecordPurpose, Recovery, Settings, Urgency};

/// Small segments, so that they are used again often.
pub(crate) fn settings() -> Settings {
    Settings {
        segment_bytes_min: 64 << 10,
        segment_bytes_max: 128 << 10,
        free_bytes_min: 0,
        ..Settings::default()
    }
}

/// The content of one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// This is kept from now on.
    Put(u64),
    /// This is not kept any more.
    Drop(u64),
    /// This is kept still.
    Copy(u64),
    /// Somebody comes back for this.
    Return(u64),
}

/// Numbers that look random, from a seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (bits ^ (bits >> 31)) % bound
    }
}

pub(crate) struct Scene {
    pub(crate) disk: Simulated,
    pub(crate) parts: Parts,
    pub(crate) random: Random,
    /// All groups since the beginning of time, in their order.
    pub(crate) events: Vec<Event>,
    /// Number of these events that were recovered. They do not count for the positions of this process.
    recovered: usize,
    next: u64,
    live: BTreeSet<u64>,
    live_bytes: u64,
    /// Handed out to be copied: what, and how long.
    old: VecDeque<(Event, usize)>,
}

impl Scene {
    pub(crate) fn new(seed: u64) -> Self {
        let disk = Simulated::new(seed);
        Self::on(disk, seed)
    }

    pub(crate) fn on(disk: Simulated, seed: u64) -> Self {
        let parts = Recovery::begin(storage(&disk)).and_then(|it| it.finish(settings())).expect("it is new");
        Self {
            disk,
            parts,
            random: Random(seed),
            events: Vec::new(),
            recovered: 0,
            next: 0,
            live: BTreeSet::new(),
            live_bytes: 0,
            old: VecDeque::new(),
        }
    }

    pub(crate) fn log(&self) -> &Arc<Log> {
        &self.parts.log
    }

    /// Appends what has happened; false if there is no space, or nothing is taken any more.
    pub(crate) fn append(&mut self, event: Event, bytes: usize, urgency: Urgency) -> bool {
        let purpose = match event {
            Event::Put(_) => RecordPurpose::News,
            Event::Drop(_) => RecordPurpose::FreesSpace,
            Event::Copy(_) => RecordPurpose::Copy,
            Event::Return(_) => RecordPurpose::Return,
        };
        let group = encode(self.events.len() as u64, event, bytes);
        if self.log().append(&group, purpose, urgency).is_err() {
            return false;
        }
        self.events.push(event);
        match event {
            Event::Put(which) => {
                self.live.insert(which);
                self.live_bytes += group.len() as u64;
            }
            Event::Drop(which) => {
                self.live.remove(&which);
                if self.live.is_empty() {
                    self.live_bytes = 0;
                }
            }
            Event::Copy(_) | Event::Return(_) => {}
        }
        let all = self.next.max(1);
        self.log().set_live_bytes(self.live_bytes * self.live.len() as u64 / all);
        true
    }

    pub(crate) fn put(&mut self, bytes: usize, urgency: Urgency) -> bool {
        let which = self.next;
        let taken = self.append(Event::Put(which), bytes, urgency);
        self.next += u64::from(taken);
        taken
    }

    /// Drops what is the oldest, or any other.
    pub(crate) fn drop_one(&mut self, urgency: Urgency) -> bool {
        let from = if self.random.below(4) == 0 { self.random.below(self.next.max(1)) } else { 0 };
        let found = self.live.range(from..).next().or(self.live.first());
        let Some(which) = found.copied() else { return false };
        self.append(Event::Drop(which), 0, urgency)
    }

    /// Copies the live part of the next old frame; false if none is to be copied now. A frame that finds no space
    /// stays.
    pub(crate) fn copy_some(&mut self) -> bool {
        if self.old.is_empty() {
            let Some(frame) = self.log().next_to_copy() else { return false };
            self.old.extend(groups(&frame).into_iter().map(|(_, event, bytes)| (event, bytes)));
        }
        while let Some((event, bytes)) = self.old.front().copied() {
            if let Event::Put(which) | Event::Copy(which) = event
                && self.live.contains(&which)
                && !self.append(Event::Copy(which), bytes, Urgency::Later)
            {
                return false;
            }
            self.old.pop_front();
        }
        true
    }

    /// Anything that may happen.
    pub(crate) fn step(&mut self) {
        let urgency = match self.random.below(8) {
            0 => Urgency::Later,
            1 => Urgency::Written,
            _ => Urgency::Durable,
        };
        match self.random.below(16) {
            0..5 => {
                let bytes = if self.random.below(20) == 0 {
                    self.random.below(30_000)
                } else {
                    self.random.below(900)
                };
                self.put(usize::try_from(bytes).expect("small"), urgency);
            }
            5..8 => {
                self.drop_one(urgency);
            }
            8..13 => {
                self.parts.committer.commit_once();
            }
            13 => {
                self.parts.committer.commit_rest();
            }
            14 => {
                self.parts.preparer.prepare_once(Pace::Busy);
            }
            _ => {
                self.copy_some();
            }
        }
    }

    /// Everything that can be done without anybody appending news.
    pub(crate) fn settle(&mut self, pace: Pace) {
        // Being asked for more to copy tells the preparer that all was copied: so it is asked once more.
        let mut idle_rounds = 0;
        while idle_rounds < 2 {
            let has_done = self.parts.preparer.prepare_once(pace)
                || self.copy_some()
                || self.parts.committer.commit_rest();
            idle_rounds = if has_done { 0 } else { idle_rounds + 1 };
        }
    }

    /// Minimum number of events that are durable.
    pub(crate) fn durable(&self) -> usize {
        self.recovered + usize::try_from(self.acknowledged()).expect("in memory")
    }

    /// How far the positions that are durable reach, counted in events: frames without records have one too.
    fn acknowledged(&self) -> u64 {
        let marks = self.log().status().groups - (self.events.len() - self.recovered) as u64;
        self.log().progress().durable.0.saturating_sub(marks)
    }

    /// Opens what is on `disk` after a crash, checks that it is what was there at some time and not before `durable`, and
    /// goes on from there.
    pub(crate) fn reopen(&mut self, disk: Simulated, durable: usize) -> Result<(), String> {
        let (events, parts) = recover(&disk, &self.events)?;
        if events < durable {
            return Err(format!("{durable} groups were durable, {events} were found"));
        }
        self.events.truncate(events);
        self.recovered = events;
        self.live = live(&self.events);
        self.next = self.events.iter().map(|event| which(*event) + 1).max().unwrap_or(0);
        self.old.clear();
        self.parts = parts;
        self.disk = disk;
        Ok(())
    }
}

/// Opens a directory; returns how many of `events` are in it, all of them that are still of use and in order.
pub(crate) fn recover(disk: &Simulated, events: &[Event]) -> Result<(usize, Parts), String> {
    let mut recovery = Recovery::begin(storage(disk)).map_err(|error| error.to_string())?;
    let count = read(&mut recovery, events)?;
    Ok((count, recovery.finish(settings()).map_err(|error| error.to_string())?))
}

/// The same without changing anything.
pub(crate) fn read(recovery: &mut Recovery, events: &[Event]) -> Result<usize, String> {
    let mut found: Vec<(u64, Event)> = Vec::new();
    while let Some(frame) = recovery.next_frame().map_err(|error| error.to_string())? {
        for (number, event, _) in groups(frame) {
            if found.last().is_some_and(|(last, _)| last + 1 != number) {
                return Err(format!("group {number} comes behind {:?}", found.last()));
            }
            found.push((number, event));
        }
    }
    let count = found.last().map_or(0, |(last, _)| usize::try_from(*last).expect("in memory") + 1);
    let is_known = |(number, event): &(u64, Event)| {
        events.get(usize::try_from(*number).expect("in memory")) == Some(event)
    };
    if !found.iter().all(is_known) {
        return Err("a group is not the one that was appended".to_owned());
    }
    let kept: Vec<Event> = found.into_iter().map(|(_, event)| event).collect();
    let is_same = live(&kept) == live(&events[..count]);
    is_same.then_some(count).ok_or_else(|| "what was kept is not there".to_owned())
}

pub(crate) fn storage(disk: &Simulated) -> Arc<Simulated> {
    Arc::new(disk.clone())
}

fn which(event: Event) -> u64 {
    let (Event::Put(which) | Event::Drop(which) | Event::Copy(which) | Event::Return(which)) = event;
    which
}

fn live(events: &[Event]) -> BTreeSet<u64> {
    let mut live = BTreeSet::new();
    for event in events {
        match event {
            Event::Put(which) | Event::Copy(which) => live.insert(*which),
            Event::Drop(which) => live.remove(which),
            Event::Return(_) => false,
        };
    }
    live
}

/// `number | kind | which | length | filler`, the filler different in each group.
fn encode(number: u64, event: Event, bytes: usize) -> Vec<u8> {
    let kind = match event {
        Event::Put(_) => 0,
        Event::Drop(_) => 1,
        Event::Copy(_) => 2,
        Event::Return(_) => 3,
    };
    let mut group = number.to_le_bytes().to_vec();
    group.push(kind);
    group.extend_from_slice(&which(event).to_le_bytes());
    group.extend_from_slice(&u32::try_from(bytes).expect("short").to_le_bytes());
    group.extend_from_slice(&filler(number)[..bytes]);
    group
}

const FILLER_BYTES_MAX: usize = 60_000;

/// Different for each of many numbers.
fn filler(number: u64) -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let bytes = BYTES.get_or_init(|| {
        let mut random = Random(1);
        (0..FILLER_BYTES_MAX + 256).map(|_| u8::try_from(random.below(256)).expect("a byte")).collect()
    });
    &bytes[usize::try_from(number % 256).expect("a byte")..]
}

/// The groups of a frame: their numbers, what they say, the lengths of their filler.
pub(crate) fn groups(mut frame: &[u8]) -> Vec<(u64, Event, usize)> {
    let mut groups = Vec::new();
    while !frame.is_empty() {
        let long = |at: usize| u64::from_le_bytes(frame[at..at + 8].try_into().expect("a whole group"));
        let (number, which) = (long(0), long(9));
        let event = match frame[8] {
            0 => Event::Put(which),
            1 => Event::Drop(which),
            2 => Event::Copy(which),
            3 => Event::Return(which),
            kind => panic!("a group of the kind {kind}"),
        };
        let bytes = u32::from_le_bytes(frame[17..21].try_into().expect("a whole group")) as usize;
        let (these, rest) = frame[21..].split_at(bytes);
        assert!(these == &filler(number)[..bytes], "group {number}");
        groups.push((number, event, bytes));
        frame = rest;
    }
    groups
}
