//! Commands on data directories in which somebody has placed hostile files.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::mpsc;
use std::time::Duration;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::*;

/// Time limit for a command, none of which has to wait for anything.
const PATIENCE: Duration = Duration::from_secs(60);

fn every_command(stage: &Stage) -> [(&'static str, Result<String, Failure>); 4] {
    let (dir, copy) = (stage.dir(), stage.root.join("copy"));
    [
        ("check", check(&dir)),
        ("inspect", inspect(&dir, false)),
        ("backup", backup::backup(&dir, &copy)),
        ("repair", repair(&dir, false)),
    ]
}

/// Contents of each file, or the target of a symbolic link.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry"));
    let contents = |path: &Path| match fs::read_link(path) {
        Ok(to) => to.into_os_string().into_encoded_bytes(),
        Err(_) => fs::read(path).expect("a file"),
    };
    entries.map(|entry| (entry.file_name().into_string().expect("UTF-8"), contents(&entry.path()))).collect()
}

#[test]
fn a_pipe_in_the_place_of_a_file_stops_no_command() {
    for name in ["META", "segment-0000000000000001", "segment-0000000000000002", "LOCK"] {
        let stage = Stage::new(&format!("pipe-{name}"));
        let file = stage.dir().join(name);
        fs::remove_file(&file).expect("it is there");
        // Made by a system call, not by a command: a new process shortly inherits all descriptors, with the locks
        // of other tests.
        mkfifo(&file, Mode::S_IRWXU).expect("a pipe");
        let (done, is_done) = mpsc::channel();
        std::thread::spawn(move || {
            let done = done.send(every_command(&stage).map(|(command, said)| (command, said.is_err())));
            drop(stage);
            done
        });
        let refused = is_done.recv_timeout(PATIENCE);
        let refused = refused.unwrap_or_else(|_| panic!("it waits for the other end of {name}"));
        for (command, is_refused) in refused {
            // Commands that take no lock do not open its file.
            assert_eq!(is_refused, name != "LOCK" || !["inspect", "backup"].contains(&command), "{command}");
        }
    }
}

#[test]
fn a_lock_that_is_a_link_is_neither_followed_nor_made() {
    let stage = Stage::new("linked-lock");
    let (lock, target) = (stage.dir().join("LOCK"), stage.root.join("precious"));
    fs::remove_file(&lock).expect("it is there");
    symlink(&target, &lock).expect("a link");
    for is_there in [false, true] {
        if is_there {
            fs::write(&target, "precious").expect("a file");
        }
        for failed in [check(&stage.dir()), repair(&stage.dir(), true)] {
            let said = failed.expect_err("it is a link").to_string();
            assert!(said.contains("LOCK: this is a symbolic link"), "{said}");
        }
        assert!(Directory::open(&stage.dir()).is_err(), "nor does a broker start");
        assert_eq!(fs::read(&target).ok(), is_there.then(|| b"precious".to_vec()));
    }
}

#[test]
fn commands_that_read_change_nothing() {
    let stage = Stage::new("read-only");
    // A process number that an earlier process left.
    fs::write(stage.dir().join("LOCK"), "12345\n").expect("it can be written");
    let before = files(&stage.dir());
    for (command, said) in every_command(&stage) {
        said.unwrap_or_else(|failure| panic!("{command}: {failure}"));
        assert_eq!(files(&stage.dir()), before, "{command}");
    }
    fs::remove_file(stage.dir().join("LOCK")).expect("it is there");
    check(&stage.dir()).expect("it is whole");
    assert!(!stage.dir().join("LOCK").exists(), "nothing is made");
}

#[test]
fn nobody_writes_to_a_directory_that_is_being_checked() {
    let stage = Stage::new("checking");
    fs::write(stage.dir().join("LOCK"), "12345\n").expect("it can be written");
    let checking = open_to_check(&stage.dir()).expect("nobody has it");
    check(&stage.dir()).expect("two may read");
    let refused = Directory::open(&stage.dir()).expect_err("it is being read");
    assert_eq!(refused.to_string(), "another process uses it", "and not the one that left its number");
    drop(checking);
    Directory::open(&stage.dir()).expect("nobody has it");
}

#[test]
fn a_copy_follows_no_link_and_takes_no_other_file() {
    let stage = Stage::new("linked-segment");
    let secret = stage.root.join("secret");
    fs::write(&secret, "secret").expect("a file");
    symlink(&secret, stage.dir().join("segment-evil")).expect("a link");
    let copy = stage.root.join("copy");
    backup::backup(&stage.dir(), &copy).expect("that is no segment");
    assert!(files(&copy).keys().all(|name| name != "segment-evil"), "{:?}", files(&copy).keys());

    symlink(&secret, stage.dir().join("segment-0000000000000003")).expect("a link");
    let copy = stage.root.join("another");
    let said = backup::backup(&stage.dir(), &copy).expect_err("it is a link").to_string();
    assert!(said.contains("symbolic link"), "{said}");
    assert!(!copy.exists(), "nothing is left of it");
}

#[test]
fn everything_that_is_made_is_for_its_owner_alone() {
    let stage = Stage::new("modes");
    let copy = stage.root.join("copy");
    backup::backup(&stage.dir(), &copy).expect("it is whole");
    for dir in [stage.dir(), copy] {
        let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
        assert_eq!(mode(&dir), 0o700, "{}", dir.display());
        for name in files(&dir).keys() {
            assert_eq!(mode(&dir.join(name)), 0o600, "{} in {}", name, dir.display());
        }
    }
}

#[test]
fn a_copy_that_failed_is_not_in_the_way_of_the_next() {
    let stage = Stage::new("failed-copy");
    let whole = fs::read(stage.segment()).expect("a segment");
    let mut damaged = whole.clone();
    damaged[2 * 4096 + 33] ^= 1;
    let copy = stage.root.join("copy");
    for is_made in [false, true] {
        if is_made {
            fs::create_dir(&copy).expect("it is not there");
        }
        fs::write(stage.segment(), &damaged).expect("it can be written");
        backup::backup(&stage.dir(), &copy).expect_err("it is damaged");
        assert_eq!(copy.exists(), is_made, "what was there stays");
        fs::write(stage.segment(), &whole).expect("it can be written");
        // State after a copy that was killed before it copied anything.
        fs::create_dir_all(&copy).and_then(|()| fs::write(copy.join("LOCK"), "1\n")).expect("a directory");
        backup::backup(&stage.dir(), &copy).expect("it is whole");
        fs::remove_dir_all(&copy).expect("it is there");
    }
}

#[test]
fn a_file_far_behind_the_others_is_not_reached_by_a_repair() {
    let stage = Stage::new("far-file");
    fs::write(stage.dir().join("segment-9999999999999999"), "").expect("a file");
    let before = files(&stage.dir());
    let failure = repair(&stage.dir(), true).expect_err("there are too many files to make");
    let said = failure.to_string();
    assert!(
        said.contains("segment-9999999999999999: offset 0: 9999999999999996 files are missing"),
        "{said}"
    );
    assert!(said.contains("move away"), "{said}");
    assert_eq!(failure.exit_code(), ExitCode::from(1));
    let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&files(&stage.dir())), names(&before));
}

/// Every command reports the damage. A broker that starts also reports it, and changes nothing.
#[test]
fn a_segment_that_lost_its_bytes_is_said_and_kept() {
    type Harm = fn(&Path) -> std::io::Result<()>;
    let harms: [(&str, Harm, &str); 6] = [
        ("empty", |path| fs::write(path, ""), "segment-0000000000000001: offset 0: the front"),
        ("byte", |path| fs::write(path, "P"), "segment-0000000000000001: offset 0: the front"),
        ("front", |path| fs::write(path, [7; 35]), "segment-0000000000000001: offset 0: the front"),
        (
            "zeros",
            |path| fs::write(path, [0; SMALL as usize]),
            "segment-0000000000000001: offset 0: the front",
        ),
        ("gone", |path| fs::remove_file(path), "segment-0000000000000001: offset 0: the file is missing"),
        (
            "frames",
            |path| {
                let front = fs::read(path)?[..4096].to_vec();
                fs::write(path, [front, vec![0; SMALL as usize - 4096]].concat())
            },
            "segment-0000000000000001: offset 4096: the records are gone",
        ),
    ];
    for (name, harm, words) in harms {
        let stage = Stage::new(&format!("lost-{name}"));
        harm(&stage.segment()).expect("it can be written");
        let before = files(&stage.dir());
        for (command, said) in every_command(&stage) {
            let failure = said.err().unwrap_or_else(|| panic!("{name}: {command} says nothing"));
            assert!(failure.to_string().contains(words), "{name}: {command}: {failure}");
            assert_eq!(failure.exit_code(), ExitCode::from(1), "{name}: {command}");
        }
        let storage = Arc::new(Directory::open(&stage.dir()).expect("a directory"));
        let opened = journal::open(storage, settings()).and_then(journal::Opening::finish);
        assert!(matches!(opened, Err(OpenError::Damaged(_))), "{name}: a broker starts");
        let mut after = files(&stage.dir());
        after.insert("LOCK".to_owned(), before["LOCK"].clone());
        assert_eq!(after, before, "{name}");
        repair(&stage.dir(), true).unwrap_or_else(|failure| panic!("{name}: {failure}"));
        stage.write(&records());
        assert!(check(&stage.dir()).expect("it is whole").contains("7 records"), "{name}");
    }
}
