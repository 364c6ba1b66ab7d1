//! The bytes of a chunk: numbers, texts and properties.

use super::DatabaseError;

/// The traits of the machine that wrote a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Layout {
    /// Numbers of 64 bits begin with their highest byte.
    is_big_endian: bool,
    /// Structures end at a multiple of four bytes instead of eight, as on i386.
    is_packed: bool,
}

/// Length of the structure of the first chunk on i386, in bytes. Other machines have 16.
const PACKED_FIRST_BYTES: usize = 12;

impl Layout {
    /// Reads the layout from the chunk about the file, which begins with the last number of a message.
    pub(super) fn of_first_chunk(body: &[u8]) -> Self {
        let number = body.first_chunk().copied().unwrap_or_default();
        // The highest byte of such a number is 0. In the other order, the number is far larger.
        let is_big_endian = u64::from_be_bytes(number) < u64::from_le_bytes(number);
        Self { is_big_endian, is_packed: body.len() == PACKED_FIRST_BYTES }
    }
}

/// The rest of a chunk.
pub(super) struct Body<'a> {
    rest: &'a [u8],
    /// The place of the chunk in the file.
    at: usize,
    layout: Layout,
}

impl<'a> Body<'a> {
    pub(super) fn new(rest: &'a [u8], at: usize, layout: Layout) -> Self {
        Self { rest, at, layout }
    }

    pub(super) fn damaged(&self, why: &'static str) -> DatabaseError {
        DatabaseError::Damaged(self.at, why)
    }

    pub(super) fn bytes(&mut self, length: usize) -> Result<&'a [u8], DatabaseError> {
        let Some((bytes, rest)) = self.rest.split_at_checked(length) else {
            return Err(self.damaged("a chunk is shorter than its content"));
        };
        self.rest = rest;
        Ok(bytes)
    }

    fn array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], DatabaseError> {
        Ok(self.bytes(LENGTH)?.try_into().expect("so many bytes were taken"))
    }

    pub(super) fn u8(&mut self) -> Result<u8, DatabaseError> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(super) fn u16(&mut self) -> Result<u16, DatabaseError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, DatabaseError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// A number in the order of the machine.
    pub(super) fn u64(&mut self) -> Result<u64, DatabaseError> {
        let bytes = self.array()?;
        Ok(if self.layout.is_big_endian { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) })
    }

    /// A time in seconds since 1970. 0 is no time. A file without messages does not show the order of its bytes, but the wrong
    /// order of a time is in a future of millions of years.
    pub(super) fn time(&mut self) -> Result<Option<u64>, DatabaseError> {
        let bytes = self.array()?;
        let time = u64::from_le_bytes(bytes).min(u64::from_be_bytes(bytes));
        Ok((time > 0).then_some(time))
    }

    pub(super) fn qos(&mut self) -> Result<u8, DatabaseError> {
        match self.u8()? {
            qos @ 0..=2 => Ok(qos),
            _ => Err(self.damaged("a QoS is above 2")),
        }
    }

    /// The padding of a session, which is the one structure that ends in the middle of eight bytes.
    pub(super) fn end_of_session(&mut self) -> Result<(), DatabaseError> {
        if !self.layout.is_packed {
            self.u32()?;
        }
        Ok(())
    }

    pub(super) fn text(&mut self, length: u16) -> Result<String, DatabaseError> {
        let bytes = self.bytes(usize::from(length))?.to_vec();
        String::from_utf8(bytes).map_err(|_| self.damaged("a text is not UTF-8"))
    }

    /// Properties behind their length, if there are any bytes left.
    pub(super) fn properties(&mut self) -> Result<&'a [u8], DatabaseError> {
        if self.rest.is_empty() {
            return Ok(&[]);
        }
        let length = self.variable()?;
        self.bytes(length as usize)
    }

    /// Subscription Identifiers, which are the only properties of a message in a queue.
    pub(super) fn identifiers(&mut self) -> Result<Vec<u32>, DatabaseError> {
        let mut properties = Body { rest: self.properties()?, ..*self };
        let mut identifiers = Vec::new();
        while !properties.rest.is_empty() {
            if properties.u8()? != 0x0B {
                return Err(self.damaged("a message in a queue has an unknown property"));
            }
            identifiers.push(properties.variable()?);
        }
        Ok(identifiers)
    }

    /// A Variable Byte Integer.
    fn variable(&mut self) -> Result<u32, DatabaseError> {
        let mut value = 0;
        for shift in [0, 7, 14, 21] {
            let byte = self.u8()?;
            value |= u32::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.damaged("a number of variable length has more than four bytes"))
    }
}
