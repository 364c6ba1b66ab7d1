//! The subscribers of one filter.

use crate::hash::{LevelHash, give_back};
use base::Identity;
use hashbrown::HashTable;
use std::mem;

/// Number of subscribers up to which a search is linear: two or three cache lines.
const SEARCHED_LINEARLY_MAX: usize = 12;

/// The subscribers of a filter, never empty. Nearly every filter has one subscriber, which is stored in place.
#[derive(Debug)]
pub(crate) enum Subscribers<S, O> {
    One(Member<S, O>),
    Many(Box<Members<S, O>>),
}

#[derive(Debug)]
pub(crate) struct Member<S, O> {
    subscriber: S,
    options: O,
}

/// A list without order. From `SEARCHED_LINEARLY_MAX` on, it also has the index of each subscriber.
#[derive(Debug)]
pub(crate) struct Members<S, O> {
    list: Vec<Member<S, O>>,
    places: HashTable<u32>,
}

/// Effect of removing a subscriber from a filter.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Removal<O> {
    NotFound,
    Removed(O),
    /// The subscriber was the only one, and the list is to be dropped.
    Last(O),
}

impl<S: Identity + Clone, O: Copy> Subscribers<S, O> {
    pub(crate) fn one(subscriber: &S, options: O) -> Self {
        Self::One(Member { subscriber: subscriber.clone(), options })
    }

    /// Adds a subscriber. Returns the replaced options, if `subscriber` was in the list.
    pub(crate) fn insert(&mut self, subscriber: &S, options: O, hash: &LevelHash) -> Option<O> {
        match self {
            Self::One(member) if member.subscriber.identity() == subscriber.identity() => {
                Some(mem::replace(&mut member.options, options))
            }
            Self::One(member) => {
                let first = Member { subscriber: member.subscriber.clone(), options: member.options };
                let second = Member { subscriber: subscriber.clone(), options };
                let list = vec![first, second];
                *self = Self::Many(Box::new(Members { list, places: HashTable::new() }));
                None
            }
            Self::Many(members) => members.insert(subscriber, options, hash),
        }
    }

    pub(crate) fn remove(&mut self, subscriber: &S, hash: &LevelHash) -> Removal<O> {
        match self {
            Self::One(member) if member.subscriber.identity() == subscriber.identity() => {
                Removal::Last(member.options)
            }
            Self::One(_) => Removal::NotFound,
            Self::Many(members) => {
                let Some(options) = members.remove(subscriber, hash) else { return Removal::NotFound };
                if members.list.len() == 1
                    && let Some(last) = members.list.pop()
                {
                    *self = Self::One(last);
                }
                Removal::Removed(options)
            }
        }
    }

    /// The options of a subscriber, if it is in the list. The cost does not depend on the length of the list.
    pub(crate) fn options_of(&self, subscriber: &S, hash: &LevelHash) -> Option<O> {
        match self {
            Self::One(member) => {
                (member.subscriber.identity() == subscriber.identity()).then_some(member.options)
            }
            Self::Many(members) => {
                let place = members.place_of(subscriber.identity(), hash)?;
                Some(members.list[place].options)
            }
        }
    }

    pub(crate) fn for_each(&self, visit: &mut impl FnMut(&S, &O)) {
        match self {
            Self::One(member) => visit(&member.subscriber, &member.options),
            Self::Many(members) => {
                members.list.iter().for_each(|member| visit(&member.subscriber, &member.options));
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Many(members) => members.list.len(),
        }
    }

    /// At most `count` members from number `first` on.
    pub(crate) fn piece(&self, first: usize, count: usize) -> impl Iterator<Item = (&S, &O)> {
        let all = match self {
            Self::One(member) => std::slice::from_ref(member),
            Self::Many(members) => &members.list,
        };
        all.iter().skip(first).take(count).map(|member| (&member.subscriber, &member.options))
    }

    /// Size on the heap, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::One(_) => 0,
            Self::Many(members) => {
                size_of::<Members<S, O>>()
                    + members.list.capacity() * size_of::<Member<S, O>>()
                    + members.places.allocation_size()
            }
        }
    }
}

impl<S: Identity + Clone, O: Copy> Members<S, O> {
    fn insert(&mut self, subscriber: &S, options: O, hash: &LevelHash) -> Option<O> {
        if let Some(place) = self.place_of(subscriber.identity(), hash) {
            return Some(mem::replace(&mut self.list[place].options, options));
        }
        self.list.push(Member { subscriber: subscriber.clone(), options });
        if !self.places.is_empty() {
            self.note_place(self.list.len() - 1, hash);
        } else if self.list.len() > SEARCHED_LINEARLY_MAX {
            (0..self.list.len()).for_each(|place| self.note_place(place, hash));
        }
        None
    }

    /// The last entry of the list moves into the gap.
    fn remove(&mut self, subscriber: &S, hash: &LevelHash) -> Option<O> {
        let place = self.place_of(subscriber.identity(), hash)?;
        let last = self.list.len() - 1;
        if !self.places.is_empty() {
            self.forget_place(place, hash);
            if place != last {
                let moved = hash.number(self.list[last].subscriber.identity());
                let noted = self.places.find_mut(moved, |noted| *noted as usize == last);
                *noted.expect("every member has its place noted") = to_place(place);
            }
        }
        let member = self.list.swap_remove(place);
        self.shrink(hash);
        Some(member.options)
    }

    fn place_of(&self, identity: u64, hash: &LevelHash) -> Option<usize> {
        if self.places.is_empty() {
            return self.list.iter().position(|member| member.subscriber.identity() == identity);
        }
        let is_it = |place: &u32| self.list[*place as usize].subscriber.identity() == identity;
        self.places.find(hash.number(identity), is_it).map(|place| *place as usize)
    }

    fn note_place(&mut self, place: usize, hash: &LevelHash) {
        let hash_at = |place: &u32| hash.number(self.list[*place as usize].subscriber.identity());
        let place = to_place(place);
        self.places.insert_unique(hash_at(&place), place, hash_at);
    }

    fn forget_place(&mut self, place: usize, hash: &LevelHash) {
        let hashed = hash.number(self.list[place].subscriber.identity());
        if let Ok(noted) = self.places.find_entry(hashed, |noted| *noted as usize == place) {
            noted.remove();
        }
    }

    fn shrink(&mut self, hash: &LevelHash) {
        let len = self.list.len();
        if len < self.list.capacity() / 4 {
            self.list.shrink_to(len * 2);
        }
        if len <= SEARCHED_LINEARLY_MAX / 2 {
            self.places = HashTable::new();
        } else {
            let hash_at = |place: &u32| hash.number(self.list[*place as usize].subscriber.identity());
            give_back(&mut self.places, hash_at);
        }
    }
}

/// Four bytes: four thousand million subscribers to one filter do not fit into any machine.
fn to_place(place: usize) -> u32 {
    u32::try_from(place).expect("a list of members has fewer than 2^32")
}
