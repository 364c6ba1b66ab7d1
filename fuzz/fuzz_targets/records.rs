//! Any bytes are records of the journal or an error that says where; what is read is written as the same bytes, and without
//! the bodies of its messages it is read the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use record::{Decoder, Record, encode_group};

fuzz_target!(|input: &[u8]| {
    let (mut decoder, mut bodiless) = (Decoder::default(), Decoder::default());
    let (mut group, mut again, mut begins_at) = (Vec::new(), Vec::new(), 0);
    let mut records = decoder.records(input);
    while let Some(decoded) = records.next() {
        let decoded = match decoded {
            Ok(decoded) => decoded,
            Err(error) => return assert!(error.offset <= input.len(), "{error}"),
        };
        let record = decoded.record.expect("all are asked for");
        let away = bodiless.records_from(input, begins_at).next_away().expect("it can be read");
        match (&record, away) {
            (Record::Enqueue { message, body, queues, is_retained: false }, Some((away, is_last))) => {
                assert_eq!(
                    (*message, body.size_bytes(), is_last),
                    (away.message, away.size_bytes, decoded.is_last)
                );
                assert!(body.expires_unix_ms() == away.expires_unix_ms && away.queues().eq(&**queues));
            }
            (Record::Enqueue { queues, is_retained: false, .. }, None) => assert!(queues.is_empty()),
            (_, away) => assert!(away.is_none()),
        }
        begins_at = records.offset();
        group.push(record);
        if decoded.is_last {
            encode_group(&group, &mut again);
            group.clear();
        }
    }
    assert!(input.starts_with(&again));
});
