use core::fmt;

use topic::TopicName;

use crate::header::PacketType;
use crate::number::{PacketId, TopicAlias};
use crate::packet::MessageProperties;
use crate::property::{Property, PropertySet, Slot, properties};
use crate::read::Reader;
use crate::repeated::SubscriptionIdentifiers;
use crate::rule::{self, Fault};
use crate::sink::Sink;
use crate::trace::{Bytes, Flag, Text};
use crate::version::{Qos, Role};
use crate::walk::{ControlPacket, Flags, Layout, Walk};

/// PUBLISH: an application message from one end to the other (section 3.3).
///
/// The fields of the message ([`properties`](Self::properties), [`payload`](Self::payload)) are separate from the
/// fields of this transmission. Forwarding a message is therefore a copy with some new values:
///
/// ```
/// use pondhawk_wire::{Delivery, PacketId, Publish, PublishTopic, TopicAlias, Version};
///
/// # let received = Publish::new(topic::topic!("a/b"), b"hey");
/// let sent = Publish {
///     delivery: Delivery::AtLeastOnce { packet_id: PacketId::MIN, dup: false },
///     topic: PublishTopic::Alias(TopicAlias::new(3).unwrap()),
///     ..received
/// };
/// let mut bytes = Vec::new();
/// sent.encode(Version::V5, &mut bytes)?;
/// assert_eq!(bytes, b"\x32\x0B\0\0\0\x01\x03\x23\0\x03hey");
/// # Ok::<(), pondhawk_wire::EncodeError>(())
/// ```
///
/// Before MQTT 5 there are no properties, and they are not written. An alias in place of the name is refused there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Publish<'a> {
    /// The topic of the message, by name or alias.
    pub topic: PublishTopic<'a>,
    /// The QoS, and the fields that depend on it.
    pub delivery: Delivery,
    /// RETAIN. From a publisher: the server has to store the message. To a subscriber: the message was stored.
    pub retain: bool,
    /// The subscriptions for which a server sends the message. A client sends none \[MQTT-3.3.4-6\].
    pub subscription_identifiers: SubscriptionIdentifiers<'a>,
    /// The properties that stay with the message.
    pub properties: MessageProperties<'a>,
    /// The payload: any bytes, possibly none.
    pub payload: &'a [u8],
}

/// The topic of a PUBLISH, which always has a name, an alias or both (section 3.3.2.3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PublishTopic<'a> {
    /// The name, without an alias.
    Name(TopicName<'a>),
    /// The name, for which the alias stands from now on.
    NameWithAlias(TopicName<'a>, TopicAlias),
    /// The alias of a name that an earlier packet contained.
    Alias(TopicAlias),
}

/// The QoS of a PUBLISH, with the fields that depend on it. QoS 0 has neither packet identifier nor DUP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// QoS 0: no acknowledgement.
    #[default]
    AtMostOnce,
    /// QoS 1: PUBACK acknowledges the message.
    AtLeastOnce {
        /// The identifier that PUBACK repeats.
        packet_id: PacketId,
        /// DUP: the packet may have been sent before.
        dup: bool,
    },
    /// QoS 2: PUBREC, PUBREL and PUBCOMP complete the exchange.
    ExactlyOnce {
        /// The identifier that PUBREC, PUBREL and PUBCOMP repeat.
        packet_id: PacketId,
        /// DUP: the packet may have been sent before.
        dup: bool,
    },
}

impl<'a> Publish<'a> {
    /// Makes a message at QoS 0, not retained, without properties.
    pub const fn new(topic: TopicName<'a>, payload: &'a [u8]) -> Self {
        Self {
            topic: PublishTopic::Name(topic),
            delivery: Delivery::AtMostOnce,
            retain: false,
            subscription_identifiers: SubscriptionIdentifiers::EMPTY,
            properties: MessageProperties::EMPTY,
            payload,
        }
    }

    #[inline]
    fn flags(&self) -> PublishFlags {
        PublishFlags { dup: self.delivery.dup(), qos: self.delivery.qos(), retain: self.retain }
    }
}

impl<'a> PublishTopic<'a> {
    /// The name, unless the packet has only an alias.
    pub const fn name(self) -> Option<TopicName<'a>> {
        match self {
            Self::Name(name) | Self::NameWithAlias(name, _) => Some(name),
            Self::Alias(_) => None,
        }
    }

    /// The alias, if there is one.
    pub const fn alias(self) -> Option<TopicAlias> {
        match self {
            Self::Name(_) => None,
            Self::NameWithAlias(_, alias) | Self::Alias(alias) => Some(alias),
        }
    }

    const fn new(name: Option<TopicName<'a>>, alias: Option<TopicAlias>) -> Option<Self> {
        match (name, alias) {
            (Some(name), None) => Some(Self::Name(name)),
            (Some(name), Some(alias)) => Some(Self::NameWithAlias(name, alias)),
            (None, Some(alias)) => Some(Self::Alias(alias)),
            (None, None) => None,
        }
    }
}

impl Delivery {
    /// The QoS of the packet.
    pub const fn qos(self) -> Qos {
        match self {
            Self::AtMostOnce => Qos::AtMostOnce,
            Self::AtLeastOnce { .. } => Qos::AtLeastOnce,
            Self::ExactlyOnce { .. } => Qos::ExactlyOnce,
        }
    }

    /// The packet identifier; `None` at QoS 0.
    pub const fn packet_id(self) -> Option<PacketId> {
        match self {
            Self::AtMostOnce => None,
            Self::AtLeastOnce { packet_id, .. } | Self::ExactlyOnce { packet_id, .. } => Some(packet_id),
        }
    }

    /// Whether the packet may have been sent before. Always false at QoS 0.
    pub const fn dup(self) -> bool {
        matches!(self, Self::AtLeastOnce { dup: true, .. } | Self::ExactlyOnce { dup: true, .. })
    }
}

/// The flags in the fixed header of PUBLISH (section 3.3.1).
pub(crate) struct PublishFlags {
    dup: bool,
    qos: Qos,
    retain: bool,
}

impl Flags for PublishFlags {
    #[inline]
    fn from_bits(bits: u8) -> Result<Self, Fault> {
        let qos = Qos::from_level(bits >> 1 & 0b11).ok_or(&rule::QOS_3)?;
        let dup = bits & 0b1000 != 0;
        if dup && qos == Qos::AtMostOnce {
            return Err(&rule::DUP_AT_QOS_0);
        }
        Ok(Self { dup, qos, retain: bits & 1 != 0 })
    }

    #[inline]
    fn bits(&self) -> u8 {
        u8::from(self.dup) << 3 | self.qos.level() << 1 | u8::from(self.retain)
    }
}

properties! {
    /// The property that belongs to the topic and not to the message.
    struct AliasProperties {
        TopicAlias => topic_alias: Option<TopicAlias>,
    }
}

/// The property that belongs to the receiving subscriber.
impl<'a> PropertySet<'a> for SubscriptionIdentifiers<'a> {
    fn take(&mut self, property: Property, at: &'a [u8], from: &mut Reader<'a>) -> Result<bool, Fault> {
        let is_ours = property == Property::SubscriptionIdentifier;
        if is_ours {
            Slot::take(self, at, from)?;
        }
        Ok(is_ours)
    }

    #[inline]
    fn put<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), Fault> {
        self.write(sink)
    }

    #[inline]
    fn is_empty(&self) -> bool {
        Self::is_empty(self)
    }
}

impl<'a> ControlPacket<'a> for Publish<'a> {
    const TYPE: PacketType = PacketType::Publish;

    #[inline]
    fn flag_bits(&self) -> u8 {
        self.flags().bits()
    }
}

impl<'a> Layout<'a> for Publish<'a> {
    // A broker writes no packet as often as this one: both walks of encoding are inlined into one function.
    #[inline(always)]
    fn layout<W: Walk<'a, Self>>(walk: &mut W) -> Result<W::Built, Fault> {
        let PublishFlags { dup, qos, retain } = walk.flags(Publish::flags)?;
        let name = walk.field(|packet| packet.topic.name())?;
        let delivery = match qos {
            Qos::AtMostOnce => Delivery::AtMostOnce,
            Qos::AtLeastOnce => Delivery::AtLeastOnce { packet_id: packet_id(walk)?, dup },
            Qos::ExactlyOnce => Delivery::ExactlyOnce { packet_id: packet_id(walk)?, dup },
        };
        let (AliasProperties { topic_alias }, subscription_identifiers, properties) =
            walk.property_sets(|packet| {
                let topic_alias = packet.topic.alias();
                (AliasProperties { topic_alias }, &packet.subscription_identifiers, &packet.properties)
            })?;
        let topic = PublishTopic::new(name, topic_alias).ok_or(&rule::TOPIC_EMPTY)?;
        let from_client = walk.sender() == Some(Role::Client);
        walk.check(
            !from_client || subscription_identifiers.is_empty(),
            &rule::SUBSCRIPTION_IDENTIFIER_FROM_CLIENT,
        )?;
        let payload = walk.rest(|packet| packet.payload)?;
        Ok(walk.build(|| Self { topic, delivery, retain, subscription_identifiers, properties, payload }))
    }
}

/// Reads or writes the packet identifier of QoS 1 and 2.
#[inline]
fn packet_id<'a, W: Walk<'a, Publish<'a>>>(walk: &mut W) -> Result<PacketId, Fault> {
    // The flags, which come from the same delivery, say that there is an identifier. The default is never used.
    walk.field(|packet| packet.delivery.packet_id().unwrap_or(PacketId::MIN))
}

/// Writes the packet as in `PUBLISH q1 id=7 dup retain "a/b" 3 B "hey"`.
impl fmt::Display for Publish<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { topic, delivery, retain, properties, payload, .. } = *self;
        write!(f, "PUBLISH {}", delivery.qos())?;
        if let Some(packet_id) = delivery.packet_id() {
            write!(f, " id={packet_id}")?;
        }
        write!(f, "{}{}", Flag(delivery.dup(), "dup"), Flag(retain, "retain"))?;
        if let Some(name) = topic.name() {
            write!(f, " {}", Text(name.as_str()))?;
        }
        AliasProperties { topic_alias: topic.alias() }.fmt(f)?;
        self.subscription_identifiers.show(Property::SubscriptionIdentifier, f)?;
        write!(f, "{properties} {}", Bytes(payload))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use topic::topic;

    use super::*;
    use crate::{Decoded, EncodeError, Limits, Packet, SubscriptionIdentifier, Version, decode};

    fn encoded(packet: &Publish<'_>, version: Version) -> Result<Vec<u8>, EncodeError> {
        let mut bytes = Vec::new();
        packet.encode(version, &mut bytes).map(|_| bytes)
    }

    fn publish(bytes: &[u8]) -> Publish<'_> {
        match decode(bytes, Some(Version::V5), &Limits::default()) {
            Ok(Decoded::Packet { packet: Packet::Publish(publish), .. }) => publish,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_alias_in_place_of_the_name_is_refused_before_5() {
        let alias = TopicAlias::new(1).unwrap();
        let packet = Publish { topic: PublishTopic::Alias(alias), ..Publish::new(topic!("a"), b"") };
        assert!(matches!(encoded(&packet, Version::V3_1_1), Err(EncodeError::Forbidden(_))));
        let packet = Publish { topic: PublishTopic::NameWithAlias(topic!("a"), alias), ..packet };
        assert_eq!(encoded(&packet, Version::V3_1_1).unwrap(), b"\x30\x03\0\x01a");
    }

    #[test]
    fn forwarding_changes_the_leg_and_keeps_the_message() {
        let received = publish(b"\x31\x1D\0\x01a\x16#\0\x07&\0\x01k\0\x01v\x02\0\0\0\x3C&\0\x01k\0\x01wxyz");
        let identifiers = [3, 4].map(|id| SubscriptionIdentifier::new(id).unwrap());
        let mut sent = Publish {
            topic: PublishTopic::Name(received.topic.name().unwrap()),
            delivery: Delivery::ExactlyOnce { packet_id: PacketId::MAX, dup: true },
            retain: false,
            subscription_identifiers: SubscriptionIdentifiers::from(&identifiers[..]),
            ..received
        };
        sent.properties.message_expiry_interval_secs = Some(59);
        let bytes = encoded(&sent, Version::V5).unwrap();
        assert_eq!(
            bytes,
            b"\x3C\x20\0\x01a\xFF\xFF\x17\x0B\x03\x0B\x04\x02\0\0\0\x3B&\0\x01k\0\x01v&\0\x01k\0\x01wxyz"
        );
        assert_eq!(publish(&bytes), sent);
    }

    /// [MQTT-2.2.1-2, MQTT-3.3.1-2, 3.1.1 MQTT-2.3.1-5, 3.1.1 MQTT-3.3.1-2]
    #[test]
    fn qos_0_has_neither_identifier_nor_dup() {
        assert_eq!((Delivery::AtMostOnce.packet_id(), Delivery::AtMostOnce.dup()), (None, false));
        let delivery = Delivery::AtLeastOnce { packet_id: PacketId::MIN, dup: true };
        assert_eq!(
            (delivery.qos(), delivery.packet_id(), delivery.dup()),
            (Qos::AtLeastOnce, Some(PacketId::MIN), true)
        );
    }
}
