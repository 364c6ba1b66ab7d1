//! Requests to the collector.

use std::collections::hash_map::DefaultHasher;
use std::io;
use std::time::Duration;

use config::Otlp;
use serde_json::Value;
use ureq::Agent;

use crate::services::secret;
use crate::{fetch, roots};

/// Maximum length of an answer that is read, in bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// A collector, and the connection to it.
pub(super) struct Collector {
    url: String,
    authorization: Option<String>,
    agent: Agent,
}

/// A request that the collector has not accepted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) text: String,
    /// The same request would fail again.
    pub(super) is_final: bool,
}

impl Collector {
    pub(super) fn new(url: &str, settings: &Otlp) -> io::Result<Self> {
        let mut contents = DefaultHasher::new();
        let file = settings.authorization_file.as_deref();
        let authorization = file.map(|path| secret("authorization_file", path, &mut contents)).transpose()?;
        if !authorization.as_ref().is_none_or(|value| value.is_ascii()) {
            return Err(io::Error::other(
                "authorization_file of [otlp] has characters that no header may have",
            ));
        }
        let has_tls = url.starts_with("https://");
        let roots =
            if has_tls { roots::read(settings.ca_file.as_deref(), &mut contents)? } else { Vec::new() };
        let agent = fetch::config(url, settings.timeout, || roots).build().new_agent();
        Ok(Self { url: url.trim_end_matches('/').to_owned(), authorization, agent })
    }

    /// Sends a request, within another time than usual if one is given. Returns the answer, which is read to its end: then its
    /// connection serves the next request.
    pub(super) fn send(&self, path: &str, body: &Value, within: Option<Duration>) -> Result<Value, Failure> {
        let mut request = self.agent.post(format!("{}{path}", self.url)).content_type("application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header("Authorization", authorization);
        }
        let sent = match within {
            None => request.send(body.to_string()),
            Some(time) => request.config().timeout_global(Some(time)).build().send(body.to_string()),
        };
        let mut answer = sent.map_err(|error| Failure { text: error.to_string(), is_final: false })?;
        let text = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
        let status = answer.status().as_u16();
        if (200..300).contains(&status) {
            return Ok(serde_json::from_str(&text.unwrap_or_default()).unwrap_or_default());
        }
        // The statuses after which a request may be made again: https://opentelemetry.io/docs/specs/otlp/#retryable-response-codes
        let is_final = !matches!(status, 429 | 502 | 503 | 504);
        Err(Failure { text: format!("the status is {status}"), is_final })
    }
}
