//! Responses of the admin server.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

use crate::control::Listener;
use crate::room::Room;

/// A response before it is written.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    content_type: &'static str,
    body: Bytes,
    /// The body has a secret, which no record has.
    is_secret: bool,
    /// The connection ends behind it.
    pub(crate) closes: bool,
    /// Origins to which scripts of the page may open WebSockets, beside that of the page.
    sockets_to: Vec<String>,
}

/// A request that cannot be served, for a reason that its sender is told.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) StatusCode, pub(crate) String);

impl Failure {
    pub(crate) fn bad(text: impl Into<String>) -> Self {
        Self(StatusCode::BAD_REQUEST, text.into())
    }

    pub(crate) fn not_found(text: impl Into<String>) -> Self {
        Self(StatusCode::NOT_FOUND, text.into())
    }

    pub(crate) fn unavailable(text: impl Into<String>) -> Self {
        Self(StatusCode::SERVICE_UNAVAILABLE, text.into())
    }
}

impl From<Failure> for Answer {
    fn from(Failure(status, text): Failure) -> Self {
        let error = json!({ "error": { "status": status.as_u16(), "message": text } });
        Self { status, ..Self::json(&error) }
    }
}

impl Answer {
    pub(crate) fn json(value: &Value) -> Self {
        let mut body = value.to_string();
        body.push('\n');
        Self::of("application/json", body)
    }

    pub(crate) fn text(body: impl Into<Bytes>) -> Self {
        Self::of("text/plain; charset=utf-8", body)
    }

    pub(crate) fn of(content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self {
            status: StatusCode::OK,
            content_type,
            body: body.into(),
            is_secret: false,
            closes: false,
            sockets_to: Vec::new(),
        }
    }

    pub(crate) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// Lets scripts of the page open WebSockets to listeners at a host, which the server knows as its own name.
    ///
    /// A policy has no form for an address of IPv6: nothing is permitted there.
    pub(crate) fn with_sockets_to<'l>(
        self,
        host: &str,
        listeners: impl Iterator<Item = &'l Listener>,
    ) -> Self {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        let is_name = !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'));
        let origin = |listener: &Listener| {
            let (_, port) =
                listener.address.rsplit_once(':').filter(|_| listener.websocket_path.is_some())?;
            let port: u16 = port.parse().ok()?;
            Some(format!("{}://{name}:{port}", if listener.has_tls { "wss" } else { "ws" }))
        };
        let sockets_to = if is_name { listeners.filter_map(origin).collect() } else { Vec::new() };
        Self { sockets_to, ..self }
    }

    /// The body, if it is a text without a secret.
    pub(crate) fn body_text(&self) -> &str {
        if self.is_secret { "" } else { std::str::from_utf8(&self.body).unwrap_or_default() }
    }

    /// The same with a body that no record has.
    pub(crate) fn secret(self) -> Self {
        Self { is_secret: true, ..self }
    }

    pub(crate) fn closing(self) -> Self {
        Self { closes: true, ..self }
    }

    /// The response, if there is room for it. If others have too much of the room, the response says so.
    pub(crate) fn into_response(self, room: &Room) -> Response<Full<Bytes>> {
        let Some(body) = room.take(self.body.clone()) else {
            let text = "other large answers are not written yet: try again";
            return Self::from(Failure::unavailable(text)).into_response(room);
        };
        Self { body, ..self }.with_headers()
    }

    fn with_headers(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(self.body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        for (name, value) in SECURITY {
            headers.insert(name, HeaderValue::from_static(value));
        }
        if !self.sockets_to.is_empty() {
            let connect = format!("connect-src 'self' {}", self.sockets_to.join(" "));
            let policy = HeaderValue::try_from(POLICY.replace("connect-src 'self'", &connect));
            let policy = policy.expect("names of hosts and numbers can be in a header");
            headers.insert(header::CONTENT_SECURITY_POLICY, policy);
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"pondhawk\""));
        }
        if self.closes {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// The policy of all pages: scripts come from this server, and ask only this server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Headers of each response: no page of others frames it, guesses its type, or keeps it.
const SECURITY: [(HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
];
