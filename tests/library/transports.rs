//! Every way to a server: TLS, WebSocket, and a socket of this machine, as Mosquitto serves them.

use std::fs;
use std::path::{Path, PathBuf};

use client::{Client, ConnectError, Endpoint, Fault, Options, Outgoing, TlsOptions, Version, filter, topic};
use pondhawk_tests::{DEADLINE, Mosquitto, free_ports};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::place::{EVERY_QOS, deliver, expect};

/// Smaller than anything on the way, and larger: than a record, a buffer.
const LENGTHS_BYTES: [usize; 4] = [0, 1, 1_000, 300_000];

/// Mosquitto 2.0.11 takes a tenth of a second for every 4 KiB that comes or goes over WebSocket while it does both.
const FRAMED_LENGTHS_BYTES: [usize; 4] = [0, 1, 1_000, 5_000];

/// Mosquitto with a listener of each kind, and whom to trust.
struct Server {
    mosquitto: Mosquitto,
    /// Certificates, keys, and the socket.
    directory: TempDir,
    mqtts: u16,
    ws: u16,
    wss: u16,
}

impl Server {
    fn start() -> Self {
        let directory = TempDir::new().expect("there is a place for temporary files");
        certify(directory.path());
        let file = |name: &str| directory.path().join(name).display().to_string();
        let [mqtts, ws, wss] = free_ports();
        let tls = format!("certfile {}\nkeyfile {}\n", file("server.pem"), file("server.key"));
        // The library below listens on 127.0.0.1 alone only if it is told so twice.
        let websockets = "socket_domain ipv4\nprotocol websockets\n";
        let settings = format!(
            "listener {mqtts} 127.0.0.1\n{tls}cafile {}\nrequire_certificate true\n\
             listener {ws} 127.0.0.1\n{websockets}\
             listener {wss} 127.0.0.1\n{websockets}{tls}\
             listener 0 {}\n",
            file("ca.pem"),
            file("socket")
        );
        Self { mosquitto: Mosquitto::start(&settings), directory, mqtts, ws, wss }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn trusting(&self) -> TlsOptions {
        TlsOptions::new().root_file(self.file("ca.pem"))
    }

    /// A client who shows who it is.
    fn mqtts(&self) -> Endpoint {
        let tls = self.trusting().client_certificate_files(self.file("client.pem"), self.file("client.key"));
        Endpoint::tcp("localhost", self.mqtts).tls(tls.alpn(["mqtt"]).build().expect("all is there"))
    }

    /// All ways there are.
    fn endpoints(&self) -> [Endpoint; 5] {
        let url = |text: String| -> Endpoint { text.parse().expect("a URL") };
        let wss = url(format!("wss://localhost:{}/mqtt", self.wss));
        [
            url(format!("mqtt://{}", self.mosquitto.address())),
            self.mqtts(),
            url(format!("ws://127.0.0.1:{}/mqtt", self.ws)),
            wss.tls(self.trusting().build().expect("all is there")),
            url(format!("unix://{}", self.file("socket").display())),
        ]
    }
}

/// An authority, and a server and a client that it knows.
pub(crate) fn certify(directory: &Path) {
    let key = || KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "the pond");
    let authority = CertifiedIssuer::self_signed(params, key()).expect("a certificate");
    let write = |name: &str, text: String| {
        fs::write(directory.join(name), text).expect("a temporary file can be written");
    };
    write("ca.pem", authority.pem());
    for (name, host) in [("server", "localhost"), ("client", "frog")] {
        let (mut params, key) = (CertificateParams::new([host.to_owned()]).expect("a name"), key());
        params.distinguished_name.push(DnType::CommonName, host);
        let certificate = params.signed_by(&key, &authority).expect("a certificate");
        write(&format!("{name}.pem"), certificate.pem());
        write(&format!("{name}.key"), key.serialize_pem());
    }
}

async fn converse(endpoint: Endpoint, version: Version) {
    let is_framed = endpoint.to_string().starts_with("ws");
    let lengths_bytes = if is_framed { FRAMED_LENGTHS_BYTES } else { LENGTHS_BYTES };
    deliver_all(endpoint, version, lengths_bytes).await;
}

/// Sends messages of these lengths to itself, at every QoS.
pub(crate) async fn deliver_all(endpoint: Endpoint, version: Version, lengths_bytes: [usize; 4]) {
    let frog = Client::connect_to(endpoint, Options::new(version).client_id("frog")).await.expect("accepted");
    let mut heard = frog.subscribe(filter!("pond/#"), client::Qos::ExactlyOnce).await.expect("granted");
    for qos in EVERY_QOS {
        for length in lengths_bytes {
            let payload = vec![b'x'; length];
            deliver(&frog, &Outgoing::new(topic!("pond/depth"), &payload).qos(qos)).await;
            assert_eq!(expect(&mut heard, topic!("pond/depth"), &payload).await.qos(), qos);
        }
    }
    frog.disconnect().await.expect("everything is acknowledged");
}

#[tokio::test]
async fn messages_pass_by_every_way_in_every_version() {
    let server = Server::start();
    for endpoint in server.endpoints() {
        for version in Version::ALL {
            let course = converse(endpoint.clone(), version);
            timeout(DEADLINE, course).await.unwrap_or_else(|_| panic!("too long: {endpoint}, {version}"));
        }
    }
}

#[tokio::test]
async fn a_way_that_is_closed_says_where() {
    let server = Server::start();
    let refused = async |endpoint: Endpoint| -> ConnectError {
        let connected = Client::connect_to(endpoint, Options::new(Version::V5)).await;
        connected.expect_err("it is refused")
    };
    let system = TlsOptions::new().root_pem(fs::read(server.file("client.pem")).expect("it is there"));
    let distrusting = Endpoint::tcp("localhost", server.wss).tls(system.build().expect("all is there"));
    let error = refused(distrusting).await;
    assert!(error.to_string().starts_with("no TLS with localhost: "), "{error}");
    assert_eq!(error.fault(), Fault::Server);

    let nameless = server.trusting().build().expect("all is there");
    let error = refused(Endpoint::tcp("localhost", server.mqtts).tls(nameless)).await;
    assert!(error.to_string().contains("alert"), "it wants a certificate: {error}");
    assert_eq!(error.fault(), Fault::Application);

    let elsewhere = server.trusting().build().expect("all is there");
    let error = refused(Endpoint::tcp("127.0.0.1", server.mqtts).tls(elsewhere)).await;
    assert!(error.to_string().contains("not valid for name \"127.0.0.1\""), "{error}");
    let unnamed = server.mqtts();
    let anywhere = server.trusting().dangerously_accept_any_host_name();
    let anywhere =
        anywhere.client_certificate_files(server.file("client.pem"), server.file("client.key")).build();
    let there = Endpoint::tcp("127.0.0.1", server.mqtts).tls(anywhere.expect("all is there"));
    for endpoint in [unnamed, there] {
        converse(endpoint, Version::V5).await;
    }

    let plain = format!("ws://{}/mqtt", server.mosquitto.address()).parse().expect("a URL");
    let error = refused(plain).await;
    assert!(error.to_string().starts_with("no WebSocket with ws://"), "{error}");
}
