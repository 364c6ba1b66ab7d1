//! Programs at a terminal. `script` of util-linux makes one for them, and forwards keys that come from a pipe.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use pondhawk_tests::packet::Connect;
use pondhawk_tests::{Broker, Client, Options, Version};
use tempfile::TempDir;

const INTERRUPT: u8 = 3;
/// Exit code of a program that SIGINT has ended.
const INTERRUPTED: i32 = 128 + 2;

/// A shell command at a terminal.
struct Terminal {
    process: Child,
    shown: Arc<Mutex<Vec<u8>>>,
    reading: JoinHandle<()>,
}

impl Terminal {
    fn start(command: &str, environment: &[(&str, &str)]) -> Self {
        let mut script = Command::new("timeout");
        script.args(["60", "script", "--quiet", "--flush", "--return", "--command", command, "/dev/null"]);
        script.env_remove("NO_COLOR").env("TERM", "xterm").envs(environment.iter().copied());
        script.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = script.spawn().expect("`script` can be run");
        let mut output = process.stdout.take().expect("stdout is piped");
        let shown: Arc<Mutex<Vec<u8>>> = Arc::default();
        let reading = thread::spawn({
            let shown = Arc::clone(&shown);
            move || {
                let mut piece = [0; 4_096];
                while let Ok(length @ 1..) = output.read(&mut piece) {
                    shown.lock().expect("nobody panics with it").extend_from_slice(&piece[..length]);
                }
            }
        });
        Self { process, shown, reading }
    }

    /// All bytes that the terminal has received up to now.
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().expect("nobody panics with it")).into_owned()
    }

    fn press(&mut self, key: u8) {
        let keys = self.process.stdin.as_mut().expect("stdin is piped");
        keys.write_all(&[key]).and_then(|()| keys.flush()).expect("`script` reads keys");
    }

    /// Waits for the end of the program with this code, and returns all bytes that the terminal has received.
    fn finish(mut self, code: i32) -> String {
        let status = self.process.wait().expect("our own child can be waited for");
        self.reading.join().expect("the reader ends");
        let text = String::from_utf8_lossy(&self.shown.lock().expect("nobody panics with it")).into_owned();
        assert_eq!(status.code(), Some(code), "{text}");
        text
    }
}

/// The lines that a person sees at the end. Carriage returns and deletions of lines are obeyed, colours are ignored.
fn seen(text: &str) -> Vec<String> {
    let mut lines: Vec<Vec<char>> = vec![Vec::new()];
    let (mut column, mut rest) = (0, text);
    while let Some(letter) = rest.chars().next() {
        let line = lines.last_mut().expect("there is always one");
        rest = &rest[letter.len_utf8()..];
        match letter {
            '\n' => {
                lines.push(Vec::new());
                column = 0;
            }
            '\r' => column = 0,
            '\u{1b}' => {
                let end = rest.find(|letter: char| letter.is_ascii_alphabetic()).unwrap_or(rest.len() - 1);
                match &rest[..=end] {
                    "[2K" => line.fill(' '),
                    "[K" | "[0K" => line.truncate(column),
                    _ => {}
                }
                rest = &rest[end + 1..];
            }
            _ => {
                line.resize(line.len().max(column + 1), ' ');
                line[column] = letter;
                column += 1;
            }
        }
    }
    lines.iter().map(|line| line.iter().collect::<String>().trim_end().to_owned()).collect()
}

fn pondhawk() -> String {
    pondhawk_tests::pondhawk().display().to_string()
}

#[test]
fn colours_need_a_terminal_that_has_them() {
    let broker = Broker::start(&Options::default());
    let mut publisher = Client::connect(broker.address(), &Connect::new(Version::V5, "frog"));
    publisher.retain("pond", b"{\"depth\": 3}");
    let port = broker.address().port();
    let command = format!("{} sub -h 127.0.0.1 -p {port} -t pond -C 1", pondhawk());
    for (environment, has_colours) in
        [(&[][..], true), (&[("TERM", "dumb")], false), (&[("NO_COLOR", "1")], false)]
    {
        let shown = Terminal::start(&command, environment).finish(0);
        assert!(shown.contains("depth"), "{shown}");
        assert_eq!(shown.contains("\u{1b}["), has_colours, "{environment:?}: {shown:?}");
    }
}

/// The lines come from a FIFO, and the keys from the terminal.
#[test]
fn an_interrupted_publisher_leaves_no_progress_bar_behind() {
    let broker = Broker::start(&Options::default());
    let mut subscriber = Client::connect(broker.address(), &Connect::new(Version::V5, "frog"));
    subscriber.subscribe("pond");
    let directory = TempDir::new().expect("a temporary directory");
    let fifo = directory.path().join("lines");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo can be run").success());
    let (port, from) = (broker.address().port(), fifo.display());
    let command = format!("{} pub -h 127.0.0.1 -p {port} -t pond -l -q 1 < {from}", pondhawk());
    let mut terminal = Terminal::start(&command, &[]);
    let mut lines: File =
        OpenOptions::new().read(true).write(true).open(&fifo).expect("the program opens the FIFO");
    // Opened for reading too, so that nobody waits if the program does not start. The bar appears after a second.
    while !terminal.text().contains("B/s") {
        lines.write_all(b"croak\n").expect("the program reads");
        subscriber.expect_message("pond", b"croak");
    }
    terminal.press(INTERRUPT);
    let shown = terminal.finish(INTERRUPTED);
    let lines = seen(&shown);
    assert!(lines.iter().all(|line| !line.contains("B/s")), "{lines:?}");
    assert!(
        !shown.contains("\u{1b}[?25l") || shown.contains("\u{1b}[?25h"),
        "the cursor is hidden: {shown:?}"
    );
}

#[test]
fn a_deleted_line_is_not_seen() {
    assert_eq!(seen("a\r\nb\r\u{1b}[2Kc\r\n\u{1b}[31md\u{1b}[0m"), ["a", "c", "d"]);
    assert_eq!(seen("bar\rc"), ["car"], "a shorter text leaves the end of a longer one");
}
