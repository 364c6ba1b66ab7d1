//! Contents of a letter, while a turn collects them.

/// Maximum number of items for which a new bundle reserves space.
const RESERVED_ITEMS_MAX: usize = 64;

/// Items for one letter. A bundle begins with space for as many items as the last letter had, and then seldom grows. This
/// saves a hundredth of the ledger's time (`pondhawk bench ledger`).
pub(crate) struct Bundle<T> {
    items: Vec<T>,
    /// Number of items in the last letter.
    last_items: usize,
}

impl<T> Default for Bundle<T> {
    fn default() -> Self {
        Self { items: Vec::new(), last_items: 0 }
    }
}

impl<T> Bundle<T> {
    pub(crate) fn push(&mut self, item: T) {
        if self.items.is_empty() {
            self.items.reserve(self.last_items.min(RESERVED_ITEMS_MAX));
        }
        self.items.push(item);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Takes all items for a letter.
    pub(crate) fn take(&mut self) -> Vec<T> {
        self.last_items = self.items.len();
        std::mem::take(&mut self.items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_has_space_for_as_many_items_as_the_last_letter_had() {
        let mut bundle = Bundle::default();
        let few = 4;
        for (items, reserved) in
            [(1, few), (40, few), (1, 40), (1_000, few), (1, RESERVED_ITEMS_MAX), (1, few)]
        {
            bundle.push(0);
            assert_eq!(bundle.items.capacity(), reserved);
            (1..items).for_each(|item| bundle.push(item));
            assert_eq!(bundle.take().len(), items);
            assert!(bundle.is_empty());
        }
    }
}
