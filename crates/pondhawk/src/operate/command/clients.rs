//! Subcommands about clients and groups.

use admin::{LISTS, PROTOCOLS, STATES};
use clap::Subcommand;
use serde_json::json;

use super::{Work, delete, get, list, post, records};
use crate::operate::PIECE;
use crate::operate::client::encode;
use crate::operate::records as records_of;
use crate::operate::table::{self};

/// The kinds of bans.
const KINDS: [&str; 3] = ["client_id", "user", "address"];

/// Subcommands about clients and groups.
#[derive(Debug, Subcommand)]
pub(in crate::operate) enum ClientsCommand {
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
    /// List users with their connections and messages; clients that are no user come first
    Traffic {
        /// Only users whose name has this text in it
        #[arg(value_name = "TEXT", default_value = "")]
        text: String,
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
    /// List what became of the last messages for a client, if that is recorded; or record what becomes of the next ones
    Outcomes {
        /// Client identifier, as CONNECT has it
        client: String,
        /// Record from now on, for this time
        #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=3_600))]
        seconds: Option<u64>,
        /// End the record, and forget it
        #[arg(long, conflicts_with = "seconds")]
        end: bool,
        /// Only messages to this topic
        #[arg(short, long, conflicts_with_all = ["seconds", "end"])]
        topic: Option<String>,
        /// Only messages of this client, or of publishers that are not known
        #[arg(long, value_name = "CLIENT", conflicts_with_all = ["seconds", "end"])]
        publisher: Option<String>,
        /// The most messages to list
        #[arg(long, default_value_t = 100)]
        limit: usize,
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
    /// Move messages that wait for a lasting session or a group to the queue of another one
    Move {
        /// Client identifier; with --group, the filter of the group
        #[arg(value_name = "NAME")]
        name: String,
        /// NAME is the filter of a group, such as $share/workers/jobs/#
        #[arg(long)]
        group: bool,
        /// Client whose lasting session gets the messages
        #[arg(
            long,
            value_name = "CLIENT",
            required_unless_present = "to_group",
            conflicts_with = "to_group"
        )]
        to_client: Option<String>,
        /// Filter of the group that gets the messages
        #[arg(long, value_name = "FILTER")]
        to_group: Option<String>,
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
}

impl ClientsCommand {
    pub(super) fn work(&self) -> Work<'_> {
        match self {
            Self::Clients { text, disconnected, state, protocol, limit } => {
                let path =
                    of_clients(text.as_deref(), *disconnected, [state.as_deref(), protocol.as_deref()]);
                list(path, "clients", table::CLIENTS, *limit)
            }
            Self::Busiest { list, limit } => of_busiest(list, *limit),
            Self::Traffic { text } => {
                let path = format!("/api/v1/users?match={}", encode(text));
                list(path, "users", table::TRAFFIC, usize::MAX)
            }
            Self::Client { client } => get(&of_client(client)),
            Self::Subscriptions { client } => {
                let path = format!("{}/subscriptions?", of_client(client));
                list(path, "subscriptions", table::SUBSCRIPTIONS, usize::MAX)
            }
            Self::Outcomes { client, seconds: Some(seconds), .. } => {
                post(&format!("{}/outcomes", of_client(client)), Some(json!({ "seconds": seconds })))
            }
            Self::Outcomes { client, end: true, .. } => delete(format!("{}/outcomes", of_client(client))),
            Self::Outcomes { client, topic, publisher, limit, .. } => {
                let mut path = format!("{}/outcomes?", of_client(client));
                for (name, value) in [("topic", topic), ("publisher", publisher)] {
                    path.extend(value.iter().map(|value| format!("&{name}={}", encode(value))));
                }
                records(path, "messages", *limit, records_of::outcomes)
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
            Self::Move { name, group, to_client, to_group, filter, all } => {
                let mut order = json!({});
                for (field, text) in [("to_client", to_client), ("to_group", to_group), ("filter", filter)] {
                    text.iter().for_each(|text| order[field] = json!(text));
                }
                if *all {
                    order["all"] = json!(true);
                }
                Work::Move { path: format!("{}/move", of_queue(name, *group)), order }
            }
            Self::Groups { text } => {
                let path = format!("/api/v1/groups?match={}", encode(text));
                list(path, "groups", table::GROUPS, usize::MAX)
            }
            Self::Members { filter } => {
                let path = format!("/api/v1/groups/{}/members?", encode(filter));
                list(path, "members", table::MEMBERS, usize::MAX)
            }
            Self::Ban { kind, value, seconds, reason } => {
                let body = json!({ "kind": kind, "value": value, "seconds": seconds, "reason": reason });
                post("/api/v1/bans", Some(body))
            }
            Self::LiftBan { kind, value } => {
                delete(format!("/api/v1/bans/{}/{}", encode(kind), encode(value)))
            }
            Self::Bans => list("/api/v1/bans?".to_owned(), "bans", table::BANS, usize::MAX),
        }
    }
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
