//! Fields of certificates that are names of users.

/// The field of a client's certificate that is its user name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateName {
    /// The common name. A certificate must have one of them.
    CommonName,
    /// The whole subject, as RFC 2253 writes it.
    Subject,
}
