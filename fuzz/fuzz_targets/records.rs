//! Any bytes are records of the journal or an error that says where; what is read is written as the same bytes.
#![no_main]

use std::sync::Arc;

use journal::record::{Decoder, encode_group};
use ledger::Record;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut decoder = Decoder::default();
    let (mut group, mut again, mut cuts) = (Vec::new(), Vec::new(), Vec::new());
    // A message's further queues come back as another message with the same body, so they are not written the same way.
    let mut has_further_queues = false;
    for decoded in decoder.records(input) {
        let decoded = match decoded {
            Ok(decoded) => decoded,
            Err(error) => return assert!(error.offset <= input.len(), "{error}"),
        };
        has_further_queues |= decoded.record.is_none() || is_continued(&group, decoded.record.as_ref());
        group.extend(decoded.record);
        if decoded.is_last {
            encode_group(&group, usize::MAX, &mut again, &mut cuts);
            group.clear();
        }
    }
    assert!(cuts.is_empty());
    assert!(has_further_queues || input.starts_with(&again));
});

/// Whether it shares its body with one before it: each message that is read whole has its own.
fn is_continued(group: &[Record<'_>], record: Option<&Record<'_>>) -> bool {
    let Some(Record::Enqueue { body, .. }) = record else { return false };
    group.iter().any(|before| matches!(before, Record::Enqueue { body: head, .. } if Arc::ptr_eq(head, body)))
}
