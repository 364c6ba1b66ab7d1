//! The keys about TLS of a listener, or of the server for operators.

use std::path::PathBuf;

use config::{Admin, ClientCertificate, Listener, TlsVersion};

/// The files of TLS at one place, and the rules for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    /// The address of a listener as the configuration names it, or `[admin]`.
    pub(crate) place: String,
    pub(crate) certificates: Vec<PathBuf>,
    /// The keys of the certificates, in the same order.
    pub(crate) keys: Vec<PathBuf>,
    pub(crate) minimum: TlsVersion,
    pub(crate) client_certificate: ClientCertificate,
    pub(crate) client_ca: Vec<PathBuf>,
    pub(crate) client_crl: Vec<PathBuf>,
    /// Whether the authority of `[acme]` gives the certificate.
    pub(crate) is_of_acme: bool,
}

/// The place of the server for operators.
const ADMIN: &str = "[admin]";

impl TlsFiles {
    pub(crate) fn of(listener: &Listener) -> Self {
        Self {
            place: listener.address.to_string(),
            certificates: listener.tls_certificate.clone(),
            keys: listener.tls_key.clone(),
            minimum: listener.tls_minimum,
            client_certificate: listener.tls_client_certificate,
            client_ca: listener.tls_client_ca.clone(),
            client_crl: listener.tls_client_crl.clone(),
            is_of_acme: listener.tls_acme,
        }
    }

    /// The files of the server for operators. `None` if it has no TLS, or if there is no server.
    pub(crate) fn of_admin(admin: &Admin) -> Option<Self> {
        admin.address.as_ref().filter(|_| admin.has_tls())?;
        Some(Self {
            place: ADMIN.to_owned(),
            certificates: admin.tls_certificate.clone(),
            keys: admin.tls_key.clone(),
            minimum: admin.tls_minimum,
            client_certificate: admin.tls_client_certificate,
            client_ca: admin.tls_client_ca.clone(),
            client_crl: admin.tls_client_crl.clone(),
            is_of_acme: false,
        })
    }

    /// The files with certificates, keys and revocation lists.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        let Self { certificates, keys, client_ca, client_crl, .. } = self;
        [certificates, keys, client_ca, client_crl].into_iter().flatten()
    }

    /// Whether the files are the same, and the rules for them.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Self { is_of_acme: other.is_of_acme, ..self.clone() } == *other
    }

    /// The place in the middle of a sentence.
    pub(crate) fn owner(&self) -> String {
        if self.place == ADMIN {
            "the server of [admin]".to_owned()
        } else {
            format!("the listener on {}", self.place)
        }
    }
}
