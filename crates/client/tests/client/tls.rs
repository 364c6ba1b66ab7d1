//! TLS, with a server that the test plays, and certificates that the test makes.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use pondhawk_client::rustls::client::danger::HandshakeSignatureValid;
use pondhawk_client::rustls::pki_types::pem::PemObject;
use pondhawk_client::rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use pondhawk_client::rustls::server::WebPkiClientVerifier;
use pondhawk_client::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use pondhawk_client::rustls::{
    self, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
    crypto::ring,
};
use pondhawk_client::{
    Client, Ended, Endpoint, Fault, Options, State, Tls, TlsError, TlsOptions, TlsVersion, Version,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::endpoint::{listen, refused};
use crate::peer::{Peer, converse};

/// A certificate authority with its key.
struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM.
struct Identity {
    certificate: String,
    key: String,
}

impl Authority {
    /// Makes an authority. Each must have a different name.
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, key()).expect("a certificate"))
    }

    fn sign(&self, name: &str) -> Identity {
        let params = CertificateParams::new([name.to_owned()]).expect("a name");
        let key = key();
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        Identity { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    fn pem(&self) -> String {
        self.0.pem()
    }
}

fn key() -> KeyPair {
    KeyPair::generate().expect("a key")
}

impl Identity {
    /// A server with this certificate, which asks clients for a certificate of `clients`, if given.
    fn server(&self, clients: Option<&Authority>) -> TlsAcceptor {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().expect("versions");
        let builder = match clients {
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(certificate(&authority.pem())).expect("a certificate");
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().expect("a verifier"))
            }
            None => builder.with_no_client_auth(),
        };
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).expect("a key");
        let mut config = builder.with_single_cert(vec![certificate(&self.certificate)], key).expect("both");
        config.alpn_protocols = vec![b"mqtt".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }
}

fn certificate(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate")
}

async fn accept(listener: &TcpListener, server: &TlsAcceptor) -> Option<TlsStream<tokio::net::TcpStream>> {
    let (stream, _) = listener.accept().await.expect("a connection");
    server.accept(stream).await.ok()
}

/// Connects a client to a server. Returns whether the client showed a certificate, and the protocol from ALPN.
async fn agree(server: &TlsAcceptor, tls: Tls) -> (bool, Option<Vec<u8>>) {
    let (listener, port) = listen().await;
    let serve = async {
        let stream = accept(&listener, server).await.expect("a handshake");
        let (_, connection) = stream.get_ref();
        let seen = (connection.peer_certificates().is_some(), connection.alpn_protocol().map(Vec::from));
        Peer::on(stream, Version::V5).converse().await;
        seen
    };
    let (seen, ()) = tokio::join!(serve, converse(Endpoint::tcp("localhost", port).tls(tls)));
    seen
}

/// Connects a client that must fail. Returns the party at fault and the error text.
async fn disagree(server: &TlsAcceptor, tls: Tls) -> (Fault, String) {
    let (listener, port) = listen().await;
    let (_, error) =
        tokio::join!(accept(&listener, server), refused(Endpoint::tcp("localhost", port).tls(tls)));
    (error.fault(), error.to_string())
}

#[tokio::test]
async fn an_authority_is_trusted_from_a_file_a_directory_or_memory() {
    let authority = Authority::new("ours");
    let server = authority.sign("localhost").server(None);
    let directory = tempfile::tempdir().expect("space for it");
    let file = directory.path().join("ca.crt");
    fs::write(&file, Authority::new("another").pem() + &authority.pem()).expect("space for it");
    fs::write(directory.path().join("README"), "not PEM").expect("space for it");
    for options in [
        TlsOptions::new().root_file(&file),
        TlsOptions::new().root_directory(directory.path()),
        TlsOptions::new().root_pem(Authority::new("another").pem()).root_pem(authority.pem()),
        TlsOptions::new().root_pem(authority.pem()).version(TlsVersion::V1_2),
        TlsOptions::new().root_pem(authority.pem()).version(TlsVersion::V1_3),
    ] {
        assert_eq!(agree(&server, options.build().expect("all is there")).await, (false, None));
    }
}

#[tokio::test]
async fn a_client_shows_who_it_is_and_what_it_speaks() {
    let (authority, members) = (Authority::new("servers"), Authority::new("members"));
    let server = authority.sign("localhost").server(Some(&members));
    let member = members.sign("sensor-7");
    let options = TlsOptions::new().root_pem(authority.pem()).alpn(["mqtt"]);
    let known = options.clone().client_certificate_pem(member.certificate, member.key);
    assert!(!format!("{known:?}").contains("PRIVATE KEY"));
    let seen = agree(&server, known.build().expect("all is there")).await;
    assert_eq!(seen, (true, Some(b"mqtt".to_vec())));

    let stranger = Authority::new("elsewhere").sign("sensor-8");
    let stranger = options.client_certificate_pem(stranger.certificate, stranger.key);
    let (fault, error) = disagree(&server, stranger.build().expect("all is there")).await;
    assert_eq!(fault, Fault::Application);
    assert!(error.ends_with(": the server does not take our certificate"), "{error}");
}

/// Accepts any certificate of a client, also one that it cannot read.
#[derive(Debug)]
struct AnyClient;

impl ClientCertVerifier for AnyClient {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// `openssl x509 -req` without extensions makes such certificates. The server decides whether they are good enough.
#[tokio::test]
async fn a_certificate_of_version_1_is_sent_as_it_is() {
    let authority = Authority::new("ours");
    let Identity { certificate: pem, key } = authority.sign("localhost");
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("versions");
    let builder = builder.with_client_cert_verifier(Arc::new(AnyClient));
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
    let server =
        TlsAcceptor::from(Arc::new(builder.with_single_cert(vec![certificate(&pem)], key).expect("both")));
    let (old, key) = (include_str!("version_1.crt"), include_str!("version_1.key"));
    for version in [TlsVersion::V1_2, TlsVersion::V1_3] {
        let options = TlsOptions::new().root_pem(authority.pem()).client_certificate_pem(old, key);
        let tls = options.version(version).build().expect("a certificate and its key");
        let (listener, port) = listen().await;
        let serve = async {
            let stream = accept(&listener, &server).await.expect("a handshake");
            let seen = stream.get_ref().1.peer_certificates().map(<[_]>::to_vec);
            Peer::on(stream, Version::V5).converse().await;
            seen
        };
        let (seen, ()) = tokio::join!(serve, converse(Endpoint::tcp("localhost", port).tls(tls)));
        assert_eq!(seen, Some(vec![certificate(old)]));
    }
    let others = authority.sign("sensor").key;
    let mixed = TlsOptions::new().root_pem(authority.pem()).client_certificate_pem(old, others);
    assert!(mixed.build().is_ok(), "nobody can read the key in the certificate");
}

#[tokio::test]
async fn a_server_that_nobody_vouches_for_is_refused() {
    let authority = Authority::new("ours");
    let server = authority.sign("localhost").server(None);
    let others = TlsOptions::new().root_pem(Authority::new("another").pem());
    let (fault, error) = disagree(&server, others.build().expect("all is there")).await;
    assert!(error.starts_with("no TLS with localhost: invalid peer certificate: UnknownIssuer"), "{error}");
    assert!(error.ends_with(": name its authority"), "{error}");
    assert_eq!(fault, Fault::Server);
    let any_name = others.clone().dangerously_accept_any_host_name();
    let (_, error) = disagree(&server, any_name.build().expect("all is there")).await;
    assert!(error.contains("UnknownIssuer"), "{error}");
    let anybody = others.dangerously_accept_any_certificate();
    agree(&server, anybody.build().expect("all is there")).await;
}

#[tokio::test]
async fn a_certificate_is_for_one_host() {
    let authority = Authority::new("ours");
    let server = authority.sign("broker.example").server(None);
    let options = TlsOptions::new().root_pem(authority.pem());
    let (fault, error) = disagree(&server, options.build().expect("all is there")).await;
    assert!(error.contains("not valid for name \"localhost\""), "{error}");
    assert_eq!(fault, Fault::Server);
    agree(&server, options.clone().server_name("broker.example").build().expect("all is there")).await;
    agree(&server, options.dangerously_accept_any_host_name().build().expect("all is there")).await;
}

#[tokio::test]
async fn an_authority_is_no_server() {
    let authority = Authority::new("ours");
    let key = authority.0.key().serialize_pem();
    let server = Identity { certificate: authority.pem(), key }.server(None);
    let tls = TlsOptions::new().root_pem(authority.pem()).build().expect("all is there");
    let (fault, error) = disagree(&server, tls).await;
    assert_eq!(fault, Fault::Server);
    assert!(error.contains("it is that of an authority"), "{error}");
}

#[tokio::test]
async fn a_port_without_tls_is_told() {
    let (listener, port) = listen().await;
    let server = async {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        stream.write_all(b"\x20\x02\x00\x00 CONNACK").await.expect("it is there");
        stream
    };
    let tls = TlsOptions::new().root_pem(Authority::new("ours").pem()).build().expect("all is there");
    let (_, error) = tokio::join!(server, refused(Endpoint::tcp("localhost", port).tls(tls)));
    assert!(error.to_string().ends_with(": it may not speak TLS at this port"), "{error}");
}

#[tokio::test]
async fn a_server_that_leaves_without_a_word_of_tls_has_closed() {
    let authority = Authority::new("ours");
    let server = authority.sign("localhost").server(None);
    let (listener, port) = listen().await;
    let serve = async {
        let mut peer = Peer::on(accept(&listener, &server).await.expect("a handshake"), Version::V5);
        assert!(peer.next().await.starts_with("CONNECT"));
        peer.send(wire::ConnAck::accepted(false)).await;
    };
    let tls = TlsOptions::new().root_pem(authority.pem()).build().expect("all is there");
    let connect = Client::connect_to(Endpoint::tcp("localhost", port).tls(tls), Options::new(Version::V5));
    let (client, ()) = tokio::join!(connect, serve);
    let client = client.expect("accepted");
    let mut state = client.state();
    let ended = state.wait_for(|state| matches!(state, State::Ended(_))).await.expect("it ends");
    assert!(matches!(&*ended, State::Ended(Ended::Closed)), "{ended:?}");
}

#[test]
fn tls_errors_name_the_file_that_is_wrong() {
    let directory = tempfile::tempdir().expect("space for it");
    let authority = Authority::new("ours");
    let (ours, others) = (authority.sign("localhost"), authority.sign("localhost"));
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("space for it");
        path
    };
    let (certificate, key) = (file("c.pem", &ours.certificate), file("k.pem", &others.key));
    let text = file("text", "hey");
    let cut = file("cut", &ours.certificate[..100]);
    let encrypted =
        file("e.pem", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n");
    let missing = directory.path().join("missing");
    let wrong = |options: &TlsOptions, name: &Path| -> TlsError {
        let error = options.build().expect_err("something is wrong");
        assert!(error.to_string().contains(&*name.to_string_lossy()), "{error}");
        assert_eq!(error.fault(), Fault::Application);
        error
    };
    let root = |path: &Path| wrong(&TlsOptions::new().root_file(path), path);
    assert!(matches!(root(&missing), TlsError::Read { .. }));
    assert!(matches!(root(&text), TlsError::NoCertificate(_)));
    assert!(matches!(root(&cut), TlsError::Pem { .. }));
    let empty = tempfile::tempdir().expect("space for it");
    let nobody = TlsOptions::new().root_directory(empty.path());
    assert!(matches!(wrong(&nobody, empty.path()), TlsError::EmptyDirectory(_)));

    let trusting = TlsOptions::new().root_pem(authority.pem());
    let identity = |certificate: &Path, key: &Path, named: &Path| {
        wrong(&trusting.clone().client_certificate_files(certificate, key), named)
    };
    assert!(matches!(identity(&certificate, &text, &text), TlsError::NoKey(_)));
    assert!(matches!(identity(&certificate, &encrypted, &encrypted), TlsError::EncryptedKey(_)));
    assert!(matches!(identity(&certificate, &key, &key), TlsError::Identity { .. }));
    assert!(matches!(identity(&key, &key, &key), TlsError::NoCertificate(_)));
    let nameless = trusting.server_name("a b");
    assert!(matches!(nameless.build(), Err(TlsError::ServerName(_))));
}

#[cfg(feature = "websocket")]
#[test]
fn schemes_with_an_s_have_tls() {
    let trusting = |url: &str| url.parse::<Endpoint>();
    for (url, same) in [("mqtts://a", "mqtts://a:8883"), ("wss://a/b", "wss://a:443")] {
        match trusting(url) {
            Ok(endpoint) => assert_eq!(endpoint.to_string(), same),
            // Correct on a system without trusted certificates.
            Err(error) => {
                assert!(
                    matches!(error, pondhawk_client::UrlError::Tls(TlsError::NoSystemRoots(_))),
                    "{error}"
                );
            }
        }
    }
}
