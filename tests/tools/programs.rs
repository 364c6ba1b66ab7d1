//! Runs a row with Mosquitto's program or with ours.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use pondhawk_tests::Program;
use tempfile::TempDir;

use crate::Servers;
use crate::recorder::{Conversation, Doors, record};
use crate::row::Row;

/// Exit codes of `timeout` after it has ended a program, with SIGTERM or with SIGKILL. SIGKILL may also kill
/// `timeout` itself, and then there is no code.
const KILLED: [Option<i32>; 3] = [Some(124), Some(128 + 9), None];

/// The program that a run uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Mosquitto,
    Pondhawk,
    /// Our program with a flag missing.
    Mutated,
}

impl Side {
    /// Part of the names in a run. All marks have the same length.
    fn mark(self) -> &'static str {
        match self {
            Self::Mosquitto => "theirs",
            Self::Pondhawk => "ours--",
            Self::Mutated => "broken",
        }
    }

    /// Time limit in seconds, longer than any row needs. A mutated program may never end. SIGKILL then prevents
    /// further output.
    fn limit(self) -> [&'static str; 2] {
        match self {
            Self::Mosquitto | Self::Pondhawk => ["--kill-after=1", "20"],
            Self::Mutated => ["--signal=KILL", "4"],
        }
    }
}

/// The observable behaviour of a program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) output: String,
    pub(crate) code: Option<i32>,
    pub(crate) error: String,
    /// Messages that a third program has received.
    pub(crate) heard: String,
    /// Packets that the program has sent to the broker.
    pub(crate) said: Vec<Conversation>,
}

impl Outcome {
    /// Whether the time limit ended the program. Its behaviour is then the beginning of the whole behaviour.
    pub(crate) fn is_killed(&self) -> bool {
        KILLED.contains(&self.code)
    }
}

/// A run of a row with one of the programs.
pub(crate) struct Run<'a> {
    pub(crate) row: &'a Row,
    /// A number that no other run of this side has. Topics and client identifiers contain it, so that runs do not
    /// interfere.
    pub(crate) number: usize,
    pub(crate) side: Side,
    pub(crate) servers: &'a Servers,
}

impl Run<'_> {
    /// Prepares the row, runs its program with these arguments, and records its packets and messages.
    pub(crate) fn of(&self, arguments: &[String]) -> Outcome {
        let Self { row, side, servers, .. } = *self;
        let home = TempDir::new().expect("there is a place for temporary files");
        let (broker, names, authority) =
            (servers.port(row.server), self.names(), servers.mosquitto.authority());
        let place = Place { home: home.path(), authority: &authority, names: &names };
        for line in row.before {
            let (program, arguments) = line.split_once(' ').expect("a program and its arguments");
            let program = self.bounded(&format!("mosquitto_{program}"));
            let prepared = finish(place.command(program, Some(broker), &words(arguments)), "");
            assert!(prepared.status.success(), "{line}: {prepared:?}");
        }
        let witness = (row.heard > 0).then(|| witness(row, place, broker));
        let (output, said) = record(broker, servers.mosquitto.certificates(), |doors| {
            // The recorder's names precede other names, which are prefixes of some of them.
            let names = [names_of(doors), names.clone()].concat();
            let place = Place { names: &names, ..place };
            write_defaults(row, place);
            finish(place.command(self.program(), row.is_told.then_some(doors.plain), arguments), row.input)
        });
        let code = output.status.code();
        let tool = row.tool;
        let [printed, error] =
            [output.stdout, output.stderr].map(|bytes| self.neutral(&String::from_utf8_lossy(&bytes)));
        let outcome = Outcome {
            output: row.normal.of(&printed),
            code,
            error: error.replace(&format!("pondhawk {tool}"), &format!("mosquitto_{tool}")),
            heard: self.neutral(&witness.map(heard).unwrap_or_default()),
            said: said.into_iter().map(|one| one.neutral(|text| self.neutral(text))).collect(),
        };
        let is_over = side == Side::Mutated || !outcome.is_killed();
        assert!(is_over, "{side:?} does not end: {tool} {}", row.arguments);
        outcome
    }

    /// A name that only this run has. All names have the same length.
    fn name(&self) -> String {
        format!("{}{:06}", self.side.mark(), self.number)
    }

    /// Replaces the name of this run, so that outputs of different runs can be compared.
    fn neutral(&self, text: &str) -> String {
        text.replace(&self.name(), "either")
    }

    /// Names in the words of the row, with their values.
    fn names(&self) -> Names {
        let mut names = self.servers.mosquitto.names();
        names.push(("$T", format!("row{}", self.name())));
        names.push(("$I", self.name()));
        names
    }

    fn program(&self) -> Command {
        if self.side == Side::Mosquitto {
            return self.bounded(&format!("mosquitto_{}", self.row.tool));
        }
        let mut command = self.bounded(pondhawk_tests::pondhawk().to_str().expect("its path is text"));
        command.arg(self.row.tool);
        command
    }

    fn bounded(&self, program: &str) -> Command {
        let mut command = Command::new("timeout");
        command.args(self.side.limit()).arg(program);
        command
    }
}

type Names = Vec<(&'static str, String)>;

/// Names of the recorder's ports, with their values.
fn names_of(doors: &Doors) -> Names {
    vec![
        ("$PORT", doors.plain.to_string()),
        ("$TLS", doors.encrypted.to_string()),
        ("$FOREIGN", doors.foreign.to_string()),
        ("$PROXY", doors.proxy.to_string()),
    ]
}

/// The surroundings of a program. Each run has a new home folder, without remains of another run.
#[derive(Clone, Copy)]
struct Place<'a> {
    names: &'a [(&'static str, String)],
    /// Home folder, with the row's file of defaults if it has one.
    home: &'a Path,
    /// The certificate that the system trusts.
    authority: &'a Path,
}

impl Place<'_> {
    fn named(&self, text: &str) -> String {
        let named = |text: String, (name, value): &(&str, String)| text.replace(name, value);
        self.names.iter().fold(text.to_owned(), named)
    }

    /// Completes a command with the words of the row. `port` is the broker's port, if the program gets one before
    /// the words.
    fn command(&self, mut command: Command, port: Option<u16>, words: &[String]) -> Command {
        if let Some(port) = port {
            command.args(["-h", "127.0.0.1", "-p", &port.to_string()]);
        }
        command.args(words.iter().map(|word| self.named(word)));
        command.env("HOME", self.home).env_remove("XDG_CONFIG_HOME").env("SSL_CERT_FILE", self.authority);
        command.env("LC_ALL", "C").env("NO_COLOR", "1");
        command
    }
}

/// Splits a line into words. Quotation marks of either kind enclose a word with spaces.
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

fn write_defaults(row: &Row, place: Place<'_>) {
    if row.defaults.is_empty() {
        return;
    }
    let folder = place.home.join(".config");
    fs::create_dir_all(&folder).expect("a temporary folder can be made");
    fs::write(folder.join(format!("mosquitto_{}", row.tool)), place.named(row.defaults))
        .expect("a temporary file can be written");
}

/// A format with all properties of a message that do not change between runs.
const EVERYTHING: &str = "'> %t|%p|%q|%r|%C|%D|%E|%F|%P|%R'";

/// Starts a program that subscribes to all topics of the row, and ends after the expected number of messages.
fn witness(row: &Row, place: Place<'_>, broker: u16) -> Program {
    let arguments = words(&format!("-V 5 -q 2 -t $T/# -d -C {} -F {EVERYTHING}", row.heard));
    // The output is line-buffered, so that each line can be seen when it is printed.
    let mut unbuffered = Command::new("stdbuf");
    unbuffered.args(["--output=L", "mosquitto_sub"]);
    let program = Program::start(place.command(unbuffered, Some(broker), &arguments));
    program.wait_for("Subscribed (mid: 1)");
    program
}

/// Returns the messages that the witness has received.
fn heard(witness: Program) -> String {
    let heard = witness.finish();
    let heard: Vec<_> = heard.lines().filter(|line| line.starts_with("> ")).collect();
    heard.join("\n")
}

/// Makes the command for our program without a broker.
fn ours_command(tool: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=1", "20"]).arg(pondhawk_tests::pondhawk()).arg(tool);
    command
}

fn finish(mut command: Command, input: &str) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().expect("a program can be run");
    // A program that does not read its input may have ended already.
    let _ = process.stdin.take().expect("stdin is piped").write_all(input.as_bytes());
    process.wait_with_output().expect("our own child can be waited for")
}

/// Runs our program without a broker, and returns its exit code and standard error.
pub(crate) fn ours(tool: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = ours_command(tool);
    command.args(arguments);
    let output = finish(command, "");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Runs our program without a broker, and returns its standard output and exit code.
pub(crate) fn output(tool: &str, arguments: &[&str]) -> (String, Option<i32>) {
    let mut command = ours_command(tool);
    command.args(arguments);
    let output = finish(command, "");
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
}
