//! `--help`, generated from the table of flags.

use std::fmt::Write;

use crate::flags::{Argument, Flag, SECTIONS, Takes};
use crate::settings::Tool;

/// Column at which the text about a flag begins.
const COLUMN: usize = 30;

/// The help of a tool.
#[must_use]
pub fn help(tool: Tool) -> String {
    let mut text = String::from(about(tool));
    for section in SECTIONS {
        let flags = section.flags.iter().filter(|flag| flag.tools.contains(&tool));
        let mut heading = Some(section.heading);
        for flag in flags {
            if let Some(heading) = heading.take() {
                let _ = write!(text, "\n{heading}:\n");
            }
            write_flag(flag, &mut text);
        }
    }
    let _ = write!(text, "\n{}", EXIT_CODES);
    let _ = writeln!(
        text,
        "\nDefaults: one flag with its value on each line of $XDG_CONFIG_HOME/mosquitto_{0}, or\n\
         ~/.config/mosquitto_{0}; lines that begin with # are comments.\n\
         Environment: PONDHAWK_HOST, _PORT, _USERNAME, _PASSWORD, _CAFILE, _CAPATH, _CERT, _KEY, _PROFILE.\n\
         The flags are those of mosquitto_{0}. docs/CLI.md explains more.",
        tool.name()
    );
    text
}

fn write_flag(flag: &Flag, text: &mut String) {
    let argument = match flag.takes {
        Takes::Nothing(_) => String::new(),
        Takes::Text(argument, _) | Takes::Path(argument, _) | Takes::Bytes(argument, _) => {
            format!(" {}", argument.name)
        }
        Takes::Property => " PACKET NAME VALUE".to_owned(),
    };
    let indent = if flag.names[0].starts_with("--") { "      " } else { "  " };
    let names = format!("{indent}{}{argument}", flag.names.join(", "));
    let mut lines = flag.help.lines();
    let first = lines.next().unwrap_or_default();
    if names.len() < COLUMN {
        let _ = writeln!(text, "{names:COLUMN$}{first}");
    } else {
        let _ = writeln!(text, "{names}\n{:COLUMN$}{first}", "");
    }
    for line in lines {
        let _ = writeln!(text, "{:COLUMN$}{line}", "");
    }
}

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    failure; standard error has the reason
  7    the connection was lost
  27   the time is over (-W)
  else the broker's reason for refusing the connection: 1 to 5, or from 128 with MQTT 5
";

/// The command line of a tool as clap describes it, for completions and manual pages.
///
/// The tool parses its words itself, because clap cannot express all of its rules.
#[must_use]
pub fn command(tool: Tool) -> clap::Command {
    let mut lines = about(tool).splitn(2, "\n\n");
    let mut command = clap::Command::new(tool.name())
        .about(lines.next().unwrap_or_default())
        .after_help(format!("{}\n{EXIT_CODES}", lines.next().unwrap_or_default()))
        .disable_help_flag(true);
    for section in SECTIONS {
        let flags = section.flags.iter().filter(|flag| flag.tools.contains(&tool));
        command = command.args(flags.map(|flag| argument(flag).help_heading(section.heading)));
    }
    command
}

/// A flag as clap describes it.
fn argument(flag: &Flag) -> clap::Arg {
    let id = flag.names.first().copied().unwrap_or_default();
    let mut argument = clap::Arg::new(id).help(flag.help.replace('\n', " "));
    for name in flag.names {
        argument = match (name.strip_prefix("--"), name.strip_prefix('-').and_then(single)) {
            (Some(long), _) if argument.get_long().is_none() => argument.long(long),
            (Some(long), _) => argument.visible_alias(long),
            (None, Some(short)) if argument.get_short().is_none() => argument.short(short),
            (None, Some(short)) => argument.visible_short_alias(short),
            (None, None) => argument,
        };
    }
    let of_value = |argument: clap::Arg, value: Argument| {
        argument.action(clap::ArgAction::Append).value_name(value.name)
    };
    match flag.takes {
        Takes::Nothing(_) => argument.action(clap::ArgAction::Count),
        Takes::Path(value, _) => of_value(argument, value).value_hint(clap::ValueHint::AnyPath),
        Takes::Text(value, _) => of_value(argument, value),
        Takes::Bytes(value, _) => of_value(argument, value),
        Takes::Property => {
            let names = ["PACKET", "PROPERTY", "VALUE"];
            argument.action(clap::ArgAction::Append).num_args(3..=4).value_names(names)
        }
    }
}

/// The only character of a text.
fn single(text: &str) -> Option<char> {
    let mut characters = text.chars();
    characters.next().filter(|_| characters.next().is_none())
}

fn about(tool: Tool) -> &'static str {
    match tool {
        Tool::Publish => {
            "\
Publish a message, or many

Usage: pondhawk pub -t TOPIC {-m MESSAGE | -f FILE | -l | -n} [FLAGS]

Examples:
  pondhawk pub -t pond/frog -m croak              one message, to this machine
  pondhawk pub -h broker -t pond/depth -m 2.1 -r  the broker keeps it for who comes later
  seq 1000 | pondhawk pub -t count -q 1 -l        a message for each line
  pondhawk pub -L mqtts://ann:secret@broker/pond/frog -f frog.jpg
"
        }
        Tool::Subscribe => {
            "\
Subscribe, and print the messages that come

Usage: pondhawk sub -t FILTER [-t FILTER]… [FLAGS]

Examples:
  pondhawk sub -t 'pond/#' -v                     everything below pond, with its topics
  pondhawk sub -t pond/depth -C 1                 one message, and end
  pondhawk sub -t '#' --json | jq .topic          for scripts
  pondhawk sub -t pond/+ -F '%I %t: %p'           in a format of your own
  pondhawk sub -t '#' --stats > /dev/null         how much is going on?
"
        }
        Tool::Request => {
            "\
Send a request, and print the answer

Usage: pondhawk rr -t TOPIC -e TOPIC {-m MESSAGE | -f FILE | -n} [FLAGS]

Examples:
  pondhawk rr -t pond/ask -e pond/answer/7 -m 'how deep?' -W 5
"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags;

    #[test]
    fn every_flag_is_in_the_description_for_clap() {
        for tool in Tool::ALL {
            let command = command(tool);
            command.clone().debug_assert();
            let mut words = Vec::new();
            for argument in command.get_arguments() {
                let longs = argument.get_long_and_visible_aliases().unwrap_or_default();
                words.extend(longs.into_iter().map(|long| format!("--{long}")));
                let shorts = argument.get_short_and_visible_aliases().unwrap_or_default();
                words.extend(shorts.into_iter().map(|short| format!("-{short}")));
            }
            for name in flags::of(tool).flat_map(|flag| flag.names) {
                assert!(words.iter().any(|word| word == name), "{tool:?} has no {name}");
            }
        }
    }

    #[test]
    fn every_flag_is_in_the_help_and_no_line_is_too_long() {
        for tool in Tool::ALL {
            let help = help(tool);
            for name in flags::of(tool).flat_map(|flag| flag.names) {
                assert!(help.contains(name), "{name} is missing in:\n{help}");
            }
            for line in help.lines() {
                assert!(line.chars().count() <= 110, "{line}");
            }
        }
    }
}
