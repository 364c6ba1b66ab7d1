//! A configuration with what the test has to know about it.
//!
//! `PORT1` to `PORT4` are free ports, and `DIR` is a directory with certificates, users and rules.
//! `PLUGIN` is Mosquitto's plugin for dynamic security. Lines for the test:
//!
//! - `#: doors 1 2w 3t`: the ports that are tried. `w` is WebSocket, and `t` is TLS. `u` is the socket `DIR/socket`.
//! - `#: expect LINE`: the beginning of a line that the transcript must have.
//! - `#: differs LINE`: the brokers may differ in lines that begin like this.
//! - `#: nobody`: both brokers admit nobody, in any way.
//! - `#: port 1`: the command line has `-p PORT1`.
//! - `#: mount PREFIX`: Mosquitto 2.0.11 does not cut the mount point from topics. The test does.
//! - `#: refused TEXT`: Pondhawk does not start, and says TEXT. Mosquitto is not asked.
//! - `#: both refuse TEXT`: neither starts, and Pondhawk says TEXT.
//! - `#> NAME`: the lines behind it, up to the next `#>`, are another file in `DIR`.

use std::fs;
use std::path::Path;

/// A way into the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Door {
    /// The number of the port, from 1. 0 is the Unix socket.
    pub(crate) port: usize,
    pub(crate) is_web: bool,
    pub(crate) is_tls: bool,
}

/// The wanted end of a case.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Same,
    RefusedBy { pondhawk: String },
    RefusedByBoth { pondhawk: String },
}

/// A configuration with its orders.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// The text of the main file.
    pub(crate) text: String,
    /// Other files, by their names in the directory.
    pub(crate) files: Vec<(String, String)>,
    pub(crate) doors: Vec<Door>,
    pub(crate) expected: Vec<String>,
    pub(crate) differing: Vec<String>,
    pub(crate) admits_nobody: bool,
    pub(crate) has_port: bool,
    pub(crate) mount: Vec<String>,
    pub(crate) fate: Fate,
}

impl Case {
    pub(crate) fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).expect("a case can be read");
        let name = path.file_stem().expect("a case has a name").to_string_lossy().into_owned();
        Self::parse(&name, &text)
    }

    pub(crate) fn parse(name: &str, text: &str) -> Self {
        let mut case = Self {
            name: name.to_owned(),
            text: String::new(),
            files: Vec::new(),
            doors: Vec::new(),
            expected: Vec::new(),
            differing: Vec::new(),
            admits_nobody: false,
            has_port: false,
            mount: Vec::new(),
            fate: Fate::Same,
        };
        for line in text.split_inclusive('\n') {
            if let Some(rest) = line.strip_prefix("#: ") {
                case.order(rest.trim_end());
            } else if let Some(file) = line.strip_prefix("#> ") {
                case.files.push((file.trim_end().to_owned(), String::new()));
            } else {
                case.files.last_mut().map_or(&mut case.text, |(_, text)| text).push_str(line);
            }
        }
        if case.doors.is_empty() {
            case.doors.push(door("1"));
        }
        case
    }

    fn order(&mut self, order: &str) {
        let (word, rest) = order.split_once(' ').unwrap_or((order, ""));
        match word {
            "doors" => self.doors = rest.split(' ').map(door).collect(),
            "expect" => self.expected.push(rest.to_owned()),
            "differs" => self.differing.push(rest.to_owned()),
            "mount" => self.mount.push(rest.to_owned()),
            "nobody" => self.admits_nobody = true,
            "port" => self.has_port = true,
            "refused" => self.fate = Fate::RefusedBy { pondhawk: rest.to_owned() },
            "both" => {
                let pondhawk = rest.strip_prefix("refuse ").expect("both refuse TEXT").to_owned();
                self.fate = Fate::RefusedByBoth { pondhawk };
            }
            other => panic!("{}: {other} is no order", self.name),
        }
    }
}

fn door(text: &str) -> Door {
    let port = text.trim_end_matches(char::is_alphabetic).parse().unwrap_or(0);
    Door { port, is_web: text.contains('w'), is_tls: text.contains('t') }
}
