//! Numbers and runs of bytes, written and read.

use super::error::{DecodeError, Fault};
use super::publishers::Publishers;

/// A number of 64 bits in groups of seven.
const NUMBER_BYTES_MAX: usize = 10;

/// Seven bits at a time, the lowest first; each byte but the last has its highest bit set.
#[inline]
pub(super) fn put_number(number: u64, into: &mut Vec<u8>) {
    let low = |place: u32| (number >> (7 * place)).to_le_bytes()[0];
    // Of a length that is known, bytes are written without a call.
    match number {
        0..0x80 => into.push(low(0)),
        0x80..0x4000 => into.extend_from_slice(&[low(0) | 0x80, low(1)]),
        0x4000..0x20_0000 => into.extend_from_slice(&[low(0) | 0x80, low(1) | 0x80, low(2)]),
        _ => put_long_number(number, into),
    }
}

fn put_long_number(mut number: u64, into: &mut Vec<u8>) {
    let low = |number: u64| number.to_le_bytes()[0];
    while number >= 0x80 {
        into.push(low(number) | 0x80);
        number >>= 7;
    }
    into.push(low(number));
}

/// Bytes behind their number.
#[inline]
pub(super) fn put_run(run: &[u8], into: &mut Vec<u8>) {
    put_number(run.len() as u64, into);
    into.extend_from_slice(run);
}

/// Reads records of one frame, and says how far it is.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Publishers that have been read lately.
    pub(super) publishers: &'a mut Publishers,
}

impl<'a> Reader<'a> {
    /// From the offset `at` on; nothing if that is behind the end.
    pub(super) fn new(bytes: &'a [u8], at: usize, publishers: &'a mut Publishers) -> Self {
        Self { bytes, at: at.min(bytes.len()), publishers }
    }

    /// The offset of what is read next.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// To where it was.
    pub(super) fn go_back(&mut self, at: usize) {
        self.at = at;
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// Nothing is left: bytes behind a fault have no meaning.
    pub(super) fn stop(&mut self) {
        self.at = self.bytes.len();
    }

    /// Reads one field, and says which it was if that fails.
    #[inline]
    pub(super) fn field<T>(
        &mut self,
        name: &'static str,
        take: impl FnOnce(&mut Self) -> Result<T, Fault>,
    ) -> Result<T, Box<DecodeError>> {
        let offset = self.at;
        take(self).map_err(|fault| Box::new(DecodeError { offset, record: None, field: Some(name), fault }))
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, Fault> {
        let byte = *self.bytes.get(self.at).ok_or(Fault::Truncated)?;
        self.at += 1;
        Ok(byte)
    }

    /// Reads a number that [`put_number`] has written. A form that is not the shortest is refused.
    #[inline]
    pub(super) fn number(&mut self) -> Result<u64, Fault> {
        let first = self.byte()?;
        if first < 0x80 { Ok(u64::from(first)) } else { self.longer_number(first) }
    }

    fn longer_number(&mut self, first: u8) -> Result<u64, Fault> {
        let mut number = u64::from(first & 0x7F);
        for place in 1..NUMBER_BYTES_MAX {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7F) << (7 * place);
            if bits >> (7 * place) != u64::from(byte & 0x7F) {
                return Err(Fault::Number);
            }
            number |= bits;
            if byte < 0x80 {
                // A last byte of zero says nothing.
                return if byte == 0 { Err(Fault::Number) } else { Ok(number) };
            }
        }
        Err(Fault::Number)
    }

    /// A number of 32 bits.
    #[inline]
    pub(super) fn number_32(&mut self) -> Result<u32, Fault> {
        u32::try_from(self.number()?).map_err(|_| Fault::Number)
    }

    /// Number of items that follow, each of at least this number of bytes. A false number is thus found before memory
    /// is allocated for it.
    #[inline]
    pub(super) fn count(&mut self, bytes_min: usize) -> Result<usize, Fault> {
        let count = usize::try_from(self.number()?).map_err(|_| Fault::Truncated)?;
        let left = self.bytes.len() - self.at;
        if count > left / bytes_min { Err(Fault::Truncated) } else { Ok(count) }
    }

    /// Returns the next `len` bytes.
    #[inline]
    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], Fault> {
        let run = self.bytes[self.at..].get(..len).ok_or(Fault::Truncated)?;
        self.at += len;
        Ok(run)
    }

    /// Reads bytes that [`put_run`] has written.
    #[inline]
    pub(super) fn run(&mut self) -> Result<&'a [u8], Fault> {
        let len = self.count(1)?;
        self.take(len)
    }
}
