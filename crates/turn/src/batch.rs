//! Mail between two shards.

use std::sync::Arc;

use base::{Charge, SpanMark, Subscriber};
use broker::{Mail, Run};
use index::Target;
use wire::{Qos, Version};

/// Weight of an item of mail beside its bytes, in bytes.
const ITEM_BYTES: usize = 64;

/// Everything that one shard tells another in one turn: all bytes in one piece.
#[derive(Default)]
pub struct Batch {
    bytes: Vec<u8>,
    items: Vec<Item>,
    weight: usize,
    /// `Some` while the batch is under way.
    pub(crate) charge: Option<Charge>,
}

enum Item {
    Forward { end: usize, count: u32, payload_bytes: u64, version: Version, qos: Qos, targets: Arc<[Target]> },
    Publisher(Arc<str>),
    Marked(Arc<SpanMark>),
    Resume(Arc<Subscriber>),
}

impl Batch {
    /// Appends a piece of mail. Returns its weight in bytes.
    pub(crate) fn push(&mut self, mail: Mail<'_>) -> usize {
        let before = self.bytes.len();
        self.items.push(match mail {
            Mail::Forward(run, targets) => {
                self.bytes.extend_from_slice(run.bytes);
                let Run { count, payload_bytes, version, qos, .. } = run;
                Item::Forward { end: self.bytes.len(), count, payload_bytes, version, qos, targets }
            }
            Mail::Publisher(publisher) => Item::Publisher(publisher),
            Mail::Marked(mark) => Item::Marked(mark),
            Mail::Resume(subscriber) => Item::Resume(subscriber),
        });
        let weight = self.bytes.len() - before + ITEM_BYTES;
        self.weight += weight;
        weight
    }

    /// The weight of all items, in bytes.
    pub(crate) fn weight_bytes(&self) -> usize {
        self.weight
    }

    /// Hands each piece of mail to `read`, in the order in which it was written.
    pub(crate) fn drain(&mut self, mut read: impl FnMut(Mail<'_>)) {
        let mut start = 0;
        for item in self.items.drain(..) {
            read(match item {
                Item::Forward { end, count, payload_bytes, version, qos, targets } => {
                    let bytes = &self.bytes[start..end];
                    start = end;
                    Mail::Forward(Run { bytes, count, payload_bytes, version, qos }, targets)
                }
                Item::Publisher(publisher) => Mail::Publisher(publisher),
                Item::Marked(mark) => Mail::Marked(mark),
                Item::Resume(subscriber) => Mail::Resume(subscriber),
            });
        }
        self.bytes.clear();
    }

    /// Takes it off the account. Returns the weight that it had, in bytes.
    pub(crate) fn reset(&mut self) -> usize {
        self.charge = None;
        std::mem::take(&mut self.weight)
    }

    /// Memory that it keeps for the next turn, in bytes.
    pub(crate) fn capacity_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}
