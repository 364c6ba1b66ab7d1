//! How one description of a packet serves to read and to write it.

use crate::header::PacketType;
use crate::property::PropertySet;
use crate::read::Reader;
use crate::repeated::OneOrMore;
use crate::rule::Fault;
use crate::sink::Sink;
use crate::version::{Role, Version};

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
