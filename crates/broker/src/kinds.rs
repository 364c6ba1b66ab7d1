//! Values that many clients share, by numbers of two bytes.

use std::collections::HashSet;

/// Number of places from which on a new value takes the place of one that no client has any more. A configuration has at most
/// 255 listeners; values beyond are of earlier configurations.
const PLACES: usize = 300;

/// Values by number. A client has the number of its value, and the place is not used again while it has.
#[derive(Debug)]
pub(crate) struct Kinds<T>(Vec<T>);

impl<T> Default for Kinds<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: PartialEq> Kinds<T> {
    /// The number of a value. Looks at each. `in_use` returns the numbers that clients have, and is called if there are many
    /// values that are not equal to this one.
    ///
    /// # Panics
    /// If clients have 65,536 different values. Values come from the configuration, and not from clients.
    pub(crate) fn number(&mut self, value: T, in_use: impl FnOnce() -> HashSet<u16>) -> u16 {
        let number =
            |place: usize| u16::try_from(place).expect("there are about as many values as listeners");
        if let Some(place) = self.0.iter().position(|known| *known == value) {
            return number(place);
        }
        if self.0.len() >= PLACES {
            let used = in_use();
            if let Some(place) = (0..self.0.len()).find(|place| !used.contains(&number(*place))) {
                self.0[place] = value;
                return number(place);
            }
        }
        self.0.push(value);
        number(self.0.len() - 1)
    }

    /// The value with a number.
    pub(crate) fn of(&self, number: u16) -> &T {
        &self.0[usize::from(number)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_value_that_nobody_has_is_used_again() {
        let mut kinds = Kinds::default();
        let places = u16::try_from(PLACES).expect("it is small");
        for value in 0..places {
            assert_eq!(kinds.number(value, HashSet::new), value);
        }
        assert_eq!(kinds.number(1, || unreachable!("it is known")), 1);
        let all_but = |free: u16| move || (0..places).filter(|number| *number != free).collect();
        assert_eq!(kinds.number(1_000, all_but(7)), 7);
        assert_eq!((*kinds.of(7), *kinds.of(8)), (1_000, 8));
        assert_eq!(kinds.number(7, || (0..places).collect()), places, "all others are in use");
    }
}
