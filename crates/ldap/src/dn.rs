use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use crate::parse::{hexadecimal, is_of_name};
use crate::{DN_BYTES_MAX, DnError, DnFault, USER, USERS_MAX};

/// The name of an entry in the form of RFC 4514, in which `{user}` stands for the user name.
///
/// ```
/// let name = ldap::DnTemplate::parse("uid={user},ou=people,dc=pond")?;
/// assert_eq!(name.fill("frog"), "uid=frog,ou=people,dc=pond");
/// assert_eq!(name.fill("frog,ou=admins"), "uid=frog\\,ou\\=admins,ou=people,dc=pond");
/// # Ok::<(), ldap::DnError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnTemplate {
    /// The texts before, between and after the places for the user name.
    texts: Vec<String>,
}

impl DnTemplate {
    /// Parses the name of an entry. The check is light, and the directory decides. `{user}` has to occur in a value.
    ///
    /// # Errors
    /// The text is empty or beyond a limit, has no `{user}`, or has `{user}` at a place where escapes do not work. A part has
    /// no type or no `=`. The error says where.
    pub fn parse(text: &str) -> Result<Self, DnError> {
        let error = |at, fault| Err(DnError { at, fault });
        if text.is_empty() {
            return error(0, DnFault::Empty);
        }
        if text.len() > DN_BYTES_MAX {
            return error(text.floor_char_boundary(DN_BYTES_MAX), DnFault::TooLong);
        }
        check(text)?;
        if let Some((at, _)) = text.match_indices(USER).nth(USERS_MAX) {
            return error(at, DnFault::TooManyUsers);
        }
        // An escape is complete before `{user}`, because the check refuses a backslash before a brace.
        let texts: Vec<String> = text.split(USER).map(ToOwned::to_owned).collect();
        if texts.len() < 2 { error(text.len(), DnFault::NoUser) } else { Ok(Self { texts }) }
    }

    /// The name of the entry of a user. The user name is escaped (RFC 4514, section 2.4), so it stays one value.
    ///
    /// An empty user name is for the caller to refuse: the name of the entry then has an empty value.
    pub fn fill(&self, user: &str) -> String {
        self.texts.join(&escape(user))
    }
}

/// Checks the parts of a name: `type=value`, separated by `,` and `+`.
fn check(text: &str) -> Result<(), DnError> {
    let bytes = text.as_bytes();
    let spaces = |at: usize| bytes[at..].iter().take_while(|byte| **byte == b' ').count();
    let mut at = 0;
    loop {
        at += spaces(at);
        let length = bytes[at..].iter().take_while(|byte| is_of_name(**byte)).count();
        let end = at + length + spaces(at + length);
        let fault = match bytes.get(end) {
            _ if text[at + length..].starts_with(USER) => Some(DnFault::UserOutsideValue),
            _ if length == 0 => Some(DnFault::TypeMissing),
            Some(b'=') => None,
            _ => Some(DnFault::EqualsMissing),
        };
        if let Some(fault) = fault {
            return Err(DnError { at: at + length, fault });
        }
        at = end + 1;
        at += spaces(at);
        match end_of_value(text, at)? {
            end if end == text.len() => return Ok(()),
            separator => at = separator + 1,
        }
    }
}

/// Returns the offset of the `,` or `+` after the value that begins at `start`, or the end of the text.
fn end_of_value(text: &str, start: usize) -> Result<usize, DnError> {
    let bytes = text.as_bytes();
    let mut at = start;
    while let Some(byte) = bytes.get(at) {
        let fault = match byte {
            b',' | b'+' => return Ok(at),
            b'#' if at == start => DnFault::Hexadecimal,
            b'"' | b';' | b'<' | b'>' | 0 => DnFault::Unescaped,
            b'\\' => match bytes.get(at + 1) {
                Some(b' ' | b'"' | b'#' | b'+' | b',' | b';' | b'<' | b'=' | b'>' | b'\\') => {
                    at += 2;
                    continue;
                }
                _ if bytes.get(at + 1..at + 3).and_then(hexadecimal).is_some() => {
                    at += 3;
                    continue;
                }
                _ => DnFault::Escape,
            },
            _ => {
                at += 1;
                continue;
            }
        };
        return Err(DnError { at, fault });
    }
    Ok(at)
}

/// Escapes a text so that it is a value, or a part of one.
///
/// A space is written in hexadecimal: a server that removes spaces before it looks for backslashes then reads the same.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for (at, character) in text.char_indices() {
        let is_first = at == 0;
        let is_last = at + character.len_utf8() == text.len();
        match character {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' | '=' => escaped.extend(['\\', character]),
            '#' if is_first => escaped.push_str("\\#"),
            ' ' if is_first || is_last => escaped.push_str("\\20"),
            _ if character.is_control() => {
                for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                    write!(escaped, "\\{byte:02X}").expect("a text has no limit");
                }
            }
            _ => escaped.push(character),
        }
    }
    escaped
}
