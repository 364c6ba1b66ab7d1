//! The command line. Flags have the same letters as Mosquitto's, where Mosquitto has such a flag.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use auth::Scheme;
use clap::error::ErrorKind;
use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand};
use cli::Tool;
use config::{Flags, ListenAddress};

use crate::operate::{CtlArguments, ExplainArguments};
use crate::top::TopArguments;

/// An MQTT broker for 3.1, 3.1.1 and 5.0.
///
/// Without a command and without flags, the broker listens on 127.0.0.1:1883, for clients of this machine only.
#[derive(Debug, Parser)]
#[command(name = "pondhawk", version, args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) serve: ServeArguments,
}

impl Arguments {
    /// Reads the words of a command line, of which the first is the program.
    ///
    /// # Errors
    /// A wrong word, or the text that the words ask for, such as help.
    pub(crate) fn of(words: Vec<OsString>) -> Result<Self, clap::Error> {
        Self::try_parse_from(&words).map_err(|error| match error.kind() {
            ErrorKind::DisplayHelp => with_help().try_get_matches_from(words).err().unwrap_or(error),
            _ => error,
        })
    }
}

const EXAMPLES: &str = "\
Examples:
  pondhawk                       serve on 127.0.0.1:1883
  pondhawk -p 1884               serve on another port
  pondhawk -c pondhawk.toml      serve as a file says
  pondhawk -c mosquitto.conf     serve as a file of Mosquitto says
  pondhawk check pondhawk.toml   is the file good, and what does it come to?
  pondhawk serve --help          every flag, and every key of the file

Try it, in two other terminals:
  pondhawk sub -t 'pond/#' -v
  pondhawk pub -t pond/frog -m croak";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the broker (the default without a command)
    Serve(ServeArguments),
    /// Publish a message, or many: with the flags of mosquitto_pub
    #[command(disable_help_flag = true)]
    Pub(ToolArguments),
    /// Subscribe, and print the received messages: with the flags of mosquitto_sub
    #[command(disable_help_flag = true)]
    Sub(ToolArguments),
    /// Send a request, and print the answer: with the flags of mosquitto_rr
    #[command(disable_help_flag = true)]
    Rr(ToolArguments),
    /// Measure the abilities of a broker, and compare them with its claims
    Probe(cli::ProbeArgs),
    /// Forward bytes between clients and a broker, and print each packet on a line
    Tap(cli::TapArgs),
    /// Play the clients of a recording against a broker, and compare its answers with the recorded ones
    Replay(cli::ReplayArgs),
    /// Check a configuration file and print it with every default filled in
    ///
    /// Reports every error in the file, with its line and the nearest existing key, and exits with 1. Without
    /// errors, prints the complete configuration for this machine, again as a file, and exits with 0. For a file of
    /// Mosquitto, prints the same configuration in TOML, with a remark on each line whose meaning changes.
    Check(CheckArguments),
    /// Show where each value of the configuration comes from, and explain keys
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Make a data directory of Mosquitto's database, mosquitto.db or mosquitto.sqlite3
    ///
    /// Takes over sessions, subscriptions, queued and retained messages, and prints how many. The database stays as it is. If
    /// anything is wrong with it, nothing is made.
    Import {
        /// File of Mosquitto, such as /var/lib/mosquitto/mosquitto.db
        file: PathBuf,
        /// Data directory to make [default: `pondhawk` beside the database]
        #[arg(long, value_name = "DIR")]
        to: Option<PathBuf>,
        /// Also take a database that Mosquitto wrote before its end, without the changes behind it
        #[arg(long)]
        snapshot: bool,
    },
    /// Maintain a data directory: check it, print its contents, copy it
    #[command(subcommand)]
    Journal(JournalCommand),
    /// Make certificates for a network of one's own, and explain any certificate
    #[command(subcommand)]
    Certs(CertsCommand),
    /// Change a password file: with the flags of mosquitto_passwd
    ///
    /// Without -b, asks for the password, or reads it from standard input if that is no terminal.
    Passwd(PasswdArguments),
    /// Add and remove users of a configuration
    #[command(subcommand)]
    User(UserCommand),
    /// Find out the rule that allows or denies a topic
    #[command(subcommand)]
    Acl(AclCommand),
    /// Administer a running broker: clients, sessions, retained messages, configuration
    ///
    /// The broker needs `address` in the table [admin] of its configuration. With -c FILE, the command finds the address and the
    /// token there.
    Ctl(Box<CtlArguments>),
    /// Explain why a message reaches a subscriber of a running broker, or does not
    ///
    /// Follows the path of the message: rules, filters, QoS, No Local, connection, queue. Names filters that nearly match.
    Explain(Box<ExplainArguments>),
    /// Watch a running broker: rates, memory, warnings and its busiest shards
    ///
    /// q ends the view. Without a terminal, it prints once.
    Top(Box<TopArguments>),
    /// Load tests, for this broker and any other
    Bench(Box<bench::BenchArgs>),
    Shootout(Box<bench::ShootoutArgs>),
    /// Print the completions of this program for a shell
    Completions {
        /// The shell that will read them
        shell: clap_complete::Shell,
    },
    /// Write the manual pages of this program and of its commands into a directory
    Man {
        /// An existing directory, such as /usr/local/share/man/man1
        dir: PathBuf,
    },
}

const TOOLS: [Tool; 3] = [Tool::Publish, Tool::Subscribe, Tool::Request];

/// The command line with the help of the tools that parse their words themselves.
fn with_help() -> clap::Command {
    with_long_texts(|command, tool| command.override_help(cli::help(tool)))
}

/// The whole command line, with the flags of these tools.
pub(crate) fn described() -> clap::Command {
    with_long_texts(|_, tool| cli::command(tool))
}

/// The command line with the keys of the configuration in the help of two commands, and with these commands of the tools. Making
/// the texts takes longer than the rest of a start. They are therefore made only for somebody who reads them.
fn with_long_texts(of_tool: fn(clap::Command, Tool) -> clap::Command) -> clap::Command {
    let keys = format!("Keys of the configuration file (docs/CONFIGURATION.md):\n{}", config::help());
    Arguments::command().mut_subcommands(|command| match command.get_name() {
        "serve" | "check" => command.after_long_help(keys.clone()),
        name => match TOOLS.into_iter().find(|tool| tool.name() == name) {
            Some(tool) => of_tool(command, tool),
            None => command,
        },
    })
}

/// The words after the name of a tool, which parses them itself.
#[derive(Debug, Args)]
pub(crate) struct ToolArguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct PasswdArguments {
    /// Take the password from the command line, where other users of the machine can see it
    #[arg(short)]
    pub(crate) batch: bool,
    /// Make a new file; an existing one is replaced
    #[arg(short, conflicts_with_all = ["delete", "upgrade"])]
    pub(crate) create: bool,
    /// Delete the user instead of changing the password
    #[arg(short = 'D', conflicts_with_all = ["batch", "upgrade"])]
    pub(crate) delete: bool,
    /// Replace all passwords in plain text by their hashes
    #[arg(short = 'U', conflicts_with_all = ["batch", "name"])]
    pub(crate) upgrade: bool,
    /// Hash of new passwords
    #[arg(short = 'H', value_name = "HASH", default_value = "argon2id")]
    pub(crate) hash: HashName,
    /// Rounds of the hash: by default 101 of sha512-pbkdf2, as in Mosquitto, and 600,000 of scram-sha-256
    #[arg(short = 'I', value_name = "ROUNDS", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) iterations: Option<u32>,
    /// Password file, one `name:hash` on a line
    pub(crate) file: PathBuf,
    /// Name of the user whose line is changed
    pub(crate) name: Option<String>,
    /// Password of the user, only with -b
    pub(crate) password: Option<String>,
}

/// A hash of passwords.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum HashName {
    /// Argon2id, which Mosquitto 2.1 reads if it was built with it
    Argon2id,
    /// PBKDF2 with SHA-512, which Mosquitto 2 reads
    Sha512Pbkdf2,
    /// The keys of SCRAM-SHA-256, which Mosquitto does not read
    #[value(name = "scram-sha-256")]
    ScramSha256,
    /// One SHA-512, which every Mosquitto reads, and which is easy to guess
    Sha512,
}

impl HashName {
    /// The scheme, with this number of rounds or the usual one, if it has rounds.
    pub(crate) fn scheme(self, rounds: Option<u32>) -> Scheme {
        match self {
            Self::Argon2id => Scheme::DEFAULT,
            Self::Sha512Pbkdf2 => rounds.map_or(Scheme::MOSQUITTO, |rounds| Scheme::Pbkdf2 { rounds }),
            Self::ScramSha256 => Scheme::ScramSha256 { rounds: rounds.unwrap_or(Scheme::SCRAM_ROUNDS) },
            Self::Sha512 => Scheme::Sha512,
        }
    }
}

/// Default name of a configuration file.
const CONFIG: &str = "pondhawk.toml";

#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Add a user, or give a user another password
    ///
    /// Asks for the password, or reads it from standard input if that is no terminal. If the configuration names no
    /// password file, makes one beside it, and adds the line that names it. A configuration that is not there is made.
    Add {
        /// Name of the user, without a colon
        name: String,
        /// Configuration file of the broker
        #[arg(short, long, value_name = "FILE", default_value = CONFIG)]
        config: PathBuf,
    },
    /// Remove a user from the password file
    Remove {
        /// Name of the user, without a colon
        name: String,
        /// Configuration file of the broker
        #[arg(short, long, value_name = "FILE", default_value = CONFIG)]
        config: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum AclCommand {
    /// Ask whether a client may use a topic, and name the rule that decides
    ///
    /// The exit code is 0 if the client may, 1 if not, and 2 if there is no answer.
    Test(AclQuestion),
}

#[derive(Debug, Args)]
pub(crate) struct AclQuestion {
    /// Configuration file of the broker
    #[arg(short, long, value_name = "FILE", default_value = CONFIG)]
    pub(crate) config: PathBuf,
    /// Listener whose rules are asked, instead of those of [auth]
    #[arg(short, long, value_name = "HOST:PORT")]
    pub(crate) listener: Option<ListenAddress>,
    /// File with rules, instead of those of a configuration
    #[arg(long, value_name = "FILE", conflicts_with_all = ["config", "listener"])]
    pub(crate) acl_file: Option<PathBuf>,
    /// File with our own rules, instead of those of a configuration
    #[arg(long, value_name = "FILE", conflicts_with_all = ["config", "listener", "acl_file"])]
    pub(crate) rules_file: Option<PathBuf>,
    /// File of dynamic security, instead of that of a configuration
    #[arg(long, value_name = "FILE", conflicts_with_all = ["config", "listener"])]
    pub(crate) dynamic_security_file: Option<PathBuf>,
    /// User name; without one the client is anonymous
    #[arg(short, long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// Group that the client's token names; may be given several times
    #[arg(short, long = "group", value_name = "NAME", requires = "user")]
    pub(crate) groups: Vec<String>,
    /// Client identifier, which patterns with %c ask for
    #[arg(short = 'i', long, value_name = "ID", default_value = "")]
    pub(crate) client_id: String,
    /// QoS of the message that the client publishes
    #[arg(short, long, value_name = "QOS", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=2))]
    pub(crate) qos: u8,
    /// Ask about a message that is to be retained
    #[arg(short, long)]
    pub(crate) retain: bool,
    #[command(flatten)]
    pub(crate) topic: AclTopic,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct AclTopic {
    /// Topic that the client publishes to, whole, with mount point and topic prefix
    #[arg(long, value_name = "TOPIC")]
    pub(crate) publish: Option<String>,
    /// Topic of a message that the client receives
    #[arg(long, value_name = "TOPIC")]
    pub(crate) receive: Option<String>,
    /// Filter that the client subscribes to. An acl_file says nothing about that
    #[arg(long, value_name = "FILTER")]
    pub(crate) subscribe: Option<String>,
    /// Filter of a subscription that the client ends
    #[arg(long, value_name = "FILTER")]
    pub(crate) unsubscribe: Option<String>,
}

/// Exit codes of the commands about a data directory.
const EXIT_CODES: &str = "\
Exit codes:
  0  done; the journal is whole
  1  the journal is damaged
  2  this could not be done or found out: no journal there, in use, not readable";

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the whole configuration with the origin of each value: a line of the file, a variable, or the default
    Show {
        /// Configuration file [default: none]
        file: Option<PathBuf>,
    },
    /// Explain a key, such as limits.packet_bytes
    Explain {
        /// The key, with or without its table
        key: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum CertsCommand {
    /// Make an authority and a certificate of the server, and print the configuration that uses them
    ///
    /// Writes ca.pem, ca.key, server.pem and server.key. Existing files are never replaced. Clients are given ca.pem.
    Init {
        /// Directory for the files; it is made if it does not exist
        dir: PathBuf,
        /// Names and addresses by which clients reach the server
        #[arg(long, required = true, num_args = 1..)]
        host: Vec<String>,
    },
    /// Make a certificate of a client, signed by the authority in DIR
    ///
    /// Writes NAME.pem and NAME.key. Existing files are never replaced. A client needs both files, and ca.pem.
    Client {
        /// Directory that `certs init` has made
        dir: PathBuf,
        /// Name of the client in the certificate, and of its files
        name: String,
    },
    /// Explain the certificates in a file, or those of a server: for whom, until when, what is wrong
    ///
    /// The certificates of a server are shown as they are, and not checked against any authority.
    Show {
        /// A file in PEM, or HOST:PORT of a server that speaks TLS
        #[arg(value_name = "FILE|HOST:PORT")]
        of: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum JournalCommand {
    /// Read everything, and report any damage
    ///
    /// Changes nothing. A write that the end of the broker interrupted is no damage: nothing in it was
    /// acknowledged, and the next start removes it. No broker may be running on the directory.
    #[command(after_long_help = EXIT_CODES)]
    Check {
        /// Data directory to check
        dir: PathBuf,
    },
    /// Discard damaged parts, so that the broker starts with the rest
    ///
    /// Without --discard-damaged, only reports the first damage. Make a copy of the directory first: discarded
    /// parts are lost, although their publishers were told that they are safe. No broker may be running on the
    /// directory.
    #[command(after_long_help = EXIT_CODES)]
    Repair {
        /// Discard the messages and changes in damaged parts
        #[arg(long)]
        discard_damaged: bool,
        /// Data directory to repair
        dir: PathBuf,
    },
    /// Print the contents of a data directory: sessions, queues, groups, retained messages, wills, files
    ///
    /// Changes nothing. The output is the state with which a broker would start. The command needs as much memory
    /// as a broker. If a broker is running on the directory, inspect a backup.
    #[command(after_long_help = EXIT_CODES)]
    Inspect {
        /// Print JSON, for scripts
        #[arg(long)]
        json: bool,
        /// Data directory to inspect
        dir: PathBuf,
    },
    /// Copy a data directory to a new one that a broker can start on, even while a broker is running
    ///
    /// The copy has everything that was acknowledged before the copy began. The command checks the copy before it
    /// ends; until then no broker starts on it.
    #[command(after_long_help = EXIT_CODES)]
    Backup {
        /// Data directory to copy
        dir: PathBuf,
        /// Target: a directory that is empty or does not exist yet
        to: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    /// Configuration file to check
    #[arg(required_unless_present = "config")]
    file: Option<PathBuf>,
    /// The same file, as other commands take it
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
}

impl CheckArguments {
    /// The configuration file to check.
    pub(crate) fn file(&self) -> &Path {
        self.file.as_deref().or(self.config.as_deref()).expect("the parser asks for one of both")
    }
}

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// Read this configuration file: TOML, or a file of Mosquitto
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Listen on this port; without a file on 127.0.0.1 only. 0 chooses a free port
    #[arg(short, long, value_name = "PORT", conflicts_with = "listen")]
    port: Option<u16>,
    /// Listen on this address instead of the file's; may be given several times
    #[arg(long, value_name = "HOST:PORT")]
    listen: Vec<ListenAddress>,
    /// Let everybody who reaches an address publish and subscribe, even from other machines
    #[arg(long)]
    allow_anonymous: bool,
    /// Directory for data that survives a restart, instead of the file's
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Write nothing to disk: a restart loses all data
    #[arg(long, conflicts_with = "data_dir")]
    in_memory: bool,
    /// Read the configuration again when its files have changed, instead of the file's `watch_interval`; such as 2s
    #[arg(long, value_name = "TIME", value_parser = Flags::parse_watch_interval)]
    watch_interval: Option<Duration>,
    /// Go to the background when clients can connect
    #[arg(short, long)]
    pub(crate) daemon: bool,
    /// Log more: -v also subscriptions, -vv everything
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,
}

impl From<ServeArguments> for Flags {
    fn from(arguments: ServeArguments) -> Self {
        let ServeArguments {
            config: _,
            daemon: _,
            port,
            listen,
            allow_anonymous,
            data_dir,
            in_memory,
            watch_interval,
            verbose,
        } = arguments;
        let environment = crate::environment();
        Self { port, listen, allow_anonymous, data_dir, in_memory, watch_interval, verbose, environment }
    }
}

#[cfg(test)]
mod tests {
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
        described().debug_assert();
        with_help().debug_assert();
    }

    #[test]
    fn help_has_the_long_texts() {
        let help = |line: &str| {
            let asked = Arguments::of(line.split_whitespace().map(OsString::from).collect());
            asked.expect_err("the words ask for help").to_string()
        };
        for line in
            ["pondhawk serve --help", "pondhawk check --help", "pondhawk help serve", "pondhawk help check"]
        {
            assert!(help(line).contains("packet_bytes"), "{line}");
        }
        for tool in TOOLS {
            let line = format!("pondhawk help {}", tool.name());
            assert_eq!(help(&line).trim_end(), cli::help(tool).trim_end());
        }
        assert!(!help("pondhawk serve -h").contains("packet_bytes"));
        for name in ["serve", "check"] {
            let described = described().find_subcommand_mut(name).map(clap::Command::render_long_help);
            assert!(described.is_some_and(|help| help.to_string().contains("packet_bytes")), "{name}");
        }
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
