//! SCRAM with channel binding: rustls by hand on the side of the client, and proofs that Python computes.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;

use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{Broker, DEADLINE, Options, Version, pondhawk, until};
use tempfile::TempDir;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig, ClientConnection, RootCertStore, StreamOwned, version};

/// Prints the second message of the client, and the answer of a broker that knows the password. The arguments: hash, password,
/// first message of the client, answer of the broker, and the binding in hexadecimal.
const PROVE: &str = "\
import base64, hashlib, hmac, sys
kind, password, first, server, binding = sys.argv[1:]
header, bare = first.split(',,', 1)
fields = dict(field.split('=', 1) for field in server.split(','))
salted = hashlib.pbkdf2_hmac(kind, password.encode(), base64.b64decode(fields['s']), int(fields['i']))
sign = lambda key, text: hmac.new(key, text, kind).digest()
key = sign(salted, b'Client Key')
channel = base64.b64encode((header + ',,').encode() + bytes.fromhex(binding)).decode()
final = 'c=' + channel + ',r=' + fields['r']
signed = ','.join([bare, server, final]).encode()
proof = bytes(a ^ b for a, b in zip(key, sign(hashlib.new(kind, key).digest(), signed)))
print(final + ',p=' + base64.b64encode(proof).decode())
print('v=' + base64.b64encode(sign(sign(salted, b'Server Key'), signed)).decode())
";

struct Place {
    broker: Broker,
    roots: RootCertStore,
    _directory: TempDir,
}

impl Place {
    /// Waits until the log has so many lines with this text.
    fn log_says(&self, text: &str, count: usize) {
        until(text, || (self.broker.log_lines(text).len() == count).then_some(()));
    }

    /// A broker with a listener for TCP, and one for TLS. The user frog has a hash for SHA-512, and toad one for SHA-256.
    fn new() -> Self {
        let directory = TempDir::new().expect("there is a place for temporary files");
        let path = |name: &str| directory.path().join(name);
        let users = path("users");
        for (make, kind, user) in [("-cb", "sha512-pbkdf2", "frog"), ("-b", "scram-sha-256", "toad")] {
            let mut program = Command::new(pondhawk());
            program.args(["passwd", make, "-H", kind, "-I", "4096"]).arg(&users).args([user, "croak"]);
            assert!(program.output().expect("pondhawk can be run").status.success());
        }
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        fs::write(path("server.pem"), made.cert.pem()).expect("it can be written");
        fs::write(path("server.key"), made.signing_key.serialize_pem()).expect("it can be written");
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).expect("a certificate");
        let settings = format!(
            "[auth]\npassword_file = {users:?}\n[[listener]]\naddress = \"127.0.0.1:0\"\n\
             [[listener]]\naddress = \"127.0.0.1:0\"\ntls_certificate = {:?}\ntls_key = {:?}\n",
            path("server.pem"),
            path("server.key")
        );
        let broker = Broker::start(&Options { settings, ..Options::default() });
        Self { broker, roots, _directory: directory }
    }

    fn plain(&self) -> Peer<TcpStream> {
        let socket = TcpStream::connect(self.broker.address_of("tcp")).expect("it listens");
        socket.set_read_timeout(Some(DEADLINE)).expect("a duration");
        Peer { stream: socket, binding: None }
    }

    fn tls(
        &self,
        version: &'static rustls::SupportedProtocolVersion,
    ) -> Peer<StreamOwned<ClientConnection, TcpStream>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").expect("a name");
        let mut session = ClientConnection::new(Arc::new(config), name).expect("a configuration");
        let mut socket = TcpStream::connect(self.broker.address_of("tls")).expect("it listens");
        socket.set_read_timeout(Some(DEADLINE)).expect("a duration");
        while session.is_handshaking() {
            session.complete_io(&mut socket).expect("the handshake succeeds");
        }
        let exported = session.export_keying_material([0; 32], b"EXPORTER-Channel-Binding", Some(b""));
        let binding = exported.expect("the handshake is complete");
        Peer { stream: StreamOwned::new(session, socket), binding: Some(binding) }
    }
}

/// A connection, and its channel binding.
struct Peer<S> {
    stream: S,
    binding: Option<[u8; 32]>,
}

/// The end of an exchange: the reason code in CONNACK, and whether the broker has proved that it knows the password.
type End = (u8, bool);

const ADMITTED: End = (0, true);
const REFUSED: End = (0x87, false);
/// The method is not one that this connection has.
const NO_METHOD: End = (0x8C, false);

impl<S: Read + Write> Peer<S> {
    /// Logs in as the user whose hash is for the method. The first message of the client begins with `field`.
    fn log_in(&mut self, method: &str, field: &str) -> End {
        self.log_in_with(method, field, self.binding)
    }

    fn log_in_with(&mut self, method: &str, field: &str, binding: Option<[u8; 32]>) -> End {
        let (kind, user) =
            if method.starts_with("SCRAM-SHA-512") { ("sha512", "frog") } else { ("sha256", "toad") };
        let first = format!("{field},,n={user},r=fyko+d2lbbFgONRv9qkxdawL");
        let properties = authentication(method, &first);
        self.send(&Connect { properties: &properties, ..Connect::new(Version::V5, "c") }.bytes());
        let (first_byte, answer) = self.read_packet();
        if first_byte == 0x20 {
            return (answer[1], false);
        }
        assert_eq!((first_byte, answer[0]), (0xF0, 0x18), "{answer:02x?}");
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let server = &answer[answer.find("r=fyko").expect("the nonce")..];
        let uses_binding = field.starts_with("p=");
        let binding = binding.filter(|_| uses_binding).into_iter().flatten();
        let binding: String = binding.map(|byte| format!("{byte:02x}")).collect();
        let proof =
            Command::new("python3").args(["-c", PROVE, kind, "croak", &first, server, &binding]).output();
        let proof = String::from_utf8(proof.expect("python3 is there").stdout).expect("a text");
        let (second, expected) = proof.trim_end().split_once('\n').expect("two lines");
        let properties = authentication(method, second);
        let length = packet::variable_byte_integer(properties.len());
        self.send(&packet::packet(0xF0, &[&[0x18][..], &length, &properties].concat()));
        let (first_byte, answer) = self.read_packet();
        assert_eq!(first_byte, 0x20, "{answer:02x?}");
        let has_proof = answer.windows(expected.len()).any(|part| part == expected.as_bytes());
        (answer[1], has_proof)
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the broker reads");
        self.stream.flush().expect("the broker reads");
    }

    /// The first byte of the next packet, and all bytes behind its length.
    fn read_packet(&mut self) -> (u8, Vec<u8>) {
        let mut byte = || {
            let mut byte = [0];
            self.stream.read_exact(&mut byte).expect("the broker answers");
            byte[0]
        };
        let (first, low) = (byte(), byte());
        let high = if low < 0x80 { 0 } else { byte() };
        let mut body = vec![0; usize::from(low & 0x7F) | usize::from(high) << 7];
        self.stream.read_exact(&mut body).expect("a whole packet");
        (first, body)
    }
}

/// Authentication Method and Authentication Data as properties.
fn authentication(method: &str, data: &str) -> Vec<u8> {
    [&[0x15][..], &packet::string(method), &[0x16], &packet::binary(data.as_bytes())].concat()
}

const BOUND: &str = "p=tls-exporter";

#[test]
fn a_client_proves_its_password_for_its_own_connection_only() {
    let place = Place::new();
    for method in ["SCRAM-SHA-512-PLUS", "SCRAM-SHA-256-PLUS"] {
        assert_eq!(place.tls(&version::TLS13).log_in(method, BOUND), ADMITTED, "{method}");
        let mut other = place.tls(&version::TLS13);
        let foreign = place.tls(&version::TLS13).binding;
        assert_eq!(
            other.log_in_with(method, BOUND, foreign),
            REFUSED,
            "{method}: the binding of another connection"
        );
        assert_eq!(
            place.tls(&version::TLS13).log_in_with(method, BOUND, None),
            REFUSED,
            "{method}: no binding"
        );
    }
    place.log_says("its channel binding is that of another connection", 4);
}

#[test]
fn a_client_that_is_told_of_no_binding_is_refused_where_there_is_one() {
    let place = Place::new();
    for method in ["SCRAM-SHA-512", "SCRAM-SHA-256"] {
        assert_eq!(place.tls(&version::TLS13).log_in(method, "y"), REFUSED, "{method}");
        assert_eq!(place.tls(&version::TLS13).log_in(method, "n"), ADMITTED, "{method}");
        assert_eq!(place.tls(&version::TLS13).log_in(method, BOUND), REFUSED, "{method}");
    }
    for field in ["p=tls-unique", "p=tls-server-end-point", "n", "y"] {
        assert_eq!(place.tls(&version::TLS13).log_in("SCRAM-SHA-512-PLUS", field), REFUSED, "{field}");
    }
    place.log_says("its list of methods may be forged", 2);
    place.log_says("a type of channel binding that there is not", 2);
}

/// TLS 1.2 has a binding only with an extension that rustls does not tell about.
#[test]
fn without_tls_1_3_there_is_no_binding() {
    let place = Place::new();
    for method in ["SCRAM-SHA-512", "SCRAM-SHA-256"] {
        for field in ["n", "y"] {
            assert_eq!(place.plain().log_in(method, field), ADMITTED, "{method} {field}");
            assert_eq!(place.tls(&version::TLS12).log_in(method, field), ADMITTED, "{method} {field}");
        }
        assert_eq!(place.plain().log_in(method, BOUND), REFUSED, "{method}");
    }
    for method in ["SCRAM-SHA-512-PLUS", "SCRAM-SHA-256-PLUS"] {
        assert_eq!(place.plain().log_in(method, BOUND), NO_METHOD, "{method}");
        assert_eq!(place.tls(&version::TLS12).log_in(method, BOUND), NO_METHOD, "{method}");
    }
}
