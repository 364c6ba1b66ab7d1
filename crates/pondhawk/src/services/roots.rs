//! The authorities that servers elsewhere are trusted by.

use std::hash::Hasher;
use std::io;
use std::path::PathBuf;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::access::parse;

/// The certificates of the authorities in a file, or of those that the system trusts.
///
/// # Errors
/// The file cannot be read, or has no certificate.
pub(super) fn read(
    ca_file: Option<&PathBuf>,
    contents: &mut impl Hasher,
) -> io::Result<Vec<CertificateDer<'static>>> {
    let Some(path) = ca_file else {
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::debug!(%error, "a certificate of the system cannot be read");
        }
        found.certs.iter().for_each(|certificate| contents.write(certificate));
        return Ok(found.certs);
    };
    let certificates = |text: &str| {
        let found = CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>();
        match found {
            Ok(certificates) if !certificates.is_empty() => Ok(certificates),
            Ok(_) => Err("there is no certificate in PEM".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    };
    parse("ca_file", path, contents, certificates)
}
