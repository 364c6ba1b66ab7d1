//! Operators who are known by a password, a certificate or a session, over TLS.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use pondhawk_tests::packet::Connect;
use pondhawk_tests::{Broker, DEADLINE, Innocents, Options, Version, data_dir, pondhawk, until};
use serde_json::Value;
use tempfile::TempDir;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::admin::{Answer, Server, answer_of};

/// Users with their roles, and a user without one.
const USERS: &str = "users = { anna = \"operator\", boss = \"admin\" }\n";
const CERTIFICATES: &str = "certificates = { ops = \"admin\" }\n";

/// A broker whose admin server speaks TLS, with users and certificates.
struct Place {
    directory: TempDir,
    broker: Broker,
    address: SocketAddr,
}

fn run(arguments: &[&str]) -> Output {
    Command::new(pondhawk()).args(arguments).output().expect("it can be run")
}

fn succeed(arguments: &[&str]) {
    let made = run(arguments);
    assert!(made.status.success(), "{arguments:?}: {made:?}");
}

/// Gives users of a password file their passwords.
pub(super) fn set_passwords(file: &Path, users: &[(&str, &str)]) {
    let _ = fs::remove_file(file);
    for (number, (user, password)) in users.iter().enumerate() {
        let (batch, file) = (if number == 0 { "-bc" } else { "-b" }, file.to_str().expect("a name"));
        succeed(&["passwd", "-I", "1000", batch, file, user, password]);
    }
}

impl Place {
    /// A broker with these settings of `[admin]`, beside those about TLS.
    fn start(admin: &str) -> Self {
        let directory = data_dir();
        let certs = directory.path().join("certs");
        let dir = certs.to_str().expect("a name");
        succeed(&["certs", "init", dir, "--host", "localhost", "127.0.0.1"]);
        ["ops", "stranger"].iter().for_each(|name| succeed(&["certs", "client", dir, name]));
        set_passwords(
            &directory.path().join("users"),
            &[("anna", "right"), ("boss", "chief"), ("toad", "croak")],
        );
        Self::write(directory.path(), admin);
        let file = Some(directory.path().join("pondhawk.toml"));
        let data_dir = Some(directory.path().join("data"));
        let broker = Broker::start(&Options { file, data_dir, ..Options::default() });
        let address = Server::address_of(&broker).parse().expect("an address");
        Self { directory, broker, address }
    }

    /// Writes the configuration of the broker.
    fn write(directory: &Path, admin: &str) {
        let file = |name: &str| directory.join("certs").join(name);
        let (users, data) = (directory.join("users"), directory.join("data"));
        let text = format!(
            "shards = 2\nallow_anonymous = true\ndata_dir = {data:?}\n[auth]\npassword_file = {users:?}\n\
             [[listener]]\naddress = \"127.0.0.1:0\"\n\
             [admin]\naddress = \"127.0.0.1:0\"\ntls_certificate = {:?}\ntls_key = {:?}\n\
             tls_client_certificate = \"optional\"\ntls_client_ca = {:?}\n{admin}",
            file("server.pem"),
            file("server.key"),
            file("ca.pem"),
        );
        fs::write(directory.join("pondhawk.toml"), text).expect("it is ours");
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join("certs").join(name)
    }

    /// The settings of a client with a certificate of this name.
    fn client(&self, certificate: Option<&Path>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_file(self.file("ca.pem")).expect("a certificate");
        roots.add(ca).expect("an authority");
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("both versions")
            .with_root_certificates(roots);
        Arc::new(match certificate {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let chain = vec![CertificateDer::from_pem_file(path).expect("a certificate")];
                let key = PrivateKeyDer::from_pem_file(path.with_extension("key")).expect("a key");
                builder.with_client_auth_cert(chain, key).expect("they fit")
            }
        })
    }

    fn connect(&self, certificate: Option<&Path>) -> StreamOwned<ClientConnection, TcpStream> {
        let name = "localhost".try_into().expect("a name");
        let session = ClientConnection::new(self.client(certificate), name).expect("settings");
        let stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a duration");
        StreamOwned::new(session, stream)
    }

    /// Sends a request with this header on a connection of its own.
    fn ask(
        &self,
        (method, path, body): (&str, &str, &str),
        authorization: &str,
        name: Option<&str>,
    ) -> Answer {
        let certificate = name.map(|name| self.file(&format!("{name}.pem")));
        let mut stream = self.connect(certificate.as_deref());
        let request = request(method, path, authorization, body);
        // A connection that is refused in the handshake has no answer.
        let _ = stream.write_all(request.as_bytes());
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text);
        answer_of(&text)
    }

    fn get(&self, path: &str, authorization: &str) -> Answer {
        self.ask(("GET", path, ""), authorization, None)
    }

    fn count(&self, figure: &str) -> Value {
        let counters = self.get("/api/v1/counters", &basic("boss", "chief"));
        let counters: Value = serde_json::from_str(&counters.body).expect("figures");
        counters[format!("admin/{figure}")].clone()
    }

    /// Runs `pondhawk ctl`, and returns whether it has succeeded, with everything that it prints.
    fn ctl(&self, arguments: &[&str]) -> (bool, String) {
        let output = run(&[&["ctl"], arguments].concat());
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }
}

fn request(method: &str, path: &str, authorization: &str, body: &str) -> String {
    let header =
        if authorization.is_empty() { String::new() } else { format!("Authorization: {authorization}\r\n") };
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\
         Content-Type: application/json\r\n{header}\r\n{body}"
    )
}

/// The header of a user with a password (RFC 7617).
fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", base64(format!("{user}:{password}").as_bytes()))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let encode = |chunk: &[u8]| {
        let mut three = [0; 3];
        three[..chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes([0, three[0], three[1], three[2]]);
        let digit = |at: u32| char::from(DIGITS[(bits >> (18 - 6 * at)) as usize & 63]);
        let digits: String = (0..4).map(digit).collect();
        format!("{}{}", &digits[..=chunk.len()], "=".repeat(3 - chunk.len()))
    };
    bytes.chunks(3).map(encode).collect()
}

const STATUS: (&str, &str, &str) = ("GET", "/api/v1/status", "");
const DEBUG: (&str, &str, &str) = ("PUT", "/api/v1/log-level", "{\"level\": \"debug\"}");
const PUBLISH: (&str, &str, &str) = ("POST", "/api/v1/publish", "{\"topic\": \"pond\", \"payload\": \"x\"}");

#[test]
fn an_operator_has_the_role_of_its_password_or_its_certificate() {
    let place = Place::start(&format!("{USERS}{CERTIFICATES}"));
    let (anna, boss) = (basic("anna", "right"), basic("boss", "chief"));
    let rows: [(_, &str, Option<&str>, u16, &str); 14] = [
        (STATUS, "", None, 401, "a token is needed"),
        (STATUS, &anna, None, 200, "\"role\":\"operator\""),
        (STATUS, &boss, None, 200, "\"role\":\"admin\""),
        (DEBUG, &anna, None, 403, "the role operator has not this right"),
        (PUBLISH, &anna, None, 200, ""),
        (DEBUG, &boss, None, 200, ""),
        (STATUS, &basic("anna", "wrong"), None, 401, "a token is needed"),
        (STATUS, &basic("nobody", "right"), None, 401, "a token is needed"),
        (STATUS, &basic("toad", "croak"), None, 403, "the user toad has no role"),
        (STATUS, "", Some("ops"), 200, "\"role\":\"admin\""),
        (STATUS, "Bearer ", Some("ops"), 200, "\"role\":\"admin\""),
        (STATUS, "", Some("stranger"), 401, "a token is needed"),
        // The header of a request counts, and not the certificate beside it.
        (STATUS, &anna, Some("ops"), 200, "\"role\":\"operator\""),
        (STATUS, &basic("anna", "wrong"), Some("ops"), 401, ""),
    ];
    for (asked, authorization, certificate, status, text) in rows {
        let answer = place.ask(asked, authorization, certificate);
        assert_eq!(answer.status, status, "{asked:?} {authorization} {certificate:?}: {}", answer.body);
        assert!(answer.body.contains(text), "{text}: {}", answer.body);
    }
    let audit: Value = serde_json::from_str(&place.get("/api/v1/audit", &boss).body).expect("records");
    let of = |at: usize| ["who", "role", "proof"].map(|field| audit["changes"][at][field].as_str().unwrap());
    assert_eq!(of(0), ["boss", "admin", "password"]);
    assert_eq!(of(1), ["anna", "operator", "password"]);
    place.broker.wait_for_log("a request to the admin server has a wrong token or password");
}

#[test]
fn strangers_to_tls_are_told_so_or_refused() {
    let place = Place::start(&format!("{USERS}{CERTIFICATES}"));
    let plain = Server::with(&place.address.to_string(), "x").get("/healthz");
    assert_eq!(plain.status, 400, "{}", plain.text());
    assert!(plain.body.contains("https://"), "{}", plain.body);
    // An authority of the same name that is another one.
    let other = place.directory.path().join("other");
    let dir = other.to_str().expect("a name");
    succeed(&["certs", "init", dir, "--host", "localhost", "127.0.0.1"]);
    succeed(&["certs", "client", dir, "ops"]);
    let mut stream = place.connect(Some(&other.join("ops.pem")));
    let _ = stream.write_all(request("GET", "/healthz", "", "").as_bytes());
    let mut answer = Vec::new();
    assert!(stream.read_to_end(&mut answer).is_err() && answer.is_empty(), "{answer:?}");
    until("both are counted", || (place.count("refused/tls") == 2).then_some(()));
    assert_eq!(place.get("/healthz", "").status, 200);
}

/// Half of a handshake, and none at all. All places are taken, and the next operator gets one of them.
#[test]
fn slow_handshakes_give_way_and_end() {
    let place = Place::start(&format!("{USERS}connections = 4\nrequest_timeout = \"2 s\"\n"));
    let silent: Vec<TcpStream> = (0..8_u8)
        .map(|number| {
            let mut stream = TcpStream::connect(place.address).expect("it listens");
            stream.set_read_timeout(Some(DEADLINE)).expect("a duration");
            // The first bytes of a record that announces 512 more.
            stream.write_all(&[0x16, 3, 1, 2, 0, 1][..usize::from(number % 7)]).expect("it reads");
            stream
        })
        .collect();
    assert_eq!(place.get("/api/v1/status", &basic("boss", "chief")).status, 200);
    for mut stream in silent {
        // The broker ends it, with or without an alert.
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let ended =
        || ["refused/slow", "refused/connections"].map(|figure| place.count(figure).as_u64().unwrap());
    until("all are counted", || (ended().iter().sum::<u64>() >= 8).then_some(()));
}

#[test]
fn headers_that_are_no_passwords_are_refused() {
    let place = Place::start(USERS);
    let nul = format!("Basic {}", base64(b"an\0na:right"));
    let long = format!("Basic {}", base64(&[b'a'; 9_000]));
    let with_password = |length: usize| basic("anna", &"x".repeat(length));
    let rows = [
        ("Basic", 401),
        ("Basic !!!", 401),
        (&nul, 401),
        (&basic("", ""), 401),
        (&basic("anna", ""), 401),
        (&basic(":", "right"), 401),
        (&basic("anna", ":right"), 401),
        (&long, 401),
        (&with_password(9_000), 401),
        (&with_password(20_000), 431),
    ];
    for (authorization, status) in rows {
        let answer = place.get("/api/v1/status", authorization);
        assert_eq!(answer.status, status, "{:.60} {}", authorization, answer.body);
    }
    // A server that reads no further resets the connection, or has answered before.
    let huge = place.get("/api/v1/status", &with_password(2 << 20));
    assert!([0, 431].contains(&huge.status), "{}", huge.text());
    let both = format!("{}\r\nAuthorization: {}", basic("anna", "right"), basic("boss", "chief"));
    assert_eq!(place.get("/api/v1/status", &both).status, 401);
    assert_eq!(place.get("/api/v1/status", &basic("anna", "right")).status, 200);
}

/// A page keeps a token in place of the password. It ends with the password, the user, or on request.
#[test]
fn a_session_takes_the_place_of_a_password() {
    let place = Place::start(USERS);
    let begin = |user: &str, password: &str| {
        let answer = place.ask(("POST", "/api/v1/session", ""), &basic(user, password), None);
        assert_eq!(answer.status, 200, "{}", answer.body);
        let value: Value = serde_json::from_str(&answer.body).expect("a session");
        format!("Bearer {}", value["token"].as_str().expect("a token"))
    };
    let (first, second, of_boss) = (begin("anna", "right"), begin("anna", "right"), begin("boss", "chief"));
    for (token, role) in [(&first, "operator"), (&second, "operator"), (&of_boss, "admin")] {
        let answer = place.get("/api/v1/status", token);
        assert!(answer.status == 200 && answer.body.contains(role), "{}", answer.body);
    }
    let session = |method, token: &str| place.ask((method, "/api/v1/session", ""), token, None).status;
    assert_eq!(session("POST", &first), 400, "a session begins no other");
    assert_eq!([session("DELETE", &first), session("DELETE", &first)], [200, 401]);
    assert_eq!(place.get("/api/v1/status", &second).status, 200);
    // No record has the token.
    let records = place.get("/api/v1/audit", &of_boss).body;
    let token = second.trim_start_matches("Bearer ");
    assert!(records.contains("LogIn") && !records.contains(token) && !place.broker.log().contains(token));
    let users = place.directory.path().join("users");
    succeed(&["passwd", "-I", "1000", "-b", users.to_str().expect("a name"), "anna", "new"]);
    place.broker.hang_up();
    until("the session has ended", || (place.get("/api/v1/status", &second).status == 401).then_some(()));
    assert_eq!(place.get("/api/v1/status", &of_boss).status, 200, "the other user has the same password");
    assert_eq!(place.get("/api/v1/status", &basic("anna", "new")).status, 200);
}

#[test]
fn a_reload_gives_roles_and_takes_them() {
    let place = Place::start(&format!("{USERS}{CERTIFICATES}"));
    let (anna, boss) = (basic("anna", "right"), basic("boss", "chief"));
    assert_eq!(place.get("/api/v1/status", &anna).status, 200);
    Place::write(place.directory.path(), "users = { toad = \"viewer\", boss = \"admin\" }\n");
    assert_eq!(place.ask(("POST", "/api/v1/reload", ""), &boss, None).status, 200);
    let toad = basic("toad", "croak");
    until("the roles are in force", || (place.get("/api/v1/status", &toad).status == 200).then_some(()));
    assert_eq!(place.get("/api/v1/status", &anna).status, 403);
    assert_eq!(place.ask(STATUS, "", Some("ops")).status, 401);
}

/// The connection of an operator with a certificate ends with the rules that have let it in.
#[test]
fn new_certificates_are_in_use_after_a_reload() {
    let place = Place::start(&format!("{USERS}{CERTIFICATES}"));
    let certificate = place.file("ops.pem");
    let mut stays = place.connect(Some(&certificate));
    let ask = |stream: &mut StreamOwned<ClientConnection, TcpStream>| {
        let text = request("GET", "/api/v1/reload", "", "").replace("Connection: close\r\n", "");
        stream.write_all(text.as_bytes()).expect("it reads");
        let mut answer = [0; 4_096];
        let bytes = stream.read(&mut answer).expect("it answers");
        answer_of(&answer[..bytes]).status
    };
    assert_eq!(ask(&mut stays), 200);
    let before = stays.conn.peer_certificates().expect("a certificate")[0].clone();
    // The same authority stays, and signs another certificate of the server.
    let made = data_dir();
    succeed(&["certs", "init", made.path().join("new").to_str().expect("a name"), "--host", "localhost"]);
    for name in ["server.pem", "server.key"] {
        fs::copy(made.path().join("new").join(name), place.file(name)).expect("it is ours");
    }
    place.broker.hang_up();
    place.broker.wait_for_log("new certificates are in use listener=[admin]");
    assert_eq!(ask(&mut stays), 421, "another list of revoked certificates may have come too");
    fs::copy(made.path().join("new/ca.pem"), place.file("new-ca.pem")).expect("it is ours");
    let (is_done, text) = place.ctl(&[
        "status",
        "--admin",
        &format!("https://localhost:{}", place.address.port()),
        "--cafile",
        place.file("new-ca.pem").to_str().expect("a name"),
        "--cert",
        certificate.to_str().expect("a name"),
        "--key",
        place.file("ops.key").to_str().expect("a name"),
    ]);
    assert!(is_done && text.contains("admin"), "{text}");
    let after = CertificateDer::from_pem_file(place.file("server.pem")).expect("a certificate");
    assert_ne!(before, after);
}

#[test]
fn ctl_speaks_tls_with_passwords_certificates_and_tokens() {
    let place = Place::start(&format!("{USERS}{CERTIFICATES}"));
    let text = |path: PathBuf| path.to_str().expect("a name").to_owned();
    let config = text(place.directory.path().join("pondhawk.toml"));
    let (ca, port) = (text(place.file("ca.pem")), place.address.port());
    let (url, host) = (format!("https://localhost:{port}"), format!("127.0.0.1:{port}"));
    let password = place.directory.path().join("password");
    fs::write(&password, "right\n").expect("it is ours");
    let password = text(password);
    let (cert, key) = (text(place.file("ops.pem")), text(place.file("ops.key")));
    let token = text(place.directory.path().join("data/admin-token"));
    let login = ["--username", "anna", "--password-file", &password];
    let good: [&[&str]; 5] = [
        // The configuration names the certificate of the server, and the generated token is in its data directory.
        &["-c", &config, "--admin", &host],
        &["-c", &config, "--admin", &host, login[0], login[1], login[2], login[3]],
        &["--admin", &url, "--cafile", &ca, login[0], login[1], login[2], login[3]],
        &["--admin", &host, "--cafile", &ca, "--cert", &cert, "--key", &key],
        &["--admin", &url, "--cafile", &ca, "--token-file", &token],
    ];
    for arguments in good {
        let (is_done, text) = place.ctl(&[&["status"], arguments].concat());
        assert!(is_done && text.contains("role"), "{arguments:?}: {text}");
    }
    fs::write(&password, "wrong\n").expect("it is ours");
    let bad: [(&[&str], &str); 4] = [
        (&["--admin", &url, "--token-file", &token], "invalid peer certificate"),
        (&["--admin", &url, "--cafile", &ca, login[0], login[1], login[2], login[3]], "a token is needed"),
        (&["--admin", &host, "--token-file", &token], "this server speaks TLS"),
        (&["--admin", "ftp://localhost", "--token-file", &token], "http:// or https://"),
    ];
    for (arguments, expected) in bad {
        let (is_done, text) = place.ctl(&[&["status"], arguments].concat());
        assert!(!is_done && text.contains(expected), "{arguments:?}: {text}");
    }
    assert!(place.ctl(&["ready", "-c", &config, "--admin", &host]).0);
}

/// Guesses at passwords, each on a connection of its own, over TLS.
#[test]
fn wrong_passwords_delay_no_client_and_no_token() {
    const WRONG: usize = 400;
    let place = Place::start(USERS);
    let mut innocents = Innocents::connect(&place.broker, "served");
    let token = fs::read_to_string(place.directory.path().join("data/admin-token")).expect("a token");
    let right = format!("Bearer {}", token.trim());
    let mut statuses = [0; 2];
    for number in 0..WRONG {
        let wrong = basic("anna", &format!("wrong {number}"));
        match place.get("/api/v1/status", &wrong).status {
            401 => statuses[0] += 1,
            429 => statuses[1] += 1,
            other => panic!("status {other}"),
        }
        if number % 20 == 0 {
            let answer = innocents.notice_nothing_of(|| place.get("/api/v1/status", &right));
            assert_eq!(answer.status, 200);
        }
    }
    assert!(statuses[1] > WRONG / 2, "{statuses:?}");
    // A client of the same address is not suspect: its password is checked as before.
    let client =
        Connect { user: Some("anna"), password: Some(b"right"), ..Connect::new(Version::V5, "anna") };
    drop(place.broker.client_with(&client));
}
