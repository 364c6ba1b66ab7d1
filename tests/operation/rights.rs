//! Every route of the admin server, asked in each role.

use std::collections::BTreeSet;

use pondhawk_tests::conversation::lasting;
use pondhawk_tests::{Broker, Client, Options, Version, data_dir, packet, until};
use serde_json::Value;

use crate::admin::{Answer, Server};

/// The roles from the one with the fewest rights, and before them nobody, whose token is wrong.
const ROLES: [&str; 4] = ["nobody", "viewer", "operator", "admin"];

/// A route, with a request that succeeds in the roles that may make it.
struct Row {
    method: &'static str,
    /// The path in the table of routes.
    route: &'static str,
    path: &'static str,
    body: &'static str,
    /// The first of [`ROLES`] that may make the request.
    least: usize,
    status: u16,
    prepare: fn(&mut Scene),
}

const NOBODY: usize = 0;
const VIEWER: usize = 1;
const OPERATOR: usize = 2;
const ADMIN: usize = 3;

const fn nothing(_: &mut Scene) {}

/// A route without parameters in its path that shows something.
const fn show(route: &'static str, least: usize) -> Row {
    show_at(route, route, least, nothing)
}

const fn show_at(route: &'static str, path: &'static str, least: usize, prepare: fn(&mut Scene)) -> Row {
    Row { method: "GET", route, path, body: "", least, status: 200, prepare }
}

const fn change(
    (method, route): (&'static str, &'static str),
    (path, body): (&'static str, &'static str),
    least: usize,
    prepare: fn(&mut Scene),
) -> Row {
    Row { method, route, path, body, least, status: 200, prepare }
}

const FROG: &str = "/api/v1/clients/{client_id}";
const GROUP: &str = "/api/v1/groups/{filter}";
const BACKUP: Row =
    change(("POST", "/api/v1/backup"), ("/api/v1/backup", r#"{"name": "monday"}"#), ADMIN, nothing);

/// All routes. Changes that would disturb later rows are undone by the next one.
const ROWS: &[Row] = &[
    show("/", NOBODY),
    show("/app.js", NOBODY),
    show_at("/views/{script}", "/views/page.js", NOBODY, nothing),
    show("/style.css", NOBODY),
    show("/healthz", NOBODY),
    show("/readyz", NOBODY),
    show("/metrics", VIEWER),
    show("/api/v1/openapi.json", VIEWER),
    show("/api/v1/status", VIEWER),
    show("/api/v1/counters", VIEWER),
    show("/api/v1/shards", VIEWER),
    show("/api/v1/busiest", VIEWER),
    show("/api/v1/clients", VIEWER),
    show_at(FROG, "/api/v1/clients/frog", VIEWER, Scene::connect_frog),
    show_at(
        "/api/v1/clients/{client_id}/subscriptions",
        "/api/v1/clients/frog/subscriptions",
        VIEWER,
        nothing,
    ),
    show_at("/api/v1/clients/{client_id}/queue", "/api/v1/clients/frog/queue", VIEWER, nothing),
    change(
        ("DELETE", "/api/v1/clients/{client_id}/queue"),
        ("/api/v1/clients/frog/queue?all=true", ""),
        ADMIN,
        nothing,
    ),
    change(
        ("POST", "/api/v1/clients/{client_id}/queue/move"),
        ("/api/v1/clients/frog/queue/move", r#"{"to_group": "$share/g/jobs", "all": true}"#),
        ADMIN,
        Scene::connect_worker,
    ),
    show("/api/v1/outcomes", VIEWER),
    change(
        ("POST", "/api/v1/clients/{client_id}/outcomes"),
        ("/api/v1/clients/frog/outcomes", r#"{"seconds": 60}"#),
        OPERATOR,
        nothing,
    ),
    show_at(
        "/api/v1/clients/{client_id}/outcomes",
        "/api/v1/clients/frog/outcomes",
        VIEWER,
        Scene::record_frog,
    ),
    change(
        ("DELETE", "/api/v1/clients/{client_id}/outcomes"),
        ("/api/v1/clients/frog/outcomes", ""),
        OPERATOR,
        Scene::record_frog,
    ),
    change(
        ("DELETE", "/api/v1/clients/{client_id}/connection"),
        ("/api/v1/clients/frog/connection", ""),
        OPERATOR,
        Scene::connect_frog,
    ),
    change(("DELETE", FROG), ("/api/v1/clients/frog", ""), ADMIN, Scene::connect_frog),
    show_at("/api/v1/subscriptions", "/api/v1/subscriptions?topic=pond", VIEWER, nothing),
    show("/api/v1/groups", VIEWER),
    show_at(GROUP, "/api/v1/groups/%24share%2Fg%2Fjobs", VIEWER, Scene::connect_worker),
    show_at("/api/v1/groups/{filter}/members", "/api/v1/groups/%24share%2Fg%2Fjobs/members", VIEWER, nothing),
    show_at("/api/v1/groups/{filter}/queue", "/api/v1/groups/%24share%2Fg%2Fjobs/queue", VIEWER, nothing),
    change(
        ("DELETE", "/api/v1/groups/{filter}/queue"),
        ("/api/v1/groups/%24share%2Fg%2Fjobs/queue?all=true", ""),
        ADMIN,
        nothing,
    ),
    change(
        ("POST", "/api/v1/groups/{filter}/queue/move"),
        ("/api/v1/groups/%24share%2Fg%2Fjobs/queue/move", r#"{"to_client": "frog", "all": true}"#),
        ADMIN,
        Scene::connect_frog,
    ),
    show_at("/api/v1/explain", "/api/v1/explain?publisher=a&topic=b&subscriber=c", VIEWER, nothing),
    change(
        ("POST", "/api/v1/publish"),
        ("/api/v1/publish", r#"{"topic": "pond/x", "payload": "croak", "retain": true}"#),
        OPERATOR,
        nothing,
    ),
    show("/api/v1/retained", VIEWER),
    show_at("/api/v1/retained/{topic}", "/api/v1/retained/pond%2Fx", VIEWER, Scene::retain),
    change(
        ("DELETE", "/api/v1/retained/{topic}"),
        ("/api/v1/retained/pond%2Fx", ""),
        OPERATOR,
        Scene::retain,
    ),
    change(("DELETE", "/api/v1/retained"), ("/api/v1/retained?filter=pond%2F%23", ""), OPERATOR, nothing),
    show("/api/v1/topics", VIEWER),
    show("/api/v1/bans", VIEWER),
    change(
        ("POST", "/api/v1/bans"),
        ("/api/v1/bans", r#"{"kind": "client_id", "value": "toad"}"#),
        OPERATOR,
        nothing,
    ),
    change(
        ("DELETE", "/api/v1/bans/{kind}/{value}"),
        ("/api/v1/bans/client_id/toad", ""),
        OPERATOR,
        Scene::ban,
    ),
    show("/api/v1/drain", VIEWER),
    change(("POST", "/api/v1/drain"), ("/api/v1/drain", r#"{"seconds": 3600}"#), ADMIN, nothing),
    change(("DELETE", "/api/v1/drain"), ("/api/v1/drain", ""), ADMIN, nothing),
    change(
        ("POST", "/api/v1/trace"),
        ("/api/v1/trace", r#"{"kind": "client_id", "value": "frog"}"#),
        ADMIN,
        nothing,
    ),
    show("/api/v1/trace", ADMIN),
    show("/api/v1/trace/capture", ADMIN),
    change(("DELETE", "/api/v1/trace"), ("/api/v1/trace", ""), ADMIN, nothing),
    show("/api/v1/listeners", VIEWER),
    show("/api/v1/users", VIEWER),
    show("/api/v1/certificates", VIEWER),
    show("/api/v1/log", VIEWER),
    show("/api/v1/audit", VIEWER),
    show("/api/v1/reload", VIEWER),
    show("/api/v1/configuration", VIEWER),
    show("/api/v1/backup", VIEWER),
    Row { status: 202, ..BACKUP },
    show("/api/v1/log-level", VIEWER),
    change(("PUT", "/api/v1/log-level"), ("/api/v1/log-level", r#"{"level": "debug"}"#), ADMIN, nothing),
    change(("POST", "/api/v1/reload"), ("/api/v1/reload", ""), ADMIN, nothing),
    show("/api/v1/access/sources", VIEWER),
    show("/api/v1/access/roles", VIEWER),
    show("/api/v1/access/groups", VIEWER),
    change(
        ("POST", "/api/v1/access/users"),
        ("/api/v1/access/users", r#"{"name": "anna", "password": "right"}"#),
        ADMIN,
        nothing,
    ),
    show("/api/v1/access/users", VIEWER),
    show_at("/api/v1/access/users/{user}", "/api/v1/access/users/anna", VIEWER, nothing),
    change(
        ("PUT", "/api/v1/access/users/{user}/password"),
        ("/api/v1/access/users/anna/password", r#"{"password": "new"}"#),
        ADMIN,
        nothing,
    ),
    change(
        ("PUT", "/api/v1/access/users/{user}/enabled"),
        ("/api/v1/access/users/anna/enabled", r#"{"enabled": false}"#),
        ADMIN,
        nothing,
    ),
    change(
        ("PUT", "/api/v1/access/users/{user}/roles/{role}"),
        ("/api/v1/access/users/anna/roles/reader?priority=5", ""),
        ADMIN,
        nothing,
    ),
    change(
        ("DELETE", "/api/v1/access/users/{user}/roles/{role}"),
        ("/api/v1/access/users/anna/roles/reader", ""),
        ADMIN,
        nothing,
    ),
    change(
        ("PUT", "/api/v1/access/users/{user}/groups/{group}"),
        ("/api/v1/access/users/anna/groups/staff", ""),
        ADMIN,
        nothing,
    ),
    change(
        ("DELETE", "/api/v1/access/users/{user}/groups/{group}"),
        ("/api/v1/access/users/anna/groups/staff", ""),
        ADMIN,
        nothing,
    ),
    change(("DELETE", "/api/v1/access/users/{user}"), ("/api/v1/access/users/anna", ""), ADMIN, nothing),
    change(
        ("POST", "/api/v1/access/commands"),
        ("/api/v1/access/commands", r#"{"commands": [{"command": "listClients"}]}"#),
        ADMIN,
        nothing,
    ),
    // No listener has a file of rules.
    Row { status: 404, ..show_at("/api/v1/access/rules", "/api/v1/access/rules?place=x", VIEWER, nothing) },
    // A token begins no session, and has none.
    Row { status: 400, ..change(("POST", "/api/v1/session"), ("/api/v1/session", ""), VIEWER, nothing) },
    Row { status: 400, ..change(("DELETE", "/api/v1/session"), ("/api/v1/session", ""), VIEWER, nothing) },
];

/// A broker with a token for each role, and its clients.
struct Scene {
    broker: Broker,
    address: String,
    clients: Vec<Client>,
    _directory: tempfile::TempDir,
}

/// The token of a role.
fn token(role: &str) -> String {
    format!("{role}-0123456789abcdef")
}

impl Scene {
    fn new() -> Self {
        let directory = data_dir();
        let file = |role: &str| {
            let path = directory.path().join(role);
            std::fs::write(&path, token(role)).expect("it is ours");
            format!("{role}_token_file = {path:?}\n")
        };
        let tokens: String = ROLES[1..].iter().map(|role| file(role)).collect();
        let settings = format!(
            "shards = 2\n[admin]\naddress = \"127.0.0.1:0\"\nbackup_dir = {:?}\n{tokens}\
             [[listener]]\naddress = \"127.0.0.1:0\"\n\
             [[listener]]\naddress = \"127.0.0.1:0\"\ndynamic_security_file = {:?}\n",
            directory.path(),
            directory.path().join("dynamic"),
        );
        let dynamic = r#"{"roles": [{"rolename": "reader"}], "groups": [{"groupname": "staff"}]}"#;
        std::fs::write(directory.path().join("dynamic"), dynamic).expect("it is ours");
        let file = directory.path().join("pondhawk.toml");
        std::fs::write(&file, settings).expect("it is ours");
        let broker = Broker::start(&Options { file: Some(file), ..Options::default() });
        let address = Server::address_of(&broker);
        Self { broker, address, clients: Vec::new(), _directory: directory }
    }

    fn server(&self, role: &str) -> Server {
        Server::with(&self.address, &token(role))
    }

    fn send(&self, role: &str, method: &str, path: &str, body: &str) -> Answer {
        let headers = if body.is_empty() { "" } else { "Content-Type: application/json\r\n" };
        self.server(role).send(method, path, headers, body)
    }

    /// Does what an operator can do, for a row that needs it.
    fn order(&self, method: &str, path: &str, body: &str) {
        let answer = self.send("admin", method, path, body);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    }

    /// Connects a client with a lasting session and this subscription.
    fn connect(&mut self, client_id: &str, filter: &str) {
        let mut client = self.broker.client_with(&lasting(Version::V5, client_id));
        client.send(&packet::subscribe_with(Version::V5, 1, filter, 1));
        assert_eq!(client.read_packet()[0], 0x90);
        self.clients.push(client);
    }

    fn connect_frog(&mut self) {
        self.connect("frog", "pond/#");
    }

    fn connect_worker(&mut self) {
        self.connect("worker", "$share/g/jobs");
    }

    fn retain(&mut self) {
        self.order("POST", "/api/v1/publish", r#"{"topic": "pond/x", "payload": "croak", "retain": true}"#);
        let server = self.server("viewer");
        until("it is retained", || (server.get("/api/v1/retained/pond%2Fx").status == 200).then_some(()));
    }

    fn record_frog(&mut self) {
        self.order("POST", "/api/v1/clients/frog/outcomes", r#"{"seconds": 60}"#);
    }

    fn ban(&mut self) {
        self.order("POST", "/api/v1/bans", r#"{"kind": "client_id", "value": "toad"}"#);
    }
}

/// Requests that are refused come first, and change nothing: the first one that is permitted finds everything as it was.
#[test]
fn each_route_answers_each_role_as_it_should() {
    let mut scene = Scene::new();
    for row in ROWS {
        (row.prepare)(&mut scene);
        for (at, role) in ROLES.iter().enumerate() {
            if at > row.least {
                (row.prepare)(&mut scene);
            }
            let answer = scene.send(role, row.method, row.path, row.body);
            let wanted: &[u16] = match at {
                _ if at >= row.least => &[row.status],
                // After many wrong tokens, further ones have another status.
                NOBODY => &[401, 429],
                _ => &[403],
            };
            let Answer { status, body, .. } = answer;
            assert!(wanted.contains(&status), "{role}: {} {}: {status} {body}", row.method, row.path);
            assert!(at >= row.least || body.contains("\"error\""), "{role}: {body}");
        }
    }
}

/// A route that the API describes and that has no row here would be a right that nobody looks at.
#[test]
fn each_route_of_the_description_has_a_row() {
    let scene = Scene::new();
    let document = scene.server("viewer").value("/api/v1/openapi.json");
    let paths = document["paths"].as_object().expect("an object");
    let operations = |(path, methods): (&String, &Value)| {
        let methods = methods.as_object().expect("an object").clone();
        let path = path.clone();
        methods.into_iter().map(move |(method, operation)| {
            let needs = operation["description"].as_str().unwrap_or_default();
            let role = ROLES[1..].iter().position(|role| needs.contains(&format!("the role {role} ")));
            (method.to_uppercase(), path.clone(), role.map_or(NOBODY, |at| at + 1))
        })
    };
    let described: BTreeSet<_> = paths.iter().flat_map(operations).collect();
    let rows =
        ROWS.iter().filter(|row| !["/", "/app.js", "/style.css", "/views/{script}"].contains(&row.route));
    let rows: BTreeSet<_> =
        rows.map(|row| (row.method.to_owned(), row.route.to_owned(), row.least)).collect();
    assert_eq!(described, rows);
    for row in ROWS {
        assert_eq!(scene.send("admin", "PATCH", row.path, "").status, 405, "{}", row.path);
    }
}
