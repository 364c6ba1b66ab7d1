//! The table of all routes: parser, rights, and the OpenAPI document follow from it.

mod access;
mod open_api;

use std::fmt;

use serde_json::{Value, json};

use crate::api::log::LEVELS;
use crate::api::{LIMIT_MAX, LOG_LEVELS, busiest, clients, drain, outcomes, trace};
use crate::tokens::Role;
use crate::uri;

use access::ACCESS;
pub(crate) use access::AccessAction;
pub(crate) use open_api::open_api;

/// A route of the server.
#[derive(Debug)]
pub struct Route {
    /// Method of HTTP, in capital letters.
    pub method: &'static str,
    /// Path, with parameters in braces.
    pub path: &'static str,
    /// The role that a request needs. `None`: no token.
    pub role: Option<Role>,
    /// Purpose, as a sentence without its full stop.
    pub summary: &'static str,
    /// Parameters of the query.
    pub query: &'static [Parameter],
    /// Fields of the body, which is JSON.
    pub body: &'static [Parameter],
    pub(crate) action: Action,
}

/// A parameter of a query, or a field of a body.
#[derive(Debug)]
pub struct Parameter {
    /// Name of the parameter.
    pub name: &'static str,
    /// Type, as JSON Schema calls it.
    pub kind: &'static str,
    /// Whether a request must have it.
    pub is_required: bool,
    /// Meaning, as a sentence without its full stop.
    pub text: &'static str,
    /// The values that it may have.
    pub values: Values,
}

/// The values that a parameter may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// All of its type.
    Any,
    /// Only one of these words.
    Words(&'static [&'static str]),
    /// Whole numbers from the first to the second.
    Range(u64, u64),
}

/// The code behind a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Page,
    Script,
    View,
    Style,
    Healthy,
    Ready,
    Metrics,
    OpenApi,
    Status,
    Counters,
    Shards,
    Busiest,
    Clients,
    Client,
    Disconnect,
    EndSession,
    Subscriptions,
    Queue,
    DiscardQueue,
    MoveQueue,
    Recordings,
    Outcomes,
    RecordOutcomes,
    ForgetOutcomes,
    Subscribers,
    Groups,
    Group,
    Members,
    GroupQueue,
    DiscardGroupQueue,
    MoveGroupQueue,
    Explain,
    Retained,
    RetainedMessage,
    ClearRetained,
    ClearMatching,
    Topics,
    Publish,
    Bans,
    Ban,
    LiftBan,
    ShowDrain,
    Drain,
    EndDrain,
    ShowTrace,
    TraceFile,
    Trace,
    EndTrace,
    Listeners,
    Users,
    Certificates,
    Configuration,
    ShowBackup,
    Backup,
    Log,
    Audit,
    LogLevel,
    SetLogLevel,
    ShowReload,
    Reload,
    LogIn,
    LogOut,
    Access(AccessAction),
}

/// The name of the action in records of changes, and of the operation in the OpenAPI document.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Access(action) => write!(f, "{action:?}"),
            action => write!(f, "{action:?}"),
        }
    }
}

const fn required(name: &'static str, kind: &'static str, text: &'static str) -> Parameter {
    Parameter { name, kind, is_required: true, text, values: Values::Any }
}

const fn optional(name: &'static str, kind: &'static str, text: &'static str) -> Parameter {
    Parameter { name, kind, is_required: false, text, values: Values::Any }
}

impl Parameter {
    const fn of(self, values: Values) -> Self {
        Self { values, ..self }
    }

    /// The parameter as JSON Schema describes it.
    fn schema(&self) -> Value {
        let mut schema = json!({ "type": self.kind });
        match self.values {
            Values::Any => {}
            Values::Words(words) => schema["enum"] = json!(words),
            Values::Range(least, most) => {
                schema["minimum"] = json!(least);
                schema["maximum"] = json!(most);
            }
        }
        schema
    }
}

const LIMIT: Parameter =
    optional("limit", "integer", "The most items of the answer, from 1 to 1000. Default: 100")
        .of(Values::Range(1, LIMIT_MAX as u64));
const CURSOR: Parameter =
    optional("cursor", "string", "The `cursor` of the answer before, to go on behind it");

const NUMBER: Parameter =
    optional("number", "integer", "The `number` of a trace. If there is another one, the answer is 409");
const FILTER: Parameter =
    optional("filter", "string", "Topic filter of the messages. Required without `all`");
const ALL: Parameter = optional(
    "all",
    "boolean",
    "`true` discards all messages. Required without `filter`, and not possible with it",
);

/// Fields of an order to move messages.
const MOVE: &[Parameter] = &[
    optional(
        "to_client",
        "string",
        "Client whose lasting session gets the messages. Required without `to_group`",
    ),
    optional(
        "to_group",
        "string",
        "Filter of the group that gets the messages. Required without `to_client`",
    ),
    FILTER,
    optional(
        "all",
        "boolean",
        "`true` moves all messages. Required without `filter`, and not possible with it",
    ),
    CURSOR,
];

const fn get(
    path: &'static str,
    action: Action,
    query: &'static [Parameter],
    summary: &'static str,
) -> Route {
    Route { method: "GET", path, role: Some(Role::Viewer), summary, query, body: &[], action }
}

const fn change(
    (method, path): (&'static str, &'static str),
    role: Role,
    action: Action,
    (query, body): (&'static [Parameter], &'static [Parameter]),
    summary: &'static str,
) -> Route {
    Route { method, path, role: Some(role), summary, query, body, action }
}

/// All routes, in the order of the manual.
pub fn routes() -> impl Iterator<Item = &'static Route> {
    ROUTES.iter().chain(ACCESS)
}

/// All routes but those about users and rules.
const ROUTES: &[Route] = &[
    Route { role: None, ..get("/", Action::Page, &[], "The dashboard") },
    Route { role: None, ..get("/app.js", Action::Script, &[], "The script of the dashboard") },
    Route {
        role: None,
        ..get("/views/{script}", Action::View, &[], "The script of a view of the dashboard")
    },
    Route { role: None, ..get("/style.css", Action::Style, &[], "The style of the dashboard") },
    Route { role: None, ..get("/healthz", Action::Healthy, &[], "Whether the process answers") },
    Route {
        role: None,
        ..get("/readyz", Action::Ready, &[], "Whether clients are served, and what is missing")
    },
    get("/metrics", Action::Metrics, &[], "All metrics, in the text format of Prometheus"),
    get("/api/v1/openapi.json", Action::OpenApi, &[], "This API as an OpenAPI document"),
    get(
        "/api/v1/status",
        Action::Status,
        &[],
        "Version, time since the start, readiness, and the role of the token",
    ),
    get("/api/v1/counters", Action::Counters, &[], "All figures by their topics below $SYS/broker/"),
    get("/api/v1/shards", Action::Shards, &[], "What each shard has received and sent"),
    get(
        "/api/v1/busiest",
        Action::Busiest,
        &[LIMIT, optional("list", "string", "The list. Default: `topics`").of(Values::Words(busiest::LISTS))],
        "The busiest topics or clients of the last one to two minutes, the busiest first",
    ),
    get(
        "/api/v1/clients",
        Action::Clients,
        &[
            LIMIT,
            CURSOR,
            optional("connected", "boolean", "Only clients that are connected, or only those that are not"),
            optional("match", "string", "Only clients whose identifier, user or address has this text in it"),
            optional("state", "string", "Only connected clients in this state")
                .of(Values::Words(clients::STATES)),
            optional("protocol", "string", "Only connected clients with this version of MQTT")
                .of(Values::Words(clients::PROTOCOLS)),
        ],
        "Clients, connected ones first",
    ),
    get("/api/v1/clients/{client_id}", Action::Client, &[], "One client, with its session"),
    get(
        "/api/v1/clients/{client_id}/subscriptions",
        Action::Subscriptions,
        &[CURSOR],
        "Subscriptions of a client, at most 256 in an answer",
    ),
    change(
        ("DELETE", "/api/v1/clients/{client_id}/connection"),
        Role::Operator,
        Action::Disconnect,
        (&[], &[]),
        "Disconnect a client. Its session stays if it lasts, and its will is published",
    ),
    change(
        ("DELETE", "/api/v1/clients/{client_id}"),
        Role::Admin,
        Action::EndSession,
        (&[], &[]),
        "Disconnect a client, and end its session with subscriptions and queue",
    ),
    get(
        "/api/v1/clients/{client_id}/queue",
        Action::Queue,
        &[LIMIT, CURSOR],
        "Messages that wait for a lasting session, the next one first",
    ),
    change(
        ("DELETE", "/api/v1/clients/{client_id}/queue"),
        Role::Admin,
        Action::DiscardQueue,
        (&[FILTER, ALL, CURSOR], &[]),
        "Discard messages that wait for a lasting session, all or those that match a filter",
    ),
    change(
        ("POST", "/api/v1/clients/{client_id}/queue/move"),
        Role::Admin,
        Action::MoveQueue,
        (&[], MOVE),
        "Move messages that wait for a lasting session to the queue of another session or of a group",
    ),
    get("/api/v1/outcomes", Action::Recordings, &[LIMIT], "Clients whose last messages are recorded"),
    get(
        "/api/v1/clients/{client_id}/outcomes",
        Action::Outcomes,
        &[
            LIMIT,
            optional(
                "publisher",
                "string",
                "Only messages of this client, or of publishers that are not known",
            ),
            optional("topic", "string", "Only messages to this topic"),
        ],
        "What became of the last messages for a client, the newest first, if that is recorded",
    ),
    change(
        ("POST", "/api/v1/clients/{client_id}/outcomes"),
        Role::Operator,
        Action::RecordOutcomes,
        (
            &[],
            &[optional("seconds", "integer", "Duration, from 1 to 3600. Default: 60")
                .of(Values::Range(1, outcomes::SECONDS_MAX))],
        ),
        "Record what becomes of the messages for a client from now on. The payloads are not recorded",
    ),
    change(
        ("DELETE", "/api/v1/clients/{client_id}/outcomes"),
        Role::Operator,
        Action::ForgetOutcomes,
        (&[], &[]),
        "End the record of the last messages for a client, and forget it",
    ),
    get(
        "/api/v1/subscriptions",
        Action::Subscribers,
        &[required("topic", "string", "Topic name, with the mount point"), LIMIT, CURSOR],
        "Subscriptions of all clients and groups that match a topic",
    ),
    get(
        "/api/v1/groups",
        Action::Groups,
        &[LIMIT, CURSOR, optional("match", "string", "Only groups whose filter has this text in it")],
        "Groups that share a subscription",
    ),
    get("/api/v1/groups/{filter}", Action::Group, &[], "One group. Its filter begins with `$share/`"),
    get(
        "/api/v1/groups/{filter}/members",
        Action::Members,
        &[CURSOR],
        "Members of a group, at most 256 in an answer",
    ),
    get(
        "/api/v1/groups/{filter}/queue",
        Action::GroupQueue,
        &[LIMIT, CURSOR],
        "Messages that wait for the members of a group, the next one first",
    ),
    change(
        ("DELETE", "/api/v1/groups/{filter}/queue"),
        Role::Admin,
        Action::DiscardGroupQueue,
        (&[FILTER, ALL, CURSOR], &[]),
        "Discard messages that wait for the members of a group, all or those that match a filter",
    ),
    change(
        ("POST", "/api/v1/groups/{filter}/queue/move"),
        Role::Admin,
        Action::MoveGroupQueue,
        (&[], MOVE),
        "Move messages that wait for the members of a group to the queue of another group or of a session",
    ),
    get(
        "/api/v1/explain",
        Action::Explain,
        &[
            required("publisher", "string", "Client identifier of the publisher"),
            required("topic", "string", "Topic name of the message, with the mount point"),
            required("subscriber", "string", "Client identifier of the subscriber"),
            optional("qos", "integer", "QoS of the message: 0, 1 or 2. Default: 0").of(Values::Range(0, 2)),
        ],
        "Why a message reaches a subscriber, or does not",
    ),
    get(
        "/api/v1/retained",
        Action::Retained,
        &[optional("filter", "string", "Topic filter. Default: #"), LIMIT, CURSOR],
        "Retained messages that match a filter, with the beginnings of their payloads",
    ),
    get(
        "/api/v1/retained/{topic}",
        Action::RetainedMessage,
        &[],
        "One retained message, with its whole payload",
    ),
    change(
        ("DELETE", "/api/v1/retained/{topic}"),
        Role::Operator,
        Action::ClearRetained,
        (&[], &[]),
        "Clear the retained message of a topic. Subscribers get a message without payload",
    ),
    change(
        ("DELETE", "/api/v1/retained"),
        Role::Operator,
        Action::ClearMatching,
        (&[required("filter", "string", "Topic filter of the topics"), CURSOR], &[]),
        "Clear the retained messages of all topics that match a filter, up to 1024 in a request",
    ),
    get(
        "/api/v1/topics",
        Action::Topics,
        &[
            optional(
                "under",
                "string",
                "The levels above, such as `a/b`. Default: the first levels of all topics",
            ),
            LIMIT,
            CURSOR,
        ],
        "Topics with retained messages as a tree: the levels below some levels",
    ),
    change(
        ("POST", "/api/v1/publish"),
        Role::Operator,
        Action::Publish,
        (
            &[],
            &[
                required("topic", "string", "Topic name"),
                required("payload", "string", "Payload"),
                optional("encoding", "string", "`utf-8` or `base64`. Default: utf-8")
                    .of(Values::Words(&["utf-8", "base64"])),
                optional("qos", "integer", "0, 1 or 2. Default: 0").of(Values::Range(0, 2)),
                optional("retain", "boolean", "Whether the message is retained. Default: false"),
                optional("expiry_seconds", "integer", "Message Expiry Interval. Default: without end")
                    .of(Values::Range(0, u32::MAX as u64)),
                optional("content_type", "string", "Content Type"),
                optional("response_topic", "string", "Response Topic"),
                optional("user_properties", "array", "User Properties: pairs of name and value"),
            ],
        ),
        "Publish a message of the broker itself",
    ),
    get("/api/v1/bans", Action::Bans, &[], "Clients that are kept out, the next ban to end first"),
    change(
        ("POST", "/api/v1/bans"),
        Role::Operator,
        Action::Ban,
        (
            &[],
            &[
                required("kind", "string", "`client_id`, `user` or `address`").of(Values::Words(&[
                    "client_id",
                    "user",
                    "address",
                ])),
                required(
                    "value",
                    "string",
                    "Client identifier, user name, address, or network such as 192.0.2.0/24",
                ),
                optional("seconds", "integer", "Duration of the ban in seconds. Default: without end")
                    .of(Values::Range(1, u64::MAX)),
                optional("reason", "string", "Reason, for operators. At most 256 bytes"),
            ],
        ),
        "Keep clients out, and disconnect those that are connected. Their sessions stay",
    ),
    change(
        ("DELETE", "/api/v1/bans/{kind}/{value}"),
        Role::Operator,
        Action::LiftBan,
        (&[], &[]),
        "Lift a ban",
    ),
    get("/api/v1/drain", Action::ShowDrain, &[], "Whether new clients are refused, and how many are left"),
    change(
        ("POST", "/api/v1/drain"),
        Role::Admin,
        Action::Drain,
        (
            &[],
            &[
                optional(
                    "server_reference",
                    "string",
                    "Another server for the clients, such as b.example:8883",
                ),
                optional("seconds", "integer", "Time in which the clients leave, up to 86400. Default: 60")
                    .of(Values::Range(0, drain::SECONDS_MAX)),
                optional("exit", "boolean", "Whether the broker ends when they have left. Default: false"),
            ],
        ),
        "Refuse new clients, and disconnect those that are connected one after the other",
    ),
    change(
        ("DELETE", "/api/v1/drain"),
        Role::Admin,
        Action::EndDrain,
        (&[], &[]),
        "End draining: clients may connect again",
    ),
    Route {
        role: Some(Role::Admin),
        ..get(
            "/api/v1/trace",
            Action::ShowTrace,
            &[LIMIT, CURSOR, NUMBER],
            "The trace under way or the last one, with its lines",
        )
    },
    Route {
        role: Some(Role::Admin),
        ..get(
            "/api/v1/trace/capture",
            Action::TraceFile,
            &[
                optional("cursor", "integer", "The byte of the file where the answer begins. Default: 0"),
                NUMBER,
            ],
            "A piece of the trace as a pcap file, up to 1 MiB. An empty one is the end",
        )
    },
    change(
        ("POST", "/api/v1/trace"),
        Role::Admin,
        Action::Trace,
        (
            &[],
            &[
                required("kind", "string", "`client_id`, `user`, `address` or `topic`").of(Values::Words(&[
                    "client_id",
                    "user",
                    "address",
                    "topic",
                ])),
                required(
                    "value",
                    "string",
                    "Client identifier, user name, address or network, or topic filter",
                ),
                optional("seconds", "integer", "Duration, from 1 to 3600. Default: 60")
                    .of(Values::Range(1, trace::SECONDS_MAX)),
                optional("bytes", "integer", "Size of the records, from 4 KiB to 16 MiB. Default: 4 MiB")
                    .of(Values::Range(trace::BYTES_MIN, trace::BYTES_MAX)),
                optional("into", "string", "Topic into which each line is also published, at QoS 0"),
            ],
        ),
        "Record what crosses the connections of some clients, or the messages of some topics",
    ),
    change(
        ("DELETE", "/api/v1/trace"),
        Role::Admin,
        Action::EndTrace,
        (&[NUMBER], &[]),
        "End the trace, and forget what it has recorded",
    ),
    get(
        "/api/v1/listeners",
        Action::Listeners,
        &[],
        "Listeners, with their connections and messages, and whether these add up to those of the broker",
    ),
    get(
        "/api/v1/users",
        Action::Users,
        &[LIMIT, CURSOR, optional("match", "string", "Only users whose name has this text in it")],
        "Users, with their connections and messages, and whether these add up to those of the broker",
    ),
    get(
        "/api/v1/certificates",
        Action::Certificates,
        &[],
        "For each file with certificates of a listener: the first certificate to expire",
    ),
    get(
        "/api/v1/configuration",
        Action::Configuration,
        &[],
        "The configuration in force with the origin of each value, without secrets",
    ),
    get("/api/v1/backup", Action::ShowBackup, &[], "The last backup of the journal, which may be under way"),
    change(
        ("POST", "/api/v1/backup"),
        Role::Admin,
        Action::Backup,
        (&[], &[required("name", "string", "Name of the new directory below `backup_dir` of [admin]")]),
        "Copy the journal into a new directory, and check the copy",
    ),
    get(
        "/api/v1/log",
        Action::Log,
        &[
            LIMIT,
            CURSOR,
            optional("level", "string", "The least important level. Default: `trace`")
                .of(Values::Words(&LEVELS)),
            optional("match", "string", "Only lines with this text, in capital or small letters"),
        ],
        "The last lines of the log, newest first",
    ),
    get(
        "/api/v1/audit",
        Action::Audit,
        &[LIMIT, CURSOR],
        "The last changes that operators have asked for, newest first",
    ),
    get("/api/v1/log-level", Action::LogLevel, &[], "The least severe level of lines that are logged"),
    change(
        ("PUT", "/api/v1/log-level"),
        Role::Admin,
        Action::SetLogLevel,
        (
            &[],
            &[required("level", "string", "`warn`, `info`, `debug` or `trace`")
                .of(Values::Words(&LOG_LEVELS))],
        ),
        "Change the level of the log until the next reload, or the end of the process",
    ),
    get("/api/v1/reload", Action::ShowReload, &[], "The outcome of the last reload of the configuration"),
    change(
        ("POST", "/api/v1/reload"),
        Role::Admin,
        Action::Reload,
        (&[], &[]),
        "Read the configuration, certificates, users and rules again, as SIGHUP does",
    ),
    change(
        ("POST", "/api/v1/session"),
        Role::Viewer,
        Action::LogIn,
        (&[], &[]),
        "Begin a session: the answer has a token in place of the user name and the password of the request",
    ),
    change(
        ("DELETE", "/api/v1/session"),
        Role::Viewer,
        Action::LogOut,
        (&[], &[]),
        "End the session whose token the request has",
    ),
];

impl Route {
    /// Whether the route is a part of the dashboard, which is for people.
    fn is_page(&self) -> bool {
        matches!(self.action, Action::Page | Action::Script | Action::View | Action::Style)
    }

    /// The reason why a query is not one of this route: without a word about it, a misspelt parameter would count for nothing.
    pub(crate) fn misfit(&self, query: &[(String, String)]) -> Option<String> {
        let has = |name: &str| self.query.iter().any(|parameter| parameter.name == name);
        query.iter().enumerate().find_map(|(index, (name, _))| {
            if !has(name) {
                return Some(format!("there is no parameter {name:?} here"));
            }
            let is_repeated = query[..index].iter().any(|(earlier, _)| earlier == name);
            is_repeated.then(|| format!("the parameter {name} is there twice"))
        })
    }
}

/// The route of a request.
#[derive(Debug)]
pub(crate) enum Match {
    /// The route, and the values of the parameters in its path.
    Found(&'static Route, Vec<String>),
    /// The path is there for other methods.
    OtherMethod,
    /// There is no such path.
    Unknown,
}

/// Finds the route of a request.
pub(crate) fn find(method: &str, path: &str) -> Match {
    let mut is_known = false;
    for route in routes() {
        if let Some(values) = fit(route.path, path) {
            // A client that may only ask whether something is there gets the same head.
            if route.method == method || (route.method == "GET" && method == "HEAD") {
                return Match::Found(route, values);
            }
            is_known = true;
        }
    }
    if is_known { Match::OtherMethod } else { Match::Unknown }
}

/// The values of the parameters of `pattern` in `path`. Slashes in a value are encoded.
fn fit(pattern: &str, path: &str) -> Option<Vec<String>> {
    let (mut wanted, mut given) = (pattern.split('/'), path.split('/'));
    let mut values = Vec::new();
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return Some(values),
            (Some(wanted), Some(given)) if wanted.starts_with('{') => {
                values.push(uri::segment(given)?);
            }
            (Some(wanted), Some(given)) if wanted == given => {}
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_path_leads_to_one_route_with_its_decoded_values() {
        let found = |method, path| match find(method, path) {
            Match::Found(route, values) => (route.action.to_string(), values),
            other => (format!("{other:?}"), Vec::new()),
        };
        assert_eq!(found("GET", "/api/v1/clients/a%2Fb").1, ["a/b"]);
        assert_eq!(found("DELETE", "/api/v1/clients/x").0, "EndSession");
        assert_eq!(found("DELETE", "/api/v1/clients/x/connection").0, "Disconnect");
        assert_eq!(found("PUT", "/api/v1/clients/x").0, "OtherMethod");
        for unknown in
            ["/api/v1/clients/", "/api/v1/clients/%zz", "/api/v1/../etc/passwd", "//healthz", "/x", ""]
        {
            assert_eq!(found("GET", unknown).0, "Unknown", "{unknown}");
        }
    }

    /// A trace may be published to a topic.
    #[test]
    fn a_trace_needs_at_least_the_role_for_messages() {
        let role = |path: &str| {
            routes().find(|route| (route.method, route.path) == ("POST", path)).map(|route| route.role)
        };
        assert!(role("/api/v1/publish").is_some() && role("/api/v1/trace") >= role("/api/v1/publish"));
    }

    #[test]
    fn routes_that_change_something_need_more_than_the_viewer_role() {
        let mut seen = HashSet::new();
        for route in routes() {
            assert!(seen.insert((route.method, route.path)), "{} is there twice", route.path);
            let is_secret = route.path.starts_with("/api/v1/trace");
            let is_change = route.method != "GET" && route.path != "/api/v1/session";
            assert_eq!(is_change || is_secret, route.role > Some(Role::Viewer), "{}", route.path);
        }
    }

    #[test]
    fn a_query_has_the_parameters_of_its_route_once() {
        let misfit = |method, path, query| {
            let Match::Found(route, _) = find(method, path) else { panic!("{path} is a path") };
            route.misfit(&uri::parameters(query).expect("it is well-formed"))
        };
        let queue = "/api/v1/clients/x/queue";
        assert_eq!(misfit("DELETE", queue, "filter=a&cursor=1-2"), None);
        assert_eq!(misfit("DELETE", queue, ""), None);
        for (method, path, query) in [
            ("DELETE", queue, "topic=a"),
            ("DELETE", queue, "filter=a&Filter=b"),
            ("DELETE", queue, "filter=a&filter=b"),
            ("GET", "/api/v1/bans", "limit=1"),
            ("GET", "/", "x"),
        ] {
            assert!(misfit(method, path, query).is_some(), "{path}?{query}");
        }
    }

    #[test]
    fn the_document_has_every_route() {
        let document = open_api("1");
        for route in routes().filter(|route| !route.is_page()) {
            let operation = &document["paths"][route.path][route.method.to_ascii_lowercase()];
            assert_eq!(operation["summary"], route.summary);
        }
    }
}
