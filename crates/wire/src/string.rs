//! Fields for strings, binary data and topics.

use core::fmt;

use topic::{TopicError, TopicName};

use crate::read::Reader;
use crate::rule::{self, Fault};
use crate::sink::Sink;
use crate::trace::{Bytes, Text};
use crate::version::Version;
use crate::walk::Field;

/// A string of MQTT (section 1.5.4): at most 65,535 bytes of UTF-8 without U+0000.
///
/// ```
/// # use pondhawk_wire::{Utf8, Utf8Error};
/// assert_eq!(Utf8::new("zähler-7")?.as_str(), "zähler-7");
/// assert_eq!(Utf8::new("a\0b"), Err(Utf8Error::Nul));
/// # Ok::<(), Utf8Error>(())
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Utf8<'a>(&'a str);

/// Error of making a [`Utf8`] from a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Utf8Error {
    /// The text has more than 65,535 bytes.
    TooLong,
    /// The text contains U+0000 \[MQTT-1.5.4-2\].
    Nul,
}

impl<'a> Utf8<'a> {
    /// The string without any characters.
    pub const EMPTY: Utf8<'static> = Utf8("");

    /// Checks `text`, at compile time if the string is a constant.
    ///
    /// # Errors
    /// If the text is too long or contains U+0000.
    pub const fn new(text: &'a str) -> Result<Self, Utf8Error> {
        if text.len() > u16::MAX as usize {
            return Err(Utf8Error::TooLong);
        }
        if has_nul(text.as_bytes()) { Err(Utf8Error::Nul) } else { Ok(Self(text)) }
    }

    /// The string as a `str`.
    pub const fn as_str(self) -> &'a str {
        self.0
    }

    /// Whether the string is empty.
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

/// Binary data of MQTT (section 1.5.6): at most 65,535 bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Binary<'a>(&'a [u8]);

/// Error of making a [`Binary`] from more than 65,535 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BinaryTooLong;

impl<'a> Binary<'a> {
    /// Checks the length of `bytes`.
    ///
    /// # Errors
    /// If `bytes` is too long.
    pub const fn new(bytes: &'a [u8]) -> Result<Self, BinaryTooLong> {
        if bytes.len() > u16::MAX as usize { Err(BinaryTooLong) } else { Ok(Self(bytes)) }
    }

    /// The data as a slice.
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

/// The topic name of a PUBLISH. An empty name, which needs an alias, is `None`.
impl<'a> Field<'a> for Option<TopicName<'a>> {
    #[inline]
    fn read(from: &mut Reader<'a>) -> Result<Self, Fault> {
        let text = from.text()?;
        match TopicName::new(text) {
            Ok(name) => Ok(Some(name)),
            Err(TopicError::Empty) => Ok(None),
            Err(TopicError::Wildcard) => Err(&rule::TOPIC_WILDCARD),
            // A length of two bytes cannot exceed the maximum.
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

/// A topic name in the Response Topic property.
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

/// Writes the string as in a trace: quoted, escaped and shortened.
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

/// Writes the length and the first bytes as in a trace. `{:#}` writes only the length.
impl fmt::Display for Binary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() { fmt::Debug::fmt(self, f) } else { Bytes(self.0).fmt(f) }
    }
}

/// Writes only the length. The bytes may be a secret, and logs contain debug output.
impl fmt::Debug for Binary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B", self.0.len())
    }
}

impl fmt::Display for ResponseTopic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Text(self.0.as_str()).fmt(f)
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

/// Writes a length of two bytes and then the bytes. The types of the callers limit them to 65,535.
#[inline]
pub(crate) fn put_counted<S: Sink + ?Sized>(bytes: &[u8], sink: &mut S) {
    let [.., high, low] = bytes.len().to_be_bytes();
    sink.put(&[high, low]);
    sink.put(bytes);
}

/// Writes `id` first, and then the same as [`put_counted`].
#[inline]
fn put_counted_behind<S: Sink + ?Sized>(id: u8, bytes: &[u8], sink: &mut S) {
    let [.., high, low] = bytes.len().to_be_bytes();
    sink.put(&[id, high, low]);
    sink.put(bytes);
}

/// Checks eight bytes at a time, because packets contain many strings.
#[inline]
const fn has_nul(bytes: &[u8]) -> bool {
    let mut found = 0;
    let mut rest = bytes;
    while let Some((word, tail)) = rest.split_first_chunk::<8>() {
        found |= zero_bytes(*word);
        rest = tail;
    }
    // The last eight bytes include the remaining ones. Some bytes are checked twice.
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

/// Returns a number other than 0 if and only if one of the bytes is 0.
#[inline]
const fn zero_bytes(word: [u8; 8]) -> u64 {
    let word = u64::from_ne_bytes(word);
    word.wrapping_sub(u64::from_ne_bytes([0x01; 8])) & !word & u64::from_ne_bytes([0x80; 8])
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::{String, ToString};

    use super::*;

    /// [MQTT-1.5.4-2, 3.1.1 MQTT-1.5.3-2]
    #[test]
    fn a_string_has_at_most_65_535_bytes_and_no_nul() {
        let longest = "ü".repeat(32_767) + "a";
        assert_eq!(longest.len(), 65_535);
        assert!(Utf8::new(&longest).is_ok());
        assert_eq!(Utf8::new(&(longest + "a")), Err(Utf8Error::TooLong));
        for len in 1..20 {
            for at in 0..len {
                let mut text = "a".repeat(len);
                assert!(Utf8::new(&text).is_ok());
                text.replace_range(at..=at, "\0");
                assert_eq!(Utf8::new(&text), Err(Utf8Error::Nul), "at {at} of {len}");
                text.replace_range(at..=at, "\u{1}");
                assert!(Utf8::new(&text).is_ok());
            }
        }
        assert_eq!(Binary::new(&[0; 65_536]), Err(BinaryTooLong));
    }

    #[test]
    fn debug_output_of_binary_data_shows_only_its_length() {
        let secret = Binary::new(b"correct horse").unwrap();
        assert_eq!(format!("{secret:?} {secret:#}"), "13 B 13 B");
    }

    #[test]
    fn a_trace_shows_one_line_of_each_string() {
        let text = "a\r\n\u{1b}[31m\"\u{7f}ü";
        assert_eq!(Utf8::new(text).unwrap().to_string(), r#""a\r\n\u{1b}[31m\"\u{7f}ü""#);
        let long: String = "x".repeat(65);
        assert_eq!(Utf8::new(&long).unwrap().to_string(), format!("\"{}\"…", "x".repeat(64)));
        assert_eq!(Binary::new(&[0xFF; 17]).unwrap().to_string(), format!("17 B {}…", "ff".repeat(16)));
        assert_eq!(Binary::new(b"").unwrap().to_string(), "0 B");
    }
}
