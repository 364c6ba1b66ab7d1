//! The ends of certificates, with the warnings before them.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use admin::Certificate;

use crate::tls_files::TlsFiles;
use crate::{certs, stack};

pub(crate) const DAY_SECS: i64 = 86_400;

/// The certificates in use, for operators.
#[derive(Clone, Default)]
pub(crate) struct InUse(Arc<Mutex<Arc<[Certificate]>>>);

impl InUse {
    /// All certificates, in the order of the configuration.
    pub(crate) fn all(&self) -> Arc<[Certificate]> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn replace(&self, all: Vec<Certificate>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = all.into();
    }
}

/// The end of the certificates in one file.
pub(crate) struct Expiry {
    /// The certificate that expires first.
    pub(crate) certificate: Certificate,
    /// The most urgent warning that was written.
    pub(crate) told: Urgency,
}

/// The time until a certificate expires, in steps for which there are warnings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    None,
    Within30Days,
    Within7Days,
    Within1Day,
    Expired,
}

impl Urgency {
    pub(crate) fn of(left_secs: i64) -> Self {
        match left_secs {
            ..=0 => Self::Expired,
            1..=DAY_SECS => Self::Within1Day,
            _ if left_secs <= 7 * DAY_SECS => Self::Within7Days,
            _ if left_secs <= 30 * DAY_SECS => Self::Within30Days,
            _ => Self::None,
        }
    }
}

/// The first certificate of each file to expire, for the files whose certificates can be read.
pub(crate) fn expiries(tls: &TlsFiles) -> Vec<Expiry> {
    let own = tls.certificates.iter().map(|file| (file, "server"));
    let files = own.chain(tls.client_ca.iter().map(|file| (file, "client authority")));
    let expiry = |(file, purpose): (&std::path::PathBuf, &'static str)| {
        let certificate = first_to_expire(file, purpose, &tls.place)?;
        Some(Expiry { certificate, told: Urgency::None })
    };
    files.filter_map(expiry).collect()
}

fn first_to_expire(file: &Path, purpose: &'static str, listener: &str) -> Option<Certificate> {
    let all = stack::certificates("tls_certificate", file).ok()?;
    let certificates = all.iter().filter_map(|der| {
        let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
        Some(Certificate {
            listener: listener.to_owned(),
            file: file.display().to_string(),
            purpose,
            subject: certificate.subject().to_string(),
            names: certs::show::names(&certificate),
            from_unix_secs: certificate.validity().not_before.timestamp(),
            until_unix_secs: certificate.validity().not_after.timestamp(),
        })
    });
    certificates.min_by_key(|certificate| certificate.until_unix_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_urgent_in_steps() {
        let rows = [
            (31 * DAY_SECS, Urgency::None),
            (30 * DAY_SECS + 1, Urgency::None),
            (30 * DAY_SECS, Urgency::Within30Days),
            (7 * DAY_SECS + 1, Urgency::Within30Days),
            (7 * DAY_SECS, Urgency::Within7Days),
            (DAY_SECS + 1, Urgency::Within7Days),
            (DAY_SECS, Urgency::Within1Day),
            (1, Urgency::Within1Day),
            (0, Urgency::Expired),
            (-1, Urgency::Expired),
        ];
        for (left_secs, urgency) in rows {
            assert_eq!(Urgency::of(left_secs), urgency, "{left_secs}");
        }
    }
}
