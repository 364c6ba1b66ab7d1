//! Messages to `$CONTROL/…`: commands of administrators, which another thread carries out one after the other.

use std::sync::Arc;

use auth::{CONTROL_TOPIC, RESPONSE_TOPIC};
use base::{ConnectionId, Message, Realm, Ticket};
use protocol::{Command, Publish};
use session::Incoming;
use wire::ReasonCode;

use crate::effects::Outside;
use crate::fates::Unrouted;
use crate::pressure::Blocker;
use crate::{Effects, Shard};

/// Commands of an administrator in one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlRequest {
    /// The users and rules that the commands are about.
    pub realm: Realm,
    /// The user name of the administrator, if there is one.
    pub user: Option<Arc<str>>,
    /// The client identifier of the administrator.
    pub client_id: Arc<str>,
    /// The payload of the message.
    pub payload: Box<[u8]>,
}

/// Too many commands wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControlBusy;

/// The outcome of a [`ControlRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlAnswer {
    /// The message for everybody who has subscribed to answers, and may receive them.
    pub payload: Box<[u8]>,
}

/// A message to `$CONTROL/…` whose commands are being carried out. Packets behind it wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Controlling {
    ticket: Option<Ticket>,
}

impl Shard {
    /// Has the commands in a message carried out. The message goes to nobody.
    pub(crate) fn control(
        &mut self,
        id: ConnectionId,
        publish: &Incoming<'_>,
        to: &mut Outside<'_, impl Effects>,
    ) {
        self.count_received(id, publish, publish.packet.payload.len());
        let ticket = publish.ticket();
        if publish.topic().as_str() != CONTROL_TOPIC {
            // Nothing else has commands.
            self.fates.unrouted(self.counts_of(id), Unrouted::NoCommand, 1);
            return self.complete_some(id, ticket, ReasonCode::NoMatchingSubscribers, to);
        }
        let Some(subscriber) = self.clients.get(id).and_then(|client| client.subscriber.clone()) else {
            return;
        };
        let principal = subscriber.principal();
        let request = ControlRequest {
            realm: principal.realm,
            user: principal.user.clone(),
            client_id: Arc::clone(&subscriber.client_id),
            payload: publish.packet.payload.into(),
        };
        if to.control(id, request).is_err() {
            self.fates.unrouted(self.counts_of(id), Unrouted::Busy, 1);
            return self.complete_some(id, ticket, ReasonCode::QuotaExceeded, to);
        }
        if let Some(client) = self.clients.get_mut(id) {
            client.make_aside().controlling = Some(Controlling { ticket });
            self.block(id, Blocker::Control, to);
        }
    }

    /// The commands of a connection were carried out, for [`Effects::control`]. The connection may be gone.
    pub(crate) fn was_controlled(
        &mut self,
        id: ConnectionId,
        answer: &ControlAnswer,
        to: &mut Outside<'_, impl Effects>,
    ) {
        if let Some(message) = Message::of_control(RESPONSE_TOPIC, &answer.payload) {
            let message = Arc::new(message.charged_to(self.tally.budget()));
            to.command(Command::Publish(Publish::of_server(message)));
        }
        let Some(client) = self.clients.get_mut(id) else { return };
        let controlling = client.aside_mut().and_then(|aside| aside.controlling.take());
        client.tidy();
        let Some(Controlling { ticket }) = controlling else { return };
        self.complete_some(id, ticket, ReasonCode::Success, to);
        self.unblock_from(id, |blocker| matches!(blocker, Blocker::Control), to);
    }
}
