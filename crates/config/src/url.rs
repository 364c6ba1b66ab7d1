//! URLs in the file: their parts, and the URLs that a key accepts.

use std::marker::PhantomData;
use std::net::{IpAddr, Ipv6Addr};

use toml::de::DeValue;

use crate::jwt::Text;
use crate::kind::Kind;
use crate::unit;

/// The parts of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UrlParts<'a> {
    /// The scheme, such as `https`.
    pub scheme: &'a str,
    /// The host: a name, or an address. That of IPv6 is without brackets.
    pub host: &'a str,
    /// The port, if the URL names one. It is not 0.
    pub port: Option<u16>,
    /// The text behind host and port: path and query.
    pub rest: &'a str,
}

impl<'a> UrlParts<'a> {
    /// Takes a URL apart.
    ///
    /// # Errors
    /// The text is no URL with a host, or has a user or a fragment. The text goes on behind the name of a key.
    pub fn of(text: &'a str) -> Result<Self, &'static str> {
        const NONE: &str = "is no URL";
        let (scheme, behind) = text.split_once("://").ok_or(NONE)?;
        let (authority, rest) = behind.split_at(behind.find(['/', '?', '#']).unwrap_or(behind.len()));
        if authority.contains('@') {
            return Err("has a password, which others may read here");
        }
        if text.contains('#') || !text.chars().all(|letter| letter.is_ascii_graphic()) {
            return Err(NONE);
        }
        let (host, port) = host_and_port(authority).ok_or("has no host, or a port that is none")?;
        Ok(Self { scheme, host, port, rest })
    }

    /// Whether the host is this machine.
    pub(crate) fn is_here(&self) -> bool {
        let is_loopback = |address: IpAddr| address.is_loopback();
        self.host == "localhost" || self.host.parse().is_ok_and(is_loopback)
    }
}

fn host_and_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            host.parse::<Ipv6Addr>().ok()?;
            (host, port)
        }
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let port = match port.strip_prefix(':') {
        Some(port) => Some(port.parse().ok().filter(|port| *port > 0)?),
        None if port.is_empty() => None,
        None => return None,
    };
    (!host.is_empty()).then_some((host, port))
}

/// The URL for a log line: `…` stands for the query, which may have a password.
pub fn without_query(url: &str) -> String {
    url.split_once('?').map_or_else(|| url.to_owned(), |(before, _)| format!("{before}?…"))
}

/// A URL that a rule accepts.
pub(crate) struct Url<R>(PhantomData<R>);

/// The URLs that a key accepts.
pub(crate) trait Rule: 'static {
    /// The name of such a URL in the manual.
    const WORD: &'static str;
    const EXAMPLE: &'static str;

    /// Refuses other URLs. The text goes on behind the name of a key.
    fn check(parts: &UrlParts<'_>) -> Result<(), &'static str>;
}

impl<R: Rule> Kind for Url<R> {
    type Value = String;
    type Bound = ();

    fn word() -> String {
        R::WORD.to_owned()
    }

    fn expected() -> String {
        format!("a URL such as {:?}", R::EXAMPLE)
    }

    fn read(value: &DeValue<'_>) -> Result<String, String> {
        let text = Text::read(value)?;
        UrlParts::of(&text).and_then(|parts| R::check(&parts))?;
        Ok(text)
    }

    fn show(value: &String) -> String {
        unit::quoted(value)
    }
}

const NOT_HTTP: &str = "begins neither with https:// nor with http://";

/// Keys of an issuer: over HTTPS, or over HTTP on this machine.
pub(crate) struct OfKeys;

impl Rule for OfKeys {
    const WORD: &'static str = "URL";
    const EXAMPLE: &'static str = "https://id.example/.well-known/jwks.json";

    fn check(parts: &UrlParts<'_>) -> Result<(), &'static str> {
        match parts.scheme {
            "https" => Ok(()),
            "http" if parts.is_here() => Ok(()),
            "http" => {
                Err("is on another machine, and without TLS everybody on the way could replace the keys")
            }
            _ => Err(NOT_HTTP),
        }
    }
}

/// A certificate authority: over HTTPS, or over HTTP on this machine.
pub(crate) struct OfAuthority;

impl Rule for OfAuthority {
    const WORD: &'static str = "URL";
    const EXAMPLE: &'static str = "https://ca.example/acme/directory";

    fn check(parts: &UrlParts<'_>) -> Result<(), &'static str> {
        match parts.scheme {
            "https" => Ok(()),
            "http" if parts.is_here() => Ok(()),
            "http" => {
                Err("is on another machine, and without TLS everybody on the way could give certificates")
            }
            _ => Err(NOT_HTTP),
        }
    }
}

/// A service over HTTP.
pub(crate) struct OfService;

impl Rule for OfService {
    const WORD: &'static str = "URL";
    const EXAMPLE: &'static str = "https://id.example/mqtt";

    fn check(parts: &UrlParts<'_>) -> Result<(), &'static str> {
        if matches!(parts.scheme, "https" | "http") { Ok(()) } else { Err(NOT_HTTP) }
    }
}

/// A directory: a host, perhaps with a port.
pub(crate) struct OfDirectory;

impl Rule for OfDirectory {
    const WORD: &'static str = "URL of a directory";
    const EXAMPLE: &'static str = "ldaps://ldap.example";

    fn check(parts: &UrlParts<'_>) -> Result<(), &'static str> {
        if !matches!(parts.scheme, "ldap" | "ldaps") {
            return Err("begins neither with ldaps:// nor with ldap://");
        }
        if !matches!(parts.rest, "" | "/") {
            return Err("has more than a host and a port: `user_dn` and `search_base` are keys of their own");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_line_has_no_query() {
        for (url, shown) in [
            ("https://id.example/keys", "https://id.example/keys"),
            ("https://id.example/keys?api_key=hush&a=b?c", "https://id.example/keys?…"),
            ("https://id.example?", "https://id.example?…"),
        ] {
            assert_eq!(without_query(url), shown);
        }
    }

    #[test]
    fn a_url_has_a_host_and_perhaps_a_port_and_more() {
        for (text, expected) in [
            ("https://id.example", ("https", "id.example", None, "")),
            ("http://id.example:8080/a?b=c", ("http", "id.example", Some(8_080), "/a?b=c")),
            ("ldap://[2001:db8::1]:389/", ("ldap", "2001:db8::1", Some(389), "/")),
            ("ldaps://[::1]", ("ldaps", "::1", None, "")),
            ("https://192.0.2.1?a", ("https", "192.0.2.1", None, "?a")),
        ] {
            let parts = UrlParts::of(text).expect(text);
            assert_eq!((parts.scheme, parts.host, parts.port, parts.rest), expected);
        }
        for text in [
            "",
            "id.example",
            "https://",
            "https://:443",
            "https://a:",
            "https://a:0",
            "https://a:65536",
            "https://a:x",
            "https://[::1",
            "https://[::1]x",
            "https://[id.example]",
            "https://::1",
            "https://a b",
            "https://a/#b",
            "https://ann:hush@a",
        ] {
            assert!(UrlParts::of(text).is_err(), "{text}");
        }
    }
}
