//! Commands from the handles to the driver.

use tokio::sync::oneshot;
use topic::TopicFilterBuf;
use wire::{ReasonCode, SubscriptionOptions};

use crate::error::{AuthenticateError, DisconnectError, PublishError, SubscribeError, UnsubscribeError};
use crate::message::Messages;
use crate::outlet::Outlet;
use crate::owned::{OwnedDisconnect, OwnedSubscribe, OwnedUnsubscribe};

/// Channel for the answer to a command. The caller may have dropped its end.
pub(crate) type Reply<T, E> = oneshot::Sender<Result<T, E>>;

/// One complete operation.
///
/// Each command is answered through its channel. A channel that closes without an answer means that the connection
/// has ended.
#[derive(Debug)]
pub(crate) enum Command {
    Publish {
        message: session::Message,
        reply: Reply<ReasonCode, PublishError>,
    },
    Subscribe {
        filter: TopicFilterBuf,
        options: SubscriptionOptions,
        is_for_answers: bool,
        reply: Reply<Messages, SubscribeError>,
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
}

/// Request to end the connection after the commands that were queued before.
///
/// Ends have a channel of their own, so that the time limit runs even while no command is accepted.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) packet: OwnedDisconnect,
    pub(crate) reply: Reply<(), DisconnectError>,
}
