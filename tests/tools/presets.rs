//! Flags from environment variables and from profiles.

use std::fs;
use std::process::{Command, Output};

use pondhawk_tests::{Broker, Options, Program};
use tempfile::TempDir;

/// A home folder with these profiles.
fn home(profiles: &[(&str, &str)]) -> TempDir {
    let home = TempDir::new().expect("there is a place for temporary files");
    let folder = home.path().join(".config/pondhawk/profiles");
    fs::create_dir_all(&folder).expect("a temporary folder can be made");
    for (name, lines) in profiles {
        fs::write(folder.join(name), lines).expect("a temporary file can be written");
    }
    home
}

fn run(home: &TempDir, variables: &[(&str, &str)], line: &str) -> Output {
    let mut command = Command::new("timeout");
    command.arg("20").arg(pondhawk_tests::pondhawk()).args(line.split(' '));
    command.env("HOME", home.path()).env_remove("XDG_CONFIG_HOME").envs(variables.iter().copied());
    command.output().expect("a program can be run")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_broker_is_named_by_variables_by_a_profile_and_by_flags() {
    let broker = Broker::start(&Options::default());
    let port = broker.address().port().to_string();
    let profile = format!("# the broker of this test\n-h 127.0.0.1\n-p {port}\n");
    let home = home(&[("pond", &profile), ("nowhere", "-h 127.0.0.1\n-p 1\n")]);
    let here = [("PONDHAWK_HOST", "127.0.0.1"), ("PONDHAWK_PORT", port.as_str())];
    let nowhere = [("PONDHAWK_HOST", "127.0.0.1"), ("PONDHAWK_PORT", "1")];
    let named = |name| [("PONDHAWK_PROFILE", name)];
    let flags = format!("pub -t a -m x -h 127.0.0.1 -p {port}");
    for (variables, line, is_found) in [
        (&here[..], "pub -t a -m x", true),
        (&nowhere, "pub -t a -m x", false),
        (&nowhere, &flags, true),
        (&[], "pub -t a -m x --profile pond", true),
        // The profile of the command line goes before variables, and variables go before the profile of a variable.
        (&nowhere, "pub -t a -m x --profile pond", true),
        (&named("pond"), "sub -t a -E", true),
        (&[&named("nowhere")[..], &here].concat(), "sub -t a -E", true),
        (&named("nowhere"), "pub -t a -m x --profile pond", true),
        (&named("nowhere"), &flags, true),
        (&[], "pub -t a -m --profile -h 127.0.0.1 -p 1", false),
    ] {
        let output = run(&home, variables, line);
        assert_eq!(output.status.success(), is_found, "{variables:?} {line}: {}", said(&output));
    }
    // The profile goes before the variables here too.
    let probed = run(&home, &nowhere, "probe --profile pond --payload-max 100 --messages 10 --json");
    assert_eq!(probed.status.code(), Some(0), "{}", said(&probed));
}

#[test]
fn an_error_names_the_variable_or_the_profile_and_lists_what_there_is() {
    let home = home(&[("pond", "-p many\n"), ("lake", "-d\n")]);
    let refused = run(&home, &[("PONDHAWK_PORT", "many")], "pub -t a -m x");
    assert!(
        said(&refused).contains("Invalid port") && said(&refused).contains("PONDHAWK_PORT"),
        "{refused:?}"
    );
    let refused = run(&home, &[], "pub -t a -m x --profile pond");
    assert!(
        said(&refused).contains("Invalid port") && said(&refused).contains("profiles/pond"),
        "{refused:?}"
    );
    let refused = run(&home, &[], "pub -t a -m x --profile river");
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).contains("'river'") && said(&refused).contains("lake, pond"), "{refused:?}");
    // A name is no path.
    let refused = run(&home, &[], "pub -t a -m x --profile ../profiles/lake");
    assert!(said(&refused).contains("There is no profile"), "{refused:?}");
    fs::write(home.path().join(".config/pondhawk/profiles/nested"), "--profile lake\n")
        .expect("it is written");
    let refused = run(&home, &[], "pub -t a -m x --profile nested");
    assert!(said(&refused).contains("cannot name another profile"), "{refused:?}");
    assert!(said(&refused).contains("profiles/nested"), "{refused:?}");
}

/// The commands without Mosquitto's flags have one style of error.
#[test]
fn errors_of_probe_and_tap_have_the_style_of_the_other_commands() {
    let home =
        home(&[("lake", "-d\n"), ("web", "-L ws://127.0.0.1/t\n"), ("file", "--unix /run/pondhawk\n")]);
    for (line, code, first, hint) in [
        ("probe", 2, "error: no broker is named", "PONDHAWK_HOST"),
        ("tap --listen 127.0.0.1:0", 1, "error: no broker is named", "PONDHAWK_HOST"),
        (
            "probe --profile river",
            2,
            "error: there is no profile 'river'",
            "the profiles are file, lake, web",
        ),
        ("tap --listen 127.0.0.1:0 --profile river", 1, "error: there is no profile 'river'", "lake"),
        ("tap --listen 127.0.0.1:0 --profile web", 1, "error: the profile names a WebSocket", "--to"),
        ("tap --listen 127.0.0.1:0 --profile file", 1, "error: the profile names a Unix socket", "--to"),
    ] {
        let refused = run(&home, &[], line);
        let said = said(&refused);
        assert_eq!(refused.status.code(), Some(code), "{line}: {said}");
        let lines: Vec<_> = said.lines().collect();
        assert!(lines.len() == 2 && lines[0].starts_with(first), "{line}: {said}");
        assert!(lines[1].starts_with("hint: ") && lines[1].contains(hint), "{line}: {said}");
    }
    let refused = run(&home, &[], "tap --listen 127.0.0.1:0 --to pond");
    assert_eq!(said(&refused), "error: --to pond: this is not HOST:PORT\n");
}

#[test]
fn a_tap_leads_to_the_broker_of_the_environment() {
    let broker = Broker::start(&Options::default());
    let home = home(&[]);
    let port = broker.address().port().to_string();
    let mut command = Command::new(pondhawk_tests::pondhawk());
    command.args(["tap", "--listen", "127.0.0.1:0"]).env("HOME", home.path()).env_remove("XDG_CONFIG_HOME");
    command.envs([("PONDHAWK_HOST", "127.0.0.1"), ("PONDHAWK_PORT", &port)]);
    let tap = Program::start(command);
    let line = tap.wait_for("listening on 127.0.0.1:");
    let (_, listens) = line.rsplit_once(':').expect("a port");
    let published = run(&home, &[], &format!("pub -h 127.0.0.1 -p {listens} -t a -m x -q 1"));
    assert!(published.status.success(), "{published:?}");
    tap.wait_for("PUBACK");
}
