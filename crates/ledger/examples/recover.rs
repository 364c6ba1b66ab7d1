//! How long it takes to make a ledger again from its records, and how much memory: `recover [messages] [sessions]`.
//!
//! Messages of 100 bytes, each to one of the sessions in turn, none of which is connected.

use std::borrow::Cow;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Instant;

use base::{Identifiers, Interest, Message, Now};
use index::Subscriptions;
use ledger::{
    Address, Addressed, Granted, Incarnation, Ledger, MessageId, Queued, Record, Settings, WillFate,
};
use topic::TopicName;
use wire::{Delivery, PacketId, Publish, Qos};

const NOW: Now = Now { monotonic_ms: 0, unix_ms: 1_700_000_000_000 };

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>().expect("a number"));
    let messages = args.next().unwrap_or(5_000_000);
    let sessions = args.next().unwrap_or(10_000);
    let before = resident_bytes();
    let start = Instant::now();
    let sessions_begun = (1..=sessions).flat_map(session).map(Addressed::from);
    // As if each stood somewhere on a disk.
    let address = |id| NonZeroU64::new(id).map(|at| Address { at, bytes: 150, checksum: 0 });
    let enqueue = |id| Addressed { record: enqueue(id, id % sessions + 1), address: address(id) };
    let records = sessions_begun.chain((1..=messages).map(enqueue));
    let index = Arc::new(Subscriptions::new([1, 2]));
    let settings = Settings { queue_messages_max: usize::MAX, ..Settings::default() };
    let ledger = Ledger::recover(settings, index, records, NOW);
    let took = start.elapsed();
    let held = resident_bytes().saturating_sub(before);
    println!(
        "{messages} messages over {sessions} sessions: {:.2} s, {} MiB resident, {} MiB live",
        took.as_secs_f64(),
        held >> 20,
        ledger.live_bytes() >> 20
    );
}

fn session(number: u64) -> [Record<'static>; 3] {
    let session = Incarnation(number);
    let name = format!("session-{number}");
    let filter = Cow::Owned(format!("offline/{number}"));
    let interest = Interest::new(Qos::AtLeastOnce);
    [
        Record::Session { session, client_id: Cow::Owned(name) },
        Record::Subscribed { session, filter, interest },
        Record::Left { session, expiry_secs: u32::MAX, unix_ms: NOW.unix_ms, will: WillFate::Dropped },
    ]
}

fn enqueue(id: u64, session: u64) -> Record<'static> {
    let topic = format!("offline/{session}");
    let topic = TopicName::new(&topic).expect("a topic");
    let delivery = Delivery::AtLeastOnce { packet_id: PacketId::MIN, dup: false };
    let publish = Publish { delivery, ..Publish::new(topic, &[7; 100]) };
    let granted = Granted { qos: Qos::AtLeastOnce, retain: false, identifiers: Identifiers::new() };
    Record::Enqueue {
        message: MessageId(id),
        body: Cow::Owned(Arc::new(Message::new(topic, &publish, None, NOW))),
        queues: Cow::Owned(vec![Queued { queue: Incarnation(session), granted }]),
        is_retained: false,
    }
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = status.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or_default() * 4_096
}
