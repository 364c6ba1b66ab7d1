//! Checks that the examples in docs/CLI.md print what the page shows.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use pondhawk_tests::{Broker, Options, Version};
use tempfile::TempDir;

/// Returns the commands of all examples with their output, in the order of the page.
fn examples(page: &str) -> Vec<(String, String)> {
    let mut examples: Vec<(String, String)> = Vec::new();
    let blocks = page.split("```console\n").skip(1).filter_map(|rest| rest.split_once("```"));
    for line in blocks.flat_map(|(block, _)| block.lines()) {
        match (line.strip_prefix("$ "), examples.last_mut()) {
            (Some(command), _) => examples.push((command.to_owned(), String::new())),
            (None, Some((_, output))) => output.push_str(&format!("{line}\n")),
            (None, None) => panic!("an example begins with a command: {line}"),
        }
    }
    examples
}

/// Makes a home folder. Its files of defaults name the broker, and a link to the program is in it.
fn home(broker: &Broker) -> TempDir {
    let home = TempDir::new().expect("there is a place for temporary files");
    let folder = home.path().join(".config");
    fs::create_dir(&folder).expect("a temporary folder can be made");
    for tool in ["pub", "sub", "rr"] {
        let lines = format!("-h 127.0.0.1\n-p {}\n", broker.address().port());
        fs::write(folder.join(format!("mosquitto_{tool}")), lines).expect("a temporary file can be written");
    }
    let program = fs::canonicalize(pondhawk_tests::pondhawk()).expect("the program is there");
    symlink(program, home.path().join("pondhawk")).expect("a link can be made");
    home
}

/// Replaces digits, which depend on the date and the time.
fn without_digits(text: &str) -> String {
    text.replace(|character: char| character.is_ascii_digit(), "9")
}

#[test]
fn the_examples_of_the_manual_print_what_it_says() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/CLI.md");
    let examples = examples(&fs::read_to_string(page).expect("the manual is there"));
    assert!(examples.len() > 8, "the examples are found: {examples:?}");
    let broker = Broker::start(&Options::default());
    let home = home(&broker);
    let mut frog = broker.client(Version::V3_1_1, "frog");
    frog.subscribe("pond/ask");
    thread::scope(|scope| {
        scope.spawn(|| {
            frog.expect_message("pond/ask", b"how deep?");
            frog.publish("pond/answer/7", b"two metres");
        });
        for (command, expected) in &examples {
            let mut shell = Command::new("timeout");
            shell.args(["20", "sh", "-c", command]).env("HOME", home.path()).env_remove("XDG_CONFIG_HOME");
            let path = std::env::var("PATH").expect("there is a path");
            shell.env("PATH", format!("{}:{path}", home.path().display())).env("TZ", "UTC");
            let output = shell.stdin(Stdio::null()).output().expect("a shell can be run");
            let printed = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{command}: {output:?}");
            assert_eq!(without_digits(&printed), without_digits(expected), "{command}");
        }
    });
}
