//! Configurations of TLS for clients and for the relay.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme,
    SupportedProtocolVersion,
};

use super::{Certificates, ClientStack, Location, Over, QuicStack, server_name};
use crate::error::{Error, Result};

/// Flags for TLS, with the names that they have in `pub` and `sub`.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TrustArgs {
    /// Trust the certificate authorities in this PEM file, instead of those of this machine
    #[arg(long, value_name = "FILE")]
    cafile: Option<PathBuf>,
    /// Certificate of all clients, a PEM file
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Private key of the certificate, a PEM file
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Do not check that certificates are for the host names of their servers
    #[arg(long)]
    insecure: bool,
    /// Speak only this version of TLS, instead of the best that the server has
    #[arg(long, value_name = "VERSION", value_enum)]
    tls_version: Option<TlsVersion>,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TlsVersion {
    /// RFC 5246
    #[value(name = "1.2")]
    V1_2,
    /// RFC 8446
    #[value(name = "1.3")]
    V1_3,
}

/// What connections need for TLS: whom clients trust, and the certificate of servers that are started.
#[derive(Debug, Default)]
pub(crate) struct Trust {
    config: Option<Arc<ClientConfig>>,
    made: Option<Certificates>,
}

impl TrustArgs {
    /// Whether any flag was given.
    pub(crate) fn is_chosen(&self) -> bool {
        let Self { cafile, cert, key, insecure, tls_version } = self;
        cafile.is_some() || cert.is_some() || key.is_some() || *insecure || tls_version.is_some()
    }

    /// The version of TLS that was asked for, behind the name of the layers.
    pub(crate) fn title(&self) -> &'static str {
        match self.tls_version {
            None => "",
            Some(TlsVersion::V1_2) => " (TLS 1.2)",
            Some(TlsVersion::V1_3) => " (TLS 1.3)",
        }
    }

    /// The configuration of clients, which also trust the authority in this file, if there is one.
    ///
    /// Each handshake is a full one. A test that measures resumption turns that on.
    fn config(&self, made: Option<&Path>) -> Result<ClientConfig> {
        static BOTH: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
        let versions = match self.tls_version {
            None => &BOTH[..],
            Some(TlsVersion::V1_3) => &BOTH[..1],
            Some(TlsVersion::V1_2) => &BOTH[1..],
        };
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .map_err(|error| unusable(&error))?
            .dangerous()
            .with_custom_certificate_verifier(self.verifier(made, provider)?);
        let mut config = match (&self.cert, &self.key) {
            (Some(certificate), Some(key)) => config
                .with_client_auth_cert(chain_in(certificate)?, key_in(key)?)
                .map_err(|error| unusable(&error))?,
            _ => config.with_no_client_auth(),
        };
        config.resumption = Resumption::disabled();
        Ok(config)
    }

    fn verifier(
        &self,
        made: Option<&Path>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ServerCertVerifier>> {
        let mut roots = RootCertStore::empty();
        for file in self.cafile.as_deref().into_iter().chain(made) {
            for certificate in chain_in(file)? {
                roots.add(certificate).map_err(|error| unusable(&error))?;
            }
        }
        if self.cafile.is_none() {
            // Of hundreds, a few may be unreadable.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        let verifier = verifier.map_err(|error| {
            Error::Arguments(format!("nobody is trusted ({error}): name an authority with --cafile"))
        })?;
        Ok(if self.insecure { Arc::new(AnyHostName(verifier)) } else { verifier })
    }
}

impl Trust {
    /// Reads certificates if anybody speaks TLS, and makes some if a server that is started needs them.
    ///
    /// # Errors
    /// If a file cannot be read or written, or what is in it cannot be used.
    pub(crate) fn new(args: &TrustArgs, speaks_tls: bool, makes_certificates: bool) -> Result<Self> {
        let made = makes_certificates.then(Certificates::make).transpose()?;
        let authority = made.as_ref().map(Certificates::authority);
        let config = speaks_tls.then(|| args.config(authority.as_deref())).transpose()?;
        Ok(Self { config: config.map(Arc::new), made })
    }

    /// The certificates that were made.
    pub(crate) fn made(&self) -> Option<&Certificates> {
        self.made.as_ref()
    }

    /// The layers of connections to a server; `None` over TCP alone.
    ///
    /// # Errors
    /// If TLS cannot ask for this host.
    pub(crate) fn stack(
        &self,
        over: Over,
        host: &str,
        location: Location,
    ) -> Result<Option<Arc<ClientStack>>> {
        if over == Over::Tcp {
            return Ok(None);
        }
        if let (Over::Quic, Some(config)) = (over, &self.config) {
            let quic = QuicStack::new(config, host.to_owned());
            let quic = quic.ok_or_else(|| Error::Arguments("QUIC needs TLS 1.3".to_owned()))?;
            return Ok(Some(Arc::new(ClientStack { tls: None, websocket: None, quic: Some(quic) })));
        }
        let tls = match &self.config {
            Some(config) if over.has_tls() => {
                Some((Arc::clone(config), server_name(host).map_err(Error::io("use TLS"))?))
            }
            _ => None,
        };
        let websocket = over.has_websocket().then_some(location);
        Ok(Some(Arc::new(ClientStack { tls, websocket, quic: None })))
    }
}

/// The configuration of a server with this certificate. Sessions are resumed with tickets.
///
/// # Errors
/// If a file cannot be read, or the key does not belong to the certificate.
pub(crate) fn server_config(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&error))?
        .with_no_client_auth()
        .with_single_cert(chain_in(certificate)?, key_in(key)?)
        .map_err(|error| unusable(&error))?;
    config.ticketer = ring::Ticketer::new().map_err(|error| unusable(&error))?;
    Ok(Arc::new(config))
}

fn chain_in(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let chain: Vec<_> = read.map_err(|error| unreadable(path, &error))?;
    if chain.is_empty() { Err(unreadable(path, &"there is no certificate in it")) } else { Ok(chain) }
}

fn key_in(path: &Path) -> Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &impl ToString) -> Error {
    Error::io(format!("read {}", wire::Shown(path.display())))(io::Error::other(error.to_string()))
}

fn unusable(error: &rustls::Error) -> Error {
    Error::Arguments(format!("TLS cannot be used: {error}"))
}

/// Accepts a certificate for any host, if a trusted authority has signed it.
#[derive(Debug)]
struct AnyHostName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyHostName {
    /// Relies on the order of checks: the name is checked last. A wrong name therefore means that all else is valid.
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        use CertificateError::{NotValidForName, NotValidForNameContext};
        match self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
                Ok(ServerCertVerified::assertion())
            }
            outcome => outcome,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
