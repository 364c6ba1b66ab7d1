//! The same conversations over TLS, over WebSocket inside of TLS, and over QUIC, with certificates that `pondhawk certs`
//! makes.

use std::process::Command;
use std::thread;

use pondhawk_tests::{Broker, Options, Program, Version, autopaho, node, pondhawk, python};
use tempfile::TempDir;

use crate::{ALL_SAID, VERSIONS, script};

/// Ways that the scripts know besides TCP.
const LINKS: [&str; 2] = ["tls", "wss"];

/// A broker with one listener, for TLS.
struct Server {
    broker: Broker,
    certificates: TempDir,
}

impl Server {
    fn start() -> Self {
        let certificates = TempDir::new().expect("a temporary directory");
        let made = Command::new(pondhawk())
            .args(["certs", "init"])
            .arg(certificates.path())
            .args(["--host", "localhost", "127.0.0.1"])
            .output()
            .expect("it can be run");
        assert!(made.status.success(), "{made:?}");
        let file = |name: &str| certificates.path().join(name).display().to_string();
        let tls = format!("tls_certificate = {:?}\ntls_key = {:?}\n", file("server.pem"), file("server.key"));
        let settings = ["127.0.0.1:0", "quic://127.0.0.1:0"]
            .map(|address| format!("[[listener]]\naddress = {address:?}\n{tls}"))
            .concat();
        let broker = Broker::start(&Options { shards: 2, settings, ..Options::default() });
        Self { broker, certificates }
    }

    /// The port for a link.
    fn port(&self, link: &str) -> u16 {
        if link == "quic" { self.broker.address_of("quic").port() } else { self.broker.address().port() }
    }

    fn authority(&self) -> String {
        self.certificates.path().join("ca.pem").display().to_string()
    }
}

/// A conversation in each of these ways at the same time.
fn converse(links: &[&str], conversation: impl Fn(&Broker, u16) -> Command + Sync) {
    thread::scope(|scope| {
        for link in links {
            let conversation = &conversation;
            scope.spawn(move || {
                let server = Server::start();
                let mut command = conversation(&server.broker, server.port(link));
                command.env("PONDHAWK_LINK", link).env("PONDHAWK_CA", server.authority());
                let said = Program::start(command).finish();
                assert!(said.ends_with(ALL_SAID), "{link}: {said}");
                assert!(server.broker.stop().success());
            });
        }
    });
}

/// Conversations of the scripts, in both versions. Messages that wait for a client to come back have a QoS of their own.
fn converse_by(program: fn() -> Command, [talk, resume]: [&str; 2]) {
    for version in VERSIONS {
        for (path, qos) in [(talk, "2"), (resume, "1")] {
            converse(&LINKS, |broker, _| {
                let mut command = script(program(), path, broker, version);
                command.arg(qos);
                command
            });
        }
    }
}

#[test]
fn paho_converses_and_comes_back_over_tls_and_wss() {
    converse_by(python, ["python/talk.py", "python/resume.py"]);
}

#[test]
fn mqtt_js_converses_and_comes_back_over_tls_and_wss() {
    converse_by(node, ["javascript/talk.js", "javascript/resume.js"]);
}

#[test]
fn autopaho_converses_and_comes_back_over_tls_wss_and_quic() {
    for qos in ["0", "1", "2"] {
        converse(&["tls", "wss", "quic"], |_, port| {
            let mut command = autopaho();
            command.args([&port.to_string(), qos]);
            command
        });
    }
}

/// Mosquitto's programs have no WebSocket on Debian.
#[test]
fn mosquitto_publishes_and_subscribes_over_tls() {
    let server = Server::start();
    let (port, authority) = (server.broker.address().port().to_string(), server.authority());
    for (version, name) in
        [(Version::V3_1, "mqttv31"), (Version::V3_1_1, "mqttv311"), (Version::V5, "mqttv5")]
    {
        for tls_version in ["tlsv1.2", "tlsv1.3"] {
            let tool = |program: &str, words: &[&str]| {
                let mut command = Command::new("stdbuf");
                command.args(["--output=L", program, "-h", "localhost", "-p", &port, "-V", name, "-q", "2"]);
                command
                    .args(["--cafile", &authority, "--tls-version", tls_version, "-t", "pond"])
                    .args(words);
                Program::start(command)
            };
            let frog = tool("mosquitto_sub", &["-C", "1", "--debug"]);
            frog.wait_for("Subscribed (mid: 1)");
            let text = format!("{version} over {tls_version}");
            tool("mosquitto_pub", &["-m", &text]).finish();
            assert!(frog.finish().contains(&text));
        }
    }
}
