//! The server for operators: health, metrics, the API, and what it refuses.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use pondhawk_tests::packet::Connect;
use pondhawk_tests::{Broker, Options, Version, until};
use serde_json::{Value, json};

/// Time in which an answer must have come.
const DEADLINE: Duration = Duration::from_secs(20);

/// The server of a broker, with one of its tokens.
pub(super) struct Server {
    address: SocketAddr,
    token: String,
}

/// An answer of the server, with its status, its head and its body.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
}

impl Answer {
    /// The status line with all headers, in small letters, and the body.
    pub(super) fn text(&self) -> String {
        format!("{}\n{}", self.head, self.body)
    }
}

impl Server {
    /// The server of a broker with a generated token.
    pub(super) fn of(broker: &Broker) -> Self {
        let address = Self::address_of(broker);
        let line = broker.wait_for_log("its token ");
        let last = line.split_whitespace().last().expect("the line ends with the token or its file");
        let token = std::fs::read_to_string(last).unwrap_or_else(|_| last.to_owned()).trim().to_owned();
        Self::with(&address, &token)
    }

    /// The address of the server of a broker.
    pub(super) fn address_of(broker: &Broker) -> String {
        let line = broker.wait_for_log("admin server on http");
        line.split("://").nth(1).expect("an address").trim().to_owned()
    }

    /// The server of a broker with a token for each role: those of an admin, an operator and a viewer. `files` is a directory for
    /// the tokens.
    pub(super) fn with_roles(shards: u16, settings: &str, files: &Path) -> (Broker, [Self; 3]) {
        Self::with_roles_and(shards, (settings, ""), files)
    }

    /// The same with more keys of `[admin]`.
    pub(super) fn with_roles_and(
        shards: u16,
        (settings, keys): (&str, &str),
        files: &Path,
    ) -> (Broker, [Self; 3]) {
        let roles = ["admin", "operator", "viewer"];
        let token = |role: &str| format!("{role}-0123456789abcdef");
        let mut admin = format!("[admin]\naddress = \"127.0.0.1:0\"\n{keys}");
        for role in roles {
            let path = files.join(role);
            fs::write(&path, format!("# {role}\n{} {role} of the night\n", token(role))).expect("it is ours");
            admin.push_str(&format!("{role}_token_file = {path:?}\n"));
        }
        let settings = format!("{settings}\n{admin}");
        let broker = Broker::start(&Options { shards, settings, ..Options::default() });
        let address = Self::address_of(&broker);
        let servers = roles.map(|role| Self::with(&address, &token(role)));
        (broker, servers)
    }

    /// The server at an address, with a token for it.
    pub(super) fn with(address: &str, token: &str) -> Self {
        Self { address: address.parse().expect("an address"), token: token.to_owned() }
    }

    /// The URL of the dashboard, without the slash.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn token(&self) -> &str {
        &self.token
    }

    pub(super) fn with_token(&self, token: &str) -> Self {
        Self { address: self.address, token: token.to_owned() }
    }

    /// Sends bytes as they are, and reads until the server closes.
    pub(super) fn raw(&self, bytes: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout can be set");
        stream.write_all(bytes).expect("it reads");
        let mut text = Vec::new();
        // A connection that is reset has said enough.
        let _ = stream.read_to_end(&mut text);
        answer_of(&text)
    }

    /// A connection that has sent a right token, and stays.
    fn stay(&self) -> TcpStream {
        let Self { address, token } = self;
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout can be set");
        let request = format!(
            "GET /api/v1/openapi.json HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        let (mut text, mut piece) = (Vec::new(), [0; 4_096]);
        // The document ends with a closing brace and a line feed.
        while !text.ends_with(b"}\n") {
            let bytes = stream.read(&mut piece).expect("it answers");
            assert_ne!(bytes, 0, "it is closed");
            text.extend(&piece[..bytes]);
        }
        stream
    }

    fn request(&self, method: &str, path: &str, headers: &str, body: &str) -> String {
        let Self { address, token } = self;
        let length = body.len();
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n\
             Authorization: Bearer {token}\r\n{headers}\r\n{body}"
        )
    }

    pub(super) fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        self.raw(self.request(method, path, headers, body).as_bytes())
    }

    /// Sends a request, and closes the connection without a look at the answer.
    pub(super) fn send_and_hang_up(&self, method: &str, path: &str, headers: &str, body: &str) {
        drop(self.send_unread(method, path, headers, body));
    }

    /// Sends a request, and returns its connection. The server may not begin if it is closed at once.
    pub(super) fn send_unread(&self, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        stream.write_all(self.request(method, path, headers, body).as_bytes()).expect("it reads");
        stream
    }

    pub(super) fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "", "")
    }

    pub(super) fn value(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        serde_json::from_str(&answer.body).expect("the answer is JSON")
    }

    /// A command with this server and its token, which is written into a directory.
    pub(super) fn command(&self, words: &[&str], directory: &std::path::Path) -> std::process::Command {
        let file = directory.join("token");
        std::fs::write(&file, &self.token).expect("it is ours");
        let mut command = std::process::Command::new(pondhawk_tests::pondhawk());
        command.args(words).args(["--admin", &self.address.to_string(), "--token-file"]).arg(&file);
        command.env("HOME", directory);
        command
    }

    /// Runs a command with this server and its token. Returns whether it has succeeded, and all that it has printed.
    pub(super) fn run(&self, words: &[&str]) -> (bool, String) {
        let directory = tempfile::tempdir().expect("a directory");
        let output = self.command(words, directory.path()).output().expect("it can be run");
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).expect("it prints text"))
    }

    pub(super) fn publish(&self, body: &Value) -> Answer {
        self.send("POST", "/api/v1/publish", "Content-Type: application/json\r\n", &body.to_string())
    }
}

/// An answer in bytes. The status of what is none is 0.
pub(super) fn answer_of(bytes: &[u8]) -> Answer {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
}

pub(super) fn broker(settings: &str) -> (Broker, Server) {
    let settings = format!("[admin]\naddress = \"127.0.0.1:0\"\n{settings}");
    let broker = Broker::start(&Options { shards: 2, settings, ..Options::default() });
    let server = Server::of(&broker);
    (broker, server)
}

#[test]
fn an_operator_finds_and_disconnects_clients() {
    let (broker, server) = broker("");
    assert_eq!(server.value("/readyz"), json!({ "ready": true, "missing": [], "warnings": [] }));
    let mut frog = broker.client(Version::V5, "frog/1");
    frog.subscribe("pond/#");
    let client = until("the client is listed", || {
        let clients = server.value("/api/v1/clients");
        clients["clients"].as_array().and_then(|clients| clients.first().cloned())
    });
    assert_eq!((&client["client_id"], &client["protocol"]), (&json!("frog/1"), &json!("5.0")));
    assert_eq!(server.value("/api/v1/clients/frog%2F1")["subscriptions"], 1);
    let subscriptions = server.value("/api/v1/clients/frog%2F1/subscriptions");
    assert_eq!(subscriptions["subscriptions"][0]["filter"], "pond/#");
    assert_eq!(server.get("/api/v1/clients/toad").status, 404);
    assert_eq!(server.value("/api/v1/clients?match=toad")["clients"], json!([]));
    let answer = server.send("DELETE", "/api/v1/clients/frog%2F1/connection", "", "");
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(frog.read_packet(), [0xe0, 1, 0x98], "Administrative action");
    broker.wait_for_log("action=Disconnect on=\"frog/1\" role=\"admin\"");
    until("the client is gone", || (server.get("/api/v1/clients/frog%2F1").status == 404).then_some(()));
}

#[test]
fn an_operator_publishes_and_clears_retained_messages() {
    let (broker, server) = broker("");
    let mut frog = broker.client(Version::V3_1_1, "frog");
    frog.subscribe("pond/#");
    let answer = server.publish(&json!({ "topic": "pond/é", "payload": "croak", "retain": true, "qos": 1 }));
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(frog.read_packet().ends_with(b"croak"));
    let list = server.value("/api/v1/retained?filter=pond/%2B");
    assert_eq!((&list["retained"][0]["topic"], &list["cursor"]), (&json!("pond/é"), &Value::Null));
    for cursor in ["0", "zz", "%2Bf", "%C3%A9"] {
        assert_eq!(server.get(&format!("/api/v1/retained?cursor={cursor}")).status, 400, "{cursor}");
    }
    assert_eq!(server.value("/api/v1/retained/pond%2F%C3%A9")["payload"], "croak");
    assert_eq!(server.send("DELETE", "/api/v1/retained/pond%2F%C3%A9", "", "").status, 200);
    until("it is gone", || (server.get("/api/v1/retained/pond%2F%C3%A9").status == 404).then_some(()));
    for (body, status) in [
        (json!({ "topic": "a/#", "payload": "" }), 400),
        (json!({ "topic": "$SYS/x", "payload": "" }), 403),
        (json!({ "topic": "a" }), 400),
        (json!({ "topic": "a", "payload": 1 }), 400),
        (json!({ "topic": "a", "payload": "!", "encoding": "base64" }), 400),
        (json!({ "topic": "a", "payload": "", "qos": 3 }), 400),
        (json!([]), 400),
    ] {
        assert_eq!(server.publish(&body).status, status, "{body}");
    }
}

#[test]
fn long_lists_come_in_pieces_with_cursors() {
    let (broker, server) = broker("");
    let clients: Vec<_> =
        (0..7).map(|number| broker.client(Version::V3_1_1, &format!("frog-{number}"))).collect();
    for number in 0..7 {
        let topic = format!("pond/{number}");
        assert_eq!(server.publish(&json!({ "topic": topic, "payload": "", "retain": true })).status, 200);
        let body = json!({ "topic": topic, "payload": "x", "retain": true });
        assert_eq!(server.publish(&body).status, 200);
    }
    let pieces = |path: &str, items: &str, name: &str| {
        let (mut found, mut cursor) = (Vec::new(), String::new());
        for _ in 0..10 {
            let list = server.value(&format!("{path}{cursor}"));
            let items = list[items].as_array().expect("a list");
            assert!(items.len() <= 2);
            found.extend(items.iter().map(|item| item[name].as_str().expect("a text").to_owned()));
            match list["cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        found.sort_unstable();
        found
    };
    let numbered = |name: &str| (0..7).map(|number| format!("{name}{number}")).collect::<Vec<_>>();
    assert_eq!(pieces("/api/v1/clients?limit=2", "clients", "client_id"), numbered("frog-"));
    assert_eq!(pieces("/api/v1/retained?filter=pond/%23&limit=2", "retained", "topic"), numbered("pond/"));
    assert_eq!(server.get("/api/v1/clients?cursor=x").status, 400);
    drop(clients);
}

#[test]
fn a_session_of_an_absent_client_and_of_a_connected_one_can_be_ended() {
    let (broker, server) = broker("");
    let lasting = |client_id| {
        let connect = Connect { clean_start: false, ..Connect::new(Version::V3_1_1, client_id) };
        let mut client = broker.client_with(&connect);
        client.subscribe("pond/#");
        client
    };
    drop(lasting("toad"));
    let _frog = lasting("frog");
    let toad = until("the toad has left", || {
        let toad = server.value("/api/v1/clients/toad");
        (toad["connected"] == false).then_some(toad)
    });
    assert_eq!(toad["subscriptions"], 1);
    for client_id in ["toad", "frog"] {
        let answer = server.send("DELETE", &format!("/api/v1/clients/{client_id}"), "", "");
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert_eq!(server.get(&format!("/api/v1/clients/{client_id}")).status, 404);
    }
}

/// A client cannot hide a change by hanging up.
#[test]
fn a_change_whose_client_has_hung_up_is_in_the_log() {
    let (broker, server) = broker("");
    for number in 0..50 {
        let reference = format!("b:{number}");
        let body = json!({ "server_reference": &reference, "seconds": 3_600 }).to_string();
        server.send_and_hang_up("POST", "/api/v1/drain", "Content-Type: application/json\r\n", &body);
        // The server may see the end of the connection before it begins.
        if server.value("/api/v1/drain")["server_reference"] == *reference {
            broker.wait_for_log(&format!("action=Drain on=\"{reference}\""));
        }
    }
}

#[test]
fn an_explanation_names_the_reason() {
    let (broker, server) = broker("");
    let mut frog = broker.client(Version::V3_1_1, "frog");
    frog.subscribe("pond/+");
    let _toad = broker.client(Version::V3_1_1, "toad");
    let explain = |publisher: &str, topic: &str, subscriber: &str| {
        let path = format!("/api/v1/explain?publisher={publisher}&topic={topic}&subscriber={subscriber}");
        let value = server.value(&path);
        (value["outcome"].clone(), value["reason"].clone(), value["nearly_matching"].clone())
    };
    assert_eq!(explain("toad", "pond/x", "frog"), (json!("delivered"), json!("delivered"), json!([])));
    let (outcome, reason, nearly) = explain("toad", "Pond/x", "frog");
    assert_eq!((outcome, reason), (json!("not-delivered"), json!("no_matching_filter")));
    assert_eq!(nearly[0]["filter"], "pond/+");
    assert_eq!(explain("toad", "pond/x", "newt").1, "no_session");
    assert_eq!(explain("toad", "pond/x", "toad").1, "no_matching_filter");
    assert_eq!(server.get("/api/v1/explain?topic=a").status, 400);
}

#[test]
fn the_api_is_there_on_the_command_line() {
    let (broker, server) = broker("");
    let _frog = broker.client(Version::V3_1_1, "frog");
    let run = |words: &[&str]| server.run(words);
    let clients = until("the client is listed", || {
        let (_, text) = run(&["ctl", "clients"]);
        text.contains("frog").then_some(text)
    });
    assert!(clients.starts_with("CLIENT  USER  CONNECTED"), "{clients}");
    let _newt = broker.client(Version::V5, "newt");
    let names = |words: &[&str]| {
        let (is_done, text) = run(&[&["ctl", "clients", "--json"], words].concat());
        assert!(is_done, "{text}");
        let all: Value = serde_json::from_str(&text).expect("it prints JSON");
        let all = all.as_array().expect("a list").clone();
        all.iter().map(|client| client["client_id"].as_str().expect("a text").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&["--protocol", "3.1.1"]), ["frog"]);
    assert_eq!(names(&["--protocol", "5.0", "--state", "open"]), ["newt"]);
    assert!(names(&["--state", "slow"]).is_empty());
    assert!(run(&["ctl", "clients", "--state", "lazy"]).1.contains("[possible values: open, full, slow]"));
    let refused = server.get("/api/v1/clients?state=lazy");
    assert!(refused.status == 400 && refused.body.contains("open, full, slow"), "{}", refused.body);
    assert!(run(&["ctl", "publish", "pond/frog", "croak", "--retain"]).0);
    let (_, retained) = run(&["ctl", "retained", "pond/#", "--json"]);
    let retained: Value = serde_json::from_str(&retained).expect("it prints JSON");
    assert_eq!(retained[0]["payload"], "croak");
    assert!(run(&["ctl", "clear", "pond/frog"]).0);
    assert!(run(&["ctl", "ban", "user", "ann/1", "--reason", "noisy"]).0);
    let (_, bans) = run(&["ctl", "bans"]);
    for list in [&["listeners"][..], &["groups"], &["subscriptions", "frog"]] {
        let (is_done, text) = run(&[&["ctl"], list].concat());
        assert!(is_done && text.contains("  "), "{list:?}: {text}");
    }
    assert_eq!(bans, "KIND  VALUE  SECONDS LEFT  REASON\nuser  ann/1  -             noisy\n");
    assert!(run(&["ctl", "lift-ban", "user", "ann/1"]).0);
    assert_eq!(run(&["ctl", "log-level"]), (true, "level  info\n".to_owned()));
    assert!(run(&["ctl", "log-level", "warn"]).0);
    assert_eq!(run(&["ctl", "log-level"]).1, "level  warn\n");
    let (is_done, text) = run(&["ctl", "client", "toad"]);
    assert_eq!((is_done, text.as_str()), (false, "error: there is no client toad\n"));
    let (_, text) = run(&["explain", "--publisher", "toad", "--topic", "a", "--subscriber", "frog"]);
    assert!(text.ends_with("=> not delivered (no_matching_filter)\n"), "{text}");
}

#[test]
fn metrics_are_in_the_format_of_prometheus() {
    let (broker, server) = broker("");
    let _frog = broker.client(Version::V3_1_1, "frog");
    let answer = server.get("/metrics");
    assert!(answer.head.contains("content-type: text/plain; version=0.0.4"), "{}", answer.head);
    let has = |line: &str| answer.body.lines().any(|found| found == line);
    assert!(has("pondhawk_clients_connected 1"), "{}", answer.body);
    assert!(has("# TYPE pondhawk_messages_dropped_total counter"));
    assert!(has("pondhawk_journal_failed 0"));
    let samples = answer.body.lines().filter(|line| !line.starts_with('#'));
    for sample in samples {
        let (name, value) = sample.rsplit_once(' ').expect("a name and a value");
        assert!(name.starts_with("pondhawk_") && value.parse::<f64>().is_ok(), "{sample}");
    }
}

#[test]
fn each_role_has_its_rights() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = |role: &str| {
        let path = directory.path().join(role);
        std::fs::write(&path, format!("# for tests\n{role}-0123456789abcdef\n")).expect("it is ours");
        format!("{role}_token_file = {path:?}\n")
    };
    let settings: String = ["viewer", "operator", "admin"].map(file).concat();
    let settings = format!("[admin]\naddress = \"127.0.0.1:0\"\n{settings}");
    let broker = Broker::start(&Options { settings, ..Options::default() });
    let server = Server::with(&Server::address_of(&broker), "");
    let statuses = |token: &str| {
        let server = server.with_token(token);
        let requests = [
            ("GET", "/healthz"),
            ("GET", "/api/v1/clients"),
            ("DELETE", "/api/v1/clients/nobody/connection"),
            ("DELETE", "/api/v1/clients/nobody"),
            ("GET", "/api/v1/drain"),
            ("DELETE", "/api/v1/drain"),
            ("GET", "/api/v1/groups"),
            ("DELETE", "/api/v1/clients/nobody/queue?all=true"),
            ("DELETE", "/api/v1/groups/nobody/queue?all=true"),
            ("POST", "/api/v1/backup"),
            ("PUT", "/api/v1/log-level"),
            ("GET", "/api/v1/trace"),
            ("DELETE", "/api/v1/trace"),
        ];
        requests.map(|(method, path)| server.send(method, path, "", "").status)
    };
    assert_eq!(
        statuses("viewer-0123456789abcdef"),
        [200, 200, 403, 403, 200, 403, 200, 403, 403, 403, 403, 403, 403]
    );
    assert_eq!(
        statuses("operator-0123456789abcdef"),
        [200, 200, 404, 403, 200, 403, 200, 403, 403, 403, 403, 403, 403]
    );
    // Two of them need a body.
    assert_eq!(
        statuses("admin-0123456789abcdef"),
        [200, 200, 404, 404, 200, 404, 200, 404, 404, 415, 415, 404, 404]
    );
    assert_eq!(
        statuses("viewer-0123456789abcdeg"),
        [200, 401, 401, 401, 401, 401, 401, 401, 401, 401, 401, 401, 401]
    );
    let secrets = server.with_token("viewer-0123456789abcdef").get("/api/v1/configuration").body;
    assert!(secrets.contains("[admin]") && !secrets.contains("0123456789abcdef"), "{secrets}");
}

#[test]
fn requests_of_attackers_are_refused() {
    let (_broker, server) = broker("body_bytes = \"1 KiB\"\n");
    let Server { address, token } = &server;
    let get = |host: &str, more: &str| {
        server.raw(format!("GET /api/v1/clients HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n{more}\r\n").as_bytes())
    };
    assert_eq!(get("localhost", "").status, 200);
    assert_eq!(get("evil.example", "").status, 421, "DNS rebinding");
    assert_eq!(get("localhost", "Origin: http://evil.example\r\n").status, 421, "a foreign page");
    assert_eq!(get("localhost", "Origin: http://localhost:1\r\n").status, 200);
    let form = server.send(
        "POST",
        "/api/v1/publish",
        "Content-Type: text/plain\r\n",
        "{\"topic\":\"a\",\"payload\":\"\"}",
    );
    assert_eq!(form.status, 415, "a form of a foreign page");
    let large = json!({ "topic": "a", "payload": "x".repeat(2_000) });
    assert_eq!(server.publish(&large).status, 413);
    assert_eq!(server.send("POST", "/api/v1/reload", "", "x").status, 413, "nobody wants this body");
    for path in ["/../etc/passwd", "/api/v1/..%2f..%2fetc%2fpasswd", "/%00", "//", "/api/v1/clients/%ff"] {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
    assert_eq!(server.send("PUT", "/api/v1/clients", "", "").status, 405);
    let many: String = (0..100).map(|number| format!("X-{number}: y\r\n")).collect();
    assert_eq!(get("localhost", &many).status, 431);
    assert_ne!(get("localhost", &format!("X: {}\r\n", "y".repeat(100_000))).status, 200);
    let split = server.get("/api/v1/clients/a%0d%0aX-Injected:%20yes");
    assert!(split.status == 404 && !split.head.contains("x-injected"), "{}", split.head);
    let headers = server.get("/healthz").head;
    for header in ["x-frame-options: deny", "frame-ancestors 'none'", "x-content-type-options: nosniff"] {
        assert!(headers.contains(header), "{headers}");
    }
    assert!(TcpStream::connect(address).is_ok());
}

#[test]
fn wrong_tokens_are_limited_and_right_ones_go_on() {
    let (_broker, server) = broker("");
    let wrong = server.with_token("0123456789abcdef");
    let statuses: Vec<u16> = (0..30).map(|_| wrong.get("/api/v1/clients").status).collect();
    assert_eq!(statuses[0], 401);
    assert_eq!(statuses[29], 429);
    assert_eq!(server.get("/api/v1/clients").status, 200);
    let metrics = server.get("/metrics").body;
    assert!(metrics.contains("pondhawk_admin_refused_total{reason=\"guessing\"} 10\n"), "{metrics}");
}

#[test]
fn slow_clients_are_closed() {
    let (_broker, server) = broker("request_timeout = \"200 ms\"\n");
    let slow = server.raw(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n");
    assert!(slow.status != 200, "{}", slow.head);
    let begun = b"POST /api/v1/publish HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n";
    let begun = [begun, format!("Authorization: Bearer {}\r\n\r\n{{", server.token).as_bytes()].concat();
    assert_eq!(server.raw(&begun).status, 408);
    until("both are counted", || {
        server
            .get("/metrics")
            .body
            .contains("pondhawk_admin_refused_total{reason=\"slow\"} 2\n")
            .then_some(())
    });
}

#[test]
fn connections_beyond_the_limit_are_closed() {
    let (_broker, server) = broker("connections = 2\n");
    let known = [(); 2].map(|()| server.stay());
    assert_eq!(server.get("/healthz").status, 0, "closed without an answer");
    drop(known);
    let line = "pondhawk_admin_refused_total{reason=\"connections\"}";
    until("there is a place again", || server.get("/metrics").body.contains(line).then_some(()));
}

/// Anybody can open connections. Those without a token do not keep operators out.
#[test]
fn connections_without_a_token_give_way() {
    let (_broker, server) = broker("connections = 2\n");
    let mut known = server.stay();
    let strangers = [(); 20].map(|()| TcpStream::connect(server.address).expect("it listens"));
    assert_eq!(server.get("/api/v1/status").status, 200);
    known.write_all(b"x").expect("it is open");
    for mut stranger in strangers {
        stranger.set_read_timeout(Some(DEADLINE)).expect("a timeout can be set");
        assert_eq!(stranger.read(&mut [0]).unwrap_or(0), 0, "it is closed");
    }
    known.set_read_timeout(Some(Duration::from_millis(1))).expect("a timeout can be set");
    assert!(known.read(&mut [0]).is_err(), "it is still open, and has nothing to say");
}

#[test]
fn a_message_of_an_operator_keeps_to_the_limits_of_topics_and_is_in_the_log() {
    let settings = "[limits]\ntopic_levels = 3\n[admin]\naddress = \"127.0.0.1:0\"\n".to_owned();
    let broker = Broker::start(&Options { settings, ..Options::default() });
    let server = Server::of(&broker);
    assert_eq!(server.publish(&json!({ "topic": "a/b/c", "payload": "x" })).status, 200);
    broker.wait_for_log("action=Publish on=\"a/b/c\"");
    let refused = server.publish(&json!({ "topic": "a/b/c/d", "payload": "x" }));
    assert_eq!(refused.status, 400);
    assert!(refused.body.contains("more than 3 levels"), "{}", refused.body);
}

#[test]
fn without_an_address_there_is_no_server() {
    let broker = Broker::start(&Options::default());
    broker.stop();
    let settings = "[admin]\naddress = \"0.0.0.0:0\"\n".to_owned();
    let refused = Broker::try_start(&Options { settings, ..Options::default() });
    let Err(error) = refused else { panic!("other machines would reach it without a token") };
    assert!(error.contains("admin_token_file"), "{error}");
}

/// A list of many clients takes milliseconds of a processor, which may be that of a shard.
#[test]
#[cfg(target_os = "linux")]
fn the_thread_that_answers_operators_gives_way_to_those_that_serve_clients() {
    let settings = "[admin]\naddress = \"127.0.0.1:0\"\n".to_owned();
    let broker = Broker::start(&Options { settings, ..Options::default() });
    let _server = Server::of(&broker);
    let niceness_of = |name: &str| {
        let threads = fs::read_dir(format!("/proc/{}/task", broker.process_id())).expect("it runs");
        let mut stats =
            threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
        // The name of the thread, in parentheses, is the second field. Niceness is field 19. A thread gives itself its name.
        let stat = stats.find(|stat| stat.contains(&format!("({name})")))?;
        stat.rsplit(')').next()?.split_whitespace().nth(16)?.parse::<i32>().ok()
    };
    until("it gives way", || {
        let lowered = 19.min(niceness_of("shard-0")? + 10);
        (niceness_of("admin")? == lowered).then_some(())
    });
}
