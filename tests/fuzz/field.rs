//! Packets as lists of fields, so that a field can be changed and all lengths around it fit again.

use pondhawk_tests::Version;
use pondhawk_tests::packet::{packet, variable_byte_integer};

/// A field of a packet.
#[derive(Debug, Clone)]
pub(crate) enum Field {
    Byte(u8),
    Two(u16),
    Four(u32),
    Varint(u32),
    /// With a length of two bytes before it.
    Text(Vec<u8>),
    /// Nothing before it: a payload, or what a mutation has put together.
    Bare(Vec<u8>),
    /// Properties, each an identifier and its values, with their length before them.
    Properties(Vec<Vec<Field>>),
}

/// A packet before it is bytes.
#[derive(Debug, Clone)]
pub(crate) struct Fields {
    pub(crate) first: u8,
    pub(crate) fields: Vec<Field>,
}

impl Field {
    pub(crate) fn text(text: &str) -> Self {
        Self::Text(text.as_bytes().to_vec())
    }

    /// The properties of a packet, where the version has any.
    pub(crate) fn properties(version: Version, properties: Vec<Vec<Self>>) -> Option<Self> {
        version.is_5().then_some(Self::Properties(properties))
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Byte(byte) => vec![*byte],
            Self::Two(number) => number.to_be_bytes().to_vec(),
            Self::Four(number) => number.to_be_bytes().to_vec(),
            Self::Varint(number) => variable_byte_integer(*number as usize % (1 << 28)),
            Self::Text(text) => {
                let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
                [&length.to_be_bytes(), &text[..]].concat()
            }
            Self::Bare(bytes) => bytes.clone(),
            Self::Properties(properties) => {
                let block: Vec<u8> = properties.iter().flatten().flat_map(Self::bytes).collect();
                [variable_byte_integer(block.len()), block].concat()
            }
        }
    }
}

impl Fields {
    pub(crate) fn new(first: u8, fields: impl IntoIterator<Item = Field>) -> Self {
        Self { first, fields: fields.into_iter().collect() }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let body: Vec<u8> = self.fields.iter().flat_map(Field::bytes).collect();
        packet(self.first, &body)
    }
}
