//! Configurations of Mosquitto, read by Mosquitto and by Pondhawk: both accept and refuse the same clients and topics.
//!
//! Each file of `files` is a configuration in the style of real ones. Lines that begin with `#:` are for the test, and
//! comments for both brokers; [`case`] explains them.

mod case;
mod import;
mod peer;
mod process;
mod scene;
mod wire;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use case::{Case, Fate};
use scene::{Scene, Server};

/// Cases that are played at a time. Most of the time is spent in waiting.
const AT_A_TIME: usize = 4;

fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migration/files");
    let entries = fs::read_dir(folder).expect("the files are there");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a file").path()).collect();
    paths.sort();
    paths.iter().map(|path| Case::read(path)).collect()
}

/// Plays a case. Returns a text if the brokers differ.
fn play(case: &Case) -> Result<(), String> {
    let scene = Scene::new();
    match &case.fate {
        Fate::RefusedBy { pondhawk } => {
            let said = scene.refusal(Server::Pondhawk, case)?;
            if said.contains(pondhawk.as_str()) { Ok(()) } else { Err(format!("it says\n{said}")) }
        }
        Fate::RefusedByBoth { pondhawk } => {
            let said = scene.refusal(Server::Pondhawk, case)?;
            scene.refusal(Server::Mosquitto, case)?;
            if said.contains(pondhawk.as_str()) { Ok(()) } else { Err(format!("it says\n{said}")) }
        }
        Fate::Same if case.admits_nobody => nobody(&scene, case),
        Fate::Same => {
            let theirs = cut_mounts(scene.transcript(Server::Mosquitto, case)?, &case.mount);
            let theirs: Vec<String> = theirs.into_iter().map(without_reason).collect();
            let ours: Vec<String> =
                scene.transcript(Server::Pondhawk, case)?.into_iter().map(without_reason).collect();
            let may_differ = |line: &str| case.differing.iter().any(|begin| line.starts_with(begin));
            let pairs = theirs.iter().zip(&ours);
            let differs = pairs.filter(|(theirs, ours)| theirs != ours && !may_differ(ours));
            let lines: Vec<String> =
                differs.map(|(theirs, ours)| format!("mosquitto: {theirs}\n pondhawk: {ours}")).collect();
            let is_same = lines.is_empty() && theirs.len() == ours.len();
            let has_expected =
                case.expected.iter().all(|begin| ours.iter().any(|line| line.starts_with(begin)));
            if is_same && has_expected {
                Ok(())
            } else {
                Err(format!("{}\nexpected {:?}", lines.join("\n"), case.expected))
            }
        }
    }
}

/// Both brokers start, and admit nobody.
fn nobody(scene: &Scene, case: &Case) -> Result<(), String> {
    for server in [Server::Mosquitto, Server::Pondhawk] {
        let lines = scene.transcript(server, case)?;
        if let Some(line) = lines.iter().find(|line| line.contains("accepted")) {
            return Err(format!("{server:?}: {line}"));
        }
    }
    Ok(())
}

/// Cuts mount points from topics, as newer versions of Mosquitto do.
fn cut_mounts(lines: Vec<String>, mounts: &[String]) -> Vec<String> {
    let Some(uncut) = mounts.iter().find(|mount| {
        let begin = format!("got {mount}");
        lines.iter().any(|line| line.contains(&format!("{begin}room/light")))
    }) else {
        return lines;
    };
    let rest: Vec<String> = mounts.iter().filter(|mount| *mount != uncut).cloned().collect();
    let cut = |line: String| {
        let (before, events) = line.split_once(": ").unwrap_or_default();
        let (who, events) = events.split_once(": ").unwrap_or(("", events));
        let cut = events.split(", ").map(|event| event.replace(&format!("got {uncut}"), "got "));
        let mut events: Vec<String> = cut.filter(|event| !event.starts_with("got $SYS/")).collect();
        events.sort();
        if who.is_empty() { line.clone() } else { format!("{before}: {who}: {}", events.join(", ")) }
    };
    cut_mounts(lines.into_iter().map(cut).collect(), &rest)
}

/// Leaves out which reason code a CONNACK has for a wrong name or password. Mosquitto says that the client is not authorized;
/// Pondhawk says that the name or the password is wrong.
fn without_reason(line: String) -> String {
    let refused = "refused with ";
    let has_no_name = |(begin, _): &(&str, &str)| {
        ["anonymous", "without", "certificate"].iter().any(|word| begin.contains(word))
    };
    match line.split_once(refused).filter(|parts| !has_no_name(parts)) {
        Some((begin, "4" | "5" | "134" | "135")) => format!("{begin}refused for its identity"),
        _ => line,
    }
}

#[test]
fn both_brokers_do_the_same_with_each_configuration() {
    let cases = cases();
    assert!(cases.len() >= 60, "{}", cases.len());
    let only = std::env::var("PONDHAWK_MIGRATION").unwrap_or_default();
    let next = AtomicUsize::new(0);
    let play_some = || {
        let mut failures = Vec::new();
        while let Some(case) = cases.get(next.fetch_add(1, Relaxed)) {
            if case.name.contains(&only)
                && let Err(failure) = play(case)
            {
                failures.push(format!("=== {}\n{failure}", case.name));
            }
        }
        failures
    };
    let failures: Vec<String> = thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_A_TIME).map(|_| scope.spawn(play_some)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no thread panics")).collect()
    });
    assert!(failures.is_empty(), "{} of {} differ\n{}", failures.len(), cases.len(), failures.join("\n"));
}

/// A difference must be found: the same file with one line more for one of the brokers.
#[test]
fn a_difference_is_found() {
    let text = "#: doors 1\nlistener PORT1 127.0.0.1\nallow_anonymous true\n";
    let case = Case::parse("planted", text);
    let scene = Scene::new();
    let theirs = scene.transcript(Server::Mosquitto, &case).expect("it starts");
    let other = Case::parse("planted", &format!("{text}max_qos 0\nmount_point a/\n"));
    let ours = scene.transcript(Server::Pondhawk, &other).expect("it starts");
    assert_ne!(theirs, ours);
}
