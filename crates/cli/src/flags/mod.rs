//! The table of flags: each is here once, and the parser, the help and the comparison with Mosquitto's clients are made of
//! it.

mod connection;
mod messages;
mod nearest;
mod output;
mod security;

use std::path::Path;

use crate::failure::Failure;
use crate::settings::{Settings, Tool};

/// A flag, as it is typed, what it takes, what it does, and what a person should know of it.
pub(crate) struct Flag {
    /// The short one first.
    pub(crate) names: &'static [&'static str],
    pub(crate) tools: &'static [Tool],
    pub(crate) takes: Takes,
    pub(crate) help: &'static str,
}

/// What follows a flag.
#[derive(Clone, Copy)]
pub(crate) enum Takes {
    Nothing(fn(&mut Settings) -> Result<(), Failure>),
    /// Text of MQTT's: UTF-8.
    Text(Argument, fn(&mut Settings, &str) -> Result<(), Failure>),
    /// The name of a file, which need not be UTF-8.
    Path(Argument, fn(&mut Settings, &Path) -> Result<(), Failure>),
    /// Any bytes.
    Bytes(Argument, fn(&mut Settings, &[u8]) -> Result<(), Failure>),
    /// `-D`: a command, a property, and its value, or its name and value.
    Property,
}

/// How the argument of a flag is called.
#[derive(Clone, Copy)]
pub(crate) struct Argument {
    /// In the help.
    pub(crate) name: &'static str,
    /// Where it is missing: `-h argument given but no host specified`.
    pub(crate) missing: &'static str,
}

/// Flags that belong together, under one heading.
pub(crate) struct Section {
    pub(crate) heading: &'static str,
    pub(crate) flags: &'static [Flag],
}

/// In the order of the help.
pub(crate) const SECTIONS: &[Section] = &[
    Section { heading: "Where to connect", flags: connection::WHERE },
    Section { heading: "What to publish", flags: messages::PUBLISH },
    Section { heading: "What to subscribe to", flags: messages::SUBSCRIBE },
    Section { heading: "What to print", flags: output::PRINT },
    Section { heading: "When to end", flags: output::END },
    Section { heading: "Who connects, and how", flags: connection::WHO },
    Section { heading: "Will: what the broker publishes if this program dies", flags: connection::WILL },
    Section { heading: "Encryption", flags: security::TLS },
    Section { heading: "Help and diagnosis", flags: output::HELP },
    Section { heading: "Known to Mosquitto's clients, and refused here", flags: security::REFUSED },
];

/// The flag of this name, if the tool has it.
pub(crate) fn find(tool: Tool, name: &str) -> Option<&'static Flag> {
    of(tool).find(|flag| flag.names.contains(&name))
}

/// Every flag of a tool.
pub(crate) fn of(tool: Tool) -> impl Iterator<Item = &'static Flag> {
    SECTIONS.iter().flat_map(|section| section.flags).filter(move |flag| flag.tools.contains(&tool))
}

pub(crate) use messages::add_topic;
pub(crate) use nearest::advice;

const ALL: &[Tool] = &Tool::ALL;
const PUB: &[Tool] = &[Tool::Publish];
const SUB: &[Tool] = &[Tool::Subscribe];
const RR: &[Tool] = &[Tool::Request];
const PUB_RR: &[Tool] = &[Tool::Publish, Tool::Request];
const SUB_RR: &[Tool] = &[Tool::Subscribe, Tool::Request];

const fn argument(name: &'static str, missing: &'static str) -> Argument {
    Argument { name, missing }
}

/// A whole number in these bounds, or this failure.
fn number<N: std::str::FromStr>(text: &str, otherwise: impl FnOnce() -> Failure) -> Result<N, Failure> {
    text.trim().parse().map_err(|_| otherwise())
}

/// A QoS, for this error.
fn qos(text: &str, otherwise: impl FnOnce() -> Failure) -> Result<client::Qos, Failure> {
    let level = text.trim().parse().ok().and_then(client::Qos::from_level);
    level.ok_or_else(otherwise)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_name_stands_for_two_flags_of_a_tool() {
        for tool in Tool::ALL {
            let names: Vec<_> = of(tool).flat_map(|flag| flag.names).collect();
            let distinct: HashSet<_> = names.iter().collect();
            assert_eq!(names.len(), distinct.len(), "{tool:?}: {names:?}");
        }
    }
}
