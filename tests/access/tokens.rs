//! Tokens in the place of passwords: openssl signs them, and an issuer of these tests publishes the keys.

mod issuer;
mod keys;
mod names;
mod rights;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{Broker, Client, Options, Version, until};
use tempfile::TempDir;

use crate::{IN_USE, publish, users};

/// A directory with keys, and a signer that nobody here wrote.
struct Signer {
    directory: TempDir,
}

/// The algorithms of the keys that [`Signer::new`] makes, and the options that make them.
const KINDS: [(&str, &str); 3] = [
    ("RS256", "-algorithm RSA -pkeyopt rsa_keygen_bits:2048"),
    ("ES256", "-algorithm EC -pkeyopt ec_paramgen_curve:P-256"),
    ("EdDSA", "-algorithm ED25519"),
];
const SECRET: &str = "a secret of the signer and of nobody else, I hope";

impl Signer {
    /// Keys of each kind. `keys.pem` has the public ones.
    fn new() -> Self {
        let signer = Self { directory: TempDir::new().expect("there is a place for temporary files") };
        for (name, options) in KINDS {
            signer.make(name, options);
        }
        let public = KINDS.map(|(name, _)| signer.public(name)).concat();
        signer.write("keys.pem", &public);
        signer.write("secret", &format!("{SECRET}\n"));
        signer
    }

    fn make(&self, name: &str, options: &str) {
        self.openssl(&format!("genpkey {options} -out {name}.key"));
        self.openssl(&format!("pkey -in {name}.key -pubout -out {name}.pub"));
    }

    fn public(&self, name: &str) -> String {
        fs::read_to_string(self.path(&format!("{name}.pub"))).expect("it was made")
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    /// Replaces a file at once.
    fn write(&self, name: &str, text: &str) {
        fs::write(self.path("new"), text).expect("it can be written");
        fs::rename(self.path("new"), self.path(name)).expect("it can be renamed");
    }

    fn openssl(&self, words: &str) -> Vec<u8> {
        openssl(self.directory.path(), words)
    }

    /// A token of this algorithm with these claims, and with `header` behind the algorithm.
    fn sign_with(&self, algorithm: &str, header: &str, claims: &str) -> String {
        self.signed_by(algorithm, algorithm, header, claims)
    }

    fn sign(&self, algorithm: &str, claims: &str) -> String {
        self.sign_with(algorithm, "", claims)
    }

    /// The same by the key `name`.
    fn signed_by(&self, name: &str, algorithm: &str, header: &str, claims: &str) -> String {
        let header = format!(r#"{{"alg":"{algorithm}","typ":"JWT"{header}}}"#);
        let message = format!("{}.{}", base64(header.as_bytes()), base64(claims.as_bytes()));
        fs::write(self.path("message"), &message).expect("it can be written");
        let signature = match algorithm {
            "HS256" => self
                .openssl(&format!("dgst -sha256 -mac HMAC -macopt hexkey:{} -binary message", hex(SECRET))),
            "EdDSA" => self.openssl(&format!("pkeyutl -sign -rawin -inkey {name}.key -in message")),
            "ES256" => pair(&self.openssl(&format!("dgst -sha256 -sign {name}.key message"))),
            _ => self.openssl(&format!("dgst -sha256 -sign {name}.key message")),
        };
        format!("{message}.{}", base64(&signature))
    }

    /// The public key of the key `name`, of P-256, as a key of a JWKS with this name.
    fn jwk(&self, name: &str, kid: &str) -> String {
        let der = self.openssl(&format!("pkey -pubin -in {name}.pub -outform DER"));
        let point = &der[der.len() - 64..];
        let (x, y) = (base64(&point[..32]), base64(&point[32..]));
        format!(r#"{{"kty":"EC","crv":"P-256","use":"sig","kid":"{kid}","x":"{x}","y":"{y}"}}"#)
    }
}

fn openssl(directory: &Path, words: &str) -> Vec<u8> {
    let output = Command::new("openssl").args(words.split(' ')).current_dir(directory).output();
    let output = output.expect("openssl is there");
    assert!(output.status.success(), "openssl {words}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The two numbers of a signature in DER, with 32 bytes each.
fn pair(der: &[u8]) -> Vec<u8> {
    let first = usize::from(der[3]);
    let numbers = [&der[4..4 + first], &der[6 + first..]];
    let whole = numbers.map(|number| {
        let number = &number[number.len().saturating_sub(32)..];
        [vec![0; 32 - number.len()], number.to_vec()].concat()
    });
    whole.concat()
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// Base64 for URLs, without `=`.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0, |bits: usize, byte| bits << 8 | usize::from(*byte))
            << (8 * (3 - chunk.len()));
        let letters = (0..=chunk.len()).map(|place| char::from(LETTERS[bits >> (18 - 6 * place) & 63]));
        text.extend(letters);
    }
    text
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970").as_secs()
}

/// Claims of a user, good for this time.
fn claims(user: &str, secs: u64) -> String {
    format!(r#"{{"sub":"{user}","exp":{}}}"#, now() + secs)
}

fn start(settings: &str) -> Broker {
    let settings = format!("[sys]\ninterval = \"1s\"\n{settings}");
    Broker::start(&Options { shards: 2, settings, ..Options::default() })
}

fn with_token<'a>(version: Version, client_id: &'a str, user: &'a str, token: &'a str) -> Connect<'a> {
    Connect::new(version, client_id).of(user, token)
}

/// The code with which a CONNECT is refused, after which the connection is closed.
fn refusal(broker: &Broker, connect: &Connect<'_>) -> u8 {
    let mut client = broker.connect();
    client.send(&connect.bytes());
    let answer = client.read_packet();
    assert_eq!(answer[0], 0x20, "{answer:02x?}");
    client.expect_closed();
    answer[3]
}

/// Waits until the broker publishes this value to the only topic that a client has subscribed to.
fn wait_for(watcher: &mut Client, value: &str) {
    until("it is counted", || watcher.read_packet().ends_with(value.as_bytes()).then_some(()));
}
