//! Commands from the handles to the driver.

use tokio::sync::{mpsc, oneshot};
use topic::TopicFilterBuf;
use wire::{ReasonCode, SubscriptionOptions};

use crate::error::{AuthenticateError, DisconnectError, PublishError, SubscribeError, UnsubscribeError};
use crate::message::Messages;
use crate::outlet::Outlet;
use crate::owned::{OwnedDisconnect, OwnedSubscribe, OwnedUnsubscribe};
use crate::routes::Number;

/// Channel for the answer to a command. The caller may have dropped its end.
pub(crate) type Reply<T, E> = oneshot::Sender<Result<T, E>>;

/// One complete operation.
///
/// Each command is answered through its channel. A channel that closes without an answer means that the connection
/// has ended.
#[derive(Debug)]
pub(crate) enum Command {
    Publish {
        message: base::Message,
        reply: Reply<ReasonCode, PublishError>,
    },
    Subscribe {
        filter: TopicFilterBuf,
        options: SubscriptionOptions,
        is_for_answers: bool,
        reply: Reply<Granted, SubscribeError>,
    },
    Unsubscribe {
        filter: TopicFilterBuf,
        reply: Reply<ReasonCode, UnsubscribeError>,
    },
    Inbox(Outlet),
    SubscribeMany {
        subscribe: OwnedSubscribe,
        reply: Reply<Vec<ReasonCode>, SubscribeError>,
    },
    UnsubscribeMany {
        unsubscribe: OwnedUnsubscribe,
        reply: Reply<Vec<ReasonCode>, UnsubscribeError>,
    },
    Reauthenticate(Reply<(), AuthenticateError>),
    /// Answered when the session is stored.
    Stored(oneshot::Sender<()>),
}

/// Request to end the connection after the commands that were queued before.
///
/// Ends have a channel of their own, so that the time limit runs even while no command is accepted.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) packet: OwnedDisconnect,
    pub(crate) reply: Reply<(), DisconnectError>,
}

/// Subscriptions that nobody wants any more. The driver ends them.
///
/// Values that are dropped send here, because they cannot wait. The channel has no bound of its own: each number was a
/// subscription that the application made.
pub(crate) type Unwanted = mpsc::UnboundedSender<Number>;

/// A subscription on its way to the caller. If the caller gives up before receiving it, the subscription is ended.
#[derive(Debug)]
pub(crate) struct Granted {
    /// `None` once the caller has the stream.
    messages: Option<Messages>,
    number: Number,
    unwanted: Unwanted,
}

impl Granted {
    pub(crate) fn new(messages: Messages, number: Number, unwanted: Unwanted) -> Self {
        Self { messages: Some(messages), number, unwanted }
    }

    /// The stream, and the number of the subscription.
    pub(crate) fn take(mut self) -> Option<(Messages, Number)> {
        self.messages.take().map(|messages| (messages, self.number))
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        if self.messages.is_some() {
            // Without a driver there is no subscription to end.
            let _ = self.unwanted.send(self.number);
        }
    }
}
