//! The upgrade request of a WebSocket client and the answer to it (RFC 6455 section 4.2, MQTT 5.0 section 6).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha1::{Digest as _, Sha1};

/// Maximum length of the head of a request, in bytes.
pub(crate) const HEAD_BYTES_MAX: usize = 8 * 1024;
/// Maximum number of header fields in a request.
const FIELDS_MAX: usize = 64;
/// Section 1.3.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The rules of a listener for upgrade requests.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// The only path that is accepted, such as `/mqtt`. `None` accepts every path.
    pub path: Option<String>,
    /// The origins that web pages may have. `None` accepts every origin; an empty list accepts none. A request without
    /// `Origin` does not come from a web page, and is accepted.
    pub origins: Option<Vec<String>>,
}

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The bytes to send.
    pub(crate) answer: Vec<u8>,
    /// The number of bytes of the request, if it was accepted. Frames follow.
    pub(crate) accepted: Option<usize>,
    /// Why it was not.
    pub(crate) why: &'static str,
}

impl Rules {
    /// Answers a request, or returns `None` if its head is not complete. A head has at most [`HEAD_BYTES_MAX`] bytes.
    pub(crate) fn answer(&self, head: &[u8]) -> Option<Outcome> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut request = httparse::Request::new(&mut fields);
        let status = match request.parse(head) {
            Ok(httparse::Status::Complete(length)) => return Some(self.judge(&request, length)),
            Ok(httparse::Status::Partial) if head.len() < HEAD_BYTES_MAX => return None,
            Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => &Refusal {
                status: "431 Request Header Fields Too Large",
                fields: "",
                why: "the head is too long",
            },
            // No client of HTTP sends this: it gets no answer.
            Err(_) => return Some(Outcome { answer: Vec::new(), accepted: None, why: BAD_REQUEST.why }),
        };
        Some(status.into())
    }

    fn judge(&self, request: &httparse::Request<'_, '_>, length: usize) -> Outcome {
        if !request.headers.iter().any(|field| field.name.eq_ignore_ascii_case("host")) {
            // A browser names the host. Noise gets no answer.
            return Outcome { answer: Vec::new(), accepted: None, why: "a request without Host" };
        }
        match self.accept(request) {
            Ok(answer) => Outcome { answer, accepted: Some(length), why: "" },
            Err(refusal) => (&refusal).into(),
        }
    }

    /// Section 4.2.1, in its order.
    fn accept(&self, request: &httparse::Request<'_, '_>) -> Result<Vec<u8>, Refusal> {
        if request.method != Some("GET") {
            return Err(Refusal {
                status: "405 Method Not Allowed",
                fields: "Allow: GET\r\n",
                why: "not a GET",
            });
        }
        if request.version != Some(1) {
            return Err(Refusal { why: "not HTTP/1.1", ..BAD_REQUEST });
        }
        let fields = Fields(request.headers);
        fields.one("host")?;
        if !fields.has_token("upgrade", b"websocket") || !fields.has_token("connection", b"upgrade") {
            return Err(UPGRADE_REQUIRED);
        }
        if fields.one("sec-websocket-version")? != Some(b"13") {
            return Err(Refusal { why: "not version 13 of the WebSocket protocol", ..UPGRADE_REQUIRED });
        }
        let key = fields.one("sec-websocket-key")?.unwrap_or_default();
        if !BASE64.decode(key).is_ok_and(|key| key.len() == 16) {
            return Err(Refusal { why: "Sec-WebSocket-Key is not 16 bytes in Base64", ..BAD_REQUEST });
        }
        self.check_path(request.path.unwrap_or_default())?;
        self.check_origin(fields.one("origin")?)?;
        let protocol = fields.protocol().ok_or(Refusal {
            why: "no subprotocol `mqtt` in Sec-WebSocket-Protocol [MQTT-6.0.0-3]",
            ..BAD_REQUEST
        })?;
        let mut digest = Sha1::new();
        digest.update(key);
        digest.update(GUID);
        let accept = BASE64.encode(digest.finalize());
        Ok(format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n"
        )
        .into_bytes())
    }

    fn check_path(&self, target: &str) -> Result<(), Refusal> {
        let path = target.split(['?', '#']).next().unwrap_or_default();
        match &self.path {
            Some(only) if only != path => {
                Err(Refusal { status: "404 Not Found", fields: "", why: "another path" })
            }
            _ => Ok(()),
        }
    }

    fn check_origin(&self, origin: Option<&[u8]>) -> Result<(), Refusal> {
        match (&self.origins, origin) {
            (None, _) | (_, None) => Ok(()),
            (Some(allowed), Some(origin))
                if allowed.iter().any(|allowed| allowed.as_bytes().eq_ignore_ascii_case(origin)) =>
            {
                Ok(())
            }
            (Some(_), Some(_)) => {
                Err(Refusal { status: "403 Forbidden", fields: "", why: "a web page of another origin" })
            }
        }
    }
}

/// The header fields of a request. Names are compared without regard to case (RFC 9110 section 5.1).
struct Fields<'a>(&'a [httparse::Header<'a>]);

impl<'a> Fields<'a> {
    fn all(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        let fields: &'a [httparse::Header<'a>] = self.0;
        fields
            .iter()
            .filter(move |field| field.name.eq_ignore_ascii_case(name))
            .map(|field| field.value.trim_ascii())
    }

    /// The value of a field that a request has once at most.
    fn one(&self, name: &str) -> Result<Option<&'a [u8]>, Refusal> {
        let mut all = self.all(name);
        match (all.next(), all.next()) {
            (_, Some(_)) => {
                Err(Refusal { why: "a field that a request has once comes twice", ..BAD_REQUEST })
            }
            (value, None) => Ok(value),
        }
    }

    /// The values of a field that is a list with commas.
    fn list(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.all(name).flat_map(|value| value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
    }

    fn has_token(&self, name: &str, token: &[u8]) -> bool {
        self.list(name).any(|value| value.eq_ignore_ascii_case(token))
    }

    /// The first subprotocol of the client that this server speaks [MQTT-6.0.0-3], [MQTT-6.0.0-4].
    fn protocol(&self) -> Option<&'static str> {
        self.list("sec-websocket-protocol").find_map(|name| match name {
            b"mqtt" => Some("mqtt"),
            // MQTT 3.1 has no statement about WebSocket; its clients use this name.
            b"mqttv3.1" => Some("mqttv3.1"),
            _ => None,
        })
    }
}

struct Refusal {
    /// Status code and reason phrase.
    status: &'static str,
    /// Header fields beyond those that every answer has.
    fields: &'static str,
    why: &'static str,
}

const BAD_REQUEST: Refusal =
    Refusal { status: "400 Bad Request", fields: "", why: "not a request of HTTP/1.1" };
const UPGRADE_REQUIRED: Refusal = Refusal {
    status: "426 Upgrade Required",
    fields: "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n",
    why: "a plain HTTP request: this port speaks MQTT over WebSocket",
};

impl From<&Refusal> for Outcome {
    fn from(refusal: &Refusal) -> Self {
        let Refusal { status, fields, why } = *refusal;
        let close = if fields.contains("Connection:") { "" } else { "Connection: close\r\n" };
        let body = page(status, why);
        let answer = format!(
            "HTTP/1.1 {status}\r\n{fields}{close}Content-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\
             X-Content-Type-Options: nosniff\r\nContent-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\n\
             \r\n{body}",
            body.len()
        );
        Self { answer: answer.into_bytes(), accepted: None, why }
    }
}

/// The page that a person sees who opens the port in a browser.
fn page(status: &str, why: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>MQTT broker</title>\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <style>body{{font:16px/1.5 system-ui,sans-serif;max-width:36em;margin:3em auto;padding:0 1em}}</style>\
         <h1>This is an MQTT broker</h1>\
         <p>Pondhawk listens on this port for MQTT clients, over WebSocket with the subprotocol <code>mqtt</code>. \
         It has no pages for browsers.</p>\
         <p>To connect, give an MQTT client the address of this page with <code>ws://</code> in place of \
         <code>http://</code>, or <code>wss://</code> in place of <code>https://</code>.</p>\
         <p><small>{status}: {why}</small></p></html>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
    const FIELDS: [&str; 6] = [
        "Host: broker.example",
        "Upgrade: websocket",
        "Connection: keep-alive, Upgrade",
        KEY,
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Protocol: mqtt",
    ];

    fn request(line: &str, fields: &[&str]) -> String {
        format!("{line}\r\n{}\r\n\r\n", fields.join("\r\n"))
    }

    /// The request of every test with one field replaced. An empty replacement leaves the field out.
    fn with(name: &str, replacement: &str) -> String {
        let mut fields = FIELDS.to_vec();
        fields.retain(|field| !field.starts_with(name));
        assert_eq!(fields.len(), FIELDS.len() - 1);
        fields.extend(Some(replacement).filter(|field| !field.is_empty()));
        request("GET /mqtt HTTP/1.1", &fields)
    }

    /// The status code of the answer, or 0 if there is none.
    fn status(rules: &Rules, request: &str) -> u16 {
        let outcome = rules.answer(request.as_bytes()).expect("it is complete");
        if outcome.answer.is_empty() {
            return 0;
        }
        let answer = String::from_utf8(outcome.answer).expect("an answer is text");
        let status = answer.strip_prefix("HTTP/1.1 ").expect("the version")[..3].parse().expect("a number");
        assert_eq!(outcome.accepted.is_some(), status == 101);
        if status != 101 {
            let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
            assert!(head.contains(&format!("Content-Length: {}", body.len())), "{answer}");
        }
        status
    }

    /// The example of RFC 6455 section 1.3.
    #[test]
    fn the_answer_has_the_accept_key_and_the_subprotocol() {
        let request = request("GET /chat?token=1 HTTP/1.1", &FIELDS);
        let outcome = Rules::default().answer(request.as_bytes()).expect("it is complete");
        let answer = String::from_utf8(outcome.answer).expect("text");
        assert!(answer.contains("\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), "{answer}");
        assert!(answer.contains("\r\nSec-WebSocket-Protocol: mqtt\r\n"), "{answer}");
        assert_eq!(outcome.accepted, Some(request.len()));
    }

    #[test]
    fn a_request_is_answered_when_its_head_is_complete() {
        let request = request("GET / HTTP/1.1", &FIELDS);
        for length in 0..request.len() {
            assert_eq!(Rules::default().answer(&request.as_bytes()[..length]), None, "{length}");
        }
    }

    #[test]
    fn requests_that_are_no_upgrade_are_refused() {
        let rules = Rules::default();
        let rows = [
            (request("POST / HTTP/1.1", &FIELDS), 405),
            (request("GET / HTTP/1.0", &FIELDS), 400),
            (request("GET / HTTP/1.1", &["Host: a"]), 426),
            (with("Host", ""), 0),
            (with("Host", "Host: a\r\nHost: b"), 400),
            (with("Upgrade", "Upgrade: h2c"), 426),
            (with("Connection", "Connection: keep-alive"), 426),
            (with("Sec-WebSocket-Version", ""), 426),
            (with("Sec-WebSocket-Version", "Sec-WebSocket-Version: 8"), 426),
            (with("Sec-WebSocket-Key", ""), 400),
            (with("Sec-WebSocket-Key", "Sec-WebSocket-Key: c2hvcnQ="), 400),
            (with("Sec-WebSocket-Key", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ"), 400),
            (with("Sec-WebSocket-Key", &format!("{KEY}\r\n{KEY}")), 400),
            (with("Sec-WebSocket-Protocol", ""), 400),
            (with("Sec-WebSocket-Protocol", "Sec-WebSocket-Protocol: MQTT"), 400),
            (with("Sec-WebSocket-Protocol", "Sec-WebSocket-Protocol: wamp, soap"), 400),
            ("GET / HTTP/1.1\r\nno field\r\n\r\n".to_owned(), 0),
            ("\u{1}\r\n\r\n".to_owned(), 0),
        ];
        for (request, expected) in rows {
            assert_eq!(status(&rules, &request), expected, "{request}");
        }
    }

    #[test]
    fn the_first_subprotocol_of_the_client_that_is_spoken_here_is_chosen() {
        for (offered, chosen) in [
            ("soap, mqtt", "mqtt"),
            ("mqttv3.1,mqtt", "mqttv3.1"),
            ("soap\r\nSec-WebSocket-Protocol: mqtt", "mqtt"),
        ] {
            let request = with("Sec-WebSocket-Protocol", &format!("Sec-WebSocket-Protocol: {offered}"));
            let outcome = Rules::default().answer(request.as_bytes()).expect("it is complete");
            let answer = String::from_utf8(outcome.answer).expect("text");
            assert!(answer.ends_with(&format!("\r\nSec-WebSocket-Protocol: {chosen}\r\n\r\n")), "{answer}");
        }
    }

    #[test]
    fn a_listener_can_name_its_path_and_the_origins_of_web_pages() {
        let rules =
            Rules { path: Some("/mqtt".to_owned()), origins: Some(vec!["https://app.example".to_owned()]) };
        let from = |origin: &str| request("GET /mqtt HTTP/1.1", &[&FIELDS[..], &[origin]].concat());
        assert_eq!(status(&rules, &request("GET /mqtt?a=b HTTP/1.1", &FIELDS)), 101);
        assert_eq!(status(&rules, &request("GET /other HTTP/1.1", &FIELDS)), 404);
        assert_eq!(status(&rules, &request("GET /mqtt/ HTTP/1.1", &FIELDS)), 404);
        assert_eq!(status(&rules, &from("Origin: https://APP.example")), 101);
        assert_eq!(status(&rules, &from("Origin: https://app.example.evil")), 403);
        assert_eq!(status(&rules, &from("Origin: http://app.example")), 403);
        assert_eq!(status(&rules, &from("Origin: null")), 403);
        assert_eq!(status(&rules, &from(&format!("Origin: {}", "a".repeat(300)))), 403);
        assert_eq!(status(&rules, &from("Origin: https://app.example\r\nOrigin: https://evil.example")), 400);
    }

    #[test]
    fn a_head_that_is_too_long_is_refused() {
        let rules = Rules::default();
        let begun = |bytes: usize| format!("GET / HTTP/1.1\r\nA: {}", "a".repeat(bytes));
        assert_eq!(rules.answer(begun(HEAD_BYTES_MAX - 100).as_bytes()), None);
        assert_eq!(status(&rules, &begun(HEAD_BYTES_MAX)), 431);
        let many: Vec<String> = (0..=FIELDS_MAX).map(|number| format!("A{number}: b")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(status(&rules, &request("GET / HTTP/1.1", &many)), 431);
    }
}
