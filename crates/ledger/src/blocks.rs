//! A list that is taken from its front, in blocks: what is in it is not moved when it grows, and its memory is given back
//! block by block.

use std::collections::VecDeque;
use std::iter;

/// So many stand in one block: 2 KiB of messages.
const BLOCK: usize = 32;

/// First in, first out, with a number for each place, counted from the first.
#[derive(Debug)]
pub(crate) struct Blocks<T> {
    /// All of it, if that is little.
    first: VecDeque<T>,
    /// Behind it. All but the last are full.
    rest: VecDeque<Vec<T>>,
}

impl<T> Default for Blocks<T> {
    fn default() -> Self {
        Self { first: VecDeque::new(), rest: VecDeque::new() }
    }
}

impl<T> Blocks<T> {
    pub(crate) fn len(&self) -> usize {
        let full = self.rest.len().saturating_sub(1) * BLOCK;
        self.first.len() + full + self.rest.back().map_or(0, Vec::len)
    }

    #[inline]
    pub(crate) fn push_back(&mut self, item: T) {
        if self.rest.is_empty() && self.first.len() < BLOCK {
            return self.first.push_back(item);
        }
        match self.rest.back_mut() {
            Some(block) if block.len() < BLOCK => block.push(item),
            _ => {
                let mut block = Vec::with_capacity(BLOCK);
                block.push(item);
                self.rest.push_back(block);
            }
        }
    }

    pub(crate) fn pop_front(&mut self) -> Option<T> {
        let item = self.first.pop_front();
        if self.first.is_empty() {
            // What was one block long needs no more than is in it now.
            let next = self.rest.pop_front().map(VecDeque::from);
            if next.is_some() || self.first.capacity() > BLOCK / 2 {
                self.first = next.unwrap_or_default();
            }
            if self.rest.is_empty() {
                self.rest = VecDeque::new();
            }
        }
        item
    }

    pub(crate) fn front(&self) -> Option<&T> {
        self.first.front()
    }

    #[inline]
    pub(crate) fn back(&self) -> Option<&T> {
        self.rest.back().map_or_else(|| self.first.back(), |block| block.last())
    }

    pub(crate) fn get(&self, place: usize) -> Option<&T> {
        match place.checked_sub(self.first.len()) {
            None => self.first.get(place),
            Some(behind) => self.rest.get(behind / BLOCK)?.get(behind % BLOCK),
        }
    }

    pub(crate) fn get_mut(&mut self, place: usize) -> Option<&mut T> {
        match place.checked_sub(self.first.len()) {
            None => self.first.get_mut(place),
            Some(behind) => self.rest.get_mut(behind / BLOCK)?.get_mut(behind % BLOCK),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(self.rest.iter().flatten())
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.first.iter_mut().chain(self.rest.iter_mut().flatten())
    }

    /// The first place where this is no longer so, if it is so everywhere before.
    pub(crate) fn partition_point(&self, is_before: impl Fn(&T) -> bool) -> usize {
        let blocks = self.rest.partition_point(|block| block.first().is_some_and(&is_before));
        match blocks.checked_sub(1) {
            None => self.first.partition_point(is_before),
            Some(block) => self.first.len() + block * BLOCK + self.rest[block].partition_point(is_before),
        }
    }

    /// Without the last ones, so that so many are left.
    pub(crate) fn truncate(&mut self, len: usize) {
        let behind = len.saturating_sub(self.first.len());
        self.first.truncate(len);
        self.rest.truncate(behind.div_ceil(BLOCK));
        if let Some(last) = self.rest.back_mut() {
            last.truncate(behind - (behind - 1) / BLOCK * BLOCK);
        }
    }
}

impl<T> IntoIterator for Blocks<T> {
    type Item = T;
    type IntoIter = iter::Chain<
        std::collections::vec_deque::IntoIter<T>,
        iter::Flatten<std::collections::vec_deque::IntoIter<Vec<T>>>,
    >;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.rest.into_iter().flatten())
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
            let left = list.len() / 2;
            blocks.truncate(left);
            list.truncate(left);
            assert_eq!(blocks.len(), left);
            assert!(blocks.into_iter().eq(list));
        }
    }
}
