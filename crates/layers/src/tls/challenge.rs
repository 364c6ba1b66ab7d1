//! Answers to the questions of a certificate authority in a TLS handshake (TLS-ALPN-01, RFC 8737).
//!
//! The authority asks in a ClientHello whose only protocol is `acme-tls/1`. Such a handshake gets a configuration of its own,
//! which asks for no client certificate and resumes no session. Behind the handshake there is nothing: the connection ends.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::{Acceptor, ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::settings::{Identity, SettingsError, certified};

/// Name of the protocol in which an authority asks (RFC 8737 section 6.2).
pub(crate) const ALPN: &[u8] = b"acme-tls/1";

/// Length of the header of a record, in bytes.
const RECORD_HEADER_BYTES: usize = 5;
/// Maximum length of a record with ClientHello, without its header (RFC 8446 section 5.1).
const RECORD_BYTES_MAX: usize = 16 * 1024;

/// The answers to an authority, each a certificate for one host name.
#[derive(Debug)]
struct Answers(Vec<(String, Arc<CertifiedKey>)>);

impl ResolvesServerCert for Answers {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name()?;
        let answer = self.0.iter().find(|(of, _)| of.eq_ignore_ascii_case(name));
        answer.map(|(_, certified)| Arc::clone(certified))
    }
}

/// The configuration for handshakes in which an authority asks about these host names.
///
/// # Errors
/// A key cannot be used, or does not belong to its certificate.
pub fn answers(of_names: Vec<(String, Identity)>) -> Result<Arc<ServerConfig>, SettingsError> {
    let provider = Arc::new(ring::default_provider());
    let answer = |(number, (name, identity)): (usize, (String, Identity))| {
        Ok((name, certified(number, identity, &provider)?))
    };
    let answers = of_names.into_iter().enumerate().map(answer).collect::<Result<_, _>>()?;
    let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("the provider has cipher suites for both versions")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Answers(answers)));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Whether the first bytes of a connection are a question of an authority. `None` if more bytes are needed: at most one
/// record. The question of an authority is in the first record.
pub(crate) fn is_asked(first: &[u8]) -> Option<bool> {
    let &[_, _, _, high, low] = first.first_chunk::<RECORD_HEADER_BYTES>()?;
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > RECORD_BYTES_MAX {
        return Some(false);
    }
    let mut record = first.get(..RECORD_HEADER_BYTES + length)?;
    let mut acceptor = Acceptor::default();
    if acceptor.read_tls(&mut record).is_err() {
        return Some(false);
    }
    let Ok(Some(accepted)) = acceptor.accept() else { return Some(false) };
    let mut names = accepted.client_hello().alpn().into_iter().flatten();
    Some(names.next() == Some(ALPN) && names.next().is_none())
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read as _, Write as _};

    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::version::{TLS12, TLS13};
    use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};
    use stream::Stream as _;

    use super::super::{Authorities, ClientCertificates, Current, Settings};
    use super::*;
    use crate::double::Pipe;
    use crate::{Layered, Stack};

    const NAME: &str = "broker.example";
    const CONNECT: &[u8] = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01c";

    fn identity() -> Identity {
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).expect("a certificate");
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
        Identity { chain: vec![made.cert.into()], key }
    }

    /// A listener that asks its clients for certificates, with the two certificates that it may show.
    struct Listener {
        current: Arc<Current>,
        own: CertificateDer<'static>,
        of_question: CertificateDer<'static>,
    }

    impl Listener {
        fn new(is_asked: bool) -> Self {
            let (own, asked) = (identity(), identity());
            let certificates = [&own, &asked].map(|identity| identity.chain[0].clone());
            let authorities = Authorities { certificates: vec![own.chain[0].clone()], revoked: Vec::new() };
            let settings = Settings {
                identities: vec![own],
                client_certificates: ClientCertificates::Required(authorities),
                ..Settings::default()
            };
            let current = Arc::new(Current::new(settings.build().expect("it fits together")));
            if is_asked {
                current.answer(Some(answers(vec![(NAME.to_owned(), asked)]).expect("it fits together")));
            }
            let [own, of_question] = certificates;
            Self { current, own, of_question }
        }
    }

    /// The outcome of a handshake: the certificate that the client has seen, the plaintext that the server has read, and why the
    /// server has ended the connection.
    #[derive(Debug, PartialEq, Eq)]
    struct Outcome {
        seen: Option<CertificateDer<'static>>,
        protocol: Option<Vec<u8>>,
        read: Vec<u8>,
        why: Option<String>,
    }

    /// Shakes hands as a client that asks for these protocols does, and sends CONNECT.
    fn shake_hands(
        listener: &Listener,
        (name, protocols): (&str, &[&[u8]]),
        version: &'static SupportedProtocolVersion,
        piece_bytes: usize,
    ) -> Outcome {
        let mut roots = RootCertStore::empty();
        for certificate in [&listener.own, &listener.of_question] {
            roots.add(certificate.clone()).expect("it can be trusted");
        }
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let name = name.to_owned().try_into().expect("a name");
        let mut client = ClientConnection::new(Arc::new(config), name).expect("a connection");
        client.writer().write_all(CONNECT).expect("it is kept");
        let pipe = Pipe::new(1 << 20);
        let stack = Stack { tls: Some(Arc::clone(&listener.current)), ..Stack::default() };
        let mut server = Layered::new(pipe.clone(), Arc::new(stack));
        let (mut read, mut why, mut buffer) = (Vec::new(), None, vec![0; 4_096]);
        for _ in 0..10 {
            let mut records = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut records).expect("a vector takes everything");
            }
            records.chunks(piece_bytes).for_each(|piece| pipe.put(piece));
            while why.is_none() {
                match server.read(&mut buffer) {
                    Ok(received) => read.extend_from_slice(&buffer[..received.bytes]),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => why = Some(error.to_string()),
                }
            }
            drop(server.flush());
            let written = pipe.take_written();
            let mut rest = &written[..];
            while !rest.is_empty() && client.read_tls(&mut rest).is_ok() {
                if client.process_new_packets().is_err() {
                    break;
                }
                drop(client.reader().read(&mut buffer));
            }
        }
        let seen = client.peer_certificates().map(|chain| chain[0].clone().into_owned());
        Outcome { seen, protocol: client.alpn_protocol().map(<[u8]>::to_vec), read, why }
    }

    #[test]
    fn an_authority_gets_its_answer_and_nothing_else() {
        let listener = Listener::new(true);
        for version in [&TLS12, &TLS13] {
            for piece_bytes in [1, 100, 1 << 20] {
                let outcome = shake_hands(&listener, (NAME, &[ALPN]), version, piece_bytes);
                let expected = Outcome {
                    seen: Some(listener.of_question.clone()),
                    protocol: Some(ALPN.to_vec()),
                    read: Vec::new(),
                    why: Some(crate::Rejected::Challenge.to_string()),
                };
                assert_eq!(outcome, expected, "{version:?} in pieces of {piece_bytes}");
            }
            let other = shake_hands(&listener, ("other.example", &[ALPN]), version, 1 << 20);
            assert!(other.seen.is_none() && other.read.is_empty() && other.why.is_some(), "{other:?}");
        }
    }

    /// A record of TLS 1.3 with the beginning of a handshake message, under the keys of a client whose handshake is complete.
    fn record_with_half_a_message(client: ClientConnection) -> Vec<u8> {
        use ::ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
        let secrets = client.dangerous_extract_secrets().expect("the handshake is complete");
        let (sequence, rustls::ConnectionTrafficSecrets::Aes128Gcm { key, iv }) = secrets.tx else {
            panic!("the only suite of the client");
        };
        let mut nonce = [0; 12];
        nonce.copy_from_slice(iv.as_ref());
        for (byte, of_sequence) in nonce[4..].iter_mut().zip(sequence.to_be_bytes()) {
            *byte ^= of_sequence;
        }
        // The header of a KeyUpdate (24) with a body of one byte, which does not come; and the type of the record: handshake (22).
        let mut inner = vec![24, 0, 0, 1, 22];
        let len = u8::try_from(inner.len() + AES_128_GCM.tag_len()).expect("a short record");
        let header = [23, 3, 3, 0, len];
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, key.as_ref()).expect("16 bytes"));
        let nonce = Nonce::assume_unique_for_key(nonce);
        key.seal_in_place_append_tag(nonce, Aad::from(header), &mut inner).expect("a short record");
        [&header[..], &inner].concat()
    }

    /// Only an attacker sends that: the session of rustls keeps the place of the message's beginning.
    #[test]
    fn half_a_message_behind_the_handshake_of_an_authority_ends_nothing_else() {
        let listener = Listener::new(true);
        let mut provider = ring::default_provider();
        provider.cipher_suites = vec![ring::cipher_suite::TLS13_AES_128_GCM_SHA256];
        let mut roots = RootCertStore::empty();
        roots.add(listener.of_question.clone()).expect("it can be trusted");
        let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&TLS13])
            .expect("a version")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.enable_secret_extraction = true;
        let name = NAME.to_owned().try_into().expect("a name");
        let mut client = ClientConnection::new(Arc::new(config), name).expect("a connection");
        let pipe = Pipe::new(1 << 20);
        let stack = Stack { tls: Some(Arc::clone(&listener.current)), ..Stack::default() };
        let mut server = Layered::new(pipe.clone(), Arc::new(stack));
        let mut buffer = vec![0; 4_096];
        let mut read = |server: &mut Layered<Pipe>| loop {
            match server.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => break outcome,
            }
        };
        let send = |client: &mut ClientConnection| {
            let mut records = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut records).expect("a vector takes everything");
            }
            records
        };
        pipe.put(&send(&mut client));
        drop(read(&mut server));
        drop(server.flush());
        let written = pipe.take_written();
        let mut rest = &written[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).expect("records");
            client.process_new_packets().expect("an answer");
        }
        assert!(!client.is_handshaking());
        let mut records = send(&mut client);
        records.extend(record_with_half_a_message(client));
        pipe.put(&records);
        let error = read(&mut server).expect_err("it is an authority");
        assert!(error.to_string().contains(&crate::Rejected::Challenge.to_string()), "{error}");
        drop(server.flush());
        drop(read(&mut server));
    }

    #[test]
    fn clients_are_no_authorities() {
        let listener = Listener::new(true);
        let rows: [&[&[u8]]; 4] = [&[], &[b"mqtt"], &[ALPN, b"mqtt"], &[b"mqtt", ALPN]];
        for protocols in rows {
            for version in [&TLS12, &TLS13] {
                let outcome = shake_hands(&listener, (NAME, protocols), version, 7);
                assert_eq!(outcome.seen, Some(listener.own.clone()), "{protocols:?}");
                assert!(outcome.protocol.is_none_or(|name| name == b"mqtt"), "{protocols:?}");
                // The listener asks for a certificate, and this client has none.
                assert!(outcome.why.is_some_and(|why| why.contains("sent no certificates")), "{protocols:?}");
            }
        }
    }

    #[test]
    fn nobody_is_answered_without_a_question() {
        for is_over in [false, true] {
            let listener = Listener::new(is_over);
            if is_over {
                listener.current.answer(None);
            }
            for version in [&TLS12, &TLS13] {
                let outcome = shake_hands(&listener, (NAME, &[ALPN]), version, 1 << 20);
                assert!(outcome.seen.is_none() && outcome.read.is_empty(), "{outcome:?}");
                assert!(outcome.why.is_some_and(|why| why.starts_with("TLS: ")));
            }
        }
    }

    #[test]
    fn a_certificate_may_come_later() {
        let own = identity();
        let awaits = Settings { awaits_identities: true, ..Settings::default() };
        let current = Arc::new(Current::new(awaits.build().expect("nothing has to fit together")));
        let (first, of_question) = (own.chain[0].clone(), identity().chain.remove(0));
        let listener = Listener { current, own: first, of_question };
        let outcome = shake_hands(&listener, (NAME, &[]), &TLS13, 1 << 20);
        assert!(outcome.seen.is_none() && outcome.why.is_some(), "{outcome:?}");
        let settings = Settings { identities: vec![own], ..Settings::default() };
        listener.current.replace(settings.build().expect("it fits together"));
        let outcome = shake_hands(&listener, (NAME, &[]), &TLS13, 1 << 20);
        assert_eq!((&outcome.seen, &outcome.read[..]), (&Some(listener.own.clone()), CONNECT), "{outcome:?}");
    }

    #[test]
    fn bytes_that_are_no_question_are_not_waited_for() {
        for (first, expected) in [
            (&b"\x16"[..], None),
            (b"\x16\x03\x01\x02", None),
            (b"\x16\x03\x01\x40\x00\x01", None),
            (b"\x16\x03\x01\x40\x01", Some(false)),
            (b"\x16\x03\x01\xff\xff", Some(false)),
            (b"\x16\x03\x01\x00\x01\x01", Some(false)),
            (b"\x16\x03\x01\x00\x00", Some(false)),
            (b"\x16\x03\x01\x00\x04\x01\x00\x00\x00", Some(false)),
            (b"\x16\x03\x01\x00\x04\x02\x00\x00\x00more", Some(false)),
        ] {
            assert_eq!(is_asked(first), expected, "{first:?}");
        }
    }
}
