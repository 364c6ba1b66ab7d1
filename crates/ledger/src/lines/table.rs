//! Places that are used again, and whose tenants are told apart.

use base::QueueId;

/// Things under a [`QueueId`] each. One that has gone is not found under its successor's.
#[derive(Debug)]
pub(crate) struct Table<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    /// A place without a tenant costs no more than this.
    value: Option<Box<T>>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Table<T> {
    /// Puts in what `make` makes of its future place.
    pub(crate) fn insert(&mut self, make: impl FnOnce(QueueId) -> T) -> QueueId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, value: None });
            u32::try_from(self.slots.len() - 1).expect("memory ends before 2^32 queues")
        });
        let place = &mut self.slots[slot as usize];
        let id = QueueId { slot, generation: place.generation };
        place.value = Some(Box::new(make(id)));
        id
    }

    pub(crate) fn remove(&mut self, id: QueueId) -> Option<Box<T>> {
        let place = self.slots.get_mut(id.slot as usize).filter(|place| place.generation == id.generation)?;
        let value = place.value.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(id.slot);
        Some(value)
    }

    pub(crate) fn find(&self, id: QueueId) -> Option<&T> {
        let place = self.slots.get(id.slot as usize)?;
        if place.generation == id.generation { place.value.as_deref() } else { None }
    }

    pub(crate) fn find_mut(&mut self, id: QueueId) -> Option<&mut T> {
        let place = self.slots.get_mut(id.slot as usize)?;
        if place.generation == id.generation { place.value.as_deref_mut() } else { None }
    }

    /// Two of them, which are not the same.
    pub(crate) fn find_two(&mut self, first: QueueId, second: QueueId) -> Option<(&mut T, &mut T)> {
        let slots = [first.slot as usize, second.slot as usize];
        let [one, other] = self.slots.get_disjoint_mut(slots).ok()?;
        if (one.generation, other.generation) != (first.generation, second.generation) {
            return None;
        }
        one.value.as_deref_mut().zip(other.value.as_deref_mut())
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The tenants of at most `count` places from this one on, and the next place, if there is one.
    pub(crate) fn in_slots(&self, from: u32, count: u32) -> (impl Iterator<Item = &T>, Option<u32>) {
        let end = from.saturating_add(count).min(u32::try_from(self.slots.len()).unwrap_or(u32::MAX));
        let places = self.slots.get(from as usize..end as usize).unwrap_or_default();
        let has_more = (end as usize) < self.slots.len();
        (places.iter().filter_map(|place| place.value.as_deref()), has_more.then_some(end))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|place| place.value.as_deref())
    }
}
