//! Any bytes at any listener, in any cut: the same bytes for the session, the same peer, the same end. Inside of TLS they
//! mean what they mean outside.
#![no_main]

use std::io::{self, Read as _, Write as _};
use std::sync::{Arc, LazyLock};

use inputs::{Cut, Input};
use layers::{CurrentTls, Identity, Layered, Protocol, Stack, TlsSettings};
use libfuzzer_sys::fuzz_target;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use stream::Stream as _;
use support::course::{Outcome, go_on, run};
use support::link::Link;
use support::web::essence;

const PROTOCOLS: [Protocol; 4] = [Protocol::Auto, Protocol::Mqtt, Protocol::WebSocket, Protocol::Auto];

struct Secure {
    server: Arc<CurrentTls>,
    client: Arc<ClientConfig>,
}

static SECURE: LazyLock<Secure> = LazyLock::new(|| {
    let made = rcgen::generate_simple_self_signed(["broker.example".to_owned()]).expect("a certificate");
    let certificate = CertificateDer::from(made.cert);
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let identities = vec![Identity { chain: vec![certificate.clone()], key }];
    let server = TlsSettings { identities, ..TlsSettings::default() }.build().expect("it fits together");
    let mut roots = RootCertStore::empty();
    roots.add(certificate).expect("it can be trusted");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Secure { server: Arc::new(CurrentTls::new(server)), client: Arc::new(client) }
});

fuzz_target!(|input: &[u8]| {
    let Some(input) = Input::of(input) else { return };
    let choice = input.choice;
    let stack = |proxy: bool, tls: bool, tls_optional: bool| {
        let tls = tls.then(|| Arc::clone(&SECURE.server));
        let protocol = PROTOCOLS[usize::from(choice % 4)];
        Arc::new(Stack { protocol, proxy, tls, tls_optional, ..Stack::default() })
    };
    let outcome = |cut: &Cut<'_>, stack: Arc<Stack>| {
        let link = Link::default();
        cut.send(input.bytes, |piece| link.send(piece));
        link.end();
        run(stack, &link, cut)
    };
    let (proxy, tls, tls_optional) = (choice & 0x10 != 0, choice & 0x20 != 0, choice & 0x40 != 0);
    let is_inside = choice & 0x80 != 0 && input.bytes.len() < 4_096;
    if is_inside {
        // A header of the PROXY protocol stands outside of TLS only, and TLS has nothing of the kind inside.
        if input.bytes.starts_with(&[0x16]) || input.bytes.first().is_some_and(|byte| b"\rP".contains(byte)) {
            return;
        }
        let outside = essence(outcome(&Cut::NONE, stack(false, false, false)));
        assert_eq!(essence(inside(&input, stack(false, true, tls_optional))), outside);
        return;
    }
    let begins_tls = |outcome: &Outcome| outcome.written.first() == Some(&0x15);
    let mut both = [
        outcome(&input.cut, stack(proxy, tls, tls_optional)),
        outcome(&Cut::NONE, stack(proxy, tls, tls_optional)),
    ];
    if both.iter().any(begins_tls) || tls && both.iter().any(|outcome| outcome.written.first() == Some(&0x16))
    {
        // A handshake has random numbers, and which alert comes first is not said.
        both.iter_mut().for_each(|outcome| outcome.written.clear());
    } else {
        both = both.map(essence);
    }
    let [cut, whole] = both;
    assert_eq!(cut, whole);
});

/// The same bytes through TLS, whose records are cut.
fn inside(input: &Input<'_>, stack: Arc<Stack>) -> Outcome {
    let name = "broker.example".try_into().expect("a name");
    let mut client = ClientConnection::new(Arc::clone(&SECURE.client), name).expect("a connection");
    let link = Link::default();
    let mut broker = Layered::new(link.clone(), stack);
    link.set_room(usize::MAX);
    while client.is_handshaking() {
        link.send(&records(&mut client));
        while match broker.read(&mut [0; 1_000]) {
            Ok(received) => panic!("{received:?} before anything was sent"),
            Err(error) => error.kind() == io::ErrorKind::Interrupted,
        } {}
        broker.flush().expect("there is room");
        receive(&mut client, &link.receive());
    }
    client.writer().write_all(input.bytes).expect("it is buffered");
    client.send_close_notify();
    input.cut.send(&records(&mut client), |piece| link.send(piece));
    link.end();
    let mut outcome = go_on(broker, &link, &input.cut);
    outcome.written = receive(&mut client, &outcome.written);
    outcome
}

fn records(client: &mut ClientConnection) -> Vec<u8> {
    let mut records = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut records).expect("a vector takes everything");
    }
    records
}

/// Returns the plaintext of these records.
fn receive(client: &mut ClientConnection, mut records: &[u8]) -> Vec<u8> {
    let mut plaintext = Vec::new();
    while !records.is_empty() {
        client.read_tls(&mut records).expect("a slice can be read");
        client.process_new_packets().expect("the broker keeps the rules");
        drop(client.reader().read_to_end(&mut plaintext));
    }
    plaintext
}
