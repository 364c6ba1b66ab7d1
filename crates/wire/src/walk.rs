//! One description of each packet, for decoding and for encoding.

use crate::header::PacketType;
use crate::property::PropertySet;
use crate::read::Reader;
use crate::repeated::OneOrMore;
use crate::rule::Fault;
use crate::sink::Sink;
use crate::version::{Role, Version};

/// The fields of a packet or of a part of a packet, in the order of the wire.
pub(crate) trait Layout<'a>: Sized {
    fn layout<W: Walk<'a, Self>>(walk: &mut W) -> Result<W::Built, Fault>;
}

/// A control packet, with the type and the flags in its fixed header.
pub(crate) trait ControlPacket<'a>: Layout<'a> {
    const TYPE: PacketType;

    /// The lower four bits of the first byte.
    #[inline]
    fn flag_bits(&self) -> u8 {
        Self::TYPE.reserved_flags()
    }
}

/// A walk over the fields of a packet `P`, in the order of the wire.
///
/// A packet describes its fields once, in [`Layout::layout`]. A walk with a [`Reader`] reads each field from the
/// bytes and ignores the closures. A walk with a [`Writer`] gets each field from the packet by its closure, and
/// writes it to a sink. Both walks check the rules: a packet that may not be received cannot be sent.
pub(crate) trait Walk<'a, P> {
    /// Result of a walk: the packet when decoding, nothing when encoding.
    type Built;

    fn build(&self, packet: impl FnOnce() -> P) -> Self::Built;

    fn version(&self) -> Version;
    /// The end that sends the packet, if known.
    fn sender(&self) -> Option<Role>;
    /// The flags of the fixed header or, for a part of a packet, the flags that announced the part.
    fn flags<F: Flags>(&self, of: impl FnOnce(&P) -> F) -> Result<F, Fault>;

    fn field<T: Field<'a>>(&mut self, of: impl FnOnce(&P) -> T) -> Result<T, Fault>;

    /// A field that a packet may omit at its end.
    ///
    /// The field is omitted if `omit` returns true: the field, and all after it, then have their default values. A
    /// value that the packet may not carry breaks the rule `unlisted`.
    fn tail<T: Field<'a> + Default>(
        &mut self,
        unlisted: Fault,
        omit: impl FnOnce(&P) -> bool,
        of: impl FnOnce(&P) -> T,
    ) -> Result<T, Fault>;

    /// A field that is present if an earlier flag announces it. A field that should be present and is not breaks
    /// the rule `missing`.
    fn announced<T: Field<'a>>(
        &mut self,
        announced: bool,
        missing: Fault,
        of: impl FnOnce(&P) -> Option<T>,
    ) -> Result<Option<T>, Fault>;

    /// The property length and the properties. Before MQTT 5 there are none.
    #[inline]
    fn properties<T: PropertySet<'a>>(&mut self, of: impl FnOnce(&P) -> &T) -> Result<T, Fault> {
        self.property_sets(|packet| ((), &(), of(packet))).map(|((), (), set)| set)
    }

    /// Like [`properties`](Self::properties), for a packet that stores its properties in several places.
    fn property_sets<A: PropertySet<'a>, B: PropertySet<'a>, T: PropertySet<'a>>(
        &mut self,
        of: impl FnOnce(&P) -> (A, &B, &T),
    ) -> Result<(A, B, T), Fault>;

    /// Like [`properties`](Self::properties), for properties that the packet may omit at its end as in
    /// [`tail`](Self::tail).
    fn tail_properties<T: PropertySet<'a>>(
        &mut self,
        omit: impl FnOnce(&P) -> bool,
        of: impl FnOnce(&P) -> &T,
    ) -> Result<T, Fault>;

    /// Items until the end of the packet. An empty list breaks the rule `none`.
    fn list<T: Field<'a> + Copy>(
        &mut self,
        none: Fault,
        of: impl FnOnce(&P) -> Option<OneOrMore<'a, T>>,
    ) -> Result<OneOrMore<'a, T>, Fault>;

    /// All remaining bytes of the packet.
    fn rest(&mut self, of: impl FnOnce(&P) -> &'a [u8]) -> Result<&'a [u8], Fault>;

    /// Sets the version of the rest of the packet, for CONNECT, which contains its version.
    fn set_version(&mut self, version: Version) -> Result<(), Fault>;

    /// A part with a layout of its own, present if `announced` contains its flags.
    fn part<Q: Layout<'a>, F: Flags>(
        &mut self,
        announced: Option<F>,
        of: impl FnOnce(&P) -> Option<Q>,
    ) -> Result<Option<Q>, Fault>;

    /// Number of bytes that have not been read; `None` when encoding.
    fn unread_bytes(&self) -> Option<usize>;

    fn check(&self, holds: bool, rule: Fault) -> Result<(), Fault> {
        if holds { Ok(()) } else { Err(rule) }
    }
}

/// A value with a fixed encoding on the wire.
pub(crate) trait Field<'a>: Sized {
    fn read(from: &mut Reader<'a>) -> Result<Self, Fault>;

    /// Goes past a value, and finds whatever is wrong with it.
    fn check(from: &mut Reader<'a>) -> Result<(), Fault> {
        Self::read(from).map(drop)
    }
    fn write<S: Sink + ?Sized>(&self, version: Version, sink: &mut S) -> Result<(), Fault>;

    /// Writes `id` and then the value, as in a property. Values of a fixed width are written in one piece.
    #[inline]
    fn write_behind<S: Sink + ?Sized>(&self, id: u8, sink: &mut S) -> Result<(), Fault> {
        sink.put_byte(id);
        self.write(Version::V5, sink)
    }
}

/// Flags that precede the fields they describe.
pub(crate) trait Flags: Sized {
    fn from_bits(bits: u8) -> Result<Self, Fault>;
    fn bits(&self) -> u8;
}
