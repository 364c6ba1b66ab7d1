//! TLS, implemented with rustls.

mod error;
mod pem;
mod verify;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::ServerCertVerifier;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{
    self, CipherSuite, ClientConfig, InconsistentKeys, RootCertStore, SupportedProtocolVersion,
};

use crate::dial::{Layer, TransportError};
use crate::endpoint::Duplex;

pub use error::{Origin, TlsError};
pub(crate) use error::{advice, fault_of};
use pem::Identity;
use verify::{AnyCertificate, AnyHostName};

/// A checked TLS configuration, made by [`TlsOptions`]. Clones share it.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
    server_name: Option<ServerName<'static>>,
}

/// Options of TLS: trusted authorities, the client's certificate, and protocol versions.
///
/// By default, the client trusts the authorities of the system, has no certificate, speaks TLS 1.3 or 1.2, and
/// sends no ALPN.
///
/// ```no_run
/// # use pondhawk_client::{Client, Endpoint, Options, TlsOptions, Version};
/// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
/// let tls = TlsOptions::new()
///     .root_file("/etc/mosquitto/ca.pem")
///     .client_certificate_files("sensor.pem", "sensor.key")
///     .build()?;
/// let endpoint = Endpoint::tcp("broker.example", 8883).tls(tls);
/// let client = Client::connect_to(endpoint, Options::new(Version::V5)).await?;
/// # let _ = client;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct TlsOptions {
    /// Trusted authorities. An empty list stands for those of the system.
    roots: Vec<Roots>,
    identity: Option<Identity>,
    alpn: Vec<Vec<u8>>,
    server_name: Option<String>,
    trust: Trust,
    version: Option<TlsVersion>,
    /// Allowed cipher suites. An empty list allows all.
    cipher_suites: Vec<CipherSuite>,
}

/// A source of trusted certificate authorities.
#[derive(Debug, Clone)]
enum Roots {
    System,
    Pem(Origin),
    Directory(PathBuf),
}

/// Checks of the server's certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Trust {
    /// The certificate is signed by a trusted authority, and names the host.
    #[default]
    Full,
    /// The certificate is signed by a trusted authority.
    AnyHostName,
    /// Any certificate is accepted.
    AnyCertificate,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    V1_2,
    /// TLS 1.3 (RFC 8446).
    V1_3,
}

impl TlsOptions {
    /// The default options, which trust only the authorities of the system.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the authorities of the system in addition to other trusted authorities. This is the default if no other
    /// authority is given.
    ///
    /// The environment variables `SSL_CERT_FILE` and `SSL_CERT_DIR` replace the system's locations.
    #[must_use]
    pub fn system_roots(mut self) -> Self {
        self.roots.push(Roots::System);
        self
    }

    /// Trusts the certificate authorities in this PEM file, which may contain several.
    #[must_use]
    pub fn root_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.roots.push(Roots::Pem(Origin::File(path.into())));
        self
    }

    /// Trusts these certificate authorities, in PEM.
    #[must_use]
    pub fn root_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.roots.push(Roots::Pem(Origin::Given(pem.into())));
        self
    }

    /// Trusts the certificate authorities in all PEM files of this directory, whatever their names.
    ///
    /// Subdirectories are not searched.
    #[must_use]
    pub fn root_directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.roots.push(Roots::Directory(path.into()));
        self
    }

    /// Sets the certificate to show to servers that ask for one.
    ///
    /// The first file contains the certificate and the intermediate ones up to its root. The second contains the
    /// private key, which must not be encrypted. Both files are PEM, and may be the same file.
    #[must_use]
    pub fn client_certificate_files(
        mut self,
        certificates: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        let (certificates, key) = (Origin::File(certificates.into()), Origin::File(key.into()));
        self.identity = Some(Identity { certificates, key });
        self
    }

    /// Sets the client's certificate like [`client_certificate_files`](Self::client_certificate_files), from memory.
    #[must_use]
    pub fn client_certificate_pem(
        mut self,
        certificates: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        let (certificates, key) = (Origin::Given(certificates.into()), Origin::Given(key.into()));
        self.identity = Some(Identity { certificates, key });
        self
    }

    /// Sets the application protocols for ALPN (RFC 7301), such as `mqtt`, in order of preference.
    #[must_use]
    pub fn alpn<P: Into<Vec<u8>>>(mut self, protocols: impl IntoIterator<Item = P>) -> Self {
        self.alpn = protocols.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the name or IP address that the server's certificate must have, in place of the host to connect to.
    ///
    /// This is useful for tunnels, and for addresses that no certificate names.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Allows only this version of TLS.
    #[must_use]
    pub fn version(mut self, version: TlsVersion) -> Self {
        self.version = Some(version);
        self
    }

    /// Allows only these cipher suites, as far as they are supported.
    ///
    /// By default all supported suites are allowed. Each of them is considered safe.
    #[must_use]
    pub fn cipher_suites(mut self, suites: impl IntoIterator<Item = CipherSuite>) -> Self {
        self.cipher_suites = suites.into_iter().collect();
        self
    }

    /// **Dangerous**: accepts a certificate of any host, if a trusted authority has signed it.
    ///
    /// An attacker on the way to the server who has such a certificate, for any host, can read and change everything.
    /// If the certificate has another name that you know, [`server_name`](Self::server_name) is the safe choice.
    #[must_use]
    pub fn dangerously_accept_any_host_name(mut self) -> Self {
        self.trust = Trust::AnyHostName;
        self
    }

    /// **Dangerous**: accepts any certificate. Anybody on the way to the server can read and change everything.
    #[must_use]
    pub fn dangerously_accept_any_certificate(mut self) -> Self {
        self.trust = Trust::AnyCertificate;
        self
    }

    /// Reads the files, and checks all options. The call blocks on the disk, but never on the network.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn build(&self) -> Result<Tls, TlsError> {
        // Explicit, because another part of the process may have installed a different default provider.
        let mut provider = ring::default_provider();
        if !self.cipher_suites.is_empty() {
            provider.cipher_suites.retain(|suite| self.cipher_suites.contains(&suite.suite()));
        }
        let provider = Arc::new(provider);
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(self.versions())
            .map_err(TlsError::Configuration)?
            .dangerous()
            .with_custom_certificate_verifier(self.verifier(Arc::clone(&provider))?);
        let mut config = match &self.identity {
            Some(identity) => {
                let (certificates, key) = identity.read()?;
                let identity = certified(certificates, key, &provider)
                    .map_err(|error| TlsError::Identity { error, key: identity.key.clone() })?;
                config.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(identity)))
            }
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols.clone_from(&self.alpn);
        let server_name = self.server_name.as_deref().map(server_name).transpose()?;
        Ok(Tls { config: Arc::new(config), server_name })
    }

    fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        static BOTH: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
        match self.version {
            None => &BOTH,
            Some(TlsVersion::V1_3) => &BOTH[..1],
            Some(TlsVersion::V1_2) => &BOTH[1..],
        }
    }

    fn verifier(&self, provider: Arc<CryptoProvider>) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
        if self.trust == Trust::AnyCertificate {
            return Ok(Arc::new(AnyCertificate(provider.signature_verification_algorithms)));
        }
        let roots = Arc::new(self.root_store()?);
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider).build();
        let verifier =
            verifier.map_err(|error| TlsError::Configuration(rustls::Error::General(error.to_string())))?;
        Ok(if self.trust == Trust::Full { verifier } else { Arc::new(AnyHostName(verifier)) })
    }

    fn root_store(&self) -> Result<RootCertStore, TlsError> {
        let mut store = RootCertStore::empty();
        if self.roots.is_empty() {
            pem::add_system(&mut store)?;
        }
        for roots in &self.roots {
            match roots {
                Roots::System => pem::add_system(&mut store)?,
                Roots::Pem(origin) => pem::add(origin, &mut store)?,
                Roots::Directory(path) => pem::add_directory(path, &mut store)?,
            }
        }
        Ok(store)
    }
}

impl Tls {
    /// Uses a configuration of rustls, for settings that [`TlsOptions`] does not have.
    #[must_use]
    pub fn with_config(config: Arc<ClientConfig>) -> Self {
        Self { config, server_name: None }
    }

    /// The configuration, and the name that the server's certificate must have.
    #[cfg(feature = "quic")]
    pub(crate) fn parts(&self, host: &str) -> (ClientConfig, String) {
        let name =
            self.server_name.as_ref().map_or_else(|| host.to_owned(), |name| name.to_str().into_owned());
        ((*self.config).clone(), name)
    }

    pub(crate) async fn wrap<S: Duplex>(&self, stream: S, host: &str) -> io::Result<TlsStream<S>> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => server_name(host).map_err(|error| {
                let fault = error.fault();
                TransportError::new(Layer::Tls, host, fault, error)
            })?,
        };
        let connected = TlsConnector::from(Arc::clone(&self.config)).connect(name, stream).await;
        connected.map_err(|error| TransportError::new(Layer::Tls, host, fault_of(&error), error).into())
    }
}

/// Combines the client's certificates with their key.
///
/// Only a key that certainly belongs to another certificate is refused. A certificate that rustls cannot read, such as
/// one of X.509 version 1, is sent as it is: the server decides.
fn certified(
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, rustls::Error> {
    let identity = CertifiedKey::new(certificates, provider.key_provider.load_private_key(key)?);
    match identity.keys_match() {
        Err(error @ rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => Err(error),
        _ => Ok(identity),
    }
}

fn server_name(name: &str) -> Result<ServerName<'static>, TlsError> {
    ServerName::try_from(name.to_owned()).map_err(|_| TlsError::ServerName(name.to_owned()))
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}
