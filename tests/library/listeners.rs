//! Every way to Pondhawk: TCP, TLS with client certificates, WebSocket, both, and each behind a load balancer.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use client::{Client, Endpoint, Options, TlsOptions, Version};
use pondhawk_tests::{Broker, DEADLINE, Options as BrokerOptions, Program, pondhawk};
use tempfile::TempDir;
use tokio::io::{AsyncWriteExt as _, copy_bidirectional};
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::transports::{certify, deliver_all};

/// A broker with a listener of each kind.
struct Server {
    broker: Broker,
    directory: TempDir,
    listeners: Vec<SocketAddr>,
}

/// The longest takes more than one record, one read, and one frame header of any kind.
const LENGTHS_BYTES: [usize; 4] = [0, 1, 1_000, 70_000];

/// Places of the listeners.
const PLAIN: usize = 0;
const SECURE: usize = 1;
const ONE_PORT: usize = 2;
const QUIC: usize = 3;
const PROXIED: usize = 4;

impl Server {
    fn start(shards: u16) -> Self {
        let directory = TempDir::new().expect("there is a place for temporary files");
        certify(directory.path());
        let file = |name: &str| directory.path().join(name).display().to_string();
        let tls = format!("tls_certificate = {:?}\ntls_key = {:?}\n", file("server.pem"), file("server.key"));
        let listener = |keys: &str| format!("[[listener]]\naddress = \"127.0.0.1:0\"\n{keys}");
        let settings = [
            listener(""),
            listener(&format!(
                "{tls}tls_client_certificate = \"required\"\ntls_client_ca = {:?}\n",
                file("ca.pem")
            )),
            listener(&format!("{tls}tls_optional = true\nwebsocket_path = \"/mqtt\"\n")),
            format!(
                "[[listener]]\naddress = \"quic://127.0.0.1:0\"\n{tls}tls_client_certificate = \"optional\"\n\
                 tls_client_ca = {:?}\n",
                file("ca.pem")
            ),
            listener(&format!("{tls}tls_optional = true\nproxy_from = [\"127.0.0.1\", \"10.0.0.0/8\"]\n")),
        ]
        .concat();
        let broker = Broker::start(&BrokerOptions { shards, settings, ..BrokerOptions::default() });
        broker.wait_for_log("load balancers only");
        let listeners = broker.log_lines("listening on ").iter().map(|line| address_of(line)).collect();
        Self { broker, directory, listeners }
    }

    fn trusting(&self) -> TlsOptions {
        TlsOptions::new().root_file(self.directory.path().join("ca.pem"))
    }

    fn with_certificate(&self) -> TlsOptions {
        let file = |name: &str| self.directory.path().join(name);
        self.trusting().client_certificate_files(file("client.pem"), file("client.key"))
    }

    fn url(&self, scheme: &str, listener: usize) -> Endpoint {
        let port = self.listeners[listener].port();
        format!("{scheme}://localhost:{port}/mqtt").parse().expect("a URL")
    }

    /// All ways to the listeners without a load balancer.
    fn endpoints(&self) -> Vec<Endpoint> {
        let tls = |options: TlsOptions| options.build().expect("all is there");
        let port = |listener: usize| self.listeners[listener].port();
        vec![
            Endpoint::tcp("localhost", port(PLAIN)),
            self.url("ws", PLAIN),
            Endpoint::tcp("localhost", port(SECURE)).tls(tls(self.with_certificate().alpn(["mqtt"]))),
            self.url("wss", SECURE).tls(tls(self.with_certificate())),
            Endpoint::tcp("localhost", port(ONE_PORT)),
            self.url("ws", ONE_PORT),
            Endpoint::tcp("localhost", port(ONE_PORT)).tls(tls(self.trusting())),
            self.url("wss", ONE_PORT).tls(tls(self.trusting())),
            Endpoint::tcp("localhost", port(QUIC)).quic(tls(self.trusting())),
            Endpoint::tcp("localhost", port(QUIC)).quic(tls(self.with_certificate())),
        ]
    }
}

fn address_of(line: &str) -> SocketAddr {
    let address = line.split_whitespace().nth(2);
    let address = address.map(|address| address.strip_prefix("quic://").unwrap_or(address));
    address.and_then(|address| address.parse().ok()).unwrap_or_else(|| panic!("no address: {line}"))
}

#[tokio::test]
async fn messages_pass_by_every_listener_in_every_version() {
    for (shards, versions) in [(1, &Version::ALL[..]), (4, &[Version::V5])] {
        let server = Server::start(shards);
        for endpoint in server.endpoints() {
            for version in versions.iter().copied() {
                let course = deliver_all(endpoint.clone(), version, LENGTHS_BYTES);
                timeout(DEADLINE, course).await.unwrap_or_else(|_| panic!("too long: {endpoint}, {version}"));
            }
        }
    }
}

/// Writes a header of the PROXY protocol in front of each connection, as a load balancer does.
async fn balance(to: SocketAddr, header: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut broker = tokio::net::TcpStream::connect(to).await.expect("the broker listens");
            broker.write_all(header).await.expect("the broker reads");
            tokio::spawn(async move { copy_bidirectional(&mut client, &mut broker).await });
        }
    });
    port
}

#[tokio::test]
async fn clients_behind_a_load_balancer_are_known_by_their_own_addresses() {
    let server = Server::start(1);
    let headers: [&[u8]; 2] = [
        b"PROXY TCP4 192.0.2.7 192.0.2.8 40007 1883\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x07\xc0\x00\x02\x08\x9c\x47\x07\x5b",
    ];
    for header in headers {
        let port = balance(server.listeners[PROXIED], header).await;
        let tls = server.trusting().build().expect("all is there");
        let url =
            |scheme: &str| -> Endpoint { format!("{scheme}://localhost:{port}/").parse().expect("a URL") };
        let endpoints = [
            Endpoint::tcp("localhost", port),
            Endpoint::tcp("localhost", port).tls(tls.clone()),
            url("ws"),
            url("wss").tls(tls),
        ];
        for endpoint in endpoints {
            let course = deliver_all(endpoint.clone(), Version::V5, LENGTHS_BYTES);
            timeout(DEADLINE, course).await.unwrap_or_else(|_| panic!("too long: {endpoint}"));
        }
    }
    let connected = server.broker.log_lines(" connected ");
    assert_eq!(connected.len(), 8);
    assert!(connected.iter().all(|line| line.contains("peer=192.0.2.7:40007 ")), "{connected:?}");
}

#[tokio::test]
async fn a_client_without_a_certificate_is_refused_where_one_is_required() {
    let server = Server::start(1);
    let port = server.listeners[SECURE].port();
    let nameless = server.trusting().build().expect("all is there");
    let connected =
        Client::connect_to(Endpoint::tcp("localhost", port).tls(nameless), Options::new(Version::V5));
    let error = connected.await.expect_err("it is refused").to_string();
    assert!(error.contains("alert") || error.contains("certificate"), "{error}");
    let line = server.broker.wait_for_log("TLS: ");
    assert!(line.contains("refused") && line.contains("no certificates"), "{line}");
}

/// Returns the answer of the broker to these bytes, until it closes the connection.
fn answer(to: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(to).expect("the broker listens");
    socket.set_read_timeout(Some(DEADLINE)).expect("a duration");
    socket.write_all(bytes).expect("the broker reads");
    let mut answer = Vec::new();
    // A reset ends a connection too.
    drop(socket.read_to_end(&mut answer));
    answer
}

#[test]
fn protocols_that_a_listener_does_not_speak_are_refused_with_a_reason() {
    let server = Server::start(1);
    let connect = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01c";
    let hello = b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03";
    let header = b"PROXY TCP4 192.0.2.7 192.0.2.8 40007 1883\r\n";
    let rows: [(usize, &[u8], &[u8], &str); 6] = [
        (PLAIN, hello, b"", "this listener has no certificate"),
        (SECURE, connect, b"", "this listener asks for TLS"),
        (PLAIN, header, b"", "a header that nothing asked for"),
        (PROXIED, connect, b"", "the first bytes are no header"),
        (PLAIN, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"HTTP/1.1 426 ", "a plain HTTP request"),
        (ONE_PORT, b"GET /other HTTP/1.1\r\nHost: a\r\n\r\n", b"HTTP/1.1 426 ", "a plain HTTP request"),
    ];
    for (listener, bytes, begins, why) in rows {
        let answer = answer(server.listeners[listener], bytes);
        assert!(answer.starts_with(begins), "{why}: {}", String::from_utf8_lossy(&answer));
        assert!(!begins.is_empty() || answer.is_empty(), "{why}: {answer:02x?}");
        server.broker.wait_for_log(why);
    }
}

#[test]
fn files_that_do_not_fit_together_are_named() {
    let directory = TempDir::new().expect("there is a place for temporary files");
    certify(directory.path());
    let file = |name: &str| directory.path().join(name).display().to_string();
    let refused = |certificate: &str, key: &str| {
        let settings = format!(
            "[[listener]]\naddress = \"127.0.0.1:0\"\ntls_certificate = {certificate:?}\ntls_key = {key:?}\n"
        );
        Broker::try_start(&BrokerOptions { settings, ..BrokerOptions::default() })
            .expect_err("it cannot start")
    };
    let log = refused(&file("server.pem"), &file("client.key"));
    assert!(
        log.contains("the private key does not belong to the certificate") && log.contains("client.key"),
        "{log}"
    );
    let log = refused(&file("missing.pem"), &file("server.key"));
    assert!(log.contains("missing.pem") && log.contains("No such file"), "{log}");
    let log = refused(&file("server.key"), &file("server.key"));
    assert!(log.contains("has no certificate in PEM"), "{log}");
    assert!(Path::new(&file("server.pem")).exists());
}

#[tokio::test]
async fn probe_and_tap_present_a_certificate() {
    let server = Server::start(1);
    let file = |name: &str| server.directory.path().join(name).display().to_string();
    let address = format!("localhost:{}", server.listeners[SECURE].port());
    let url = format!("mqtts://{address}");
    let (authority, certificate, key) = (file("ca.pem"), file("client.pem"), file("client.key"));
    let trust = ["--cafile", &authority, "--cert", &certificate, "--key", &key];
    let probe = |flags: &[&str]| {
        let mut command = Command::new(pondhawk());
        command.args(["probe", &url, "--messages", "10", "--payload-max", "1000"]).args(flags);
        command.output().expect("it can be run")
    };
    let found = probe(&trust);
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    assert_eq!(probe(&trust[..2]).status.code(), Some(2), "the broker wants a certificate");

    let mut command = Command::new(pondhawk());
    command.args(["tap", "--json", "--listen", "127.0.0.1:0", "--to", &address]).args(trust);
    let tap = Program::start(command);
    let line = tap.wait_for("listening on ");
    let address: SocketAddr = line.trim().rsplit(' ').next().and_then(|text| text.parse().ok()).expect("one");
    let options = Options::new(Version::V5).client_id("frog");
    let frog = Client::connect_tcp(address, options).await.expect("it is accepted");
    frog.disconnect().await.expect("nothing is under way");
    let line = tap.wait_for("\"text\":\"DISCONNECT");
    let line: serde_json::Value = serde_json::from_str(line.trim()).expect("an object");
    assert_eq!((&line["from"], &line["connection"]), (&"client".into(), &1.into()), "{line}");
    assert!(line["unix_secs"].as_f64().is_some_and(|secs| secs > 1e9), "{line}");
}
