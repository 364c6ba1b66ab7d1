//! Packets as the features write them: tables whose first column has bytes and whose second says what they mean.
//!
//! | in the first column | bytes |
//! |---|---|
//! | `82 0A` | these, in hexadecimal |
//! | `"hey"` | those of the text, in UTF-8 |
//! | `'a/b'` | the same as an MQTT string: two bytes of length before it |
//! | `len` | how many bytes follow in the table, as Remaining Length counts them |
//! | `..` | any one byte; only where a packet is received |
//! | `*` | whatever comes until the end of the packet; only where it is received, and only at the end |

use pondhawk_tests::packet;

/// One byte, or what stands for some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Byte(u8),
    /// Replaced as soon as it is known what follows.
    Length,
    AnyByte,
    AnyRest,
}

/// A packet that is sent, or what one that is received has to look like.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Pattern(Vec<Unit>);

impl Pattern {
    /// Reads the first column of a table.
    ///
    /// # Panics
    /// When it says something that the table at the top of this file does not know.
    pub(crate) fn parse<'a>(cells: impl IntoIterator<Item = &'a str>) -> Self {
        let mut units = Vec::new();
        for cell in cells {
            let mut rest = cell.trim_start();
            while !rest.is_empty() {
                rest = token(rest, &mut units).trim_start();
            }
        }
        if let Some(place) = units.iter().position(|unit| *unit == Unit::Length) {
            let following = units.len() - place - 1;
            let length = packet::variable_byte_integer(following);
            units.splice(place..=place, length.into_iter().map(Unit::Byte));
        }
        Self(units)
    }

    /// The bytes, where each is known.
    ///
    /// # Panics
    /// When one is not.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let byte = |unit: &Unit| match unit {
            Unit::Byte(byte) => *byte,
            other => panic!("{other:?} cannot be sent"),
        };
        self.0.iter().map(byte).collect()
    }

    /// Whether a packet looks like this.
    pub(crate) fn matches(&self, packet: &[u8]) -> bool {
        let (units, is_open) = match self.0.split_last() {
            Some((Unit::AnyRest, units)) => (units, true),
            _ => (&self.0[..], false),
        };
        let is_long_enough = if is_open { packet.len() >= units.len() } else { packet.len() == units.len() };
        let is_alike = |(unit, byte): (&Unit, &u8)| *unit == Unit::AnyByte || *unit == Unit::Byte(*byte);
        is_long_enough && units.iter().zip(packet).all(is_alike)
    }
}

/// Reads one token from the beginning of a text; what is left comes back.
fn token<'a>(text: &'a str, units: &mut Vec<Unit>) -> &'a str {
    let quote = text.chars().next().filter(|first| ['"', '\''].contains(first));
    if let Some(quote) = quote {
        let (quoted, rest) = text[1..].split_once(quote).unwrap_or_else(|| panic!("{text} does not end"));
        let bytes = if quote == '"' { quoted.into() } else { packet::string(quoted) };
        units.extend(bytes.into_iter().map(Unit::Byte));
        return rest;
    }
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    units.push(match word {
        "len" => Unit::Length,
        ".." => Unit::AnyByte,
        "*" => Unit::AnyRest,
        hex => Unit::Byte(byte(hex)),
    });
    rest
}

fn byte(hex: &str) -> u8 {
    let is_pair = hex.len() == 2;
    let byte = u8::from_str_radix(hex, 16).ok().filter(|_| is_pair);
    byte.unwrap_or_else(|| panic!("{hex} is not a byte in hexadecimal"))
}
