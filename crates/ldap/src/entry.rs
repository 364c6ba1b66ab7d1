use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::{fmt, str};

use crate::Malformed;
use crate::ber::{OCTET_STRING, Reader, SEQUENCE, SET};

/// An entry that a search found (section 4.5.2).
///
/// The attributes stay in the bytes of the message, which are checked. Otherwise, a server could multiply the memory with
/// values of no bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// Name of the entry, as the directory writes it.
    pub name: String,
    /// Checked content of `PartialAttributeList`.
    list: Vec<u8>,
}

/// An attribute of an entry with its values (section 4.1.7).
#[derive(Clone, Copy)]
pub struct Attribute<'a> {
    /// Name of the attribute, with options. Case does not matter (RFC 4512, section 2.5).
    pub name: &'a str,
    /// Checked content of the set of values.
    set: &'a [u8],
}

impl Entry {
    /// Reads the content of `SearchResultEntry`. The loops are two deep, and each byte is read at most three times.
    pub(crate) fn read(mut elements: Reader<'_>) -> Result<Self, Malformed> {
        let name = str::from_utf8(elements.expect(OCTET_STRING)?).map_err(|_| Malformed::NotUtf8)?;
        let list = elements.expect(SEQUENCE)?;
        elements.finish()?;
        let mut attributes = Reader::new(list);
        while let Some((tag, content)) = attributes.element()? {
            if tag != SEQUENCE {
                return Err(Malformed::UnexpectedTag);
            }
            let mut values = Reader::new(Attribute::read(content)?.set);
            while let Some((tag, _)) = values.element()? {
                if tag != OCTET_STRING {
                    return Err(Malformed::UnexpectedTag);
                }
            }
        }
        Ok(Self { name: name.to_owned(), list: list.to_owned() })
    }

    /// The attributes, in the order of the message. An attribute without values is one of them.
    pub fn attributes(&self) -> impl Iterator<Item = Attribute<'_>> {
        contents(&self.list).map(|content| Attribute::read(content).expect("decoding checked the attribute"))
    }

    /// The values of all attributes of this name. Case does not matter. An attribute with options has another name.
    pub fn values(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.attributes()
            .filter(move |attribute| attribute.name.eq_ignore_ascii_case(name))
            .flat_map(|attribute| attribute.values())
    }
}

impl<'a> Attribute<'a> {
    fn read(content: &'a [u8]) -> Result<Self, Malformed> {
        let mut elements = Reader::new(content);
        let name = str::from_utf8(elements.expect(OCTET_STRING)?).map_err(|_| Malformed::NotUtf8)?;
        let set = elements.expect(SET)?;
        elements.finish()?;
        Ok(Self { name, set })
    }

    /// The values, in the order of the message, which has no meaning.
    pub fn values(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        contents(self.set)
    }
}

/// The contents of the elements in checked bytes.
fn contents(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut elements = Reader::new(bytes);
    core::iter::from_fn(move || {
        let element = elements.element().expect("decoding checked the elements");
        element.map(|(_, content)| content)
    })
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("name", &self.name)
            .field("attributes", &self.attributes().collect::<Vec<_>>())
            .finish()
    }
}

impl fmt::Debug for Attribute<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values: Vec<_> = self.values().map(|value| value.escape_ascii()).collect();
        f.debug_struct("Attribute").field("name", &self.name).field("values", &values).finish()
    }
}
