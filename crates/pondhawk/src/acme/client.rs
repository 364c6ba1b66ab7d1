//! Requests to an authority, within bounds of time, size and number.
//!
//! The library that speaks ACME asks for futures. Here a request blocks the thread until its end, so that no event loop is
//! needed: every future is ready when it is asked for the first time.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use rustls::pki_types::CertificateDer;
use ureq::Agent;
use ureq::http::header::{CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use ureq::http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};

use crate::fetch;

/// Maximum time of a request: name, connection, TLS and answer.
const REQUEST_DEADLINE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 30 });
/// Maximum length of an answer, in bytes. A chain of certificates has some KiB.
const ANSWER_BYTES_MAX: u64 = 256 << 10;
/// Maximum number of requests for one certificate. 100 names take about 400 of them.
const REQUESTS_MAX: u32 = 1_000;
/// Maximum time for one certificate.
pub(super) const DEADLINE: Duration = Duration::from_secs(600);
/// Longest time for which the server may ask us to wait.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(86_400);

/// The requests for one certificate.
pub(super) struct Client {
    agent: Agent,
    directory_url: String,
    shared: Arc<Bounds>,
}

/// The state of these requests.
pub(super) struct Bounds {
    until: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    requests: u32,
    /// The time that the last answer asks us to wait.
    retry_after: Option<Duration>,
}

impl Client {
    /// A client that trusts these authorities.
    ///
    /// # Errors
    /// The URL of the directory is none for HTTP.
    pub(super) fn new(
        directory_url: &str,
        roots: Vec<CertificateDer<'static>>,
    ) -> Result<(Box<Self>, Arc<Bounds>), String> {
        check_url(directory_url)?;
        let agent =
            fetch::config(directory_url, REQUEST_DEADLINE, || roots).accept("*/*").build().new_agent();
        let shared = Arc::new(Bounds { until: Instant::now() + DEADLINE, state: Mutex::default() });
        let client = Self { agent, directory_url: directory_url.to_owned(), shared: Arc::clone(&shared) };
        Ok((Box::new(client), shared))
    }

    fn send(&self, request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, Error> {
        let is_directory = request.uri() == &*self.directory_url;
        let (mut parts, body) = request.into_parts();
        parts.headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        let has_body = parts.method == Method::POST;
        self.shared.begin()?;
        // A response gives its bytes out, and a request does not.
        let mut body = BytesResponse::from(Response::new(body)).body;
        let body = finish(body.into_bytes()).map_err(Error::Str)?.map_err(Error::Other)?;
        let answer = if has_body {
            self.agent.run(Request::from_parts(parts, body.to_vec()))
        } else {
            self.agent.run(Request::from_parts(parts, ()))
        };
        let answer = answer.map_err(other)?;
        let (mut parts, body) = answer.into_parts();
        let body = body.into_with_config().limit(ANSWER_BYTES_MAX).read_to_vec().map_err(other)?;
        let retry_after = retry_after(&mut parts.headers, SystemTime::now());
        self.shared.state().retry_after = retry_after;
        let status = parts.status;
        if status.is_redirection() {
            return Err(other(format!("the status is {}, and redirects are not followed", status.as_u16())));
        }
        if !status.is_success() && !is_json(&parts.headers) {
            return Err(other(format!("the status is {}", status.as_u16())));
        }
        if is_directory {
            check_directory(&body).map_err(other)?;
        }
        Ok(BytesResponse { parts, body: Box::new(Bytes::from(body)) })
    }
}

/// The name by which the broker introduces itself.
const AGENT: &str = concat!("pondhawk/", env!("CARGO_PKG_VERSION"));

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        Box::pin(std::future::ready(self.send(request)))
    }
}

impl Bounds {
    /// Counts a request, unless there were too many, or it is too late for another one.
    fn begin(&self) -> Result<(), Error> {
        let mut state = self.state();
        state.requests += 1;
        if state.requests > REQUESTS_MAX {
            return Err(other(format!("there were {REQUESTS_MAX} requests, and there is no end")));
        }
        if self.is_late() {
            return Err(other(format!("there is no end after {} s", DEADLINE.as_secs())));
        }
        Ok(())
    }

    /// Whether the time for the certificate is over.
    pub(super) fn is_late(&self) -> bool {
        Instant::now() >= self.until
    }

    /// The time that the last answer asks us to wait, at most a day.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        self.state().retry_after
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Finishes a future that never waits.
///
/// # Errors
/// The future waits for something that nobody here does.
pub(super) fn finish<T>(future: impl Future<Output = T>) -> Result<T, &'static str> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Ok(value),
        Poll::Pending => Err("a request waits for something else than its server"),
    }
}

fn other(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Other(why.into())
}

/// Whether the body has the reason for a failure (RFC 8555 section 6.7).
fn is_json(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().windows(4).any(|part| part == b"json"))
}

/// The time that the server asks us to wait: a number of seconds, or a date (RFC 9110 section 10.2.3). A longer time than
/// [`RETRY_AFTER_MAX`] is replaced by that. The header gets the result in seconds, because the library adds it to the time of
/// day. Other forms are removed.
fn retry_after(headers: &mut HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok().map(str::trim);
    let found = text.and_then(|text| {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Some(text.parse().map_or(RETRY_AFTER_MAX, Duration::from_secs));
        }
        let date = httpdate::parse_http_date(text).ok()?;
        Some(date.duration_since(now).unwrap_or_default())
    });
    let found = found.map(|time| Duration::from_secs(time.min(RETRY_AFTER_MAX).as_secs()));
    match found {
        Some(time) => drop(headers.insert(RETRY_AFTER, HeaderValue::from(time.as_secs()))),
        None => drop(headers.remove(RETRY_AFTER)),
    }
    found
}

fn check_url(url: &str) -> Result<(), String> {
    let uri = Uri::try_from(url).map_err(|error| format!("{url} is no URL: {error}"))?;
    uri.host().map(drop).ok_or_else(|| format!("{url} is no URL with a host"))
}

/// The library takes this URL for a good one.
fn check_directory(body: &[u8]) -> Result<(), String> {
    let none = |_| "the answer is no directory of ACME".to_owned();
    let directory: serde_json::Value = serde_json::from_slice(body).map_err(none)?;
    let url = directory.get("newNonce").and_then(serde_json::Value::as_str);
    check_url(url.ok_or("the answer is no directory of ACME")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_wait_are_bounded() {
        for (value, expected) in [
            ("0", Some(0)),
            (" 120 ", Some(120)),
            ("86400", Some(86_400)),
            ("86401", Some(86_400)),
            ("18446744073709551616", Some(86_400)),
            ("-1", None),
            ("", None),
            ("soon", None),
            ("Thu, 01 Jan 1970 00:02:00 GMT", Some(20)),
            ("Thu, 01 Jan 1970 00:01:00 GMT", Some(0)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(86_400)),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_static(value));
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
            assert_eq!(retry_after(&mut headers, now).map(|time| time.as_secs()), expected, "{value}");
            let header = headers.get(RETRY_AFTER).map(|value| value.to_str().expect("digits").to_owned());
            assert_eq!(header, expected.map(|secs| secs.to_string()), "{value}");
        }
    }

    #[test]
    fn a_directory_has_a_url_for_numbers() {
        for (body, is_good) in [
            (r#"{"newNonce": "https://ca.example/nonce"}"#, true),
            (r#"{"newNonce": "https://ca.example/{nonce}\"}"#, false),
            (r#"{"newNonce": "\u0000"}"#, false),
            (r#"{"newNonce": "/nonce"}"#, false),
            (r#"{"newNonce": ""}"#, false),
            (r#"{"newNonce": 1}"#, false),
            ("{}", false),
            ("[]", false),
            ("", false),
        ] {
            assert_eq!(check_directory(body.as_bytes()).is_ok(), is_good, "{body}");
        }
    }
}
