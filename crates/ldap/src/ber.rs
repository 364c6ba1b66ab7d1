//! Basic Encoding Rules, with the restrictions of RFC 4511, section 5.1: lengths are definite, and strings are in one piece.

use alloc::vec::Vec;

use crate::{MESSAGE_BYTES_MAX, Malformed};

/// Tags of the universal class.
pub(crate) const BOOLEAN: u8 = 0x01;
pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const ENUMERATED: u8 = 0x0a;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;

/// Appends an element with the content that `content` appends.
pub(crate) fn element(out: &mut Vec<u8>, tag: u8, content: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    let start = out.len();
    content(out);
    let length = out.len() - start;
    match u8::try_from(length) {
        Ok(short @ 0..0x80) => out.insert(start, short),
        _ => {
            let bytes = length.to_be_bytes();
            let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
            let count = u8::try_from(bytes.len() - zeros).expect("a length has at most eight bytes");
            out.splice(start..start, [0x80 | count].into_iter().chain(bytes[zeros..].iter().copied()));
        }
    }
}

/// Appends an element that is not made of elements.
pub(crate) fn primitive(out: &mut Vec<u8>, tag: u8, content: &[u8]) {
    element(out, tag, |out| out.extend_from_slice(content));
}

/// Appends a number in as few bytes as possible, as section 8.3.2 of X.690 requires.
pub(crate) fn number(out: &mut Vec<u8>, tag: u8, number: i32) {
    let bytes = number.to_be_bytes();
    let is_spare = |pair: &[u8]| matches!(pair, [0, 0..=0x7f] | [0xff, 0x80..=0xff]);
    let spare = bytes.windows(2).take_while(|pair| is_spare(pair)).count();
    primitive(out, tag, &bytes[spare..]);
}

/// The bytes of the length field of an element, and the bytes of its content.
#[derive(Clone, Copy)]
pub(crate) struct Length {
    pub(crate) field_bytes: usize,
    pub(crate) content_bytes: usize,
}

impl Length {
    /// Reads a length field in the short form, or in the long form with at most eight bytes, also with leading zeros.
    /// Returns `None` if bytes of the field are missing.
    ///
    /// # Errors
    /// The length is indefinite, reserved, or beyond [`MESSAGE_BYTES_MAX`]. The first bytes of a field are enough for that.
    pub(crate) fn read(bytes: &[u8]) -> Result<Option<Self>, Malformed> {
        let Some((&first, rest)) = bytes.split_first() else { return Ok(None) };
        let count = match first {
            0..0x80 => return Ok(Some(Self { field_bytes: 1, content_bytes: first.into() })),
            0x80 => return Err(Malformed::IndefiniteLength),
            0x81..=0x88 => usize::from(first & 0x7f),
            _ => return Err(Malformed::TooLong),
        };
        let mut length = 0;
        for index in 0..count {
            let Some(&byte) = rest.get(index) else { return Ok(None) };
            length |= u64::from(byte) << (8 * (count - 1 - index));
            if length > MESSAGE_BYTES_MAX as u64 {
                return Err(Malformed::TooLong);
            }
        }
        let content_bytes = usize::try_from(length).map_err(|_| Malformed::TooLong)?;
        Ok(Some(Self { field_bytes: 1 + count, content_bytes }))
    }
}

/// Reads elements one after another, without a look into them.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the tag and the content of the next element, or `None` at the end.
    ///
    /// # Errors
    /// The element is longer than the rest, or its tag has more than one byte, which LDAP does not use.
    pub(crate) fn element(&mut self) -> Result<Option<(u8, &'a [u8])>, Malformed> {
        let Some((&tag, rest)) = self.0.split_first() else { return Ok(None) };
        if tag & 0x1f == 0x1f {
            return Err(Malformed::UnexpectedTag);
        }
        let length = Length::read(rest)?.ok_or(Malformed::Cut)?;
        let content = rest[length.field_bytes..].get(..length.content_bytes).ok_or(Malformed::Cut)?;
        self.0 = &rest[length.field_bytes + length.content_bytes..];
        Ok(Some((tag, content)))
    }

    /// Returns the content of the next element.
    ///
    /// # Errors
    /// There is no further element, or its tag is not `tag`.
    pub(crate) fn expect(&mut self, tag: u8) -> Result<&'a [u8], Malformed> {
        match self.element()? {
            Some((found, content)) if found == tag => Ok(content),
            Some(_) => Err(Malformed::UnexpectedTag),
            None => Err(Malformed::Cut),
        }
    }

    /// Returns the next number. Numbers of LDAP are at least 0 and at most 2,147,483,647 (`maxInt`, section 4.1.1).
    pub(crate) fn number(&mut self, tag: u8) -> Result<i32, Malformed> {
        let bytes = self.expect(tag)?;
        if !(1..=8).contains(&bytes.len()) || bytes[0] >= 0x80 {
            return Err(Malformed::Number);
        }
        let number = bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        i32::try_from(number).map_err(|_| Malformed::Number)
    }

    /// Passes over all further elements.
    pub(crate) fn finish(mut self) -> Result<(), Malformed> {
        while self.element()?.is_some() {}
        Ok(())
    }
}
