//! What handles ask of the driver.

use tokio::sync::oneshot;
use topic::TopicFilterBuf;
use wire::{ReasonCode, SubscriptionOptions};

use crate::error::{AuthenticateError, DisconnectError, PublishError, SubscribeError, UnsubscribeError};
use crate::message::Messages;
use crate::outlet::Outlet;
use crate::owned::{OwnedDisconnect, OwnedSubscribe, OwnedUnsubscribe};

/// Where the answer to a command goes. Nobody may wait for it any more.
pub(crate) type Reply<T, E> = oneshot::Sender<Result<T, E>>;

/// An operation, whole. Each has its answer; without one, the connection has ended.
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

/// The end of the connection, behind the commands that were given before. It comes on a way of its own, so that its time
/// runs though none of them is taken.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) packet: OwnedDisconnect,
    pub(crate) reply: Reply<(), DisconnectError>,
}
