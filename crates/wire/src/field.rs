//! How fields are read and written, and how one description of a packet does both.

use crate::header::PacketType;
use crate::property::{PropertySet, read_block};
use crate::repeated::OneOrMore;
use crate::rule::{self, Fault};
use crate::sink::{Counter, EncodeError, Sink};
use crate::varint;
use crate::version::{Role, Version};

/// A value that stands on the wire as it is.
pub(crate) trait Field<'a>: Sized {
    fn read(from: &mut Reader<'a>) -> Result<Self, Fault>;
    fn write<S: Sink + ?Sized>(&self, version: Version, sink: &mut S) -> Result<(), Fault>;

    /// Writes `id` and behind it the value, as properties stand. Values of a fixed width go in one piece.
    #[inline]
    fn write_behind<S: Sink + ?Sized>(&self, id: u8, sink: &mut S) -> Result<(), Fault> {
        sink.put_byte(id);
        self.write(Version::V5, sink)
    }
}

/// Flags that stand before what they are about.
pub(crate) trait Flags: Sized {
    fn from_bits(bits: u8) -> Result<Self, Fault>;
    fn bits(&self) -> u8;
}

/// One walk over the fields of a packet `P`, in the order of the wire.
///
/// A packet describes its fields once, in [`Layout::layout`]. Walking with a [`Reader`] takes each field from
/// the bytes and ignores the closures; walking with a [`Writer`] takes each from the packet by its closure and
/// puts it to a sink. Rules are checked on both ways: what may not be received cannot be sent.
pub(crate) trait Walk<'a, P> {
    /// What comes of a walk: a packet on the way in, nothing on the way out.
    type Built;

    fn build(&self, packet: impl FnOnce() -> P) -> Self::Built;

    fn version(&self) -> Version;
    /// The end that the packet comes from, where that is known.
    fn sender(&self) -> Option<Role>;
    /// The flags of the fixed header, or those that announced this part.
    fn flags<F: Flags>(&self, of: impl FnOnce(&P) -> F) -> Result<F, Fault>;

    fn field<T: Field<'a>>(&mut self, of: impl FnOnce(&P) -> T) -> Result<T, Fault>;

    /// A field at the end of the packet, where it may be left out if it, and all after it, have their default
    /// values: if `omit` is true. `unlisted` is broken by a value that the packet does not have.
    fn tail<T: Field<'a> + Default>(
        &mut self,
        unlisted: Fault,
        omit: impl FnOnce(&P) -> bool,
        of: impl FnOnce(&P) -> T,
    ) -> Result<T, Fault>;

    /// A field that is there if a flag before it says so; `missing` is broken if it is not.
    fn announced<T: Field<'a>>(
        &mut self,
        announced: bool,
        missing: Fault,
        of: impl FnOnce(&P) -> Option<T>,
    ) -> Result<Option<T>, Fault>;

    /// A property length and the properties: nothing before MQTT 5.
    #[inline]
    fn properties<T: PropertySet<'a>>(&mut self, of: impl FnOnce(&P) -> &T) -> Result<T, Fault> {
        self.property_sets(|packet| ((), &(), of(packet))).map(|((), (), set)| set)
    }

    /// As [`properties`](Self::properties), where a packet does not keep all of them in one place.
    fn property_sets<A: PropertySet<'a>, B: PropertySet<'a>, T: PropertySet<'a>>(
        &mut self,
        of: impl FnOnce(&P) -> (A, &B, &T),
    ) -> Result<(A, B, T), Fault>;

    /// As [`properties`](Self::properties), at the end of the packet as in [`tail`](Self::tail).
    fn tail_properties<T: PropertySet<'a>>(
        &mut self,
        omit: impl FnOnce(&P) -> bool,
        of: impl FnOnce(&P) -> &T,
    ) -> Result<T, Fault>;

    /// Items up to the end of the packet; `none` is broken if there is none.
    fn list<T: Field<'a> + Copy>(
        &mut self,
        none: Fault,
        of: impl FnOnce(&P) -> Option<OneOrMore<'a, T>>,
    ) -> Result<OneOrMore<'a, T>, Fault>;

    /// All the bytes up to the end of the packet.
    fn rest(&mut self, of: impl FnOnce(&P) -> &'a [u8]) -> Result<&'a [u8], Fault>;

    /// From here on the packet is of this version: for CONNECT, which says so itself.
    fn set_version(&mut self, version: Version) -> Result<(), Fault>;

    /// A part with a layout of its own, there if `announced` holds the flags for it.
    fn part<Q: Layout<'a>, F: Flags>(
        &mut self,
        announced: Option<F>,
        of: impl FnOnce(&P) -> Option<Q>,
    ) -> Result<Option<Q>, Fault>;

    /// How many bytes are left to read; `None` on the way out.
    fn unread_bytes(&self) -> Option<usize>;

    fn check(&self, holds: bool, rule: Fault) -> Result<(), Fault> {
        if holds { Ok(()) } else { Err(rule) }
    }
}

/// The bytes of a packet from where reading has come to.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    pub(crate) rest: &'a [u8],
    /// Until a CONNECT has said what it is, it is read as one of 3.1.1.
    pub(crate) version: Version,
    pub(crate) is_version_known: bool,
    pub(crate) flags: u8,
    /// Whether Remaining Length is as short as can be, as MQTT 5 demands.
    pub(crate) is_shortest: bool,
    pub(crate) sender: Option<Role>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(rest: &'a [u8], version: Version) -> Self {
        Self { rest, version, is_version_known: true, flags: 0, is_shortest: true, sender: None }
    }

    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(&rule::TRUNCATED)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(&rule::TRUNCATED)?;
        self.rest = rest;
        Ok(*taken)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, Fault> {
        self.array().map(|[byte]| byte)
    }

    /// What stands behind a length of two bytes.
    #[inline]
    pub(crate) fn counted(&mut self) -> Result<&'a [u8], Fault> {
        let len = u16::from_be_bytes(self.array()?);
        self.take(len.into())
    }

    /// UTF-8 behind a length of two bytes.
    #[inline]
    pub(crate) fn text(&mut self) -> Result<&'a str, Fault> {
        core::str::from_utf8(self.counted()?).map_err(|_| &rule::ILL_FORMED_UTF8)
    }
}

impl<'a, P> Walk<'a, P> for Reader<'a> {
    type Built = P;

    #[inline]
    fn build(&self, packet: impl FnOnce() -> P) -> P {
        packet()
    }

    #[inline]
    fn version(&self) -> Version {
        self.version
    }

    fn sender(&self) -> Option<Role> {
        self.sender
    }

    #[inline]
    fn flags<F: Flags>(&self, _: impl FnOnce(&P) -> F) -> Result<F, Fault> {
        F::from_bits(self.flags)
    }

    #[inline(always)]
    fn field<T: Field<'a>>(&mut self, _: impl FnOnce(&P) -> T) -> Result<T, Fault> {
        T::read(self)
    }

    fn tail<T: Field<'a> + Default>(
        &mut self,
        unlisted: Fault,
        _: impl FnOnce(&P) -> bool,
        _: impl FnOnce(&P) -> T,
    ) -> Result<T, Fault> {
        if self.rest.is_empty() { Ok(T::default()) } else { T::read(self).map_err(|_| unlisted) }
    }

    #[inline]
    fn announced<T: Field<'a>>(
        &mut self,
        announced: bool,
        missing: Fault,
        _: impl FnOnce(&P) -> Option<T>,
    ) -> Result<Option<T>, Fault> {
        if !announced {
            return Ok(None);
        }
        if self.rest.is_empty() {
            return Err(missing);
        }
        T::read(self).map(Some)
    }

    #[inline]
    fn property_sets<A: PropertySet<'a>, B: PropertySet<'a>, T: PropertySet<'a>>(
        &mut self,
        _: impl FnOnce(&P) -> (A, &B, &T),
    ) -> Result<(A, B, T), Fault> {
        if !self.version.is_5() {
            return Ok(Default::default());
        }
        match varint::read(self)? {
            0 => Ok(Default::default()),
            len => read_block(self.take(len as usize)?),
        }
    }

    fn tail_properties<T: PropertySet<'a>>(
        &mut self,
        _: impl FnOnce(&P) -> bool,
        of: impl FnOnce(&P) -> &T,
    ) -> Result<T, Fault> {
        if self.rest.is_empty() { Ok(T::default()) } else { Walk::<P>::properties(self, of) }
    }

    fn list<T: Field<'a> + Copy>(
        &mut self,
        none: Fault,
        _: impl FnOnce(&P) -> Option<OneOrMore<'a, T>>,
    ) -> Result<OneOrMore<'a, T>, Fault> {
        OneOrMore::read(self, none)
    }

    #[inline]
    fn rest(&mut self, _: impl FnOnce(&P) -> &'a [u8]) -> Result<&'a [u8], Fault> {
        Ok(core::mem::take(&mut self.rest))
    }

    fn set_version(&mut self, version: Version) -> Result<(), Fault> {
        (self.version, self.is_version_known) = (version, true);
        if version.is_5() && !self.is_shortest { Err(&rule::LENGTH_NOT_SHORTEST) } else { Ok(()) }
    }

    fn part<Q: Layout<'a>, F: Flags>(
        &mut self,
        announced: Option<F>,
        _: impl FnOnce(&P) -> Option<Q>,
    ) -> Result<Option<Q>, Fault> {
        let Some(flags) = announced else { return Ok(None) };
        self.flags = flags.bits();
        Q::layout(self).map(Some)
    }

    fn unread_bytes(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// Puts the fields of a packet to a sink.
pub(crate) struct Writer<'w, P, S: ?Sized> {
    packet: &'w P,
    version: Version,
    sink: &'w mut S,
    blocks: &'w mut Blocks,
}

/// The property lengths of a packet in the order of the wire: a walk that counts finds them out, the walk that
/// writes needs them before it comes to the properties. There are at most two, of CONNECT and of its will.
#[derive(Default)]
struct Blocks {
    lens: [usize; 2],
    next: usize,
}

impl Blocks {
    /// The place of the next length.
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

    /// A packet does not say who sends it.
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

    // The sets that come back are not looked at, and need not be copied if the compiler sees it.
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

/// How long the properties are.
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

/// A property length and the properties. Apart from the rest: most packets have none.
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

/// Fields in the order of the wire.
pub(crate) trait Layout<'a>: Sized {
    fn layout<W: Walk<'a, Self>>(walk: &mut W) -> Result<W::Built, Fault>;
}

/// A control packet: what its fixed header says.
pub(crate) trait ControlPacket<'a>: Layout<'a> {
    const TYPE: PacketType;

    /// The flags of the fixed header.
    #[inline]
    fn flag_bits(&self) -> u8 {
        Self::TYPE.reserved_flags()
    }
}

/// Writes a packet to a sink, after a first walk that only counts.
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

/// The length of a packet on the wire.
pub(crate) fn encoded_len<'a, P: ControlPacket<'a>>(
    packet: &P,
    version: Version,
) -> Result<usize, EncodeError> {
    let remaining = remaining_len(packet, version, &mut Blocks::default())?;
    Ok(1 + varint::len(remaining) + remaining)
}

/// What stands behind the fixed header: not more than a variable byte integer can say. Both walks in one function
/// let the compiler look at each field once.
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
