//! Certificates and rules of a listener's TLS, as a configuration of rustls.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientHello, ParsedCertificate, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore, ServerConfig, SupportedProtocolVersion, version};

use super::{challenge, version1};

/// Names of the protocols inside of TLS (RFC 7301): MQTT, MQTT as AWS calls it, and HTTP for WebSocket.
const ALPN: [&[u8]; 3] = [b"mqtt", b"x-amzn-mqtt-ca", b"http/1.1"];

/// A server certificate with what proves it.
#[derive(Debug)]
pub struct Identity {
    /// The certificate, and those of the authorities up to the root, in this order.
    pub chain: Vec<CertificateDer<'static>>,
    /// The private key of the first certificate.
    pub key: PrivateKeyDer<'static>,
}

/// Which certificates clients show.
#[derive(Debug, Default)]
pub enum ClientCertificates {
    /// Clients are not asked for one.
    #[default]
    Off,
    /// Clients may show one that these authorities have signed. One that they have not signed ends the connection.
    Optional(Authorities),
    /// Clients show one that these authorities have signed.
    Required(Authorities),
}

/// Authorities that sign the certificates of clients.
#[derive(Debug, Default)]
pub struct Authorities {
    /// The certificates of these authorities.
    pub certificates: Vec<CertificateDer<'static>>,
    /// Lists of certificates that they have revoked. With a list, the certificate of a client needs a list of its issuer that
    /// has not expired. The other certificates of its chain must not be in any list.
    pub revoked: Vec<CertificateRevocationListDer<'static>>,
}

/// The settings of a listener.
#[derive(Debug, Default)]
pub struct Settings {
    /// Server certificates; at least one, unless they are awaited. A client gets the first that is valid for the name that it
    /// asks for (SNI), or the first of all.
    pub identities: Vec<Identity>,
    /// Without a server certificate, each handshake is refused until [`Current::replace`].
    pub awaits_identities: bool,
    /// Which certificates clients show.
    pub client_certificates: ClientCertificates,
    /// TLS 1.2 is refused.
    pub tls13_only: bool,
}

/// The configuration of a listener's TLS. It can be replaced at any time: a handshake has the configuration that was current
/// when its first bytes came, and connections that are open keep theirs.
#[derive(Debug)]
pub struct Current(RwLock<Configs>);

#[derive(Debug)]
struct Configs {
    of_clients: Arc<ServerConfig>,
    /// The answers to an authority, while it asks.
    of_authority: Option<Arc<ServerConfig>>,
}

impl Current {
    /// A configuration for the handshakes from now on.
    pub fn new(config: Arc<ServerConfig>) -> Self {
        Self(RwLock::new(Configs { of_clients: config, of_authority: None }))
    }

    /// The configuration for a handshake that begins.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner).of_clients)
    }

    /// The configuration for a handshake that begins with these bytes. `None` if more bytes are needed, at most 16 KiB, which
    /// is so only while an authority may ask.
    pub(crate) fn config_for(&self, first: &[u8]) -> Option<Arc<ServerConfig>> {
        let configs = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let Some(of_authority) = configs.of_authority.clone() else {
            return Some(Arc::clone(&configs.of_clients));
        };
        let of_clients = Arc::clone(&configs.of_clients);
        drop(configs);
        Some(if challenge::is_asked(first)? { of_authority } else { of_clients })
    }

    /// Replaces the configuration. Sessions of the earlier one are not resumed: their clients make a whole handshake.
    pub fn replace(&self, config: Arc<ServerConfig>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).of_clients = config;
    }

    /// Begins to answer the questions of a certificate authority, from [`answers`](challenge::answers), or ends it.
    pub fn answer(&self, answers: Option<Arc<ServerConfig>>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).of_authority = answers;
    }
}

/// Why settings cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum SettingsError {
    /// There is no certificate.
    NoCertificate,
    /// The private key of the identity with this number, counted from 0, cannot be used.
    Key(usize, rustls::Error),
    /// The private key of the identity with this number does not belong to its certificate.
    Mismatch(usize),
    /// The certificate of an authority cannot be used.
    Authority(rustls::Error),
    /// The rules for client certificates contradict each other, or a list of revoked certificates is malformed.
    Verifier(VerifierBuilderError),
    /// The system has no random numbers.
    Random(rustls::Error),
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCertificate => f.write_str("there is no certificate"),
            Self::Key(_, error) => write!(f, "the private key cannot be used: {error}"),
            Self::Mismatch(_) => f.write_str("the private key does not belong to the certificate"),
            Self::Authority(error) => write!(f, "the certificate of an authority cannot be used: {error}"),
            Self::Verifier(error) => write!(f, "the rules for client certificates cannot be used: {error}"),
            Self::Random(error) => write!(f, "there are no random numbers: {error}"),
        }
    }
}

impl std::error::Error for SettingsError {}

impl Settings {
    /// The configuration for connections.
    ///
    /// # Errors
    /// The certificates and keys do not fit together.
    pub fn build(self) -> Result<Arc<ServerConfig>, SettingsError> {
        let provider = Arc::new(ring::default_provider());
        if self.identities.is_empty() && !self.awaits_identities {
            return Err(SettingsError::NoCertificate);
        }
        let identities = Identities::new(self.identities, &provider)?;
        let versions: &[&SupportedProtocolVersion] =
            if self.tls13_only { &[&version::TLS13] } else { &[&version::TLS13, &version::TLS12] };
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .expect("the provider has cipher suites for both versions");
        let builder = match self.client_certificates {
            ClientCertificates::Off => builder.with_no_client_auth(),
            ClientCertificates::Optional(authorities) => {
                builder.with_client_cert_verifier(authorities.verifier(&provider, true)?)
            }
            ClientCertificates::Required(authorities) => {
                builder.with_client_cert_verifier(authorities.verifier(&provider, false)?)
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(identities));
        config.alpn_protocols = ALPN.iter().map(|name| name.to_vec()).collect();
        // A client that comes back proves what it was, without a signature. The keys of tickets change every few hours.
        config.ticketer = ring::Ticketer::new().map_err(SettingsError::Random)?;
        config.key_log = Arc::new(super::exporter::Exporter);
        Ok(Arc::new(config))
    }
}

impl Authorities {
    fn verifier(
        self,
        provider: &Arc<CryptoProvider>,
        is_optional: bool,
    ) -> Result<Arc<dyn ClientCertVerifier>, SettingsError> {
        let mut roots = RootCertStore::empty();
        for certificate in &self.certificates {
            roots.add(certificate.clone()).map_err(SettingsError::Authority)?;
        }
        let roots = Arc::new(roots);
        let builder = || {
            let builder =
                WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(provider));
            let builder = builder.with_crls(self.revoked.iter().cloned());
            if is_optional { builder.allow_unauthenticated() } else { builder }
        };
        let of_chain = builder().allow_unknown_revocation_status();
        let webpki = of_chain.build().map_err(SettingsError::Verifier)?;
        let algorithms = provider.signature_verification_algorithms;
        let verifier = version1::Verifier::new(webpki, &self.certificates, &self.revoked, algorithms);
        if self.revoked.is_empty() {
            return Ok(Arc::new(verifier));
        }
        let of_client = builder().only_check_end_entity_revocation().enforce_revocation_expiration();
        Ok(Arc::new(verifier.with_strict(of_client.build().map_err(SettingsError::Verifier)?)))
    }
}

/// A certificate with its key, ready to sign.
pub(super) fn certified(
    number: usize,
    Identity { chain, key }: Identity,
    provider: &CryptoProvider,
) -> Result<Arc<CertifiedKey>, SettingsError> {
    let key =
        provider.key_provider.load_private_key(key).map_err(|error| SettingsError::Key(number, error))?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            Err(SettingsError::Mismatch(number))
        }
        // Certificates of version 1 are not read here; it is for the client to accept them.
        _ => Ok(Arc::new(certified)),
    }
}

/// Server certificates, chosen by the name that a client asks for.
#[derive(Debug)]
struct Identities(Vec<Arc<CertifiedKey>>);

impl Identities {
    fn new(identities: Vec<Identity>, provider: &CryptoProvider) -> Result<Self, SettingsError> {
        let certified = |(number, identity)| certified(number, identity, provider);
        identities.into_iter().enumerate().map(certified).collect::<Result<_, _>>().map(Self)
    }

    fn for_name(&self, name: &str) -> Option<&Arc<CertifiedKey>> {
        let name = ServerName::try_from(name).ok()?;
        let is_valid = |certified: &&Arc<CertifiedKey>| {
            let certificate = certified.cert.first();
            let parsed = certificate.and_then(|certificate| ParsedCertificate::try_from(certificate).ok());
            parsed.is_some_and(|parsed| verify_server_name(&parsed, &name).is_ok())
        };
        self.0.iter().find(is_valid)
    }
}

impl ResolvesServerCert for Identities {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // Without a choice there is nothing to compare.
        let by_name =
            if self.0.len() > 1 { hello.server_name().and_then(|name| self.for_name(name)) } else { None };
        by_name.or(self.0.first()).cloned()
    }
}
