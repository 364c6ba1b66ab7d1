//! The page `docs/BENCHMARKS.md`.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::folder;
use super::sections::{SECTIONS, Section};
use crate::house::House;

/// Everything before the sections.
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
  recovery and sessions that are away have 100 bytes, or the number in the table. Those of the client libraries and of the
  pipelines have 100 bytes.
- **Clients** of a server speak MQTT 3.1.1, at QoS 0 without `--qos` in loadtest, pingtest and slow-consumer. The client
  libraries and the pipelines speak MQTT 5.0.
- **Mosquitto** has its default configuration with five changes: `allow_anonymous true`, `max_queued_messages 0`,
  `max_inflight_messages 0`, `set_tcp_nodelay true` and `log_type none`. Its queues then grow instead of dropping messages, and
  it does not wait for a subscriber after 20 messages.
- **The disk** decides about the figures of these sections: the ledger on its journal, the journal alone, the longest commit,
  recovery, and messages for sessions that are away. Mosquitto keeps these messages in memory.
- **The machine** is the one named below, unless a section names its own.
- **Commands with `--data-dir`** leave a directory `data` in the working directory. Remove it before the next run. Without
  `--data-dir`, the broker stores in its default directory.
";

/// The page. Each finished section is stored in a file of its own, so that sections can be measured one by one.
pub(super) struct Page {
    pub(super) folder: PathBuf,
    path: PathBuf,
    commit: String,
    /// Description of this machine.
    machine: String,
}

impl Page {
    pub(super) fn of(house: &House) -> Result<Self, String> {
        let commit = said(house.command("git").args(["rev-parse", "--short=8", "HEAD"]));
        Ok(Self {
            folder: folder(house)?,
            path: house.root().join("docs/BENCHMARKS.md"),
            commit,
            machine: machine(),
        })
    }

    pub(super) fn keep(&self, section: &Section, line: &str, printed: &str) -> Result<(), String> {
        let Section { title, text, configuration, .. } = section;
        let (commit, machine) = (&self.commit, &self.machine);
        let file = configuration.map_or(String::new(), |configuration| {
            format!("`{}.toml`:\n\n```toml\n{configuration}```\n\n", section.name)
        });
        // The first line repeats the heading and the command.
        let (_, table) = printed.split_once('\n').unwrap_or(("", printed));
        let table = table.trim();
        let text = format!(
            "\n## {title}\n\n{HERE}{machine}\n{text} At {commit}:\n\n```\n{line}\n```\n\n{file}{table}\n"
        );
        let path = self.folder.join(section.name);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Writes the sections that were measured here. Others stay as they are.
    pub(super) fn write(&self) -> Result<(), String> {
        let before = fs::read_to_string(&self.path).unwrap_or_default();
        let of = |section: &Section| fs::read_to_string(self.folder.join(section.name)).ok();
        let text = page_of(&before, &self.machine, of);
        fs::write(&self.path, text).map_err(|error| format!("{}: {error}", self.path.display()))
    }
}

/// Begins the description of the machine of the whole page.
const MACHINE: &str = "\nThe machine: ";

/// Begins the description of the machine of one section.
const HERE: &str = "The machine of this section: ";

/// The page with the sections that are measured, and with the others as they are in `before`. The machine of the page stays,
/// as long as a section does, and sections of another machine name theirs.
fn page_of(before: &str, machine: &str, measured: impl Fn(&Section) -> Option<String>) -> String {
    let before_machine = before.split_once(MACHINE).and_then(|(_, rest)| Some(rest.split_once('\n')?.0));
    let stays =
        |section: &Section| measured(section).is_none() && section_of(before, section.title).is_some();
    let machine = match before_machine {
        Some(before) if SECTIONS.iter().any(stays) => format!("{before}\n"),
        _ => machine.to_owned(),
    };
    let same = format!("{HERE}{machine}\n");
    let section = |section: &Section| {
        let text = measured(section).or_else(|| section_of(before, section.title).map(str::to_owned))?;
        Some(text.replacen(&same, "", 1))
    };
    let sections: String = SECTIONS.iter().filter_map(section).collect();
    format!("{HEAD}{MACHINE}{machine}\n{sections}")
}

/// The section with this title, from the line break before its heading up to the next one.
fn section_of<'a>(page: &'a str, title: &str) -> Option<&'a str> {
    let heading = format!("\n## {title}\n");
    let from = page.find(&heading)?;
    let behind = from + heading.len();
    let to = page[behind..].find("\n## ").map_or(page.len(), |length| behind + length);
    Some(&page[from..to])
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
    let mosquitto = mosquitto.lines().next().map_or(String::new(), |version| format!("; {version}"));
    format!("{processors} processors ({processor}), {memory:.1} GiB of memory, {kernel}{mosquitto}.\n")
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
    fn a_section_of_another_machine_names_it_and_the_others_stay() {
        let of = |wanted: &'static str, machine: &'static str| {
            move |section: &Section| {
                let text = format!("\n## {}\n\n{HERE}{machine}\nFigures.\n", section.title);
                wanted.split(' ').any(|name| name == section.name).then_some(text)
            }
        };
        let first = page_of("", "one.\n", of("loadtest pingtest", "one.\n"));
        assert!(
            first.contains("\nThe machine: one.\n\n\n## loadtest\n\nFigures.\n\n## pingtest\n"),
            "{first}"
        );
        let mixed = page_of(&first, "two.\n", of("codec", "two.\n"));
        let section = "\n## Codecs\n\nThe machine of this section: two.\n\nFigures.\n";
        assert_eq!(mixed, format!("{first}{section}"));
        let again = page_of(&mixed, "one.\n", of("codec", "one.\n"));
        assert_eq!(again, format!("{first}\n## Codecs\n\nFigures.\n"));
        let anew = page_of(&first, "two.\n", of("loadtest pingtest", "two.\n"));
        assert_eq!(anew, first.replace("machine: one.", "machine: two."));
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
