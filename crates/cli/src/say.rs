//! Output for people. A closed pipe is ignored.

use std::fmt::{Display, Write as _};
use std::io::{self, Write};

use wire::Shown;

/// Prints text to standard output.
pub(crate) fn show(text: impl Display) {
    let mut to = io::stdout().lock();
    let _ = to.write_all(escaped(&text.to_string()).as_bytes()).and_then(|()| to.flush());
}

/// Prints lines to standard error.
pub(crate) fn complain(lines: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{}", escaped(&lines.to_string()));
}

/// Escapes control characters, except for line ends and tabs.
///
/// Texts of other programs that belong on one line are escaped where they are put into a text. This is the last line of
/// defence for the terminal.
pub(crate) fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for piece in text.split_inclusive(['\n', '\t']) {
        let plain = piece.strip_suffix(['\n', '\t']).unwrap_or(piece);
        // Writing to a string cannot fail.
        let _ = write!(shown, "{}{}", Shown(plain), &piece[plain.len()..]);
    }
    shown
}

/// Escapes control characters in bytes that may be text. Bytes that are not UTF-8 become `\xff`.
pub(crate) fn escaped_bytes(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        shown.push_str(&escaped(chunk.valid()));
        for byte in chunk.invalid() {
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}

/// Whether a terminal may get colours: `NO_COLOR` (<https://no-color.org>) and `TERM=dumb` forbid them.
pub(crate) fn allows_colour() -> bool {
    let is = |name: &str, test: fn(&std::ffi::OsStr) -> bool| {
        std::env::var_os(name).is_some_and(|value| test(&value))
    };
    !is("NO_COLOR", |value| !value.is_empty()) && !is("TERM", |value| value == "dumb")
}

#[test]
fn nothing_but_lines_and_tabs_moves_the_cursor() {
    assert_eq!(escaped("a\tb\nc\r\u{1b}[2J\u{9b}m"), "a\tb\nc\\r\\u{1b}[2J\\u{9b}m");
    assert_eq!(escaped_bytes(b"\x1b]0;x\x07\xff\xc3\xa9"), "\\u{1b}]0;x\\u{7}\\xffé");
}
