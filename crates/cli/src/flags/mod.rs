//! The table of flags. Each flag is defined once, for the parser, the help and the comparison with Mosquitto's clients.

mod connection;
mod messages;
mod nearest;
mod output;
mod security;

use std::path::Path;

use crate::failure::Failure;
use crate::settings::{Settings, Tool};

/// A flag: its names, its argument, its effect and its help text.
pub(crate) struct Flag {
    /// All names, the short one first.
    pub(crate) names: &'static [&'static str],
    pub(crate) tools: &'static [Tool],
    pub(crate) takes: Takes,
    pub(crate) help: &'static str,
}

/// Argument of a flag, and the function that applies the flag.
#[derive(Clone, Copy)]
pub(crate) enum Takes {
    Nothing(fn(&mut Settings) -> Result<(), Failure>),
    /// A UTF-8 string, as MQTT requires.
    Text(Argument, fn(&mut Settings, &str) -> Result<(), Failure>),
    /// A path, which may contain any bytes.
    Path(Argument, fn(&mut Settings, &Path) -> Result<(), Failure>),
    /// A value of any bytes.
    Bytes(Argument, fn(&mut Settings, &[u8]) -> Result<(), Failure>),
    /// `-D`: a command, a property, and its value, or its name and value.
    Property,
}

/// Names of a flag's argument.
#[derive(Clone, Copy)]
pub(crate) struct Argument {
    /// Name in the help.
    pub(crate) name: &'static str,
    /// Error text for a missing argument, such as `-h argument given but no host specified`.
    pub(crate) missing: &'static str,
}

/// Flags that share a heading in the help.
pub(crate) struct Section {
    pub(crate) heading: &'static str,
    pub(crate) flags: &'static [Flag],
}

/// All flags, in the order of the help.
pub(crate) const SECTIONS: &[Section] = &[
    Section { heading: "Connection", flags: connection::WHERE },
    Section { heading: "Message", flags: messages::PUBLISH },
    Section { heading: "Subscription", flags: messages::SUBSCRIBE },
    Section { heading: "Output", flags: output::PRINT },
    Section { heading: "End of the program", flags: output::END },
    Section { heading: "Client and session", flags: connection::WHO },
    Section {
        heading: "Will: the message that the broker publishes if this program dies",
        flags: connection::WILL,
    },
    Section { heading: "Encryption", flags: security::TLS },
    Section { heading: "Help and diagnosis", flags: output::HELP },
    Section { heading: "Flags of Mosquitto's clients that are refused here", flags: security::REFUSED },
];

/// Finds a flag of a tool by its name.
pub(crate) fn find(tool: Tool, name: &str) -> Option<&'static Flag> {
    of(tool).find(|flag| flag.names.contains(&name))
}

/// Iterates over the flags of a tool.
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

/// Parses a whole number within the bounds of its type.
fn number<N: std::str::FromStr>(text: &str, otherwise: impl FnOnce() -> Failure) -> Result<N, Failure> {
    text.trim().parse().map_err(|_| otherwise())
}

/// Parses a QoS, which is 0, 1 or 2. `otherwise` is the text of the error.
fn qos(text: &str, otherwise: impl FnOnce() -> String) -> Result<client::Qos, Failure> {
    let level = text.trim().parse().ok().and_then(client::Qos::from_level);
    level.ok_or_else(|| Failure::usage(otherwise()).advise("A QoS is 0, 1 or 2."))
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
