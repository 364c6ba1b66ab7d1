//! The grammar of RFC 4515, section 3.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::filter::{Comparison, Node, Place, Value};
use crate::{FILTER_BYTES_MAX, FilterError, FilterFault, NESTING_MAX, USER, USERS_MAX};

/// Parses a filter, and counts the places for the user name.
pub(crate) fn parse(text: &str) -> Result<(Node, usize), FilterError> {
    if text.len() > FILTER_BYTES_MAX {
        let at = text.floor_char_boundary(FILTER_BYTES_MAX);
        return Err(FilterError { at, fault: FilterFault::TooLong });
    }
    let mut parser = Parser { text, at: 0, users: 0 };
    let root = parser.filter(1)?;
    if parser.at < text.len() {
        return Err(parser.error(FilterFault::Trailing));
    }
    Ok((root, parser.users))
}

/// Whether a byte may stand in an attribute description or in the name of a matching rule (RFC 4512, section 2.5).
pub(crate) fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-.;".contains(&byte)
}

/// The value of two hexadecimal digits.
pub(crate) fn hexadecimal(digits: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let [high, low] = digits else { return None };
    Some(digit(*high)? << 4 | digit(*low)?)
}

/// A place in a text. `at` is an offset in bytes, always at the beginning of a character.
struct Parser<'a> {
    text: &'a str,
    at: usize,
    users: usize,
}

impl<'a> Parser<'a> {
    fn filter(&mut self, depth: usize) -> Result<Node, FilterError> {
        if depth > NESTING_MAX {
            return Err(self.error(FilterFault::TooDeep));
        }
        self.expect("(", FilterFault::OpeningMissing)?;
        let node = if self.take("&") {
            Node::All(self.filters(depth)?)
        } else if self.take("|") {
            Node::Any(self.filters(depth)?)
        } else if self.take("!") {
            Node::Not(Box::new(self.filter(depth + 1)?))
        } else {
            self.item()?
        };
        self.expect(")", FilterFault::ClosingMissing)?;
        Ok(node)
    }

    fn filters(&mut self, depth: usize) -> Result<Vec<Node>, FilterError> {
        let mut nodes = vec![self.filter(depth + 1)?];
        while self.rest().starts_with('(') {
            nodes.push(self.filter(depth + 1)?);
        }
        Ok(nodes)
    }

    /// An attribute, an operator and a value.
    fn item(&mut self) -> Result<Node, FilterError> {
        if self.rest().starts_with(':') {
            return self.matching(None);
        }
        let attribute = self.name()?;
        if self.rest().starts_with(':') {
            return self.matching(Some(attribute));
        }
        if self.take("=") {
            return self.equality(attribute);
        }
        for (operator, comparison) in [
            (">=", Comparison::GreaterOrEqual),
            ("<=", Comparison::LessOrEqual),
            ("~=", Comparison::Approximate),
        ] {
            if self.take(operator) {
                return Ok(Node::Compare { comparison, attribute, value: self.value()? });
            }
        }
        Err(self.error(FilterFault::OperatorMissing))
    }

    /// An extensible match, from the first colon on: `[:dn] [:rule] := value`.
    fn matching(&mut self, attribute: Option<String>) -> Result<Node, FilterError> {
        let is_of_dn = self.text.as_bytes()[self.at..]
            .get(..4)
            .is_some_and(|start| start[..3].eq_ignore_ascii_case(b":dn") && start[3] == b':');
        if is_of_dn {
            self.at += ":dn".len();
        }
        let mut rule = None;
        if !self.rest().starts_with(":=") {
            self.expect(":", FilterFault::OperatorMissing)?;
            rule = Some(self.name()?);
        } else if attribute.is_none() {
            return Err(self.error(FilterFault::NameMissing));
        }
        self.expect(":=", FilterFault::OperatorMissing)?;
        Ok(Node::Match { attribute, rule, is_of_dn, value: self.value()? })
    }

    /// The value after `=`: equality, presence or substrings.
    fn equality(&mut self, attribute: String) -> Result<Node, FilterError> {
        let start = self.part()?;
        if !self.rest().starts_with('*') {
            return Ok(Node::Compare { comparison: Comparison::Equal, attribute, value: start });
        }
        let mut parts = Vec::new();
        if !start.is_empty() {
            parts.push((Place::Initial, start));
        }
        while self.take("*") {
            let value = self.part()?;
            let is_last = !self.rest().starts_with('*');
            match (value.is_empty(), is_last) {
                (true, true) => {}
                (true, false) => return Err(self.error(FilterFault::Star)),
                (false, true) => parts.push((Place::Final, value)),
                (false, false) => parts.push((Place::Middle, value)),
            }
        }
        if parts.is_empty() {
            Ok(Node::Present { attribute })
        } else {
            Ok(Node::Substrings { attribute, parts })
        }
    }

    /// A value in which `*` must be escaped.
    fn value(&mut self) -> Result<Value, FilterError> {
        let value = self.part()?;
        if self.rest().starts_with('*') { Err(self.error(FilterFault::Star)) } else { Ok(value) }
    }

    /// A value up to the next `*` or `)`, or the end.
    fn part(&mut self) -> Result<Value, FilterError> {
        let mut value = Value::default();
        while let Some(&byte) = self.text.as_bytes().get(self.at) {
            match byte {
                b'*' | b')' => break,
                b'(' | 0 => return Err(self.error(FilterFault::Unescaped)),
                b'\\' => {
                    let digits = self.text.as_bytes().get(self.at + 1..self.at + 3);
                    let escaped = digits.and_then(hexadecimal);
                    value.push(escaped.ok_or_else(|| self.error(FilterFault::Escape))?);
                    self.at += 3;
                }
                b'{' if self.rest().starts_with(USER) => {
                    self.users += 1;
                    if self.users > USERS_MAX {
                        return Err(FilterError { at: self.at, fault: FilterFault::TooManyUsers });
                    }
                    value.push_user();
                    self.at += USER.len();
                }
                _ => {
                    let character = self.rest().chars().next().expect("there is a byte, so a character");
                    let end = self.at + character.len_utf8();
                    self.text.as_bytes()[self.at..end].iter().for_each(|byte| value.push(*byte));
                    self.at = end;
                }
            }
        }
        Ok(value)
    }

    /// The name of an attribute or of a matching rule.
    fn name(&mut self) -> Result<String, FilterError> {
        let length = self.rest().bytes().take_while(|byte| is_of_name(*byte)).count();
        if length == 0 {
            return Err(self.error(FilterFault::NameMissing));
        }
        let name = self.rest()[..length].to_owned();
        self.at += length;
        Ok(name)
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn take(&mut self, text: &str) -> bool {
        let is_next = self.rest().starts_with(text);
        if is_next {
            self.at += text.len();
        }
        is_next
    }

    fn expect(&mut self, text: &str, fault: FilterFault) -> Result<(), FilterError> {
        if self.take(text) { Ok(()) } else { Err(self.error(fault)) }
    }

    /// An error at the current place. Each place with an error lies outside of a value if `{user}` is there.
    fn error(&self, fault: FilterFault) -> FilterError {
        let is_user = self.rest().starts_with(USER);
        FilterError { at: self.at, fault: if is_user { FilterFault::UserOutsideValue } else { fault } }
    }
}
