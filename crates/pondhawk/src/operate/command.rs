//! The subcommands of `pondhawk ctl`, and the requests behind them.

use admin::{LEVELS, LISTS, LOG_LEVELS, PROTOCOLS, STATES};
use clap::Subcommand;
use serde_json::{Value, json};

use super::PIECE;
use super::client::encode;
use super::table::{self, Columns};
use super::trace::TraceArguments;

/// The kinds of bans.
const KINDS: [&str; 3] = ["client_id", "user", "address"];

/// A subcommand of `pondhawk ctl`.
#[derive(Debug, Subcommand)]
pub(super) enum CtlCommand {
    /// Show whether everything is fine
    Status,
    /// Say whether clients are served, or what is missing; needs no token, and fails if anything is missing
    Ready,
    /// List clients: connected ones, then lasting sessions without a connection
    Clients {
        /// Only clients whose identifier, user or address has this text in it
        #[arg(value_name = "TEXT")]
        text: Option<String>,
        /// Only sessions whose clients are not connected
        #[arg(long, conflicts_with_all = ["state", "protocol"])]
        disconnected: bool,
        /// Only connected clients in this state: `full` has no room for messages, and `slow` makes too little progress
        #[arg(long, value_parser = STATES.to_vec())]
        state: Option<String>,
        /// Only connected clients with this version of MQTT
        #[arg(long, value_parser = PROTOCOLS.to_vec())]
        protocol: Option<String>,
        /// The most clients to list
        #[arg(long, default_value_t = PIECE)]
        limit: usize,
    },
    /// List the busiest topics or clients of the last one to two minutes
    Busiest {
        /// `branches` are the first levels of topics; `connects` are clients that connect often, and `refusals` are addresses
        #[arg(default_value = "topics", value_parser = LISTS.to_vec())]
        list: String,
        /// The most items to list
        #[arg(long, default_value_t = 20)]
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
    /// List the messages that wait for a lasting session or a group
    Queue {
        /// Client identifier; with --group, the filter of the group
        #[arg(value_name = "NAME")]
        name: String,
        /// NAME is the filter of a group, such as $share/workers/jobs/#
        #[arg(long)]
        group: bool,
        /// The most messages to list
        #[arg(long, default_value_t = PIECE)]
        limit: usize,
    },
    /// Discard messages that wait for a lasting session or a group
    Discard {
        /// Client identifier; with --group, the filter of the group
        #[arg(value_name = "NAME")]
        name: String,
        /// NAME is the filter of a group, such as $share/workers/jobs/#
        #[arg(long)]
        group: bool,
        /// Topic filter of the messages
        #[arg(long, required_unless_present = "all", conflicts_with = "all")]
        filter: Option<String>,
        /// Take all messages of the queue
        #[arg(long)]
        all: bool,
    },
    /// List groups that share a subscription
    Groups {
        /// Only groups whose filter has this text in it
        #[arg(value_name = "TEXT", default_value = "")]
        text: String,
    },
    /// List the members of a group
    Members {
        /// Filter of the group, such as $share/workers/jobs/#
        filter: String,
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
    /// Clear the retained message of a topic, or of all topics that match a filter
    Clear {
        /// Topic name, without wildcards
        #[arg(required_unless_present = "filter", conflicts_with = "filter")]
        topic: Option<String>,
        /// Topic filter: clear the messages of all topics that match
        #[arg(long)]
        filter: Option<String>,
    },
    /// List topics with retained messages, a level at a time
    Topics {
        /// The levels above, such as `pond/north` [default: the first levels of all topics]
        under: Option<String>,
        /// The most topics to list
        #[arg(long, default_value_t = PIECE)]
        limit: usize,
    },
    /// List the clients and groups that a message to a topic is for, with the filters that match
    Subscribers {
        /// Topic name, without wildcards
        topic: String,
        /// The most subscriptions to list
        #[arg(long, default_value_t = PIECE)]
        limit: usize,
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
        /// Time until the message expires [default: never]
        #[arg(long, value_name = "N")]
        expiry_seconds: Option<u32>,
        /// Content Type of the payload
        #[arg(long, value_name = "TEXT")]
        content_type: Option<String>,
        /// Response Topic for the receivers
        #[arg(long, value_name = "TOPIC")]
        response_topic: Option<String>,
        /// User Property; can be repeated
        #[arg(long = "user-property", num_args = 2, value_names = ["NAME", "VALUE"])]
        user_properties: Vec<String>,
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
    /// Refuse new clients, and disconnect those that are connected one after the other
    Drain {
        /// Another server for the clients
        #[arg(long, value_name = "HOST:PORT")]
        server_reference: Option<String>,
        /// Time in which the clients leave
        #[arg(short, long, value_name = "N", default_value_t = 60)]
        seconds: u64,
        /// End the broker when all clients have left
        #[arg(long)]
        exit: bool,
    },
    /// End draining: clients may connect again
    EndDrain,
    /// Show what crosses the connections of some clients, or the messages of some topics, as it happens
    Trace(TraceArguments),
    /// List the listeners with the number of their connections
    Listeners,
    /// List the certificates of the listeners, the first to expire first
    Certificates,
    /// Print the last lines of the log
    Log {
        /// Only lines with this text
        #[arg(value_name = "TEXT", default_value = "")]
        text: String,
        /// The least important level
        #[arg(long, default_value = "trace", value_parser = LEVELS)]
        level: String,
        /// The most lines to print
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Print the last changes that operators have asked for
    Audit {
        /// The most changes to print
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Show figures whose topics below $SYS/broker/ have a text in them
    Counters {
        /// The text, such as `dropped`
        #[arg(default_value = "")]
        text: String,
    },
    /// Print the configuration in force, with the origin of each value
    Config,
    /// Show the level of the log, or change it until the next reload or the end of the process
    LogLevel {
        /// The level from now on
        #[arg(value_parser = LOG_LEVELS)]
        level: Option<String>,
    },
    /// Copy the journal into a new directory below `backup_dir`, or show the last backup
    Backup {
        /// Name of the new directory
        name: Option<String>,
    },
    /// Read configuration, certificates, users and rules again, and print the outcome
    Reload,
}

/// The work of a subcommand.
pub(super) enum Work<'a> {
    /// Prints the object that a request returns.
    One(Request),
    /// Prints a list, which several requests return in pieces.
    List(Listing),
    /// Discards messages of the queue at `path`: those that match `filter`, or all.
    Discard { path: String, filter: Option<&'a str> },
    /// Clears the retained messages of topics that match a filter.
    Clear(&'a str),
    /// Prints records, with this text for each list of them.
    Records(Listing, fn(&[Value]) -> String),
    /// Reads the configuration again, and prints the outcome.
    Reload,
    /// Prints figures that have the text in their topics.
    Counters(&'a str),
    /// Prints the configuration in force.
    Configuration,
    /// Prints whether clients are served.
    Ready,
    /// Prints a trace as it happens.
    Trace(&'a TraceArguments),
}

/// A request whose answer is an object.
pub(super) struct Request {
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) body: Option<Value>,
}

/// A list that is read in pieces.
pub(super) struct Listing {
    /// The path, with a query.
    pub(super) path: String,
    /// The field of an answer with the items.
    pub(super) name: &'static str,
    pub(super) columns: Columns,
    /// The most items in an answer.
    pub(super) limit: usize,
}

fn get(path: &str) -> Work<'static> {
    Work::One(Request { method: "GET", path: path.to_owned(), body: None })
}

fn delete(path: String) -> Work<'static> {
    Work::One(Request { method: "DELETE", path, body: None })
}

fn post(path: &str, body: Option<Value>) -> Work<'static> {
    Work::One(Request { method: "POST", path: path.to_owned(), body })
}

fn records(path: String, name: &'static str, limit: usize, show: fn(&[Value]) -> String) -> Work<'static> {
    Work::Records(Listing { path, name, columns: &[], limit }, show)
}

fn put(path: &str, body: Value) -> Work<'static> {
    Work::One(Request { method: "PUT", path: path.to_owned(), body: Some(body) })
}

fn list(path: String, name: &'static str, columns: Columns, limit: usize) -> Work<'static> {
    Work::List(Listing { path, name, columns, limit })
}

/// The path of a queue: of a client, or of a group with this filter.
fn of_queue(name: &str, is_group: bool) -> String {
    let kind = if is_group { "groups" } else { "clients" };
    format!("/api/v1/{kind}/{}/queue", encode(name))
}

/// The path of a list of clients: those with a text, that are not connected, or that have a state and a version.
fn of_clients(text: Option<&str>, disconnected: bool, [state, protocol]: [Option<&str>; 2]) -> String {
    let mut path = format!("/api/v1/clients?match={}", encode(text.unwrap_or_default()));
    if disconnected {
        path.push_str("&connected=false");
    } else if state.is_some() || protocol.is_some() {
        path.push_str("&connected=true");
    }
    for (name, word) in [("state", state), ("protocol", protocol)] {
        path.extend(word.iter().map(|word| format!("&{name}={word}")));
    }
    path
}

fn of_busiest(name: &str, limit: usize) -> Work<'static> {
    list(format!("/api/v1/busiest?list={name}"), "busiest", table::busiest(name), limit)
}

fn of_client(client: &str) -> String {
    format!("/api/v1/clients/{}", encode(client))
}

impl CtlCommand {
    pub(super) fn work(&self) -> Work<'_> {
        match self {
            Self::Status => get("/api/v1/status"),
            Self::Ready => Work::Ready,
            Self::Clients { text, disconnected, state, protocol, limit } => {
                let path =
                    of_clients(text.as_deref(), *disconnected, [state.as_deref(), protocol.as_deref()]);
                list(path, "clients", table::CLIENTS, *limit)
            }
            Self::Busiest { list, limit } => of_busiest(list, *limit),
            Self::Client { client } => get(&of_client(client)),
            Self::Subscriptions { client } => {
                let path = format!("{}/subscriptions?", of_client(client));
                list(path, "subscriptions", table::SUBSCRIPTIONS, usize::MAX)
            }
            Self::Disconnect { client } => delete(format!("{}/connection", of_client(client))),
            Self::EndSession { client } => delete(of_client(client)),
            Self::Queue { name, group, limit } => {
                let path = format!("{}?", of_queue(name, *group));
                list(path, "messages", table::QUEUE, *limit)
            }
            // The parser accepts `--all` only without a filter, and nothing without one of them.
            Self::Discard { name, group, filter, all: _ } => {
                Work::Discard { path: of_queue(name, *group), filter: filter.as_deref() }
            }
            Self::Groups { text } => {
                let path = format!("/api/v1/groups?match={}", encode(text));
                list(path, "groups", table::GROUPS, usize::MAX)
            }
            Self::Members { filter } => {
                let path = format!("/api/v1/groups/{}/members?", encode(filter));
                list(path, "members", table::MEMBERS, usize::MAX)
            }
            Self::Retained { filter, limit } => {
                let path = format!("/api/v1/retained?filter={}", encode(filter));
                list(path, "retained", table::RETAINED, *limit)
            }
            Self::Clear { topic: Some(topic), .. } => delete(format!("/api/v1/retained/{}", encode(topic))),
            Self::Clear { topic: None, filter } => Work::Clear(filter.as_deref().unwrap_or_default()),
            Self::Topics { under, limit } => {
                let under = under.as_ref().map(|under| format!("under={}", encode(under)));
                let path = format!("/api/v1/topics?{}", under.unwrap_or_default());
                list(path, "topics", table::TOPICS, *limit)
            }
            Self::Subscribers { topic, limit } => {
                let path = format!("/api/v1/subscriptions?topic={}", encode(topic));
                list(path, "subscriptions", table::SUBSCRIBERS, *limit)
            }
            Self::Publish { .. } => post("/api/v1/publish", Some(self.message())),
            _ => self.work_on_broker(),
        }
    }

    /// The work of the subcommands that are about the whole broker.
    fn work_on_broker(&self) -> Work<'_> {
        match self {
            Self::Ban { kind, value, seconds, reason } => {
                let body = json!({ "kind": kind, "value": value, "seconds": seconds, "reason": reason });
                post("/api/v1/bans", Some(body))
            }
            Self::LiftBan { kind, value } => {
                delete(format!("/api/v1/bans/{}/{}", encode(kind), encode(value)))
            }
            Self::Bans => list("/api/v1/bans?".to_owned(), "bans", table::BANS, usize::MAX),
            Self::Drain { server_reference, seconds, exit } => {
                let body = json!({ "server_reference": server_reference, "seconds": seconds, "exit": exit });
                post("/api/v1/drain", Some(body))
            }
            Self::EndDrain => delete("/api/v1/drain".to_owned()),
            Self::Trace(arguments) => Work::Trace(arguments),
            Self::Listeners => {
                list("/api/v1/listeners?".to_owned(), "listeners", table::LISTENERS, usize::MAX)
            }
            Self::Certificates => {
                list("/api/v1/certificates?".to_owned(), "certificates", table::CERTIFICATES, usize::MAX)
            }
            Self::Log { text, level, limit } => {
                let path = format!("/api/v1/log?level={level}&match={}", encode(text));
                records(path, "lines", *limit, super::records::log)
            }
            Self::Audit { limit } => {
                records("/api/v1/audit?".to_owned(), "changes", *limit, super::records::audit)
            }
            Self::Counters { text } => Work::Counters(text),
            Self::Config => Work::Configuration,
            Self::LogLevel { level: None } => get("/api/v1/log-level"),
            Self::LogLevel { level: Some(level) } => put("/api/v1/log-level", json!({ "level": level })),
            Self::Backup { name: None } => get("/api/v1/backup"),
            Self::Backup { name: Some(name) } => post("/api/v1/backup", Some(json!({ "name": name }))),
            // Reload is the last one: all others have an arm.
            _ => Work::Reload,
        }
    }

    /// The body of an order to publish.
    fn message(&self) -> Value {
        let Self::Publish {
            topic,
            payload,
            qos,
            retain,
            expiry_seconds,
            content_type,
            response_topic,
            user_properties,
        } = self
        else {
            return Value::Null;
        };
        json!({
            "topic": topic,
            "payload": payload,
            "qos": qos,
            "retain": retain,
            "expiry_seconds": expiry_seconds,
            "content_type": content_type,
            "response_topic": response_topic,
            "user_properties": user_properties.chunks(2).collect::<Vec<_>>(),
        })
    }
}
