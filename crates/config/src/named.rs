//! A table of names, each with a value.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::RangeInclusive;

use toml::de::DeValue;

use crate::kind::{Kind, not_a};
use crate::unit;

/// Maximum number of names.
const NAMES_MAX: usize = 10_000;
/// Maximum length of a name, in bytes.
const NAME_BYTES_MAX: usize = 1_024;

/// Names, each with a value of another kind. Empty if the key is absent.
pub(crate) struct NamesWith<K>(PhantomData<K>);

impl<K: Kind> Kind for NamesWith<K> {
    type Value = BTreeMap<String, K::Value>;
    type Bound = K::Bound;

    fn word() -> String {
        format!("names, each with {}", K::word())
    }

    fn expected() -> String {
        format!("names such as {{ anna = … }}, each with {}", K::expected())
    }

    fn read(value: &DeValue<'_>) -> Result<Self::Value, String> {
        let DeValue::Table(table) = value else { return Err(not_a(value)) };
        if table.len() > NAMES_MAX {
            return Err(format!("has more than {NAMES_MAX} names"));
        }
        let one = |(name, value): (&str, &DeValue<'_>)| {
            let is_name =
                !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control);
            if is_name {
                Ok((name.to_owned(), K::read(value)?))
            } else {
                Err("has a key that is no name".to_owned())
            }
        };
        table.iter().map(|(name, value)| one((name.get_ref().as_ref(), value.get_ref()))).collect()
    }

    fn show(value: &Self::Value) -> String {
        if value.is_empty() {
            return String::new();
        }
        let pairs = value.iter().map(|(name, value)| format!("{} = {}", unit::quoted(name), K::show(value)));
        format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
    }

    fn is_within(value: &Self::Value, bounds: &RangeInclusive<K::Bound>) -> bool {
        value.values().all(|value| K::is_within(value, bounds))
    }

    fn show_bound(bound: &K::Bound) -> String {
        K::show_bound(bound)
    }
}
