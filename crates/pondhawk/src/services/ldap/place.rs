//! The address of a directory, and when its connections have TLS.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use config::UrlParts;
use rustls::pki_types::ServerName;

use crate::services::resolver::Resolver;

/// The address of a directory.
pub(super) struct Place {
    url: String,
    pub(super) begin: Begin,
    /// The name that the certificate has to have.
    pub(super) name: ServerName<'static>,
    pub(super) resolver: Arc<Resolver>,
}

/// The beginning of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begin {
    /// There is no TLS.
    Plain,
    /// TLS from the first byte.
    Tls,
    /// TLS after a request for it.
    StartTls,
}

impl Place {
    /// The place behind a URL that the configuration accepts.
    pub(super) fn of(url: &str, start_tls: bool) -> io::Result<Self> {
        let invalid =
            |why: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("`url` of [ldap] {why}"));
        let parts = UrlParts::of(url).map_err(invalid)?;
        let (begin, port) = match (parts.scheme, start_tls) {
            ("ldaps", _) => (Begin::Tls, 636),
            (_, true) => (Begin::StartTls, 389),
            (_, false) => (Begin::Plain, 389),
        };
        let host = parts.host;
        let name = match host.parse::<IpAddr>() {
            Ok(address) => ServerName::IpAddress(address.into()),
            Err(_) => {
                ServerName::try_from(host.to_owned()).map_err(|_| invalid("has a host that is no name"))?
            }
        };
        let resolver = Arc::new(Resolver::new(host, parts.port.unwrap_or(port)));
        Ok(Self { url: url.to_owned(), begin, name, resolver })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn has_tls(&self) -> bool {
        self.begin != Begin::Plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_host_port_and_tls() {
        let place =
            |url, start_tls| Place::of(url, start_tls).map(|place| (place.begin, place.resolver.port()));
        assert_eq!(place("ldap://ldap.example", false).ok(), Some((Begin::Plain, 389)));
        assert_eq!(place("ldap://ldap.example:3890/", true).ok(), Some((Begin::StartTls, 3_890)));
        assert_eq!(place("ldaps://[2001:db8::1]", false).ok(), Some((Begin::Tls, 636)));
        assert_eq!(place("ldaps://192.0.2.1:7", false).ok(), Some((Begin::Tls, 7)));
        assert!(place("ldaps://a b", false).is_err() && place("ldap://:389", false).is_err());
    }
}
