//! TLS to the server for operators.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::Admin;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use super::Place;
use crate::{roots, stack};

/// The settings for connections with TLS, and the name that the certificate of the server must have.
pub(super) struct Secure {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// The reason to trust a server.
enum Trust {
    /// An authority in a file has signed its certificate, or one that the system trusts.
    Authorities(Option<PathBuf>),
    /// The configuration of the broker names its certificate, whatever name is in it.
    Known(Vec<PathBuf>),
}

impl Secure {
    /// TLS to a host that the command line names.
    ///
    /// # Errors
    /// A file cannot be read, or the host is no name.
    pub(super) fn of_command_line(host: &str, place: &Place) -> io::Result<Self> {
        Self::new(host, Trust::Authorities(place.cafile.clone()), place)
    }

    /// TLS to the server of a configuration on this machine. Its certificate is known, so no authority has to vouch for it.
    ///
    /// # Errors
    /// As for [`of_command_line`](Self::of_command_line).
    pub(super) fn of_configuration(host: &str, admin: &Admin, place: &Place) -> io::Result<Self> {
        let trust = match &place.cafile {
            Some(_) => Trust::Authorities(place.cafile.clone()),
            None => Trust::Known(admin.tls_certificate.clone()),
        };
        Self::new(host, trust, place)
    }

    fn new(host: &str, trust: Trust, place: &Place) -> io::Result<Self> {
        let provider = Arc::new(ring::default_provider());
        let verifier: Result<RootCertStore, Known> = match trust {
            Trust::Authorities(file) => Ok(authorities(file.as_deref())?),
            Trust::Known(files) => Err(Known::read(&files, &provider)?),
        };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has cipher suites for both versions");
        let builder = match verifier {
            Ok(roots) => builder.with_root_certificates(roots),
            Err(known) => builder.dangerous().with_custom_certificate_verifier(Arc::new(known)),
        };
        let config = match (&place.cert, &place.key) {
            (Some(cert), Some(key)) => {
                let chain = stack::certificates("--cert", cert)?;
                let key = stack::private_key("--key", key)?;
                builder.with_client_auth_cert(chain, key).map_err(io::Error::other)?
            }
            _ => builder.with_no_client_auth(),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        Ok(Self { config: Arc::new(config), name })
    }

    /// A new connection, whose handshake has not begun.
    pub(super) fn connect(&self) -> io::Result<ClientConnection> {
        ClientConnection::new(Arc::clone(&self.config), self.name.clone()).map_err(io::Error::other)
    }
}

fn authorities(file: Option<&Path>) -> io::Result<RootCertStore> {
    let found = file.map_or_else(|| Ok(roots::of_system()), |path| stack::certificates("--cafile", path))?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found);
    Ok(roots)
}

/// Trusts certificates that are known, and no other.
#[derive(Debug)]
struct Known {
    certificates: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl Known {
    fn read(files: &[PathBuf], provider: &Arc<CryptoProvider>) -> io::Result<Self> {
        let first = |path: &PathBuf| {
            let read = stack::certificates("tls_certificate", path);
            let advise = |error: io::Error| {
                io::Error::new(error.kind(), format!("{error} (--cafile FILE names an authority to trust)"))
            };
            read.map(|chain| chain.into_iter().next()).map_err(advise)
        };
        let read = files.iter().map(first).collect::<io::Result<Vec<_>>>()?;
        Ok(Self { certificates: read.into_iter().flatten().collect(), provider: Arc::clone(provider) })
    }
}

impl ServerCertVerifier for Known {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.certificates.iter().any(|known| known.as_ref() == end_entity.as_ref()) {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(CertificateError::UnknownIssuer.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
