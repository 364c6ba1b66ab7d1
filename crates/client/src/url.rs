//! Parses the URL of an endpoint.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

use crate::endpoint::Endpoint;
#[cfg(feature = "tls")]
use crate::tls::{TlsError, TlsOptions};
#[cfg(feature = "websocket")]
use crate::websocket::WebSocket;

/// The reason why a URL is not an [`Endpoint`]. The application is at fault, or the person who supplied the URL.
#[derive(Debug)]
#[non_exhaustive]
pub enum UrlError {
    /// The URL has no scheme, or an unknown one.
    Scheme,
    /// The URL needs a feature of this library that is not built in.
    Feature(&'static str),
    /// The URL has no host, or no path in the case of `unix`.
    Host,
    /// The port is not a number up to 65,535.
    Port,
    /// The URL has a user name. Credentials belong in [`Options::credentials`](crate::Options::credentials), not in
    /// logs.
    Credentials,
    /// The URL has a path, a query or a fragment with a scheme other than WebSocket, or an invalid path.
    Path,
    /// The system's trusted certificates cannot be loaded.
    #[cfg(feature = "tls")]
    Tls(TlsError),
}

/// Layers and default port of a scheme.
#[derive(Clone, Copy, Default)]
struct Scheme {
    has_quic: bool,
    has_tls: bool,
    has_websocket: bool,
    port: u16,
}

impl FromStr for Endpoint {
    type Err = UrlError;

    fn from_str(url: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = url.split_once("://").ok_or(UrlError::Scheme)?;
        #[cfg(unix)]
        if scheme.eq_ignore_ascii_case("unix") {
            return if rest.is_empty() { Err(UrlError::Host) } else { Ok(Self::unix(rest)) };
        }
        let scheme = Scheme::new(scheme).ok_or(UrlError::Scheme)?;
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(UrlError::Credentials);
        }
        let (host, port) = host_and_port(authority)?;
        scheme.layers(Self::tcp(host, port.unwrap_or(scheme.port)), path)
    }
}

impl Scheme {
    fn new(name: &str) -> Option<Self> {
        let (has_tls, has_websocket, port) = match name.to_ascii_lowercase().as_str() {
            "quic" => return Some(Self { has_quic: true, port: 14_567, ..Self::default() }),
            "mqtt" | "tcp" => (false, false, 1883),
            "mqtts" | "ssl" | "tls" => (true, false, 8883),
            "ws" => (false, true, 80),
            "wss" => (true, true, 443),
            _ => return None,
        };
        Some(Self { has_quic: false, has_tls, has_websocket, port })
    }

    fn layers(self, endpoint: Endpoint, path: &str) -> Result<Endpoint, UrlError> {
        if !self.has_websocket && !matches!(path, "" | "/") {
            return Err(UrlError::Path);
        }
        if self.has_quic {
            return with_quic(endpoint);
        }
        let endpoint = if self.has_tls { with_tls(endpoint)? } else { endpoint };
        if self.has_websocket { with_websocket(endpoint, path) } else { Ok(endpoint) }
    }
}

/// Splits the host, without brackets, from the port, if there is one.
fn host_and_port(authority: &str) -> Result<(&str, Option<u16>), UrlError> {
    let (host, rest) = match authority.strip_prefix('[') {
        Some(inside) => inside.split_once(']').ok_or(UrlError::Host)?,
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    if host.is_empty() {
        return Err(UrlError::Host);
    }
    let port = match (rest, rest.strip_prefix(':')) {
        ("" | ":", _) => None,
        (_, Some(digits)) => Some(port(digits).ok_or(UrlError::Port)?),
        (_, None) => return Err(UrlError::Port),
    };
    Ok((host, port))
}

/// Parses a port. Unlike [`str::parse`], accepts no sign.
fn port(digits: &str) -> Option<u16> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

#[cfg(feature = "quic")]
fn with_quic(endpoint: Endpoint) -> Result<Endpoint, UrlError> {
    TlsOptions::new().build().map(|tls| endpoint.quic(tls)).map_err(UrlError::Tls)
}

#[cfg(not(feature = "quic"))]
fn with_quic(_: Endpoint) -> Result<Endpoint, UrlError> {
    Err(UrlError::Feature("quic"))
}

#[cfg(feature = "tls")]
fn with_tls(endpoint: Endpoint) -> Result<Endpoint, UrlError> {
    TlsOptions::new().build().map(|tls| endpoint.tls(tls)).map_err(UrlError::Tls)
}

#[cfg(not(feature = "tls"))]
fn with_tls(_: Endpoint) -> Result<Endpoint, UrlError> {
    Err(UrlError::Feature("tls"))
}

#[cfg(feature = "websocket")]
fn with_websocket(endpoint: Endpoint, path: &str) -> Result<Endpoint, UrlError> {
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    Ok(endpoint.websocket(WebSocket::new(path).map_err(|_| UrlError::Path)?))
}

#[cfg(not(feature = "websocket"))]
fn with_websocket(_: Endpoint, _: &str) -> Result<Endpoint, UrlError> {
    Err(UrlError::Feature("websocket"))
}

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheme => {
                f.write_str("the URL begins with none of mqtt://, mqtts://, ws://, wss://, quic://, unix://")
            }
            Self::Feature(feature) => {
                write!(
                    f,
                    "the URL needs the feature `{feature}` of the client library, which is not built in"
                )
            }
            Self::Host => f.write_str("the URL names no host"),
            Self::Port => f.write_str("the port of the URL is no number from 0 to 65535"),
            Self::Credentials => f.write_str("user name and password are not given in the URL"),
            Self::Path => f.write_str("the URL has a path that means nothing here"),
            #[cfg(feature = "tls")]
            Self::Tls(error) => error.fmt(f),
        }
    }
}

impl Error for UrlError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            #[cfg(feature = "tls")]
            Self::Tls(error) => Some(error),
            _ => None,
        }
    }
}
