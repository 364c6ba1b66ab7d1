//! Checks before a request is served: the host that it is for, the page that it is from, its token.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN};

/// The names under which the server may be addressed, in small letters, without ports.
#[derive(Debug)]
pub(crate) struct Hosts(Vec<String>);

impl Hosts {
    /// The names of this machine, the address of the server, and those of the configuration.
    pub(crate) fn new(address: std::net::IpAddr, configured: &[String]) -> Self {
        let literal = match address {
            std::net::IpAddr::V4(address) => address.to_string(),
            std::net::IpAddr::V6(address) => format!("[{address}]"),
        };
        let own = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned);
        Self(own.into_iter().chain([literal]).chain(configured.iter().cloned()).collect())
    }

    /// Whether a request is for this server, and not from the page of another one.
    ///
    /// A page of a stranger whose name was changed to lead here sends its own name as the host (DNS rebinding). A script of a
    /// foreign page sends its origin.
    pub(crate) fn admits(&self, headers: &HeaderMap) -> bool {
        let host = single(headers, &HOST);
        let is_for_us = host.is_some_and(|host| self.knows(host));
        let origin_is_ours = match (headers.contains_key(ORIGIN), single(headers, &ORIGIN)) {
            (false, _) => true,
            (true, Some(origin)) => {
                let place = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
                place.is_some_and(|place| self.knows(place))
            }
            (true, None) => false,
        };
        is_for_us && origin_is_ours
    }

    fn knows(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let name = match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') && port.bytes().all(|byte| byte.is_ascii_digit()) => {
                name
            }
            _ => &host,
        };
        self.0.iter().any(|known| known == name)
    }
}

/// The value of a header that is there once, as text.
fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut all = headers.get_all(name).iter();
    let first = all.next()?.to_str().ok()?;
    all.next().is_none().then_some(first)
}

/// The host that a request is for. Empty without one.
pub(crate) fn host(headers: &HeaderMap) -> String {
    single(headers, &HOST).unwrap_or_default().to_owned()
}

/// The proof that a request shows of its sender, beside the certificate of its connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Shown<'h> {
    /// There is no header, or a token without characters: a page that knows none sends that.
    Nothing,
    Token(&'h str),
    /// A user name and a password (RFC 7617).
    Password(String, Vec<u8>),
    /// A header that is nothing of these, or several.
    Other,
}

impl Shown<'_> {
    pub(crate) fn is_nothing(&self) -> bool {
        *self == Self::Nothing
    }
}

/// Reads the proof that a request shows of its sender.
pub(crate) fn shown(headers: &HeaderMap) -> Shown<'_> {
    if !headers.contains_key(AUTHORIZATION) {
        return Shown::Nothing;
    }
    let Some(header) = single(headers, &AUTHORIZATION) else { return Shown::Other };
    let (scheme, rest) = header.split_once(' ').unwrap_or((header, ""));
    match rest.trim() {
        "" if scheme.eq_ignore_ascii_case("bearer") => Shown::Nothing,
        token if scheme.eq_ignore_ascii_case("bearer") => Shown::Token(token),
        basic if scheme.eq_ignore_ascii_case("basic") => password(basic).unwrap_or(Shown::Other),
        _ => Shown::Other,
    }
}

/// A user name and a password in Base64, with a colon between them. The name has no colon, and no control characters.
fn password(basic: &str) -> Option<Shown<'static>> {
    let mut bytes = STANDARD.decode(basic).ok()?;
    let colon = bytes.iter().position(|byte| *byte == b':')?;
    let password = bytes.split_off(colon + 1);
    bytes.truncate(colon);
    let user = String::from_utf8(bytes).ok()?;
    (!user.chars().any(char::is_control)).then_some(Shown::Password(user, password))
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn headers(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name.clone(), HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn a_request_for_another_host_or_from_a_foreign_page_is_not_admitted() {
        let hosts = Hosts::new([192, 0, 2, 1].into(), &["pond.example".to_owned()]);
        for host in ["localhost", "127.0.0.1:9883", "[::1]:9883", "[::1]", "192.0.2.1:80", "Pond.Example:443"]
        {
            assert!(hosts.admits(&headers(&[(HOST, host)])), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "", "127.0.0.1.nip.io:9883", "localhost:x"] {
            assert!(!hosts.admits(&headers(&[(HOST, host)])), "{host}");
        }
        assert!(!hosts.admits(&headers(&[])));
        assert!(!hosts.admits(&headers(&[(HOST, "localhost"), (HOST, "evil.example")])));
        let from = |origin| hosts.admits(&headers(&[(HOST, "localhost:9883"), (ORIGIN, origin)]));
        assert!(from("http://localhost:9883") && from("https://pond.example"));
        assert!(!from("http://evil.example") && !from("null") && !from("localhost"));
    }

    #[test]
    fn a_token_is_in_one_header() {
        let of = |values: &[&'static str], expected: Shown<'_>| {
            let pairs: Vec<_> = values.iter().map(|value| (AUTHORIZATION, *value)).collect();
            assert_eq!(shown(&headers(&pairs)), expected, "{values:?}");
        };
        of(&["Bearer abc"], Shown::Token("abc"));
        of(&["bearer abc "], Shown::Token("abc"));
        of(&["Bearer "], Shown::Nothing);
        of(&["Bearer"], Shown::Nothing);
        let password = |user: &str, password: &[u8]| Shown::Password(user.to_owned(), password.to_vec());
        of(&["Basic YW5uYTpzZTpjcmV0"], password("anna", b"se:cret"));
        of(&["basic Og=="], password("", b""));
        of(&["Basic YTr/AA=="], password("a", b"\xff\0"));
        // No colon, a NUL or a line feed in the name, a name that is no UTF-8, no Base64, no padding.
        for wrong in ["YW5uYQ==", "YQBiOmM=", "YQpiOmM=", "/zpj", "YTpiY", "YTpi*", "", "Og"] {
            let header: &'static str = format!("Basic {wrong}").leak();
            of(&[header], Shown::Other);
        }
        of(&["Digest abc"], Shown::Other);
        of(&[""], Shown::Other);
        of(&["Bearer abc", "Bearer def"], Shown::Other);
        of(&[], Shown::Nothing);
    }
}
