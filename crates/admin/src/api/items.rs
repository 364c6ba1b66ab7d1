//! The items of a list, bounded in number and in bytes.

use serde_json::Value;

use super::limit;
use crate::answer::{Answer, Failure};
use crate::asked::Asked;

/// Size of an answer from which no further item is added. Clients choose names of up to 64 KiB, and JSON writes some characters
/// with six bytes.
const BYTES_MAX: usize = 1 << 20;

/// Number of items after which the core is given back, so that a shard that shares it with this thread does not wait for a page.
const ITEMS_PER_TURN: usize = 32;

/// Items of an answer, as JSON text.
pub(super) struct Items {
    text: Vec<u8>,
    count: usize,
    limit: usize,
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
        Self { text: Vec::new(), count: 0, limit }
    }

    /// Whether the list has no room for another item. An empty list has room.
    pub(super) fn is_full(&self) -> bool {
        self.count >= self.limit || self.text.len() >= BYTES_MAX
    }

    /// Adds an item. The list must have room.
    pub(super) fn push(&mut self, item: &Value) {
        if self.count > 0 {
            self.text.push(b',');
        }
        serde_json::to_writer(&mut self.text, item).expect("a value can be written into memory");
        self.count += 1;
        if self.count.is_multiple_of(ITEMS_PER_TURN) {
            std::thread::yield_now();
        }
    }

    /// The answer: an object with the items under this name, in the order in which they were added, and the other members.
    pub(super) fn into_answer(self, name: &str, others: Value) -> Answer {
        Answer::of("application/json", self.into_object(name, others))
    }

    fn into_object(self, name: &str, others: Value) -> Vec<u8> {
        let Value::Object(others) = others else { unreachable!("other members are those of an object") };
        let mut body = format!("{{{}:[", Value::from(name)).into_bytes();
        body.extend(self.text);
        body.push(b']');
        for (name, value) in others {
            body.extend(format!(",{}:{value}", Value::from(name)).into_bytes());
        }
        body.extend(b"}\n");
        body
    }
}

/// The same items. The core is given back between them.
pub(super) fn in_turns<T>(items: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
    items.enumerate().map(|(number, item)| {
        if number % ITEMS_PER_TURN == ITEMS_PER_TURN - 1 {
            std::thread::yield_now();
        }
        item
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn long_names_fill_a_list_as_many_items_do() {
        let mut few = Items::new(1_000);
        while !few.is_full() {
            few.push(&json!({ "topic": "\u{1}".repeat(65_535) }));
        }
        assert_eq!(few.count, 3);
        let mut many = Items::new(7);
        while !many.is_full() {
            many.push(&json!({ "topic": "a" }));
        }
        assert_eq!(many.count, 7);
    }
    #[test]
    fn the_answer_is_an_object_with_the_items_and_the_other_members() {
        let mut items = Items::new(1_000);
        for number in 0..70 {
            items.push(&json!({ "number": number, "name": "\"" }));
        }
        let object = items.into_object("some\"name", json!({ "cursor": null, "total": 70 }));
        let read: Value = serde_json::from_slice(&object).unwrap_or_default();
        assert_eq!(read["some\"name"].as_array().map(Vec::len), Some(70));
        assert_eq!(read["some\"name"][69], json!({ "number": 69, "name": "\"" }));
        assert_eq!((&read["cursor"], &read["total"]), (&Value::Null, &json!(70)));

        let empty = Items::new(1_000).into_object("none", json!({}));
        assert_eq!(empty, b"{\"none\":[]}\n");
        assert!(in_turns(0..100).eq(0..100));
    }
}
