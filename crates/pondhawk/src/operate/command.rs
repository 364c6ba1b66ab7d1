//! The subcommands of `pondhawk ctl`, and the requests behind them.

mod access;
mod broker;
mod clients;
mod messages;

use clap::Subcommand;
use serde_json::Value;

use super::table::Columns;
use super::trace::TraceArguments;
use access::AccessCommand;
use broker::BrokerCommand;
use clients::ClientsCommand;
use messages::MessagesCommand;

/// A subcommand of `pondhawk ctl`.
#[derive(Debug, Subcommand)]
pub(super) enum CtlCommand {
    #[command(flatten)]
    Broker(BrokerCommand),
    #[command(flatten)]
    Clients(ClientsCommand),
    #[command(flatten)]
    Messages(MessagesCommand),
    #[command(flatten)]
    Access(AccessCommand),
}

impl CtlCommand {
    pub(super) fn work(&self) -> Work<'_> {
        match self {
            Self::Broker(command) => command.work(),
            Self::Clients(command) => command.work(),
            Self::Messages(command) => command.work(),
            Self::Access(command) => command.work(),
        }
    }
}

/// The work of a subcommand.
pub(super) enum Work<'a> {
    /// Prints the object that a request returns.
    One(Request),
    /// Asks for a new password, and prints the object that a request with it returns.
    WithPassword(Request),
    /// Prints this field of the object at a path.
    Text(String, &'static str),
    /// Prints a list, which several requests return in pieces.
    List(Listing),
    /// Discards messages of the queue at `path`: those that match `filter`, or all.
    Discard { path: String, filter: Option<&'a str> },
    /// Moves messages of a queue with requests to `path`, as this body orders.
    Move { path: String, order: Value },
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

fn put(path: &str, body: Value) -> Work<'static> {
    Work::One(Request { method: "PUT", path: path.to_owned(), body: Some(body) })
}

fn records(path: String, name: &'static str, limit: usize, show: fn(&[Value]) -> String) -> Work<'static> {
    Work::Records(Listing { path, name, columns: &[], limit }, show)
}

fn list(path: String, name: &'static str, columns: Columns, limit: usize) -> Work<'static> {
    Work::List(Listing { path, name, columns, limit })
}
