//! Rules of sessions and wills that a reload has renamed, or that a restart has not found.

use std::collections::VecDeque;
use std::sync::Arc;

use auth::{Access, Guard, Permissions, Realms};
use index::Subscriptions;
use ledger::{Ledger, Record, Settings};
use protocol::{Cause, Reply};

use crate::stage::{Ask, QOS_1, Stage, at_qos, count, message, payloads};

type Group = Vec<Record<'static>>;

/// Realms with rules of these names. They allow everything. The realm with the empty name has no rules.
fn realms(names: &[&str]) -> Realms {
    let open = || Access::new(None, Some(Permissions::of_mosquitto("topic #\npattern #\n").expect("rules")));
    let access = |name: &str| if name.is_empty() { Access::default() } else { open() };
    Realms::new(names.iter().map(|name| ((*name).into(), Arc::new(access(name)))).collect())
}

fn settings(names: &[&str]) -> Settings {
    Settings { guard: Arc::new(Guard::new(realms(names))), ..Settings::default() }
}

/// A process that finds these records, and whose listeners have rules of these names.
fn restarted(records: &[Group], names: &[&str], before: &Stage) -> (Stage, Settings) {
    let settings = settings(names);
    let mut stage = Stage::with(settings.clone());
    stage.now = before.now;
    stage.index = Arc::new(Subscriptions::new([1, 2]));
    let index = Arc::clone(&stage.index);
    stage.ledger = Ledger::recover(settings.clone(), index, records.iter().flatten().cloned(), stage.now);
    (stage, settings)
}

fn records(stage: &Stage) -> Vec<Group> {
    stage.sink.groups.iter().map(|(_, group)| group.clone()).collect()
}

/// The copies of all these records, without which the records would be forgotten.
fn copies(groups: &[Group], stage: &mut Stage) -> Vec<Group> {
    let before = stage.sink.groups.len();
    let mut old: VecDeque<Record<'static>> = groups.iter().flatten().cloned().collect();
    while stage.ledger.copy_some(&mut old, &mut stage.sink) {}
    assert!(old.is_empty(), "nothing stands in the way");
    records(stage).split_off(before)
}

/// The session `c` of ann, who has left.
fn of_ann(stage: &mut Stage, ask: Ask) {
    let client = stage.client("c", &ask.of("ann"));
    stage.subscribe(&client, "t", at_qos(QOS_1));
    stage.leave(&client, Cause::Normal);
}

/// Whether a client that asks for the session `c` is refused.
fn is_refused(stage: &mut Stage, ask: &Ask) -> bool {
    let client = stage.claim("c", ask);
    let replies = stage.replies();
    let is_own = |reply: &Reply| reply.connection() == Some(client.place.connection);
    let (_, answer) = replies.into_iter().find(|(_, reply)| is_own(reply)).expect("an answer");
    matches!(answer, Reply::Refused { .. })
}

/// Nobody but ann gets her session, and she gets it.
fn check_owner(stage: &mut Stage, topics: [&'static str; 2]) {
    let state = stage.ledger.durable_state();
    assert!(state.contains("for Some(\"ann\") true"), "{state}");
    let of = |user| Ask { topics, ..Ask::lasting(60).of(user) };
    assert!(is_refused(stage, &of("bob")), "it is another user");
    assert!(is_refused(stage, &Ask::lasting(60)), "it is nobody");
    assert!(!is_refused(stage, &of("ann")), "it is the owner");
}

const MOUNTED: [[&str; 2]; 2] = [["", ""], ["m/", ""]];

/// A realm keeps its number when a reload gives its listeners other files.
#[test]
fn a_copy_keeps_the_user_of_a_session_whose_rules_were_renamed() {
    for topics in MOUNTED {
        let settings = settings(&["a", "b"]);
        let mut stage = Stage::with(settings.clone());
        of_ann(&mut stage, Ask { topics, ..Ask::lasting(60) });
        settings.guard.replace(realms(&["a2", "b"]));
        let old = records(&stage);
        let copied = copies(&old, &mut stage);
        let (mut again, _) = restarted(&copied, &["b", "a2"], &stage);
        assert!(again.ledger.durable_state().contains("true Realm(1)"), "the rules of today");
        check_owner(&mut again, topics);
    }
}

/// A restart finds the rules by their name. Nothing was copied in between.
#[test]
fn a_client_that_comes_back_after_a_reload_records_the_new_name_of_its_rules() {
    for user in [Some("ann"), None] {
        let ask = || user.map_or_else(|| Ask::lasting(60), |user| Ask::lasting(60).of(user));
        let settings = settings(&["", "b"]);
        let mut stage = Stage::with(settings.clone());
        let client = stage.client("c", &ask());
        stage.leave(&client, Cause::Normal);
        settings.guard.replace(realms(&["a2", "b"]));
        let client = stage.client("c", &ask());
        stage.leave(&client, Cause::Normal);
        let (again, _) = restarted(&records(&stage), &["b", "a2"], &stage);
        assert!(again.ledger.durable_state().contains("Realm(1)"), "the rules of today");
    }
}

/// The rules of the only realm hold, whatever the name in the record is. A reload then adds other rules.
#[test]
fn a_copy_keeps_the_user_of_a_session_that_had_the_only_rules() {
    for topics in MOUNTED {
        let mut stage = Stage::with(settings(&["a"]));
        of_ann(&mut stage, Ask { topics, ..Ask::lasting(60) });
        let old = records(&stage);
        let (mut stage, settings) = restarted(&old, &["a2"], &stage);
        settings.guard.replace(realms(&["a2", "b"]));
        let copied = copies(&old, &mut stage);
        let (mut again, _) = restarted(&copied, &["b", "a2"], &stage);
        assert!(again.ledger.durable_state().contains("true Realm(1)"), "the rules of today");
        check_owner(&mut again, topics);
    }
}

/// No listener had the rules of the record at the start, and a reload adds a listener that has them.
#[test]
fn a_copy_keeps_the_user_of_a_session_whose_rules_came_back() {
    for topics in MOUNTED {
        let mut stage = Stage::with(settings(&["a", "b"]));
        of_ann(&mut stage, Ask { topics, ..Ask::lasting(60) });
        let old = records(&stage);
        let (mut stage, settings) = restarted(&old, &["b", "c"], &stage);
        settings.guard.replace(realms(&["b", "c", "a"]));
        let copied = copies(&old, &mut stage);
        for (names, realm) in [(["b", "c", "a"], Some(2)), (["b", "c", "d"], None)] {
            let (mut again, _) = restarted(&copied, &names, &stage);
            let state = again.ledger.durable_state();
            assert_eq!(realm.is_some(), state.contains("true Realm(2)"), "{state}");
            check_owner(&mut again, topics);
        }
    }
}

/// A user has come by different rules. The last rules count, also where no listener has them now.
#[test]
fn a_copy_of_an_earlier_record_of_a_user_has_the_last_rules() {
    let settings = settings(&["first", "next"]);
    let mut stage = Stage::with(settings.clone());
    for (names, group) in
        [(["first", "next"], None), (["between", "next"], Some("g")), (["last", "next"], None)]
    {
        settings.guard.replace(realms(&names));
        of_ann(&mut stage, Ask { group, ..Ask::lasting(60) });
    }
    let old = records(&stage);
    let rules = |record: &Record<'_>| match record {
        Record::Owner { rules, .. } => Some(rules.to_string()),
        _ => None,
    };
    assert_eq!(old.iter().flatten().filter_map(rules).collect::<Vec<_>>(), ["first", "between", "last"]);
    for between in [["first", "last"], ["other", "another"], ["first", "other"], ["other", "last"]] {
        let (mut stage, _) = restarted(&old, &between, &stage);
        let copied = copies(&old, &mut stage);
        for cut in 0..=old.len() {
            let part = copies(&old[..cut], &mut stage);
            for log in [[&old[cut..], &part].concat(), [&old[..], &part].concat(), copied.clone()] {
                let (again, _) = restarted(&log, &["first", "last"], &stage);
                let state = again.ledger.durable_state();
                assert!(state.contains("for Some(\"ann\") true Realm(1)"), "{between:?}: {state}");
            }
        }
    }
}

/// The rules of a will are as unknown to the next process as to this one. A listener without rules does not take their place.
#[test]
fn a_copy_of_a_will_keeps_the_name_of_unknown_rules() {
    for delay_secs in [0, 30] {
        let mut stage = Stage::with(settings(&["a", "b"]));
        let witness = stage.client("witness", &Ask::lasting(600));
        stage.subscribe(&witness, "w", at_qos(QOS_1));
        stage.leave(&witness, Cause::Normal);
        let client = stage.client("c", &Ask::lasting(60).of("ann").will("w", delay_secs));
        // A will that is due finds no space, and is published after the restart.
        stage.sink.no_space = true;
        stage.leave(&client, Cause::WithWill);
        let old = records(&stage);
        let (mut stage, _) = restarted(&old, &["b", "c"], &stage);
        let copied = copies(&old, &mut stage);
        for (names, published) in [(["b", ""], 0), (["b", "c"], 0), (["b", "a"], 1)] {
            let (mut again, _) = restarted(&copied, &names, &stage);
            again.pass_secs(delay_secs.into());
            let gauges = again.gauges();
            let counts = (count(&gauges.wills_published), count(&gauges.wills_denied));
            assert_eq!(counts, (published, 1 - published), "{names:?}, delay {delay_secs}");
        }
    }
}

/// A session whose rules have left the configuration gets nothing, and stays that of its user.
#[test]
fn a_session_without_rules_gets_nothing_and_keeps_its_owner() {
    for topics in MOUNTED {
        let mut stage = Stage::with(settings(&["a", "b"]));
        of_ann(&mut stage, Ask { topics, ..Ask::lasting(60) });
        stage.emit(&message("t", b"before", QOS_1));
        let (mut again, _) = restarted(&records(&stage), &["b", "c"], &stage);
        again.emit(&message("t", b"denied", QOS_1));
        let of = |user| Ask { topics, ..Ask::lasting(60).of(user) };
        assert!(is_refused(&mut again, &of("bob")) && is_refused(&mut again, &Ask::lasting(60)));
        let (client, claimed) = again.connect("c", &of("ann"));
        assert!(claimed.session_present);
        again.emit(&message("t", b"after", QOS_1));
        assert_eq!(payloads(&again.delivered(&client)), ["before", "after"]);
    }
}
