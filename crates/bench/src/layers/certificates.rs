//! Certificates for servers that a load test starts.

use std::env;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

use crate::error::{Error, Result};
use crate::scratch::Scratch;

/// The names that started servers have.
const HOSTS: [&str; 2] = ["127.0.0.1", "localhost"];

/// A server certificate and the authority that has signed it. The files are removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Certificates(Scratch);

impl Certificates {
    /// Makes an authority and a certificate for this machine, with keys for ECDSA on P-256, as `pondhawk certs` does.
    ///
    /// # Errors
    /// If there are no random numbers, or a file cannot be written.
    pub(crate) fn make() -> Result<Self> {
        let made = Self(Scratch::new(&env::temp_dir())?);
        let [authority, certificate, key] = pem().map_err(|error| failed(io::Error::other(error)))?;
        for (path, text) in [(made.authority(), authority), (made.chain(), certificate), (made.key(), key)] {
            write(&path, &text).map_err(failed)?;
        }
        Ok(made)
    }

    /// Path of the certificate of the authority.
    pub(crate) fn authority(&self) -> PathBuf {
        self.0.path().join("ca.pem")
    }

    /// Path of the certificate of the server.
    pub(crate) fn chain(&self) -> PathBuf {
        self.0.path().join("server.pem")
    }

    /// Path of the private key of the server.
    pub(crate) fn key(&self) -> PathBuf {
        self.0.path().join("server.key")
    }
}

/// An authority, a certificate that it has signed, and the key of that certificate.
fn pem() -> std::result::Result<[String; 3], rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "Authority of a load test");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;

    let mut params = CertificateParams::new(HOSTS.map(str::to_owned))?;
    params.distinguished_name.push(DnType::CommonName, "Server of a load test");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &authority)?;
    Ok([authority.pem(), certificate.pem(), key.serialize_pem()])
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

fn failed(error: io::Error) -> Error {
    Error::io("make certificates for servers")(error)
}
