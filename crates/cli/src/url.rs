//! URLs: of a broker with a topic (`-L`), and of a proxy (`--proxy`).

use crate::failure::Failure;
use crate::flags::add_topic;
use crate::settings::{PORT, QUIC_PORT, Settings, TLS_PORT};

/// Address and credentials of a SOCKS5 proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Proxy {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) credentials: Option<(String, String)>,
}

/// `[USER[:PASSWORD]@]HOST[:PORT]`, divided into its parts.
struct Authority<'a> {
    user_name: Option<&'a str>,
    password: Option<&'a str>,
    host: &'a str,
    port: Option<&'a str>,
}

impl<'a> Authority<'a> {
    fn parse(text: &'a str) -> Self {
        let (user, place) = text.rsplit_once('@').map_or((None, text), |(user, place)| (Some(user), place));
        let (user_name, password) = match user.map(|user| (user, user.split_once(':'))) {
            None => (None, None),
            Some((_, Some((name, password)))) => (Some(name), Some(password)),
            Some((name, None)) => (Some(name), None),
        };
        // An IPv6 address is in brackets.
        let in_brackets = place.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let (host, port) = match in_brackets {
            Some((host, rest)) => (host, rest.strip_prefix(':')),
            None => place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port))),
        };
        Self { user_name, password, host, port }
    }
}

/// Sets host, port, credentials and topic from a URL, and encryption from its scheme.
pub(crate) fn apply(settings: &mut Settings, url: &str) -> Result<(), Failure> {
    let schemes = [
        ("mqtt://", false, false),
        ("mqtts://", true, false),
        ("ws://", false, true),
        ("wss://", true, true),
        ("quic://", true, false),
    ];
    let found = schemes.iter().find_map(|&(scheme, is_encrypted, is_websocket)| {
        Some((url.strip_prefix(scheme)?, is_encrypted, is_websocket))
    });
    let (rest, is_encrypted, is_websocket) =
        found.ok_or_else(|| Failure::usage("Error: unsupported URL scheme.").advise(SCHEMES))?;
    let (authority, topic) = rest
        .split_once('/')
        .filter(|(_, topic)| !topic.is_empty())
        .ok_or_else(|| Failure::usage("Error: Invalid URL for -L argument specified - topic missing."))?;
    let authority = Authority::parse(authority);
    if let Some(name) = authority.user_name {
        settings.session.user_name = Some(name.to_owned());
        settings.session.password = authority.password.map(Into::into).or(settings.session.password.take());
    }
    settings.server.host = Some(authority.host.to_owned());
    settings.server.port = Some(match authority.port {
        Some(port) => self::port(port)?,
        None if url.starts_with("quic://") => QUIC_PORT,
        None if is_websocket => {
            if is_encrypted {
                443
            } else {
                80
            }
        }
        None => {
            if is_encrypted {
                TLS_PORT
            } else {
                PORT
            }
        }
    });
    settings.server.has_quic = url.starts_with("quic://");
    settings.server.websocket = is_websocket.then(|| WEBSOCKET_PATH.to_owned());
    settings.tls.uses_system_roots |= is_encrypted;
    add_topic(settings, topic)
}

/// Advice after an unknown scheme.
const SCHEMES: &str = "The schemes are mqtt://, mqtts://, ws://, wss:// and quic://.";

/// Usual path of a broker's WebSocket.
const WEBSOCKET_PATH: &str = "/mqtt";

fn port(text: &str) -> Result<u16, Failure> {
    let port = text.parse().ok().filter(|port| *port > 0);
    port.ok_or_else(|| invalid_port(text))
}

/// Failure for a text that is not the number of a port.
pub(crate) fn invalid_port(text: &str) -> Failure {
    Failure::usage(format!("Error: Invalid port given: {text}")).advise("A port is a number from 1 to 65535.")
}

/// Returns a URL for a message: without user name and password.
pub(crate) fn without_user(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let separator = if scheme.is_empty() { "" } else { "://" };
    match rest.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}{separator}***@{host}"),
        None => url.to_owned(),
    }
}

/// Default port of a SOCKS proxy.
const PROXY_PORT: u16 = 1080;

impl Proxy {
    pub(crate) fn parse(url: &str) -> Result<Self, Failure> {
        let unsupported = || {
            let failure = Failure::usage(format!("Error: Unsupported proxy protocol: {}", without_user(url)));
            failure.advise("The only protocol is socks5h://.")
        };
        let rest = url.strip_prefix("socks5h://").ok_or_else(unsupported)?;
        let authority = Authority::parse(rest);
        let credentials = match authority.user_name {
            Some(name) => Some((decoded(name)?, decoded(authority.password.unwrap_or_default())?)),
            None => None,
        };
        if authority.host.is_empty() {
            return Err(Failure::usage("Error: Invalid proxy: no host in its URL."));
        }
        let port = authority.port.map_or(Ok(PROXY_PORT), self::port)?;
        Ok(Self { host: authority.host.to_owned(), port, credentials })
    }
}

/// Decodes `%` with two hexadecimal digits (RFC 3986, section 2.1).
fn decoded(text: &str) -> Result<String, Failure> {
    let wrong = || {
        Failure::usage(format!("Error: Invalid URL encoding in the proxy's user name or password: {text}"))
    };
    let mut bytes = Vec::new();
    let mut pieces = text.split('%');
    bytes.extend_from_slice(pieces.next().unwrap_or_default().as_bytes());
    for piece in pieces {
        let digits = piece.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).ok_or_else(wrong)?;
        bytes.push(byte);
        bytes.extend_from_slice(&piece.as_bytes()[2..]);
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Tool;

    #[test]
    fn a_url_says_where_to_connect_as_whom_and_what_for() {
        let mut settings = Settings::new(Tool::Subscribe);
        apply(&mut settings, "mqtts://ann:se:cret@[::1]:8884/a/#").unwrap();
        assert_eq!(settings.host(), "::1");
        assert_eq!((settings.port(), settings.wants_tls()), (8884, true));
        assert_eq!(settings.session.user_name.as_deref(), Some("ann"));
        assert_eq!(settings.session.password.as_deref(), Some(&b"se:cret"[..]));
        assert_eq!(settings.topics, ["a/#"]);
        apply(&mut settings, "quic://pond/a").unwrap();
        assert!(settings.server.has_quic && settings.wants_tls());
        assert_eq!(settings.port(), 14_567);
        for url in ["http://a/b", "mqtt://a", "mqtt://a/", "mqtt://a:x/b", "mqtt://a:0/b"] {
            assert!(apply(&mut settings, url).is_err(), "{url}");
        }
    }

    #[test]
    fn messages_have_urls_without_users() {
        let rows = [
            ("http://ann:a@b/c@pond:1", "http://***@pond:1"),
            ("ann:a@pond", "***@pond"),
            ("mqtt://pond:1", "mqtt://pond:1"),
            ("pond", "pond"),
        ];
        for (url, expected) in rows {
            assert_eq!(without_user(url), expected);
        }
    }

    #[test]
    fn the_characters_of_a_proxys_url_may_be_in_its_password() {
        let proxy = Proxy::parse("socks5h://ann:p%40%3A%25@gate").unwrap();
        assert_eq!((proxy.host.as_str(), proxy.port), ("gate", 1080));
        assert_eq!(proxy.credentials, Some(("ann".to_owned(), "p@:%".to_owned())));
        let proxy = Proxy::parse("socks5h://a%6En%2540:%C3%a9@gate").unwrap();
        assert_eq!(proxy.credentials, Some(("ann%40".to_owned(), "é".to_owned())));
        for url in
            ["socks5h://a%4:b@gate", "socks5h://a%+1:b@gate", "socks5h://a:%zz@gate", "socks5h://%ff:a@gate"]
        {
            assert!(Proxy::parse(url).is_err(), "{url}");
        }
    }
}
