use alloc::string::String;
use core::fmt;

use crate::ber::{ENUMERATED, INTEGER, Length, OCTET_STRING, Reader, SEQUENCE};
use crate::{DIAGNOSTIC_CHARS_MAX, Entry, MESSAGE_BYTES_MAX, Malformed, code};

/// A message of a server (section 4.1.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The identifier of the request that is answered. It is 0 in a message that answers none, such as the notice of
    /// disconnection (section 4.4.1), which is [`Answer::Extended`].
    pub id: i32,
    /// The part of the message that depends on the request.
    pub answer: Answer,
}

/// An answer of a server to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// `BindResponse`: the end of a bind (section 4.2.2).
    Bound(Outcome),
    /// `ExtendedResponse`: the end of StartTLS, or the notice of disconnection (section 4.12).
    Extended(Outcome),
    /// `SearchResultEntry`: one entry that a search found (section 4.5.2).
    Entry(Entry),
    /// `SearchResultReference`: a part of the directory that another server has (section 4.5.3).
    Reference,
    /// `SearchResultDone`: the end of a search (section 4.5.2).
    Done(Outcome),
    /// Any other message, such as an intermediate response (section 4.13).
    Other,
}

/// The end of an operation: `LDAPResult` (section 4.1.9), without the matched name and the referral.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Result code. The codes of a log-in are in [`code`].
    pub code: u32,
    /// A text of the server for a log. It has at most [`DIAGNOSTIC_CHARS_MAX`] characters, none of which is a control
    /// character or changes the direction of text: spaces replace them. Bytes that are not UTF-8 are U+FFFD.
    pub diagnostic: String,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match code::name(self.code) {
            Some(name) => write!(f, "{name} ({})", self.code)?,
            None => write!(f, "result code {}", self.code)?,
        }
        if self.diagnostic.is_empty() { Ok(()) } else { write!(f, ": {}", self.diagnostic) }
    }
}

/// Decodes the next message of a server.
///
/// Returns the message and its length in bytes, or `None` if bytes are missing. A call takes time in proportion to the
/// message, and constant time while bytes are missing. A buffer of [`MESSAGE_BYTES_MAX`] bytes is always enough.
///
/// Elements that follow those of RFC 4511, such as referrals and controls, are passed over.
///
/// # Errors
/// The bytes are not a message, or the message is too long, which the first bytes of its length show.
pub fn decode(buffer: &[u8]) -> Result<Option<(Message, usize)>, Malformed> {
    let Some((&tag, rest)) = buffer.split_first() else { return Ok(None) };
    if tag != SEQUENCE {
        return Err(Malformed::NotAMessage);
    }
    let Some(length) = Length::read(rest)? else { return Ok(None) };
    let total = 1 + length.field_bytes + length.content_bytes;
    if total > MESSAGE_BYTES_MAX {
        return Err(Malformed::TooLong);
    }
    let Some(content) = buffer.get(1 + length.field_bytes..total) else { return Ok(None) };
    Ok(Some((Message::read(Reader::new(content))?, total)))
}

impl Message {
    fn read(mut elements: Reader<'_>) -> Result<Self, Malformed> {
        let id = elements.number(INTEGER)?;
        let (tag, content) = elements.element()?.ok_or(Malformed::Cut)?;
        elements.finish()?;
        let content = Reader::new(content);
        let answer = match tag {
            0x61 => Answer::Bound(Outcome::read(content)?),
            0x64 => Answer::Entry(Entry::read(content)?),
            0x65 => Answer::Done(Outcome::read(content)?),
            0x73 => content.finish().map(|()| Answer::Reference)?,
            0x78 => Answer::Extended(Outcome::read(content)?),
            // The class `APPLICATION`, to which all operations belong.
            0x40..0x80 => Answer::Other,
            _ => return Err(Malformed::UnexpectedTag),
        };
        Ok(Self { id, answer })
    }
}

impl Outcome {
    fn read(mut elements: Reader<'_>) -> Result<Self, Malformed> {
        let code = elements.number(ENUMERATED)?.unsigned_abs();
        let _matched_name = elements.expect(OCTET_STRING)?;
        let diagnostic = diagnostic(elements.expect(OCTET_STRING)?);
        elements.finish()?;
        Ok(Self { code, diagnostic })
    }
}

/// The beginning of a text of a server, as a text for a log.
fn diagnostic(bytes: &[u8]) -> String {
    let characters = bytes.utf8_chunks().flat_map(|chunk| {
        let replacement = (!chunk.invalid().is_empty()).then_some(char::REPLACEMENT_CHARACTER);
        chunk.valid().chars().chain(replacement)
    });
    let shown = characters.map(|character| if is_unfit_for_log(character) { ' ' } else { character });
    let mut text: String = shown.take(DIAGNOSTIC_CHARS_MAX).collect();
    // Active Directory ends its texts with NUL.
    text.truncate(text.trim_end().len());
    text
}

/// Whether a character is a control character, ends a line, or changes the direction of text.
fn is_unfit_for_log(character: char) -> bool {
    character.is_control() || matches!(character, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
