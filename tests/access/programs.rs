//! `pondhawk passwd`, `user` and `acl`, as scripts use them.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use pondhawk_tests::packet::Connect;
use pondhawk_tests::{Broker, Options, Version, pondhawk};
use tempfile::TempDir;

fn run(directory: &Path, arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(pondhawk());
    command.args(arguments).current_dir(directory);
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = pipes.spawn().expect("the pondhawk binary can be run");
    let mut stdin = process.stdin.take().expect("it is piped");
    // A program that fails may not read.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    process.wait_with_output().expect("it ends")
}

fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}

fn done(directory: &Path, arguments: &[&str], input: &str) -> String {
    let output = run(directory, arguments, input);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn failed(directory: &Path, arguments: &[&str]) -> String {
    let output = run(directory, arguments, "");
    assert!(!output.status.success(), "{arguments:?}");
    text(&output.stderr)
}

fn directory() -> TempDir {
    TempDir::new().expect("there is a place for temporary files")
}

#[test]
fn passwd_changes_a_file_with_the_flags_of_mosquitto_passwd() {
    let place = directory();
    let here = place.path();
    let file = || fs::read_to_string(here.join("users")).expect("it was made");
    done(here, &["passwd", "-c", "-b", "users", "ann", "secret"], "");
    assert!(file().starts_with("ann:$argon2id$"), "{}", file());
    let mode = fs::metadata(here.join("users")).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    done(here, &["passwd", "-H", "sha512-pbkdf2", "users", "bob"], "hunter\n");
    assert!(file().contains("\nbob:$7$101$"));
    done(here, &["passwd", "-H", "sha512", "-b", "users", "bob", "other"], "");
    assert!(file().contains("\nbob:$6$") && !file().contains("$7$"));
    done(here, &["passwd", "-D", "users", "ann"], "");
    assert!(!file().contains("ann"));
    fs::write(here.join("plain"), "# staff\ncat:meow\n").expect("a file can be written");
    done(here, &["passwd", "-U", "-H", "sha512-pbkdf2", "plain"], "");
    let plain = fs::read_to_string(here.join("plain")).expect("it is there");
    assert!(plain.starts_with("# staff\ncat:$7$101$"), "{plain}");
    assert!(failed(here, &["passwd", "-D", "users", "dan"]).contains("no user \"dan\""));
    assert!(failed(here, &["passwd", "-b", "none", "ann", "x"]).contains("-c makes a new file"));
    assert!(failed(here, &["passwd", "-b", "users", "a:b", "x"]).contains("colon"));
    assert!(failed(here, &["passwd", "users", "ann"]).contains("empty"));
}

/// A directory that gives its group to new files is meant for this group.
#[test]
fn a_new_password_file_can_be_read_by_the_group_of_its_directory() {
    let place = directory();
    for (mode, expected) in [(0o750, 0o600), (0o2750, 0o640)] {
        fs::set_permissions(place.path(), fs::Permissions::from_mode(mode)).expect("it is ours");
        done(place.path(), &["passwd", "-c", "-b", "users", "ann", "secret"], "");
        let mode = fs::metadata(place.path().join("users")).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, expected);
        fs::remove_file(place.path().join("users")).expect("it is ours");
    }
}

/// Three commands lead from nothing to a broker that knows a user.
#[test]
fn user_add_makes_what_a_broker_needs() {
    let place = directory();
    let here = place.path();
    let said = done(here, &["user", "add", "ann"], "secret\n");
    assert!(said.contains("pondhawk.toml has the line password_file"), "{said}");
    done(here, &["user", "add", "bob"], "hunter\n");
    let settings = fs::read_to_string(here.join("pondhawk.toml")).expect("it was made");
    assert_eq!(settings.matches("password_file").count(), 1, "{settings}");
    let broker = Broker::start(&Options { settings, ..Options::default() });
    for (user, password) in [("ann", "secret"), ("bob", "hunter")] {
        drop(broker.client_with(&Connect::new(Version::V3_1_1, user).of(user, password)));
    }
    done(here, &["user", "remove", "ann"], "");
    broker.wait_for_log(crate::IN_USE);
    let mut ann = broker.connect();
    ann.send(&Connect::new(Version::V3_1_1, "ann").of("ann", "secret").bytes());
    ann.expect(&[0x20, 2, 0, 4]);
    assert!(failed(here, &["user", "remove", "ann"]).contains("no user"));
}

/// As `serve` does.
#[test]
fn check_refuses_files_of_users_and_rules_that_serve_refuses() {
    let directory = directory();
    let write = |name: &str, text: &str| {
        std::fs::write(directory.path().join(name), text).expect("a temporary file can be written");
    };
    write("rules", "topic read #\n");
    write("pond.toml", "[auth]\npassword_file = \"users\"\nacl_file = \"rules\"\n");
    let check = ["check", "pond.toml"];
    assert!(failed(directory.path(), &check).contains("`password_file`: users"));
    write("users", "ann:plaintext\n");
    assert!(failed(directory.path(), &check).contains("`password_file`: users"));
    write("users", "");
    done(directory.path(), &check, "");
    write("rules", "topik read #\n");
    assert!(failed(directory.path(), &check).contains("`acl_file`: rules"));
}

#[test]
fn acl_test_names_the_line_that_decides() {
    let place = directory();
    let here = place.path();
    let rules = "topic read open\nuser ann\ntopic readwrite a/#\ntopic deny a/b\npattern write dev/%c\n";
    fs::write(here.join("rules"), rules).expect("a file can be written");
    fs::write(here.join("pondhawk.toml"), "[auth]\nacl_file = \"rules\"\n").expect("a file can be written");
    let rows: [(&[&str], i32, &str); 7] = [
        (&["--user", "ann", "--publish", "a/x"], 0, "allowed by rules:3: topic readwrite a/#"),
        (&["--user", "ann", "--receive", "a/b"], 1, "denied by rules:4: topic deny a/b"),
        (
            &["--user", "ann", "--subscribe", "a/b"],
            0,
            "allowed: an acl_file says nothing about subscriptions",
        ),
        (&["--receive", "open"], 0, "allowed by rules:1: topic read open"),
        (&["--publish", "open"], 1, "denied: no rule matches (rules)"),
        (&["-u", "bob", "-i", "x", "--publish", "dev/x"], 0, "allowed by rules:5: pattern write dev/%c"),
        (&["-u", "bob", "-i", "#", "--publish", "dev/x"], 1, "a name with + or # is refused"),
    ];
    for (question, code, answer) in rows {
        let output = run(here, &[&["acl", "test"], question].concat(), "");
        assert_eq!(output.status.code(), Some(code), "{question:?}: {}", text(&output.stderr));
        assert!(text(&output.stdout).contains(answer), "{question:?}: {}", text(&output.stdout));
    }
    let wrong = run(here, &["acl", "test", "--publish", "a/#"], "");
    assert_eq!(wrong.status.code(), Some(2));
}

const ROLES: &str = "\
[roles.sensor]
publish = [\"devices/%u/#\"]
subscribe = [\"commands/%u/#\"]
max_qos = 1
retain = false
[roles.guest]
subscribe = [\"open/#\"]
deny = { subscribe = [\"open/safe\"] }
[groups.field]
roles = [\"sensor\"]
users = [\"ann\"]
[every_user]
roles = [\"guest\"]
";

#[test]
fn acl_test_names_the_role_that_decides() {
    let place = directory();
    let here = place.path();
    fs::write(here.join("roles.toml"), ROLES).expect("a file can be written");
    fs::write(here.join("pondhawk.toml"), "[auth]\nrules_file = \"roles.toml\"\n")
        .expect("it can be written");
    let sensor = "role \"sensor\" of group \"field\"";
    let rows: [(&str, i32, &str); 8] = [
        (
            "-u ann --publish devices/ann/t",
            0,
            &format!("allowed by {sensor}: publish \"devices/%u/#\" (roles.toml:2)"),
        ),
        (
            "-u ann --publish devices/ann/t -q 2",
            1,
            "denied: messages have QoS 1 at most, and may not be retained, by",
        ),
        ("-u ann --publish devices/ann/t --retain", 1, "(roles.toml:2)"),
        ("-u ann --publish devices/bob/t", 1, "denied: no rule matches (roles.toml)"),
        (
            "-u ann --subscribe commands/ann/+",
            0,
            "subscribe \"commands/%u/#\" (roles.toml:3); at QoS 1 at most",
        ),
        (
            "-u bob --receive open/safe",
            1,
            "denied by role \"guest\" of every user: deny.receive \"open/safe\" (roles.toml:8)",
        ),
        ("--subscribe open/a", 1, "denied: no rule matches"),
        (
            "-u bob --unsubscribe x",
            0,
            "allowed: neither roles nor tokens have rules about the end of a subscription",
        ),
    ];
    for (question, code, expected) in rows {
        for file in [&[][..], &["--rules-file", "roles.toml"]] {
            let words: Vec<&str> =
                ["acl", "test"].into_iter().chain(question.split(' ')).chain(file.iter().copied()).collect();
            let output = run(here, &words, "");
            let said = text(&output.stdout);
            assert_eq!(output.status.code(), Some(code), "{question}: {said}{}", text(&output.stderr));
            assert!(said.contains(expected), "{question}: {said}");
        }
    }
    let bad = ROLES.replace("every_user", "every_usr");
    fs::write(here.join("roles.toml"), bad).expect("a file can be written");
    let said = failed(here, &["check", "pondhawk.toml"]);
    let place = "`rules_file`: roles.toml: line 12, column 2: there is no key `every_usr`";
    assert!(said.contains(place) && said.contains("did you mean `every_user`?"), "{said}");
}

#[test]
fn acl_test_and_check_know_the_topic_prefixes_and_queues_of_roles() {
    let place = directory();
    let here = place.path();
    let role = "[roles.tenant]\ntopic_prefix = \"t/%u/\"\nqueue_messages = 3\nqueue_bytes = \"1 MiB\"\npublish = [\"t/%u/#\"]\n";
    let rules = format!("{role}[every_user]\nroles = [\"tenant\"]\n");
    fs::write(here.join("roles.toml"), &rules).expect("a file can be written");
    fs::write(here.join("pondhawk.toml"), "[auth]\nrules_file = \"roles.toml\"\n")
        .expect("it can be written");
    let asked =
        |user: &str| text(&run(here, &["acl", "test", "-u", user, "--publish", "t/ann/x"], "").stdout);
    assert!(asked("ann").contains("the client itself leaves out `t/ann/`"), "{}", asked("ann"));
    assert!(
        asked("a/b").contains("this client cannot connect: its user name fits in no topic"),
        "{}",
        asked("a/b")
    );
    let said = failed(here, &["acl", "test", "--group", "g", "--publish", "t/ann/x"]);
    assert!(said.contains("--user <NAME>"), "no client without a name has a token: {said}");
    assert!(run(here, &["check", "pondhawk.toml"], "").status.success());
    let twice = format!("[roles.other]\ntopic_prefix = \"x/\"\n[users.ann]\nroles = [\"other\"]\n{rules}");
    fs::write(here.join("roles.toml"), twice).expect("a file can be written");
    let said = failed(here, &["check", "pondhawk.toml"]);
    let why = "the user \"ann\" has roles with different topic prefixes: \"other\" and \"tenant\"";
    assert!(said.contains("line 6, column 16") && said.contains(why), "{said}");
}
