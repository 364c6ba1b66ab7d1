//! The changes of a ledger that must survive ([`Record`]), and their bytes: what stands in a frame, and nothing about files.
//!
//! A record is a kind byte and the fields of its variant in one order, given once for both directions by the table below;
//! docs/JOURNAL.md draws it byte by byte. The last record of a group has the highest bit of its kind byte set. Each record
//! has exactly one form: what can be decoded is encoded to the same bytes.

#![forbid(unsafe_code)]

mod bytes;
mod decode;
mod encode;
mod error;
mod extent;
mod field;
mod publishers;
mod record;
#[cfg(test)]
mod tests;
mod trace;

pub use decode::{Decoded, Decoder, Records};
pub use encode::encode_group;
pub use error::{DecodeError, Fault};
pub use record::{Away, Granted, Incarnation, Needs, Queued, Record, WillFate, WillRecord};

use bytes::Reader;

/// Set in the kind byte of a group's last record.
const LAST: u8 = 0x80;
/// A message that is put in queues, as the table below has it.
const ENQUEUE: u8 = 9;

/// The kinds, each with its variant and the form of each field: `put` writes a record behind its kind, `take` reads one.
/// A kind is never used for anything else again; 10 was, before there was a first version.
macro_rules! records {
    ($($kind:literal $variant:ident { $($name:ident: $form:ident),* })*) => {
        fn kind(record: &Record<'_>) -> u8 {
            match record {
                $(Record::$variant { .. } => $kind,)*
            }
        }

        fn put(record: &Record<'_>, into: &mut Vec<u8>) {
            match record {
                $(Record::$variant { $($name),* } => {
                    $(field::$form::put($name, into);)*
                })*
            }
        }

        /// Reads what is behind the kind.
        fn take(kind: u8, from: &mut Reader<'_>) -> Result<Record<'static>, Box<DecodeError>> {
            match kind {
                $($kind => error::of_record(stringify!($variant), || {
                    Ok(Record::$variant {
                        $($name: from.field(stringify!($name), field::$form::take)?),*
                    })
                }),)*
                _ => {
                    let fault = Fault::Kind(kind);
                    Err(Box::new(DecodeError { offset: from.at() - 1, record: None, field: None, fault }))
                }
            }
        }
    };
}

records! {
    1 Session { session: incarnation, client_id: client_id }
    2 Connected { session: incarnation, expiry_secs: secs, will: optional_will }
    3 Left { session: incarnation, expiry_secs: secs, unix_ms: unix_ms, will: fate }
    4 Ended { session: incarnation, will: fate }
    5 Subscribed { session: incarnation, filter: filter, interest: interest }
    6 Unsubscribed { session: incarnation, filter: filter }
    7 Group { group: incarnation, filter: shared_filter }
    8 GroupEnded { group: incarnation }
    9 Enqueue { message: message_id, is_retained: flag, body: message, queues: queues }
    11 Cleared { topic: topic_name }
    12 Opened { session: incarnation, packet_id: packet_id }
    13 Closed { session: incarnation, packet_id: packet_id }
    14 Sent { session: incarnation, message: message_id, packet_id: packet_id }
    15 Moved {
        group: incarnation, session: incarnation, message: message_id, packet_id: packet_id, granted: granted
    }
    16 Received { session: incarnation, packet_id: packet_id }
    17 Finished { session: incarnation, packet_id: packet_id }
    18 Removed { queue: incarnation, message: message_id }
    19 Cursor { session: incarnation, filter: filter, last: message_id }
    20 CursorMoved { session: incarnation, filter: filter, from: position }
    21 CursorDone { session: incarnation, filter: filter }
    22 WillDue { session: incarnation }
    23 WillDone { will: message_id }
    24 WillKept { will: message_id, message: message }
    25 Principal { session: incarnation, user: optional_text, is_proved: flag, rules: text }
    26 WillPrincipal { will: message_id, user: optional_text, rules: text, claims: claims }
    27 Owner {
        session: incarnation, user: optional_text, is_proved: flag, rules: text, users: text, mount: text,
        prefix: text, claims: claims
    }
    28 ReceivedKept { session: incarnation, packet_id: packet_id, place: place }
}
