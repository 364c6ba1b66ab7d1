//! Request and response over MQTT 5 (section 4.10).

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use session::client::Outgoing;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};
use topic::{TopicFilter, TopicName, TopicNameBuf};
use wire::{Binary, MessageProperties, Qos, ReasonCode, ResponseTopic, SubscriptionOptions};

use crate::client::Client;
use crate::error::{Ended, PublishError, RequestError, RequesterError};
use crate::message::{Message, Messages};
use crate::options::bounded;
use crate::routes::Number;

/// Sends questions and waits for their answers, any number at the same time, over one subscription.
///
/// Clones are cheap, and share the subscription. The subscription ends when the last clone is dropped.
///
/// ```no_run
/// # use std::time::Duration;
/// # use pondhawk_client::{Client, Outgoing, topic};
/// # async fn ask(client: Client) -> Result<(), Box<dyn std::error::Error>> {
/// let requester = client.requester(topic!("answers/me")).await?;
/// let question = Outgoing::new(topic!("questions"), b"how late is it?");
/// let answer = requester.request(&question, Duration::from_secs(2)).await?;
/// # let _ = answer.payload();
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Requester(Arc<Shared>);

/// State that the clones share.
#[derive(Debug)]
struct Shared {
    client: Client,
    response_topic: TopicNameBuf,
    /// Number of the subscription.
    number: Number,
    correlations: Mutex<Correlations>,
    waiting: Waiting,
    /// The task that hands out answers.
    task: AbortHandle,
}

/// The questions without an answer, by their Correlation Data; `None` after the end of the subscription.
type Waiting = Arc<Mutex<Option<HashMap<Correlation, oneshot::Sender<Message>>>>>;

/// Correlation Data of one question.
type Correlation = [u8; 16];

/// A question without an answer. Dropping this value forgets the question.
struct Question<'r> {
    waiting: &'r Waiting,
    correlation: Correlation,
    answer: oneshot::Receiver<Message>,
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

    fn next(&mut self) -> Correlation {
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
    /// No other requester should use the same topic. The call must run on a tokio runtime. Answers are acknowledged as
    /// they arrive, whatever [`Options::acknowledge`](crate::Options::acknowledge) says.
    ///
    /// # Errors
    /// [`RequesterError`]; then there is no subscription.
    pub async fn requester(&self, response_topic: TopicName<'_>) -> Result<Requester, RequesterError> {
        if !self.server().version.is_5() {
            return Err(RequesterError::Version);
        }
        let filter = TopicFilter::try_from(response_topic).map_err(RequesterError::Filter)?;
        let options = SubscriptionOptions { qos: Qos::AtLeastOnce, ..SubscriptionOptions::default() };
        let subscribed = self.subscribe_for(filter, options, true).await;
        let (answers, number) = subscribed.map_err(RequesterError::Subscribe)?;
        let waiting = Waiting::new(Mutex::new(Some(HashMap::new())));
        let task = tokio::spawn(hand_out(answers, Arc::clone(&waiting))).abort_handle();
        let (client, response_topic) = (self.clone(), response_topic.into());
        let correlations = Mutex::new(Correlations::new());
        Ok(Requester(Arc::new(Shared { client, response_topic, number, correlations, waiting, task })))
    }
}

/// Gives each answer to its question. Answers that nobody waits for are dropped.
async fn hand_out(mut answers: Messages, waiting: Waiting) {
    while let Some(answer) = answers.next().await {
        let data = answer.properties().correlation_data.map(Binary::as_bytes);
        let correlation = data.and_then(|data| Correlation::try_from(data).ok());
        let question = correlation.and_then(|own| lock(&waiting).as_mut()?.remove(&own));
        if let Some(question) = question {
            // The caller may have given up.
            let _ = question.send(answer);
        }
    }
    // Drops the senders, which ends the pending questions.
    lock(&waiting).take();
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic under the lock cannot leave broken data.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.task.abort();
        self.client.forget(self.number);
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        if let Some(waiting) = lock(self.waiting).as_mut() {
            waiting.remove(&self.correlation);
        }
    }
}

impl Requester {
    /// Publishes a question and waits for its answer, for at most `timeout`.
    ///
    /// The requester replaces Response Topic and Correlation Data of the question. If the future is dropped, the answer
    /// to this question is dropped when it arrives.
    ///
    /// # Errors
    /// [`RequestError`]; after all but [`RequestError::Ended`] the next question may be asked.
    pub async fn request(&self, question: &Outgoing<'_>, timeout: Duration) -> Result<Message, RequestError> {
        let due = Instant::now() + bounded(timeout);
        timeout_at(due, self.ask(question)).await.unwrap_or(Err(RequestError::TimedOut))
    }

    async fn ask(&self, outgoing: &Outgoing<'_>) -> Result<Message, RequestError> {
        let mut question = self.question()?;
        let properties = MessageProperties {
            response_topic: Some(ResponseTopic(self.0.response_topic.name())),
            correlation_data: Binary::new(&question.correlation).ok(),
            ..outgoing.properties
        };
        let outgoing = outgoing.properties(properties);
        let mut acknowledgement = self.0.client.publish(&outgoing).await?;
        let mut is_acknowledged = false;
        loop {
            tokio::select! {
                answer = &mut question.answer => return answer.map_err(|_| RequestError::Ended(self.why())),
                outcome = &mut acknowledgement, if !is_acknowledged => {
                    is_acknowledged = true;
                    if outcome? == ReasonCode::NoMatchingSubscribers {
                        return Err(RequestError::Nobody);
                    }
                }
            }
        }
    }

    /// Makes a question without an answer.
    fn question(&self) -> Result<Question<'_>, RequestError> {
        let waiting = &self.0.waiting;
        let correlation = lock(&self.0.correlations).next();
        let (sender, answer) = oneshot::channel();
        match lock(waiting).as_mut() {
            Some(questions) => questions.insert(correlation, sender),
            None => return Err(RequestError::Ended(self.why())),
        };
        Ok(Question { waiting, correlation, answer })
    }

    fn why(&self) -> Ended {
        self.0.client.ended().cloned().unwrap_or(Ended::ByUs)
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
