//! URLs in the file, each with the schemes that a key accepts.

use std::net::IpAddr;

use toml::de::DeValue;

use crate::jwt::Text;
use crate::kind::Kind;
use crate::unit;

/// The URL of keys: of HTTPS, or of HTTP on this machine.
pub(crate) struct KeysUrl;

impl Kind for KeysUrl {
    type Value = String;
    type Bound = ();

    fn word() -> String {
        "URL".to_owned()
    }

    fn expected() -> String {
        "a URL such as \"https://id.example/.well-known/jwks.json\"".to_owned()
    }

    fn read(value: &DeValue<'_>) -> Result<String, String> {
        let text = Text::read(value)?;
        let (scheme, authority) = parse_url(&text)?;
        match scheme {
            "https" => Ok(text),
            "http" if is_here(authority) => Ok(text),
            "http" => {
                Err("is on another machine, and without TLS everybody on the way could replace the keys"
                    .to_owned())
            }
            _ => Err("begins neither with https:// nor with http://".to_owned()),
        }
    }

    fn show(value: &String) -> String {
        unit::quoted(value)
    }
}

/// The scheme of a URL, and its host with or without a port.
pub(crate) fn parse_url(text: &str) -> Result<(&str, &str), String> {
    let (scheme, rest) = text.split_once("://").ok_or("is no URL")?;
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    if authority.contains('@') {
        return Err("has a password, which others may read here".to_owned());
    }
    if authority.is_empty() || text.contains('#') || !text.chars().all(|letter| letter.is_ascii_graphic()) {
        return Err("is no URL".to_owned());
    }
    Ok((scheme, authority))
}

/// Splits the part of a URL that names a host: the host without brackets, and the port if there is one. `None` if the host is
/// missing, or the port is no number from 1 to 65,535.
pub fn host_and_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
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

/// Whether a host, with or without a port, is this machine.
pub(crate) fn is_here(authority: &str) -> bool {
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The URL of a service.
pub(crate) struct HttpUrl;

impl Kind for HttpUrl {
    type Value = String;
    type Bound = ();

    fn word() -> String {
        "URL".to_owned()
    }

    fn expected() -> String {
        "a URL such as \"https://id.example/mqtt\"".to_owned()
    }

    fn read(value: &DeValue<'_>) -> Result<String, String> {
        let text = Text::read(value)?;
        match parse_url(&text)?.0 {
            "https" | "http" => Ok(text),
            _ => Err("begins neither with https:// nor with http://".to_owned()),
        }
    }

    fn show(value: &String) -> String {
        unit::quoted(value)
    }
}

/// The URL of a directory: a host, perhaps with a port.
pub(crate) struct LdapUrl;

impl Kind for LdapUrl {
    type Value = String;
    type Bound = ();

    fn word() -> String {
        "URL of a directory".to_owned()
    }

    fn expected() -> String {
        "a URL such as \"ldaps://ldap.example\"".to_owned()
    }

    fn read(value: &DeValue<'_>) -> Result<String, String> {
        let text = Text::read(value)?;
        let (scheme, authority) = parse_url(&text)?;
        if !matches!(scheme, "ldap" | "ldaps") {
            return Err("begins neither with ldaps:// nor with ldap://".to_owned());
        }
        if host_and_port(authority).is_none() {
            return Err("has no host, or a port that is none".to_owned());
        }
        let rest = &text[scheme.len() + "://".len() + authority.len()..];
        if !matches!(rest, "" | "/") {
            return Err("has more than a host and a port: `user_dn` and `search_base` are keys of their own"
                .to_owned());
        }
        Ok(text)
    }

    fn show(value: &String) -> String {
        unit::quoted(value)
    }
}
