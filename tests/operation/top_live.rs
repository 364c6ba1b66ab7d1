//! `pondhawk top` in a terminal: its screen, its keys, and the terminal behind it.

use std::fs;

use pondhawk_tests::{Broker, Options, Version, data_dir, free_port, until};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::admin::Server;
use crate::terminal::Terminal;

const COMMON: (u16, u16) = (24, 80);
/// An interval that no test waits for.
const LONG: &str = "3600";

fn broker() -> (Broker, Server) {
    let settings = "[admin]\naddress = \"127.0.0.1:0\"\n".to_owned();
    let broker = Broker::start(&Options { shards: 2, settings, ..Options::default() });
    let server = Server::of(&broker);
    (broker, server)
}

/// `pondhawk top` in a terminal of this size, with the directory of its token.
fn top(server: &Server, interval: &str, size: (u16, u16)) -> (Terminal, TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    let command = server.command(&["top", "--interval", interval], directory.path());
    (Terminal::start(command, size), directory)
}

/// The screen with rates, which need two looks.
fn with_rates(terminal: &mut Terminal) -> Vec<String> {
    terminal.wait_for_text("SHARD");
    terminal.press(" ");
    terminal.wait_for("rates are there", |screen| !screen.contents().contains(" …"))
}

fn line<'a>(lines: &'a [String], title: &str) -> &'a str {
    let found = lines.iter().find(|line| line.contains(title));
    found.unwrap_or_else(|| panic!("{title} in\n{}", lines.join("\n")))
}

#[test]
fn the_screen_has_figures_with_their_units() {
    let (broker, server) = broker();
    let clients: Vec<_> =
        (0..3).map(|number| broker.client(Version::V5, &format!("frog-{number}"))).collect();
    until("all clients are counted", || {
        (server.value("/api/v1/counters")["clients/connected"] == 3).then_some(())
    });
    let (mut terminal, _directory) = top(&server, LONG, COMMON);
    let lines = with_rates(&mut terminal);
    assert!(line(&lines, "pondhawk ").contains("2 shards  ready"), "{lines:#?}");
    assert!(
        lines.iter().any(|line| line.starts_with("(q ends")) || line(&lines, "pondhawk ").contains("(q ends")
    );
    assert!(line(&lines, "clients 3 connected, 0 away").contains("subscriptions 0"), "{lines:#?}");
    assert!(
        line(&lines, "memory  [").contains(" % ") && line(&lines, "memory  [").contains("iB of "),
        "{lines:#?}"
    );
    assert!(line(&lines, "PER SECOND").ends_with("TOTAL"), "{lines:#?}");
    assert!(line(&lines, "bytes received").ends_with('B'), "{lines:#?}");
    let shards = lines.iter().position(|line| line.contains("SHARD")).expect("a table of shards");
    assert!(lines[shards].ends_with("BYTES OUT/S   WAITING"), "{lines:#?}");
    // Shard, clients, messages, bytes with their units, and messages that wait.
    let fields: Vec<_> = lines[shards + 1].split_whitespace().collect();
    assert!(matches!(fields[..], [_, _, _, _, _, "B" | "KiB", _, "B" | "KiB", "0"]), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.contains('…')), "all has room: {lines:#?}");
    terminal.press("q");
    assert!(terminal.expect_end().success());
    drop(clients);
}

#[test]
fn a_screen_of_any_size_is_filled_and_not_overrun() {
    let (_broker, server) = broker();
    for (size, is_whole) in [((10, 40), false), ((3, 12), false), ((50, 200), true)] {
        let (mut terminal, _directory) = top(&server, LONG, size);
        let lines = terminal.wait_for("it is drawn", |screen| {
            let contents = screen.contents();
            contents.contains("SHARD") || contents.contains(" more l")
        });
        assert!(lines[0].starts_with("pondhawk"), "nothing has scrolled: {lines:#?}");
        assert_eq!(lines.iter().any(|line| line.contains("SHARD")), is_whole, "{lines:#?}");
        terminal.wait_for("no line is wrapped", |screen| (0..size.0).all(|row| !screen.row_wrapped(row)));
        terminal.press("q");
        assert!(terminal.expect_end().success());
    }
}

#[test]
fn a_new_size_is_followed_at_once() {
    let (_broker, server) = broker();
    let (mut terminal, _directory) = top(&server, LONG, COMMON);
    terminal.wait_for_text("SHARD");
    terminal.resize((8, 50));
    terminal.wait_for("the small screen says what it leaves out", |screen| {
        screen.rows(0, 50).nth(7).is_some_and(|line| line.contains("more lines"))
    });
    terminal.resize((40, 120));
    terminal.wait_for("the large one has all", |screen| {
        let contents = screen.contents();
        contents.contains("WAITING") && !contents.contains("more lines")
    });
    terminal.press("q");
    assert!(terminal.expect_end().success());
}

#[test]
fn each_way_to_end_it_leaves_the_terminal_as_it_was() {
    let (_broker, server) = broker();
    for keys in ["q", "Q", "\u{3}", "\u{4}", "xyz q"] {
        let (mut terminal, _directory) = top(&server, LONG, COMMON);
        terminal.wait_for("it has a screen of its own", |screen| {
            screen.alternate_screen() && screen.hide_cursor() && screen.contents().contains("SHARD")
        });
        terminal.press(keys);
        assert!(terminal.expect_end().success(), "{keys:?}");
    }
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let (mut terminal, _directory) = top(&server, LONG, COMMON);
        terminal.wait_for_text("SHARD");
        terminal.signal(signal);
        assert!(terminal.expect_end().success(), "{signal:?}");
    }
}

/// As a shell does it with Ctrl-Z and `fg`.
#[test]
fn a_stopped_one_gives_the_terminal_back_until_it_goes_on() {
    let (_broker, server) = broker();
    let (mut terminal, _directory) = top(&server, LONG, COMMON);
    terminal.wait_for_text("SHARD");
    terminal.press("\u{1a}");
    terminal.wait_for("the former screen is back", |screen| !screen.alternate_screen());
    until("it is stopped", || (terminal.state().as_deref() == Some("T")).then_some(()));
    terminal.expect_as_before();
    terminal.signal(Signal::CONT);
    terminal.wait_for("it is drawn again", |screen| {
        screen.alternate_screen() && screen.contents().contains("SHARD")
    });
    terminal.press("q");
    assert!(terminal.expect_end().success());
}

#[test]
fn a_broker_that_is_gone_is_named_and_asked_again() {
    let directory = data_dir();
    let token = directory.path().join("token");
    fs::write(&token, "admin-0123456789abcdef\n").expect("it is ours");
    let settings =
        format!("[admin]\naddress = \"127.0.0.1:{}\"\nadmin_token_file = {token:?}\n", free_port());
    let start = || Broker::start(&Options { shards: 1, settings: settings.clone(), ..Options::default() });
    let broker = start();
    let server = Server::with(&Server::address_of(&broker), "admin-0123456789abcdef");
    let (mut terminal, _directory) = top(&server, LONG, COMMON);
    with_rates(&mut terminal);
    assert!(broker.stop().success());
    terminal.press(" ");
    let lines = terminal.wait_for("the reason is there, and old figures are not", |screen| {
        let contents = screen.contents();
        contents.contains("no answer from the admin server at 127.0.0.1:") && !contents.contains("SHARD")
    });
    let text = lines.join(" ");
    assert!(text.contains("does the broker run?)") && text.contains("The last answer came "), "{lines:#?}");
    assert!(text.contains("q ends"), "{lines:#?}");
    let _broker = start();
    terminal.press(" ");
    terminal.wait_for("the new broker has no rates yet", |screen| {
        screen.contents().contains("SHARD") && screen.contents().contains('…')
    });
    terminal.press("\u{3}");
    assert!(terminal.expect_end().success());
}

/// Its system still accepts connections.
#[test]
fn a_broker_that_does_not_answer_holds_up_no_key() {
    let (broker, server) = broker();
    let (mut terminal, _directory) = top(&server, "1", COMMON);
    terminal.wait_for_text("SHARD");
    broker.pause();
    terminal.wait_for_text("no answer from the admin server yet");
    terminal.press("q");
    assert!(terminal.expect_end().success());
    broker.resume();
}

/// A wrong token is told on the former screen.
#[test]
fn a_refusal_at_the_beginning_changes_no_screen() {
    let (_broker, server) = broker();
    let (mut terminal, _directory) = top(&server.with_token("0123456789abcdef"), LONG, COMMON);
    terminal.wait_for("the error is there", |screen| screen.contents().starts_with("error: "));
    assert!(!terminal.expect_end().success() && !terminal.is_controlled());
}
