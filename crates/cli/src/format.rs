//! `-F`: the output format of messages.

use std::io::{self, Write};

use crate::failure::Failure;
use crate::json::{Style, hexadecimal};
use crate::received::{Payload, Received};
use crate::say::write_escaped;

/// A parsed and valid format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Literal(Vec<u8>),
    /// `%` and this letter, with its layout.
    Field(char, Layout),
    /// `@` and this letter: a conversion of `strftime`.
    Time(char),
    Nanoseconds,
}

/// Layout between `%` and its letter: `-`, `0`, a width, a point and a maximum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Layout {
    is_left: bool,
    has_zeros: bool,
    width: usize,
    max: Option<usize>,
}

/// Letters that may follow `%`.
const FIELDS: &str = "%ACDEFIjJlmpPqRrStUxX";

/// Maximum width. Larger values are reduced, because they would only serve to fill memory.
const WIDTH_MAX: usize = 100_000;

/// The format asks for a JSON payload, and the payload is not JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotJson;

impl Template {
    /// Parses a format.
    ///
    /// # Errors
    /// An unknown letter, or an incomplete specifier at the end.
    pub(crate) fn parse(format: &[u8]) -> Result<Self, Failure> {
        let mut template = Self(Vec::new());
        let mut rest = format.iter().copied();
        let incomplete = |what: &str| Failure::usage(format!("Error: Incomplete {what} specifier."));
        while let Some(byte) = rest.next() {
            match byte {
                b'%' => {
                    let (letter, layout) = field(&mut rest).ok_or_else(|| incomplete("format"))?;
                    if !FIELDS.contains(letter) {
                        let bad = Failure::usage(format!("Error: Invalid format specifier '{letter}'."));
                        return Err(bad.advise(format!("The letters after % are {}.", spaced(FIELDS))));
                    }
                    template.0.push(Piece::Field(letter, layout));
                }
                b'@' => template.0.push(match rest.next().ok_or_else(|| incomplete("format"))? {
                    b'N' => Piece::Nanoseconds,
                    b'@' => Piece::Literal(b"@".to_vec()),
                    conversion if conversion.is_ascii() => Piece::Time(char::from(conversion)),
                    // `strftime` has no such conversion; the byte is printed with `%`.
                    other => Piece::Literal(vec![b'%', other]),
                }),
                b'\\' => {
                    let letter = rest.next().map(char::from).ok_or_else(|| incomplete("escape"))?;
                    let byte = escaped(letter);
                    let byte = byte.ok_or_else(|| {
                        let bad = Failure::usage(format!("Error: Invalid escape specifier '{letter}'."));
                        bad.advise(format!("The letters after \\ are {}.", spaced(ESCAPES)))
                    })?;
                    template.push_literal(&[byte]);
                }
                other => template.push_literal(&[other]),
            }
        }
        Ok(template)
    }

    fn push_literal(&mut self, bytes: &[u8]) {
        match self.0.last_mut() {
            Some(Piece::Literal(literal)) => literal.extend(bytes),
            _ => self.0.push(Piece::Literal(bytes.to_vec())),
        }
    }

    /// Prints a message. A payload that is not JSON is left out and reported.
    pub(crate) fn write(
        &self,
        message: &Received<'_>,
        is_pretty: bool,
        is_terminal: bool,
        to: &mut impl Write,
    ) -> io::Result<Result<(), NotJson>> {
        let mut outcome = Ok(());
        // Only the format itself may move the cursor of a terminal.
        let write_field = |field: &dyn Fn(&mut dyn Write) -> io::Result<()>, mut to: &mut dyn Write| {
            if !is_terminal {
                return field(to);
            }
            let mut text = Vec::new();
            field(&mut text)?;
            write_escaped(&text, &mut to)
        };
        for piece in &self.0 {
            match piece {
                Piece::Literal(bytes) => to.write_all(bytes)?,
                Piece::Time(conversion) => write!(to, "{}", message.at.convert(*conversion))?,
                Piece::Nanoseconds => write!(to, "{:09}", message.at.nanoseconds())?,
                Piece::Field(letter @ ('j' | 'J'), _) => {
                    let payload = if *letter == 'j' { Payload::Text } else { Payload::Value };
                    match message.json(payload) {
                        Some(json) => {
                            let style = if is_pretty { Style::Tabs } else { Style::Compact };
                            write_field(&|mut to| json.write(style, &mut to), to)?;
                        }
                        None => outcome = Err(NotJson),
                    }
                }
                Piece::Field(letter, layout) => {
                    write_field(&|mut to| layout.write(*letter, message, &mut to), to)?;
                }
            }
        }
        Ok(outcome)
    }
}

/// Parses the layout and the letter after `%`; `None` if the format ends too early.
fn field(rest: &mut impl Iterator<Item = u8>) -> Option<(char, Layout)> {
    let mut rest = rest.map(char::from);
    let mut layout = Layout::default();
    let mut letter = rest.next()?;
    if letter == '-' {
        layout.is_left = true;
        letter = rest.next()?;
    }
    if letter == '0' {
        layout.has_zeros = true;
        letter = rest.next()?;
    }
    let mut digits = |letter: &mut char| -> Option<usize> {
        let mut number = 0_usize;
        while let Some(digit) = letter.to_digit(10) {
            number = number.saturating_mul(10).saturating_add(digit as usize).min(WIDTH_MAX);
            *letter = rest.next()?;
        }
        Some(number)
    };
    layout.width = digits(&mut letter)?;
    if letter == '.' {
        letter = '0';
        layout.max = Some(digits(&mut letter)?);
    }
    Some((letter, layout))
}

/// The letters that [`escaped`] knows.
const ESCAPES: &str = "\\0aenrtv";

/// Letters with spaces between them, for a list in an error.
fn spaced(letters: &str) -> String {
    letters.chars().map(String::from).collect::<Vec<_>>().join(" ")
}

fn escaped(letter: char) -> Option<u8> {
    Some(match letter {
        '\\' => b'\\',
        '0' => 0,
        'a' => 0x07,
        'e' => 0x1b,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 0x0b,
        _ => return None,
    })
}

impl Layout {
    fn write(self, letter: char, message: &Received<'_>, to: &mut impl Write) -> io::Result<()> {
        let properties = &message.properties;
        let payload = message.payload;
        match letter {
            '%' => to.write_all(b"%"),
            'A' => self.number(message.topic_alias, to),
            'C' => self.text(properties.content_type.map_or("", client::Utf8::as_str), to),
            'D' => to.write_all(properties.correlation_data.map_or(b"", wire::Binary::as_bytes)),
            'E' => self.number(properties.message_expiry_interval_secs, to),
            'F' => self.number(message.payload_format(), to),
            'I' => self.text(&message.at.iso_8601(), to),
            'l' => self.number(Some(u32::try_from(payload.len()).unwrap_or(u32::MAX)), to),
            'm' => self.number(Some(message.packet_id), to),
            'P' => user_properties(message, to),
            'p' => self.padded(&payload[..self.shown(payload.len())], to),
            'q' => write!(to, "{}", message.qos.level()),
            // A missing response topic prints nothing, without the padding of other fields.
            'R' => properties.response_topic.map_or(Ok(()), |topic| self.text(topic.0.as_str(), to)),
            'r' => write!(to, "{}", u8::from(message.retain)),
            'S' => self.number(message.subscription_identifier, to),
            't' => self.text(message.topic, to),
            'U' => write!(to, "{}", message.at.unix()),
            // Mosquitto's rule: with a width, the number of bytes shown is half of the width or of the payload,
            // whichever is less.
            'x' | 'X' => {
                let len = payload.len();
                let shown = if self.width > 0 { self.shown(len) / 2 } else { len };
                self.padded(&digits(&payload[..shown], letter == 'X'), to)
            }
            // Never reached: the parser checks the letters, and JSON is printed elsewhere.
            _ => Ok(()),
        }
    }

    /// Number of payload bytes to print.
    fn shown(self, len: usize) -> usize {
        if self.width > 0 { len.min(self.width) } else { len }
    }

    /// Prints text, cut at the maximum, and padded with spaces to the width.
    fn text(self, text: &str, to: &mut impl Write) -> io::Result<()> {
        let bytes = text.as_bytes();
        let bytes = &bytes[..self.max.unwrap_or(bytes.len()).min(bytes.len())];
        Self { has_zeros: false, ..self }.padded(bytes, to)
    }

    /// Prints a number. Without one, prints the padding alone, as Mosquitto's clients do.
    fn number(self, number: Option<impl Into<u32>>, to: &mut impl Write) -> io::Result<()> {
        match number {
            Some(number) => self.padded(number.into().to_string().as_bytes(), to),
            None => Self { is_left: false, ..self }.padded(b"", to),
        }
    }

    fn padded(self, bytes: &[u8], to: &mut impl Write) -> io::Result<()> {
        let pad = if self.has_zeros && !self.is_left { b"0" } else { b" " };
        let padding = pad.repeat(self.width.saturating_sub(bytes.len()));
        if self.is_left {
            to.write_all(bytes)?;
            to.write_all(&padding)
        } else {
            to.write_all(&padding)?;
            to.write_all(bytes)
        }
    }
}

/// Prints the User Properties one by one, because a server can make them many.
fn user_properties(message: &Received<'_>, to: &mut impl Write) -> io::Result<()> {
    for (index, pair) in message.properties.user_properties.iter().enumerate() {
        let space = if index > 0 { " " } else { "" };
        write!(to, "{space}{}:{}", pair.name.as_str(), pair.value.as_str())?;
    }
    Ok(())
}

fn digits(bytes: &[u8], is_upper: bool) -> Vec<u8> {
    let digits = bytes.iter().flat_map(|byte| hexadecimal(*byte));
    if is_upper { digits.map(|digit| digit.to_ascii_uppercase()).collect() } else { digits.collect() }
}

#[cfg(test)]
mod tests {
    use client::{MessageProperties, Qos};

    use super::*;
    use crate::clock::Moment;

    fn printed(format: &str) -> String {
        let message = Received {
            topic: "r/1",
            payload: b"abcdef",
            qos: Qos::AtLeastOnce,
            retain: true,
            packet_id: 7,
            topic_alias: None,
            subscription_identifier: Some(9),
            properties: MessageProperties::EMPTY,
            at: Moment::now(),
        };
        let mut bytes = Vec::new();
        let outcome =
            Template::parse(format.as_bytes()).unwrap().write(&message, false, false, &mut bytes).unwrap();
        assert_eq!(outcome, Ok(()));
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn fields_are_laid_out_as_mosquitto_lays_them_out() {
        for (format, expected) in [
            ("%t %p %q %r %l %m %S %%", "r/1 abcdef 1 1 6 7 9 %"),
            ("%3p|%3x|%5X|%-5X|%05x|%12x", "abc| 61| 6162|6162 |06162|      616263"),
            ("%020p|%-020p|", "00000000000000abcdef|abcdef              |"),
            ("%5.2t|%-5t|%05t|%.0t|%10.t|", "   r/|r/1  |  r/1||          |"),
            ("%05l|%-5l|%-05l|%5.3l|%05q|%5A|", "00006|6    |6    |    6|1|     |"),
            ("%04A|%-04A|%-4A|%04F|", "0000|0000|    |0000|"),
            ("a\\tb\\\\@@", "a\tb\\@"),
        ] {
            assert_eq!(printed(format), expected, "{format}");
        }
    }

    #[test]
    fn a_format_that_says_nothing_is_refused() {
        for (format, text) in [
            ("%", "Incomplete format specifier"),
            ("%5.", "Incomplete format specifier"),
            ("@", "Incomplete format specifier"),
            ("%y", "Invalid format specifier 'y'"),
            ("%--5l", "Invalid format specifier '-'"),
            ("\\", "Incomplete escape specifier"),
            ("\\q", "Invalid escape specifier 'q'"),
        ] {
            let failure = Template::parse(format.as_bytes()).expect_err(format);
            assert!(failure.text.contains(text), "{format}: {failure}");
        }
    }
}
