//! Runs a row, with Mosquitto's program or with ours.

use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use pondhawk_tests::Program;
use tempfile::TempDir;

use crate::mosquitto::Mosquitto;
use crate::rows::{Row, Server};

/// Nothing in a row takes this long.
const SECONDS_MAX: &str = "20";

/// What `timeout` exits with when it has ended a program.
const KILLED: i32 = 124;

/// Whose program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Mosquitto,
    Pondhawk,
}

impl Side {
    /// In names that would meet otherwise; as long as the other one.
    fn mark(self) -> &'static str {
        match self {
            Self::Mosquitto => "theirs",
            Self::Pondhawk => "ours--",
        }
    }

    /// As both sides would have printed it.
    fn neutral(self, text: &str) -> String {
        text.replace(self.mark(), "either")
    }
}

/// What a program has done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) output: String,
    pub(crate) code: Option<i32>,
    pub(crate) error: String,
    /// What a third program has heard of it.
    pub(crate) heard: String,
}

/// Where a row is run, and what its words stand for.
pub(crate) struct Place {
    says_where: bool,
    side: Side,
    port: u16,
    names: Vec<(&'static str, String)>,
    /// Has no file of defaults, or that of the row.
    home: TempDir,
}

impl Place {
    /// A new one; the other side of the row gets another, so that nothing is left there from the first.
    pub(crate) fn new(row: &Row, number: usize, side: Side, port: u16, mosquitto: &Mosquitto) -> Self {
        let mut names = mosquitto.names();
        names.push(("$PORT", port.to_string()));
        // Rows do not hear of each other.
        names.push(("$T", format!("row{number}{}", side.mark())));
        names.push(("$I", format!("{}{number}", side.mark())));
        let home = TempDir::new().expect("there is a place for temporary files");
        Self { says_where: row.server != Server::Nobody, side, port, names, home }
    }

    fn words(&self, line: &str) -> Vec<String> {
        let named =
            |word: String| self.names.iter().fold(word, |word, (name, value)| word.replace(name, value));
        words(line).into_iter().map(named).collect()
    }

    /// A program, told where the broker is unless the row says so itself.
    fn command(&self, program: Command, arguments: &str) -> Command {
        let mut command = program;
        if self.says_where {
            command.args(["-h", "127.0.0.1", "-p", &self.port.to_string()]);
        }
        command.args(self.words(arguments)).env("HOME", self.home.path()).env_remove("XDG_CONFIG_HOME");
        command.env("LC_ALL", "C").env("NO_COLOR", "1");
        command
    }
}

/// The words of a line; quotation marks of either kind hold a word together.
pub(crate) fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for character in line.chars() {
        match (character, quote) {
            (' ' | '\n', None) => words.extend(word.take()),
            ('\'' | '"', None) => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (mark, Some(open)) if mark == open => quote = None,
            (character, _) => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    words
}

/// Prepares what the row needs, runs its program, and hears what it has published.
pub(crate) fn run(row: &Row, place: &Place) -> Outcome {
    let (tool, side) = (row.tool, place.side);
    write_defaults(row, place);
    for line in row.before {
        let (program, arguments) = line.split_once(' ').expect("a program and its arguments");
        let prepared = finish(place.command(theirs(program), arguments), "");
        assert!(prepared.status.success(), "{line}: {prepared:?}");
    }
    let witness = (row.heard > 0).then(|| witness(row, place));
    let program = if side == Side::Mosquitto { theirs(tool) } else { ours_command(tool) };
    let output = finish(place.command(program, row.arguments), row.input);
    let heard = witness.map(Program::finish).unwrap_or_default();
    let heard: Vec<_> = heard.lines().filter(|line| line.starts_with("> ")).collect();
    assert_ne!(output.status.code(), Some(KILLED), "{side:?} does not end: {tool} {}", row.arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    Outcome {
        output: row.normal.of(&side.neutral(&String::from_utf8_lossy(&output.stdout))),
        code: output.status.code(),
        error: side.neutral(&error.replace(&format!("pondhawk {tool}"), &format!("mosquitto_{tool}"))),
        heard: side.neutral(&heard.join("\n")),
    }
}

fn write_defaults(row: &Row, place: &Place) {
    if row.defaults.is_empty() {
        return;
    }
    let folder = place.home.path().join(".config");
    fs::create_dir_all(&folder).expect("a temporary folder can be made");
    let named = |text: String, (name, value): &(&str, String)| text.replace(name, value);
    let lines = place.names.iter().fold(row.defaults.to_owned(), named);
    fs::write(folder.join(format!("mosquitto_{}", row.tool)), lines)
        .expect("a temporary file can be written");
}

/// Everything about a message that can be the same twice.
const EVERYTHING: &str = "'> %t|%p|%q|%r|%C|%D|%E|%F|%P|%R'";

/// A program that has subscribed to everything of the row, and ends when it has heard as many messages as the row says.
fn witness(row: &Row, place: &Place) -> Program {
    let arguments = format!("-V 5 -q 2 -t $T/# -d -C {} -F {EVERYTHING}", row.heard);
    // Line by line: what it prints is to be seen when it is printed.
    let mut unbuffered = Command::new("stdbuf");
    unbuffered.args(["--output=L", "mosquitto_sub"]);
    let program = Program::start(place.command(unbuffered, &arguments));
    program.wait_for("Subscribed (mid: 1)");
    program
}

fn theirs(tool: &str) -> Command {
    bounded(&format!("mosquitto_{tool}"))
}

fn ours_command(tool: &str) -> Command {
    let mut command = bounded(pondhawk_tests::pondhawk().to_str().expect("its path is text"));
    command.arg(tool);
    command
}

fn bounded(program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=1", SECONDS_MAX, program]);
    command
}

fn finish(mut command: Command, input: &str) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().expect("a program can be run");
    // One that has no use for it may be gone already.
    let _ = process.stdin.take().expect("stdin is piped").write_all(input.as_bytes());
    process.wait_with_output().expect("our own child can be waited for")
}

/// Our program without a broker: its exit code, and what it says.
pub(crate) fn ours(tool: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = ours_command(tool);
    command.args(arguments);
    let output = finish(command, "");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Our program without a broker: what it prints, and its exit code.
pub(crate) fn output(tool: &str, arguments: &[&str]) -> (String, Option<i32>) {
    let mut command = ours_command(tool);
    command.args(arguments);
    let output = finish(command, "");
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
}
