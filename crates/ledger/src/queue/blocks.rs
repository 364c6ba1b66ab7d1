//! A list that is taken from its front, in blocks: where it is long, what is in it is not moved when it grows, and its
//! memory is given back block by block.

use std::collections::{VecDeque, vec_deque};
use std::mem;

/// Number of entries in one block: 2 KiB of messages.
const BLOCK: usize = 32;

/// First in, first out, with a number for each place, counted from the first.
#[derive(Debug)]
pub(crate) struct Blocks<T> {
    /// All of it, if that is little.
    first: VecDeque<T>,
    /// Behind it, full ones. Mostly there are none.
    #[expect(clippy::box_collection, reason = "a word is enough where there are none")]
    middle: Option<Box<VecDeque<Vec<T>>>>,
    /// Behind those, and not empty if there are any: to add something is to go to one place.
    last: Vec<T>,
}

impl<T> Default for Blocks<T> {
    fn default() -> Self {
        Self { first: VecDeque::new(), middle: None, last: Vec::new() }
    }
}

impl<T> Blocks<T> {
    pub(crate) fn len(&self) -> usize {
        let full = self.middle.as_ref().map_or(0, |blocks| blocks.len());
        self.first.len() + full * BLOCK + self.last.len()
    }

    #[inline]
    pub(crate) fn push_back(&mut self, item: T) {
        if self.last.is_empty() && self.first.len() < BLOCK {
            return self.first.push_back(item);
        }
        if self.last.len() == BLOCK {
            self.middle.get_or_insert_default().push_back(mem::take(&mut self.last));
        }
        if self.last.is_empty() {
            self.last.reserve_exact(BLOCK);
        }
        self.last.push(item);
    }

    pub(crate) fn pop_front(&mut self) -> Option<T> {
        let item = self.first.pop_front();
        if self.first.is_empty() && !self.last.is_empty() {
            self.first = self.take_block().into();
        }
        item
    }

    /// The block behind the first.
    fn take_block(&mut self) -> Vec<T> {
        let Some(middle) = &mut self.middle else { return mem::take(&mut self.last) };
        let block = middle.pop_front();
        if middle.is_empty() {
            self.middle = None;
        }
        block.unwrap_or_default()
    }

    pub(crate) fn front(&self) -> Option<&T> {
        self.first.front()
    }

    #[inline]
    pub(crate) fn back(&self) -> Option<&T> {
        self.last.last().or_else(|| self.first.back())
    }

    pub(crate) fn get(&self, place: usize) -> Option<&T> {
        let Some(behind) = place.checked_sub(self.first.len()) else { return self.first.get(place) };
        let middle = self.middle.as_ref().and_then(|blocks| blocks.get(behind / BLOCK));
        match middle {
            Some(block) => block.get(behind % BLOCK),
            None => self.last.get(behind - self.middle_len()),
        }
    }

    pub(crate) fn get_mut(&mut self, place: usize) -> Option<&mut T> {
        let Some(behind) = place.checked_sub(self.first.len()) else { return self.first.get_mut(place) };
        match behind.checked_sub(self.middle_len()) {
            Some(behind) => self.last.get_mut(behind),
            None => self.middle.as_mut()?.get_mut(behind / BLOCK)?.get_mut(behind % BLOCK),
        }
    }

    fn middle_len(&self) -> usize {
        self.middle.as_ref().map_or(0, |blocks| blocks.len() * BLOCK)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let middle = self.middle.iter().flat_map(|blocks| blocks.iter().flatten());
        self.first.iter().chain(middle).chain(&self.last)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let middle = self.middle.iter_mut().flat_map(|blocks| blocks.iter_mut().flatten());
        self.first.iter_mut().chain(middle).chain(&mut self.last)
    }

    /// The first place where this is no longer so, if it is so everywhere before.
    pub(crate) fn partition_point(&self, is_before: impl Fn(&T) -> bool) -> usize {
        let (first, middle) = (self.first.len(), self.middle_len());
        if self.last.first().is_some_and(&is_before) {
            return first + middle + self.last.partition_point(is_before);
        }
        let Some(blocks) = &self.middle else { return self.first.partition_point(is_before) };
        match blocks.partition_point(|block| block.first().is_some_and(&is_before)).checked_sub(1) {
            None => self.first.partition_point(is_before),
            Some(block) => first + block * BLOCK + blocks[block].partition_point(is_before),
        }
    }

    /// Removes the last entries, so that at most this number are left.
    pub(crate) fn truncate(&mut self, len: usize) {
        let behind = len.saturating_sub(self.first.len());
        self.first.truncate(len);
        if let Some(last_behind) = behind.checked_sub(self.middle_len()).filter(|behind| *behind > 0) {
            return self.last.truncate(last_behind);
        }
        let Some(mut middle) = self.middle.take() else { return self.last = Vec::new() };
        // The last of those that are left is the last of all.
        middle.truncate(behind.div_ceil(BLOCK));
        self.last = middle.pop_back().unwrap_or_default();
        self.last.truncate(behind - middle.len() * BLOCK);
        self.middle = Some(middle).filter(|blocks| !blocks.is_empty());
    }

    /// Without memory for more, if it is short: it may wait for long.
    pub(crate) fn shrink_to_fit(&mut self) {
        if self.last.is_empty() {
            self.first.shrink_to_fit();
        }
    }
}

impl<T> IntoIterator for Blocks<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        let middle = self.middle.map(|blocks| *blocks).unwrap_or_default();
        IntoIter { block: self.first.into_iter(), middle, last: self.last }
    }
}

/// The items of [`Blocks`]; each block is freed when it is done with.
#[derive(Debug)]
pub(crate) struct IntoIter<T> {
    block: vec_deque::IntoIter<T>,
    middle: VecDeque<Vec<T>>,
    last: Vec<T>,
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        if self.block.len() == 0 {
            let next = self.middle.pop_front().unwrap_or_else(|| mem::take(&mut self.last));
            self.block = VecDeque::from(next).into_iter();
        }
        self.block.next()
    }
}

impl<T> FromIterator<T> for Blocks<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut blocks = Self::default();
        items.into_iter().for_each(|item| blocks.push_back(item));
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths about the borders of blocks, each with every number taken from its front.
    #[test]
    fn it_is_a_list_at_every_length() {
        for (len, taken) in (0..3 * BLOCK + 2).flat_map(|len| (0..=len).map(move |taken| (len, taken))) {
            let mut blocks: Blocks<usize> = (0..len).collect();
            let mut list: VecDeque<usize> = (0..len).collect();
            for _ in 0..taken {
                assert_eq!(blocks.pop_front(), list.pop_front());
            }
            (len..len + 3).for_each(|item| {
                blocks.push_back(item);
                list.push_back(item);
            });
            assert_eq!(
                (blocks.len(), blocks.front(), blocks.back()),
                (list.len(), list.front(), list.back())
            );
            assert!(blocks.iter().eq(&list) && blocks.iter_mut().eq(&mut list));
            assert!((0..=list.len()).all(|place| blocks.get(place) == list.get(place)));
            assert!((0..=list.len()).all(|place| blocks.get_mut(place) == list.get_mut(place)));
            let point =
                |item| (blocks.partition_point(|it| *it < item), list.partition_point(|it| *it < item));
            assert!((0..len + 4).map(point).all(|(ours, theirs)| ours == theirs));
            for left in [list.len() + BLOCK, list.len(), list.len() / 2] {
                blocks.truncate(left);
                list.truncate(left);
                assert!(blocks.iter().eq(&list) && blocks.len() == list.len());
            }
            blocks.push_back(len + 3);
            list.push_back(len + 3);
            assert!(blocks.into_iter().eq(list));
        }
    }
}
