//! The versions and cipher suites of TLS that a listener accepts, of everything that openssl can offer.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use pondhawk_tests::{Broker, DEADLINE, Options};
use tempfile::TempDir;

use crate::addresses;

/// Environment variable of `cargo xtask docs`: the test writes the table instead of comparing it.
const WRITE: &str = "PONDHAWK_WRITE_DOCS";
const BEGIN: &str = "<!-- This table is generated: `cargo xtask docs` -->\n";
const END: &str = "<!-- end of the table -->\n";

/// The kinds of keys of a server, and how openssl makes each.
const KEYS: [(&str, &str); 2] = [("RSA", "rsa:2048"), ("ECDSA", "ec -pkeyopt ec_paramgen_curve:P-256")];
/// Everything that openssl has, also what is not secure. Without that level it would not offer old versions.
const ALL: &str = "ALL:COMPLEMENTOFALL:@SECLEVEL=0";
const ALL_OF_1_3: [&str; 5] = [
    "TLS_AES_256_GCM_SHA384",
    "TLS_AES_128_GCM_SHA256",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_CCM_SHA256",
    "TLS_AES_128_CCM_8_SHA256",
];

struct Server {
    _broker: Broker,
    _directory: TempDir,
    /// A listener for each kind of key.
    listeners: [SocketAddr; 2],
    /// One that has `tls_minimum = "1.3"`.
    newest_only: SocketAddr,
}

impl Server {
    fn start() -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        let listener = |(kind, key): (&str, &str)| {
            let file =
                |extension: &str| directory.path().join(format!("{kind}.{extension}")).display().to_string();
            let (certificate, private) = (file("pem"), file("key"));
            let words =
                format!("req -x509 -newkey {key} -nodes -keyout {private} -out {certificate} -subj /CN=pond");
            let made = Command::new("openssl").args(words.split(' ')).output().expect("openssl is there");
            assert!(made.status.success(), "{made:?}");
            let address = "[[listener]]\naddress = \"127.0.0.1:0\"\n";
            format!("{address}tls_certificate = {certificate:?}\ntls_key = {private:?}\n")
        };
        let [rsa, ecdsa] = KEYS.map(listener);
        let settings = format!("{rsa}{ecdsa}{ecdsa}tls_minimum = \"1.3\"\n");
        let broker = Broker::start(&Options { settings, ..Options::default() });
        let [rsa, ecdsa, newest_only] = addresses(&broker);
        Self { _broker: broker, _directory: directory, listeners: [rsa, ecdsa], newest_only }
    }
}

/// The cipher suite of a handshake in which openssl offers this, if it succeeds.
fn shake_hands(address: SocketAddr, offer: &[&str]) -> Option<String> {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-brief", "-connect", &address.to_string()]).args(offer);
    let output = command.stdin(Stdio::null()).output().expect("openssl is there");
    let text = String::from_utf8_lossy(&output.stderr);
    let suite = text.lines().find_map(|line| line.strip_prefix("Ciphersuite: ")).map(str::to_owned);
    // A failure must be one of the handshake, and not of openssl with its words.
    assert!(
        suite.is_some() || text.contains("alert") || text.contains("no ciphers available"),
        "{offer:?}: {text}"
    );
    suite
}

/// Every suite that is accepted with this version. A suite that the server has chosen is not offered again.
fn accepted(address: SocketAddr, version: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    loop {
        let suite = if version == "-tls1_3" {
            let left = ALL_OF_1_3.into_iter().filter(|suite| !found.contains(*suite)).collect::<Vec<_>>();
            shake_hands(address, &[version, "-ciphersuites", &left.join(":")])
        } else {
            let seen: String = found.iter().map(|suite| format!("!{suite}:")).collect();
            shake_hands(address, &[version, "-cipher", &format!("{seen}{ALL}")])
        };
        match suite {
            Some(suite) => assert!(found.insert(suite), "a suite that was not offered"),
            None => return found,
        }
    }
}

/// The answer to a ClientHello that offers SSL 3.0, which openssl has forgotten.
fn answer_to_ssl_3(address: SocketAddr) -> Vec<u8> {
    let mut socket = TcpStream::connect(address).expect("the broker listens");
    socket.set_read_timeout(Some(DEADLINE)).expect("a duration");
    let body = [&[3, 0][..], &[7; 32], &[0, 0, 4, 0x00, 0x2f, 0x00, 0x0a, 1, 0]].concat();
    let length = u8::try_from(body.len()).expect("it is short");
    let hello = [&[0x16, 3, 0, 0, length + 4, 1, 0, 0, length][..], &body].concat();
    socket.write_all(&hello).expect("the broker reads");
    let mut answer = Vec::new();
    drop(socket.read_to_end(&mut answer));
    answer
}

/// Forward secrecy, and encryption that authenticates.
fn is_strong(suite: &str) -> bool {
    let has_secrecy = suite.starts_with("TLS_") || suite.starts_with("ECDHE-");
    has_secrecy && (suite.contains("GCM") || suite.contains("CHACHA20"))
}

#[test]
fn nothing_older_or_weaker_than_the_manual_says_is_accepted() {
    let server = Server::start();
    let mut table = String::from("| version | key of the server | accepted cipher suites |\n|---|---|---|\n");
    for (flag, version) in
        [("-tls1_3", "TLS 1.3"), ("-tls1_2", "TLS 1.2"), ("-tls1_1", "TLS 1.1"), ("-tls1", "TLS 1.0")]
    {
        for ((kind, _), address) in KEYS.into_iter().zip(server.listeners) {
            let suites = accepted(address, flag);
            assert!(suites.iter().all(|suite| is_strong(suite)), "{version}: {suites:?}");
            let is_new = ["TLS 1.3", "TLS 1.2"].contains(&version);
            assert_eq!(is_new, !suites.is_empty(), "{version}");
            let names: Vec<String> = suites.iter().map(|suite| format!("`{suite}`")).collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            table += &format!("| {version} | {kind} | {names} |\n");
        }
    }
    for address in server.listeners {
        let answer = answer_to_ssl_3(address);
        assert!(matches!(answer[..], [] | [0x15, ..]), "an alert, or nothing: {answer:02x?}");
        for weak in ["RSA+SHA1:ECDSA+SHA1", "RSA+SHA224:ECDSA+SHA224"] {
            let offer = ["-tls1_2", "-cipher", ALL, "-sigalgs", weak];
            assert_eq!(shake_hands(address, &offer), None, "signatures with {weak}");
        }
        assert_eq!(shake_hands(address, &["-groups", "P-521"]), None, "a group that is not in the manual");
        assert!(shake_hands(address, &["-groups", "X25519"]).is_some());
    }
    assert_eq!(shake_hands(server.newest_only, &["-tls1_2", "-cipher", ALL]), None);
    assert!(shake_hands(server.newest_only, &["-tls1_3"]).is_some());

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/LISTENERS.md");
    let page = fs::read_to_string(&path).expect("the page is there");
    let (before, rest) = page.split_once(BEGIN).expect("the page has a place for the table");
    let (committed, after) = rest.split_once(END).expect("the table ends");
    if std::env::var_os(WRITE).is_some() {
        fs::write(&path, [before, BEGIN, &table, END, after].concat()).expect("the page can be written");
    } else {
        assert_eq!(committed, table, "docs/LISTENERS.md is not current: run `cargo xtask docs`");
    }
}
