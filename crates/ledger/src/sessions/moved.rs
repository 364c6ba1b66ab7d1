//! Messages that have moved from groups into sessions.

use base::QueueId;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use wire::PacketId;

use crate::queue::in_flight::{Exchange, State};
use crate::record::{Incarnation, MessageId};

/// Messages that groups have given to members for good and that are on their way, by group and number: their records
/// lead to the group, which has them no more.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    pub(crate) messages: HashMap<(Incarnation, MessageId), (QueueId, PacketId), FixedState>,
}

impl Moved {
    /// An exchange of this session has begun, or was read from records.
    pub(crate) fn note(&mut self, exchange: &Exchange, session: QueueId) {
        if let (Some(group), State::Own(message, _)) = (exchange.moved_from, &exchange.state) {
            self.messages.insert((group, *message), (session, exchange.packet_id));
        }
    }

    /// Forgets an exchange that goes on or is over: only its identifier is in use, if at all.
    pub(crate) fn forget(&mut self, exchange: &Exchange) {
        if let (Some(group), State::Own(message, _)) = (exchange.moved_from, &exchange.state) {
            self.messages.remove(&(group, *message));
        }
    }
}
