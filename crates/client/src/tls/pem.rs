//! Reads certificates and keys from PEM.

use std::borrow::Cow;
use std::fs;
use std::path::Path;

use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::error::{Origin, TlsError};

/// The client's certificate and its private key.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    pub(super) certificates: Origin,
    pub(super) key: Origin,
}

impl Identity {
    pub(super) fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        Ok((certificates(&self.certificates)?, key(&self.key)?))
    }
}

/// Adds the certificates of a source to the trusted ones.
pub(super) fn add(origin: &Origin, store: &mut RootCertStore) -> Result<(), TlsError> {
    for certificate in certificates(origin)? {
        let added = store.add(certificate);
        added.map_err(|error| TlsError::Root { error, origin: origin.clone() })?;
    }
    Ok(())
}

/// Adds the certificates in the files of a directory to the trusted ones. Files that are not PEM are skipped.
pub(super) fn add_directory(path: &Path, store: &mut RootCertStore) -> Result<(), TlsError> {
    let unreadable = |error| TlsError::Read { path: path.to_owned(), error };
    let mut count = 0;
    for entry in fs::read_dir(path).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        if !file.is_file() {
            continue;
        }
        let origin = Origin::File(file);
        match certificates(&origin) {
            Ok(certificates) => count += store.add_parsable_certificates(certificates).0,
            Err(TlsError::NoCertificate { .. } | TlsError::Pem { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    if count == 0 { Err(TlsError::EmptyDirectory(path.to_owned())) } else { Ok(()) }
}

/// Adds the system's trusted certificates. A few unreadable ones are skipped, because there are hundreds.
pub(super) fn add_system(store: &mut RootCertStore) -> Result<(), TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let (count, _) = store.add_parsable_certificates(found.certs);
    if count == 0 {
        return Err(TlsError::NoSystemRoots(found.errors.iter().map(ToString::to_string).collect()));
    }
    Ok(())
}

/// Reads the certificates of a source, at least one.
fn certificates(origin: &Origin) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = read(origin)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.map_err(|error| TlsError::Pem { error: error.to_string(), origin: origin.clone() })?;
    if found.is_empty() { Err(TlsError::NoCertificate(origin.clone())) } else { Ok(found) }
}

fn key(origin: &Origin) -> Result<PrivateKeyDer<'static>, TlsError> {
    let pem = read(origin)?;
    PrivateKeyDer::from_pem_slice(&pem).map_err(|error| match error {
        _ if is_encrypted(&pem) => TlsError::EncryptedKey(origin.clone()),
        PemError::NoItemsFound => TlsError::NoKey(origin.clone()),
        error => TlsError::Pem { error: error.to_string(), origin: origin.clone() },
    })
}

/// Whether the private key is encrypted: PKCS #8 states this in its label, and the older format in a header.
fn is_encrypted(pem: &[u8]) -> bool {
    let has = |text: &[u8]| pem.windows(text.len()).any(|window| window == text);
    has(b"-----BEGIN ENCRYPTED PRIVATE KEY-----") || has(b"Proc-Type: 4,ENCRYPTED")
}

fn read(origin: &Origin) -> Result<Cow<'_, [u8]>, TlsError> {
    match origin {
        Origin::Given(pem) => Ok(pem.into()),
        Origin::File(path) => {
            let read = fs::read(path).map_err(|error| TlsError::Read { path: path.clone(), error });
            read.map(Cow::from)
        }
    }
}
