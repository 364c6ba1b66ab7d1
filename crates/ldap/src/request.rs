use alloc::vec::Vec;

use crate::Filter;
use crate::ber::{self, BOOLEAN, ENUMERATED, INTEGER, OCTET_STRING, SEQUENCE};

/// Tags of requests: `APPLICATION` with the number of section 4.2, 4.3, 4.5.1 or 4.12.
const BIND: u8 = 0x60;
const UNBIND: u8 = 0x42;
const SEARCH: u8 = 0x63;
const EXTENDED: u8 = 0x77;

/// Encodes a simple bind with version 3 (section 4.2). The answer is [`Answer::Bound`](crate::Answer::Bound).
///
/// `id` is the message identifier, at least 1. `name` is the name of an entry.
///
/// A directory answers an empty password with `success` and does not check `name` (RFC 4513, section 5.1.2). A caller that
/// checks passwords refuses empty ones itself. The returned bytes contain the password.
pub fn bind(id: i32, name: &str, password: &str) -> Vec<u8> {
    message(id, BIND, |out| {
        ber::number(out, INTEGER, 3);
        ber::primitive(out, OCTET_STRING, name.as_bytes());
        ber::primitive(out, 0x80, password.as_bytes());
    })
}

/// Encodes the extended request StartTLS (section 4.14). The answer is [`Answer::Extended`](crate::Answer::Extended).
///
/// `id` is the message identifier, at least 1. The client sends nothing else until it has the answer.
pub fn start_tls(id: i32) -> Vec<u8> {
    message(id, EXTENDED, |out| ber::primitive(out, 0x80, b"1.3.6.1.4.1.1466.20037"))
}

/// A search below an entry (section 4.5.1).
#[derive(Clone, Copy, Debug)]
pub struct Search<'a> {
    /// Name of the entry at and below which the directory searches.
    pub base: &'a str,
    /// Condition for the entries that the directory returns.
    pub filter: &'a Filter,
    /// User name that `{user}` stands for in the filter. An empty name is for the caller to refuse: with it, a part of a
    /// substring is empty.
    pub user: &'a str,
    /// The attribute that the directory returns of each entry, or `1.1` for none (section 4.5.1.8).
    pub attribute: &'a str,
    /// Maximum number of entries. 0 is no limit, and numbers above 2,147,483,647 count as this number.
    pub entries_max: u32,
    /// Maximum duration of the search, in seconds. 0 is no limit, and numbers above 2,147,483,647 count as this number.
    pub secs_max: u32,
}

/// Encodes a search of the whole subtree that does not follow aliases (section 4.5.1).
///
/// `id` is the message identifier, at least 1. The answers are any number of [`Answer::Entry`](crate::Answer::Entry) and
/// [`Answer::Reference`](crate::Answer::Reference), and then [`Answer::Done`](crate::Answer::Done).
pub fn search(id: i32, search: &Search<'_>) -> Vec<u8> {
    const WHOLE_SUBTREE: i32 = 2;
    const NEVER_DEREF_ALIASES: i32 = 0;
    let limit = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    message(id, SEARCH, |out| {
        ber::primitive(out, OCTET_STRING, search.base.as_bytes());
        ber::number(out, ENUMERATED, WHOLE_SUBTREE);
        ber::number(out, ENUMERATED, NEVER_DEREF_ALIASES);
        ber::number(out, INTEGER, limit(search.entries_max));
        ber::number(out, INTEGER, limit(search.secs_max));
        ber::primitive(out, BOOLEAN, &[0]);
        search.filter.encode(search.user, out);
        ber::element(out, SEQUENCE, |out| {
            ber::primitive(out, OCTET_STRING, search.attribute.as_bytes());
        });
    })
}

/// Encodes the request after which the server closes the connection (section 4.3). There is no answer.
///
/// `id` is the message identifier, at least 1.
pub fn unbind(id: i32) -> Vec<u8> {
    message(id, UNBIND, |_| ())
}

fn message(id: i32, tag: u8, content: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    ber::element(&mut out, SEQUENCE, |out| {
        ber::number(out, INTEGER, id);
        ber::element(out, tag, content);
    });
    out
}
