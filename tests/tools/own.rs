//! Tests of features that Mosquitto's programs do not have.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output, Stdio};
use std::thread;

use pondhawk_tests::{Broker, Options, Program, Version, free_port};

use tempfile::TempDir;

use crate::mosquitto::Mosquitto;

/// Runs one of our programs with a broker, and waits for its end.
fn run(broker: &Broker, tool: &str, arguments: &[&str], input: &[u8]) -> Output {
    let port = broker.address().port().to_string();
    run_anywhere(tool, &[&["-h", "127.0.0.1", "-p", &port], arguments].concat(), input)
}

/// Runs one of our programs with arguments that name the server, and waits for its end.
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

#[test]
fn the_will_of_a_subscriber_that_is_told_to_end_is_published() {
    let broker = Broker::start(&Options::default());
    let mut frog = broker.client(Version::V3_1_1, "frog");
    frog.subscribe("will");
    let mut toad = Command::new("sh");
    toad.args(["-c", "echo pid $$; exec \"$@\"", "sh"]).arg(pondhawk_tests::pondhawk()).arg("sub");
    toad.args(["-h", "127.0.0.1", "-p", &broker.address().port().to_string(), "-t", "pond", "-d", "-V", "5"]);
    toad.args(["--will-topic", "will", "--will-payload", "gone"]);
    let toad = Program::start(toad);
    toad.wait_for("Subscribed (mid: 1)");
    let line = toad.wait_for("pid ");
    let id = line.trim().strip_prefix("pid ").expect("its process id");
    assert!(Command::new("kill").args(["-TERM", id]).status().expect("kill can be run").success());
    frog.expect_message("will", b"gone");
    toad.finish();
}

#[test]
fn the_time_is_over_also_where_nobody_answers() {
    // A connection exists as soon as it is in the listener's queue. Nobody accepts it from there.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = silent.local_addr().expect("it is bound").port().to_string();
    for (tool, words) in [("sub", &["-t", "a"][..]), ("rr", &["-t", "a", "-e", "b", "-m", "x"])] {
        let arguments = [&["-h", "127.0.0.1", "-p", &port, "-W", "1"], words].concat();
        let ended = run_anywhere(tool, &arguments, b"");
        assert_eq!((ended.status.code(), &ended.stderr[..]), (Some(27), &b"Timed out\n"[..]), "{ended:?}");
    }
}

/// A reader of standard error that has stopped reading must not keep a program.
#[test]
fn a_blocked_standard_error_does_not_keep_a_program() {
    use rustix::fs::{OFlags, fcntl_setfl};
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = silent.local_addr().expect("it is bound").port().to_string();
    let (reader, mut writer) = std::io::pipe().expect("the system has pipes");
    fcntl_setfl(&writer, OFlags::NONBLOCK).expect("the pipe is ours");
    while writer.write(&[b'x'; 4_096]).is_ok() {}
    fcntl_setfl(&writer, OFlags::empty()).expect("the pipe is ours");
    let mut command = Command::new("timeout");
    command.arg("20").arg(pondhawk_tests::pondhawk());
    command.args(["sub", "-h", "127.0.0.1", "-p", &port, "-W", "1", "-t", "a"]);
    let status = command.stderr(writer).status().expect("a program can be run");
    assert_eq!(status.code(), Some(27));
    drop(reader);
}

/// The text of a message in JSON can be much longer than the message. It is never in memory as a whole.
#[test]
fn large_messages_are_text_in_json_and_small_ones_are_values() {
    let broker = Broker::start(&Options::default());
    let list = |items: usize| format!("[{}0]", "0,".repeat(items));
    for (payload, begin) in [(list(1_000), "[0,0,"), (list(600_000), "\"[0,0,")] {
        let published = run(&broker, "pub", &["-t", "pond", "-r", "-f", "-"], payload.as_bytes());
        assert!(published.status.success(), "{published:?}");
        let printed = run(&broker, "sub", &["-t", "pond", "--json", "-C", "1"], b"");
        let line = String::from_utf8(printed.stdout).expect("JSON is text");
        assert!(line.contains(&format!("\"payload\":{begin}")), "{}", &line[..200]);
    }
}

#[test]
fn rr_ends_when_its_connection_is_closed() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it is bound").port().to_string();
    let broker = thread::spawn(move || {
        let (mut connection, _) = listener.accept().expect("rr connects");
        let mut packet = [0; 1_024];
        let _ = connection.read(&mut packet).expect("CONNECT");
        connection.write_all(&[0x20, 2, 0, 0]).expect("CONNACK");
        let _ = connection.read(&mut packet).expect("SUBSCRIBE");
    });
    let arguments = ["-h", "127.0.0.1", "-p", &port, "-V", "311", "-t", "a", "-e", "b", "-m", "x"];
    let ended = run_anywhere("rr", &arguments, b"");
    broker.join().expect("the connection is closed");
    assert_eq!(ended.status.code(), Some(7), "{ended:?}");
}

#[test]
fn a_random_filter_lets_the_share_pass_that_it_is_asked_for() {
    let broker = Broker::start(&Options::default());
    let session = ["-t", "pond", "-q", "1", "-c", "-i", "frog"];
    for (percent, expected) in [("100", 1_000..=1_000), ("50", 350..=650)] {
        assert!(run(&broker, "sub", &[&session[..], &["-E"]].concat(), b"").status.success());
        let count = ["-t", "pond", "-q", "1", "-m", "croak", "--repeat", "1000"];
        assert!(run(&broker, "pub", &count, b"").status.success());
        let chosen = ["-C", "1000", "--random-filter", percent];
        let printed = run(&broker, "sub", &[&session[..], &chosen].concat(), b"").stdout;
        let lines = printed.split(|byte| *byte == b'\n').count() - 1;
        assert!(expected.contains(&lines), "{lines} of 1000 at {percent} %");
    }
}

/// A host name that cannot exist, because a label has at most 63 letters. No name server is asked.
const NO_NAME: &str = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";

#[test]
fn connection_errors_say_where_the_connection_failed_and_what_to_do() {
    let mosquitto = Mosquitto::start();
    let ports = [mosquitto.port(), mosquitto.tls_port(), free_port()];
    let [plain, encrypted, nobody] = ports.map(|port| port.to_string());
    let authority = mosquitto.authority().display().to_string();
    let proxy = format!("socks5h://127.0.0.1:{nobody}");
    for (words, advice) in [
        (&["-p", &plain, "--cafile", &authority][..], "may not speak TLS".to_owned()),
        (&["-p", &encrypted], format!("127.0.0.1:{encrypted} does not answer as an MQTT broker does")),
        (&["-p", &nobody], format!("Nobody listens at 127.0.0.1:{nobody}: ")),
        (&["-p", &plain, "--proxy", &proxy], format!("Nobody listens at the proxy 127.0.0.1:{nobody}: ")),
        (&["-h", NO_NAME], format!("No address of {NO_NAME}:1883: is the name right (-h)?")),
        (&["-p", &plain, "-A", "192.0.2.1"], "cannot be reached from the address of -A".to_owned()),
        (&["--unix", "/nowhere"], "There is no /nowhere: ".to_owned()),
    ] {
        let place = ["-h", "127.0.0.1", "-t", "pond", "-m", "croak"];
        let refused = run_anywhere("pub", &[&place[..], words].concat(), b"");
        let said = String::from_utf8(refused.stderr).expect("text");
        assert!(!refused.status.success() && said.contains(&advice), "{words:?}: {said}");
    }
}

/// The first line and the exit code are those of Mosquitto's clients.
#[test]
fn a_client_that_is_refused_without_a_name_is_told_to_give_one() {
    for (words, asks) in [(&[][..], true), (&["-u", "nobody", "-P", "wrong"], false)] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port().to_string();
        let broker = thread::spawn(move || {
            let (mut connection, _) = listener.accept().expect("pub connects");
            let _ = connection.read(&mut [0; 1_024]).expect("CONNECT");
            connection.write_all(&[0x20, 2, 0, 5]).expect("CONNACK");
        });
        let place = ["-h", "127.0.0.1", "-p", &port, "-V", "311", "-t", "pond", "-m", "croak"];
        let refused = run_anywhere("pub", &[&place[..], words].concat(), b"");
        broker.join().expect("the connection is closed");
        let said = String::from_utf8(refused.stderr).expect("text");
        assert_eq!(refused.status.code(), Some(5), "{said}");
        assert!(said.starts_with("Connection error: Connection Refused: not authorised.\n"), "{said}");
        assert_eq!(said.contains(&format!("127.0.0.1:{port} wants a user: -u NAME and -P")), asks, "{said}");
    }
}

#[test]
fn the_error_for_an_unknown_flag_says_what_was_probably_meant() {
    for (word, advice) in [
        ("--retian", "Did you mean --retain?"),
        ("--qos=1", "What a flag takes is the next word: --qos 1"),
        ("-C", "It is a flag of 'pondhawk sub'."),
        ("world", "One with spaces needs quotation marks."),
    ] {
        let refused = run_anywhere("pub", &["-t", "pond", "-m", "hello", word], b"");
        let said = String::from_utf8(refused.stderr).expect("text");
        assert!(
            said.starts_with(&format!("Error: Unknown option '{word}'.\n")) && said.contains(advice),
            "{said}"
        );
    }
}

#[test]
fn a_subscriber_says_that_the_broker_is_gone_and_that_it_is_there_again() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it is bound").port().to_string();
    let mut command = Command::new(pondhawk_tests::pondhawk());
    command.args(["sub", "-h", "127.0.0.1", "-p", &port, "-t", "pond"]);
    let frog = Program::start(command);
    // Dropping a connection closes it.
    for _ in 0..2 {
        let (mut connection, _) = listener.accept().expect("it connects");
        let mut packet = [0; 1_024];
        let _ = connection.read(&mut packet).expect("CONNECT");
        connection.write_all(&[0x20, 2, 0, 0]).expect("CONNACK");
        let _ = connection.read(&mut packet).expect("SUBSCRIBE");
        connection.write_all(&[0x90, 3, 0, 1, 0]).expect("SUBACK");
    }
    let place = format!("127.0.0.1:{port}");
    frog.wait_for(&format!("The connection to {place} is lost: "));
    frog.wait_for(&format!("Connected to {place} again."));
    frog.kill();
}

#[test]
fn a_retained_message_is_no_answer_if_only_new_messages_are_wanted() {
    // Mosquitto sends retained messages before all others.
    let mosquitto = Mosquitto::start();
    let port = mosquitto.port().to_string();
    let place = ["-h", "127.0.0.1", "-p", &port, "-t", "pond", "-m"];
    run_anywhere("pub", &[&place[..], &["kept", "-r"]].concat(), b"");
    let request = [&place[..], &["new", "-e", "pond"]].concat();
    assert_eq!(run_anywhere("rr", &request, b"").stdout, b"kept\n");
    assert_eq!(run_anywhere("rr", &[&request[..], &["-R"]].concat(), b"").stdout, b"new\n");
}

#[test]
fn rr_reports_that_its_request_is_refused() {
    let mosquitto = Mosquitto::start();
    let guarded = mosquitto.guarded_port().to_string();
    let place = ["-h", "127.0.0.1", "-p", &guarded];
    let request = ["-t", "pond", "-e", "open/pond", "-m", "x", "-q", "1"];
    let ended = run_anywhere("rr", &[&place[..], &request].concat(), b"");
    let said = String::from_utf8(ended.stderr).expect("text");
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("Not authorized"), "{said}");
}

#[test]
fn programs_do_not_panic_when_their_output_pipe_is_closed() {
    let broker = Broker::start(&Options::default());
    run(&broker, "pub", &["-t", "pond", "-r", "-m", "croak"], b"");
    let port = broker.address().port();
    let place = format!("-h 127.0.0.1 -p {port}");
    for line in [
        format!("sub {place} -t pond -C 1 --stats"),
        format!("sub {place} -t pond -C 1 -F %J"),
        "sub --frobnicate".to_owned(),
        format!("probe 127.0.0.1:{port} --messages 1 --payload-max 1024"),
        "probe 127.0.0.1:1".to_owned(),
        "tap --listen nowhere --to nowhere".to_owned(),
    ] {
        // Neither standard output nor standard error has a reader when the program begins.
        let mut command = Command::new("timeout");
        command.arg("20").arg(pondhawk_tests::pondhawk()).args(line.split(' '));
        for is_error in [false, true] {
            let (reader, writer) = std::io::pipe().expect("the system has pipes");
            drop(reader);
            if is_error {
                command.stderr(writer)
            } else {
                command.stdout(writer)
            };
        }
        let status = command.status().expect("a program can be run");
        assert!(status.code().is_some_and(|code| code < 3), "{line}: {status}");
    }
}

#[test]
fn files_formats_and_defaults_need_not_be_utf_8() {
    let broker = Broker::start(&Options::default());
    let home = TempDir::new().expect("there is a place for temporary files");
    fs::create_dir(home.path().join(".config")).expect("a temporary folder can be made");
    let write = |name: &OsStr, bytes: &[u8]| {
        fs::write(home.path().join(name), bytes).expect("a temporary file can be written");
    };
    let name = OsStr::from_bytes(b"\xe4.txt");
    write(name, b"from a file");
    write(OsStr::new(".config/mosquitto_sub"), b"# \xfc\n-F \xff%p \r\n");
    let run = |tool: &str, words: &[&OsStr]| {
        let mut command = Command::new(pondhawk_tests::pondhawk());
        command.args([tool, "-h", "127.0.0.1", "-p", &broker.address().port().to_string(), "-t", "pond"]);
        command.args(words).env("HOME", home.path()).env_remove("XDG_CONFIG_HOME");
        command.output().expect("a program can be run")
    };
    let path = home.path().join(name);
    let published = run("pub", &[OsStr::new("-r"), OsStr::new("-f"), path.as_os_str()]);
    assert!(published.status.success(), "{published:?}");
    let count = ["-C", "1", "-W", "10"].map(OsStr::new);
    assert_eq!(run("sub", &count).stdout, b"\xfffrom a file \n");
    let format = OsStr::from_bytes(b"@\xfe%p");
    let printed = run("sub", &[&count[..], &[OsStr::new("-F"), format]].concat());
    assert_eq!(printed.stdout, b"%\xfefrom a file\n");
    // A file of defaults that exists and cannot be read is an error.
    fs::create_dir(home.path().join(".config/mosquitto_pub")).expect("a temporary folder can be made");
    let refused = run("pub", &["-m", "x"].map(OsStr::new));
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
}

#[test]
fn a_line_without_an_end_is_not_waited_for() {
    let broker = Broker::start(&Options::default());
    let mut command = Command::new("timeout");
    command.arg("120").arg(pondhawk_tests::pondhawk());
    command.args(["pub", "-h", "127.0.0.1", "-p", &broker.address().port().to_string(), "-t", "pond", "-l"]);
    let zeros = fs::File::open("/dev/zero").expect("the system has it");
    let refused = command.stdin(zeros).output().expect("a program can be run");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.starts_with("Error: Message length must be less than 268435455 bytes."), "{said}");
}

/// Reads the client's next packet: its type, and its bytes behind the fixed header; `None` at the end.
fn next_packet(stream: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let mut first = [0];
    stream.read_exact(&mut first).ok()?;
    let (mut length, mut shift) = (0_usize, 0);
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        length |= usize::from(byte[0] & 0x7f) << shift;
        shift += 7;
        if byte[0] < 0x80 {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some((first[0], body))
}

/// Accepts a client of MQTT 3.1.1.
fn accept(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().expect("it connects");
    assert_eq!(next_packet(&mut stream).map(|(first, _)| first), Some(0x10), "CONNECT");
    stream.write_all(&[0x20, 2, 0, 0]).expect("CONNACK");
    stream
}

fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it is bound").port().to_string();
    (listener, port)
}

/// Acknowledges at most `count` messages of QoS 1, and returns their payloads.
fn acknowledge(stream: &mut TcpStream, count: usize) -> Vec<String> {
    let mut payloads = Vec::new();
    while payloads.len() < count
        && let Some((0x32 | 0x3a, body)) = next_packet(stream)
    {
        let at = 2 + usize::from(u16::from_be_bytes([body[0], body[1]]));
        payloads.push(String::from_utf8_lossy(&body[at + 2..]).into_owned());
        if stream.write_all(&[0x40, 2, body[at], body[at + 1]]).is_err() {
            break;
        }
    }
    payloads
}

/// The broker is lost twice: once with messages under way, and once before it has read anything.
#[test]
fn all_lines_are_published_across_a_restart_of_the_broker() {
    let (listener, port) = listen();
    let broker = thread::spawn(move || {
        let mut first = accept(&listener);
        let mut payloads = acknowledge(&mut first, 15);
        // These arrive, and their acknowledgements do not.
        let _ = [next_packet(&mut first), next_packet(&mut first)];
        drop(first);
        drop(accept(&listener));
        payloads.extend(acknowledge(&mut accept(&listener), usize::MAX));
        payloads
    });
    let lines: Vec<_> = (1..=60).map(|number| number.to_string()).collect();
    let words = ["-h", "127.0.0.1", "-p", &port, "-t", "pond", "-q", "1", "-l"];
    let published = run_anywhere("pub", &words, (lines.join("\n") + "\n").as_bytes());
    let said = String::from_utf8(published.stderr).expect("text");
    assert!(published.status.success(), "{said}");
    // At QoS 1 a line may arrive again if its acknowledgement was lost.
    let mut arrived = broker.join().expect("no panic");
    let mut seen = HashSet::new();
    arrived.retain(|line| seen.insert(line.clone()));
    assert_eq!(arrived, lines, "all, and in order");
    assert!(said.starts_with(&format!("The connection to 127.0.0.1:{port} is lost: ")), "{said}");
    assert!(said.ends_with("60 of 60 messages were acknowledged.\n"), "{said}");
}

/// Lines that come while there is no connection do not overtake those that were lost with the last one.
#[test]
fn lines_wait_for_those_that_were_lost() {
    let (listener, port) = listen();
    let mut command = Command::new("timeout");
    command.arg("20").arg(pondhawk_tests::pondhawk()).args(["pub", "-h", "127.0.0.1", "-p", &port]);
    command.args(["-t", "pond", "-q", "1", "-l"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().expect("a program can be run");
    let mut input = process.stdin.take().expect("stdin is piped");
    let mut said = BufReader::new(process.stderr.take().expect("stderr is piped"));
    let mut first = accept(&listener);
    writeln!(input, "1\n2\n3").expect("it reads its input");
    assert_eq!(acknowledge(&mut first, 1), ["1"]);
    let _ = [next_packet(&mut first), next_packet(&mut first)];
    drop(first);
    let mut line = String::new();
    said.read_line(&mut line).expect("text");
    assert!(line.contains("is lost"), "{line}");
    // More than the pipe holds: when all is written, the program has read the first of them.
    let padding = "x".repeat(1_000);
    let lines: Vec<String> = (4..200).map(|number| format!("{number} {padding}")).collect();
    input.write_all((lines.join("\n") + "\n").as_bytes()).expect("it reads its input");
    drop(input);
    let arrived = acknowledge(&mut accept(&listener), usize::MAX);
    let expected: Vec<String> = ["2", "3"].into_iter().map(str::to_owned).chain(lines).collect();
    assert_eq!(arrived, expected);
    assert!(process.wait().expect("our own child can be waited for").success());
}

#[test]
fn a_blocked_output_keeps_neither_a_time_limit_nor_a_signal_waiting() {
    let broker = Broker::start(&Options::default());
    // More than a pipe takes.
    run(&broker, "pub", &["-t", "pond", "-r", "-s"], &vec![b'x'; 1 << 20]);
    let port = broker.address().port().to_string();
    for (words, signal, expected) in [(&["-W", "2"][..], None, 27), (&["-d"], Some("-TERM"), 0)] {
        let mut command = Command::new(pondhawk_tests::pondhawk());
        command.args(["sub", "-h", "127.0.0.1", "-p", &port, "-t", "pond"]).args(words);
        let (mut reader, writer) = std::io::pipe().expect("the system has pipes");
        let mut process = command.stdout(writer).spawn().expect("it can be run");
        drop(command);
        // The program has begun to print. Nobody reads on.
        reader.read_exact(&mut [0; 4]).expect("the beginning of the message");
        if let Some(signal) = signal {
            let id = process.id().to_string();
            assert!(Command::new("kill").args([signal, &id]).status().expect("kill can be run").success());
        }
        assert_eq!(process.wait().expect("our own child").code(), Some(expected), "{words:?}");
    }
}

#[test]
fn a_reader_that_has_enough_is_no_failure() {
    let broker = Broker::start(&Options::default());
    run(&broker, "pub", &["-t", "pond", "-r", "-m", "croak"], b"");
    let (reader, writer) = std::io::pipe().expect("the system has pipes");
    drop(reader);
    let mut command = Command::new("timeout");
    command.arg("20").arg(pondhawk_tests::pondhawk());
    command.args(["sub", "-h", "127.0.0.1", "-p", &broker.address().port().to_string(), "-t", "pond"]);
    let ended = command.stdout(writer).stderr(Stdio::piped()).output().expect("it can be run");
    assert_eq!((ended.status.code(), &ended.stderr[..]), (Some(0), &b""[..]), "{ended:?}");
}

#[test]
fn only_the_answer_answers_a_request() {
    let (listener, port) = listen();
    let broker = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("it connects");
        next_packet(&mut stream).expect("CONNECT");
        stream.write_all(&[0x20, 3, 0, 0, 0]).expect("CONNACK");
        // A message of a session that was kept arrives first.
        stream.write_all(b"\x30\x08\0\x05other\0").expect("it is there");
        next_packet(&mut stream).expect("SUBSCRIBE");
        stream.write_all(&[0x90, 4, 0, 1, 0, 0]).expect("SUBACK");
        next_packet(&mut stream).expect("PUBLISH");
        // The answer to somebody else's request, and ours.
        stream.write_all(b"\x30\x0c\0\x01b\x04\x09\0\x01yelse").expect("it is there");
        stream.write_all(b"\x30\x0c\0\x01b\x04\x09\0\x01xours").expect("it is there");
        next_packet(&mut stream);
    });
    let words = ["-h", "127.0.0.1", "-p", &port, "-t", "a", "-e", "b", "-m", "x", "-W", "10"];
    let asked = run_anywhere("rr", &[&words[..], &["-D", "publish", "correlation-data", "x"]].concat(), b"");
    broker.join().expect("no panic");
    assert_eq!((asked.status.code(), &asked.stdout[..]), (Some(0), &b"ours\n"[..]), "{asked:?}");
}

#[test]
fn a_request_that_nobody_hears_does_not_wait() {
    let broker = Broker::start(&Options::default());
    let asked = run(&broker, "rr", &["-t", "a", "-e", "b", "-m", "x", "-q", "1"], b"");
    assert_eq!(asked.status.code(), Some(1), "{asked:?}");
    assert!(asked.stderr.starts_with(b"Error: Nobody has subscribed"), "{asked:?}");
}

/// A broker may refuse a client right after it has accepted it. The reason is told, on one line.
#[test]
fn the_reason_behind_an_acceptance_is_told_without_escapes() {
    for (tool, words) in [
        ("pub", &["-t", "a", "-m", "x", "-q", "1"][..]),
        ("sub", &["-t", "a", "-W", "2"]),
        ("rr", &["-t", "a", "-e", "b", "-m", "x"]),
    ] {
        let (listener, port) = listen();
        let broker = thread::spawn(move || {
            // `sub` connects again. What follows is refused by nobody.
            let (mut stream, _) = listener.accept().expect("it connects");
            next_packet(&mut stream).expect("CONNECT");
            let reason = b"bye\nConnected\x1b[2J";
            let mut packets = vec![0x20, 3, 0, 0, 0, 0xe0, 25, 0x97, 23, 0x1f, 0, 20];
            packets.extend_from_slice(reason);
            packets[6] = 2 + 3 + u8::try_from(reason.len()).expect("short");
            packets[8] = 3 + u8::try_from(reason.len()).expect("short");
            packets[11] = u8::try_from(reason.len()).expect("short");
            stream.write_all(&packets).expect("CONNACK and DISCONNECT");
            while next_packet(&mut stream).is_some() {}
        });
        let place = ["-h", "127.0.0.1", "-p", &port, "-V", "5"];
        let ended = run_anywhere(tool, &[&place[..], words].concat(), b"");
        broker.join().expect("no panic");
        let said = String::from_utf8(ended.stderr).expect("text");
        assert!(said.contains("Quota exceeded (bye\\nConnected\\u{1b}[2J)"), "{tool}: {said}");
        assert!(!said.contains('\u{1b}'), "{said:?}");
        assert!(!ended.status.success(), "{tool}");
    }
}

#[test]
fn an_error_about_a_value_lists_the_valid_values() {
    for (words, advice) in [
        (&["-V", "4"][..], "The versions are 31, 311 and 5."),
        (&["-q", "3"], "A QoS is 0, 1 or 2."),
        (&["-p", "0"], "A port is a number from 1 to 65535."),
        (&["-L", "http://pond/t"], "The schemes are mqtt://, mqtts://, ws://, wss:// and quic://."),
        (&["--proxy", "http://pond"], "The only protocol is socks5h://."),
        (&["-D", "conect", "user-property", "a"], "The commands are connect, publish, "),
        (&["-D", "publish", "colour", "a"], "The properties of publish are content-type, "),
        (&["-D", "connect", "topic-alias", "1"], "The properties of connect are "),
        (&["-D", "publish", "topic-alias", "0"], "The value is a number from 1 to 65535."),
        (&["-D", "auth", "reason-string", "a"], "No property of auth can be set."),
        (&["--cafile", "/dev/null", "--ciphers", "RC4"], "The ciphers of TLS 1.2 are ECDHE-ECDSA-AES256-"),
    ] {
        let refused = run_anywhere("pub", &[&["-t", "pond", "-m", "croak"], words].concat(), b"");
        let said = String::from_utf8(refused.stderr).expect("text");
        assert_eq!(refused.status.code(), Some(1), "{words:?}: {said}");
        assert_eq!(said.lines().nth(1).map(|line| line.starts_with(advice)), Some(true), "{words:?}: {said}");
    }
    for (format, advice) in
        [("%z", "The letters after % are % A C D "), ("\\z", "The letters after \\ are \\ 0 a ")]
    {
        let refused = run_anywhere("sub", &["-t", "pond", "-F", format], b"");
        let said = String::from_utf8(refused.stderr).expect("text");
        assert_eq!(said.lines().nth(1).map(|line| line.starts_with(advice)), Some(true), "{format}: {said}");
    }
}
