//! Certificates from an authority: Pebble, which Let's Encrypt makes for tests, and the name server that it asks.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use client::{Client, Endpoint, Options as ClientOptions, Outgoing, Qos, TlsOptions, TopicName, Version};
use pondhawk_tests::{Broker, Options, Program, free_ports, pebble, pebble_names, until};
use rcgen::KeyPair;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// The lifetime of certificates. A tenth of it is the earliest time of a renewal.
const LIFETIME_SECS: u32 = 60;
/// An address of this machine at which nobody listens.
const NOWHERE: &str = "127.0.0.2";
const HERE: &str = "127.0.0.1";
const OBTAINED: &str = "the certificate of ACME was obtained";
const IN_USE: &str = "new certificates are in use";

/// An authority with its name server.
struct Authority {
    directory: TempDir,
    pebble: Option<Program>,
    _names: Program,
    ports: Ports,
    /// The certificate of the authority's own server.
    own: CertificateDer<'static>,
}

#[derive(Clone, Copy)]
struct Ports {
    acme: u16,
    management: u16,
    /// The port at which Pebble asks over HTTP.
    http: u16,
    /// The port at which Pebble asks over TLS.
    tls: u16,
    dns: u16,
    names: u16,
}

impl Authority {
    /// Starts an authority, for which all names lead to this address.
    fn start(address: &str) -> Self {
        let directory = TempDir::new().expect("there is a place for temporary files");
        let [acme, management, http, tls, dns, names] = free_ports();
        let ports = Ports { acme, management, http, tls, dns, names };
        let key = KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(["localhost".to_owned()]).expect("a name");
        let own = params.self_signed(&key).expect("a certificate");
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).expect("a temporary file can be written");
            path
        };
        let certificate = file("own.pem", &own.pem());
        let private_key = file("own.key", &key.serialize_pem());
        let config = json!({"pebble": {
            "listenAddress": format!("127.0.0.1:{acme}"),
            "managementListenAddress": format!("127.0.0.1:{management}"),
            "certificate": certificate,
            "privateKey": private_key,
            "httpPort": http,
            "tlsPort": tls,
            "retryAfter": {"authz": 1, "order": 1},
            "keyAlgorithm": "ecdsa",
            "profiles": {"default": {"description": "brief", "validityPeriod": LIFETIME_SECS}},
        }});
        file("pebble.json", &config.to_string());
        let mut server = Command::new(pebble_names());
        server.args(["-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", "", "-defaultIPv6", ""]);
        server.args(["-defaultIPv4", address, "-dnsserver", &format!("127.0.0.1:{dns}")]);
        server.args(["-management", &format!("127.0.0.1:{names}")]);
        let server = Program::start(server);
        server.wait_for("Starting management server");
        let mut authority = Self { directory, pebble: None, _names: server, ports, own: own.der().clone() };
        authority.start_pebble();
        authority
    }

    /// Starts Pebble, which knows nothing of what an earlier one has done.
    fn start_pebble(&mut self) {
        let mut pebble = Command::new(pebble());
        pebble.arg("-config").arg(self.directory.path().join("pebble.json"));
        pebble.arg("-dnsserver").arg(format!("127.0.0.1:{}", self.ports.dns));
        pebble.envs([
            ("PEBBLE_VA_NOSLEEP", "1"),
            ("PEBBLE_WFE_NONCEREJECT", "0"),
            // Every order has its own questions.
            ("PEBBLE_AUTHZREUSE", "0"),
        ]);
        self.stop_pebble();
        let pebble = Program::start(pebble);
        pebble.wait_for("ACME directory available");
        self.pebble = Some(pebble);
    }

    fn stop_pebble(&mut self) {
        if let Some(pebble) = self.pebble.take() {
            pebble.kill();
        }
    }

    /// Lets all names lead to this address.
    fn lead_to(&self, address: &str) {
        let body = json!({ "ip": address }).to_string();
        let mut stream =
            TcpStream::connect(("127.0.0.1", self.ports.names)).expect("the name server listens");
        let length = body.len();
        let request = format!(
            "POST /set-default-ipv4 HTTP/1.1\r\nHost: localhost\r\nUser-Agent: test\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).expect("the name server reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the name server answers");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }

    /// Lets the authority ask for the renewal of a certificate at once.
    async fn hurry(&self, certificate_pem: &str) {
        let window =
            r#"{"suggestedWindow": {"start": "2020-01-01T00:00:00Z", "end": "2020-01-02T00:00:00Z"}}"#;
        let body = json!({"Certificate": certificate_pem, "ARIResponse": window}).to_string();
        let mut roots = RootCertStore::empty();
        roots.add(self.own.clone()).expect("it can be trusted");
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let stream = tokio::net::TcpStream::connect(("127.0.0.1", self.ports.management)).await;
        let name = "localhost".try_into().expect("a name");
        let connector = TlsConnector::from(Arc::new(config));
        let mut stream =
            connector.connect(name, stream.expect("Pebble listens")).await.expect("Pebble proves it");
        let length = body.len();
        let request = format!(
            "POST /set-renewal-info/ HTTP/1.1\r\nHost: localhost\r\nUser-Agent: test\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.expect("Pebble reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("Pebble answers");
        assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
    }

    fn settings(&self, domains: &[&str], more: &str) -> String {
        format!(
            "watch_interval = \"100 ms\"\n[acme]\ndomains = {domains:?}\nterms_of_service_agreed = true\n\
             contact = \"ops@broker.example\"\ndirectory_url = \"https://localhost:{}/dir\"\nca_file = {:?}\n{more}",
            self.ports.acme,
            self.directory.path().join("own.pem"),
        )
    }

    fn listener(address: &str) -> String {
        format!("[[listener]]\naddress = \"{address}\"\nallow_anonymous = true\ntls_acme = true\n")
    }
}

/// A broker whose certificate is from an authority.
struct Server {
    broker: Broker,
    data_dir: PathBuf,
}

impl Server {
    fn start(settings: &str, data_dir: &Path) -> Self {
        let options = Options {
            settings: settings.to_owned(),
            data_dir: Some(data_dir.to_owned()),
            ..Options::default()
        };
        Self { broker: Broker::start(&options), data_dir: data_dir.to_owned() }
    }

    fn directory(&self) -> PathBuf {
        let mut directories = fs::read_dir(self.data_dir.join("acme")).expect("there is an authority");
        let directory = directories.next().expect("there is one").expect("it can be read").path();
        assert!(directories.next().is_none(), "there is only one");
        directory
    }

    /// The certificates in the file: that of the broker, and that of the authority.
    fn chain(&self) -> [String; 2] {
        let text =
            fs::read_to_string(self.directory().join("certificate.pem")).expect("there is a certificate");
        let begin = "-----BEGIN CERTIFICATE-----";
        let parts: Vec<String> = text.split(begin).skip(1).map(|part| format!("{begin}{part}")).collect();
        parts.try_into().unwrap_or_else(|parts| panic!("{parts:?}"))
    }

    /// Has the certificate obtained again, and waits until this is said.
    fn hang_up(&self, said: &str) -> String {
        let before = self.broker.log_length();
        self.broker.hang_up();
        self.broker.wait_for_log_behind(before, said)
    }

    /// Waits until this number of certificates have come into use.
    fn wait_in_use(&self, count: usize) {
        until(IN_USE, || (self.broker.log_lines(IN_USE).len() >= count).then_some(()));
    }

    /// Connects as a client that trusts the authority.
    async fn connect(&self) -> Client {
        let [_, authority] = self.chain();
        self.try_connect(&authority).await.expect("the certificate is good")
    }

    async fn try_connect(&self, authority: &str) -> Result<Client, client::ConnectError> {
        let tls = TlsOptions::new().root_pem(authority).build().expect("all is there");
        let endpoint = Endpoint::tcp("localhost", self.broker.address().port()).tls(tls);
        Client::connect_to(endpoint, ClientOptions::new(Version::V5)).await
    }
}

async fn is_alive(client: &Client) -> bool {
    let message = Outgoing::new(TopicName::new("a").expect("a topic"), b"x").qos(Qos::AtLeastOnce);
    client.publish(&message).await.expect("it is queued").await.is_ok()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

#[tokio::test]
async fn a_certificate_is_obtained_and_renewed_and_survives_a_refused_renewal() {
    let mut authority = Authority::start(NOWHERE);
    let data_dir = pondhawk_tests::data_dir();
    let listener = Authority::listener(&format!("127.0.0.1:{}", authority.ports.tls));
    let settings = authority.settings(&["localhost", "broker.example"], &listener);
    let server = Server::start(&settings, data_dir.path());

    // Nobody can check the names, and without a certificate there is no TLS.
    server.broker.wait_for_log("TLS is refused here until there is a certificate");
    let line = server.broker.wait_for_log("listeners that have none refuse TLS");
    assert!(line.contains("at port 443 of the name"), "{line}");
    let own = fs::read_to_string(authority.directory.path().join("own.pem")).expect("it is there");
    server.try_connect(&own).await.expect_err("there is no certificate");

    authority.lead_to(HERE);
    server.hang_up(OBTAINED);
    server.broker.wait_for_log("a certificate authority has asked, and has its answer");
    server.wait_in_use(1);
    let first = server.connect().await;
    let [first_pem, _] = server.chain();
    let directory = server.directory();
    for (name, expected) in [("", 0o700), ("certificate.pem", 0o600), ("account.json", 0o600)] {
        assert_eq!(mode(&directory.join(name)), expected, "{name}");
    }

    // The authority wants it to be renewed.
    authority.hurry(&first_pem).await;
    server.hang_up(OBTAINED);
    server.wait_in_use(2);
    let [second_pem, _] = server.chain();
    assert_ne!(first_pem, second_pem);
    let second = server.connect().await;
    assert!(is_alive(&first).await && is_alive(&second).await, "a renewal disconnects nobody");

    // A refused renewal changes nothing.
    authority.lead_to(NOWHERE);
    authority.hurry(&second_pem).await;
    let line = server.hang_up("the earlier one stays in use");
    assert!(line.contains("again_secs=") && line.contains("at port 443 of the name"), "{line}");
    assert_eq!(server.chain()[0], second_pem);
    let third = server.connect().await;
    assert!(is_alive(&first).await && is_alive(&second).await && is_alive(&third).await);
    authority.lead_to(HERE);
    server.hang_up(OBTAINED);
    assert_ne!(server.chain()[0], second_pem);

    // The next start asks nobody.
    authority.stop_pebble();
    server.broker.stop();
    let server = Server::start(&settings, data_dir.path());
    let fourth = server.connect().await;
    assert!(is_alive(&fourth).await);
    let log = server.broker.log();
    assert!(!log.contains("asking for a certificate") && !log.contains("TLS is refused here"), "{log}");
}

#[tokio::test]
async fn an_authority_may_ask_over_http() {
    let mut authority = Authority::start(HERE);
    let data_dir = pondhawk_tests::data_dir();
    let http = authority.ports.http;
    let settings = |domains: &[&str]| {
        let listener = Authority::listener("127.0.0.1:0");
        authority.settings(domains, &format!("http_address = \"127.0.0.1:{http}\"\n{listener}"))
    };
    let (one, two) = (settings(&["localhost"]), settings(&["localhost", "other.example"]));
    let file = authority.directory.path().join("pond.toml");
    fs::write(&file, one).expect("a temporary file can be written");
    let options = Options {
        file: Some(file.clone()),
        data_dir: Some(data_dir.path().to_owned()),
        ..Options::default()
    };
    let server = Server { broker: Broker::start(&options), data_dir: data_dir.path().to_owned() };
    server.broker.wait_for_log(OBTAINED);
    server.wait_in_use(1);
    let client = server.connect().await;
    let mut nobody = TcpStream::connect(("127.0.0.1", http)).expect("the broker listens");
    let mut answer = Vec::new();
    drop(nobody.write_all(b"GET /.well-known/acme-challenge/a HTTP/1.1\r\n\r\n"));
    // A connection outside of an order is closed, perhaps with a reset.
    drop(nobody.read_to_end(&mut answer));
    assert!(answer.is_empty());

    // An authority that has forgotten the account, and a name that the certificate does not have.
    authority.start_pebble();
    let before = server.broker.log_length();
    fs::write(&file, two).expect("a temporary file can be written");
    server.broker.wait_for_log_behind(before, "the authority does not know the account");
    server.broker.wait_for_log_behind(before, OBTAINED);
    server.wait_in_use(2);
    let other = server.connect().await;
    assert!(is_alive(&client).await && is_alive(&other).await);
    let [pem, _] = server.chain();
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).expect("it is in PEM");
    assert!(der.windows(13).any(|part| part == b"other.example"));
}
