//! Groups of records to bytes.

use super::{LAST, kind, put};

use crate::record::Record;

/// Appends the records of one group to `into`, the last one flagged; of an empty group nothing. Returns how long the first
/// record is.
pub fn encode_group(group: &[Record<'_>], into: &mut Vec<u8>) -> usize {
    let begins_at = into.len();
    let (mut last_at, mut first_bytes) = (None, 0);
    for record in group {
        let at = into.len();
        into.push(kind(record));
        put(record, into);
        if at == begins_at {
            first_bytes = into.len() - begins_at;
        }
        last_at = Some(at);
    }
    if let Some(last_at) = last_at {
        into[last_at] |= LAST;
    }
    first_bytes
}
