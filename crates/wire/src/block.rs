//! The properties of a packet on their way out.

use crate::property::PropertySet;
use crate::sink::{EncodeError, Full, Sink};
use crate::varint;

/// What is known of a packet's properties: nothing in the first walk over its fields, and all of it in the second, which
/// need not walk over the properties again.
#[allow(clippy::large_enum_variant)] // Lives on the stack for one packet; nothing may be allocated.
pub(crate) enum Block {
    Unknown,
    Empty,
    Known(Bytes),
}

/// Properties as they stand in a packet, without their length.
pub(crate) struct Bytes {
    bytes: [u8; BYTES_MAX],
    /// More than there is room for, if they did not fit.
    len: usize,
}

/// Few packets have more.
const BYTES_MAX: usize = 256;

impl Block {
    /// Puts the length of the properties, and the properties.
    #[inline]
    pub(crate) fn put<'a, T: PropertySet<'a>, S: Sink + ?Sized>(
        &mut self,
        set: &T,
        sink: &mut S,
    ) -> Result<(), EncodeError> {
        if let Self::Unknown = self {
            if set.is_empty() {
                *self = Self::Empty;
            } else {
                *self = Self::Known(Bytes { bytes: [0; BYTES_MAX], len: 0 });
                if let Self::Known(bytes) = self {
                    set.put(bytes)?;
                }
            }
        }
        match self {
            Self::Known(bytes) => bytes.put_behind_length(set, sink),
            _ => {
                sink.put(&[0]);
                Ok(())
            }
        }
    }
}

impl Bytes {
    fn put_behind_length<'a, T: PropertySet<'a>, S: Sink + ?Sized>(
        &self,
        set: &T,
        sink: &mut S,
    ) -> Result<(), EncodeError> {
        varint::write(self.len, sink)?;
        if let Some(count) = sink.count() {
            *count += self.len;
            return Ok(());
        }
        match self.bytes.get(..self.len) {
            Some(bytes) => {
                sink.put(bytes);
                Ok(())
            }
            None => set.put(sink),
        }
    }
}

impl Sink for Bytes {
    fn reserve(&mut self, _: usize) -> Result<(), Full> {
        Ok(())
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        if let Some(free) = self.bytes.get_mut(self.len..end) {
            free.copy_from_slice(bytes);
        }
        self.len = end;
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::String;
    use alloc::vec::Vec;

    use crate::{Decoded, Limits, MessageProperties, Packet, Publish, Utf8, Version, decode};

    #[test]
    fn properties_of_any_length_are_read_as_they_were_written() {
        let text = "x".repeat(600);
        for len in 0..text.len() {
            let content_type = Utf8::new(&text[..len]).unwrap();
            let correlation_data = crate::Binary::new(b"after what may not have fitted").unwrap();
            let properties = MessageProperties {
                content_type: Some(content_type),
                correlation_data: Some(correlation_data),
                ..MessageProperties::EMPTY
            };
            let publish = Publish { properties, ..Publish::new(topic::topic!("a"), b"payload") };
            let mut bytes = Vec::new();
            let written = publish.encode(Version::V5, &mut bytes).unwrap();
            assert_eq!((written, publish.encoded_len(Version::V5)), (bytes.len(), Ok(bytes.len())));
            let read = decode(&bytes, Some(Version::V5), &Limits::default());
            let expected = Decoded::Packet { packet: Packet::from(publish), len: written };
            assert_eq!(read, Ok(expected), "{}", String::from_utf8_lossy(&bytes));
        }
    }
}
