//! Numeric fields of packets.

use core::fmt;
use core::num::{NonZeroU16, NonZeroU32};

use crate::read::Reader;
use crate::rule::{self, Fault};
use crate::sink::Sink;
use crate::varint;
use crate::version::Version;
use crate::walk::Field;

/// Packet identifier (section 2.2.1): a number from 1 to 65,535 that links a packet to its acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketId(NonZeroU16);

impl PacketId {
    /// The lowest identifier: 1.
    pub const MIN: Self = Self(NonZeroU16::MIN);
    /// The highest identifier: 65,535.
    pub const MAX: Self = Self(NonZeroU16::MAX);

    /// Makes an identifier from a number; `None` for 0.
    pub const fn new(id: u16) -> Option<Self> {
        match NonZeroU16::new(id) {
            Some(id) => Some(Self(id)),
            None => None,
        }
    }

    /// The number, from 1 to 65,535.
    pub const fn value(self) -> u16 {
        self.0.get()
    }
}

/// Topic alias (section 3.3.2.3.4): a number from 1 to 65,535 that a PUBLISH uses in place of a topic name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicAlias(NonZeroU16);

impl TopicAlias {
    /// Makes an alias from a number; `None` for 0.
    pub const fn new(alias: u16) -> Option<Self> {
        match NonZeroU16::new(alias) {
            Some(alias) => Some(Self(alias)),
            None => None,
        }
    }

    /// The number, from 1 to 65,535.
    pub const fn value(self) -> u16 {
        self.0.get()
    }
}

/// Subscription identifier (section 3.8.2.1.2): a number from 1 to 268,435,455 that a client gives a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionIdentifier(NonZeroU32);

impl SubscriptionIdentifier {
    /// Makes an identifier from a number; `None` for 0 and for numbers over 268,435,455.
    pub const fn new(id: u32) -> Option<Self> {
        match NonZeroU32::new(id) {
            Some(valid) if id <= varint::MAX => Some(Self(valid)),
            _ => None,
        }
    }

    /// The number, from 1 to 268,435,455.
    pub const fn value(self) -> u32 {
        self.0.get()
    }
}

impl<'a> Field<'a> for SubscriptionIdentifier {
    fn read(from: &mut Reader<'a>) -> Result<Self, Fault> {
        Self::new(varint::read(from)?).ok_or(&rule::PROPERTY_OUT_OF_RANGE)
    }

    fn write<S: Sink + ?Sized>(&self, _: Version, sink: &mut S) -> Result<(), Fault> {
        varint::write(self.value() as usize, sink);
        Ok(())
    }
}

/// Payload Format Indicator (section 3.3.2.3.2): whether a payload is text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PayloadFormat {
    /// Unspecified bytes. An absent property has the same meaning.
    Unspecified = 0,
    /// Text in UTF-8. This crate does not check the payload.
    Utf8 = 1,
}

/// Maximum QoS (section 3.2.2.3.4): the highest QoS that a server supports. A server that supports QoS 2 omits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MaximumQos {
    /// QoS 0 only.
    AtMostOnce = 0,
    /// QoS 0 and 1.
    AtLeastOnce = 1,
}

macro_rules! display_values {
    ($($type:ty),*) => {$(
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.value().fmt(f)
            }
        }
    )*};
}

display_values!(PacketId, TopicAlias, SubscriptionIdentifier);

impl fmt::Display for PayloadFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (*self as u8).fmt(f)
    }
}

impl fmt::Display for MaximumQos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (*self as u8).fmt(f)
    }
}

/// Implements [`Field`] for numbers of a fixed width. Each line names the type, its integer on the wire, the
/// conversions, and the rule that a number outside of the type's range breaks.
macro_rules! number_fields {
    ($($type:ty, $integer:ty, $from:expr, $to:expr, $rule:ident;)*) => {$(
        impl<'a> Field<'a> for $type {
            #[inline]
            fn read(from: &mut Reader<'a>) -> Result<Self, Fault> {
                let from_integer: fn($integer) -> Option<$type> = $from;
                from_integer(<$integer>::from_be_bytes(from.array()?)).ok_or(&rule::$rule)
            }

            #[inline]
            fn write<S: Sink + ?Sized>(&self, _: Version, sink: &mut S) -> Result<(), Fault> {
                let to_integer: fn($type) -> $integer = $to;
                sink.put(&to_integer(*self).to_be_bytes());
                Ok(())
            }

            #[inline]
            fn write_behind<S: Sink + ?Sized>(&self, id: u8, sink: &mut S) -> Result<(), Fault> {
                let to_integer: fn($type) -> $integer = $to;
                let mut bytes = [id; 1 + size_of::<$integer>()];
                bytes[1..].copy_from_slice(&to_integer(*self).to_be_bytes());
                sink.put(&bytes);
                Ok(())
            }
        }
    )*};
}

number_fields! {
    u16, u16, Some, |value| value, PROPERTY_OUT_OF_RANGE;
    u32, u32, Some, |value| value, PROPERTY_OUT_OF_RANGE;
    NonZeroU16, u16, NonZeroU16::new, NonZeroU16::get, PROPERTY_OUT_OF_RANGE;
    NonZeroU32, u32, NonZeroU32::new, NonZeroU32::get, PROPERTY_OUT_OF_RANGE;
    PacketId, u16, PacketId::new, PacketId::value, PACKET_ID_0;
    TopicAlias, u16, TopicAlias::new, TopicAlias::value, TOPIC_ALIAS_0;
    bool, u8, |byte| match byte { 0 => Some(false), 1 => Some(true), _ => None }, u8::from, PROPERTY_OUT_OF_RANGE;
    PayloadFormat, u8,
        |byte| match byte { 0 => Some(Self::Unspecified), 1 => Some(Self::Utf8), _ => None },
        |format| format as u8, PROPERTY_OUT_OF_RANGE;
    MaximumQos, u8,
        |byte| match byte { 0 => Some(Self::AtMostOnce), 1 => Some(Self::AtLeastOnce), _ => None },
        |qos| qos as u8, PROPERTY_OUT_OF_RANGE;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [MQTT-3.3.2-8]
    #[test]
    fn identifiers_and_topic_aliases_are_never_0() {
        assert_eq!(PacketId::new(0), None);
        assert_eq!(PacketId::new(1), Some(PacketId::MIN));
        assert_eq!(PacketId::new(65_535), Some(PacketId::MAX));
        assert_eq!(TopicAlias::new(0), None);
        assert_eq!(SubscriptionIdentifier::new(0), None);
    }

    #[test]
    fn a_subscription_identifier_is_a_variable_byte_integer() {
        assert_eq!(
            SubscriptionIdentifier::new(268_435_455).map(SubscriptionIdentifier::value),
            Some(268_435_455)
        );
        assert_eq!(SubscriptionIdentifier::new(268_435_456), None);
    }
}
