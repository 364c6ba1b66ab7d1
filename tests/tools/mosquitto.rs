//! Mosquitto, for features that Pondhawk does not have.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pondhawk_tests::{Program, free_ports};
use tempfile::TempDir;

use crate::encrypted::Certificates;

/// A running Mosquitto with five ports: plain, TLS, password, access list and WebSocket. A Unix domain socket
/// leads to it too.
pub(crate) struct Mosquitto {
    _program: Program,
    folder: TempDir,
    ports: [u16; LISTENERS],
    certificates: Certificates,
}

const LISTENERS: usize = 5;

impl Mosquitto {
    /// Starts Mosquitto on free ports.
    pub(crate) fn start() -> Self {
        let folder = TempDir::new().expect("there is a place for temporary files");
        let ports = free_ports();
        certificates(folder.path());
        write(folder.path(), "access", "topic readwrite open/#\n");
        passwords(&folder.path().join("passwords"));
        write(folder.path(), "mosquitto.conf", &configuration(folder.path(), ports));
        let mut command = Command::new("mosquitto");
        command.arg("-c").arg(folder.path().join("mosquitto.conf"));
        let program = Program::start(command);
        program.wait_for(" running");
        let certificates = Certificates::read(folder.path());
        Self { _program: program, folder, ports, certificates }
    }

    /// The certificates of clients and servers, and of the authority that they trust.
    pub(crate) fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    /// Path of the certificate of the authority that has signed the other certificates.
    pub(crate) fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// The port for TLS.
    pub(crate) fn tls_port(&self) -> u16 {
        self.ports[1]
    }

    /// The port that requires a password.
    pub(crate) fn private_port(&self) -> u16 {
        self.ports[2]
    }

    /// The port with an access list.
    pub(crate) fn guarded_port(&self) -> u16 {
        self.ports[3]
    }

    pub(crate) fn port(&self) -> u16 {
        self.ports[0]
    }

    /// The port for WebSocket.
    pub(crate) fn web_port(&self) -> u16 {
        self.ports[4]
    }

    /// Names of ports and files in the words of a row, with their values.
    pub(crate) fn names(&self) -> Vec<(&'static str, String)> {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        vec![
            ("$MOSQUITTO_TLS", self.ports[1].to_string()),
            ("$SOCKET", path("socket")),
            ("$CA", path("ca.pem")),
            ("$TRUSTED", path("trusted")),
            ("$CERT", path("client.pem")),
            ("$KEY", path("client.key")),
            ("$FILE", path("file")),
        ]
    }
}

fn configuration(folder: &Path, [plain, tls, private, guarded, web]: [u16; LISTENERS]) -> String {
    let folder = folder.display();
    format!(
        "per_listener_settings true\nuser root\n\
         listener {plain} 127.0.0.1\nallow_anonymous true\n\
         listener {tls} 127.0.0.1\nallow_anonymous true\ncafile {folder}/ca.pem\ncertfile {folder}/server.pem\n\
         keyfile {folder}/server.key\n\
         listener {private} 127.0.0.1\npassword_file {folder}/passwords\n\
         listener {guarded} 127.0.0.1\nallow_anonymous true\nacl_file {folder}/access\n\
         listener {web} 127.0.0.1\nallow_anonymous true\nsocket_domain ipv4\nprotocol websockets\n\
         listener 0 {folder}/socket\nallow_anonymous true\n"
    )
}

fn write(folder: &Path, name: &str, text: &str) {
    fs::write(folder.join(name), text).expect("a temporary file can be written");
}

fn passwords(path: &PathBuf) {
    fs::write(path, "").expect("a temporary file can be written");
    let status = Command::new("mosquitto_passwd").arg("-b").arg(path).args(["ann", "secret"]).status();
    assert!(status.expect("mosquitto_passwd can be run").success());
}

/// Makes an authority, and certificates for the server, a client, and a server on another host.
fn certificates(folder: &Path) {
    let script = "\
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=authority \
            -keyout ca.key -out ca.pem && \
        for name in server client foreign; do \
            openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=$name \
                -keyout $name.key -out $name.csr && \
            case $name in foreign) names=DNS:elsewhere.example;; *) names=IP:127.0.0.1,DNS:localhost;; esac && \
            printf subjectAltName=$names > extensions && \
            openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
                -extfile extensions -out $name.pem || exit 1; \
        done && mkdir trusted && cp ca.pem trusted/ca.crt && openssl rehash trusted && chmod 644 *.key && \
        printf 'from a file' > file";
    let mut shell = Command::new("sh");
    shell.args(["-ec", script]).current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null());
    assert!(shell.status().expect("a shell can be run").success(), "openssl makes certificates");
}
