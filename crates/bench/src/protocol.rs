//! Control packets to bytes and back, as load tests need them: whole packets, and errors that name the server.

use wire::{
    Decoded, Limits, OneOrMore, Packet, PacketId, Qos, Role, Subscribe, SubscribeProperties, Subscription,
    TopicFilter, TopicName, Unsubscribe, UnsubscribeProperties, Version,
};

use crate::error::{Error, Result};

/// The bytes of a packet.
pub(crate) fn to_bytes<'a>(packet: impl Into<Packet<'a>>, version: Version) -> Vec<u8> {
    let mut bytes = Vec::new();
    let encoded = packet.into().encode(version, &mut bytes);
    encoded.expect("every packet of a load test is short, and one that all versions have");
    bytes
}

/// The packet that `bytes` are, which come from `sender`; `version` is `None` for a CONNECT.
///
/// # Errors
/// If they are no such packet.
pub(crate) fn packet_in(bytes: &[u8], version: Option<Version>, sender: Role) -> Result<Packet<'_>> {
    let limits = Limits { sender: Some(sender), ..Limits::default() };
    match wire::decode(bytes, version, &limits) {
        Ok(Decoded::Packet { packet, .. }) => Ok(packet),
        Ok(Decoded::Need { .. }) => Err(Error::Server("sent half a packet".to_owned())),
        Err(violation) => Err(Error::Server(format!("sent what MQTT forbids: {violation}"))),
    }
}

/// A SUBSCRIBE for one filter.
pub(crate) fn subscribe(packet_id: PacketId, filter: &str, qos: Qos, version: Version) -> Vec<u8> {
    let subscription = Subscription::with_qos(topic_filter(filter), qos);
    let subscriptions = OneOrMore::one(&subscription);
    to_bytes(Subscribe { packet_id, properties: SubscribeProperties::EMPTY, subscriptions }, version)
}

/// An UNSUBSCRIBE for one filter.
pub(crate) fn unsubscribe(packet_id: PacketId, filter: &str, version: Version) -> Vec<u8> {
    let filter = Ok(topic_filter(filter));
    let filters = OneOrMore::one(&filter);
    to_bytes(Unsubscribe { packet_id, properties: UnsubscribeProperties::EMPTY, filters }, version)
}

/// The name of a topic of the load tests.
pub(crate) fn topic_name(text: &str) -> TopicName<'_> {
    TopicName::new(text).expect("load tests use letters, digits and slashes")
}

/// A filter of the load tests.
pub(crate) fn topic_filter(text: &str) -> TopicFilter<'_> {
    TopicFilter::new(text)
        .expect("load tests use letters, digits, slashes and wildcards on levels of their own")
}
