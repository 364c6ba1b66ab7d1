//! The values that fields are made of.

use core::fmt;
use core::num::{NonZeroU16, NonZeroU32};

use topic::{TopicError, TopicName};

use crate::read::Reader;
use crate::rule::{self, Fault};
use crate::sink::Sink;
use crate::trace::{Bytes, Text};
use crate::varint;
use crate::version::Version;
use crate::walk::Field;

/// A string as MQTT has them (section 1.5.4): at most 65,535 bytes of UTF-8 without U+0000.
///
/// ```
/// # use wire::{Utf8, Utf8Error};
/// assert_eq!(Utf8::new("zähler-7")?.as_str(), "zähler-7");
/// assert_eq!(Utf8::new("a\0b"), Err(Utf8Error::Nul));
/// # Ok::<(), Utf8Error>(())
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Utf8<'a>(&'a str);

/// Why a text is no [`Utf8`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Utf8Error {
    /// More than 65,535 bytes.
    TooLong,
    /// U+0000 \[MQTT-1.5.4-2\].
    Nul,
}

impl<'a> Utf8<'a> {
    /// The string without a character.
    pub const EMPTY: Utf8<'static> = Utf8("");

    /// Checks `text`; in a constant, at compile time.
    ///
    /// # Errors
    /// Too long, or U+0000.
    pub const fn new(text: &'a str) -> Result<Self, Utf8Error> {
        if text.len() > u16::MAX as usize {
            return Err(Utf8Error::TooLong);
        }
        if has_nul(text.as_bytes()) { Err(Utf8Error::Nul) } else { Ok(Self(text)) }
    }

    /// The text.
    pub const fn as_str(self) -> &'a str {
        self.0
    }

    /// Whether there is no character.
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> Field<'a> for Utf8<'a> {
    fn read(from: &mut Reader<'a>) -> Result<Self, Fault> {
        let text = from.text()?;
        Self::new(text).map_err(|_| &rule::NUL)
    }

    fn write<S: Sink + ?Sized>(&self, _: Version, sink: &mut S) -> Result<(), Fault> {
        put_counted(self.0.as_bytes(), sink);
        Ok(())
    }

    #[inline]
    fn write_behind<S: Sink + ?Sized>(&self, id: u8, sink: &mut S) -> Result<(), Fault> {
        put_counted_behind(id, self.0.as_bytes(), sink);
        Ok(())
    }
}

/// Looks at eight bytes at a time: strings are everywhere.
#[inline]
const fn has_nul(bytes: &[u8]) -> bool {
    let mut found = 0;
    let mut rest = bytes;
    while let Some((word, tail)) = rest.split_first_chunk::<8>() {
        found |= zero_bytes(*word);
        rest = tail;
    }
    // The last eight once more, with those that were left.
    if let Some(word) = bytes.last_chunk::<8>() {
        return (found | zero_bytes(*word)) != 0;
    }
    let mut found = false;
    while let Some((&byte, tail)) = rest.split_first() {
        found |= byte == 0;
        rest = tail;
    }
    found
}

/// Not 0 if and only if one of the bytes is 0.
#[inline]
const fn zero_bytes(word: [u8; 8]) -> u64 {
    let word = u64::from_ne_bytes(word);
    word.wrapping_sub(u64::from_ne_bytes([0x01; 8])) & !word & u64::from_ne_bytes([0x80; 8])
}

/// Binary data as MQTT has them (section 1.5.6): at most 65,535 bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Binary<'a>(&'a [u8]);

/// More than 65,535 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BinaryTooLong;

impl<'a> Binary<'a> {
    /// Checks the length of `bytes`.
    ///
    /// # Errors
    /// Too long.
    pub const fn new(bytes: &'a [u8]) -> Result<Self, BinaryTooLong> {
        if bytes.len() > u16::MAX as usize { Err(BinaryTooLong) } else { Ok(Self(bytes)) }
    }

    /// The bytes.
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Field<'a> for Binary<'a> {
    fn read(from: &mut Reader<'a>) -> Result<Self, Fault> {
        from.counted().map(Self)
    }

    fn write<S: Sink + ?Sized>(&self, _: Version, sink: &mut S) -> Result<(), Fault> {
        put_counted(self.0, sink);
        Ok(())
    }

    #[inline]
    fn write_behind<S: Sink + ?Sized>(&self, id: u8, sink: &mut S) -> Result<(), Fault> {
        put_counted_behind(id, self.0, sink);
        Ok(())
    }
}

/// Two bytes of length, and the bytes. The types of the callers hold no more than 65,535.
#[inline]
pub(crate) fn put_counted<S: Sink + ?Sized>(bytes: &[u8], sink: &mut S) {
    let [.., high, low] = bytes.len().to_be_bytes();
    sink.put(&[high, low]);
    sink.put(bytes);
}

/// As [`put_counted`], with `id` before it.
#[inline]
fn put_counted_behind<S: Sink + ?Sized>(id: u8, bytes: &[u8], sink: &mut S) {
    let [.., high, low] = bytes.len().to_be_bytes();
    sink.put(&[id, high, low]);
    sink.put(bytes);
}

/// The name in a PUBLISH, empty where an alias stands for it: `None`.
impl<'a> Field<'a> for Option<TopicName<'a>> {
    #[inline]
    fn read(from: &mut Reader<'a>) -> Result<Self, Fault> {
        let text = from.text()?;
        match TopicName::new(text) {
            Ok(name) => Ok(Some(name)),
            Err(TopicError::Empty) => Ok(None),
            Err(TopicError::Wildcard) => Err(&rule::TOPIC_WILDCARD),
            // Two bytes of length cannot say too long.
            Err(TopicError::Nul | TopicError::TooLong) => Err(&rule::TOPIC_NUL),
        }
    }

    #[inline]
    fn write<S: Sink + ?Sized>(&self, _: Version, sink: &mut S) -> Result<(), Fault> {
        put_counted(self.map_or("", TopicName::as_str).as_bytes(), sink);
        Ok(())
    }
}

impl<'a> Field<'a> for TopicName<'a> {
    fn read(from: &mut Reader<'a>) -> Result<Self, Fault> {
        Option::read(from)?.ok_or(&rule::TOPIC_EMPTY)
    }

    fn write<S: Sink + ?Sized>(&self, version: Version, sink: &mut S) -> Result<(), Fault> {
        Some(*self).write(version, sink)
    }
}

/// A topic name in a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResponseTopic<'a>(pub TopicName<'a>);

impl<'a> Field<'a> for ResponseTopic<'a> {
    fn read(from: &mut Reader<'a>) -> Result<Self, Fault> {
        match TopicName::read(from) {
            Err(fault) if core::ptr::eq(fault, &rule::TOPIC_WILDCARD) => Err(&rule::RESPONSE_TOPIC_WILDCARD),
            read => read.map(Self),
        }
    }

    fn write<S: Sink + ?Sized>(&self, version: Version, sink: &mut S) -> Result<(), Fault> {
        self.0.write(version, sink)
    }

    #[inline]
    fn write_behind<S: Sink + ?Sized>(&self, id: u8, sink: &mut S) -> Result<(), Fault> {
        put_counted_behind(id, self.0.as_str().as_bytes(), sink);
        Ok(())
    }
}

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

impl<'a> From<TopicName<'a>> for Utf8<'a> {
    fn from(name: TopicName<'a>) -> Self {
        Self(name.as_str())
    }
}

impl<'a> TryFrom<&'a str> for Utf8<'a> {
    type Error = Utf8Error;

    fn try_from(text: &'a str) -> Result<Self, Utf8Error> {
        Self::new(text)
    }
}

impl<'a> TryFrom<&'a [u8]> for Binary<'a> {
    type Error = BinaryTooLong;

    fn try_from(bytes: &'a [u8]) -> Result<Self, BinaryTooLong> {
        Self::new(bytes)
    }
}

impl AsRef<str> for Utf8<'_> {
    fn as_ref(&self) -> &str {
        self.0
    }
}

/// Quoted, escaped and cut, as in a trace.
impl fmt::Display for Utf8<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Text(self.0).fmt(f)
    }
}

impl fmt::Debug for Utf8<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0, f)
    }
}

/// The length, and as much as a trace shows.
impl fmt::Display for Binary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Bytes(self.0).fmt(f)
    }
}

impl fmt::Debug for Binary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0, f)
    }
}

impl fmt::Display for ResponseTopic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Text(self.0.as_str()).fmt(f)
    }
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

impl fmt::Display for Utf8Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "a string has at most 65,535 bytes",
            Self::Nul => "a string does not contain U+0000 [MQTT-1.5.4-2]",
        })
    }
}

impl fmt::Display for BinaryTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("binary data has at most 65,535 bytes")
    }
}

impl core::error::Error for Utf8Error {}
impl core::error::Error for BinaryTooLong {}
