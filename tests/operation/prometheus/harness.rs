//! A server of Prometheus in a process of its own, and brokers with all metrics.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use pondhawk_tests::{Broker, DEADLINE, Options, Program, free_port, until};
use serde_json::Value;
use tempfile::TempDir;

use crate::admin::Server;

/// The token of all brokers, which Prometheus has too.
const TOKEN: &str = "for-tests-0123456789abcdef";

/// Time until the certificate of a broker expires: an alert is for less than seven days.
const CERTIFICATE: Duration = Duration::from_secs(3 * 86_400);

/// The path of a file below `packaging`.
pub(super) fn shipped(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging").join(path)
}

/// A folder with the files of a test.
pub(super) struct Folder {
    directory: TempDir,
    /// A port at which nobody listens.
    nobody: u16,
}

impl Folder {
    pub(super) fn new() -> Self {
        let folder =
            Self { directory: TempDir::new().expect("there is a place for files"), nobody: free_port() };
        folder.write("token", TOKEN);
        folder
    }

    /// Writes a file, and returns its path.
    pub(super) fn write(&self, name: &str, text: &str) -> String {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).expect("the folder is ours");
        path.to_string_lossy().into_owned()
    }

    /// The path of a file.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The URL of a server that does not answer.
    pub(super) fn nowhere(&self) -> String {
        format!("http://127.0.0.1:{}", self.nobody)
    }

    /// The admin server of a broker.
    pub(super) fn server(&self, broker: &Broker) -> Server {
        Server::with(&Server::address_of(broker), TOKEN)
    }

    /// The keys of an admin server with the token.
    pub(super) fn admin(&self) -> String {
        let (token, audit) = (self.path("token"), self.path("audit"));
        format!("[admin]\naddress = \"127.0.0.1:0\"\nadmin_token_file = {token:?}\naudit_file = {audit:?}\n")
    }

    /// The settings of a broker that has metrics of certificates and of services, none of which answers. It has four listeners: one
    /// for all, one for a single connection, one with TLS, and one that waits for its certificate.
    pub(super) fn full_settings(&self, more: &str) -> String {
        let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).expect("a name");
        params.not_after = (SystemTime::now() + CERTIFICATE).into();
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let certificate = self.write("cert.pem", &certificate.pem());
        let key = self.write("key.pem", &key.serialize_pem());
        let nowhere = self.nowhere();
        format!(
            "{}{more}[otlp]\nurl = \"{nowhere}\"\ninterval = \"1 s\"\n[http_auth]\nurl = \"{nowhere}/ask\"\n\
             [acme]\ndomains = [\"pond.example\"]\nterms_of_service_agreed = true\ndirectory_url = \"{nowhere}/dir\"\n\
             [[listener]]\naddress = \"127.0.0.1:0\"\nallow_anonymous = true\n\
             [[listener]]\naddress = \"127.0.0.1:0\"\nconnections = 1\n\
             [[listener]]\naddress = \"127.0.0.1:0\"\ntls_certificate = {certificate:?}\ntls_key = {key:?}\n\
             [[listener]]\naddress = \"127.0.0.1:0\"\ntls_acme = true\n",
            self.admin()
        )
    }

    /// A broker with these settings.
    pub(super) fn full_broker(&self) -> Broker {
        Broker::start(&Options { shards: 2, settings: self.full_settings(""), ..Options::default() })
    }
}

/// A server that scrapes brokers each second, which is also the time that an answer may take.
pub(super) struct Prometheus {
    port: u16,
    _program: Program,
}

impl Prometheus {
    /// Starts a server, with the path of a file of rules.
    pub(super) fn start(folder: &Folder, brokers: &[Server], rules: Option<&str>) -> Self {
        let mut config = String::from("global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\n");
        if let Some(rules) = rules {
            let _ = writeln!(config, "rule_files: [{rules:?}]");
        }
        let targets: Vec<String> =
            brokers.iter().map(|server| server.url().trim_start_matches("http://").to_owned()).collect();
        let _ = write!(
            config,
            "scrape_configs:\n  - job_name: pondhawk\n    authorization:\n      credentials_file: {:?}\n    \
             static_configs:\n      - targets: {targets:?}\n",
            folder.path("token")
        );
        let port = free_port();
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", folder.write("prometheus.yml", &config)));
        command.arg(format!("--storage.tsdb.path={}", folder.path("data").display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
        let program = Program::start(command);
        program.wait_for("Server is ready to receive web requests");
        Self { port, _program: program }
    }

    /// Waits until each broker was scraped twice: a counter has a rate then.
    pub(super) fn wait_for_all(&self, brokers: usize) {
        until("all brokers are scraped", || {
            let up = self.query("count_over_time(pondhawk_ready[1m]) > 1 and on (instance) up == 1");
            (up.len() == brokers).then_some(())
        });
    }

    /// Waits until the rules were evaluated twice: once with figures that are newer than this call.
    pub(super) fn wait_for_rules(&self) {
        let evaluated = || self.get("/api/v1/rules")["data"]["groups"][0]["lastEvaluation"].clone();
        for _ in 0..3 {
            let before = evaluated();
            until("the rules are evaluated", || (evaluated() != before).then_some(()));
        }
    }

    /// The series that a query returns.
    pub(super) fn query(&self, query: &str) -> Vec<Value> {
        let mut encoded = String::new();
        query.bytes().for_each(|byte| {
            let _ = write!(encoded, "%{byte:02x}");
        });
        let answer = self.get(&format!("/api/v1/query?query={encoded}"));
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        answer["data"]["result"].as_array().expect("a list").clone()
    }

    /// The answer to a request, which is JSON. HTTP/1.0 has no chunks.
    fn get(&self, path: &str) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("Prometheus listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a duration");
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).expect("Prometheus reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("Prometheus answers");
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }
}
