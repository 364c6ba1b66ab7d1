//! Files that change while the broker runs.

use pondhawk_tests::packet::Connect;
use pondhawk_tests::{Version, until};

use crate::{IN_USE, Place, connect, expect_nothing_before, publish, users};

const REFUSED: &str = "the new users and rules are refused";
const OPEN: &str = "user ann\ntopic readwrite #\nuser bob\ntopic readwrite #\n";
const SHUT: &str = "user ann\ntopic readwrite open/#\nuser bob\ntopic readwrite open/#\n";

#[test]
fn new_rules_hold_for_the_next_message_of_clients_that_stay_connected() {
    let place = Place::new(OPEN);
    let broker = place.broker("");
    let mut ann = connect(&broker, Version::V5, "ann");
    let mut bob = connect(&broker, Version::V3_1_1, "bob");
    bob.subscribe("#");
    for _ in 0..3 {
        assert_eq!(publish(&mut ann, "a", b"1"), 0);
        bob.expect_message("a", b"1");
        place.write("rules", SHUT);
        place.reload(&broker, IN_USE);
        assert_eq!(publish(&mut ann, "a", b"2"), 0x87);
        expect_nothing_before(&mut bob, &mut ann);
        place.write("rules", "user ann\ntopic readwrite #\nuser bob\ntopic readwrite open/#\n");
        place.reload(&broker, IN_USE);
        assert!(matches!(publish(&mut ann, "a", b"3"), 0 | 0x10));
        expect_nothing_before(&mut bob, &mut ann);
        place.write("rules", OPEN);
        place.reload(&broker, IN_USE);
    }
}

/// Nobody sends a signal.
#[test]
fn a_file_that_has_changed_is_read_again() {
    let place = Place::new(SHUT);
    let broker = place.broker("");
    let mut ann = connect(&broker, Version::V5, "ann");
    assert_eq!(publish(&mut ann, "a", b"1"), 0x87);
    place.write("rules", OPEN);
    broker.wait_for_log(IN_USE);
    assert_eq!(publish(&mut ann, "a", b"1"), 0x10);
}

#[test]
fn a_mistake_in_one_file_leaves_all_of_them_as_they_were_and_is_counted() {
    let place = Place::new("user ann\ntopic readwrite #\ntopic read $SYS/#\n");
    let broker = place.broker("");
    let mut ann = connect(&broker, Version::V5, "ann");
    place.write("users", &users(&["dan"]));
    place.write("rules", "user dan\ntopic what ever\n");
    place.reload(&broker, REFUSED);
    let line = broker.log_lines(REFUSED).pop().expect("it was waited for");
    assert!(line.contains("line 2"), "{line}");
    assert_eq!(publish(&mut ann, "a", b""), 0x10, "the old rules");
    drop(connect(&broker, Version::V5, "bob"));
    let mut dan = broker.connect();
    dan.send(&Connect::new(Version::V5, "dan").of("dan", "dan").bytes());
    assert_eq!(dan.read_packet()[3], 0x86, "the old users");
    ann.subscribe("$SYS/broker/access/refused");
    until("it is counted", || ann.read_packet().ends_with(b"1").then_some(()));
}

#[test]
fn a_user_who_is_removed_or_has_another_password_is_disconnected_and_others_stay() {
    let place = Place::new(OPEN);
    let broker = place.broker("");
    let mut ann = connect(&broker, Version::V5, "ann");
    let mut bob = connect(&broker, Version::V3_1_1, "bob");
    let mut cat = connect(&broker, Version::V5, "cat");
    let changed = users(&["ann", "x"]).replace("x:", "cat:");
    place.write("users", &changed);
    place.reload(&broker, IN_USE);
    bob.expect_disconnect(0x87);
    cat.expect_disconnect(0x87);
    assert_eq!(publish(&mut ann, "a", b""), 0x10);
}
