//! Text of a peer in a line for people.

use core::fmt::{self, Write as _};

/// Prints a value on one line, without control characters.
///
/// Text from a peer may contain terminal sequences, line ends, and characters that change the direction of text. Printed
/// as they are, such characters can forge lines or hide parts of a line. This type prints them as escapes: `\n`,
/// `\u{1b}`.
///
/// ```
/// use pondhawk_wire::Shown;
///
/// assert_eq!(Shown("bye\nConnected\u{1b}[2J").to_string(), r"bye\nConnected\u{1b}[2J");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown<T>(pub T);

impl<T: fmt::Display> fmt::Display for Shown<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping(f), "{}", self.0)
    }
}

/// Forwards text to a formatter, with escapes.
struct Escaping<'a, 'f>(&'a mut fmt::Formatter<'f>);

impl fmt::Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(is_hidden) {
            let (plain, hidden) = rest.split_at(at);
            self.0.write_str(plain)?;
            let mut characters = hidden.chars();
            characters.next().map_or(Ok(()), |hidden| write!(self.0, "{}", hidden.escape_default()))?;
            rest = characters.as_str();
        }
        self.0.write_str(rest)
    }
}

/// Whether a character moves the cursor, ends a line, controls a terminal or changes the direction of text.
#[must_use]
pub fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}
