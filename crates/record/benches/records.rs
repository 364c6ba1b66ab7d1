//! The cost of a record on its way to bytes and back, without files: `cargo bench -p pondhawk-record --bench records`.

use std::borrow::Cow;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use base::{Message, Now};
use protocol::MessageId;
use record::{Decoder, Granted, Incarnation, Queued, Record, encode_group};
use wire::{Publish, Qos};

/// In one piece, as many as a commit may have.
const GROUPS: u32 = 4_096;
const ROUNDS: usize = 500;
const PAYLOAD_BYTES: usize = 100;

fn enqueue(fan_out: u64) -> Record<'static> {
    let topic = topic::topic!("bench/durable");
    let publish = Publish::new(topic, &[b'x'; PAYLOAD_BYTES]);
    let now = Now { monotonic_ms: 0, unix_ms: 0 };
    let body = Arc::new(Message::new(topic, &publish, Some("publisher-17".into()), now));
    let granted = Granted { qos: Qos::AtLeastOnce, retain: false, identifiers: Default::default() };
    let queued = |queue| Queued { queue: Incarnation(queue), granted: granted.clone() };
    Record::Enqueue {
        message: MessageId(1_000_000),
        body: Cow::Owned(body),
        queues: (0..fan_out).map(|queue| queued(5_000 + queue)).collect(),
        is_retained: false,
    }
}

/// The quickest of all rounds, in nanoseconds per group: the others were disturbed.
fn measure(mut piece: impl FnMut()) -> f64 {
    let once = || {
        let begin = Instant::now();
        piece();
        begin.elapsed().as_secs_f64()
    };
    let quickest = std::iter::repeat_with(once).take(ROUNDS).fold(f64::INFINITY, f64::min);
    quickest * 1e9 / f64::from(GROUPS)
}

fn main() {
    println!("groups of one record, {PAYLOAD_BYTES} B payload, ns per group");
    let session = Incarnation(5_000);
    let records = [
        ("Enqueue, 1 queue", enqueue(1)),
        ("Enqueue, 10 queues", enqueue(10)),
        ("Finished", Record::Finished { session, packet_id: wire::PacketId::MAX }),
    ];
    for (name, record) in records {
        let group = [record];
        let mut bytes = Vec::new();
        let encoded = measure(|| {
            bytes.clear();
            for _ in 0..GROUPS {
                encode_group(black_box(&group), &mut bytes);
            }
        });
        let mut decoder = Decoder::default();
        let decoded = measure(|| {
            assert_eq!(decoder.records(black_box(&bytes)).flatten().map(black_box).count(), GROUPS as usize);
        });
        let passed = measure(|| {
            let mut is_needed = |_, _| false;
            let needed = decoder.needed(black_box(&bytes), &mut is_needed).flatten();
            assert_eq!(needed.filter(|decoded| decoded.record.is_none()).count(), GROUPS as usize);
        });
        let size = bytes.len() / GROUPS as usize;
        println!("{name}: {size} B, encoded {encoded:.1}, decoded {decoded:.1}, passed over {passed:.1}");
    }
}
