//! The process around the broker: its log, its number in a file, its user, and its life in the background.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;

use pondhawk_tests::{Broker, DEADLINE, Options, Program, free_port, pondhawk, until};
use rustix::process::{Pid, Signal, geteuid, kill_process, test_kill_process};
use tempfile::TempDir;

fn directory() -> TempDir {
    let directory = TempDir::new().expect("there is a place for temporary files");
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).expect("it is ours");
    directory
}

fn broker(settings: &str) -> Broker {
    Broker::start(&Options { settings: settings.to_owned(), ..Options::default() })
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn the_log_goes_to_a_file_that_sighup_opens_again() {
    let directory = directory();
    let (log, moved) = (directory.path().join("log"), directory.path().join("log.1"));
    let broker = broker(&format!("[log]\nto = {:?}\n", log.display().to_string()));
    until("the log has its first line", || read(&log).contains("read the journal").then_some(()));
    fs::rename(&log, &moved).expect("the file can be moved");
    drop(broker.client(pondhawk_tests::Version::V5, "before"));
    until("the moved file goes on", || read(&moved).contains("client_id=before").then_some(()));
    broker.hang_up();
    let mut number = 0;
    until("there is a new file", || {
        number += 1;
        drop(broker.client(pondhawk_tests::Version::V5, &format!("after{number}")));
        read(&log).contains("client_id=after").then_some(())
    });
    assert!(!broker.log().contains("client_id=after"), "nothing on standard error");
}

#[test]
fn a_log_that_cannot_be_opened_goes_to_standard_error() {
    let broker = broker("[log]\nto = \"/nowhere/pondhawk.log\"\n");
    broker.wait_for_log("cannot open the log /nowhere/pondhawk.log");
}

#[test]
fn the_log_of_the_system_gets_lines_with_their_priority() {
    let directory = directory();
    let path = directory.path().join("syslog");
    let socket = UnixDatagram::bind(&path).expect("a socket can be made");
    socket.set_read_timeout(Some(DEADLINE)).expect("a duration");
    let mut command = Command::new(pondhawk());
    command
        .env("PONDHAWK_SYSLOG", &path)
        .args(["serve", "-c"])
        .arg(file(&directory, "[log]\nto = \"syslog\"\n"));
    let program = Program::start(command);
    program.wait_for("listening on");
    let pid = i32::try_from(program.process_id()).ok().and_then(Pid::from_raw).expect("a number");
    kill_process(pid, Signal::HUP).expect("the broker runs");
    let mut bytes = [0; 1024];
    let length = socket.recv(&mut bytes).expect("a line comes");
    let line = String::from_utf8_lossy(&bytes[..length]).into_owned();
    assert!(line.starts_with("<30>pondhawk[") && line.contains("INFO"), "{line}");
}

/// A configuration on a free port, in memory.
fn file(directory: &TempDir, more: &str) -> PathBuf {
    let path = directory.path().join("pond.toml");
    let text = format!("data_dir = \"off\"\n[[listener]]\naddress = \"127.0.0.1:0\"\n{more}");
    fs::write(&path, text).expect("a temporary file can be written");
    path
}

#[test]
fn the_number_of_the_process_is_in_a_file_until_its_end() {
    let directory = directory();
    let path = directory.path().join("pid");
    let broker = broker(&format!("pid_file = {:?}\n", path.display().to_string()));
    assert_eq!(read(&path).trim(), broker.process_id().to_string());
    assert!(broker.stop().success());
    assert!(!path.exists());
}

#[test]
fn in_the_background_clients_can_connect_when_the_command_has_ended() {
    let directory = directory();
    let port = free_port();
    let pid_file = directory.path().join("pid");
    let path = directory.path().join("mosquitto.conf");
    let text = format!("listener {port} 127.0.0.1\nallow_anonymous true\npid_file {}\n", pid_file.display());
    fs::write(&path, text).expect("a temporary file can be written");
    let status =
        Command::new(pondhawk()).arg("-d").arg("-c").arg(&path).status().expect("pondhawk can be run");
    assert!(status.success());
    let pid = read(&pid_file).trim().parse().ok().and_then(Pid::from_raw).expect("the file has the number");
    assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());
    kill_process(pid, Signal::TERM).expect("the broker runs");
    until("the broker has ended", || test_kill_process(pid).is_err().then_some(()));
    // A second one on a port that is in use fails in the foreground.
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("it is bound").port();
    fs::write(&path, format!("listener {port} 127.0.0.1\nallow_anonymous true\n")).expect("it is ours");
    let status =
        Command::new(pondhawk()).arg("-d").arg("-c").arg(&path).status().expect("pondhawk can be run");
    assert!(!status.success());
}

#[test]
fn sighup_changes_the_log_at_once_and_names_what_needs_a_restart() {
    let directory = directory();
    let path = file(&directory, "[log]\nlevel = \"info\"\n");
    let mut command = Command::new(pondhawk());
    command.args(["serve", "-c"]).arg(&path);
    let program = Program::start(command);
    program.wait_for("listening on");
    let hang_up = || {
        let pid = i32::try_from(program.process_id()).ok().and_then(Pid::from_raw).expect("a number");
        kill_process(pid, Signal::HUP).expect("the broker runs");
    };
    file(&directory, "[sys]\ninterval = \"7 s\"\n[log]\nlevel = \"debug\"\n");
    hang_up();
    program.wait_for("log.level = \"debug\" from now on");
    program.wait_for("sys.interval = \"7 s\" needs a restart");
    file(&directory, "[limits]\nconections = 8\n");
    hang_up();
    program.wait_for("the configuration stays as it was");
    program.wait_for("pond.toml:5:1");
}

/// Scripts that have saved Mosquitto's database or printed its subscriptions go on.
#[test]
fn signals_of_mosquitto_do_not_end_the_broker() {
    let directory = directory();
    let mut command = Command::new(pondhawk());
    command.args(["serve", "-c"]).arg(file(&directory, ""));
    let program = Program::start(command);
    program.wait_for("listening on");
    let pid = i32::try_from(program.process_id()).ok().and_then(Pid::from_raw).expect("a number");
    for (signal, text) in [(Signal::USR1, "SIGUSR1 has no effect"), (Signal::USR2, "SIGUSR2 has no effect")] {
        kill_process(pid, signal).expect("the broker runs");
        program.wait_for(text);
    }
    program.terminate();
    program.finish();
}

#[test]
fn variables_set_keys_and_show_names_them() {
    let directory = directory();
    let path = file(&directory, "[log]\nto = \"${FOLDER}/log\"\n");
    let mut command = Command::new(pondhawk());
    command.args(["config", "show"]).arg(&path);
    command
        .env("FOLDER", "/var/pond")
        .env("PONDHAWK_LIMITS_PACKET_BYTES", "1 MiB")
        .env("PONDHAWK_SHARDS", "3");
    let output = command.output().expect("pondhawk can be run");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in [
        "shards = 3 # PONDHAWK_SHARDS",
        "packet_bytes = \"1 MiB\" # PONDHAWK_LIMITS_PACKET_BYTES",
        "to = \"/var/pond/log\" # line 5",
        "address = \"127.0.0.1:0\" # line 3",
        "connect_packet_bytes = \"256 KiB\" # default",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    command.env("PONDHAWK_LIMITS_PACKET_BYTES", "some");
    let output = command.output().expect("pondhawk can be run");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("PONDHAWK_LIMITS_PACKET_BYTES"), "{said}");
    let explained = Command::new(pondhawk()).args(["config", "explain", "limits.packet_bytes"]).output();
    let text = String::from_utf8_lossy(&explained.expect("pondhawk can be run").stdout).into_owned();
    assert!(
        text.contains("largest control packet") && text.contains("PONDHAWK_LIMITS_PACKET_BYTES"),
        "{text}"
    );
}

#[test]
fn variables_that_set_nothing_are_named() {
    let directory = directory();
    let check = |path: &Path, name: &str| {
        let mut command = Command::new(pondhawk());
        command.arg("check").arg(path).env(name, "/nowhere");
        let output = command.output().expect("pondhawk can be run");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (is_good, said) = check(&file(&directory, ""), "PONDHAWK_AUTH_ACLFILE");
    assert!(is_good && said.contains("PONDHAWK_AUTH_ACLFILE sets no key"), "{said}");
    let path = directory.path().join("mosquitto.conf");
    fs::write(&path, "listener 1883\nallow_anonymous true\n").expect("it is ours");
    let (is_good, said) = check(&path, "PONDHAWK_AUTH_ACL_FILE");
    assert!(!is_good && said.contains("unset PONDHAWK_AUTH_ACL_FILE"), "{said}");
}

/// Only the superuser may read the rules, as long as the broker is the superuser.
#[test]
fn files_that_cannot_be_read_again_are_named_at_the_start() {
    if !geteuid().is_root() {
        return;
    }
    let directory = directory();
    let rules = directory.path().join("rules");
    fs::write(&rules, "topic read #\n").expect("it is ours");
    fs::set_permissions(&rules, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let start = || {
        let mut command = Command::new(pondhawk());
        let more = format!("[auth]\nacl_file = {:?}\n", rules.display().to_string());
        let path = file(&directory, &more);
        let text = fs::read_to_string(&path).expect("it is ours");
        fs::write(&path, format!("user = \"nobody\"\n{text}")).expect("it is ours");
        command.args(["serve", "-c"]).arg(path);
        Program::start(command)
    };
    start().wait_for("rules cannot be read by the `user` of this broker");
}

/// The user owns the directories of the log and of the number, as packages of Linux distributions make them.
#[test]
fn links_of_the_user_make_the_superuser_write_no_other_file() {
    if !geteuid().is_root() {
        return;
    }
    let directory = directory();
    let theirs = directory.path().join("theirs");
    let (target, pid_target) = (directory.path().join("cron"), directory.path().join("passwd"));
    fs::create_dir(&theirs).expect("it is ours");
    fs::write(&pid_target, "root").expect("it is ours");
    symlink(&target, theirs.join("log")).expect("it is ours");
    symlink(&pid_target, theirs.join("pid")).expect("it is ours");
    symlink(directory.path(), theirs.join("data")).expect("it is ours");
    for path in [&theirs, &theirs.join("log"), &theirs.join("pid"), &theirs.join("data")] {
        lchown(path, Some(65_534), Some(65_534)).expect("we are the superuser");
    }
    let path = directory.path().join("mosquitto.conf");
    let text = format!(
        "listener 0 {0}/socket\nallow_anonymous true\nuser nobody\nlog_dest file {0}/theirs/log\npid_file {0}/theirs/pid\n",
        directory.path().display()
    );
    fs::write(&path, &text).expect("a temporary file can be written");
    let start = || {
        let mut command = Command::new(pondhawk());
        command.arg("-c").arg(&path);
        Program::start(command)
    };
    let program = start();
    program.wait_for("cannot open the log");
    program.wait_for("cannot write the `pid_file`");
    program.wait_for("listening on");
    drop(program);
    assert!(!target.exists(), "the log was made elsewhere");
    assert_eq!(read(&pid_target), "root");
    let data = format!("{text}persistence true\npersistence_location {}/data/new\n", theirs.display());
    fs::write(&path, data).expect("it is ours");
    start().wait_for("is a link that the superuser has not made");
    assert!(!directory.path().join("new").exists());
}

/// Only the superuser can become somebody else.
#[test]
fn the_superuser_becomes_the_user_and_keeps_nothing() {
    if !geteuid().is_root() {
        return;
    }
    let directory = directory();
    let (log, data) = (directory.path().join("log"), directory.path().join("data"));
    let path = directory.path().join("mosquitto.conf");
    let text = format!(
        "listener 0 {0}/socket\nallow_anonymous true\nuser nobody\npersistence true\npersistence_location {1}\nlog_dest file {2}\n",
        directory.path().display(),
        data.display(),
        log.display()
    );
    fs::write(&path, text).expect("a temporary file can be written");
    let mut command = Command::new(pondhawk());
    command.arg("-c").arg(&path);
    let program = Program::start(command);
    until("the journal is there", || data.join("pondhawk/META").exists().then_some(()));
    let status = read(&PathBuf::from(format!("/proc/{}/status", program.process_id())));
    let owner = fs::metadata(data.join("pondhawk")).expect("the journal is there").uid();
    let log_owner = fs::metadata(&log).expect("the log is there").uid();
    drop(program);
    let uids = status.lines().find(|line| line.starts_with("Uid:")).expect("Linux says so");
    assert!(owner != 0 && log_owner == owner, "{owner} {log_owner}");
    assert_eq!(uids.split_whitespace().filter(|uid| **uid == owner.to_string()).count(), 4, "{uids}");
}
