//! SUBSCRIBE and UNSUBSCRIBE, and their answers.

use base::Now;
use wire::{
    OneOrMore, Packet, PacketId, ReasonCode, RequestedFilter, SubAck, Subscribe, SubscribeProperties,
    Subscription, UnsubAck, Unsubscribe, UnsubscribeProperties, Violation,
};

use super::connection::Link;
use super::{Client, Event, RequestError, violation};

/// Maximum number of identifiers in use when a request needs another: three quarters of all identifiers.
const USED_MAX: usize = 49_152;

/// Kind of request of an identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Subscribe,
    Unsubscribe,
}

impl<T> Client<T> {
    /// Subscribes: writes SUBSCRIBE. [`Event::Subscribed`] has the identifier that is returned here.
    ///
    /// A request ends with its connection, with or without an answer.
    ///
    /// # Errors
    /// [`RequestError`]; then nothing was written.
    pub fn subscribe(
        &mut self,
        subscriptions: OneOrMore<'_, Subscription<'_>>,
        properties: SubscribeProperties<'_>,
        now: Now,
        into: &mut Vec<u8>,
    ) -> Result<PacketId, RequestError> {
        let packet_id = self.request_id()?;
        let Some(link) = &mut self.link else { return Err(RequestError::NotConnected) };
        let has_identifier = properties.subscription_identifier.is_some();
        if has_identifier && !link.server.subscription_identifiers_available {
            return Err(RequestError::SubscriptionIdentifiersNotSupported);
        }
        for filter in subscriptions.iter().filter_map(|subscription| subscription.filter().ok()) {
            if filter.has_wildcard() && !link.server.wildcard_subscriptions_available {
                return Err(RequestError::WildcardSubscriptionsNotSupported);
            }
            if filter.shared().is_some() && !link.server.shared_subscriptions_available {
                return Err(RequestError::SharedSubscriptionsNotSupported);
            }
        }
        let count = subscriptions.iter().count();
        let packet = Subscribe { packet_id, properties, subscriptions };
        link.request(&packet.into(), now, into)?;
        link.requests.insert(packet_id, (Kind::Subscribe, count));
        Ok(packet_id)
    }

    /// Unsubscribes: writes UNSUBSCRIBE. [`Event::Unsubscribed`] has the identifier that is returned here.
    ///
    /// # Errors
    /// [`RequestError`]; then nothing was written.
    pub fn unsubscribe(
        &mut self,
        filters: OneOrMore<'_, RequestedFilter<'_>>,
        properties: UnsubscribeProperties<'_>,
        now: Now,
        into: &mut Vec<u8>,
    ) -> Result<PacketId, RequestError> {
        let packet_id = self.request_id()?;
        let Some(link) = &mut self.link else { return Err(RequestError::NotConnected) };
        let count = filters.iter().count();
        let packet = Unsubscribe { packet_id, properties, filters };
        link.request(&packet.into(), now, into)?;
        link.requests.insert(packet_id, (Kind::Unsubscribe, count));
        Ok(packet_id)
    }

    /// Finds an identifier that neither a message nor a request uses [MQTT-2.2.1-3].
    fn request_id(&mut self) -> Result<PacketId, RequestError> {
        let Some(link) = self.link.as_ref().filter(|link| link.is_connected) else {
            return Err(RequestError::NotConnected);
        };
        if self.outbound.len() + link.requests.len() >= USED_MAX {
            return Err(RequestError::TooMany);
        }
        Ok(self.outbound.unused(|packet_id| link.requests.contains_key(&packet_id)))
    }

    pub(super) fn handle_suback<'p>(&mut self, packet: SubAck<'p>) -> Result<Event<'p, T>, Violation> {
        let Some(link) = &mut self.link else { return Ok(Event::None) };
        let statements = ["MQTT-3.8.4-6", "MQTT-3.8.4-5"];
        link.answered(packet.packet_id, Kind::Subscribe, Some(packet.reasons.iter().count()), statements)?;
        Ok(Event::Subscribed(packet))
    }

    pub(super) fn handle_unsuback<'p>(&mut self, packet: UnsubAck<'p>) -> Result<Event<'p, T>, Violation> {
        let Some(link) = &mut self.link else { return Ok(Event::None) };
        let count = packet.reasons.map(|reasons| reasons.iter().count());
        let statements = ["MQTT-3.11.3-1", "MQTT-3.10.4-4"];
        link.answered(packet.packet_id, Kind::Unsubscribe, count, statements)?;
        Ok(Event::Unsubscribed(packet))
    }
}

impl Link {
    fn request(&mut self, packet: &Packet<'_>, now: Now, into: &mut Vec<u8>) -> Result<(), RequestError> {
        let start = into.len();
        let len = packet.encode(self.version, into).map_err(RequestError::Packet)?;
        if len > self.server.packet_bytes_max {
            into.truncate(start);
            return Err(RequestError::TooLarge);
        }
        self.note_sent(true, now);
        Ok(())
    }

    /// `count` is the number of reason codes in the answer, where the version has any.
    fn answered(
        &mut self,
        packet_id: PacketId,
        kind: Kind,
        count: Option<usize>,
        statements: [&'static str; 2],
    ) -> Result<(), Violation> {
        let asked = self.requests.get(&packet_id).filter(|(asked, _)| *asked == kind);
        if asked.is_some_and(|(_, asked)| count.is_none_or(|count| count == *asked)) {
            self.requests.remove(&packet_id);
            return Ok(());
        }
        let text = "an answer to nothing that was asked";
        Err(violation(self, ReasonCode::ProtocolError, statements, text))
    }
}
