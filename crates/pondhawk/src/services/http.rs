//! A service that knows users, over HTTP.
//!
//! | status | answer `json` | answer `status` | answer `text` |
//! |---|---|---|---|
//! | 204 | known | known | failure |
//! | 200 | the body decides | known | known if the body is `ok`, else denied |
//! | another 2xx | failure | known | failure |
//! | 401, 403 | denied | denied | denied |
//! | any other, also a redirect | failure | failure | failure |

use std::fmt;
use std::hash::Hasher;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use auth::{Question, Verdict};
use config::{AnswerForm, HttpAuth, QuestionForm, UrlParts};
use serde_json::Value;
use ureq::http::{HeaderValue, Uri};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver as Resolves};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, Body};

use super::resolver::Resolver;
use super::{Deadline, Server, secret};
use crate::{fetch, roots};

/// Maximum length of the body of an answer, in bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// Maximum number of open connections that wait for another question.
const IDLE_CONNECTIONS_MAX: usize = 16;
/// Common servers close a connection without requests after five seconds or more. A request on a closed one fails.
const IDLE_AGE_MAX: Duration = Duration::from_secs(4);
/// Maximum number of addresses that are tried.
const ADDRESSES_MAX: usize = 16;
/// Largest `expire_at` in seconds since 1970, in the year 5138. A larger one counts milliseconds.
const UNIX_SECS_MAX: u64 = 99_999_999_999;
/// Maximum length of a URL with a query, in bytes. Servers accept about as much.
const URL_BYTES_MAX: usize = 8 << 10;

/// A service, and the connections to it that stay open.
pub(super) struct HttpService {
    url: String,
    question: QuestionForm,
    answer: AnswerForm,
    authorization: Option<String>,
    agent: Agent,
    timeout: Duration,
}

/// The addresses of the service, for its agent.
#[derive(Debug)]
struct Addresses {
    resolver: Arc<Resolver>,
    timeout: Duration,
}

impl Resolves for Addresses {
    fn resolve(
        &self,
        _: &Uri,
        _: &ureq::config::Config,
        _: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = self.resolver.addresses(&Deadline::after(self.timeout)).map_err(io::Error::other)?;
        let mut addresses = self.empty();
        found.into_iter().take(ADDRESSES_MAX).for_each(|address| addresses.push(address));
        Ok(addresses)
    }
}

impl HttpService {
    pub(super) fn new(settings: &HttpAuth, contents: &mut impl Hasher) -> io::Result<Self> {
        let HttpAuth { url, question, answer, authorization_file, ca_file, timeout, .. } = settings;
        let authorization = authorization_file.as_ref();
        let authorization =
            authorization.map(|path| secret("authorization_file", path, contents)).transpose()?;
        let url = url.clone().unwrap_or_default();
        let parts = UrlParts::of(&url).map_err(|why| invalid("url", why))?;
        let has_tls = parts.scheme == "https";
        let usual_port = if has_tls { 443 } else { 80 };
        let resolver = Resolver::new(parts.host, parts.port.unwrap_or(usual_port));
        let is_good = |value: &String| HeaderValue::from_str(value).is_ok();
        if !authorization.as_ref().is_none_or(is_good) {
            return Err(invalid("authorization_file", "has characters that no header may have"));
        }
        let roots = if has_tls { roots::read(ca_file.as_deref(), contents)? } else { Vec::new() };
        let config = fetch::config(&url, *timeout, || roots);
        let config = config.max_idle_age(IDLE_AGE_MAX).max_idle_connections_per_host(IDLE_CONNECTIONS_MAX);
        let config = config.max_idle_connections(IDLE_CONNECTIONS_MAX).build();
        let addresses = Addresses { resolver: Arc::new(resolver), timeout: *timeout };
        let agent = Agent::with_parts(config, DefaultConnector::default(), addresses);
        Ok(Self { url, question: *question, answer: *answer, authorization, agent, timeout: *timeout })
    }

    /// Sends a question, and waits for the head of the answer. `None` if the question does not fit into a URL.
    fn send(&self, values: &[(&str, &str); 3]) -> Option<Result<ureq::http::Response<Body>, ureq::Error>> {
        let Self { agent, url, authorization, .. } = self;
        if self.question != QuestionForm::Query {
            return Some(self.post(values));
        }
        // Each byte becomes at most three.
        let values_bytes: usize = values.iter().map(|(name, value)| name.len() + 2 + 3 * value.len()).sum();
        if url.len() + values_bytes > URL_BYTES_MAX {
            return None;
        }
        let mut request = agent.get(url).query_pairs(values.iter().copied());
        if let Some(authorization) = authorization {
            request = request.header("Authorization", authorization);
        }
        Some(request.call())
    }

    fn post(&self, values: &[(&str, &str); 3]) -> Result<ureq::http::Response<Body>, ureq::Error> {
        let Self { agent, url, authorization, .. } = self;
        let mut request = agent.post(url);
        if let Some(authorization) = authorization {
            request = request.header("Authorization", authorization);
        }
        if self.question == QuestionForm::Form {
            return request.send_form(values.iter().copied());
        }
        let object: serde_json::Map<String, Value> =
            values.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value))).collect();
        request.content_type("application/json").send(Value::from(object).to_string())
    }

    fn verdict(&self, user: &str, mut answer: ureq::http::Response<Body>) -> Result<Verdict, String> {
        let known = Ok(Verdict::Known { user: user.into(), until_unix_secs: None });
        match (answer.status().as_u16(), self.answer) {
            (401 | 403, _) => Ok(Verdict::Denied),
            (204, AnswerForm::Json) | (200..300, AnswerForm::Status) => known,
            (200, form) => {
                let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
                let body = body.map_err(|error| error.to_string())?;
                match form {
                    AnswerForm::Text if body.trim() == "ok" => known,
                    AnswerForm::Text => Ok(Verdict::Denied),
                    _ => of_json(user, &body),
                }
            }
            (status, _) => Err(format!("the status is {status}")),
        }
    }
}

impl Server for HttpService {
    fn url(&self) -> &str {
        &self.url
    }

    fn ask(&self, question: &Question<'_>) -> Result<Verdict, String> {
        let Question { user, password, client_id } = *question;
        // Neither JSON nor a form has other bytes, and a service that gets something else would decide about something else.
        let Ok(password) = std::str::from_utf8(password) else { return Ok(Verdict::Denied) };
        let values = [("username", user), ("password", password), ("clientid", client_id)];
        let begun = Instant::now();
        let Some(mut answer) = self.send(&values) else { return Ok(Verdict::Denied) };
        // A connection that was open may end with this question, because the service has closed it meanwhile. One more question
        // has a new connection.
        if answer.as_ref().is_err_and(is_hang_up) && begun.elapsed() < self.timeout / 4 {
            answer = self.send(&values).unwrap_or(answer);
        }
        self.verdict(user, answer.map_err(|error| error.to_string())?)
    }
}

/// Whether the service has ended the connection instead of an answer.
fn is_hang_up(error: &ureq::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    let ureq::Error::Io(error) = error else { return false };
    matches!(error.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe)
}

fn invalid(key: &str, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("`{key}` of [http_auth] {why}"))
}

/// The verdict in a body: `result` as in EMQX, with `expire_at` if there is an end, or `Ok` as in mosquitto-go-auth.
fn of_json(user: &str, body: &str) -> Result<Verdict, String> {
    let odd = || "the answer is no object with `result` or `Ok`".to_owned();
    let object = auth::strict_object(body.as_bytes()).ok_or_else(odd)?;
    let until_unix_secs = match object.get("expire_at") {
        None | Some(Value::Null) => None,
        Some(time) => {
            let time = time.as_u64().filter(|time| *time <= UNIX_SECS_MAX);
            Some(time.ok_or("`expire_at` is no number of seconds since 1970")?)
        }
    };
    match (object.get("result").and_then(Value::as_str), object.get("Ok").and_then(Value::as_bool)) {
        (Some("allow"), None) | (None, Some(true)) => {
            Ok(Verdict::Known { user: user.into(), until_unix_secs })
        }
        (Some("deny"), None) | (None, Some(false)) => Ok(Verdict::Denied),
        (Some("ignore"), None) => Ok(Verdict::Unknown),
        _ => Err(odd()),
    }
}

/// The secret stays out of logs.
impl fmt::Debug for HttpService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpService").field("url", &config::without_query(&self.url)).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_says_allow_deny_or_ignore_and_nothing_else() {
        let known = |until_unix_secs| Ok(Verdict::Known { user: "frog".into(), until_unix_secs });
        let of_json = |body| of_json("frog", body);
        assert_eq!(of_json(r#"{"result":"allow","is_superuser":false}"#), known(None));
        assert_eq!(of_json(r#"{"result":"allow","expire_at":4102444800}"#), known(Some(4_102_444_800)));
        assert_eq!(of_json(r#"{"result":"allow","expire_at":null}"#), known(None));
        assert_eq!(of_json(r#"{"Ok":true,"Error":""}"#), known(None));
        assert_eq!(of_json(r#"{"result":"deny"}"#), Ok(Verdict::Denied));
        assert_eq!(of_json(r#"{"Ok":false,"Error":"no"}"#), Ok(Verdict::Denied));
        assert_eq!(of_json(r#"{"result":"ignore"}"#), Ok(Verdict::Unknown));
        for odd in [
            "",
            "{}",
            "[]",
            "ok",
            "true",
            r#""allow""#,
            r#"{"result":"ALLOW"}"#,
            r#"{"result":true}"#,
            r#"{"Ok":"true"}"#,
            r#"{"ok":true}"#,
            r#"{"result":"deny","Ok":true}"#,
            r#"{"result":"deny","result":"allow"}"#,
            r#"{"result":"allow","expire_at":"tomorrow"}"#,
            r#"{"result":"allow","expire_at":-1}"#,
            r#"{"result":"allow","expire_at":4102444800000}"#,
            r#"{"result":"allow","expire_at":1.5}"#,
            r#"{"result":"allow"} {"result":"deny"}"#,
        ] {
            assert!(of_json(odd).is_err(), "{odd}");
        }
    }
}
