//! `pondhawk ctl` and `pondhawk explain`: the API for operators on the command line.

mod client;
mod command;
mod login;
mod queue;
mod records;
mod secure;
mod table;
mod trace;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

pub(crate) use client::Server;
use client::encode;
pub(crate) use table::on_terminal;

use command::{CtlCommand, Listing, Request, Work};

/// Time between two looks whether a reload has ended, and the most looks.
const RELOAD_PAUSE: Duration = Duration::from_millis(100);
const RELOAD_LOOKS_MAX: u32 = 600;
/// Items that one request asks for.
const PIECE: usize = 1_000;

/// The server, and the form of the output.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// Configuration file of the broker, which names the server and its token
    #[arg(short, long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// Address of the admin server, or its URL [default: that of the configuration, or 127.0.0.1:9883]
    #[arg(long, value_name = "HOST:PORT", global = true)]
    pub(crate) admin: Option<String>,
    /// File whose first line is a token [default: `admin_token_file`, or the generated one in `data_dir`]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) token_file: Option<PathBuf>,
    /// User name of an operator, in place of a token
    #[arg(long, value_name = "NAME", global = true, conflicts_with = "token_file")]
    pub(crate) username: Option<String>,
    /// File whose first line is the password of this user [default: it is asked for]
    #[arg(long, value_name = "FILE", global = true, requires = "username")]
    pub(crate) password_file: Option<PathBuf>,
    /// Certificates of the authorities to trust, in PEM [default: those of the system; the server's own with a configuration]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) cafile: Option<PathBuf>,
    /// Certificate of the operator, in PEM
    #[arg(long, value_name = "FILE", global = true, requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// Private key of this certificate, in PEM
    #[arg(long, value_name = "FILE", global = true, requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// Print JSON, for scripts
    #[arg(long, global = true)]
    pub(crate) json: bool,
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

/// Runs `pondhawk ctl`, and reports an error.
pub(crate) fn ctl(arguments: &CtlArguments) -> ExitCode {
    finish(run(arguments))
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
        text.push_str(&last_messages(&value["last_messages"]));
        text.push_str(&format!("=> {} ({})\n", table::on_terminal(&outcome), table::on_terminal(reason)));
        print(&text)
    };
    finish(explained().map(|()| ExitCode::SUCCESS))
}

/// The last messages on the path of an explanation, if they are recorded.
fn last_messages(found: &Value) -> String {
    let Some(messages) = found["messages"].as_array() else { return String::new() };
    match records::outcomes(messages) {
        none if none.is_empty() => "No message has come this way since the record began.\n".to_owned(),
        lines => format!("The last messages on this path:\n{lines}"),
    }
}

fn finish(outcome: io::Result<ExitCode>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        // The server quotes names of clients in its errors.
        let text = error.to_string();
        let lines: Vec<String> = text.lines().map(on_terminal).collect();
        crate::fail(&format!("error: {}", lines.join("\n")))
    })
}

fn print(text: &str) -> io::Result<()> {
    io::stdout().write_all(text.as_bytes())
}

fn run(CtlArguments { command, place }: &CtlArguments) -> io::Result<ExitCode> {
    let work = command.work();
    let server = match work {
        Work::Ready => Server::find_without_token(place)?,
        _ => Server::find(place)?,
    };
    do_work(&server, work, place.json)
}

/// Prints `ready`, or each thing that is missing. Returns success only if nothing is missing.
fn ready(server: &Server, is_json: bool) -> io::Result<ExitCode> {
    let body = server.send("GET", "/readyz", None)?;
    let value: Value = serde_json::from_str(&body)?;
    let text = if is_json { body } else { table::readiness(&value) };
    print(&text)?;
    Ok(if value["ready"] == true { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn do_work(server: &Server, work: Work<'_>, is_json: bool) -> io::Result<ExitCode> {
    match work {
        Work::Ready => return ready(server, is_json),
        Work::One(Request { method, path, body }) => {
            let body = server.send(method, &path, body.as_ref())?;
            if is_json { print(&body) } else { print(&table::fields(&serde_json::from_str(&body)?)) }
        }
        Work::WithPassword(Request { method, path, body }) => {
            let password = crate::users::new_password().map_err(io::Error::other)?;
            let password = String::from_utf8(password).map_err(io::Error::other)?;
            let mut body = body.unwrap_or_else(|| json!({}));
            body["password"] = password.into();
            return do_work(server, Work::One(Request { method, path, body: Some(body) }), is_json);
        }
        Work::Text(path, field) => {
            let body = server.send("GET", &path, None)?;
            let value: Value = serde_json::from_str(&body)?;
            let lines = value[field].as_str().unwrap_or_default().lines();
            let text: String = lines.map(|line| on_terminal(line) + "\n").collect();
            if is_json { print(&body) } else { print(&text) }
        }
        Work::List(Listing { path, name, columns, limit }) => {
            let items = read_list(server, &path, name, limit)?;
            if is_json {
                print(&format!("{}\n", Value::Array(items)))
            } else {
                print(&table::list(&items, columns))
            }
        }
        Work::Discard { path, filter } => {
            let found = json!({ "discarded": queue::discard(server, &path, filter)? });
            if is_json { print(&format!("{found}\n")) } else { print(&table::fields(&found)) }
        }
        Work::Move { path, order } => queue::move_messages(server, &path, order, is_json),
        Work::Clear(filter) => {
            let path = format!("/api/v1/retained?filter={}", encode(filter));
            let found = json!({ "cleared": repeat(server, &path, "cleared")? });
            if is_json { print(&format!("{found}\n")) } else { print(&table::fields(&found)) }
        }
        Work::Records(Listing { path, name, limit, .. }, show) => {
            let items = read_list(server, &path, name, limit)?;
            if is_json { print(&format!("{}\n", Value::Array(items))) } else { print(&show(&items)) }
        }
        Work::Reload => reload(server, is_json),
        Work::Counters(text) => {
            let all: Value = serde_json::from_str(&server.send("GET", "/api/v1/counters", None)?)?;
            let fields = all.as_object().into_iter().flatten().filter(|(topic, _)| topic.contains(text));
            let found = Value::Object(fields.map(|(topic, value)| (topic.clone(), value.clone())).collect());
            if is_json { print(&format!("{found}\n")) } else { print(&table::fields(&found)) }
        }
        Work::Trace(arguments) => trace::follow(server, arguments, is_json),
        Work::Configuration => {
            let body = server.send("GET", "/api/v1/configuration", None)?;
            let value: Value = serde_json::from_str(&body)?;
            if is_json { print(&body) } else { print(value["toml"].as_str().unwrap_or_default()) }
        }
    }?;
    Ok(ExitCode::SUCCESS)
}

/// Sends DELETE requests until all pieces are done. `path` has a query. Returns the sum of a field of their answers.
fn repeat(server: &Server, path: &str, name: &str) -> io::Result<u64> {
    let (mut count, mut cursor) = (0, String::new());
    loop {
        let body = server.send("DELETE", &format!("{path}{cursor}"), None)?;
        let value: Value = serde_json::from_str(&body)?;
        count += value[name].as_u64().unwrap_or(0);
        match value["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={}", encode(next)),
            None => return Ok(count),
        }
    }
}

/// Asks for a reload, waits for its outcome, and prints it. A configuration that is refused is an error.
fn reload(server: &Server, is_json: bool) -> io::Result<()> {
    let begun: Value = serde_json::from_str(&server.send("POST", "/api/v1/reload", None)?)?;
    let number = begun["number"].as_u64().unwrap_or_default();
    for _ in 0..RELOAD_LOOKS_MAX {
        let body = server.send("GET", "/api/v1/reload", None)?;
        let last: Value = serde_json::from_str(&body)?;
        if last["number"].as_u64() < Some(number) {
            thread::sleep(RELOAD_PAUSE);
            continue;
        }
        if is_json {
            print(&body)?;
        } else if last["error"].is_null() {
            let changes = last["changes"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let changes: String = changes.map(|change| on_terminal(change) + "\n").collect();
            print(if changes.is_empty() { "the configuration is as before\n" } else { &changes })?;
        }
        return match last["error"].as_str() {
            None => Ok(()),
            Some(why) => Err(io::Error::other(format!("the configuration stays as it was: {why}"))),
        };
    }
    Err(io::Error::other("the broker has not read its configuration within a minute; see its log"))
}

/// Reads a list piece by piece, up to `limit` items. `path` has a query. Not all lists have a limit: without one, the server
/// chooses the size of a piece.
fn read_list(server: &Server, path: &str, name: &str, limit: usize) -> io::Result<Vec<Value>> {
    let (mut items, mut cursor) = (Vec::new(), String::new());
    while items.len() < limit {
        let piece = match limit {
            usize::MAX => String::new(),
            _ => format!("&limit={}", PIECE.min(limit - items.len())),
        };
        let body = server.send("GET", &format!("{path}{piece}{cursor}"), None)?;
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
