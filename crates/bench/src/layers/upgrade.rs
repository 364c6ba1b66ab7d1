//! The upgrade from HTTP to WebSocket (RFC 6455 section 4, MQTT 5.0 section 6): request and answer.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use httparse::{EMPTY_HEADER, Header, Status};
use sha1::{Digest as _, Sha1};

/// Maximum length of a head, in bytes.
const HEAD_BYTES_MAX: usize = 8 * 1024;

/// Maximum number of header fields in a head.
const FIELDS_MAX: usize = 64;

/// Section 1.3.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The name of MQTT inside of WebSocket [MQTT-6.0.0-3].
const SUBPROTOCOL: &str = "mqtt";

/// The address of a server, as its HTTP part knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location {
    /// Host and port.
    pub(crate) authority: String,
    /// The path, which begins with a slash.
    pub(crate) path: String,
}

/// Makes the value of `Sec-WebSocket-Key` from random bytes.
pub(super) fn key(random: [u8; 16]) -> String {
    BASE64.encode(random)
}

/// The request of a client.
pub(super) fn request(location: &Location, key: &str) -> Vec<u8> {
    let Location { authority, path } = location;
    format!(
        "GET {path} HTTP/1.1\r\nHost: {authority}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Protocol: {SUBPROTOCOL}\r\n\r\n"
    )
    .into_bytes()
}

/// Checks the answer to a request with this key (section 4.1). Returns its length, or `None` if bytes are missing.
///
/// # Errors
/// The reason why a client must not go on.
pub(super) fn check(head: &[u8], key: &str) -> Result<Option<usize>, String> {
    let mut fields = [EMPTY_HEADER; FIELDS_MAX];
    let mut answer = httparse::Response::new(&mut fields);
    let length = match answer.parse(head) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) if head.len() < HEAD_BYTES_MAX => return Ok(None),
        Ok(Status::Partial) => return Err("the head of the answer is too long".to_owned()),
        Err(error) => return Err(format!("the answer is no HTTP ({error})")),
    };
    let code = answer.code.unwrap_or_default();
    if code != 101 {
        return Err(format!("the server answered with HTTP {code}: look at the path"));
    }
    let fields = answer.headers;
    if !is_upgrade(fields) {
        return Err("the server does not upgrade to WebSocket".to_owned());
    }
    if value(fields, "sec-websocket-accept") != Some(accept(key).as_bytes()) {
        return Err("Sec-WebSocket-Accept does not belong to the key".to_owned());
    }
    if value(fields, "sec-websocket-protocol") != Some(SUBPROTOCOL.as_bytes()) {
        return Err("the server does not offer the subprotocol mqtt [MQTT-6.0.0-4]".to_owned());
    }
    if value(fields, "sec-websocket-extensions").is_some() {
        return Err("the server uses an extension that nobody asked for".to_owned());
    }
    Ok(Some(length))
}

/// Answers a request as a server. Returns its length and the answer, or `None` if bytes are missing.
///
/// # Errors
/// The reason why the request is none for MQTT over WebSocket.
pub(super) fn answer(head: &[u8]) -> Result<Option<(usize, Vec<u8>)>, &'static str> {
    let mut fields = [EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let length = match request.parse(head) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) if head.len() < HEAD_BYTES_MAX => return Ok(None),
        _ => return Err("no request that fits"),
    };
    let fields = request.headers;
    let key = value(fields, "sec-websocket-key").and_then(|key| str::from_utf8(key).ok());
    let (true, Some(key)) = (is_upgrade(fields), key) else { return Err("no upgrade request") };
    if !has_token(fields, "sec-websocket-protocol", SUBPROTOCOL) {
        return Err("no subprotocol `mqtt`");
    }
    let accept = accept(key);
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {SUBPROTOCOL}\r\n\r\n"
    );
    Ok(Some((length, answer.into_bytes())))
}

/// The value of `Sec-WebSocket-Accept` for this key (section 4.2.2).
fn accept(key: &str) -> String {
    let mut digest = Sha1::new();
    digest.update(key);
    digest.update(GUID);
    BASE64.encode(digest.finalize())
}

fn is_upgrade(fields: &[Header<'_>]) -> bool {
    has_token(fields, "upgrade", "websocket") && has_token(fields, "connection", "upgrade")
}

/// The value of the first field with this name. Names are compared without regard to case (RFC 9110 section 5.1).
fn value<'a>(fields: &[Header<'a>], name: &str) -> Option<&'a [u8]> {
    let field = fields.iter().find(|field| field.name.eq_ignore_ascii_case(name))?;
    Some(field.value.trim_ascii())
}

/// Whether a field has this word in its list.
fn has_token(fields: &[Header<'_>], name: &str, token: &str) -> bool {
    let named = fields.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
    named
        .flat_map(|field| field.value.split(|byte| *byte == b','))
        .any(|word| word.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key of the example in section 1.3.
    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

    fn sent() -> Vec<u8> {
        request(&Location { authority: "broker.example:8080".into(), path: "/mqtt".into() }, KEY)
    }

    #[test]
    fn the_key_of_the_standard_has_the_answer_of_the_standard() {
        assert_eq!(accept(KEY), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn an_answer_of_ours_to_a_request_of_ours_is_accepted() {
        let request = sent();
        assert_eq!(answer(&request[..request.len() - 1]), Ok(None));
        let (length, answer) = answer(&[&request[..], b"frames"].concat()).unwrap().unwrap();
        assert_eq!(length, request.len());
        assert_eq!(check(&answer[..answer.len() - 1], KEY), Ok(None));
        assert_eq!(check(&[&answer[..], b"frames"].concat(), KEY), Ok(Some(answer.len())));
    }

    #[test]
    fn an_answer_that_breaks_a_rule_is_refused() {
        let good = String::from_utf8(answer(&sent()).unwrap().unwrap().1).unwrap();
        for (from, to, why) in [
            ("101 Switching Protocols", "404 Not Found", "HTTP 404"),
            ("Upgrade: websocket", "Upgrade: h2c", "does not upgrade"),
            ("Connection: Upgrade", "Connection: close", "does not upgrade"),
            ("s3pP", "S3pP", "Sec-WebSocket-Accept"),
            ("Protocol: mqtt", "Protocol: wamp", "subprotocol"),
            ("Sec-WebSocket-Protocol: mqtt\r\n", "", "subprotocol"),
            ("\r\n\r\n", "\r\nSec-WebSocket-Extensions: x\r\n\r\n", "extension"),
            ("HTTP/1.1", "SMTP/1.1", "no HTTP"),
        ] {
            let broken = good.replacen(from, to, 1);
            assert_ne!(broken, good);
            let error = check(broken.as_bytes(), KEY).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_request_without_mqtt_is_refused() {
        let request = String::from_utf8(sent()).unwrap();
        for (from, to) in [("mqtt\r\n", "wamp\r\n"), ("Upgrade: websocket", "Upgrade: h2c"), ("-Key", "-Kee")]
        {
            assert!(answer(request.replacen(from, to, 1).as_bytes()).is_err());
        }
    }
}
