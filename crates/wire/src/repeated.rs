//! Values that a packet may contain more than once: repeated properties, and lists.

use core::fmt;

use crate::number::SubscriptionIdentifier;
use crate::property::Property;
use crate::read::Reader;
use crate::rule::{self, Fault};
use crate::sink::Sink;
use crate::string::Utf8;
use crate::version::Version;
use crate::walk::Field;

/// The values of a property that may occur any number of times, in order.
///
/// The values are in the bytes of a decoded packet, or in a slice.
#[derive(Clone, Copy)]
pub struct Repeated<'a, T> {
    /// Number of bytes of a block, or number of items of a slice.
    len: usize,
    source: Source<'a, T>,
}

/// The user properties of a packet, in order.
///
/// ```
/// # use pondhawk_wire::{UserProperties, UserProperty, Utf8};
/// let pairs = [UserProperty { name: Utf8::new("trace")?, value: Utf8::new("7f")? }];
/// let properties = UserProperties::from(&pairs[..]);
/// assert_eq!(properties.iter().next(), Some(pairs[0]));
/// # Ok::<(), pondhawk_wire::Utf8Error>(())
/// ```
pub type UserProperties<'a> = Repeated<'a, UserProperty<'a>>;

/// The identifiers of the subscriptions that a PUBLISH matches (section 3.3.2.3.8).
pub type SubscriptionIdentifiers<'a> = Repeated<'a, SubscriptionIdentifier>;

/// User property (section 3.1.2.11.8): a name and a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserProperty<'a> {
    /// The name. Several properties may have the same name.
    pub name: Utf8<'a>,
    /// The value of the property.
    pub value: Utf8<'a>,
}

/// The type of a value in [`Repeated`].
pub(crate) trait RepeatedField<'a>: Field<'a> + Copy + fmt::Display + 'a {
    const PROPERTY: Property;

    /// Goes past a value, and past all values of this property that follow it directly. Finds whatever is wrong with
    /// them.
    fn check_run(from: &mut Reader<'a>) -> Result<(), Fault> {
        Self::check(from)
    }
}

#[derive(Clone, Copy)]
enum Source<'a, T> {
    /// The values in the first `len` bytes of `block`, which have been checked before. If `is_pure` is false, other
    /// properties may be between the values.
    Block {
        block: &'a [u8],
        is_pure: bool,
    },
    Slice(&'a [T]),
}

#[allow(private_bounds)] // Only `UserProperty` and `SubscriptionIdentifier` implement the trait.
impl<'a, T: RepeatedField<'a>> Repeated<'a, T> {
    /// A value of this type without any items.
    pub const EMPTY: Self = Self { len: 0, source: Source::Slice(&[]) };

    /// Whether there are no values.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the values in order.
    pub fn iter(&self) -> RepeatedIter<'a, T> {
        RepeatedIter(match self.source {
            Source::Block { block, is_pure } => Source::Block { block: &block[..self.len], is_pure },
            slice @ Source::Slice(_) => slice,
        })
    }

    /// All bytes of `block`, which must contain no other properties.
    pub(crate) const fn of_block(block: &'a [u8]) -> Self {
        Self { len: block.len(), source: Source::Block { block, is_pure: true } }
    }

    /// The properties as bytes of the packet, if no other properties are between them.
    ///
    /// Whoever writes the properties again can copy these bytes without reading them. A slice that is not empty has
    /// no such bytes.
    pub const fn as_bytes(&self) -> Option<&'a [u8]> {
        match self.source {
            Source::Block { block, is_pure: true } => Some(block.split_at(self.len).0),
            Source::Block { .. } => None,
            Source::Slice(_) if self.len == 0 => Some(&[]),
            Source::Slice(_) => None,
        }
    }

    /// Whether the values are at the end of the block, without other properties between or after them.
    pub(crate) const fn is_at_end(&self) -> bool {
        match self.source {
            Source::Block { block, is_pure } => is_pure && self.len == block.len(),
            Source::Slice(_) => self.len == 0,
        }
    }

    /// Adds one value, whose identifier is at the start of `at`. `behind` begins after the value. Both slices end
    /// at the end of the block.
    pub(crate) fn extend(&mut self, at: &'a [u8], behind: &'a [u8]) {
        let (block, is_pure) = match self.source {
            Source::Block { block, is_pure } => (block, is_pure && self.len == block.len() - at.len()),
            Source::Slice(_) => (at, true),
        };
        *self = Self { len: block.len() - behind.len(), source: Source::Block { block, is_pure } };
    }

    /// Writes the identifier and the value of each property. Properties that are contiguous in a packet are copied
    /// at once.
    pub(crate) fn write<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), Fault> {
        if let Source::Block { block, is_pure: true } = self.source {
            sink.put(&block[..self.len]);
            return Ok(());
        }
        self.iter().try_for_each(|item| item.write_behind(T::PROPERTY.id(), sink))
    }
}

/// Iterator over the values of a [`Repeated`].
#[derive(Clone, Copy)]
pub struct RepeatedIter<'a, T>(Source<'a, T>);

#[allow(private_bounds)]
impl<'a, T: RepeatedField<'a>> Iterator for RepeatedIter<'a, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        match &mut self.0 {
            Source::Slice(items) => {
                let (first, rest) = items.split_first()?;
                *items = rest;
                Some(*first)
            }
            Source::Block { block, .. } => {
                let mut from = Reader::new(block, Version::V5);
                let found = next_in_block(&mut from);
                *block = from.rest;
                // The block has been checked before, and contains no fault.
                found.ok().flatten()
            }
        }
    }
}

/// Returns the next value of the property, and skips all other properties before it.
fn next_in_block<'a, T: RepeatedField<'a>>(from: &mut Reader<'a>) -> Result<Option<T>, Fault> {
    while let Some((&id, behind)) = from.rest.split_first() {
        from.rest = behind;
        if id == T::PROPERTY.id() {
            return T::read(from).map(Some);
        }
        if let Some(other) = Property::from_id(id) {
            other.skip(from)?;
        }
    }
    Ok(None)
}

impl<'a> Field<'a> for UserProperty<'a> {
    fn read(from: &mut Reader<'a>) -> Result<Self, Fault> {
        #[cfg(feature = "meter")]
        crate::meter::count_user_property();
        let mut half = || match Utf8::read(from) {
            Err(fault) if core::ptr::eq(fault, &rule::ILL_FORMED_UTF8) => Err(&rule::ILL_FORMED_PAIR),
            half => half,
        };
        Ok(Self { name: half()?, value: half()? })
    }

    fn write<S: Sink + ?Sized>(&self, version: Version, sink: &mut S) -> Result<(), Fault> {
        self.name.write(version, sink)?;
        self.value.write(version, sink)
    }

    /// Those that are short and plain take a third of the time here.
    #[inline]
    fn check(from: &mut Reader<'a>) -> Result<(), Fault> {
        match behind_plain_text(from.rest).and_then(behind_plain_text) {
            Some(behind) => {
                #[cfg(feature = "meter")]
                crate::meter::count_user_property();
                from.rest = behind;
                Ok(())
            }
            None => Self::read(from).map(drop),
        }
    }

    #[inline]
    fn write_behind<S: Sink + ?Sized>(&self, id: u8, sink: &mut S) -> Result<(), Fault> {
        self.name.write_behind(id, sink)?;
        self.value.write(Version::V5, sink)
    }
}

impl<'a> RepeatedField<'a> for UserProperty<'a> {
    const PROPERTY: Property = Property::UserProperty;

    /// A packet may have hundreds of thousands, and a shard does nothing else meanwhile.
    fn check_run(from: &mut Reader<'a>) -> Result<(), Fault> {
        loop {
            Self::check(from)?;
            match from.rest.split_first() {
                Some((&id, behind)) if id == Self::PROPERTY.id() => from.rest = behind,
                _ => return Ok(()),
            }
        }
    }
}

/// Returns the bytes behind a string of at most 127 bytes, if all of those are ASCII and none is U+0000.
#[inline]
fn behind_plain_text(bytes: &[u8]) -> Option<&[u8]> {
    let (text, behind) = short_text(bytes)?;
    text.iter().all(|byte| matches!(byte, 1..=127)).then_some(behind)
}

/// Takes the bytes of a string apart from those behind it, if it has at most 127 bytes.
#[inline]
pub(crate) fn short_text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    let [0, len @ 0..=127] = *len else { return None };
    rest.split_at_checked(usize::from(len))
}

impl<'a> RepeatedField<'a> for SubscriptionIdentifier {
    const PROPERTY: Property = Property::SubscriptionIdentifier;
}

impl fmt::Display for UserProperty<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.value)
    }
}

impl<T> Default for Repeated<'_, T> {
    fn default() -> Self {
        Self { len: 0, source: Source::Slice(&[]) }
    }
}

impl<'a, T> From<&'a [T]> for Repeated<'a, T> {
    fn from(items: &'a [T]) -> Self {
        Self { len: items.len(), source: Source::Slice(items) }
    }
}

#[allow(private_bounds)]
impl<'a, T: RepeatedField<'a>> IntoIterator for Repeated<'a, T> {
    type Item = T;
    type IntoIter = RepeatedIter<'a, T>;

    fn into_iter(self) -> RepeatedIter<'a, T> {
        self.iter()
    }
}

impl<'a, T: RepeatedField<'a> + PartialEq> PartialEq for Repeated<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<'a, T: RepeatedField<'a> + fmt::Debug> fmt::Debug for Repeated<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A list with at least one item, at the end of a packet.
///
/// The items are in the bytes of a decoded packet, or in a slice.
#[derive(Clone, Copy)]
pub struct OneOrMore<'a, T>(List<'a, T>);

#[derive(Clone, Copy)]
enum List<'a, T> {
    /// Bytes that are not empty, and whose items have all been checked.
    Bytes { bytes: &'a [u8], version: Version },
    /// Items of a slice that is not empty.
    Slice(&'a [T]),
}

impl<'a, T> OneOrMore<'a, T> {
    /// Makes a list of the items of a slice; `None` if the slice is empty.
    pub const fn new(items: &'a [T]) -> Option<Self> {
        if items.is_empty() { None } else { Some(Self(List::Slice(items))) }
    }

    /// Makes a list of one item.
    pub const fn one(item: &'a T) -> Self {
        Self(List::Slice(core::slice::from_ref(item)))
    }
}

#[allow(private_bounds)] // The lists of packets have only items of types in this crate.
impl<'a, T: Field<'a> + Copy> OneOrMore<'a, T> {
    /// Returns the items in order.
    pub fn iter(&self) -> OneOrMoreIter<'a, T> {
        OneOrMoreIter(self.0)
    }

    /// Reads items until the end of the packet. `none` is the fault of an empty list.
    pub(crate) fn read(from: &mut Reader<'a>, none: Fault) -> Result<Self, Fault> {
        let bytes = from.rest;
        if bytes.is_empty() {
            return Err(none);
        }
        while !from.rest.is_empty() {
            T::check(from)?;
        }
        Ok(Self(List::Bytes { bytes, version: from.version }))
    }

    pub(crate) fn write<S: Sink + ?Sized>(&self, version: Version, sink: &mut S) -> Result<(), Fault> {
        self.iter().try_for_each(|item| item.write(version, sink))
    }
}

/// Iterator over the items of a [`OneOrMore`].
#[derive(Clone, Copy)]
pub struct OneOrMoreIter<'a, T>(List<'a, T>);

impl<'a, T> OneOrMoreIter<'a, T> {
    /// The bytes of the remaining items, if the list was decoded. [`of_bytes`](Self::of_bytes) makes an iterator of
    /// them.
    pub const fn as_bytes(&self) -> Option<&'a [u8]> {
        match self.0 {
            List::Bytes { bytes, .. } => Some(bytes),
            List::Slice(_) => None,
        }
    }

    /// Continues an iterator whose remaining bytes are `bytes`. Bytes that are no valid item end the iteration.
    pub const fn of_bytes(bytes: &'a [u8], version: Version) -> Self {
        Self(List::Bytes { bytes, version })
    }
}

#[allow(private_bounds)]
impl<'a, T: Field<'a> + Copy> Iterator for OneOrMoreIter<'a, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        match &mut self.0 {
            List::Slice(items) => {
                let (first, rest) = items.split_first()?;
                *items = rest;
                Some(*first)
            }
            List::Bytes { bytes, version } => {
                let mut from = Reader::new(bytes, *version);
                // Every item has been checked before. Only the end of the bytes can fail here.
                let item = T::read(&mut from).ok();
                *bytes = from.rest;
                item
            }
        }
    }
}

#[allow(private_bounds)]
impl<'a, T: Field<'a> + Copy> IntoIterator for OneOrMore<'a, T> {
    type Item = T;
    type IntoIter = OneOrMoreIter<'a, T>;

    fn into_iter(self) -> OneOrMoreIter<'a, T> {
        self.iter()
    }
}

impl<'a, T: Field<'a> + Copy + PartialEq> PartialEq for OneOrMore<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<'a, T: Field<'a> + Copy + fmt::Debug> fmt::Debug for OneOrMore<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Writes the items, separated by commas.
impl<'a, T: Field<'a> + Copy + fmt::Display> fmt::Display for OneOrMore<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        self.iter().try_for_each(|item| {
            write!(f, "{separator}{item}")?;
            separator = ", ";
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;
    use crate::MessageProperties;

    fn names<'a>(properties: &UserProperties<'a>) -> Vec<&'a str> {
        properties.iter().map(|property| property.name.as_str()).collect()
    }

    /// [MQTT-3.3.2-18]
    #[test]
    fn user_properties_keep_their_order_wherever_they_stand() {
        let pure = MessageProperties::from_bytes(b"\x01\x01&\0\x01a\0\0&\0\x01b\0\0&\0\x01a\0\0").unwrap();
        let mixed =
            MessageProperties::from_bytes(b"&\0\x01a\0\0\x01\x01&\0\x01b\0\0&\0\x01a\0\0\x02\0\0\0\0")
                .unwrap();
        assert_eq!(names(&pure.user_properties), ["a", "b", "a"]);
        assert_eq!(names(&mixed.user_properties), ["a", "b", "a"]);
        assert_eq!(pure.user_properties, mixed.user_properties);
        let (mut from_pure, mut from_mixed) = (vec![], vec![]);
        pure.user_properties.write(&mut from_pure).unwrap();
        mixed.user_properties.write(&mut from_mixed).unwrap();
        assert_eq!(from_pure, b"&\0\x01a\0\0&\0\x01b\0\0&\0\x01a\0\0");
        assert_eq!(from_mixed, from_pure);
    }

    #[test]
    fn lists_are_equal_if_their_items_are() {
        use crate::SubAckReason::{GrantedQos0, GrantedQos1};
        let lists = [&[GrantedQos0][..], &[GrantedQos1], &[GrantedQos0, GrantedQos1]];
        for (at, one) in lists.iter().enumerate() {
            for (other_at, other) in lists.iter().enumerate() {
                let is_equal = OneOrMore::new(one).unwrap() == OneOrMore::new(other).unwrap();
                assert_eq!(is_equal, at == other_at);
            }
        }
    }

    #[test]
    fn user_properties_in_a_row_are_checked_as_they_are_read() {
        let pairs: [&[u8]; 6] = [
            b"\0\x01n\0\x01v",
            b"\0\0\0\0",
            b"\0\x02\xc3\xa4\0\0",
            b"\0\x01\0\0\0",
            b"\0\x01\xff\0\0",
            b"\0\x09n",
        ];
        for (first, second) in pairs.iter().flat_map(|first| pairs.map(|second| (first, second))) {
            for behind in [&b""[..], b"\x01\x01"] {
                let bytes = [first, &b"&"[..], second, behind].concat();
                let [mut read, mut checked] = [(); 2].map(|()| Reader::new(&bytes, Version::V5));
                let mut result = UserProperty::read(&mut read);
                if result.is_ok() {
                    read.rest = &read.rest[1..];
                    result = UserProperty::read(&mut read);
                }
                assert_eq!(UserProperty::check_run(&mut checked), result.map(drop), "{bytes:?}");
                assert!(result.is_err() || checked.rest == behind, "{bytes:?}");
            }
        }
    }

    #[test]
    fn a_list_has_at_least_one_item() {
        assert!(OneOrMore::<Utf8<'_>>::new(&[]).is_none());
        let only = Utf8::new("a").unwrap();
        assert!(OneOrMore::one(&only).iter().eq([only]));
    }
}
