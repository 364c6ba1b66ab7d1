//! Measures the figures of `docs/BENCHMARKS.md`. Each section is a command and its output.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::house::House;
use crate::log::Log;
use crate::tools;

/// A section of the page.
struct Section {
    name: &'static str,
    title: &'static str,
    /// Description of the measurement, and how to read the figures.
    text: &'static str,
    /// Arguments after `pondhawk bench`, or a whole command if it begins with [`CLIENTS`].
    arguments: &'static str,
    /// Arguments for a short run, which only checks that the command works.
    in_short: &'static str,
    /// Content of the broker's configuration file, if it has one.
    configuration: Option<&'static str>,
    peers: &'static [Peer],
}

#[derive(PartialEq)]
enum Peer {
    Mosquitto,
    Relay,
}

/// Name of the program that measures client libraries, with this broker as their server.
const CLIENTS: &str = "client-speed";

const SECTIONS: &[Section] = &[
    Section {
        name: "loadtest",
        title: "loadtest",
        text: "Half the connections publish as fast as they can, each to one subscriber; each write to the socket carries \
            64 messages.",
        arguments: "loadtest --conns 100,500,1000 --messages 2000 --repeat 3",
        in_short: "loadtest --conns 20 --messages 200",
        configuration: None,
        peers: &[Peer::Mosquitto, Peer::Relay],
    },
    Section {
        name: "loadtest-single",
        title: "loadtest, every message a write of its own",
        text: "Nearly all of the cost is that of system calls.",
        arguments: "loadtest --conns 100,500,1000 --messages 300 --per-write 1 --repeat 3",
        in_short: "loadtest --conns 20 --messages 50 --per-write 1",
        configuration: None,
        peers: &[Peer::Mosquitto, Peer::Relay],
    },
    Section {
        name: "loadtest-qos1",
        title: "loadtest at QoS 1",
        text: "Each publisher has at most 100 messages unacknowledged. All sessions end with their connections.",
        arguments: "loadtest --conns 500 --messages 4000 --qos 1 --window 100 --repeat 3",
        in_short: "loadtest --conns 20 --messages 200 --qos 1 --window 100",
        configuration: None,
        peers: &[Peer::Mosquitto],
    },
    Section {
        name: "loadtest-qos2",
        title: "loadtest at QoS 2",
        text: "The same at QoS 2, where each message takes four packets between publisher and server, and four \
            between server and subscriber.",
        arguments: "loadtest --conns 500 --messages 2000 --qos 2 --window 100 --repeat 3",
        in_short: "loadtest --conns 20 --messages 200 --qos 2 --window 100",
        configuration: None,
        peers: &[Peer::Mosquitto],
    },
    Section {
        name: "pingtest",
        title: "pingtest",
        text: "Pairs of clients exchange requests and replies, one at a time. In 400p20w there are 400 pairs, and 20 \
            wildcard subscribers receive the messages of the first pair. A broker can be faster than the relay, because \
            it sends fewer and larger writes to these subscribers.",
        arguments: "pingtest --sizes 400p20w,200p200w,100p400w --messages 150 --repeat 3",
        in_short: "pingtest --sizes 10p5w --messages 20",
        configuration: None,
        peers: &[Peer::Mosquitto, Peer::Relay],
    },
    Section {
        name: "loadtest-tls",
        title: "loadtest over TLS",
        text: "The relay decrypts and encrypts with the same library as the broker, and knows no protocol inside: the \
            cost of TLS alone.",
        arguments: "loadtest --conns 100,500 --messages 2000 --repeat 3 --over tls",
        in_short: "loadtest --conns 20 --messages 200 --over tls",
        configuration: Some(TLS),
        peers: &[Peer::Mosquitto, Peer::Relay],
    },
    Section {
        name: "loadtest-ws",
        title: "loadtest over WebSocket",
        text: "Each write of a client is one frame, with a mask of its own.",
        arguments: "loadtest --conns 100,500 --messages 2000 --repeat 3 --over ws",
        in_short: "loadtest --conns 20 --messages 200 --over ws",
        configuration: None,
        peers: &[Peer::Mosquitto, Peer::Relay],
    },
    Section {
        name: "loadtest-wss",
        title: "loadtest over WebSocket over TLS",
        text: "The same inside of TLS.",
        arguments: "loadtest --conns 100,500 --messages 2000 --repeat 3 --over wss",
        in_short: "loadtest --conns 20 --messages 200 --over wss",
        configuration: Some(TLS),
        peers: &[Peer::Mosquitto, Peer::Relay],
    },
    Section {
        name: "handshakes",
        title: "TLS handshakes",
        text: "Clients connect, make a handshake, send CONNECT, and leave when they have their CONNACK. In the second \
            column, each client resumes the session of another.",
        arguments: "handshakes --count 5000 --repeat 3",
        in_short: "handshakes --count 50",
        configuration: Some(TLS),
        peers: &[Peer::Mosquitto, Peer::Relay],
    },
    Section {
        name: "handshakes-beside",
        title: "TLS handshakes beside other clients",
        text: "Five hundred handshakes per second, and the latency of other clients meanwhile.",
        arguments: "handshakes --count 2500 --rate 500 --repeat 5",
        in_short: "handshakes --count 50 --rate 500 --duration 0.2",
        configuration: Some(TLS),
        peers: &[Peer::Mosquitto],
    },
    Section {
        name: "idle-tls",
        title: "Idle connections over TLS",
        text: "Memory of the server, with client identifiers of 23 characters. Memory per connection does not include pages of the program's file.",
        arguments: "idle 8000 --over tls",
        in_short: "idle 50 --over tls",
        configuration: Some(TLS),
        peers: &[Peer::Mosquitto],
    },
    Section {
        name: "idle-ws",
        title: "Idle connections over WebSocket",
        text: "The same over WebSocket.",
        arguments: "idle 8000 --over ws",
        in_short: "idle 50 --over ws",
        configuration: None,
        peers: &[Peer::Mosquitto],
    },
    Section {
        name: "idle",
        title: "Idle connections",
        text: "Memory of the server, with client identifiers of 23 characters. Memory per connection does not include pages of the program's file.",
        arguments: "idle 8000",
        in_short: "idle 50",
        configuration: None,
        peers: &[Peer::Mosquitto],
    },
    Section {
        name: "idle-subscribed",
        title: "Idle connections with one subscription each",
        text: "The same, after one SUBSCRIBE.",
        arguments: "idle 8000 --subscribe",
        in_short: "idle 50 --subscribe",
        configuration: None,
        peers: &[Peer::Mosquitto],
    },
    Section {
        name: "ledger",
        title: "The ledger alone",
        text: "On one core, in one process, without sockets and without a disk: publish, deliver and acknowledge at \
            QoS 1, and the memory of a message that waits.",
        arguments: "ledger",
        in_short: "ledger --messages 20000 --queued 10000",
        configuration: None,
        peers: &[],
    },
    Section {
        name: "durable",
        title: "The ledger on its journal",
        text: "In one process, without sockets, on a real disk: how fast messages at QoS 1 become durable, compared \
            with the same bytes appended to one file and synced (the yardstick). All figures include the work of the \
            ledger, which is most of the work in large commits.",
        arguments: "durable",
        in_short: "durable --seconds 0.2 --per-commit 64 --payload 100",
        configuration: None,
        peers: &[],
    },
    Section {
        name: "durable-journal",
        title: "The journal alone",
        text: "The same with records that are made already: what the journal makes of a disk.",
        arguments: "durable --without-ledger",
        in_short: "durable --without-ledger --seconds 0.2 --per-commit 64 --payload 100",
        configuration: None,
        peers: &[],
    },
    Section {
        name: "durable-longest",
        title: "The longest commit",
        text: "The ledger on its journal for ten minutes, beside the longest write and sync of the yardstick.",
        arguments: "durable --per-commit 64 --payload 100 --fanout 1 --seconds 600",
        in_short: "durable --seconds 0.2 --per-commit 16 --payload 100 --fanout 1",
        configuration: None,
        peers: &[],
    },
    Section {
        name: "recovery",
        title: "Recovery",
        text: "A start of the broker with many queued messages, and their delivery.",
        arguments: "recovery",
        in_short: "recovery --messages 5000 --sessions 100",
        configuration: None,
        peers: &[],
    },
    Section {
        name: "offline-sessions",
        title: "Messages for sessions that are away",
        text: "Messages are published at QoS 1, and then fetched by clients that come back: nothing may be missing. \
            Mosquitto keeps the messages in memory only; Pondhawk acknowledges them after a sync.",
        arguments: "offline-sessions --duration 15",
        in_short: "offline-sessions --sessions 40 --publishers 8 --duration 0.2 --window 20",
        configuration: None,
        peers: &[Peer::Mosquitto],
    },
    Section {
        name: "retained-flood",
        title: "retained-flood",
        text: "A new subscriber asks for a million retained messages, while other clients continue.",
        arguments: "retained-flood --duration 2 --repeat 5",
        in_short: "retained-flood --messages 2000 --duration 0.2",
        configuration: None,
        peers: &[Peer::Mosquitto, Peer::Relay],
    },
    Section {
        name: "slow-consumer",
        title: "slow-consumer",
        text: "Pairs at QoS 0, alone and beside two subscribers to everything: one stops reading, and the other \
            reads 1 KiB/s.",
        arguments: "slow-consumer --conns 100 --messages 6000 --per-write 1 --repeat 5",
        in_short: "slow-consumer --conns 10 --messages 200",
        configuration: None,
        peers: &[Peer::Mosquitto],
    },
    Section {
        name: "slow-consumer-qos1",
        title: "slow-consumer at QoS 1",
        text: "The same at QoS 1.",
        arguments: "slow-consumer --conns 100 --messages 6000 --per-write 1 --qos 1 --repeat 5",
        in_short: "slow-consumer --conns 10 --messages 200 --qos 1",
        configuration: None,
        peers: &[Peer::Mosquitto],
    },
    Section {
        name: "shared-queue",
        title: "shared-queue",
        text: "A shared group of four members. Three of them acknowledge nothing, and lose their connections with \
            the messages that they have received.",
        arguments: "shared-queue --duration 2 --repeat 5",
        in_short: "shared-queue --messages 2000 --duration 0.2",
        configuration: None,
        peers: &[Peer::Mosquitto],
    },
    Section {
        name: "shared-queue-keys",
        title: "shared-queue in the order of keys",
        text: "The same with a server that keeps the messages of each publisher in order, also when the member that \
            had received them is lost.",
        arguments: "shared-queue --dispatch key-ordered --duration 2 --repeat 5",
        in_short: "shared-queue --dispatch key-ordered --messages 2000 --duration 0.2",
        configuration: Some("[shared]\ndispatch = \"key-ordered\"\n"),
        peers: &[],
    },
    Section {
        name: "storm",
        title: "storm",
        text: "Five thousand clients lose their connections and reconnect at once, while other clients continue.",
        arguments: "storm --duration 2 --repeat 5",
        in_short: "storm --clients 50 --duration 0.2",
        configuration: None,
        peers: &[Peer::Mosquitto],
    },
    Section {
        name: "hostile",
        title: "hostile",
        text: "Attacks, each on a freshly started server, and their effect on other clients; the figures are those \
            of the client that suffers most. These clients publish at QoS 0 and 1, publish messages of 256 KiB that \
            no attacker receives, store retained messages, and connect, on schedule. A server fails if they lose \
            half of their throughput, or if their 99th percentile is above 5 ms and above three times its value \
            before the attack. It also fails if a client is refused 30 seconds after the attack, or if memory or \
            disk are then not as before. These clients log in with a password. With `--with-mosquitto`, each attack meets \
            Mosquitto, too; some attacks then take minutes.",
        arguments: "hostile --user innocent --password pond --repeat 3",
        in_short: "hostile --user innocent --password pond --short --duration 0.4",
        configuration: Some(HOSTILE),
        peers: &[],
    },
    Section {
        name: "clients",
        title: "Client libraries",
        text: "The cost of a message for the process that publishes it and for the process that receives it, in \
            messages per second of CPU time (user and system). Each process has one connection, and at most 100 \
            messages are unacknowledged. The libraries are measured in turn, with Pondhawk as the broker. They do \
            different work: pondhawk-client and paho route each message to its subscription, and rumqttc returns all \
            messages from its event loop. In addition, pondhawk-client validates topics and copies each message, so \
            that a stored message does not keep a whole read buffer in memory. `cargo xtask bench clients` builds the \
            program in `target/release`, with the libraries, and runs it.",
        arguments: "client-speed --messages 200000 --repeat 3",
        in_short: "client-speed --messages 2000 --repeat 1",
        configuration: None,
        peers: &[],
    },
];

/// A listener for TLS on the port and with the certificate that the load test chooses.
const TLS: &str = "[[listener]]\naddress = \"127.0.0.1:${PORT}\"\ntls_certificate = \"${CERTIFICATE}\"\n\
    tls_key = \"${KEY}\"\n";

/// Limits that an attack reaches within seconds.
const HOSTILE: &str = "allow_anonymous = true\n\n[limits]\nmemory_budget_bytes = \"256 MiB\"\n\n[journal]\ndisk_bytes = \"256 MiB\"\n\n\
    [auth]\npassword_file = \"users\"\n";

/// The password file of configurations that have one: `innocent`, with the password `pond`.
const USERS: &str =
    "innocent:$argon2id$v=19$m=19456,t=2,p=1$It8nsZTKY5H9gxee$N5oEGWbhWwlQAq9uXTRrU3zz+8MqkLFRfiuN6TS/bCw\n";

const HEAD: &str = "\
# Benchmarks

Written by `cargo xtask bench`, which runs each command below with a release build; `cargo xtask bench NAME…` writes
those sections again. Servers are measured in turn, round after round, so that other load on the machine affects all
of them alike: ratios vary less than absolute figures. On two processors, the server runs on the first and the load generator
on the second; a star marks a rate that the generator may have limited. The relay forwards bytes without a protocol, which
shows the cost of the sockets alone. Unless a table says otherwise, nothing was lost, duplicated or out of order.

## How to read the tables

- **At 2bc9ebf6** names the commit of Pondhawk that was measured.
- **messages/s** counts deliveries: a message to ten subscribers counts ten times. pingtest counts requests and replies, but not
  the copies for wildcard subscribers. Messages for sessions that are away count once, when the broker acknowledges them. The
  sections about the ledger and the journal count published messages.
- **The factor in brackets** is the figure relative to the first server of the same column.
- **Payloads** have 16 bytes, if neither the command nor the text says otherwise. Those of the sections about the ledger,
  recovery and sessions that are away have 100 bytes, or the number in the table. Those of the client libraries have 100 bytes.
- **Clients** of a server speak MQTT 3.1.1, at QoS 0 without `--qos` in loadtest, pingtest and slow-consumer. The client
  libraries speak MQTT 5.0.
- **Mosquitto** has its default configuration with five changes: `allow_anonymous true`, `max_queued_messages 0`,
  `max_inflight_messages 0`, `set_tcp_nodelay true` and `log_type none`. Its queues then grow instead of dropping messages, and
  it does not wait for a subscriber after 20 messages.
- **The disk** decides about the figures of these sections: the ledger on its journal, the journal alone, the longest commit,
  recovery, and messages for sessions that are away. Mosquitto keeps these messages in memory.
- **Commands with `--data-dir`** leave a directory `data` in the working directory. Remove it before the next run. Without
  `--data-dir`, the broker stores in its default directory.
";

/// Runs each command with few messages, to check that it works and loses nothing. Writes no page.
///
/// # Errors
/// If a command fails.
pub(crate) fn run_in_short(house: &House, log: &mut Log) -> Result<(), String> {
    house.build(log)?;
    tools::install(house, log)?;
    let pondhawk = house.built().join("pondhawk");
    let folder = folder(house)?;
    for section in SECTIONS {
        if section.is_of_clients() {
            log.run(in_shell(house, section.in_short, &house.built()).current_dir(&folder))?;
            continue;
        }
        let mut command = house.command(&pondhawk);
        command.current_dir(&folder).arg("bench").args(section.in_short.split(' '));
        if !section.is_alone() {
            let serve = section.serve(&folder)?;
            command.env("PATH", on_path(&house.built()));
            command.arg("--spawn").arg(format!("pondhawk={serve}"));
        }
        log.run(&mut command)?;
    }
    Ok(())
}

/// Measures these sections, or all of them, and writes the page.
///
/// # Errors
/// If there is no such section, or a section cannot be measured. Sections that were measured before it are written.
pub(crate) fn run(house: &House, names: &[String], log: &mut Log) -> Result<(), String> {
    if let Some(unknown) = names.iter().find(|name| SECTIONS.iter().all(|section| section.name != **name)) {
        let known: Vec<&str> = SECTIONS.iter().map(|section| section.name).collect();
        return Err(format!("there is no benchmark `{unknown}`; there are: {}", known.join(", ")));
    }
    log.run(house.cargo().args(["build", "--release", "--package", "pondhawk"]))?;
    let page = Page::of(house)?;
    let is_wanted = |section: &&Section| names.is_empty() || names.iter().any(|name| name == section.name);
    let measured = SECTIONS.iter().filter(is_wanted).try_for_each(|section| {
        log.note(&format!("# {}", section.name));
        if section.is_of_clients() {
            build_clients(house, log)?;
        }
        let line = section.line(&section.serve(&page.folder)?);
        page.keep(section, &line, &section.measure(house, &line, &page.folder, log)?)
    });
    page.write(&machine())?;
    measured
}

/// Returns the `PATH` variable with this folder in front.
fn on_path(folder: &Path) -> String {
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default())
}

/// Builds the program that measures client libraries, and the clients that cargo does not build.
fn build_clients(house: &House, log: &mut Log) -> Result<(), String> {
    tools::install(house, log)?;
    log.run(house.cargo().args(["build", "--release", "--package", "pondhawk-tests", "--bin", CLIENTS]))
}

/// Makes a shell command for `line`, which finds the programs in the folder `built`.
fn in_shell(house: &House, line: &str, built: &Path) -> Command {
    let mut shell = house.command("sh");
    shell.env("PATH", on_path(built)).env("PONDHAWK_BUILT", built);
    shell.env("PONDHAWK_TOOLS", house.tools()).args(["-c", line]);
    shell
}

/// Returns the folder for finished sections and configuration files.
fn folder(house: &House) -> Result<PathBuf, String> {
    let folder = house.target().join("xtask/bench");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

impl Section {
    /// Whether the command starts no servers.
    fn is_alone(&self) -> bool {
        let test = self.arguments.split(' ').next().unwrap_or_default();
        ["ledger", "durable", "recovery", CLIENTS].contains(&test)
    }

    fn is_of_clients(&self) -> bool {
        self.arguments.starts_with(CLIENTS)
    }

    /// Returns the command that starts the broker on a new journal.
    ///
    /// Writes the configuration file into the folder, and removes the journals of the section before.
    fn serve(&self, folder: &Path) -> Result<String, String> {
        let data = folder.join("data");
        if data.exists() {
            fs::remove_dir_all(&data).map_err(|error| format!("{}: {error}", data.display()))?;
        }
        let serve = "pondhawk serve -p {port} --data-dir data/{port}";
        let Some(configuration) = self.configuration else { return Ok(serve.to_owned()) };
        let path = folder.join(format!("{}.toml", self.name));
        for (path, text) in [(&path, configuration), (&folder.join("users"), USERS)] {
            fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        if configuration.contains("${PORT}") {
            let places = "PORT={port} CERTIFICATE={cert} KEY={key}";
            return Ok(format!("env {places} pondhawk serve -c {}.toml --data-dir data/{{port}}", self.name));
        }
        Ok(format!("{serve} -c {}.toml", self.name))
    }

    /// Returns the command as a user types it who has `pondhawk` on the path.
    fn line(&self, serve: &str) -> String {
        if self.is_of_clients() {
            return self.arguments.to_owned();
        }
        let mut line = format!("pondhawk bench {}", self.arguments);
        if self.is_alone() {
            return line;
        }
        line += &format!(" \\\n    --spawn 'pondhawk={serve}'");
        for peer in self.peers {
            line += match peer {
                Peer::Mosquitto => " --with-mosquitto",
                Peer::Relay => " --with-relay",
            };
        }
        if is_pinned() {
            line += " --server-cpu 0 --pin 1";
        }
        line
    }

    /// Runs the command, and returns its output. The failure of a peer in its own rows is a result, not an error.
    fn measure(&self, house: &House, line: &str, folder: &Path, log: &mut Log) -> Result<String, String> {
        log.note(&format!("$ {line}"));
        let mut shell = in_shell(house, line, &house.target().join("release"));
        shell.current_dir(folder);
        let output = shell.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
        let output = output.map_err(|error| format!("cannot run `{line}`: {error}"))?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        log.note(&printed);
        let is_ours = |line: &str| line.starts_with("FAILED: pondhawk");
        let is_measured = printed.contains("| pondhawk") && !printed.lines().any(is_ours);
        if output.status.success() || is_measured {
            Ok(printed)
        } else {
            Err(format!("`{line}` failed ({})\n{printed}", output.status))
        }
    }
}

/// The page. Each finished section is stored in a file of its own, so that sections can be measured one by one.
struct Page {
    folder: PathBuf,
    path: PathBuf,
    commit: String,
}

impl Page {
    fn of(house: &House) -> Result<Self, String> {
        let commit = said(house.command("git").args(["rev-parse", "--short=8", "HEAD"]));
        Ok(Self { folder: folder(house)?, path: house.root().join("docs/BENCHMARKS.md"), commit })
    }

    fn keep(&self, section: &Section, line: &str, printed: &str) -> Result<(), String> {
        let Section { title, text, configuration, .. } = section;
        let commit = &self.commit;
        let file = configuration.map_or(String::new(), |configuration| {
            format!("`{}.toml`:\n\n```toml\n{configuration}```\n\n", section.name)
        });
        // The first line repeats the heading and the command.
        let (_, table) = printed.split_once('\n').unwrap_or(("", printed));
        let table = table.trim();
        let text = format!("\n## {title}\n\n{text} At {commit}:\n\n```\n{line}\n```\n\n{file}{table}\n");
        let path = self.folder.join(section.name);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Writes the sections that were measured here. Others stay as they are, if they come from a machine like this one.
    fn write(&self, machine: &str) -> Result<(), String> {
        let before = fs::read_to_string(&self.path).unwrap_or_default();
        let before = if before.contains(machine) { &*before } else { "" };
        let sections: String = SECTIONS
            .iter()
            .filter_map(|section| {
                let measured = fs::read_to_string(self.folder.join(section.name)).ok();
                measured.or_else(|| section_of(before, section.title).map(str::to_owned))
            })
            .collect();
        let text = format!("{HEAD}\n{machine}\n{sections}");
        fs::write(&self.path, text).map_err(|error| format!("{}: {error}", self.path.display()))
    }
}

/// The section with this title, from the line break before its heading up to the next one.
fn section_of<'a>(page: &'a str, title: &str) -> Option<&'a str> {
    let heading = format!("\n## {title}\n");
    let from = page.find(&heading)?;
    let behind = from + heading.len();
    let to = page[behind..].find("\n## ").map_or(page.len(), |length| behind + length);
    Some(&page[from..to])
}

fn is_pinned() -> bool {
    std::thread::available_parallelism().is_ok_and(|count| count.get() > 1)
}

/// Describes the machine and the peers in a sentence.
fn machine() -> String {
    let of_file = |path: &str, key: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default().to_owned();
        line.split_once(':').map_or(String::new(), |(_, value)| value.trim().to_owned())
    };
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let processor = of_file("/proc/cpuinfo", "model name");
    // The last digits change with each start of a virtual machine.
    let memory: f64 = of_file("/proc/meminfo", "MemTotal").trim_end_matches(" kB").parse().unwrap_or(0.0);
    let memory = memory / f64::from(1 << 20);
    let kernel = said(Command::new("uname").args(["-s", "-r"]));
    // The text after the dash names the builder of the kernel.
    let kernel = kernel.split('-').next().unwrap_or_default();
    let mosquitto = said(Command::new("mosquitto").arg("-h"));
    let mosquitto = mosquitto.lines().next().unwrap_or_default();
    format!(
        "The machine: {processors} processors ({processor}), {memory:.1} GiB of memory, {kernel}; {mosquitto}.\n"
    )
}

/// Returns the output of a program; empty if the program cannot be run.
fn said(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_ends_where_the_next_one_begins() {
        let page = "# Page\n\nText.\n\n## loadtest\n\nOne.\n\n## loadtest over TLS\n\nTwo.\n";
        assert_eq!(section_of(page, "loadtest"), Some("\n## loadtest\n\nOne.\n"));
        assert_eq!(section_of(page, "loadtest over TLS"), Some("\n## loadtest over TLS\n\nTwo.\n"));
        assert_eq!(section_of(page, "pingtest"), None);
    }

    #[test]
    fn the_sections_of_the_page_are_known() {
        let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/BENCHMARKS.md")).unwrap();
        let headings = page.lines().filter_map(|line| line.strip_prefix("## ")).skip(1);
        for heading in headings {
            assert!(SECTIONS.iter().any(|section| section.title == heading), "{heading}");
        }
    }
}
