//! What Mosquitto's programs do not have.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use pondhawk_tests::{Broker, Options, Program, Version};

use crate::mosquitto::Mosquitto;

/// Runs one of our programs against a broker, to its end.
fn run(broker: &Broker, tool: &str, arguments: &[&str], input: &[u8]) -> Output {
    let port = broker.address().port().to_string();
    run_anywhere(tool, &[&["-h", "127.0.0.1", "-p", &port], arguments].concat(), input)
}

/// Runs one of our programs, which is told where to connect, to its end.
fn run_anywhere(tool: &str, arguments: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new("timeout");
    command.arg("20").arg(pondhawk_tests::pondhawk()).arg(tool).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().expect("a program can be run");
    process.stdin.take().expect("stdin is piped").write_all(input).expect("it reads its input");
    process.wait_with_output().expect("our own child can be waited for")
}

#[test]
fn a_line_of_json_holds_every_kind_of_payload() {
    let broker = Broker::start(&Options::default());
    for (payload, expected) in [
        (&b"{\"deep\": 2.10}"[..], "\"payload\":{\"deep\":2.10}}"),
        (b"croak \"loud\"", "\"payload\":\"croak \\\"loud\\\"\"}"),
        (b"\x00\xff", "\"payloadhex\":\"00ff\"}"),
    ] {
        let published = run(&broker, "pub", &["-t", "pond", "-r", "-f", "-"], payload);
        assert!(published.status.success(), "{published:?}");
        let printed = run(&broker, "sub", &["-t", "pond", "--json", "-C", "1"], b"");
        let line = String::from_utf8(printed.stdout).expect("JSON is text");
        assert!(line.starts_with("{\"tst\":\"") && line.trim_end().ends_with(expected), "{line}");
    }
}

#[test]
fn rates_are_told_apart_from_messages() {
    let broker = Broker::start(&Options::default());
    run(&broker, "pub", &["-t", "pond", "-r", "-m", "croak"], b"");
    let printed = run(&broker, "sub", &["-t", "pond", "--stats", "-C", "1"], b"");
    assert_eq!(printed.stdout, b"croak\n");
    let said = String::from_utf8(printed.stderr).expect("text");
    assert!(said.starts_with("1 messages, 5 bytes in ") && said.contains(" messages/s"), "{said}");
}

#[test]
fn the_answer_to_a_request_in_a_file_is_printed() {
    let broker = Broker::start(&Options::default());
    let asked = run(&broker, "rr", &["-t", "pond", "-e", "pond", "-s", "-W", "10"], b"how deep?");
    assert_eq!((asked.status.code(), &asked.stdout[..]), (Some(0), &b"how deep?\n"[..]), "{asked:?}");
}

#[test]
fn many_lines_arrive_in_their_order() {
    let broker = Broker::start(&Options::default());
    let session = ["-t", "pond", "-q", "2", "-c", "-i", "frog"];
    assert!(run(&broker, "sub", &[&session[..], &["-E"]].concat(), b"").status.success());
    let lines: String = (1..=2_000).map(|number| format!("{number}\n")).collect();
    let published = run(&broker, "pub", &["-t", "pond", "-q", "2", "-l"], lines.as_bytes());
    assert!(published.status.success() && published.stderr.is_empty(), "{published:?}");
    let printed = run(&broker, "sub", &[&session[..], &["-C", "2000"]].concat(), b"");
    assert_eq!(String::from_utf8_lossy(&printed.stdout), lines);
}

#[test]
fn the_will_of_a_killed_program_is_published_and_that_of_one_that_ends_is_not() {
    let broker = Broker::start(&Options::default());
    let mut frog = broker.client(Version::V3_1_1, "frog");
    frog.subscribe("will/#");
    let will = ["-t", "pond", "-d", "--will-payload", "gone", "--will-topic"];
    let polite = run(&broker, "sub", &[&will[..], &["will/polite", "-E"]].concat(), b"");
    assert!(polite.status.success(), "{polite:?}");
    let mut toad = Command::new(pondhawk_tests::pondhawk());
    toad.args(["sub", "-h", "127.0.0.1", "-p", &broker.address().port().to_string()]);
    toad.args(will).arg("will/toad");
    let toad = Program::start(toad);
    toad.wait_for("Subscribed (mid: 1)");
    toad.kill();
    frog.expect_message("will/toad", b"gone");
}

#[test]
fn a_url_leads_through_a_websocket() {
    let mosquitto = Mosquitto::start();
    let url = format!("ws://127.0.0.1:{}/pond", mosquitto.web_port());
    let published = run_anywhere("pub", &["-L", &url, "-m", "croak", "-r", "-q", "1"], b"");
    assert!(published.status.success(), "{published:?}");
    assert_eq!(run_anywhere("sub", &["-L", &url, "-C", "1"], b"").stdout, b"croak\n");
}
