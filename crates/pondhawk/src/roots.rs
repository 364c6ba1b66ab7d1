//! The authorities by which servers elsewhere are trusted.

use std::hash::{Hash, Hasher};
use std::io;
use std::path::Path;

use rustls::pki_types::CertificateDer;

use crate::stack::certificates;

/// The certificates of the authorities that the system trusts.
pub(crate) fn of_system() -> Vec<CertificateDer<'static>> {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::debug!(%error, "a certificate of the system cannot be read");
    }
    found.certs
}

/// The certificates of the authorities in a file, or of those that the system trusts.
///
/// # Errors
/// The file cannot be read, or has no certificate.
pub(crate) fn read(
    ca_file: Option<&Path>,
    contents: &mut impl Hasher,
) -> io::Result<Vec<CertificateDer<'static>>> {
    let found = ca_file.map_or_else(|| Ok(of_system()), |path| certificates("ca_file", path))?;
    found.iter().for_each(|certificate| certificate.as_ref().hash(contents));
    Ok(found)
}
