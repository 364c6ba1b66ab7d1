//! Files of the configuration that change are read without a signal, when they are whole, and each mistake is told once.

use std::fs;
use std::process::Command;

use pondhawk_tests::{Broker, Options, Version, free_ports, pondhawk, until};
use tempfile::TempDir;

use crate::reload::{DONE, Place, REFUSED, client, listener, packet_bytes};

/// The log says this about contents that were refused before.
const AGAIN: &str = "the files of the configuration are again those in force";

/// A configuration that is looked at.
fn text(port: u16, interval: &str, bytes: u32) -> String {
    format!("watch_interval = {interval:?}\n{}[limits]\npacket_bytes = {bytes}\n", listener(port, ""))
}

/// Waits until the log has so many such lines.
fn wait_for(broker: &Broker, said: &str, count: usize) {
    until(said, || (broker.log_lines(said).len() >= count).then_some(()));
}

#[test]
fn a_file_that_was_written_or_renamed_counts_without_a_signal() {
    let [port] = free_ports();
    let place = Place::new(2, &text(port, "100 ms", 2_000));
    let mut stays = client(port, Version::V5, "stays");
    place.write("pond.toml", &text(port, "100 ms", 3_000));
    wait_for(&place.broker, DONE, 1);
    assert_eq!(packet_bytes(port), 3_000);
    fs::write(place.path("pond.toml"), text(port, "100 ms", 4_000)).expect("the file is ours");
    until("the new file counts", || (packet_bytes(port) == 4_000).then_some(()));
    stays.expect_only_pong();
}

/// An editor may write in two steps, and a directory may have no file for a moment.
#[test]
fn half_a_file_and_a_missing_file_are_not_read() {
    let [port] = free_ports();
    let place = Place::new(1, &text(port, "1 s", 2_000));
    let mut stays = client(port, Version::V5, "stays");
    let whole = text(port, "1 s", 3_000);
    fs::write(place.path("pond.toml"), &whole[..whole.len() - 20]).expect("the file is ours");
    fs::write(place.path("pond.toml"), &whole).expect("the file is ours");
    wait_for(&place.broker, DONE, 1);
    fs::rename(place.path("pond.toml"), place.path("away")).expect("it is there");
    fs::write(place.path("away"), text(port, "1 s", 4_000)).expect("the file is ours");
    fs::rename(place.path("away"), place.path("pond.toml")).expect("it is there");
    wait_for(&place.broker, DONE, 2);
    assert_eq!(packet_bytes(port), 4_000);
    assert_eq!(place.broker.log_lines(REFUSED), <[String; 0]>::default());
    stays.expect_only_pong();
}

#[test]
fn a_mistake_is_told_once_and_nothing_changes_until_it_is_corrected() {
    let [port] = free_ports();
    let good = text(port, "100 ms", 2_000);
    let place = Place::new(1, &good);
    let mut stays = client(port, Version::V5, "stays");
    place.write("pond.toml", &good);
    wait_for(&place.broker, DONE, 1);
    for count in 1..=3 {
        place.write("pond.toml", &format!("{good}no_such_key = 1\n"));
        wait_for(&place.broker, REFUSED, count);
        // The same contents in another file.
        place.write("pond.toml", &format!("{good}no_such_key = 1\n"));
        place.write("pond.toml", &good);
        wait_for(&place.broker, AGAIN, count);
        assert_eq!(place.broker.log_lines(REFUSED).len(), count);
    }
    assert_eq!(place.broker.log_lines(DONE).len(), 1);
    fs::remove_file(place.path("pond.toml")).expect("it is there");
    wait_for(&place.broker, REFUSED, 4);
    place.write("pond.toml", &text(port, "100 ms", 3_000));
    wait_for(&place.broker, DONE, 2);
    assert_eq!(packet_bytes(port), 3_000);
    stays.expect_only_pong();
}

/// The mistake is in a file that the new configuration names.
#[test]
fn a_named_file_that_is_corrected_lets_the_new_configuration_count() {
    let [port] = free_ports();
    let good = text(port, "100 ms", 2_000);
    let place = Place::new(1, &good);
    let rules = place.path("rules");
    place.write("pond.toml", &format!("{}[auth]\nacl_file = {rules:?}\n", text(port, "100 ms", 3_000)));
    wait_for(&place.broker, REFUSED, 1);
    place.write("rules", "hush\n");
    wait_for(&place.broker, REFUSED, 2);
    place.write("rules", "topic readwrite #\n");
    wait_for(&place.broker, DONE, 1);
    assert_eq!(packet_bytes(port), 3_000);
}

#[test]
fn watching_begins_and_ends_with_a_reload() {
    let [port] = free_ports();
    let place = Place::new(1, &text(port, "off", 2_000));
    place.write("pond.toml", &text(port, "1 h", 2_000));
    place.hang_up(DONE);
    // An interval that becomes shorter counts at once.
    place.write("pond.toml", &text(port, "100 ms", 2_000));
    place.hang_up(DONE);
    place.write("pond.toml", &text(port, "off", 3_000));
    wait_for(&place.broker, DONE, 3);
    place.write("pond.toml", &text(port, "off", 4_000));
    place.hang_up(DONE);
    assert_eq!(place.broker.log_lines(DONE).len(), 4);
    assert_eq!(packet_bytes(port), 4_000);
}

#[test]
fn a_burst_of_changes_ends_with_the_last_file() {
    let [port] = free_ports();
    let place = Place::new(2, &text(port, "100 ms", 2_000));
    let mut stays = client(port, Version::V5, "stays");
    for number in 1..=300 {
        let file = text(port, "100 ms", 2_000 + number);
        match number % 2 {
            0 => place.write("pond.toml", &file),
            _ => fs::write(place.path("pond.toml"), file).expect("the file is ours"),
        }
    }
    until("the last file counts", || (packet_bytes(port) == 2_300).then_some(()));
    stays.expect_only_pong();
}

/// Files of Mosquitto have no key for it, but the command line has.
#[test]
fn a_file_in_the_directory_of_mosquittos_file_is_noticed() {
    let [first, second] = free_ports();
    let directory = TempDir::new().expect("there is a place for temporary files");
    let [file, more] = ["mosquitto.conf", "conf.d"].map(|name| directory.path().join(name));
    fs::create_dir(&more).expect("the directory is ours");
    let text = format!(
        "listener {first} 127.0.0.1\nallow_anonymous true\nuser root\ninclude_dir {}\n",
        more.display()
    );
    fs::write(&file, text).expect("the file is ours");
    let arguments = ["--watch-interval", "100 ms"].map(str::to_owned).to_vec();
    let broker = Broker::start(&Options { file: Some(file), arguments, ..Options::default() });
    fs::write(more.join("more.conf"), format!("listener {second} 127.0.0.1\n")).expect("the file is ours");
    wait_for(&broker, DONE, 1);
    client(second, Version::V5, "new").expect_only_pong();
    fs::remove_file(more.join("more.conf")).expect("it is there");
    wait_for(&broker, DONE, 2);
    client(first, Version::V5, "old").expect_only_pong();
}

#[test]
fn an_interval_out_of_bounds_is_refused() {
    for interval in ["99ms", "2 h", "5"] {
        let output = Command::new(pondhawk()).args(["--watch-interval", interval]).output();
        let said = output.map(|output| String::from_utf8_lossy(&output.stderr).into_owned());
        assert!(said.is_ok_and(|said| said.contains("--watch-interval")), "{interval}");
    }
}
