//! Lines of a file, as Mosquitto splits them.

use std::fmt;
use std::sync::Arc;

/// The place of a line: a file and a number that counts from 1.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The name of the file, as it was given.
    pub file: Arc<str>,
    /// The number of the line.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A line that is neither empty nor a comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    /// The number of the line, which counts from 1.
    pub(crate) number: usize,
    /// The name of the directive.
    pub(crate) word: &'a [u8],
    /// The bytes behind the one blank that ends the name. `None` if the name ends the line.
    pub(crate) rest: Option<&'a [u8]>,
}

/// Returns every line that has a directive.
///
/// Only a blank (0x20) separates words. A tab is part of a word, and `#` begins a comment as the first byte of a line only.
pub(crate) fn lines(bytes: &[u8]) -> impl Iterator<Item = Line<'_>> {
    bytes.split(|byte| *byte == b'\n').zip(1..).filter_map(|(line, number)| {
        let end = line.iter().rposition(|byte| *byte != b'\r').map_or(0, |last| last + 1);
        let line = &line[..end];
        if line.first() == Some(&b'#') {
            return None;
        }
        let begin = line.iter().position(|byte| *byte != b' ')?;
        let line = &line[begin..];
        let (word, rest) = match line.iter().position(|byte| *byte == b' ') {
            Some(blank) => (&line[..blank], Some(&line[blank + 1..])),
            None => (line, None),
        };
        Some(Line { number, word, rest })
    })
}

/// Splits at blanks, as `strtok` does: several blanks count as one.
pub(crate) fn words(rest: &str) -> impl Iterator<Item = &str> {
    rest.split(' ').filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<(usize, String, Option<String>)> {
        let text_of = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        lines(text.as_bytes()).map(|line| (line.number, text_of(line.word), line.rest.map(text_of))).collect()
    }

    #[test]
    fn a_line_ends_at_lf_and_cr_is_cut() {
        let line = |number, word: &str, rest: &str| (number, word.to_owned(), Some(rest.to_owned()));
        assert_eq!(of("a 1\r\n\r\nb 2\r\r\nc 3"), [line(1, "a", "1"), line(3, "b", "2"), line(4, "c", "3")]);
    }

    #[test]
    fn a_comment_begins_with_the_first_byte_only() {
        assert_eq!(of("#x\n # y\n"), [(2, "#".to_owned(), Some("y".to_owned()))]);
    }

    #[test]
    fn blanks_separate_and_tabs_do_not() {
        assert_eq!(of("   \n  a  b\n"), [(2, "a".to_owned(), Some(" b".to_owned()))]);
        assert_eq!(of("\ta b\n\t\na\tb\n").len(), 3);
        assert_eq!(of("a\tb\n"), [(1, "a\tb".to_owned(), None)]);
    }
}
