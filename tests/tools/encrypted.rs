//! The TLS server of the recorder, which also describes the client's TLS.

use std::path::Path;
use std::sync::Arc;

use client::rustls::crypto::ring;
use client::rustls::pki_types::pem::PemObject;
use client::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use client::rustls::server::{ServerConnection, WebPkiClientVerifier};
use client::rustls::version::TLS12;
use client::rustls::{ALL_VERSIONS, RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio::net::TcpStream;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

/// The server's certificates, which differ between doors, and the client's certificate.
#[derive(Clone)]
pub(crate) struct Certificates {
    own: Arc<ServerConfig>,
    foreign: Arc<ServerConfig>,
    client: CertificateDer<'static>,
}

impl Certificates {
    /// Reads `ca.pem`, `client.pem`, and `server` and `foreign` with their keys.
    pub(crate) fn read(folder: &Path) -> Self {
        Self {
            own: configuration(folder, "server", ALL_VERSIONS),
            foreign: configuration(folder, "foreign", &[&TLS12]),
            client: certificate(folder, "client"),
        }
    }
}

fn certificate(folder: &Path, name: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(folder.join(format!("{name}.pem"))).expect("a certificate")
}

fn configuration(
    folder: &Path,
    name: &str,
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ServerConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate(folder, "ca")).expect("an authority");
    let provider = Arc::new(ring::default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let clients = clients.allow_unauthenticated().build().expect("there is an authority");
    let key = PrivateKeyDer::from_pem_file(folder.join(format!("{name}.key"))).expect("a key");
    let configuration = ServerConfig::builder_with_provider(provider);
    let configuration = configuration.with_protocol_versions(versions).expect("there are some");
    let configuration = configuration.with_client_cert_verifier(clients);
    let configuration = configuration.with_single_cert(vec![certificate(folder, name)], key);
    Arc::new(configuration.expect("the key belongs to the certificate"))
}

/// Accepts a connection, and describes the client's requests and certificate.
///
/// An error describes why there is no connection, in words that are the same for any TLS library.
pub(crate) async fn accept(
    stream: TcpStream,
    certificates: &Certificates,
    is_foreign: bool,
) -> Result<(TlsStream<TcpStream>, String), String> {
    let acceptor = LazyConfigAcceptor::new(client::rustls::server::Acceptor::default(), stream);
    let start = acceptor.await.map_err(|_| "not TLS".to_owned())?;
    let hello = start.client_hello();
    let protocols: Vec<_> = hello.alpn().into_iter().flatten().map(String::from_utf8_lossy).collect();
    let wishes = format!("name {:?}, protocols {protocols:?}", hello.server_name());
    let configuration = if is_foreign { &certificates.foreign } else { &certificates.own };
    let stream = start.into_stream(configuration.clone()).await.map_err(|_| "refused TLS".to_owned())?;
    let shown = shown(stream.get_ref().1, certificates);
    Ok((stream, format!("{wishes}, {shown}")))
}

fn shown(connection: &ServerConnection, certificates: &Certificates) -> String {
    let who = match connection.peer_certificates() {
        None => "nobody",
        Some([first, ..]) if *first == certificates.client => "the client",
        Some(_) => "somebody else",
    };
    let version = connection.protocol_version();
    let suite = connection.negotiated_cipher_suite().map(|suite| suite.suite());
    format!("{version:?}, {suite:?}, as {who}")
}
