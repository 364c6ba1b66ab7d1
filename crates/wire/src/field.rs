//! How fields are read and written, and how one description of a packet does both.

use crate::block::Block;
use crate::header::PacketType;
use crate::property::PropertySet;
use crate::repeated::OneOrMore;
use crate::rule::{self, Fault, Rule};
use crate::sink::{Counter, EncodeError, Sink};
use crate::varint;
use crate::version::{Role, Version};

/// A value that stands on the wire as it is.
pub(crate) trait Field<'a>: Sized {
    fn read(from: &mut Reader<'a>) -> Result<Self, Fault>;
    fn write<S: Sink + ?Sized>(&self, version: Version, sink: &mut S) -> Result<(), EncodeError>;
}

/// One walk over the fields of a packet `P`, in the order of the wire.
///
/// A packet describes its fields once, in [`Layout::layout`]. Walking with a [`Reader`] takes each field from
/// the bytes and ignores the closures; walking with a [`Writer`] takes each from the packet by its closure and
/// puts it to a sink. Rules are checked on both ways: what may not be received cannot be sent.
pub(crate) trait Walk<'a, P> {
    type Error;
    /// What comes of a walk: a packet on the way in, nothing on the way out.
    type Built;

    fn build(&self, packet: impl FnOnce() -> P) -> Self::Built;

    fn version(&self) -> Version;
    /// The end that the packet comes from, where that is known.
    fn sender(&self) -> Option<Role>;
    /// The flags of the fixed header.
    fn flags(&self) -> u8;
    fn error(&self, rule: &'static Rule) -> Self::Error;

    fn field<T: Field<'a>>(&mut self, of: impl FnOnce(&P) -> T) -> Result<T, Self::Error>;

    /// A field at the end of the packet, where it may be left out if it, and all after it, have their default
    /// values: if `omit` is true. `unlisted` is broken by a value that the packet does not have.
    fn tail<T: Field<'a> + Default>(
        &mut self,
        unlisted: &'static Rule,
        omit: impl FnOnce(&P) -> bool,
        of: impl FnOnce(&P) -> T,
    ) -> Result<T, Self::Error>;

    /// A field that is there if a flag before it says so; `missing` is broken if it is not.
    fn announced<T: Field<'a>>(
        &mut self,
        announced: bool,
        missing: &'static Rule,
        of: impl FnOnce(&P) -> Option<T>,
    ) -> Result<Option<T>, Self::Error>;

    /// A property length and the properties: nothing before MQTT 5.
    fn properties<T: PropertySet<'a>>(&mut self, of: impl FnOnce(&P) -> T) -> Result<T, Self::Error>;

    /// As [`properties`](Self::properties), where mostly there is none: `any` tells, and saves putting them together.
    fn rare_properties<T: PropertySet<'a>>(
        &mut self,
        any: impl FnOnce(&P) -> bool,
        of: impl FnOnce(&P) -> T,
    ) -> Result<T, Self::Error>;

    /// As [`properties`](Self::properties), at the end of the packet as in [`tail`](Self::tail).
    fn tail_properties<T: PropertySet<'a>>(
        &mut self,
        omit: impl FnOnce(&P) -> bool,
        of: impl FnOnce(&P) -> T,
    ) -> Result<T, Self::Error>;

    /// Items up to the end of the packet; `none` is broken if there is none.
    fn list<T: Field<'a> + Copy>(
        &mut self,
        none: &'static Rule,
        of: impl FnOnce(&P) -> Option<OneOrMore<'a, T>>,
    ) -> Result<OneOrMore<'a, T>, Self::Error>;

    /// All the bytes up to the end of the packet.
    fn rest(&mut self, of: impl FnOnce(&P) -> &'a [u8]) -> Result<&'a [u8], Self::Error>;

    /// From here on the packet is of this version: for CONNECT, which says so itself.
    fn set_version(&mut self, version: Version);

    /// A part with a layout of its own, there if `announced` holds the flags for it.
    fn part<Q: Layout<'a>>(
        &mut self,
        announced: Option<u8>,
        of: impl FnOnce(&P) -> Option<Q>,
    ) -> Result<Option<Q>, Self::Error>;

    /// How many bytes are left to read; `None` on the way out.
    fn unread_bytes(&self) -> Option<usize>;

    fn check(&self, holds: bool, rule: &'static Rule) -> Result<(), Self::Error> {
        if holds { Ok(()) } else { Err(self.error(rule)) }
    }
}

/// The bytes of a packet from where reading has come to.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    pub(crate) rest: &'a [u8],
    pub(crate) version: Version,
    pub(crate) flags: u8,
    pub(crate) sender: Option<Role>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(rest: &'a [u8], version: Version) -> Self {
        Self { rest, version, flags: 0, sender: None }
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
    type Error = Fault;
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
    fn flags(&self) -> u8 {
        self.flags
    }

    fn error(&self, rule: &'static Rule) -> Fault {
        rule
    }

    #[inline]
    fn field<T: Field<'a>>(&mut self, _: impl FnOnce(&P) -> T) -> Result<T, Fault> {
        T::read(self)
    }

    fn tail<T: Field<'a> + Default>(
        &mut self,
        unlisted: &'static Rule,
        _: impl FnOnce(&P) -> bool,
        _: impl FnOnce(&P) -> T,
    ) -> Result<T, Fault> {
        if self.rest.is_empty() { Ok(T::default()) } else { T::read(self).map_err(|_| unlisted) }
    }

    #[inline]
    fn announced<T: Field<'a>>(
        &mut self,
        announced: bool,
        missing: &'static Rule,
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
    fn properties<T: PropertySet<'a>>(&mut self, _: impl FnOnce(&P) -> T) -> Result<T, Fault> {
        if !self.version.is_5() {
            return Ok(T::default());
        }
        let len = varint::read(self)?;
        if len == 0 {
            return Ok(T::default());
        }
        T::read_block(self.take(len as usize)?)
    }

    #[inline]
    fn rare_properties<T: PropertySet<'a>>(
        &mut self,
        _: impl FnOnce(&P) -> bool,
        of: impl FnOnce(&P) -> T,
    ) -> Result<T, Fault> {
        Walk::<P>::properties(self, of)
    }

    fn tail_properties<T: PropertySet<'a>>(
        &mut self,
        _: impl FnOnce(&P) -> bool,
        of: impl FnOnce(&P) -> T,
    ) -> Result<T, Fault> {
        if self.rest.is_empty() { Ok(T::default()) } else { Walk::<P>::properties(self, of) }
    }

    fn list<T: Field<'a> + Copy>(
        &mut self,
        none: &'static Rule,
        _: impl FnOnce(&P) -> Option<OneOrMore<'a, T>>,
    ) -> Result<OneOrMore<'a, T>, Fault> {
        OneOrMore::read(self, none)
    }

    #[inline]
    fn rest(&mut self, _: impl FnOnce(&P) -> &'a [u8]) -> Result<&'a [u8], Fault> {
        Ok(core::mem::take(&mut self.rest))
    }

    fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    fn part<Q: Layout<'a>>(
        &mut self,
        announced: Option<u8>,
        _: impl FnOnce(&P) -> Option<Q>,
    ) -> Result<Option<Q>, Fault> {
        let Some(flags) = announced else { return Ok(None) };
        self.flags = flags;
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
    flags: u8,
    sink: &'w mut S,
    /// What the first walk has found out for the second.
    block: &'w mut Block,
}

impl<'a, P, S: Sink + ?Sized> Walk<'a, P> for Writer<'_, P, S> {
    type Error = EncodeError;
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
    fn flags(&self) -> u8 {
        self.flags
    }

    fn error(&self, rule: &'static Rule) -> EncodeError {
        EncodeError::forbidden(rule, self.version)
    }

    #[inline]
    fn field<T: Field<'a>>(&mut self, of: impl FnOnce(&P) -> T) -> Result<T, EncodeError> {
        let value = of(self.packet);
        value.write(self.version, self.sink)?;
        Ok(value)
    }

    fn tail<T: Field<'a> + Default>(
        &mut self,
        _: &'static Rule,
        omit: impl FnOnce(&P) -> bool,
        of: impl FnOnce(&P) -> T,
    ) -> Result<T, EncodeError> {
        if omit(self.packet) { Ok(of(self.packet)) } else { self.field(of) }
    }

    #[inline]
    fn announced<T: Field<'a>>(
        &mut self,
        _: bool,
        _: &'static Rule,
        of: impl FnOnce(&P) -> Option<T>,
    ) -> Result<Option<T>, EncodeError> {
        let value = of(self.packet);
        if let Some(value) = &value {
            value.write(self.version, self.sink)?;
        }
        Ok(value)
    }

    #[inline]
    fn properties<T: PropertySet<'a>>(&mut self, of: impl FnOnce(&P) -> T) -> Result<T, EncodeError> {
        let set = of(self.packet);
        if self.version.is_5() {
            self.block.put(&set, self.sink)?;
        }
        Ok(set)
    }

    #[inline]
    fn rare_properties<T: PropertySet<'a>>(
        &mut self,
        any: impl FnOnce(&P) -> bool,
        of: impl FnOnce(&P) -> T,
    ) -> Result<T, EncodeError> {
        let is_empty = match self.block {
            Block::Unknown => !any(self.packet),
            Block::Empty => true,
            Block::Known(_) => false,
        };
        if !is_empty {
            return self.properties(of);
        }
        *self.block = Block::Empty;
        if self.version.is_5() {
            self.sink.put(&[0]);
        }
        Ok(T::default())
    }

    fn tail_properties<T: PropertySet<'a>>(
        &mut self,
        omit: impl FnOnce(&P) -> bool,
        of: impl FnOnce(&P) -> T,
    ) -> Result<T, EncodeError> {
        if omit(self.packet) { Ok(of(self.packet)) } else { self.properties(of) }
    }

    fn list<T: Field<'a> + Copy>(
        &mut self,
        none: &'static Rule,
        of: impl FnOnce(&P) -> Option<OneOrMore<'a, T>>,
    ) -> Result<OneOrMore<'a, T>, EncodeError> {
        let list = of(self.packet).ok_or(EncodeError::forbidden(none, self.version))?;
        list.write(self.version, self.sink)?;
        Ok(list)
    }

    #[inline]
    fn rest(&mut self, of: impl FnOnce(&P) -> &'a [u8]) -> Result<&'a [u8], EncodeError> {
        let bytes = of(self.packet);
        self.sink.put(bytes);
        Ok(bytes)
    }

    fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    fn part<Q: Layout<'a>>(
        &mut self,
        announced: Option<u8>,
        of: impl FnOnce(&P) -> Option<Q>,
    ) -> Result<Option<Q>, EncodeError> {
        let Some(part) = of(self.packet) else { return Ok(None) };
        let flags = announced.unwrap_or_default();
        Q::layout(&mut Writer {
            packet: &part,
            version: self.version,
            flags,
            sink: self.sink,
            block: &mut Block::Unknown,
        })?;
        Ok(Some(part))
    }

    fn unread_bytes(&self) -> Option<usize> {
        None
    }
}

/// Fields in the order of the wire.
pub(crate) trait Layout<'a>: Sized {
    fn layout<W: Walk<'a, Self>>(walk: &mut W) -> Result<W::Built, W::Error>;
}

/// A control packet: what its fixed header says.
pub(crate) trait ControlPacket<'a>: Layout<'a> {
    const TYPE: PacketType;

    /// The flags of the fixed header.
    fn flags(&self) -> u8 {
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
    let flags = packet.flags();
    let mut block = Block::Unknown;
    let remaining = remaining_len(packet, version, flags, &mut block)?;
    let len = 1 + varint::len(remaining)? + remaining;
    sink.reserve(len).map_err(|_| EncodeError::Full { len })?;
    varint::write_behind((P::TYPE as u8) << 4 | flags, remaining, sink)?;
    P::layout(&mut Writer { packet, version, flags, sink, block: &mut block })?;
    Ok(len)
}

/// The length of a packet on the wire.
pub(crate) fn encoded_len<'a, P: ControlPacket<'a>>(
    packet: &P,
    version: Version,
) -> Result<usize, EncodeError> {
    let remaining = remaining_len(packet, version, packet.flags(), &mut Block::Unknown)?;
    Ok(1 + varint::len(remaining)? + remaining)
}

#[inline]
fn remaining_len<'a, P: ControlPacket<'a>>(
    packet: &P,
    version: Version,
    flags: u8,
    block: &mut Block,
) -> Result<usize, EncodeError> {
    let mut counter = Counter::default();
    P::layout(&mut Writer { packet, version, flags, sink: &mut counter, block })?;
    Ok(counter.len)
}
