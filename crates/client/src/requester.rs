//! Request and response over MQTT 5 (section 4.10).

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use session::client::Outgoing;
use tokio::time::{Instant, timeout_at};
use topic::{TopicFilter, TopicName, TopicNameBuf};
use wire::{Binary, MessageProperties, Qos, ReasonCode, ResponseTopic, SubscriptionOptions};

use crate::client::Client;
use crate::error::{Ended, PublishError, RequestError, RequesterError};
use crate::message::{Message, Messages};
use crate::options::bounded;

/// Sends questions and waits for their answers, one at a time, with its own response topic.
///
/// ```no_run
/// # use std::time::Duration;
/// # use client::{Client, Outgoing, topic};
/// # async fn ask(client: Client) -> Result<(), Box<dyn std::error::Error>> {
/// let mut requester = client.requester(topic!("answers/me")).await?;
/// let question = Outgoing::new(topic!("questions"), b"how late is it?");
/// let answer = requester.request(&question, Duration::from_secs(2)).await?;
/// # let _ = answer.payload();
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Requester {
    client: Client,
    response_topic: TopicNameBuf,
    responses: Messages,
    correlations: Correlations,
}

/// Source of the Correlation Data: a 128-bit value for each request.
///
/// Other clients may use the same response topic. The values are unique, and cannot be guessed by anybody who sees
/// neither requests nor answers.
struct Correlations {
    keys: RandomState,
    last: u64,
}

impl Correlations {
    fn new() -> Self {
        Self { keys: RandomState::new(), last: 0 }
    }

    fn next(&mut self) -> [u8; 16] {
        self.last += 1;
        let half = |which: u8| u128::from(self.keys.hash_one((self.last, which)));
        (half(0) << 64 | half(1)).to_be_bytes()
    }
}

/// Prints nothing that would help to guess later values.
impl std::fmt::Debug for Correlations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Correlations")
    }
}

impl Client {
    /// Makes a [`Requester`] whose answers arrive at this topic, and subscribes to the topic with QoS 1.
    ///
    /// No other requester should use the topic. Answers are acknowledged as they arrive, whatever
    /// [`Options::acknowledge`](crate::Options::acknowledge) says.
    ///
    /// # Errors
    /// [`RequesterError`]; then there is no subscription.
    pub async fn requester(&self, response_topic: TopicName<'_>) -> Result<Requester, RequesterError> {
        if !self.server().version.is_5() {
            return Err(RequesterError::Version);
        }
        let filter = TopicFilter::try_from(response_topic).map_err(RequesterError::Filter)?;
        let options = SubscriptionOptions { qos: Qos::AtLeastOnce, ..SubscriptionOptions::default() };
        let responses = self.subscribe_for(filter, options, true).await.map_err(RequesterError::Subscribe)?;
        let (client, response_topic) = (self.clone(), response_topic.into());
        Ok(Requester { client, response_topic, responses, correlations: Correlations::new() })
    }
}

impl Requester {
    /// Publishes a question and waits for its answer, for at most `timeout`.
    ///
    /// Response Topic and Correlation Data of the question are replaced. Late answers to earlier questions are
    /// dropped. If the future is dropped, so is the answer to this question.
    ///
    /// # Errors
    /// [`RequestError`]; after all but [`RequestError::Ended`] the next question may be asked.
    pub async fn request(
        &mut self,
        question: &Outgoing<'_>,
        timeout: Duration,
    ) -> Result<Message, RequestError> {
        let due = Instant::now() + bounded(timeout);
        timeout_at(due, self.ask(question)).await.unwrap_or(Err(RequestError::TimedOut))
    }

    async fn ask(&mut self, question: &Outgoing<'_>) -> Result<Message, RequestError> {
        self.responses.discard();
        let correlation = self.correlations.next();
        let properties = MessageProperties {
            response_topic: Some(ResponseTopic(self.response_topic.name())),
            correlation_data: Binary::new(&correlation).ok(),
            ..question.properties
        };
        let question = Outgoing { properties, ..*question };
        let mut acknowledgement = self.client.publish(&question).await?;
        let mut is_acknowledged = false;
        loop {
            tokio::select! {
                answer = self.responses.next() => {
                    let Some(answer) = answer else { return Err(RequestError::Ended(self.why())) };
                    let data = answer.properties().correlation_data.map(Binary::as_bytes);
                    if data == Some(&correlation[..]) {
                        return Ok(answer);
                    }
                }
                outcome = &mut acknowledgement, if !is_acknowledged => {
                    is_acknowledged = true;
                    if outcome? == ReasonCode::NoMatchingSubscribers {
                        return Err(RequestError::Nobody);
                    }
                }
            }
        }
    }

    fn why(&self) -> Ended {
        self.client.ended().cloned().unwrap_or(Ended::ByUs)
    }
}

/// Distinguishes the end of the connection from a question that was refused.
impl From<PublishError> for RequestError {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::Ended(ended) => Self::Ended(ended),
            other => Self::Publish(other),
        }
    }
}
