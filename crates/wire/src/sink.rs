use alloc::vec::Vec;
use core::fmt;

use crate::rule::Rule;
use crate::version::Version;

/// A destination for encoded packets. `Vec<u8>`, [`SliceSink`] and [`Counter`] are sinks, and two methods make a
/// sink of a caller's own buffer.
pub trait Sink {
    /// Makes room for `len` more bytes.
    ///
    /// Encoding calls this method once per packet with the exact length, before the first byte. A packet is
    /// therefore written whole or not at all.
    ///
    /// # Errors
    /// [`Full`], if there is not enough room.
    fn reserve(&mut self, len: usize) -> Result<(), Full>;

    /// Appends `bytes`. Room for them has been reserved.
    fn put(&mut self, bytes: &[u8]);

    /// Appends one byte. Room for it has been reserved.
    #[inline]
    fn put_byte(&mut self, byte: u8) {
        self.put(&[byte]);
    }

    /// The counter of a sink that only counts bytes, or `None`. A block of properties that has been measured is
    /// added to this counter, which saves a second walk over the block.
    #[doc(hidden)]
    fn count(&mut self) -> Option<&mut usize> {
        None
    }
}

/// Error of a [`Sink`] that has no room for the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Error of encoding. No byte of the packet has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodeError {
    /// The sink has no room for a packet of this length.
    Full {
        /// Length of the packet in bytes, fixed header included.
        len: usize,
    },
    /// Remaining Length would be over its maximum of 268,435,455 bytes.
    TooLong,
    /// The version cannot express the packet, or a rule forbids the packet.
    Forbidden(Forbidden),
}

/// The rule that a packet would break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forbidden {
    rule: &'static Rule,
    version: Version,
}

impl Forbidden {
    /// The normative statement, as in [`Violation`](crate::Violation).
    pub fn statement(self) -> &'static str {
        self.rule.statement(self.version)
    }

    /// The rule in a few words.
    pub fn text(self) -> &'static str {
        self.rule.text
    }
}

impl EncodeError {
    pub(crate) fn forbidden(rule: &'static Rule, version: Version) -> Self {
        Self::Forbidden(Forbidden { rule, version })
    }
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { len } => write!(f, "no room for a packet of {len} bytes"),
            Self::TooLong => f.write_str("longer than a packet can be"),
            Self::Forbidden(rule) => write!(f, "{} [{}]", rule.text(), rule.statement()),
        }
    }
}

impl core::error::Error for EncodeError {}

impl Sink for Vec<u8> {
    fn reserve(&mut self, len: usize) -> Result<(), Full> {
        Vec::reserve(self, len);
        Ok(())
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    #[inline]
    fn put_byte(&mut self, byte: u8) {
        self.push(byte);
    }
}

impl<S: Sink + ?Sized> Sink for &mut S {
    fn reserve(&mut self, len: usize) -> Result<(), Full> {
        (**self).reserve(len)
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        (**self).put(bytes);
    }

    #[inline]
    fn put_byte(&mut self, byte: u8) {
        (**self).put_byte(byte);
    }

    #[inline]
    fn count(&mut self) -> Option<&mut usize> {
        (**self).count()
    }
}

/// A sink that writes into memory of fixed size.
///
/// ```
/// # use pondhawk_wire::{PingReq, SliceSink, Version};
/// let mut buffer = [0; 16];
/// let mut sink = SliceSink::new(&mut buffer);
/// PingReq.encode(Version::V5, &mut sink)?;
/// assert_eq!(sink.written(), [0xC0, 0x00]);
/// # Ok::<(), pondhawk_wire::EncodeError>(())
/// ```
#[derive(Debug)]
pub struct SliceSink<'b> {
    buffer: &'b mut [u8],
    len: usize,
}

impl<'b> SliceSink<'b> {
    /// Makes a sink that writes from the start of `buffer`.
    pub fn new(buffer: &'b mut [u8]) -> Self {
        Self { buffer, len: 0 }
    }

    /// The bytes that have been written.
    pub fn written(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

impl Sink for SliceSink<'_> {
    fn reserve(&mut self, len: usize) -> Result<(), Full> {
        if len <= self.buffer.len() - self.len { Ok(()) } else { Err(Full) }
    }

    /// # Panics
    /// If the bytes do not fit. [`reserve`](Sink::reserve) reports that before.
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.buffer[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

/// A sink that counts bytes and stores none, to measure a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// Number of bytes that have been counted.
    pub len: usize,
}

impl Sink for Counter {
    fn reserve(&mut self, _: usize) -> Result<(), Full> {
        Ok(())
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.len += bytes.len();
    }

    #[inline]
    fn count(&mut self) -> Option<&mut usize> {
        Some(&mut self.len)
    }
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;

    use super::*;
    use crate::{ConnAck, ConnAckProperties, Utf8};

    fn packet() -> ConnAck<'static> {
        let reason_string = Some(Utf8::new("all is well").unwrap());
        ConnAck {
            properties: ConnAckProperties { reason_string, ..ConnAckProperties::EMPTY },
            ..ConnAck::accepted(true)
        }
    }

    #[test]
    fn all_sinks_get_the_same_bytes() {
        let (mut vec, mut boxed, mut counter) = (Vec::new(), Box::new(Vec::new()), Counter::default());
        let len = packet().encode(Version::V5, &mut vec).unwrap();
        let dynamic: &mut dyn Sink = &mut *boxed;
        assert_eq!(packet().encode(Version::V5, dynamic), Ok(len));
        assert_eq!(packet().encode(Version::V5, &mut &mut counter), Ok(len));
        assert_eq!((vec.len(), *boxed, counter.len), (len, vec, len));
    }

    #[test]
    fn a_slice_takes_packets_while_they_fit() {
        let len = packet().encoded_len(Version::V5).unwrap();
        let mut buffer = [0; 64];
        let mut sink = SliceSink::new(&mut buffer[..2 * len + 1]);
        assert_eq!(packet().encode(Version::V5, &mut sink), Ok(len));
        assert_eq!(packet().encode(Version::V5, &mut sink), Ok(len));
        assert_eq!(packet().encode(Version::V5, &mut sink), Err(EncodeError::Full { len }));
        assert_eq!(sink.written().len(), 2 * len);
    }
}
