//! Damage of every kind is given up, and nothing else is.

use journal::simulated::Simulated;
use journal::{Damage, Fault, OpenError, Pace, Parts, Recovery, Storage, Urgency, discard};

use crate::scene::{Random, Scene, settings, storage};

/// Damage is found one at a time.
const STEPS_MAX: usize = 100;

/// A log of several segments, closed, and with nothing to copy.
fn written(seed: u64) -> Simulated {
    let mut scene = Scene::new(seed);
    let mut random = Random(seed);
    for _ in 0..200 {
        let bytes = usize::try_from(random.below(6_000)).expect("small");
        assert!(scene.put(bytes, Urgency::Durable), "there is space");
        scene.parts.committer.commit_once();
        scene.settle(Pace::Busy);
    }
    scene.disk.after_kill()
}

fn segments(disk: &Simulated) -> Vec<String> {
    let mut names = disk.list().expect("a directory");
    names.retain(|name| name.starts_with("segment-"));
    names.sort_unstable();
    names
}

/// The payloads of all frames up to the end, or to what is damaged.
fn read(disk: &Simulated) -> (Vec<Vec<u8>>, Option<OpenError>) {
    let mut frames = Vec::new();
    let mut recovery = match Recovery::begin(storage(disk)) {
        Ok(recovery) => recovery,
        Err(error) => return (frames, Some(error)),
    };
    loop {
        match recovery.next_frame() {
            Ok(Some(frame)) => frames.push(frame.to_vec()),
            Ok(None) => return (frames, None),
            Err(error) => return (frames, Some(error)),
        }
    }
}

/// Gives up what is damaged; returns for what, and what is left.
fn repair(disk: &Simulated) -> (Vec<Fault>, Vec<Vec<u8>>) {
    let mut faults = Vec::new();
    for _ in 0..STEPS_MAX {
        match read(disk) {
            (frames, None) => return (faults, frames),
            (_, Some(OpenError::Damaged(damage))) => {
                discard(disk, &damage).unwrap_or_else(|error| panic!("{damage}: {error}"));
                faults.push(damage.fault);
            }
            (_, Some(error)) => panic!("{error}"),
        }
    }
    panic!("there is no end to it: {faults:?}");
}

/// It goes on, and what was there is there still.
fn goes_on(disk: &Simulated, frames: &[Vec<u8>]) {
    let Parts { .. } =
        Recovery::begin(storage(disk)).and_then(|it| it.finish(settings())).expect("it is whole");
    assert_eq!(read(&disk.after_kill()).0, frames);
}

/// A segment that is full to the last page has its end there.
#[test]
fn the_end_of_a_full_segment_can_be_repaired() {
    let mut scene = Scene::new(1);
    for _ in 0..40 {
        assert!(scene.put(100, Urgency::Durable) && scene.parts.committer.commit_once());
        scene.settle(Pace::Busy);
    }
    let disk = scene.disk.after_kill();
    let (before, _) = read(&disk);
    let first = &segments(&disk)[0];
    let last_page = disk.contents(first).expect("it is there").len() - 4096;
    disk.flip_bit(first, last_page * 8);
    let (faults, after) = repair(&disk);
    assert_eq!(faults, [Fault::Frame]);
    assert!(after == before, "{} frames of {}", after.len(), before.len());
    goes_on(&disk, &before);
}

#[test]
fn a_flipped_bit_costs_its_frame_and_nothing_else() {
    let mut all_faults = Vec::new();
    for seed in 0..60 {
        let disk = written(seed);
        let (before, _) = read(&disk);
        let names = segments(&disk);
        let mut random = Random(seed);
        let name = &names[usize::try_from(random.below(names.len() as u64)).expect("few")];
        let bits = disk.contents(name).expect("it is there").len() as u64 * 8;
        disk.flip_bit(name, usize::try_from(random.below(bits)).expect("a segment"));
        let (faults, left) = repair(&disk);
        assert!(before.len() - left.len() <= 1, "seed {seed}: {faults:?}");
        assert!(left.iter().all(|frame| before.contains(frame)), "seed {seed}");
        goes_on(&disk, &left);
        all_faults.extend(faults);
    }
    assert!(all_faults.contains(&Fault::Frame), "most bits are in a frame: {all_faults:?}");
}

#[test]
fn several_flipped_bits_cost_at_most_one_frame_each() {
    for seed in 100..130 {
        let disk = written(seed);
        let (before, _) = read(&disk);
        let mut random = Random(seed);
        let hits = 1 + random.below(8);
        for _ in 0..hits {
            let names = segments(&disk);
            let name = &names[usize::try_from(random.below(names.len() as u64)).expect("few")];
            let bits = disk.contents(name).expect("it is there").len() as u64 * 8;
            disk.flip_bit(name, usize::try_from(random.below(bits)).expect("a segment"));
        }
        let (faults, left) = repair(&disk);
        // One that hits the end of a segment may take what was begun behind it.
        assert!((before.len() - left.len()) as u64 <= hits, "seed {seed}: {faults:?}");
        goes_on(&disk, &left);
    }
}

#[test]
fn a_segment_that_is_gone_or_cut_or_of_another_journal_costs_what_was_in_it() {
    type Harm = fn(&Simulated, &str);
    let harms: [(Fault, Harm); 3] = [
        (Fault::Missing, |disk, name| disk.remove(name).expect("it is there")),
        (Fault::Short, |disk, name| {
            disk.set_contents(name, disk.contents(name).expect("it is there")[..9_000].into());
        }),
        (Fault::Foreign, |disk, name| {
            let other = written(77);
            disk.set_contents(name, other.contents(&segments(&other)[0]).expect("it is there"));
        }),
    ];
    for (fault, harm) in harms {
        for which in [0, 1, 2] {
            let disk = written(5);
            let (before, _) = read(&disk);
            harm(&disk, &segments(&disk)[which]);
            let (faults, left) = repair(&disk);
            assert!(faults.contains(&fault), "{fault:?} {which}: {faults:?}");
            assert!(!left.is_empty() && left.len() < before.len(), "{fault:?} {which}");
            assert!(left.iter().all(|frame| before.contains(frame)), "{fault:?} {which}");
            goes_on(&disk, &left);
        }
    }
}

#[test]
fn meta_is_made_again_of_the_segments() {
    for harm in [
        |disk: &Simulated| disk.flip_bit("META", 3),
        |disk: &Simulated| disk.remove("META").expect("it is there"),
    ] {
        let disk = written(9);
        let (before, _) = read(&disk);
        harm(&disk);
        let (faults, left) = repair(&disk);
        assert_eq!(faults, [Fault::Meta]);
        assert_eq!(left, before);
        goes_on(&disk, &left);
    }
}

#[test]
fn a_frame_whose_records_are_none_is_given_up_whole() {
    let disk = written(3);
    let (before, _) = read(&disk);
    let file = segments(&disk)[0].clone();
    // Behind the page of the segment and the mark that the journal begins with.
    let damage =
        Damage { file, offset: 2 * 4096 + 32 + 5, fault: Fault::Record("for some reason".to_owned()) };
    assert!(discard(&disk, &damage).expect("there is such a frame") >= 4096);
    let (left, error) = read(&disk);
    assert!(error.is_none());
    assert_eq!(left, before[1..]);
}

#[test]
fn an_undamaged_frame_is_not_discarded() {
    let disk = written(3);
    let (before, _) = read(&disk);
    let damage = Damage { file: segments(&disk)[0].clone(), offset: 4096, fault: Fault::Frame };
    assert!(matches!(discard(&disk, &damage), Err(OpenError::Damaged(_))));
    assert_eq!(read(&disk).0, before);
}
