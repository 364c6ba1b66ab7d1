//! Stages that handle the messages of a subscription in parallel, each with a bounded number of workers.
//!
//! ```no_run
//! use pondhawk_client::pipeline::{Failed, Pipeline, Workers};
//! use pondhawk_client::{Acknowledge, Client, Message, Options, Outgoing, PubAckReason, PublishError};
//! use pondhawk_client::{Qos, Version, filter, topic};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let options = Options::new(Version::V5).client_id("importer").acknowledge(Acknowledge::ByApplication);
//! let from = Client::connect_tcp("localhost:1883", options).await?;
//! let to = Client::connect_tcp("localhost:1883", Options::new(Version::V5).client_id("exporter")).await?;
//!
//! let orders = from.subscribe(filter!("orders/#"), Qos::AtLeastOnce).await?;
//! let mut published = Pipeline::new(orders)
//!     .filter(Workers::unordered(4), |order: &Message| order.payload().starts_with(b"{"))
//!     .map(Workers::unordered(4), |order: Message| order.payload().to_ascii_uppercase())
//!     .then(Workers::ordered(16), move |text: Vec<u8>| {
//!         let to = to.clone();
//!         async move {
//!             let order = Outgoing::new(topic!("loud/orders"), &text).qos(Qos::AtLeastOnce);
//!             to.publish(&order).await?.await.map(Some)
//!         }
//!     });
//! while let Some(outcome) = published.next().await {
//!     match outcome {
//!         Ok(job) => {
//!             job.acknowledge();
//!         }
//!         Err(Failed { message, error }) => {
//!             let error: PublishError = error;
//!             eprintln!("{message:?}: {error}");
//!             message.refuse(PubAckReason::UnspecifiedError);
//!         }
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Workers and their bounds
//! Each call of a stage's function is a task of tokio. The calls of a stage run in parallel if the runtime has several
//! threads, and all stages run beside each other. A stage has at most as many messages as it has [workers](Workers) and
//! places in its [buffer](Workers::buffer). These messages include the results that wait for the next stage or for the
//! caller. A full stage takes no message from the stage before, and the first stage takes none from the subscription. The
//! bounds of the subscription's stream then apply, and the server stores further messages; see the back pressure of the
//! [`crate`].
//!
//! The function of a stage may wait, but should not occupy its thread for long. `tokio::task::spawn_blocking` is for that.
//!
//! # Acknowledgements
//! With [`Acknowledge::ByApplication`], a message of QoS 1 or 2 is acknowledged when all stages are done with it: by the
//! caller, with [`Job::acknowledge`], or by the stage that drops the message as unwanted. A message that was not
//! acknowledged arrives again in the next connection of a lasting session. Each message is therefore handled at least once,
//! whatever is interrupted. A program that ends between a published result and the acknowledgement publishes the result
//! again.
//!
//! Without [`Acknowledge::ByApplication`], a message of QoS 1 is acknowledged when the first stage takes it, and a message
//! of QoS 2 when it is in the stream of the subscription. A program that ends then loses all messages in the stages, and at
//! QoS 2 those in the stream too. Messages of QoS 0 are lost in both cases.
//!
//! # Errors, panics and cancellation
//! An error of a stage passes through the later stages to the caller, with its message. The other messages continue. The
//! caller decides whether to acknowledge or refuse the message of the error. A panic in a stage continues in the caller.
//!
//! Dropping the future of [`next`](Pipeline::next) loses nothing. Dropping the pipeline cancels the stages and the calls
//! that have not ended, and drops their messages without an acknowledgement.
//!
//! # Two connections
//! A stage that publishes should use another connection than the subscription. The server's acknowledgement arrives behind
//! the messages that the server sent before it, and a full pipeline does not read these messages.
//!
//! [`Acknowledge::ByApplication`]: crate::Acknowledge::ByApplication

use std::error::Error;
use std::fmt;
use std::panic::resume_unwind;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as Task, Poll, ready};

use futures_core::Stream;
use futures_util::StreamExt;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;

use crate::message::Message;

/// The messages of a subscription behind one or more stages, with the results of the last one.
///
/// `T` is the type of the results, and `E` that of the errors. Before the first stage, the results are the messages. The
/// pipeline ends after the last message of the subscription has passed all stages.
#[must_use = "a pipeline that is dropped is cancelled"]
pub struct Pipeline<T, E> {
    jobs: Jobs<T, E>,
}

type Jobs<T, E> = Pin<Box<dyn Stream<Item = Result<Job<T>, Failed<E>>> + Send>>;

/// A message in a pipeline, with the result of the last stage.
#[derive(Debug)]
#[must_use = "with `Acknowledge::ByApplication`, the message of the job has to be acknowledged or refused"]
pub struct Job<T> {
    /// The message of the subscription.
    pub message: Message,
    /// The result of the last stage.
    pub value: T,
}

/// The error of a stage, with the message for which the stage failed.
#[derive(Debug)]
pub struct Failed<E> {
    /// The message of the subscription, which is not acknowledged.
    pub message: Message,
    /// The error that the stage returned.
    pub error: E,
}

/// Number of workers of a stage, the size of its buffer, and the order of its results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workers {
    workers: usize,
    buffer: usize,
    is_ordered: bool,
}

impl Workers {
    /// A stage with at most this many calls at a time, which returns each result as soon as there is one. 0 counts as 1.
    #[must_use]
    pub fn unordered(workers: usize) -> Self {
        Self { workers: workers.max(1), buffer: 0, is_ordered: false }
    }

    /// The same, with results in the order in which the stage takes the messages.
    ///
    /// A worker whose result waits for an earlier result takes no other message.
    #[must_use]
    pub fn ordered(workers: usize) -> Self {
        Self { is_ordered: true, ..Self::unordered(workers) }
    }

    /// Maximum number of results that wait for the next stage, or for the caller, while all workers are busy. The default
    /// is 0.
    #[must_use]
    pub fn buffer(self, results_max: usize) -> Self {
        Self { buffer: results_max.min(Semaphore::MAX_PERMITS - 1), ..self }
    }
}

impl<E: Send + 'static> Pipeline<Message, E> {
    /// A pipeline without stages, over the messages of a subscription or of an inbox.
    pub fn new(messages: impl Stream<Item = Message> + Send + 'static) -> Self {
        let jobs = messages.map(|message| Ok(Job { value: message.clone(), message }));
        Self { jobs: Box::pin(jobs) }
    }
}

impl<T: Send + 'static, E: Send + 'static> Pipeline<T, E> {
    /// Adds a stage that only lets some messages through. The others are acknowledged.
    pub fn filter<F>(self, workers: Workers, is_wanted: F) -> Self
    where
        F: Fn(&T) -> bool + Send + Sync + 'static,
    {
        self.then(workers, move |value| {
            let value = is_wanted(&value).then_some(value);
            async { Ok(value) }
        })
    }

    /// Adds a stage that applies a function to each result.
    pub fn map<U, F>(self, workers: Workers, function: F) -> Pipeline<U, E>
    where
        U: Send + 'static,
        F: Fn(T) -> U + Send + Sync + 'static,
    {
        self.then(workers, move |value| {
            let value = function(value);
            async { Ok(Some(value)) }
        })
    }

    /// Adds a stage that applies an asynchronous function to each result.
    ///
    /// `None` drops the message, which is acknowledged. An error goes to the caller, with its message.
    ///
    /// # Panics
    /// Outside of a tokio runtime, on which the stage becomes a task.
    pub fn then<U, F, R>(self, workers: Workers, function: F) -> Pipeline<U, E>
    where
        U: Send + 'static,
        F: Fn(T) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Option<U>, E>> + Send,
    {
        let function = Arc::new(function);
        let calls = self.jobs.map(move |job| {
            let call = job.map(|Job { message, value }| {
                let function = Arc::clone(&function);
                (message, Call(tokio::spawn(async move { function(value).await })))
            });
            outcome(call)
        });
        // A full channel has one more result, while a worker waits.
        let (to, results) = mpsc::channel(workers.buffer + 1);
        let task = if workers.is_ordered {
            tokio::spawn(hand_over(calls.buffered(workers.workers), to))
        } else {
            tokio::spawn(hand_over(calls.buffer_unordered(workers.workers), to))
        };
        Pipeline { jobs: Box::pin(Stage { results, task: Some(Call(task)) }) }
    }
}

impl<T, E> Pipeline<T, E> {
    /// Waits for the next result or error; `None` after the last one. Dropping the future loses no message.
    pub async fn next(&mut self) -> Option<Result<Job<T>, Failed<E>>> {
        self.jobs.next().await
    }
}

impl<T, E> Stream for Pipeline<T, E> {
    type Item = Result<Job<T>, Failed<E>>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Option<Self::Item>> {
        self.jobs.as_mut().poll_next(task)
    }
}

impl<T, E> fmt::Debug for Pipeline<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline").finish_non_exhaustive()
    }
}

impl<T> Job<T> {
    /// Acknowledges the message, if the application acknowledges messages, and returns the result.
    pub fn acknowledge(self) -> T {
        self.message.acknowledge();
        self.value
    }
}

impl<E> fmt::Display for Failed<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a stage failed for the message {:?}", self.message)
    }
}

impl<E: Error + 'static> Error for Failed<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}

/// A message, and the call of a stage for it.
type Called<U, E> = (Message, Call<Result<U, E>>);

/// Waits for the result of a call. An earlier error passes.
async fn outcome<U, E>(call: Result<Called<U, E>, Failed<E>>) -> Result<Job<U>, Failed<E>> {
    let (message, call) = call?;
    match call.await {
        Ok(value) => Ok(Job { message, value }),
        Err(error) => Err(Failed { message, error }),
    }
}

/// Hands over the results of a stage to the next one.
async fn hand_over<U, E>(
    results: impl Stream<Item = Result<Job<Option<U>>, Failed<E>>>,
    to: mpsc::Sender<Result<Job<U>, Failed<E>>>,
) {
    let mut results = pin!(results.filter_map(|job| std::future::ready(wanted(job))));
    // Workers begin only if there is room for a result, so that the stage stays within its bound.
    while let Ok(room) = to.reserve().await {
        let Some(result) = results.next().await else { return };
        room.send(result);
    }
}

/// Acknowledges and drops a message for which a stage has no result.
fn wanted<U, E>(job: Result<Job<Option<U>>, Failed<E>>) -> Option<Result<Job<U>, Failed<E>>> {
    match job {
        Ok(Job { message, value: Some(value) }) => Some(Ok(Job { message, value })),
        Ok(Job { message, value: None }) => {
            message.acknowledge();
            None
        }
        Err(failed) => Some(Err(failed)),
    }
}

/// The results of a stage, which runs as a task.
struct Stage<T, E> {
    results: mpsc::Receiver<Result<Job<T>, Failed<E>>>,
    /// `None` after the end of the task.
    task: Option<Call<()>>,
}

impl<T, E> Stream for Stage<T, E> {
    type Item = Result<Job<T>, Failed<E>>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Option<Self::Item>> {
        let result = ready!(self.results.poll_recv(task));
        if let (None, Some(stage)) = (&result, &mut self.task) {
            // The stage has ended, perhaps by a panic, which continues here.
            ready!(Pin::new(stage).poll(task));
            self.task = None;
        }
        Poll::Ready(result)
    }
}

/// A task of a pipeline, which is cancelled when this handle is dropped.
struct Call<T>(JoinHandle<T>);

impl<T> Future for Call<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<T> {
        match ready!(Pin::new(&mut self.0).poll(task)).map_err(tokio::task::JoinError::try_into_panic) {
            Ok(value) => Poll::Ready(value),
            Err(Ok(panic)) => resume_unwind(panic),
            // Only the end of the runtime cancels a task that somebody waits for, and the caller's task ends with it.
            Err(Err(_)) => Poll::Pending,
        }
    }
}

impl<T> Drop for Call<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
