//! A service that knows users, over HTTP.
//!
//! | status | answer `json` | answer `status` | answer `text` |
//! |---|---|---|---|
//! | 204 | known | known | failure |
//! | 200 | the body decides | known | known if the body is `ok`, else denied |
//! | another 2xx | failure | known | failure |
//! | 401, 403 | denied | denied | denied |
//! | 404 | unknown | unknown | unknown |
//! | any other, also a redirect | failure | failure | failure |

use std::fmt;
use std::hash::Hasher;
use std::io;

use auth::{Question, Verdict};
use config::{AnswerForm, HttpAuth, QuestionForm};
use serde_json::Value;
use ureq::tls::{Certificate, RootCerts};
use ureq::{Agent, Body};

use super::{Server, roots, secret};
use crate::fetch;

/// Maximum length of the body of an answer, in bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// A service, and the connections to it that stay open.
pub(super) struct HttpService {
    url: String,
    question: QuestionForm,
    answer: AnswerForm,
    authorization: Option<String>,
    agent: Agent,
}

impl HttpService {
    pub(super) fn new(settings: &HttpAuth, contents: &mut impl Hasher) -> io::Result<Self> {
        let HttpAuth { url, question, answer, authorization_file, ca_file, timeout, .. } = settings;
        let authorization = authorization_file.as_ref();
        let authorization =
            authorization.map(|path| secret("authorization_file", path, contents)).transpose()?;
        let url = url.clone().unwrap_or_default();
        let roots =
            if url.starts_with("https://") { roots::read(ca_file.as_ref(), contents)? } else { Vec::new() };
        let roots = || RootCerts::from(roots.iter().map(|root| Certificate::from_der(root).to_owned()));
        let agent = fetch::agent(&url, *timeout, roots);
        Ok(Self { url, question: *question, answer: *answer, authorization, agent })
    }

    /// Sends a question, and waits for the head of the answer.
    fn send(&self, values: &[(&str, &str); 3]) -> Result<ureq::http::Response<Body>, ureq::Error> {
        let Self { agent, url, authorization, .. } = self;
        if self.question == QuestionForm::Query {
            let mut request = agent.get(url).query_pairs(values.iter().copied());
            if let Some(authorization) = authorization {
                request = request.header("Authorization", authorization);
            }
            return request.call();
        }
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

    fn verdict(&self, mut answer: ureq::http::Response<Body>) -> Result<Verdict, String> {
        let known = Ok(Verdict::Known { until_unix_secs: None });
        match (answer.status().as_u16(), self.answer) {
            (401 | 403, _) => Ok(Verdict::Denied),
            (404, _) => Ok(Verdict::Unknown),
            (204, AnswerForm::Json) | (200..300, AnswerForm::Status) => known,
            (200, form) => {
                let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
                let body = body.map_err(|error| error.to_string())?;
                match form {
                    AnswerForm::Text if body.trim() == "ok" => known,
                    AnswerForm::Text => Ok(Verdict::Denied),
                    _ => of_json(&body),
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
        let answer = self.send(&values).map_err(|error| error.to_string())?;
        self.verdict(answer)
    }
}

/// The verdict in a body: `result` as in EMQX, with `expire_at` if there is an end, or `Ok` as in mosquitto-go-auth.
fn of_json(body: &str) -> Result<Verdict, String> {
    let odd = || "the answer is no object with `result` or `Ok`".to_owned();
    let object: serde_json::Map<String, Value> = serde_json::from_str(body).map_err(|_| odd())?;
    let until_unix_secs = match object.get("expire_at") {
        None | Some(Value::Null) => None,
        Some(time) => Some(time.as_u64().ok_or("`expire_at` is no number of seconds since 1970")?),
    };
    match (object.get("result").and_then(Value::as_str), object.get("Ok").and_then(Value::as_bool)) {
        (Some("allow"), None) | (None, Some(true)) => Ok(Verdict::Known { until_unix_secs }),
        (Some("deny"), None) | (None, Some(false)) => Ok(Verdict::Denied),
        (Some("ignore"), None) => Ok(Verdict::Unknown),
        _ => Err(odd()),
    }
}

/// The secret stays out of logs.
impl fmt::Debug for HttpService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpService").field("url", &self.url).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_says_allow_deny_or_ignore_and_nothing_else() {
        let known = |until_unix_secs| Ok(Verdict::Known { until_unix_secs });
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
            r#"{"result":"allow","expire_at":"tomorrow"}"#,
            r#"{"result":"allow","expire_at":-1}"#,
            r#"{"result":"allow","expire_at":1.5}"#,
            r#"{"result":"allow"} {"result":"deny"}"#,
        ] {
            assert!(of_json(odd).is_err(), "{odd}");
        }
    }
}
