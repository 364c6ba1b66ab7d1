//! The items of a list, bounded in number and in bytes.

use serde_json::Value;

use super::limit;
use crate::answer::Failure;
use crate::asked::Asked;

/// Size of an answer from which no further item is added. Clients choose names of up to 64 KiB, and JSON writes some characters
/// with six bytes.
const BYTES_MAX: usize = 1 << 20;

/// Items of an answer.
pub(super) struct Items {
    items: Vec<Value>,
    limit: usize,
    bytes: usize,
}

impl Items {
    /// A list with the limit that the request names.
    pub(super) fn of(asked: &Asked) -> Result<Self, Failure> {
        Ok(Self::new(limit(asked)?))
    }

    /// A list whose number of items is bounded by the question behind it.
    pub(super) fn of_one_answer() -> Self {
        Self::new(usize::MAX)
    }

    fn new(limit: usize) -> Self {
        Self { items: Vec::new(), limit, bytes: 0 }
    }

    /// Whether the list has no room for another item. An empty list has room.
    pub(super) fn is_full(&self) -> bool {
        self.items.len() >= self.limit || self.bytes >= BYTES_MAX
    }

    /// Adds an item. The list must have room.
    pub(super) fn push(&mut self, item: Value) {
        self.bytes += item.to_string().len();
        self.items.push(item);
    }

    /// The items, in the order in which they were added.
    pub(super) fn into_vec(self) -> Vec<Value> {
        self.items
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn long_names_fill_a_list_as_many_items_do() {
        let mut few = Items::new(1_000);
        while !few.is_full() {
            few.push(json!({ "topic": "\u{1}".repeat(65_535) }));
        }
        assert_eq!(few.into_vec().len(), 3);
        let mut many = Items::new(7);
        while !many.is_full() {
            many.push(json!({ "topic": "a" }));
        }
        assert_eq!(many.into_vec().len(), 7);
    }
}
