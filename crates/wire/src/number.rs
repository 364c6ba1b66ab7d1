//! Numbers as fields.

use core::fmt;
use core::num::{NonZeroU16, NonZeroU32};

use crate::read::Reader;
use crate::rule::{self, Fault};
use crate::sink::Sink;
use crate::varint;
use crate::version::Version;
use crate::walk::Field;

/// Tells apart what is under way (section 2.2.1): 1 to 65,535.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketId(NonZeroU16);

impl PacketId {
    /// 1.
    pub const MIN: Self = Self(NonZeroU16::MIN);
    /// 65,535.
    pub const MAX: Self = Self(NonZeroU16::MAX);

    /// The identifier with this number, unless that is 0.
    pub const fn new(id: u16) -> Option<Self> {
        match NonZeroU16::new(id) {
            Some(id) => Some(Self(id)),
            None => None,
        }
    }

    /// 1 to 65,535.
    pub const fn value(self) -> u16 {
        self.0.get()
    }
}

/// The number that a PUBLISH uses in place of a topic (section 3.3.2.3.4): 1 to 65,535.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicAlias(NonZeroU16);

impl TopicAlias {
    /// The alias with this number, unless that is 0.
    pub const fn new(alias: u16) -> Option<Self> {
        match NonZeroU16::new(alias) {
            Some(alias) => Some(Self(alias)),
            None => None,
        }
    }

    /// 1 to 65,535.
    pub const fn value(self) -> u16 {
        self.0.get()
    }
}

/// The number that a client gives a subscription (section 3.8.2.1.2): 1 to 268,435,455.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionIdentifier(NonZeroU32);

impl SubscriptionIdentifier {
    /// The identifier with this number, if it is in range.
    pub const fn new(id: u32) -> Option<Self> {
        match NonZeroU32::new(id) {
            Some(valid) if id <= varint::MAX => Some(Self(valid)),
            _ => None,
        }
    }

    /// 1 to 268,435,455.
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

/// What kind of bytes a payload is (section 3.3.2.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PayloadFormat {
    /// Any bytes; the same as saying nothing.
    Unspecified = 0,
    /// Text in UTF-8. This crate does not look whether it is.
    Utf8 = 1,
}

/// The highest QoS that a server offers, if that is not 2 (section 3.2.2.3.4).
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

/// Numbers of a fixed width: the type, its integer, and the rule that a value breaks which it cannot hold.
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
    fn what_cannot_be_0_is_not() {
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
