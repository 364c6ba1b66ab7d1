//! Why there is no TLS: which file it is, what is wrong with it, and whose fault that is.

use std::fmt;
use std::io;
use std::path::PathBuf;

use tokio_rustls::rustls::{self, CertificateError};

use crate::error::Fault;

/// Where certificates or a key come from.
#[derive(Clone, PartialEq, Eq)]
pub enum Origin {
    /// A file.
    File(PathBuf),
    /// The application, in PEM.
    Given(Vec<u8>),
}

/// Why [`TlsOptions`](super::TlsOptions) make no [`Tls`](super::Tls).
#[derive(Debug)]
#[non_exhaustive]
pub enum TlsError {
    /// A file or a directory cannot be read.
    Read {
        /// Which one.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// This begins as PEM and does not go on so.
    Pem {
        /// What does.
        origin: Origin,
        /// What is wrong with it.
        error: String,
    },
    /// There is no certificate in there.
    NoCertificate(Origin),
    /// There is no file with a certificate in this directory.
    EmptyDirectory(PathBuf),
    /// What is in there is no certificate that could be trusted.
    Root {
        /// In there.
        origin: Origin,
        /// What is wrong with it.
        error: rustls::Error,
    },
    /// There is no private key in there.
    NoKey(Origin),
    /// The private key is encrypted.
    EncryptedKey(Origin),
    /// The key is of no kind that is known, or does not belong to the certificate.
    Identity {
        /// The key.
        key: Origin,
        /// What is wrong with it.
        error: rustls::Error,
    },
    /// The system trusts nobody; what went wrong when it was asked.
    NoSystemRoots(Vec<String>),
    /// This is no name and no address of a host.
    ServerName(String),
    /// These options do not go together.
    Configuration(rustls::Error),
}

impl TlsError {
    /// Whose fault it was: the application's, or of who has set it up.
    #[must_use]
    pub fn fault(&self) -> Fault {
        Fault::Application
    }
}

/// Whose fault it is that TLS has failed.
pub(crate) fn fault_of(error: &io::Error) -> Fault {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        None => Fault::Network,
        // It does not like what we have shown, or have not.
        Some(rustls::Error::AlertReceived(_)) => Fault::Application,
        Some(_) => Fault::Server,
    }
}

/// What to do about it, where that is known.
pub(crate) fn advice(error: &io::Error) -> Option<&'static str> {
    use rustls::AlertDescription as Alert;
    let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) else {
        let is_cut = error.kind() == io::ErrorKind::UnexpectedEof;
        return is_cut.then_some("it may not speak TLS at this port");
    };
    Some(match error {
        rustls::Error::InvalidCertificate(wrong) => return certificate_advice(wrong),
        rustls::Error::InvalidMessage(_) => "it may not speak TLS at this port",
        rustls::Error::AlertReceived(Alert::CertificateRequired | Alert::HandshakeFailure) => {
            "the server may want a certificate of ours"
        }
        rustls::Error::AlertReceived(
            Alert::UnknownCA
            | Alert::BadCertificate
            | Alert::CertificateUnknown
            | Alert::CertificateExpired
            | Alert::CertificateRevoked
            | Alert::DecryptError,
        ) => "the server does not take our certificate",
        rustls::Error::AlertReceived(Alert::ProtocolVersion) => "the server speaks another version of TLS",
        rustls::Error::AlertReceived(Alert::NoApplicationProtocol) => {
            "the server has none of the protocols of ALPN"
        }
        _ => return None,
    })
}

fn certificate_advice(wrong: &CertificateError) -> Option<&'static str> {
    use CertificateError::{
        Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet, NotValidYetContext,
        Other, UnknownIssuer,
    };
    Some(match wrong {
        UnknownIssuer => "nobody who is trusted has signed it: name its authority",
        NotValidForName | NotValidForNameContext { .. } => {
            "use a name that it has, or expect the server under that one"
        }
        Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. } => {
            "it is to be renewed, unless the clock of this machine is wrong"
        }
        // A self-signed certificate of OpenSSL's is one, unless it is told otherwise.
        Other(error) if format!("{error:?}").contains("CaUsedAsEndEntity") => {
            "it is that of an authority: have the authority sign another one for the server"
        }
        _ => return None,
    })
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Given(_) => f.write_str("the PEM that was given"),
        }
    }
}

/// It may be a key.
impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { path, error } => write!(f, "{} cannot be read: {error}", path.display()),
            Self::Pem { origin, error } => write!(f, "{origin} is no PEM: {error}"),
            Self::NoCertificate(origin) => {
                write!(f, "{origin} has no certificate, which begins with -----BEGIN CERTIFICATE-----")
            }
            Self::EmptyDirectory(path) => write!(f, "no file in {} has a certificate", path.display()),
            Self::Root { origin, error } => {
                write!(f, "{origin} has a certificate that cannot be trusted: {error}")
            }
            Self::NoKey(origin) => {
                write!(f, "{origin} has no private key, which begins with -----BEGIN PRIVATE KEY-----")
            }
            Self::EncryptedKey(origin) => {
                write!(f, "the private key in {origin} is encrypted: decrypt it, as with `openssl pkey`")
            }
            Self::Identity { key, error } => {
                write!(f, "the private key in {key} is none for the certificate: {error}")
            }
            Self::NoSystemRoots(errors) if errors.is_empty() => f.write_str(
                "the system trusts no certificate authority: name one, or install ca-certificates",
            ),
            Self::NoSystemRoots(errors) => {
                write!(f, "whom the system trusts cannot be read: {}", errors.join("; "))
            }
            Self::ServerName(name) => write!(f, "{name:?} is no name and no address of a host"),
            Self::Configuration(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for TlsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read { error, .. } => Some(error),
            Self::Root { error, .. } | Self::Identity { error, .. } | Self::Configuration(error) => {
                Some(error)
            }
            _ => None,
        }
    }
}
