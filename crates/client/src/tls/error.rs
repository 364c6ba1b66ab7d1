//! Errors in the configuration of TLS, with the file at fault, and advice for failed handshakes.

use std::fmt;
use std::io;
use std::path::PathBuf;

use tokio_rustls::rustls::{self, CertificateError};

use crate::error::Fault;

/// Source of certificates or of a key.
#[derive(Clone, PartialEq, Eq)]
pub enum Origin {
    /// A file, by its path.
    File(PathBuf),
    /// PEM text that the application passed.
    Given(Vec<u8>),
}

/// The reason why [`TlsOptions`](super::TlsOptions) could not be turned into [`Tls`](super::Tls).
#[derive(Debug)]
#[non_exhaustive]
pub enum TlsError {
    /// A file or a directory cannot be read.
    Read {
        /// Path of the file or directory.
        path: PathBuf,
        /// Error of the operating system.
        error: io::Error,
    },
    /// The text is not valid PEM, although it begins as PEM.
    Pem {
        /// Source of the text.
        origin: Origin,
        /// Description of the fault.
        error: String,
    },
    /// The source contains no certificate.
    NoCertificate(Origin),
    /// No file in this directory contains a certificate.
    EmptyDirectory(PathBuf),
    /// The source contains a certificate that cannot be a root of trust.
    Root {
        /// Source of the certificate.
        origin: Origin,
        /// Reason for the rejection.
        error: rustls::Error,
    },
    /// The source contains no private key.
    NoKey(Origin),
    /// The private key is encrypted.
    EncryptedKey(Origin),
    /// The private key is of an unknown kind, or does not belong to the certificate.
    Identity {
        /// Source of the private key.
        key: Origin,
        /// Reason for the rejection.
        error: rustls::Error,
    },
    /// The system has no trusted certificates. The list contains the errors that occurred while certificates were
    /// loaded.
    NoSystemRoots(Vec<String>),
    /// The text is neither a host name nor an IP address.
    ServerName(String),
    /// The options contradict each other.
    Configuration(rustls::Error),
}

impl TlsError {
    /// Returns the party at fault: always the application, or the person who configured it.
    #[must_use]
    pub fn fault(&self) -> Fault {
        Fault::Application
    }
}

/// The party whose fault a failed TLS connection is.
pub(crate) fn fault_of(error: &io::Error) -> Fault {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        None => Fault::Network,
        // The server has rejected the client's certificate or its absence.
        Some(rustls::Error::AlertReceived(_)) => Fault::Application,
        Some(_) => Fault::Server,
    }
}

/// Hint for the user, for errors with a known remedy.
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
        BadSignature, Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet,
        NotValidYetContext, Other, UnknownIssuer,
    };
    Some(match wrong {
        // An authority of the same name, such as one that was made again, has another key.
        BadSignature => "another authority of the same name has signed it: name the one of the server",
        UnknownIssuer => "nobody who is trusted has signed it: name its authority",
        NotValidForName | NotValidForNameContext { .. } => {
            "use a name that it has, or expect the server under that one"
        }
        Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. } => {
            "it is to be renewed, unless the clock of this machine is wrong"
        }
        // OpenSSL makes such a certificate if it signs a request without extensions.
        Other(error) if format!("{error:?}").contains("UnsupportedCertVersion") => {
            "it is of X.509 version 1: have it signed again as version 3, with the host as subjectAltName"
        }
        // OpenSSL marks self-signed certificates as those of an authority, unless told otherwise.
        Other(error) if format!("{error:?}").contains("CaUsedAsEndEntity") => {
            "it is that of an authority: have the authority sign another one for the server"
        }
        _ => return None,
    })
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", wire::Shown(path.display())),
            Self::Given(_) => f.write_str("the PEM that was given"),
        }
    }
}

/// Does not print PEM text, which may be a private key.
impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { path, error } => {
                write!(f, "{} cannot be read: {error}", wire::Shown(path.display()))
            }
            Self::Pem { origin, error } => write!(f, "{origin} is no PEM: {error}"),
            Self::NoCertificate(origin) => {
                write!(f, "{origin} has no certificate, which begins with -----BEGIN CERTIFICATE-----")
            }
            Self::EmptyDirectory(path) => {
                write!(f, "no file in {} has a certificate", wire::Shown(path.display()))
            }
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
