//! Packets that wait for their counterpart: expected ones that have not arrived, and arrived ones that were not expected yet.

use std::collections::{BTreeMap, HashMap, VecDeque};

/// Packets in the order of their arrival, which are found by everything that is compared, or by their subject.
#[derive(Debug)]
pub(crate) struct Book<T> {
    entries: BTreeMap<u64, Entry<T>>,
    by_all: HashMap<u64, VecDeque<u64>>,
    by_subject: HashMap<u64, VecDeque<u64>>,
    next: u64,
}

#[derive(Debug)]
struct Entry<T> {
    all: u64,
    subject: u64,
    value: T,
}

impl<T> Book<T> {
    pub(crate) fn new() -> Self {
        Self { entries: BTreeMap::new(), by_all: HashMap::new(), by_subject: HashMap::new(), next: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds a packet, and returns its number.
    pub(crate) fn add(&mut self, all: u64, subject: u64, value: T) -> u64 {
        let number = self.next;
        self.next += 1;
        self.entries.insert(number, Entry { all, subject, value });
        self.by_all.entry(all).or_default().push_back(number);
        self.by_subject.entry(subject).or_default().push_back(number);
        number
    }

    /// Removes the oldest packet that is equal.
    pub(crate) fn take_equal(&mut self, all: u64) -> Option<T> {
        let number = *self.by_all.get(&all)?.front()?;
        self.take(number)
    }

    /// Removes the oldest packet that is equal and that `is_wanted` accepts.
    pub(crate) fn take_equal_if(&mut self, all: u64, is_wanted: impl Fn(&T) -> bool) -> Option<T> {
        let is_wanted = |number: &&u64| self.entries.get(number).is_some_and(|entry| is_wanted(&entry.value));
        let number = *self.by_all.get(&all)?.iter().find(is_wanted)?;
        self.take(number)
    }

    /// The number of the oldest packet with this subject that `is_wanted` accepts.
    pub(crate) fn find(&self, subject: u64, is_wanted: impl Fn(&T) -> bool) -> Option<u64> {
        let is_wanted = |number: &&u64| self.entries.get(number).is_some_and(|entry| is_wanted(&entry.value));
        self.by_subject.get(&subject)?.iter().find(is_wanted).copied()
    }

    /// Removes the packet with this number.
    pub(crate) fn take(&mut self, number: u64) -> Option<T> {
        self.take_entry(number).map(|(_, _, value)| value)
    }

    /// Removes the packet with this number. Also returns the hashes of its equals and of its subject.
    pub(crate) fn take_entry(&mut self, number: u64) -> Option<(u64, u64, T)> {
        let Entry { all, subject, value } = self.entries.remove(&number)?;
        for (index, key) in [(&mut self.by_all, all), (&mut self.by_subject, subject)] {
            if let Some(numbers) = index.get_mut(&key) {
                // The numbers are in ascending order.
                if let Ok(at) = numbers.binary_search(&number) {
                    numbers.remove(at);
                }
                if numbers.is_empty() {
                    index.remove(&key);
                }
            }
        }
        Some((all, subject, value))
    }

    /// Removes the oldest packet.
    pub(crate) fn take_oldest(&mut self) -> Option<(u64, u64, T)> {
        let number = *self.entries.first_key_value()?.0;
        self.take_entry(number)
    }
}

#[test]
fn packets_are_found_by_equality_and_by_subject_in_their_order() {
    let mut book = Book::new();
    for (all, subject, value) in [(1, 7, 'a'), (2, 7, 'b'), (1, 7, 'c'), (3, 8, 'd')] {
        book.add(all, subject, value);
    }
    assert_eq!(book.take_equal_if(1, |value| *value == 'd'), None);
    assert_eq!(book.take_equal(1), Some('a'));
    assert_eq!(book.find(7, |value| *value != 'b'), Some(2));
    assert_eq!(book.take(2), Some('c'));
    assert_eq!(book.take_equal(1), None);
    assert_eq!(book.take_oldest(), Some((2, 7, 'b')));
    assert_eq!(book.len(), 1);
}
