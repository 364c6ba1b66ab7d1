//! The layers of a listener: reads certificates and keys from their files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::{ClientCertificate, Listener, Protocol, TlsVersion};
use layers::{
    Authorities, ClientCertificates, CurrentTls, Identity, SettingsError, Stack, TlsSettings, WebSocketRules,
};
use mosquitto::read_regular;
use rustls::ServerConfig;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use x509_parser::parse_x509_certificate;

use crate::tls_files::TlsFiles;

/// The layers that the configuration of a listener asks for.
///
/// # Errors
/// A file cannot be read, or the files do not fit together. The text names the file and the key.
pub(crate) fn of(listener: &Listener) -> io::Result<Stack> {
    Ok(with_tls(listener, tls(&TlsFiles::of(listener))?.map(|config| Arc::new(CurrentTls::new(config)))))
}

/// The layers of a listener whose configuration has changed. Certificates of a listener that had TLS before have the same
/// place, and are not read here.
///
/// # Errors
/// As [`of`].
pub(crate) fn change(stack: &Arc<Stack>, old: &Listener, new: &Listener) -> io::Result<Arc<Stack>> {
    let has_tls = |listener: &Listener| !listener.tls_certificate.is_empty();
    let without_tls = |listener: &Listener| {
        let Listener { protocol, tls_optional, websocket_path, websocket_origins, proxy_from, .. } = listener;
        let (path, origins) = (websocket_path.clone(), websocket_origins.clone());
        (*protocol, *tls_optional, path, origins, !proxy_from.is_empty())
    };
    if has_tls(old) == has_tls(new) && without_tls(old) == without_tls(new) {
        return Ok(Arc::clone(stack));
    }
    match &stack.tls {
        Some(tls) if has_tls(new) => Ok(Arc::new(with_tls(new, Some(Arc::clone(tls))))),
        _ => of(new).map(Arc::new),
    }
}

fn with_tls(listener: &Listener, tls: Option<Arc<CurrentTls>>) -> Stack {
    let protocol = match listener.protocol {
        Protocol::Auto => layers::Protocol::Auto,
        Protocol::Mqtt => layers::Protocol::Mqtt,
        Protocol::WebSocket => layers::Protocol::WebSocket,
    };
    let origins = Some(listener.websocket_origins.clone()).filter(|origins| !origins.is_empty());
    Stack {
        protocol,
        proxy: !listener.proxy_from.is_empty(),
        tls,
        tls_optional: listener.tls_optional,
        websocket: Arc::new(WebSocketRules { path: listener.websocket_path.clone(), origins }),
    }
}

/// Certificates and rules of TLS, if there are certificates.
///
/// # Errors
/// As [`of`].
pub(crate) fn tls(files: &TlsFiles) -> io::Result<Option<Arc<ServerConfig>>> {
    let built = build(files)?;
    if let Some((_, false)) = built {
        tracing::warn!(listener = %files.place, "TLS is refused here until there is a certificate of ACME");
    }
    Ok(built.map(|(config, _)| config))
}

/// The rules of TLS of a listener that waits for a certificate of ACME, with the earlier certificate.
///
/// # Errors
/// As [`of`].
pub(crate) fn tls_with_earlier(
    files: &TlsFiles,
    earlier: &ServerConfig,
) -> io::Result<Option<Arc<ServerConfig>>> {
    let with_earlier = |(config, _): (Arc<ServerConfig>, bool)| {
        let mut config = ServerConfig::clone(&config);
        config.cert_resolver = Arc::clone(&earlier.cert_resolver);
        Arc::new(config)
    };
    Ok(build(files)?.map(with_earlier))
}

/// Certificates and rules of TLS, and whether there is a certificate.
fn build(tls: &TlsFiles) -> io::Result<Option<(Arc<ServerConfig>, bool)>> {
    if tls.certificates.is_empty() {
        return Ok(None);
    }
    let files = || tls.certificates.iter().zip(&tls.keys);
    let identity = |(certificate, key): (&PathBuf, &PathBuf)| {
        let chain = objects::<CertificateDer<'static>>("tls_certificate", certificate, "certificate")?;
        let identity = Identity { chain, key: private_key("tls_key", key)? };
        if is_foreign(&identity) {
            return Err(io::Error::other(format!(
                "{} cannot speak TLS: {} and {}: {}",
                tls.owner(),
                wire::Shown(certificate.display()),
                wire::Shown(key.display()),
                SettingsError::Mismatch(0)
            )));
        }
        Ok(identity)
    };
    let identities = files().map(identity).filter(|identity| !tls.is_of_acme || !is_to_come(identity));
    let identities = identities.collect::<io::Result<Vec<_>>>()?;
    let has_identity = !identities.is_empty();
    let settings = TlsSettings {
        identities,
        awaits_identities: tls.is_of_acme,
        client_certificates: client_certificates(tls)?,
        tls13_only: tls.minimum == TlsVersion::V1_3,
    };
    let explain = |error: SettingsError| {
        let place = match &error {
            SettingsError::Key(number, _) | SettingsError::Mismatch(number) => {
                files().nth(*number).map(|(certificate, key)| {
                    format!("{} and {}: ", wire::Shown(certificate.display()), wire::Shown(key.display()))
                })
            }
            _ => None,
        };
        io::Error::other(format!("{} cannot speak TLS: {}{error}", tls.owner(), place.unwrap_or_default()))
    };
    settings.build().map(|config| Some((config, has_identity))).map_err(explain)
}

/// Whether the authority of `[acme]` still has to give the certificate of a listener.
pub(crate) fn awaits_certificate(tls: &TlsFiles) -> bool {
    let is_to_come = |file: &PathBuf| is_to_come(&certificates("tls_certificate", file));
    tls.is_of_acme && tls.certificates.iter().any(is_to_come)
}

/// Whether a file is not there yet, or has nothing that could be used. `acme` replaces it.
pub(crate) fn is_to_come<T>(read: &io::Result<T>) -> bool {
    let kind = read.as_ref().err().map(io::Error::kind);
    matches!(kind, Some(io::ErrorKind::NotFound | io::ErrorKind::InvalidData))
}

/// Whether the private key certainly belongs to another certificate. rustls does not compare keys with certificates of version 1,
/// which `openssl x509 -req` makes without extensions.
pub(crate) fn is_foreign(identity: &Identity) -> bool {
    let key = any_supported_type(&identity.key).ok().and_then(|key| Some(key.public_key()?.to_vec()));
    let certificate = identity.chain.first().and_then(|certificate| parse_x509_certificate(certificate).ok());
    let (Some(key), Some((_, certificate))) = (key, certificate) else { return false };
    certificate.public_key().raw != key
}

fn client_certificates(tls: &TlsFiles) -> io::Result<ClientCertificates> {
    let mut authorities = Authorities::default();
    for path in &tls.client_ca {
        authorities.certificates.extend(certificates("tls_client_ca", path)?);
    }
    for path in &tls.client_crl {
        let lists =
            objects::<CertificateRevocationListDer<'static>>("tls_client_crl", path, "revocation list")?;
        authorities.revoked.extend(lists);
    }
    Ok(match tls.client_certificate {
        ClientCertificate::Off => ClientCertificates::Off,
        ClientCertificate::Optional => ClientCertificates::Optional(authorities),
        ClientCertificate::Required => ClientCertificates::Required(authorities),
    })
}

/// Reads all certificates of the PEM file that a key names.
///
/// # Errors
/// The file cannot be read, or has no certificate.
pub(crate) fn certificates(key: &str, path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    objects(key, path, "certificate")
}

/// Reads all objects of a kind from a PEM file. There is at least one.
fn objects<T: PemObject>(key: &str, path: &Path, what: &str) -> io::Result<Vec<T>> {
    let explain = |error: pem::Error| explain(key, path, &error, what);
    let bytes = contents(path).map_err(|error| explain(pem::Error::Io(error)))?;
    let objects = T::pem_slice_iter(&bytes).collect::<Result<Vec<T>, _>>().map_err(explain)?;
    if objects.is_empty() { Err(explain(pem::Error::NoItemsFound)) } else { Ok(objects) }
}

/// Reads the private key of the PEM file that a key names.
///
/// # Errors
/// The file cannot be read, or has no private key.
pub(crate) fn private_key(key: &str, path: &Path) -> io::Result<PrivateKeyDer<'static>> {
    let read = contents(path).map_err(pem::Error::Io).and_then(|bytes| PrivateKeyDer::from_pem_slice(&bytes));
    read.map_err(|error| explain(key, path, &error, "private key"))
}

/// Maximum length of a file of certificates, keys or revocation lists, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The bytes of such a file.
///
/// # Errors
/// As for [`read_regular`].
pub(crate) fn contents(path: &Path) -> io::Result<Vec<u8>> {
    read_regular(path, FILE_BYTES_MAX)
}

fn explain(key: &str, path: &Path, error: &pem::Error, what: &str) -> io::Error {
    let (kind, why) = match error {
        pem::Error::Io(error) => (error.kind(), error.to_string()),
        pem::Error::NoItemsFound => (io::ErrorKind::InvalidData, format!("the file has no {what} in PEM")),
        error => (io::ErrorKind::InvalidData, error.to_string()),
    };
    io::Error::new(kind, format!("`{key}`: {}: {why}", wire::Shown(path.display())))
}
