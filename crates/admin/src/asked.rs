//! A request whose token has the right to its route.

use std::net::SocketAddr;
use std::sync::OnceLock;

use hyper::body::Bytes;
use serde_json::Value;

use crate::routes::Route;
use crate::tokens::Holder;

/// Fields of a body that name the thing that a request is about.
const OBJECTS: [&str; 7] = ["topic", "kind", "value", "into", "server_reference", "level", "name"];

/// Fields of a body that say more about the thing in the path of a request.
const DETAILS: [&str; 3] = ["to_client", "to_group", "filter"];

/// Fields of a command of dynamic security that say what it is about.
const OF_COMMANDS: [&str; 4] = ["command", "username", "groupname", "rolename"];
/// Maximum number of these texts in a record.
const COMMAND_TEXTS_MAX: usize = 40;

/// A request whose token has the right to its route.
pub(crate) struct Asked {
    pub(crate) route: &'static Route,
    /// Values of the parameters in its path.
    pub(crate) values: Vec<String>,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) body: Bytes,
    /// The holder of its token. `None` if the route needs no token.
    pub(crate) holder: Option<Holder>,
    pub(crate) from: SocketAddr,
    /// The host that the request is for: one of the names of the server, perhaps with a port.
    pub(crate) host: String,
    before: OnceLock<Value>,
}

impl Asked {
    /// A request with the values of the parameters in its path, and with its sender.
    pub(crate) fn new(
        (route, values): (&'static Route, Vec<String>),
        query: Vec<(String, String)>,
        body: Bytes,
        (holder, from, host): (Option<Holder>, SocketAddr, String),
    ) -> Self {
        Self { route, values, query, body, holder, from, host, before: OnceLock::new() }
    }

    /// Notes the state before the change, for its record. Only the first call has an effect.
    pub(crate) fn note_before(&self, before: Value) {
        let _ = self.before.set(before);
    }

    /// The state before the change.
    pub(crate) fn before(&self) -> Option<&Value> {
        self.before.get()
    }

    /// The thing that the request is about: a client identifier, a topic, or the kind and value of a ban. Empty if it is about
    /// the whole broker.
    pub(crate) fn object(&self) -> String {
        let body = || serde_json::from_slice::<Value>(&self.body).unwrap_or_default();
        let of_body = || {
            let body = body();
            let texts = OBJECTS.into_iter().filter_map(|field| body.get(field)?.as_str());
            let commands = body.get("commands").and_then(Value::as_array).into_iter().flatten();
            let of_commands = commands
                .flat_map(|command| OF_COMMANDS.into_iter().filter_map(|field| command.get(field)?.as_str()));
            texts.chain(of_commands.take(COMMAND_TEXTS_MAX)).collect::<Vec<_>>().join(" ")
        };
        let of_path = self.values.iter().map(String::as_str).chain(self.parameter("filter"));
        let of_path: Vec<String> = of_path.map(str::to_owned).collect();
        if of_path.is_empty() {
            return of_body();
        }
        let body = body();
        let detail = |field: &str| Some(format!("{field}={}", body.get(field)?.as_str()?));
        of_path.into_iter().chain(DETAILS.into_iter().filter_map(detail)).collect::<Vec<_>>().join(" ")
    }

    /// A parameter of the query.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }
}
