//! The command line. Flags have Mosquitto's letters where it has them.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand};
use cli::Tool;
use config::{Flags, ListenAddress};

/// An MQTT broker for 3.1, 3.1.1 and 5.0.
///
/// Without a command and without flags it serves on 127.0.0.1:1883, for clients of this machine only.
#[derive(Debug, Parser)]
#[command(name = "pondhawk", version, args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) serve: ServeArguments,
}

const EXAMPLES: &str = "\
Examples:
  pondhawk                       serve on 127.0.0.1:1883
  pondhawk -p 1884               serve on another port
  pondhawk -c pondhawk.toml      serve as a file says
  pondhawk check pondhawk.toml   is the file good, and what does it come to?
  pondhawk serve --help          every flag, and every key of the file

Try it, in two other terminals:
  pondhawk sub -t 'pond/#' -v
  pondhawk pub -t pond/frog -m croak";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the broker (what happens without a command)
    #[command(after_long_help = keys())]
    Serve(ServeArguments),
    /// Publish a message, or many: with the flags of mosquitto_pub
    #[command(disable_help_flag = true, override_help = cli::help(Tool::Publish))]
    Pub(ToolArguments),
    /// Subscribe, and print the messages that come: with the flags of mosquitto_sub
    #[command(disable_help_flag = true, override_help = cli::help(Tool::Subscribe))]
    Sub(ToolArguments),
    /// Send a request, and print the answer: with the flags of mosquitto_rr
    #[command(disable_help_flag = true, override_help = cli::help(Tool::Request))]
    Rr(ToolArguments),
    /// Find out what a broker can do: measured, beside what it says of itself
    Probe(cli::ProbeArgs),
    /// Stand between clients and a broker, and print each packet on a line
    Tap(cli::TapArgs),
    /// Check a configuration file and print it with every default filled in
    ///
    /// Says everything that is wrong with the file, with its line and the nearest key that exists, and exits with 1;
    /// or prints what the broker would work with on this machine, as a file again, and exits with 0.
    #[command(after_long_help = keys())]
    Check {
        /// The configuration file
        file: PathBuf,
    },
    /// Look after a data directory: is it whole, what is in it, a copy of it
    #[command(subcommand)]
    Journal(JournalCommand),
    /// Load tests, for this broker and any other
    Bench(bench::BenchArgs),
}

/// What follows the name of a tool, which reads it itself.
#[derive(Debug, Args)]
pub(crate) struct ToolArguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<OsString>,
}

/// How a command about a data directory ends.
const EXIT_CODES: &str = "\
Exit codes:
  0  done; the journal is whole
  1  the journal is damaged
  2  this could not be done or found out: no journal there, in use, not readable";

#[derive(Debug, Subcommand)]
pub(crate) enum JournalCommand {
    /// Read everything, and say whether it is as it was written
    ///
    /// Changes nothing. A write that was under way when the broker ended is no damage: nothing in it was acknowledged,
    /// and the next start cuts it off. No broker may be running on the directory.
    #[command(after_long_help = EXIT_CODES)]
    Check {
        /// The data directory
        dir: PathBuf,
    },
    /// Give up what is damaged, so that the broker starts with the rest
    ///
    /// Without --discard-damaged it only says where the first damage is. Make a copy of the directory first: what is given
    /// up is gone, and who was told that it is safe is not told otherwise. No broker may be running on the directory.
    #[command(after_long_help = EXIT_CODES)]
    Repair {
        /// Do it: the messages and changes in damaged parts are lost
        #[arg(long)]
        discard_damaged: bool,
        /// The data directory
        dir: PathBuf,
    },
    /// Print what is in it: sessions, queues, groups, retained messages, wills, files
    ///
    /// Changes nothing. It is what a broker would start with, and takes as much memory as a broker would. Inspect a
    /// backup where a broker is running.
    #[command(after_long_help = EXIT_CODES)]
    Inspect {
        /// As JSON, for scripts
        #[arg(long)]
        json: bool,
        /// The data directory
        dir: PathBuf,
    },
    /// Copy it to a new directory that a broker can start on, while a broker is running
    ///
    /// The copy has everything that was acknowledged before the copy began. It is checked before this ends; until then
    /// no broker starts on it.
    #[command(after_long_help = EXIT_CODES)]
    Backup {
        /// The data directory
        dir: PathBuf,
        /// Where to: a directory that is empty or not there yet
        to: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// Read this configuration file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Listen on this port; without a file on 127.0.0.1 only. 0 takes a free port
    #[arg(short, long, value_name = "PORT", conflicts_with = "listen")]
    port: Option<u16>,
    /// Listen on this address instead of the file's; may be given several times
    #[arg(long, value_name = "HOST:PORT")]
    listen: Vec<ListenAddress>,
    /// Let everybody who reaches an address publish and subscribe, even from other machines
    #[arg(long)]
    allow_anonymous: bool,
    /// Directory for what survives a restart, in place of the file's
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Write nothing to disk: a restart forgets everything
    #[arg(long, conflicts_with = "data_dir")]
    in_memory: bool,
    /// Log more: -v also what clients subscribe to, -vv whatever there is
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,
}

impl From<ServeArguments> for Flags {
    fn from(arguments: ServeArguments) -> Self {
        let ServeArguments { config: _, port, listen, allow_anonymous, data_dir, in_memory, verbose } =
            arguments;
        Self { port, listen, allow_anonymous, data_dir, in_memory, verbose }
    }
}

fn keys() -> String {
    format!("Keys of the configuration file (docs/CONFIGURATION.md):\n{}", config::help())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn flags(line: &str) -> Result<Flags, clap::Error> {
        let arguments = Arguments::try_parse_from(line.split_whitespace())?;
        Ok(match arguments.command {
            Some(Command::Serve(serve)) => serve.into(),
            _ => arguments.serve.into(),
        })
    }

    #[test]
    fn the_definitions_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn serve_is_what_happens_without_a_command() {
        for line in ["pondhawk -p 1 -vv --data-dir /d", "pondhawk serve -p 1 -vv --data-dir /d"] {
            let flags = flags(line).unwrap();
            assert_eq!((flags.port, flags.verbose), (Some(1), 2), "{line}");
            assert_eq!(flags.data_dir, Some(PathBuf::from("/d")), "{line}");
        }
    }

    #[test]
    fn several_addresses_can_be_listened_on() {
        let flags = flags("pondhawk --listen 127.0.0.1:1 --listen [::1]:2 --allow-anonymous").unwrap();
        assert_eq!(flags.listen.len(), 2);
        assert!(flags.allow_anonymous);
    }

    #[test]
    fn a_tool_gets_every_word_as_it_is() {
        for words in [&["-h", "host", "--help", "-V"][..], &["-m", "--", "-t"], &[]] {
            let line = [&["pondhawk", "sub"], words].concat();
            let Some(Command::Sub(arguments)) = Arguments::try_parse_from(line).unwrap().command else {
                panic!("{words:?} is not for the tool");
            };
            assert_eq!(arguments.words, words);
        }
    }

    #[test]
    fn flags_that_contradict_each_other_or_mean_nothing_are_refused() {
        for line in
            ["pondhawk -p 1 --listen 127.0.0.1:2", "pondhawk --listen ::1", "pondhawk -p 65536", "pondhawk x"]
        {
            assert!(flags(line).is_err(), "{line}");
        }
    }
}
