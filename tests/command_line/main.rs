//! The command line of the real binary.

mod certs;
mod include;
mod keys;
mod pages;
mod walks;

use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Runs `pondhawk` with these arguments to its end; `file` is what `/dev/stdin` holds.
fn pondhawk(arguments: &[&str], file: &str) -> Output {
    let mut process = Command::new(pondhawk_tests::pondhawk())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    process.stdin.take().unwrap().write_all(file.as_bytes()).unwrap();
    process.wait_with_output().unwrap()
}

fn check(file: &str) -> (bool, String, String) {
    let output = pondhawk(&["check", "/dev/stdin"], file);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_good_file_is_printed_with_all_its_defaults_and_is_good_again() {
    let (is_good, printed, said) = check("shards = 3\n[sys]\ninterval = \"1 min\"\n");
    assert!(is_good && said.contains("is good"), "{said}");
    assert!(printed.contains("shards = 3\n") && printed.contains("interval = \"1 min\"\n"), "{printed}");
    let (is_good, again, _) = check(&printed);
    assert!(is_good);
    assert_eq!(printed, again);
}

#[test]
fn check_takes_its_file_as_other_commands_do_too() {
    let outputs =
        [&["check", "/dev/stdin"][..], &["check", "-c", "/dev/stdin"], &["check", "--config", "/dev/stdin"]]
            .map(|arguments| pondhawk(arguments, "shards = 3\n"));
    assert!(outputs.iter().all(|output| output.status.success() && output.stdout == outputs[0].stdout));
    for arguments in [&["check"][..], &["check", "a.toml", "-c", "b.toml"]] {
        let said = String::from_utf8(pondhawk(arguments, "").stderr).unwrap();
        assert!(said.contains("FILE"), "{said}");
    }
}

/// The broker would refuse to start.
#[test]
fn a_configuration_whose_certificates_cannot_be_read_is_not_good() {
    let listener = "[[listener]]\naddress = \"127.0.0.1:0\"\n";
    for keys in [
        "tls_certificate = \"/nowhere/server.pem\"\ntls_key = \"/nowhere/server.key\"\n",
        "tls_certificate = \"/dev/null\"\ntls_key = \"/dev/null\"\n",
    ] {
        let (is_good, printed, said) = check(&format!("{listener}{keys}"));
        assert!(!is_good && printed.is_empty() && said.contains("tls_certificate"), "{said}");
    }
}

/// The advice is about the configuration, and not about a token.
#[test]
fn an_operator_without_an_admin_server_is_told_how_to_get_one() {
    let directory = tempfile::TempDir::new().unwrap();
    let file = directory.path().join("pondhawk.toml");
    std::fs::write(&file, format!("data_dir = {:?}\n", directory.path())).unwrap();
    let file = file.to_str().unwrap();
    for command in [&["ctl", "status", "-c", file][..], &["top", "-c", file]] {
        let said = String::from_utf8(pondhawk(command, "").stderr).unwrap();
        assert!(said.contains("[admin]") && said.contains("127.0.0.1:9883"), "{command:?}: {said}");
        assert!(!said.contains("no token"), "{command:?}: {said}");
    }
    let said = String::from_utf8(pondhawk(&["ctl", "status", "-c", "/nowhere"], "").stderr).unwrap();
    assert_eq!(said.matches("error:").count(), 1, "{said}");
}

/// A name of a file or a host may have escapes that control a terminal, and newlines that forge a line of their own.
#[test]
fn names_with_control_characters_are_escaped_in_every_message() {
    const NAME: &str = "/nowhere/x\u{1b}[2J\nConnected";
    let rows: [&[&str]; 23] = [
        &["-c", NAME],
        &["check", NAME],
        &["config", "show", NAME],
        &["journal", "check", NAME],
        &["journal", "inspect", NAME],
        &["journal", "repair", NAME],
        &["journal", "backup", NAME, "/nowhere/y"],
        &["certs", "show", NAME],
        &["certs", "client", NAME, "frog"],
        &["passwd", "-b", NAME, "ann", "pond"],
        &["user", "remove", "ann", "--config", NAME],
        &["acl", "test", "--config", NAME, "--user", "ann", "--publish", "pond"],
        &["man", NAME],
        &["import", NAME],
        &["ctl", "status", "--token-file", NAME],
        &["shootout", NAME],
        &["pub", "-t", "pond", "-f", NAME],
        &["pub", "-t", "pond", "-m", "x", "-h", NAME],
        &["pub", "-t", "pond", "-m", "x", "--unix", NAME],
        &["sub", "-t", "pond", "--cafile", NAME],
        &["probe", NAME],
        &["tap", "--listen", NAME, "--to", "127.0.0.1:1"],
        &["tap", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:1", "--capture", NAME],
    ];
    for row in rows {
        let output = pondhawk(row, "");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(!output.status.success(), "{row:?}: {said}");
        assert!(!said.contains('\u{1b}') && !said.contains("\nConnected"), "{row:?}: {said}");
        assert!(said.contains("Connected"), "the name is shown: {row:?}: {said}");
    }
}

#[test]
fn a_bad_file_is_refused_with_every_error_at_its_place() {
    let (is_good, printed, said) = check("shard = 3\n[limits]\nkeep_alive = 60\n");
    assert!(!is_good && printed.is_empty(), "{printed}");
    assert!(said.contains("/dev/stdin:1:1") && said.contains("did you mean `shards`?"), "{said}");
    assert!(said.contains("/dev/stdin:3:14") && said.contains("`limits.keep_alive` needs a unit"), "{said}");
}

#[test]
fn the_broker_does_not_start_with_what_check_refuses() {
    let listener = "[[listener]]\naddress = \"127.0.0.1:1\"\n";
    let text = &[listener, listener].concat();
    let output = pondhawk(&["-c", "/dev/stdin"], text);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(said.contains("there are two listeners on 127.0.0.1:1"), "{said}");
}

#[test]
fn help_names_every_flag_and_every_key() {
    let output = pondhawk(&["serve", "--help"], "");
    let help = String::from_utf8(output.stdout).unwrap();
    for word in
        ["--config", "--port", "--listen", "--allow-anonymous", "--data-dir", "--verbose", "packet_bytes"]
    {
        assert!(help.contains(word), "{word} is missing in:\n{help}");
    }
}

#[test]
fn a_missing_journal_is_reported_as_neither_whole_nor_damaged() {
    let nowhere = std::env::temp_dir().join(format!("pondhawk-nowhere-{}", std::process::id()));
    let nowhere = nowhere.to_str().unwrap();
    for command in [&["check"][..], &["inspect", "--json"], &["repair", "--discard-damaged"]] {
        let output = pondhawk(&[&["journal"], command, &[nowhere]].concat(), "");
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{command:?}: {said}");
        assert!(output.stdout.is_empty(), "{command:?}");
        assert!(said.contains(&format!("there is no journal in {nowhere}")), "{said}");
    }
    let output = pondhawk(&["journal", "repair", "--help"], "");
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(help.contains("--discard-damaged") && help.contains("Exit codes:"), "{help}");
}

#[test]
fn the_version_is_the_workspace_s() {
    let output = pondhawk(&["--version"], "");
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        format!("pondhawk {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn completions_and_manual_pages_have_the_flags_of_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let output = pondhawk(&["completions", shell], "");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains("retained-only"), "{shell}: {text}");
    }
    let folder = tempfile::tempdir().unwrap();
    let output = pondhawk(&["man", &folder.path().display().to_string()], "");
    assert!(output.status.success(), "{output:?}");
    for (page, flag) in [("pondhawk-sub.1", "retained\\-only"), ("pondhawk-serve.1", "in\\-memory")] {
        let text = std::fs::read_to_string(folder.path().join(page)).unwrap();
        assert!(text.contains(flag), "{page}: {text}");
    }
    let output = pondhawk(&["man", "/nowhere"], "");
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("/nowhere"));
}

/// `pondhawk COMMAND | head` is an everyday use.
#[test]
fn a_reader_that_has_read_enough_is_no_error() {
    for arguments in [
        &["completions", "bash"][..],
        &["config", "show"],
        &["config", "explain", "limits.memory_budget_bytes"],
        &["check", "/dev/null"],
    ] {
        // The read end is closed before the program starts.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = Command::new(pondhawk_tests::pondhawk())
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
            .wait_with_output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{arguments:?}: {said}");
        assert!(!said.contains("error") && !said.contains("panicked"), "{arguments:?}: {said}");
    }
}
