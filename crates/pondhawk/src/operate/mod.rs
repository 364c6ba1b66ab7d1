//! `pondhawk ctl` and `pondhawk explain`: the API for operators on the command line.

mod client;
mod table;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use client::{Server, encode};
use table::Columns;

/// The kinds of bans.
const KINDS: [&str; 3] = ["client_id", "user", "address"];
/// Items that one request asks for.
const PIECE: usize = 1_000;

/// The server, and the form of the output.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// Configuration file of the broker, which names the server and its token
    #[arg(short, long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// Address of the admin server [default: that of the configuration, or 127.0.0.1:9883]
    #[arg(long, value_name = "HOST:PORT", global = true)]
    pub(crate) admin: Option<String>,
    /// File whose first line is a token [default: `admin_token_file`, or the generated one in `data_dir`]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) token_file: Option<PathBuf>,
    /// Print JSON, for scripts
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CtlArguments {
    #[command(subcommand)]
    command: CtlCommand,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArguments {
    /// Client identifier of the publisher
    #[arg(long, value_name = "CLIENT")]
    publisher: String,
    /// Topic of the message
    #[arg(short, long)]
    topic: String,
    /// Client identifier of the subscriber
    #[arg(long, value_name = "CLIENT")]
    subscriber: String,
    /// QoS of the message
    #[arg(short, long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=2))]
    qos: u8,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Subcommand)]
enum CtlCommand {
    /// Show whether everything is fine
    Status,
    /// List clients: connected ones, then lasting sessions without a connection
    Clients {
        /// Only clients whose identifier, user or address has this text in it
        #[arg(value_name = "TEXT")]
        text: Option<String>,
        /// Only sessions whose clients are not connected
        #[arg(long)]
        disconnected: bool,
        /// The most clients to list
        #[arg(long, default_value_t = PIECE)]
        limit: usize,
    },
    /// Show one client, with its session
    Client {
        /// Client identifier, as CONNECT has it
        client: String,
    },
    /// List the subscriptions of a client
    Subscriptions {
        /// Client identifier, as CONNECT has it
        client: String,
    },
    /// Disconnect a client; its session stays if it lasts, and its will is published
    Disconnect {
        /// Client identifier, as CONNECT has it
        client: String,
    },
    /// Disconnect a client, and end its session with subscriptions and queue
    EndSession {
        /// Client identifier, as CONNECT has it
        client: String,
    },
    /// List retained messages that match a filter
    Retained {
        /// Topic filter of the messages
        #[arg(default_value = "#")]
        filter: String,
        /// The most messages to list
        #[arg(long, default_value_t = PIECE)]
        limit: usize,
    },
    /// Clear the retained message of a topic
    Clear {
        /// Topic name, without wildcards
        topic: String,
    },
    /// Publish a message of the broker itself
    Publish {
        /// Topic name, without wildcards
        topic: String,
        /// Payload of the message, as text
        payload: String,
        /// QoS of the message
        #[arg(short, long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=2))]
        qos: u8,
        /// Make it the retained message of the topic
        #[arg(short, long)]
        retain: bool,
    },
    /// Keep clients out, and disconnect those that are connected
    Ban {
        /// The kind of the ban
        #[arg(value_parser = KINDS)]
        kind: String,
        /// Client identifier, user name, address, or network such as 192.0.2.0/24
        value: String,
        /// Duration of the ban [default: without end]
        #[arg(short, long, value_name = "N")]
        seconds: Option<u64>,
        /// Reason, for other operators
        #[arg(short, long, default_value = "")]
        reason: String,
    },
    /// Lift a ban before its end
    LiftBan {
        /// The kind of the ban
        #[arg(value_parser = KINDS)]
        kind: String,
        /// The value, as `bans` lists it
        value: String,
    },
    /// List bans, the next to end first
    Bans,
    /// List the listeners with the number of their connections
    Listeners,
    /// Show figures whose topics below $SYS/broker/ have a text in them
    Counters {
        /// The text, such as `dropped`
        #[arg(default_value = "")]
        text: String,
    },
    /// Print the configuration in force
    Config,
    /// Read configuration, certificates, users and rules again
    Reload,
}

/// Runs `pondhawk ctl`, and reports an error.
pub(crate) fn ctl(arguments: &CtlArguments) -> ExitCode {
    finish(Server::find(&arguments.place).and_then(|server| run(&server, arguments)))
}

/// Runs `pondhawk explain`, and reports an error.
pub(crate) fn explain(arguments: &ExplainArguments) -> ExitCode {
    let ExplainArguments { publisher, topic, subscriber, qos, place } = arguments;
    let [publisher, topic, subscriber] = [publisher, topic, subscriber].map(|text| encode(text));
    let path =
        format!("/api/v1/explain?publisher={publisher}&topic={topic}&subscriber={subscriber}&qos={qos}");
    let explained = || {
        let body = Server::find(place)?.send("GET", &path, None)?;
        if place.json {
            return print(&body);
        }
        let value: Value = serde_json::from_str(&body)?;
        let texts = |name: &str| value[name].as_array().cloned().unwrap_or_default();
        let mut text = String::new();
        for step in texts("steps") {
            text.push_str(&format!("- {}\n", table::on_terminal(step.as_str().unwrap_or_default())));
        }
        let outcome = value["outcome"].as_str().unwrap_or_default().replace('-', " ");
        let reason = value["reason"].as_str().unwrap_or_default();
        text.push_str(&format!("=> {} ({})\n", table::on_terminal(&outcome), table::on_terminal(reason)));
        print(&text)
    };
    finish(explained())
}

fn finish(outcome: io::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => crate::fail(&format!("error: {error}")),
    }
}

fn print(text: &str) -> io::Result<()> {
    io::stdout().write_all(text.as_bytes())
}

fn run(server: &Server, arguments: &CtlArguments) -> io::Result<()> {
    let is_json = arguments.place.json;
    let of_client = |client: &str| format!("/api/v1/clients/{}", encode(client));
    let one = |method: &str, path: &str, body: Option<&Value>| {
        let body = server.send(method, path, body)?;
        if is_json { print(&body) } else { print(&table::fields(&serde_json::from_str(&body)?)) }
    };
    let list = |path: &str, (name, columns): (&str, Columns), limit: usize| {
        let items = read_list(server, path, name, limit)?;
        if is_json {
            print(&format!("{}\n", Value::Array(items)))
        } else {
            print(&table::list(&items, columns))
        }
    };
    match &arguments.command {
        CtlCommand::Status => one("GET", "/api/v1/status", None),
        CtlCommand::Clients { text, disconnected, limit } => {
            let only = if *disconnected { "&connected=false" } else { "" };
            let text = encode(text.as_deref().unwrap_or_default());
            list(&format!("/api/v1/clients?match={text}{only}"), ("clients", table::CLIENTS), *limit)
        }
        CtlCommand::Client { client } => one("GET", &of_client(client), None),
        CtlCommand::Subscriptions { client } => {
            let path = format!("{}/subscriptions?", of_client(client));
            list(&path, ("subscriptions", table::SUBSCRIPTIONS), usize::MAX)
        }
        CtlCommand::Disconnect { client } => {
            one("DELETE", &format!("{}/connection", of_client(client)), None)
        }
        CtlCommand::EndSession { client } => one("DELETE", &of_client(client), None),
        CtlCommand::Retained { filter, limit } => list(
            &format!("/api/v1/retained?filter={}", encode(filter)),
            ("retained", table::RETAINED),
            *limit,
        ),
        CtlCommand::Clear { topic } => one("DELETE", &format!("/api/v1/retained/{}", encode(topic)), None),
        CtlCommand::Publish { topic, payload, qos, retain } => {
            let body = json!({ "topic": topic, "payload": payload, "qos": qos, "retain": retain });
            one("POST", "/api/v1/publish", Some(&body))
        }
        CtlCommand::Ban { kind, value, seconds, reason } => {
            let body = json!({ "kind": kind, "value": value, "seconds": seconds, "reason": reason });
            one("POST", "/api/v1/bans", Some(&body))
        }
        CtlCommand::LiftBan { kind, value } => {
            one("DELETE", &format!("/api/v1/bans/{}/{}", encode(kind), encode(value)), None)
        }
        CtlCommand::Bans => list("/api/v1/bans?", ("bans", table::BANS), usize::MAX),
        CtlCommand::Listeners => list("/api/v1/listeners?", ("listeners", table::LISTENERS), usize::MAX),
        CtlCommand::Counters { text } => {
            let all: Value = serde_json::from_str(&server.send("GET", "/api/v1/counters", None)?)?;
            let fields = all.as_object().into_iter().flatten().filter(|(topic, _)| topic.contains(text));
            let found = Value::Object(fields.map(|(topic, value)| (topic.clone(), value.clone())).collect());
            if is_json { print(&format!("{found}\n")) } else { print(&table::fields(&found)) }
        }
        CtlCommand::Config => {
            let body = server.send("GET", "/api/v1/configuration", None)?;
            let value: Value = serde_json::from_str(&body)?;
            if is_json { print(&body) } else { print(value["toml"].as_str().unwrap_or_default()) }
        }
        CtlCommand::Reload => one("POST", "/api/v1/reload", None),
    }
}

/// Reads a list piece by piece, up to `limit` items. `path` has a query.
fn read_list(server: &Server, path: &str, name: &str, limit: usize) -> io::Result<Vec<Value>> {
    let (mut items, mut cursor) = (Vec::new(), String::new());
    while items.len() < limit {
        let piece = PIECE.min(limit - items.len());
        let body = server.send("GET", &format!("{path}&limit={piece}{cursor}"), None)?;
        let mut value: Value = serde_json::from_str(&body)?;
        if let Value::Array(found) = value[name].take() {
            items.extend(found);
        }
        match value["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={}", encode(next)),
            None => break,
        }
    }
    items.truncate(limit);
    Ok(items)
}
