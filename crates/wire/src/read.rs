//! The walk that decodes: from bytes to a packet.

use crate::property::{PropertySet, read_block};
use crate::repeated::OneOrMore;
use crate::rule::{self, Fault};
use crate::varint;
use crate::version::{Role, Version};
use crate::walk::{Field, Flags, Layout, Walk};

/// The bytes of a packet that have not been read yet, and the state of the walk.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    pub(crate) rest: &'a [u8],
    /// Version of the packet. Until the protocol level of a CONNECT has been read, the packet is read as 3.1.1.
    pub(crate) version: Version,
    pub(crate) is_version_known: bool,
    pub(crate) flags: u8,
    /// Whether Remaining Length is encoded in as few bytes as possible, as MQTT 5 demands.
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

    /// Reads a length of two bytes, and returns the bytes after it.
    #[inline]
    pub(crate) fn counted(&mut self) -> Result<&'a [u8], Fault> {
        let len = u16::from_be_bytes(self.array()?);
        self.take(len.into())
    }

    /// Reads a length of two bytes, and returns the UTF-8 text after it.
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
