//! Walks through the pages: their commands run in their order, as a reader types them.
//!
//! Each page has an empty home of its own. Ports, hosts and folders of the pages are replaced by those of the home.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use pondhawk_tests::{Program, free_ports, pondhawk as binary, until};
use tempfile::TempDir;

use crate::pages::{blocks, of_pondhawk, pages, read, shell_words};

use Step::{Answer, Ends, Given, Run, Serve, Stop, Watch};

/// A step of a walk. Lines are those of the page, without comments, unless the step says otherwise.
enum Step {
    /// A command that succeeds.
    Run(&'static str),
    /// The same with text on standard input: passwords that a person types.
    Answer(&'static str, &'static str),
    /// A command that ends with this exit code.
    Ends(&'static str, i32),
    /// A broker, which runs until [`Stop`].
    Serve(&'static str),
    /// A subscriber that runs on. The command behind it, which is not in the page unless another step has it, is repeated until
    /// the subscriber prints a line with the text.
    Watch(&'static str, &'static str, &'static str),
    /// A command that is not in the page, and succeeds.
    Given(&'static str),
    /// Ends everything that runs on.
    Stop,
}

/// The walks, each through a page.
const WALKS: &[(&str, &[Step])] = &[
    (
        "README.md",
        &[
            Serve("pondhawk"),
            Watch("pondhawk sub -t 'pond/#' -v", "pondhawk pub -t pond/frog -m croak", "pond/frog croak"),
            Run("pondhawk pub -t pond/frog -m croak"),
            Stop,
            Answer("pondhawk user add ann --config pondhawk.toml", "her password\n"),
            Run("pondhawk certs init certs --host broker.lan >> pondhawk.toml"),
            Given("sed -i 's/^address = .*/address = \"127.0.0.1:8883\"/' pondhawk.toml"),
            Serve("pondhawk -c pondhawk.toml"),
            Watch(
                "pondhawk sub --cafile certs/ca.pem -h broker.lan -p 8883 -u ann -P 'her password' -t 'pond/#' -v",
                "pondhawk pub --cafile certs/ca.pem -h broker.lan -p 8883 -u ann -P 'her password' -t pond/frog -m croak",
                "pond/frog croak",
            ),
            Stop,
            Run("printf '[[listener]]\\naddress = \"0.0.0.0:1883\"\\n' >> pondhawk.toml"),
            Serve("pondhawk -c pondhawk.toml"),
            Given("pondhawk pub -h broker.lan -p 1883 -u ann -P 'her password' -t pond/frog -m croak -q 1"),
        ],
    ),
    (
        "docs/AUTHENTICATION.md",
        &[
            Answer("pondhawk user add ann --config pondhawk.toml", "her password\n"),
            Run("printf '[[listener]]\\naddress = \"0.0.0.0:1883\"\\n' >> pondhawk.toml"),
            Serve("pondhawk -c pondhawk.toml"),
            Watch(
                "pondhawk sub -h broker.lan -u ann -P 'her password' -t 'pond/#' -v",
                "pondhawk pub -h broker.lan -u ann -P 'her password' -t pond/frog -m croak",
                "pond/frog croak",
            ),
            Given("test -s pondhawk.users"),
        ],
    ),
    (
        "docs/FLEET.md",
        &[
            Run("sudo pondhawk certs init /etc/pondhawk/certs --host broker.example"),
            Run("sudo pondhawk certs client /etc/pondhawk/certs frog"),
            Given(
                "printf '[[listener]]\\naddress = \"127.0.0.1:8883\"\\ntls_certificate = \"/etc/pondhawk/certs/server.pem\"\\n\
                 tls_key = \"/etc/pondhawk/certs/server.key\"\\ntls_client_ca = \"/etc/pondhawk/certs/ca.pem\"\\n\
                 tls_client_certificate = \"required\"\\n[[listener]]\\naddress = \"127.0.0.1:1883\"\\n' > pondhawk.toml",
            ),
            Given(
                "cp /etc/pondhawk/certs/ca.pem /etc/pondhawk/certs/frog.pem /etc/pondhawk/certs/frog.key .",
            ),
            Serve("pondhawk -c pondhawk.toml --data-dir /var/lib/pondhawk"),
            Run(
                "pondhawk pub -h broker.example -p 8883 --cafile ca.pem --cert frog.pem --key frog.key -t devices/frog/hello -m world",
            ),
            Run("pondhawk journal backup /var/lib/pondhawk /backup/pondhawk-monday"),
            Run("pondhawk journal check /backup/pondhawk-monday"),
            Ends("pondhawk sub -t '$SYS/broker/#' -v -W 20", 27),
        ],
    ),
    (
        "docs/HOME.md",
        &[
            Answer("pondhawk user add home --config pondhawk.toml", "PASSWORD\n"),
            Run("printf '[[listener]]\\naddress = \"0.0.0.0:1883\"\\n' >> pondhawk.toml"),
            Run("pondhawk check pondhawk.toml"),
            Serve("pondhawk -c pondhawk.toml"),
            Watch(
                "pondhawk sub -h ADDRESS -u home -P PASSWORD -t 'homeassistant/#' -v",
                "pondhawk pub -h ADDRESS -u home -P PASSWORD -t homeassistant/status -m online",
                "homeassistant/status online",
            ),
        ],
    ),
    (
        "docs/LISTENERS.md",
        &[
            Run("pondhawk certs init certs --host broker.lan 192.168.0.7"),
            Run("pondhawk certs client certs frog"),
            Given(
                "printf '[[listener]]\\naddress = \"127.0.0.1:8883\"\\ntls_certificate = \"certs/server.pem\"\\n\
                 tls_key = \"certs/server.key\"\\n' > pondhawk.toml",
            ),
            Serve("pondhawk -c pondhawk.toml"),
            Run("pondhawk certs show broker.lan:8883"),
        ],
    ),
    (
        "docs/MIGRATING.md",
        &[
            Given(
                "mkdir -p /etc/mosquitto && echo 'listener 1883 127.0.0.1' > /etc/mosquitto/mosquitto.conf",
            ),
            Run("pondhawk check /etc/mosquitto/mosquitto.conf"),
        ],
    ),
    (
        "docs/RELOAD.md",
        &[
            Given("mkdir -p /etc/pondhawk && echo 'shards = 1' > /etc/pondhawk/pondhawk.toml"),
            Run("pondhawk check /etc/pondhawk/pondhawk.toml"),
        ],
    ),
    (
        "docs/SYSTEMD.md",
        &[
            Given("mkdir -p /etc/pondhawk"),
            Answer("sudo pondhawk user add home --config /etc/pondhawk/pondhawk.toml", "PASSWORD\n"),
            Run(
                "printf '[[listener]]\\naddress = \"0.0.0.0:1883\"\\n' | sudo tee -a /etc/pondhawk/pondhawk.toml",
            ),
            Run("sudo pondhawk check /etc/pondhawk/pondhawk.toml"),
        ],
    ),
    (
        "docs/UPKEEP.md",
        &[
            Serve("pondhawk --data-dir /var/lib/pondhawk"),
            Given("pondhawk sub -t 'pond/#' -c -i diary -q 1 -E"),
            Given("pondhawk pub -t pond/frog -q 1 -m croak"),
            Run("pondhawk journal backup /var/lib/pondhawk /mnt/backup/pondhawk-monday"),
            Stop,
            Run("pondhawk journal check /var/lib/pondhawk"),
            Run("pondhawk journal inspect /var/lib/pondhawk"),
            Run("cp -a /var/lib/pondhawk /var/lib/pondhawk.damaged"),
            Run("pondhawk journal repair --discard-damaged /var/lib/pondhawk"),
        ],
    ),
];

/// Commands of the pages that no walk runs, with the reason.
const EXCUSED: &[(&str, &str)] = &[
    (
        "pondhawk journal inspect --json /var/lib/pondhawk | jq '.sessions | sort_by(-.queue.bytes)[:10] | .[].client_id'",
        "not every machine has jq; the tests of `inspect` read its JSON",
    ),
    ("pondhawk import /var/lib/mosquitto/mosquitto.db", "the tests of migration import real databases"),
];

/// The place of a walk: its folder, its ports, and everything that runs on.
struct Place {
    home: TempDir,
    port: u16,
    tls_port: u16,
    running: Vec<Program>,
}

impl Place {
    fn new() -> Self {
        let [port, tls_port] = free_ports();
        Self { home: tempfile::tempdir().expect("there is room"), port, tls_port, running: Vec::new() }
    }

    /// The line with the ports, hosts and folders of this place.
    fn own(&self, line: &str) -> String {
        let home = self.home.path().display();
        let mut line = line.replace("8883", "TLS_PORT").replace("1883", &self.port.to_string());
        line = line.replace("TLS_PORT", &self.tls_port.to_string());
        for host in ["broker.lan", "broker.example", "ADDRESS"] {
            line = line.replace(host, "localhost");
        }
        for folder in ["/var/lib/", "/etc/", "/mnt/", "/backup/"] {
            line = line.replace(folder, &format!("{home}{folder}"));
        }
        // Nobody waits for reports that come every ten seconds.
        line.replace("0.0.0.0", "127.0.0.1").replace("sudo ", "").replace("-W 20", "-W 1")
    }

    fn shell(&self, line: &str) -> Command {
        let built = binary().parent().expect("a program is in a folder").display().to_string();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(self.own(line)).current_dir(self.home.path());
        shell.env("HOME", self.home.path()).env("PATH", format!("{built}:{path}"));
        shell.env("PONDHAWK_PORT", self.port.to_string()).env_remove("XDG_STATE_HOME");
        shell
    }

    /// Runs a command to its end. Returns its output and its exit code.
    fn run(&self, line: &str, input: &str) -> (String, Option<i32>) {
        let file = self.home.path().join(".input");
        fs::write(&file, input).expect("there is room");
        let input = fs::File::open(&file).expect("it was written");
        let output = self.shell(line).stdin(input).output().expect("a shell runs");
        let said = [&output.stdout[..], &output.stderr].concat();
        (String::from_utf8_lossy(&said).into_owned(), output.status.code())
    }

    fn succeed(&self, line: &str, input: &str) -> String {
        let (said, code) = self.run(line, input);
        assert_eq!(code, Some(0), "{line}\n{said}");
        said
    }

    /// Starts a command that runs on, in place of the shell.
    fn start(&mut self, line: &str) -> &Program {
        self.running.push(Program::start(self.shell(&format!("exec {line}"))));
        self.running.last().expect("it was just started")
    }

    /// Starts a broker, and waits until it serves.
    fn serve(&mut self, line: &str) {
        // Without a configuration file, the broker has the usual port.
        let port = if line.contains("-c ") { "" } else { " -p 1883" };
        self.start(&format!("{line}{port}")).wait_for("listening on");
    }

    fn walk(&mut self, step: &Step) {
        match step {
            Run(line) | Given(line) => drop(self.succeed(line, "")),
            Answer(line, input) => drop(self.succeed(line, input)),
            Ends(line, code) => {
                let (said, ended) = self.run(line, "");
                assert_eq!(ended, Some(*code), "{line}\n{said}");
            }
            Serve(line) => self.serve(line),
            Watch(line, again, text) => {
                let output = self.home.path().join(".watched");
                self.start(&format!("{line} > .watched"));
                until(&format!("{line} prints {text}"), || {
                    self.succeed(again, "");
                    fs::read_to_string(&output).ok().filter(|said| said.contains(text))
                });
            }
            Stop => self.running.drain(..).for_each(|program| {
                program.terminate();
                drop(program);
            }),
        }
    }
}

/// The line of a step that the page has.
fn line_of(step: &Step) -> Option<&'static str> {
    match step {
        Run(line) | Answer(line, _) | Ends(line, _) | Serve(line) | Watch(line, ..) => Some(line),
        Given(_) | Stop => None,
    }
}

/// The lines of the page that a shell runs, without comments.
fn lines(page: &str) -> Vec<String> {
    let blocks = blocks(page, "sh");
    let lines = blocks.iter().flat_map(|block| block.lines());
    lines.map(|line| line.split(" #").next().unwrap_or_default().trim().to_owned()).collect()
}

fn walk_through(name: &str) {
    let (_, steps) = WALKS.iter().find(|(page, _)| *page == name).expect("there is a walk");
    let mut place = Place::new();
    steps.iter().for_each(|step| place.walk(step));
}

#[test]
fn the_commands_of_readme_work() {
    walk_through("README.md");
}

#[test]
fn the_commands_for_users_and_certificates_work() {
    for page in ["docs/AUTHENTICATION.md", "docs/HOME.md", "docs/SYSTEMD.md", "docs/LISTENERS.md"] {
        walk_through(page);
    }
}

#[test]
fn the_commands_for_fleets_and_for_upkeep_work() {
    for page in ["docs/FLEET.md", "docs/UPKEEP.md", "docs/MIGRATING.md", "docs/RELOAD.md"] {
        walk_through(page);
    }
}

/// A command of a page that no walk has, and a line of a walk that no page has any more.
#[test]
fn walks_have_the_commands_of_the_pages_and_no_others() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut excused = BTreeSet::new();
    for page in pages() {
        let name = page.strip_prefix(&root).unwrap_or(&page).display().to_string();
        let name = name.trim_start_matches("./").to_owned();
        let lines = lines(&read(&page));
        let steps = WALKS.iter().find(|(page, _)| *page == name).map_or(&[][..], |(_, steps)| steps);
        let walked: Vec<_> = steps.iter().filter_map(line_of).collect();
        let is_excused = |line: &str| EXCUSED.iter().any(|(excused, _)| *excused == line);
        for line in lines.iter().filter(|line| of_pondhawk(&shell_words(line)).is_some()) {
            assert!(walked.contains(&line.as_str()) || is_excused(line), "{name}: no walk has {line}");
            excused.extend(is_excused(line).then(|| line.clone()));
        }
        // A walk starts brokers with the flags that it needs.
        for line in walked.into_iter().filter(|line| !line.contains("--data-dir")) {
            let is_there = lines.iter().any(|other| other == line) || line == "pondhawk -c pondhawk.toml";
            assert!(is_there, "{name} has no line {line}");
        }
    }
    assert_eq!(excused.len(), EXCUSED.len(), "of the excused commands, the pages have only {excused:?}");
}

/// The conversations of CLI.md: each command prints what the page says. Digits of times, dates and identifiers differ.
#[test]
fn the_tools_print_what_their_page_says() {
    let page = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/CLI.md"));
    let mut place = Place::new();
    place.serve("pondhawk");
    let digits = |text: &str| -> String {
        text.chars().map(|letter| if letter.is_ascii_digit() { '0' } else { letter }).collect()
    };
    let mut count = 0;
    for block in blocks(&page, "console") {
        let mut commands: Vec<(&str, String)> = Vec::new();
        for line in block.lines() {
            match (line.strip_prefix("$ "), commands.last_mut()) {
                (Some(command), _) => {
                    commands.push((command.split("   #").next().unwrap_or(command), String::new()));
                }
                (None, Some((_, expected))) => expected.push_str(&format!("{line}\n")),
                (None, None) => {}
            }
        }
        for (command, expected) in commands {
            let said =
                if command.contains(" rr ") { ask(&place, command) } else { place.succeed(command, "") };
            assert_eq!(digits(&said), digits(&expected), "{command}");
            count += 1;
        }
    }
    assert!(count >= 10, "{count}");
}

/// Runs a command that asks a question, and somebody who answers it. Returns what the command prints.
fn ask(place: &Place, command: &str) -> String {
    thread::scope(|scope| {
        scope.spawn(|| {
            place.succeed("pondhawk sub -t pond/ask -C 1", "");
            place.succeed("pondhawk pub -t pond/answer/7 -m 'two metres'", "");
        });
        // The one who answers may not have subscribed yet.
        until("an answer", || Some(place.run(command, "")).filter(|(_, code)| *code == Some(0))).0
    })
}
