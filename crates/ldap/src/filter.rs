use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::ber::{self, OCTET_STRING, SEQUENCE};
use crate::{FilterError, parse};

/// A filter in the language of RFC 4515, in which `{user}` in a value stands for the user name.
///
/// The text is parsed once. A search puts the bytes of the user name into the values, as they are: no user name can change
/// the filter, and none is escaped.
///
/// ```
/// let filter = ldap::Filter::parse("(|(uid={user})(mail={user}@pond.example))")?;
/// assert!(filter.has_user());
/// assert_eq!(ldap::Filter::parse("(uid=frog").unwrap_err().to_string(), "expected ), at byte 9");
/// # Ok::<(), ldap::FilterError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    root: Node,
    has_user: bool,
}

impl Filter {
    /// Parses a filter. All forms of RFC 4515 are supported. Braces other than those of `{user}` stand for themselves, and
    /// `\7buser}` is the text `{user}`.
    ///
    /// # Errors
    /// The text is not a filter, is beyond a limit, or has `{user}` outside of a value. The error says where.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        let (root, users) = parse::parse(text)?;
        Ok(Self { root, has_user: users > 0 })
    }

    /// Whether the filter depends on the user name. Otherwise each user finds the same entries.
    pub fn has_user(&self) -> bool {
        self.has_user
    }

    pub(crate) fn encode(&self, user: &str, out: &mut Vec<u8>) {
        self.root.encode(user.as_bytes(), out);
    }
}

/// A filter of section 4.5.1.7. Parsing limits its depth to [`NESTING_MAX`](crate::NESTING_MAX), so functions may recurse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    All(Vec<Node>),
    Any(Vec<Node>),
    Not(Box<Node>),
    Compare { comparison: Comparison, attribute: String, value: Value },
    Substrings { attribute: String, parts: Vec<(Place, Value)> },
    Present { attribute: String },
    Match { attribute: Option<String>, rule: Option<String>, is_of_dn: bool, value: Value },
}

/// A comparison of an attribute with one value. The number is its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal = 0xa3,
    GreaterOrEqual = 0xa5,
    LessOrEqual = 0xa6,
    Approximate = 0xa8,
}

/// The place of a part in a substring filter. The number is its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Initial = 0x80,
    Middle = 0x81,
    Final = 0x82,
}

impl Node {
    fn encode(&self, user: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::All(nodes) => encode_list(0xa0, nodes, user, out),
            Self::Any(nodes) => encode_list(0xa1, nodes, user, out),
            Self::Not(node) => ber::element(out, 0xa2, |out| node.encode(user, out)),
            Self::Compare { comparison, attribute, value } => ber::element(out, *comparison as u8, |out| {
                ber::primitive(out, OCTET_STRING, attribute.as_bytes());
                value.encode(OCTET_STRING, user, out);
            }),
            Self::Substrings { attribute, parts } => ber::element(out, 0xa4, |out| {
                ber::primitive(out, OCTET_STRING, attribute.as_bytes());
                ber::element(out, SEQUENCE, |out| {
                    for (place, value) in parts {
                        value.encode(*place as u8, user, out);
                    }
                });
            }),
            Self::Present { attribute } => ber::primitive(out, 0x87, attribute.as_bytes()),
            Self::Match { attribute, rule, is_of_dn, value } => ber::element(out, 0xa9, |out| {
                for (tag, name) in [(0x81, rule), (0x82, attribute)] {
                    if let Some(name) = name {
                        ber::primitive(out, tag, name.as_bytes());
                    }
                }
                value.encode(0x83, user, out);
                if *is_of_dn {
                    ber::primitive(out, 0x84, &[0xff]);
                }
            }),
        }
    }
}

fn encode_list(tag: u8, nodes: &[Node], user: &[u8], out: &mut Vec<u8>) {
    ber::element(out, tag, |out| nodes.iter().for_each(|node| node.encode(user, out)));
}

/// A value, or a part of one, with places for the user name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Value(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Bytes(Vec<u8>),
    User,
}

impl Value {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn push(&mut self, byte: u8) {
        match self.0.last_mut() {
            Some(Piece::Bytes(bytes)) => bytes.push(byte),
            _ => self.0.push(Piece::Bytes([byte].into())),
        }
    }

    pub(crate) fn push_user(&mut self) {
        self.0.push(Piece::User);
    }

    fn encode(&self, tag: u8, user: &[u8], out: &mut Vec<u8>) {
        ber::element(out, tag, |out| {
            for piece in &self.0 {
                match piece {
                    Piece::Bytes(bytes) => out.extend_from_slice(bytes),
                    Piece::User => out.extend_from_slice(user),
                }
            }
        });
    }
}
