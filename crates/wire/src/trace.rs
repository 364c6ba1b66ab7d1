//! Format of strings and payloads in the one line that a packet prints.

use core::fmt::{self, Write};

/// Maximum number of characters of a string. Longer strings are shortened, because people read traces.
const MAX_CHARS: usize = 64;
const MAX_HEX_BYTES: usize = 16;

/// A string in quotes. Control characters and quotes are escaped; the rest after [`MAX_CHARS`] is cut.
pub(crate) struct Text<'a>(pub(crate) &'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        let mut chars = self.0.chars();
        for char in chars.by_ref().take(MAX_CHARS) {
            write!(f, "{}", char.escape_debug())?;
        }
        f.write_str(if chars.next().is_some() { "\"…" } else { "\"" })
    }
}

/// A number of bytes, followed by the bytes: as text if they are UTF-8, otherwise in hexadecimal.
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Bytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B", self.0.len())?;
        if self.0.is_empty() {
            return Ok(());
        }
        if let Ok(text) = core::str::from_utf8(self.0) {
            return write!(f, " {}", Text(text));
        }
        f.write_char(' ')?;
        for byte in &self.0[..self.0.len().min(MAX_HEX_BYTES)] {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(if self.0.len() > MAX_HEX_BYTES { "…" } else { "" })
    }
}

/// A word that is printed, after a space, if the flag is set.
pub(crate) struct Flag(pub(crate) bool, pub(crate) &'static str);

impl fmt::Display for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 { write!(f, " {}", self.1) } else { Ok(()) }
    }
}
