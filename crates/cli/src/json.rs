//! JSON as Mosquitto's clients read and print it, with the behaviour of cJSON.
//!
//! Strings may contain any bytes. Keys keep their order, and may be repeated. Numbers are printed with 15
//! significant digits where this is exact enough.

use std::io::{self, Write};

use wire::{MessageProperties, UserProperties};

/// A JSON value in memory.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    /// The digits as they were written.
    Number(String),
    Text(Vec<u8>),
    /// Bytes that are printed as a string of hexadecimal digits.
    Hexadecimal(Vec<u8>),
    List(Vec<Json>),
    Object(Vec<(Vec<u8>, Json)>),
    /// An object whose members are the User Properties of a message, which a server can make many.
    Pairs(Pairs),
}

/// User Properties, in the encoding of a packet.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pairs {
    bytes: Vec<u8>,
    is_escaped: bool,
}

impl Pairs {
    pub(crate) fn new(user_properties: UserProperties<'_>) -> Self {
        let mut bytes = Vec::new();
        let all = MessageProperties { user_properties, ..MessageProperties::EMPTY };
        // A vector has room for all of them.
        let _ = all.write_bytes(&mut bytes);
        Self { bytes, is_escaped: false }
    }

    fn get(&self) -> UserProperties<'_> {
        MessageProperties::from_bytes(&self.bytes).map(|all| all.user_properties).unwrap_or_default()
    }
}

/// Maximum size of text that is parsed. A value needs up to about fifty times the memory of its text.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// Maximum depth of nested values. Deeper ones count as invalid.
const DEPTH_MAX: usize = 1_000;

impl Json {
    /// Parses the bytes before the first zero byte. All of them must be one value, of at most [`TEXT_BYTES_MAX`].
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        let bytes = Some(&bytes[..end]).filter(|bytes| bytes.len() <= TEXT_BYTES_MAX)?;
        let mut reader = Reader { rest: bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes) };
        let value = reader.value(0)?;
        reader.skip_space();
        reader.rest.is_empty().then_some(value)
    }

    pub(crate) fn text(text: &str) -> Self {
        Self::Text(text.as_bytes().to_vec())
    }

    pub(crate) fn number(number: impl Into<u64>) -> Self {
        Self::Number(number.into().to_string())
    }

    /// Escapes the control characters in all texts that JSON itself allows, for a terminal.
    pub(crate) fn escaped(self) -> Self {
        let text = |text: Vec<u8>| {
            let is_plain = |byte: &u8| (b' '..=b'~').contains(byte);
            if text.iter().all(is_plain) { text } else { hidden_escaped(&text) }
        };
        match self {
            Self::Text(bytes) => Self::Text(text(bytes)),
            Self::List(items) => Self::List(items.into_iter().map(Self::escaped).collect()),
            Self::Object(members) => {
                Self::Object(members.into_iter().map(|(name, value)| (text(name), value.escaped())).collect())
            }
            Self::Pairs(pairs) => Self::Pairs(Pairs { is_escaped: true, ..pairs }),
            other => other,
        }
    }

    /// Whether the value is a list or an object, and may be printed on several lines.
    pub(crate) fn is_container(&self) -> bool {
        matches!(self, Self::List(_) | Self::Object(_) | Self::Pairs(_))
    }

    /// Prints the value in this style.
    pub(crate) fn write(&self, style: Style, to: &mut impl Write) -> io::Result<()> {
        Printer { style, to }.value(self, 0)
    }
}

/// Escapes the control characters beyond those of ASCII, which JSON escapes itself.
fn hidden_escaped(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_ascii_control() {
                text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            } else {
                text.extend_from_slice(wire::Shown(character).to_string().as_bytes());
            }
        }
        chunk.invalid().iter().for_each(|byte| text.extend_from_slice(format!("\\x{byte:02x}").as_bytes()));
    }
    text
}

/// Layout of printed JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// One line, with the number format of cJSON.
    Compact,
    /// Several lines with tabs, like cJSON.
    Tabs,
    /// One line, with numbers as they were written.
    Exact,
    /// Several lines, optionally in colour, for a terminal.
    Terminal { in_colour: bool },
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn skip_space(&mut self) {
        let space = self.rest.iter().take_while(|byte| **byte <= b' ').count();
        self.rest = &self.rest[space..];
    }

    fn take(&mut self, token: &[u8]) -> Option<()> {
        self.skip_space();
        self.rest = self.rest.strip_prefix(token)?;
        Some(())
    }

    fn value(&mut self, depth: usize) -> Option<Json> {
        self.skip_space();
        if depth > DEPTH_MAX {
            return None;
        }
        match self.rest.first()? {
            b'n' => self.take(b"null").map(|()| Json::Null),
            b't' => self.take(b"true").map(|()| Json::Bool(true)),
            b'f' => self.take(b"false").map(|()| Json::Bool(false)),
            b'"' => self.string().map(Json::Text),
            b'[' => self.list(depth),
            b'{' => self.object(depth),
            b'-' | b'0'..=b'9' => self.number(),
            _ => None,
        }
    }

    fn number(&mut self) -> Option<Json> {
        let is_part = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'e' | b'E' | b'.');
        let length = self.rest.iter().take_while(is_part).count();
        let (number, rest) = self.rest.split_at(length);
        let number = std::str::from_utf8(number).ok().filter(|number| number.parse::<f64>().is_ok())?;
        self.rest = rest;
        Some(Json::Number(number.to_owned()))
    }

    fn list(&mut self, depth: usize) -> Option<Json> {
        self.take(b"[")?;
        let mut items = Vec::new();
        if self.take(b"]").is_some() {
            return Some(Json::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if self.take(b",").is_none() {
                return self.take(b"]").map(|()| Json::List(items));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Option<Json> {
        self.take(b"{")?;
        let mut members = Vec::new();
        if self.take(b"}").is_some() {
            return Some(Json::Object(members));
        }
        loop {
            self.skip_space();
            let name = self.string()?;
            self.take(b":")?;
            members.push((name, self.value(depth + 1)?));
            if self.take(b",").is_none() {
                return self.take(b"}").map(|()| Json::Object(members));
            }
        }
    }

    fn string(&mut self) -> Option<Vec<u8>> {
        self.rest = self.rest.strip_prefix(b"\"")?;
        let mut text = Vec::new();
        loop {
            let (byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            match byte {
                b'"' => return Some(text),
                b'\\' => self.escape(&mut text)?,
                byte => text.push(*byte),
            }
        }
    }

    fn escape(&mut self, text: &mut Vec<u8>) -> Option<()> {
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        text.push(match byte {
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'"' | b'\\' | b'/' => *byte,
            b'u' => return self.code_point(text),
            _ => return None,
        });
        Some(())
    }

    /// Reads the four digits of an escape, or a surrogate pair of two escapes.
    fn code_point(&mut self, text: &mut Vec<u8>) -> Option<()> {
        let first = self.four_digits()?;
        let code = if (0xd800..0xdc00).contains(&first) {
            self.rest = self.rest.strip_prefix(b"\\u")?;
            let second = self.four_digits().filter(|second| (0xdc00..0xe000).contains(second))?;
            0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00)
        } else {
            first
        };
        let character = char::from_u32(code)?;
        text.extend(character.encode_utf8(&mut [0; 4]).as_bytes());
        Some(())
    }

    fn four_digits(&mut self) -> Option<u32> {
        let digits = std::str::from_utf8(self.rest.get(..4)?).ok()?;
        let is_hexadecimal = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        self.rest = &self.rest[4..];
        u32::from_str_radix(digits, 16).ok().filter(|_| is_hexadecimal)
    }
}

struct Printer<'a, W> {
    style: Style,
    to: &'a mut W,
}

/// Terminal colours of names, of text and of other values.
const NAME: &str = "\x1b[36m";
const TEXT: &str = "\x1b[32m";
const SCALAR: &str = "\x1b[33m";
const PLAIN: &str = "\x1b[0m";

impl<W: Write> Printer<'_, W> {
    fn value(&mut self, value: &Json, depth: usize) -> io::Result<()> {
        match value {
            Json::Null => self.coloured(SCALAR, b"null"),
            Json::Bool(value) => self.coloured(SCALAR, if *value { b"true" } else { b"false" }),
            Json::Number(number) => self.number(number),
            Json::Text(text) => self.text(TEXT, text),
            Json::Hexadecimal(bytes) => {
                write!(self.to, "\"")?;
                bytes.iter().try_for_each(|byte| self.to.write_all(&hexadecimal(*byte)))?;
                write!(self.to, "\"")
            }
            Json::List(items) => self.list(items, depth),
            Json::Object(members) => {
                let members = members.iter().map(|(name, value)| (name.as_slice(), value));
                self.object(members, depth)
            }
            Json::Pairs(pairs) => self.pairs(pairs, depth),
        }
    }

    /// Prints User Properties one by one.
    fn pairs(&mut self, pairs: &Pairs, depth: usize) -> io::Result<()> {
        write!(self.to, "{{")?;
        for (index, pair) in pairs.get().iter().enumerate() {
            if index > 0 {
                write!(self.to, ",")?;
            }
            let [name, value] = [pair.name, pair.value].map(|text| Json::text(text.as_str()));
            let [name, value] =
                if pairs.is_escaped { [name.escaped(), value.escaped()] } else { [name, value] };
            if let Json::Text(name) = name {
                self.member(&name, &value, depth)?;
            }
        }
        self.line(depth)?;
        write!(self.to, "}}")
    }

    fn text(&mut self, colour: &str, text: &[u8]) -> io::Result<()> {
        let in_colour = self.style == Style::Terminal { in_colour: true };
        if in_colour {
            write!(self.to, "{colour}")?;
        }
        quote(text, self.to)?;
        if in_colour { write!(self.to, "{PLAIN}") } else { Ok(()) }
    }

    fn coloured(&mut self, colour: &str, bytes: &[u8]) -> io::Result<()> {
        if self.style != (Style::Terminal { in_colour: true }) {
            return self.to.write_all(bytes);
        }
        write!(self.to, "{colour}")?;
        self.to.write_all(bytes)?;
        write!(self.to, "{PLAIN}")
    }

    fn number(&mut self, number: &str) -> io::Result<()> {
        match self.style {
            Style::Compact | Style::Tabs => write!(self.to, "{}", rounded(number)),
            Style::Exact | Style::Terminal { .. } => self.coloured(SCALAR, number.as_bytes()),
        }
    }

    /// Begins a new line, in styles with several lines.
    fn line(&mut self, depth: usize) -> io::Result<()> {
        let indent = match self.style {
            Style::Compact | Style::Exact => return Ok(()),
            Style::Tabs => "\t",
            Style::Terminal { .. } => "  ",
        };
        write!(self.to, "\n{}", indent.repeat(depth))
    }

    fn list(&mut self, items: &[Json], depth: usize) -> io::Result<()> {
        let has_lines = matches!(self.style, Style::Terminal { .. }) && items.iter().any(Json::is_container);
        write!(self.to, "[")?;
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                let is_tight = has_lines || matches!(self.style, Style::Compact | Style::Exact);
                write!(self.to, "{}", if is_tight { "," } else { ", " })?;
            }
            if has_lines {
                self.line(depth + 1)?;
            }
            self.value(item, depth + 1)?;
        }
        if has_lines {
            self.line(depth)?;
        }
        write!(self.to, "]")
    }

    fn object<'j>(
        &mut self,
        members: impl ExactSizeIterator<Item = (&'j [u8], &'j Json)>,
        depth: usize,
    ) -> io::Result<()> {
        let is_empty = members.len() == 0;
        write!(self.to, "{{")?;
        for (index, (name, value)) in members.enumerate() {
            if index > 0 {
                write!(self.to, ",")?;
            }
            self.member(name, value, depth)?;
        }
        if !(is_empty && matches!(self.style, Style::Terminal { .. })) {
            self.line(depth)?;
        }
        write!(self.to, "}}")
    }

    fn member(&mut self, name: &[u8], value: &Json, depth: usize) -> io::Result<()> {
        self.line(depth + 1)?;
        self.text(NAME, name)?;
        let colon = match self.style {
            Style::Compact | Style::Exact => ":",
            Style::Tabs => ":\t",
            Style::Terminal { .. } => ": ",
        };
        write!(self.to, "{colon}")?;
        self.value(value, depth + 1)
    }
}

/// Prints a string in quotes and with escapes. Invalid UTF-8 is printed unchanged.
fn quote(text: &[u8], to: &mut impl Write) -> io::Result<()> {
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
    write!(to, "\"")?;
    for piece in text.split_inclusive(is_special) {
        let (plain, last) = match piece.split_last() {
            Some((last, plain)) if is_special(last) => (plain, Some(*last)),
            _ => (piece, None),
        };
        to.write_all(plain)?;
        match last {
            None => {}
            Some(b'"') => to.write_all(b"\\\"")?,
            Some(b'\\') => to.write_all(b"\\\\")?,
            Some(0x08) => to.write_all(b"\\b")?,
            Some(0x0c) => to.write_all(b"\\f")?,
            Some(b'\n') => to.write_all(b"\\n")?,
            Some(b'\r') => to.write_all(b"\\r")?,
            Some(b'\t') => to.write_all(b"\\t")?,
            Some(byte) => write!(to, "\\u{byte:04x}")?,
        }
    }
    write!(to, "\"")
}

/// Both digits of a byte.
pub(crate) fn hexadecimal(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 0xf)]]
}

/// Formats a number like C's `%1.15g`, or like `%1.17g` if the first changes the value.
fn rounded(number: &str) -> String {
    let Some(value) = number.parse::<f64>().ok().filter(|value| value.is_finite()) else {
        return "null".to_owned();
    };
    let short = significant(value, 15);
    let again: f64 = short.parse().unwrap_or(value);
    let is_same = (value - again).abs() <= value.abs().max(again.abs()) * f64::EPSILON;
    if is_same { short } else { significant(value, 17) }
}

/// Formats a number like C's `%.{digits}g`.
fn significant(value: f64, digits: usize) -> String {
    let scientific = format!("{value:.*e}", digits - 1);
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let without_zeros = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    let digits = i32::try_from(digits).unwrap_or(i32::MAX);
    if exponent < -4 || exponent >= digits {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs());
    }
    let decimals = usize::try_from(digits - 1 - exponent).unwrap_or_default();
    without_zeros(&format!("{value:.decimals$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(text: &str, style: Style) -> Option<String> {
        let mut bytes = Vec::new();
        Json::parse(text.as_bytes())?.write(style, &mut bytes).ok()?;
        String::from_utf8(bytes).ok()
    }

    #[test]
    fn values_are_printed_as_cjson_prints_them() {
        let text = r#" {"b": 1.50, "a":[1,{"c":null}], "s":"é\u00e9\n\/\ud83d\ude00", "e":{}, "a":-5e-7, "l":1e400} "#;
        let compact = r#"{"b":1.5,"a":[1,{"c":null}],"s":"éé\n/😀","e":{},"a":-5e-07,"l":null}"#;
        assert_eq!(printed(text, Style::Compact).as_deref(), Some(compact));
        let tabs = "{\n\t\"a\":\t[1, {\n\t\t\t\"b\":\ttrue\n\t\t}],\n\t\"e\":\t{\n\t}\n}";
        assert_eq!(printed(r#"{"a":[1,{"b":true}],"e":{}}"#, Style::Tabs).as_deref(), Some(tabs));
        for (number, expected) in [
            ("0.30000000000000004", "0.3"),
            ("123456789.123456789", "123456789.12345679"),
            ("12345678901234567890", "1.2345678901234567e+19"),
            ("1e30", "1e+30"),
            ("-0", "-0"),
            ("12.0", "12"),
            ("0.0001", "0.0001"),
            ("0.00001", "1e-05"),
        ] {
            assert_eq!(printed(number, Style::Compact).as_deref(), Some(expected), "{number}");
            assert_eq!(printed(number, Style::Exact).as_deref(), Some(number));
        }
    }

    #[test]
    fn invalid_json_is_refused() {
        for text in
            ["", "x", "{", "[1,]", "{\"a\" 1}", "\"", "1 2", "{\"a\":1} b", "\"\\ud83d\"", "+1", "tru"]
        {
            assert_eq!(Json::parse(text.as_bytes()), None, "{text}");
        }
        assert!(Json::parse("[".repeat(100_000).as_bytes()).is_none(), "depth is bounded");
    }

    #[test]
    fn a_terminal_gets_lines_and_colours() {
        let plain = printed(r#"{"a":[1,2],"b":[{}]}"#, Style::Terminal { in_colour: false });
        assert_eq!(plain.as_deref(), Some("{\n  \"a\": [1, 2],\n  \"b\": [\n    {}\n  ]\n}"));
        let coloured = printed("[null]", Style::Terminal { in_colour: true });
        assert_eq!(coloured.as_deref(), Some("[\x1b[33mnull\x1b[0m]"));
    }
}
