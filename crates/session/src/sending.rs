//! The window of a server's session: messages in flight to the client, and messages that wait behind them.

use wire::{Delivery, PacketId, Qos};

use crate::outbound::Outbound;
use crate::waiting::{Bound, WaitingQueue};
use crate::{Session, Wait, Waiting};

/// Messages of QoS 1 and 2 in flight.
#[derive(Debug)]
pub(crate) struct Sending<T> {
    /// The messages themselves are not kept: the ledger has those of lasting sessions, and others are never sent again.
    pub(crate) outbound: Outbound<()>,
    waiting: WaitingQueue<T>,
}

impl<T> Default for Sending<T> {
    fn default() -> Self {
        Self { outbound: Outbound::default(), waiting: WaitingQueue::default() }
    }
}

impl<T> Session<T> {
    /// Begins to send a message with QoS 1 or 2, under an unused packet identifier. `None` if the client's window is
    /// full [MQTT-4.9.0-2], or if other messages wait already.
    pub fn begin(&mut self, qos: Qos) -> Option<Delivery> {
        let window = usize::from(self.window);
        let sending = self.sending.get_or_insert_default();
        let has_place = sending.outbound.len() < window && sending.waiting.len() == 0;
        has_place.then(|| sending.begin(qos))
    }

    /// Begins to send a message under an identifier that the caller has chosen, within the window and not in use. With
    /// `dup`, it was sent on an earlier connection.
    pub fn begin_as(&mut self, packet_id: PacketId, qos: Qos, dup: bool) -> Delivery {
        self.sending.get_or_insert_default().outbound.begin(packet_id, qos, dup, ())
    }

    /// Writes, after a reconnect, the PUBREL of a message whose PUBREC arrived on an earlier connection. PUBCOMP is
    /// then expected.
    pub fn begin_release(&mut self, packet_id: PacketId, into: &mut Vec<u8>) {
        let packet = self.sending.get_or_insert_default().outbound.begin_release(packet_id, ());
        self.write(&packet.into(), into);
    }

    /// Lets a message wait behind the window, within this bound.
    pub fn wait_within(&mut self, waiting: Waiting<T>, bound: Bound) -> Wait {
        self.sending.get_or_insert_default().waiting.push(waiting, bound)
    }

    /// Lets a message wait that counts against no bound here, because the caller bounds it.
    pub fn wait_in_any_case(&mut self, waiting: Waiting<T>) {
        self.sending.get_or_insert_default().waiting.push_unbounded(waiting);
    }

    /// Removes the first waiting message if the window has room, and returns it with a packet identifier.
    pub fn next_waiting(&mut self) -> Option<(Waiting<T>, Delivery)> {
        let sending = self.sending.as_deref_mut()?;
        if sending.outbound.len() >= usize::from(self.window) {
            return None;
        }
        let waiting = sending.waiting.pop()?;
        let delivery = sending.begin(waiting.qos);
        Some((waiting, delivery))
    }

    /// Whether a message of QoS 1 or 2 would be sent at once.
    #[must_use]
    pub fn has_place(&self) -> bool {
        self.in_flight() < usize::from(self.window) && self.waiting_messages() == 0
    }

    /// The first waiting message.
    #[must_use]
    pub fn first_waiting(&self) -> Option<&Waiting<T>> {
        self.sending.as_ref()?.waiting.front()
    }

    /// Removes the first waiting message, which will not be sent.
    pub fn forget_waiting(&mut self) -> Option<Waiting<T>> {
        self.sending.as_mut()?.waiting.pop()
    }

    /// Number of messages that wait behind those in flight.
    #[must_use]
    pub fn waiting_messages(&self) -> usize {
        self.sending.as_ref().map_or(0, |sending| sending.waiting.len())
    }

    /// Size of the waiting messages, in bytes.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.sending.as_ref().map_or(0, |sending| sending.waiting.bytes())
    }

    /// Number of messages of QoS 1 and 2 in flight to the client.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.sending.as_ref().map_or(0, |sending| sending.outbound.len())
    }
}

impl<T> Sending<T> {
    fn begin(&mut self, qos: Qos) -> Delivery {
        let packet_id = self.outbound.unused(|_| false);
        self.outbound.begin(packet_id, qos, false, ())
    }
}
