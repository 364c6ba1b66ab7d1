//! The walk that encodes: from a packet to a sink.

use crate::property::PropertySet;
use crate::repeated::OneOrMore;
use crate::rule::Fault;
use crate::sink::{Counter, EncodeError, Sink};
use crate::varint;
use crate::version::{Role, Version};
use crate::walk::{ControlPacket, Field, Flags, Layout, Walk};

/// Writes a packet to a sink, after a first walk that only counts bytes.
#[inline]
pub(crate) fn encode<'a, P: ControlPacket<'a>, S: Sink + ?Sized>(
    packet: &P,
    version: Version,
    sink: &mut S,
) -> Result<usize, EncodeError> {
    let mut blocks = Blocks::default();
    let remaining = remaining_len(packet, version, &mut blocks)?;
    let len = 1 + varint::len(remaining) + remaining;
    sink.reserve(len).map_err(|_| EncodeError::Full { len })?;
    varint::write_behind((P::TYPE as u8) << 4 | packet.flag_bits(), remaining, sink);
    blocks.next = 0;
    let written = P::layout(&mut Writer { packet, version, sink, blocks: &mut blocks });
    written.map(|_| len).map_err(|fault| EncodeError::forbidden(fault, version))
}

/// Length of a packet on the wire in bytes.
pub(crate) fn encoded_len<'a, P: ControlPacket<'a>>(
    packet: &P,
    version: Version,
) -> Result<usize, EncodeError> {
    let remaining = remaining_len(packet, version, &mut Blocks::default())?;
    Ok(1 + varint::len(remaining) + remaining)
}

/// Length of the packet after the fixed header, at most the maximum of a variable byte integer.
///
/// Both walks are inlined into one function, so that the compiler examines each field once.
#[inline(always)]
fn remaining_len<'a, P: ControlPacket<'a>>(
    packet: &P,
    version: Version,
    blocks: &mut Blocks,
) -> Result<usize, EncodeError> {
    let mut counter = Counter::default();
    let mut writer = Writer { packet, version, sink: &mut counter, blocks };
    if let Err(fault) = P::layout(&mut writer) {
        return Err(EncodeError::forbidden(fault, writer.version));
    }
    if counter.len > varint::MAX as usize {
        return Err(EncodeError::TooLong);
    }
    Ok(counter.len)
}

/// A walk that writes the fields of a packet to a sink.
pub(crate) struct Writer<'w, P, S: ?Sized> {
    packet: &'w P,
    version: Version,
    sink: &'w mut S,
    blocks: &'w mut Blocks,
}

/// The property lengths of a packet, in the order of the wire.
///
/// The walk that counts computes the lengths, because the walk that writes needs them before the properties. A
/// packet has at most two: CONNECT has properties of its own and properties of its will.
#[derive(Default)]
struct Blocks {
    lens: [usize; 2],
    next: usize,
}

impl Blocks {
    /// Returns the place of the next length.
    #[inline]
    fn next(&mut self) -> &mut usize {
        let at = self.next;
        self.next = at + 1;
        &mut self.lens[at % 2]
    }
}

impl<'a, P, S: Sink + ?Sized> Walk<'a, P> for Writer<'_, P, S> {
    type Built = ();

    #[inline]
    fn build(&self, _: impl FnOnce() -> P) {}

    #[inline]
    fn version(&self) -> Version {
        self.version
    }

    /// A packet does not contain its sender.
    fn sender(&self) -> Option<Role> {
        None
    }

    #[inline]
    fn flags<F: Flags>(&self, of: impl FnOnce(&P) -> F) -> Result<F, Fault> {
        Ok(of(self.packet))
    }

    #[inline]
    fn field<T: Field<'a>>(&mut self, of: impl FnOnce(&P) -> T) -> Result<T, Fault> {
        let value = of(self.packet);
        value.write(self.version, self.sink)?;
        Ok(value)
    }

    fn tail<T: Field<'a> + Default>(
        &mut self,
        _: Fault,
        omit: impl FnOnce(&P) -> bool,
        of: impl FnOnce(&P) -> T,
    ) -> Result<T, Fault> {
        if omit(self.packet) { Ok(of(self.packet)) } else { self.field(of) }
    }

    #[inline]
    fn announced<T: Field<'a>>(
        &mut self,
        _: bool,
        _: Fault,
        of: impl FnOnce(&P) -> Option<T>,
    ) -> Result<Option<T>, Fault> {
        let value = of(self.packet);
        if let Some(value) = &value {
            value.write(self.version, self.sink)?;
        }
        Ok(value)
    }

    // The caller ignores the returned sets when encoding. Inlining lets the compiler omit the copies.
    #[inline(always)]
    fn property_sets<A: PropertySet<'a>, B: PropertySet<'a>, T: PropertySet<'a>>(
        &mut self,
        of: impl FnOnce(&P) -> (A, &B, &T),
    ) -> Result<(A, B, T), Fault> {
        if !self.version.is_5() {
            return Ok(Default::default());
        }
        let (a, b, c) = of(self.packet);
        let len = self.blocks.next();
        if let Some(count) = self.sink.count() {
            *len = block_len(&a, b, c)?;
            *count += varint::len(*len) + *len;
        } else {
            match *len {
                0 => self.sink.put_byte(0),
                len => put_block(len, (&a, b, c), self.sink)?,
            }
        }
        Ok((a, *b, *c))
    }

    fn tail_properties<T: PropertySet<'a>>(
        &mut self,
        omit: impl FnOnce(&P) -> bool,
        of: impl FnOnce(&P) -> &T,
    ) -> Result<T, Fault> {
        if omit(self.packet) { Ok(*of(self.packet)) } else { self.properties(of) }
    }

    fn list<T: Field<'a> + Copy>(
        &mut self,
        none: Fault,
        of: impl FnOnce(&P) -> Option<OneOrMore<'a, T>>,
    ) -> Result<OneOrMore<'a, T>, Fault> {
        let list = of(self.packet).ok_or(none)?;
        list.write(self.version, self.sink)?;
        Ok(list)
    }

    #[inline]
    fn rest(&mut self, of: impl FnOnce(&P) -> &'a [u8]) -> Result<&'a [u8], Fault> {
        let bytes = of(self.packet);
        self.sink.put(bytes);
        Ok(bytes)
    }

    fn set_version(&mut self, version: Version) -> Result<(), Fault> {
        self.version = version;
        Ok(())
    }

    fn part<Q: Layout<'a>, F: Flags>(
        &mut self,
        _: Option<F>,
        of: impl FnOnce(&P) -> Option<Q>,
    ) -> Result<Option<Q>, Fault> {
        let Some(part) = of(self.packet) else { return Ok(None) };
        let Self { version, sink, blocks, .. } = self;
        Q::layout(&mut Writer { packet: &part, version: *version, sink: *sink, blocks })?;
        Ok(Some(part))
    }

    fn unread_bytes(&self) -> Option<usize> {
        None
    }
}

/// Length of the properties in bytes, without the length before them.
#[inline]
fn block_len<'a>(
    a: &impl PropertySet<'a>,
    b: &impl PropertySet<'a>,
    c: &impl PropertySet<'a>,
) -> Result<usize, Fault> {
    if a.is_empty() && b.is_empty() && c.is_empty() {
        return Ok(0);
    }
    let mut counter = Counter::default();
    put_sets((a, b, c), &mut counter)?;
    Ok(counter.len)
}

/// Writes a property length and the properties. The function is not inlined, because most packets have no
/// properties.
#[inline(never)]
fn put_block<'a, S: Sink + ?Sized>(
    len: usize,
    sets: (&impl PropertySet<'a>, &impl PropertySet<'a>, &impl PropertySet<'a>),
    sink: &mut S,
) -> Result<(), Fault> {
    varint::write(len, sink);
    put_sets(sets, sink)
}

fn put_sets<'a, S: Sink + ?Sized>(
    (a, b, c): (&impl PropertySet<'a>, &impl PropertySet<'a>, &impl PropertySet<'a>),
    sink: &mut S,
) -> Result<(), Fault> {
    a.put(sink)?;
    b.put(sink)?;
    c.put(sink)
}
