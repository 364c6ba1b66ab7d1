//! Properties (section 2.2.2): the table of all properties, and the sets of properties that packets carry.

use core::fmt;

use crate::read::Reader;
use crate::repeated::{Repeated, RepeatedField};
use crate::rule::{self, Fault};
use crate::sink::Sink;
use crate::varint;
use crate::version::Version;
use crate::walk::Field;

macro_rules! property_table {
    ($($id:literal $name:ident $text:literal $skip:ident;)*) => {
        /// Every property of MQTT 5, by its identifier.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Property {
            $(#[doc = concat!("`", stringify!($id), "` ", $text)] $name = $id,)*
        }

        impl Property {
            /// All 27 properties, in ascending order of their identifiers.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Returns the property with this identifier, if the standard has one.
            pub const fn from_id(id: u8) -> Option<Self> {
                match id {
                    $($id => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The identifier of the property on the wire.
            pub const fn id(self) -> u8 {
                self as u8
            }

            /// The name of the property in a trace, such as `content-type`.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// Skips a value of this property.
            pub(crate) fn skip(self, from: &mut Reader<'_>) -> Result<(), Fault> {
                match self {
                    $(Self::$name => skip::$skip(from),)*
                }
            }
        }
    };
}

property_table! {
    0x01 PayloadFormatIndicator "payload-format-indicator" byte;
    0x02 MessageExpiryInterval "message-expiry-interval" four_bytes;
    0x03 ContentType "content-type" counted;
    0x08 ResponseTopic "response-topic" counted;
    0x09 CorrelationData "correlation-data" counted;
    0x0B SubscriptionIdentifier "subscription-identifier" variable;
    0x11 SessionExpiryInterval "session-expiry-interval" four_bytes;
    0x12 AssignedClientIdentifier "assigned-client-identifier" counted;
    0x13 ServerKeepAlive "server-keep-alive" two_bytes;
    0x15 AuthenticationMethod "authentication-method" counted;
    0x16 AuthenticationData "authentication-data" counted;
    0x17 RequestProblemInformation "request-problem-information" byte;
    0x18 WillDelayInterval "will-delay-interval" four_bytes;
    0x19 RequestResponseInformation "request-response-information" byte;
    0x1A ResponseInformation "response-information" counted;
    0x1C ServerReference "server-reference" counted;
    0x1F ReasonString "reason-string" counted;
    0x21 ReceiveMaximum "receive-maximum" two_bytes;
    0x22 TopicAliasMaximum "topic-alias-maximum" two_bytes;
    0x23 TopicAlias "topic-alias" two_bytes;
    0x24 MaximumQos "maximum-qos" byte;
    0x25 RetainAvailable "retain-available" byte;
    0x26 UserProperty "user-property" pair;
    0x27 MaximumPacketSize "maximum-packet-size" four_bytes;
    0x28 WildcardSubscriptionAvailable "wildcard-subscription-available" byte;
    0x29 SubscriptionIdentifierAvailable "subscription-identifier-available" byte;
    0x2A SharedSubscriptionAvailable "shared-subscription-available" byte;
}

/// One function for each data type (section 2.2.2.2), which skips a value of this type.
mod skip {
    use super::{Fault, Reader, varint};

    pub(super) fn byte(from: &mut Reader<'_>) -> Result<(), Fault> {
        from.take(1).map(drop)
    }

    pub(super) fn two_bytes(from: &mut Reader<'_>) -> Result<(), Fault> {
        from.take(2).map(drop)
    }

    pub(super) fn four_bytes(from: &mut Reader<'_>) -> Result<(), Fault> {
        from.take(4).map(drop)
    }

    pub(super) fn variable(from: &mut Reader<'_>) -> Result<(), Fault> {
        varint::read(from).map(drop)
    }

    pub(super) fn counted(from: &mut Reader<'_>) -> Result<(), Fault> {
        from.counted().map(drop)
    }

    pub(super) fn pair(from: &mut Reader<'_>) -> Result<(), Fault> {
        counted(from)?;
        counted(from)
    }
}

/// A set of properties that one kind of packet may carry.
pub(crate) trait PropertySet<'a>: Default + Copy {
    /// Reads the value of `property` from `from` into the set. `at` is the rest of the block, from the identifier
    /// on.
    ///
    /// Returns false, and reads nothing, if the property does not belong to the set.
    fn take(&mut self, property: Property, at: &'a [u8], from: &mut Reader<'a>) -> Result<bool, Fault>;

    fn put<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), Fault>;

    fn is_empty(&self) -> bool;
}

/// Reads a block of properties, without the length before it. Each property goes to the set to which it belongs.
pub(crate) fn read_block<'a, A: PropertySet<'a>, B: PropertySet<'a>, C: PropertySet<'a>>(
    block: &'a [u8],
) -> Result<(A, B, C), Fault> {
    let mut sets = (A::default(), B::default(), C::default());
    let mut from = Reader::new(block, Version::V5);
    while let Some((&id, behind)) = from.rest.split_first() {
        let at = from.rest;
        from.rest = behind;
        let property = Property::from_id(id).ok_or(&rule::UNKNOWN_PROPERTY)?;
        let is_taken = sets.2.take(property, at, &mut from)?
            || sets.1.take(property, at, &mut from)?
            || sets.0.take(property, at, &mut from)?;
        if !is_taken {
            return Err(&rule::MISPLACED_PROPERTY);
        }
    }
    Ok(sets)
}

/// The set for packets without such properties.
impl<'a> PropertySet<'a> for () {
    fn take(&mut self, _: Property, _: &'a [u8], _: &mut Reader<'a>) -> Result<bool, Fault> {
        Ok(false)
    }

    #[inline]
    fn put<S: Sink + ?Sized>(&self, _: &mut S) -> Result<(), Fault> {
        Ok(())
    }

    #[inline]
    fn is_empty(&self) -> bool {
        true
    }
}

/// A field for the value of a property: an `Option` accepts one value, a [`Repeated`] accepts any number.
pub(crate) trait Slot<'a> {
    const EMPTY: Self;

    fn take(&mut self, at: &'a [u8], from: &mut Reader<'a>) -> Result<(), Fault>;
    fn put<S: Sink + ?Sized>(&self, property: Property, sink: &mut S) -> Result<(), Fault>;
    fn is_empty(&self) -> bool;
    fn show(&self, property: Property, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

impl<'a, T: Field<'a> + fmt::Display> Slot<'a> for Option<T> {
    const EMPTY: Self = None;

    #[inline]
    fn take(&mut self, _: &'a [u8], from: &mut Reader<'a>) -> Result<(), Fault> {
        if self.is_some() {
            return Err(&rule::DUPLICATE_PROPERTY);
        }
        *self = Some(T::read(from)?);
        Ok(())
    }

    #[inline]
    fn put<S: Sink + ?Sized>(&self, property: Property, sink: &mut S) -> Result<(), Fault> {
        let Some(value) = self else { return Ok(()) };
        value.write_behind(property.id(), sink)
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.is_none()
    }

    fn show(&self, property: Property, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Authentication data is secret. A trace shows only its length.
            Some(value) if property == Property::AuthenticationData => {
                write!(f, " {}={value:#}", property.as_str())
            }
            Some(value) => write!(f, " {}={value}", property.as_str()),
            None => Ok(()),
        }
    }
}

impl<'a, T: RepeatedField<'a>> Slot<'a> for Repeated<'a, T> {
    const EMPTY: Self = Repeated::EMPTY;

    fn take(&mut self, at: &'a [u8], from: &mut Reader<'a>) -> Result<(), Fault> {
        T::check_run(from)?;
        self.extend(at, from.rest);
        Ok(())
    }

    fn put<S: Sink + ?Sized>(&self, _: Property, sink: &mut S) -> Result<(), Fault> {
        self.write(sink)
    }

    #[inline]
    fn is_empty(&self) -> bool {
        Repeated::is_empty(self)
    }

    fn show(&self, property: Property, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|item| write!(f, " {}={item}", property.as_str()))
    }
}

/// Declares a set of properties: the identifier of each, and the field that stores its value.
macro_rules! properties {
    ($(#[$doc:meta])* $visibility:vis struct $name:ident $(<$life:lifetime>)? {
        $($(#[$field_doc:meta])* $property:ident => $field:ident: $type:ty,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        $visibility struct $name $(<$life>)? {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl $(<$life>)? $name $(<$life>)? {
            /// The set without any property.
            #[allow(dead_code)]
            $visibility const EMPTY: Self = Self { $($field: $crate::property::Slot::EMPTY,)* };

            /// Whether the set contains no property.
            #[allow(dead_code)]
            #[inline]
            $visibility fn is_empty(&self) -> bool {
                $crate::property::PropertySet::is_empty(self)
            }
        }

        impl<'a> $crate::property::PropertySet<'a> for $name $(<$life>)? {
            #[inline]
            fn take(
                &mut self,
                property: $crate::property::Property,
                at: &'a [u8],
                from: &mut $crate::read::Reader<'a>,
            ) -> Result<bool, $crate::rule::Fault> {
                match property {
                    $($crate::property::Property::$property => {
                        $crate::property::Slot::take(&mut self.$field, at, from)?;
                    })*
                    #[allow(unreachable_patterns)]
                    _ => return Ok(false),
                }
                Ok(true)
            }

            #[inline]
            fn put<S: $crate::Sink + ?Sized>(&self, sink: &mut S) -> Result<(), $crate::rule::Fault> {
                $($crate::property::Slot::put(&self.$field, $crate::property::Property::$property, sink)?;)*
                Ok(())
            }

            #[inline]
            fn is_empty(&self) -> bool {
                true $(&& $crate::property::Slot::is_empty(&self.$field))*
            }
        }

        /// Writes ` name=value` for each property.
        impl $(<$life>)? core::fmt::Display for $name $(<$life>)? {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                $($crate::property::Slot::show(&self.$field, $crate::property::Property::$property, f)?;)*
                Ok(())
            }
        }
    };
}
pub(crate) use properties;
