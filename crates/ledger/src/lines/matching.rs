//! Whether one of a session's filters matches a topic.

use std::collections::BTreeMap;
use std::ops::Bound;

use topic::TopicName;

/// The most look-ups for one topic. A topic of five levels needs fewer, whatever the filters are.
const PROBES_MAX: usize = 128;

/// Whether one of these filters, none of which is shared, matches a topic; nothing if that takes more than 128 look-ups.
///
/// Filters are in the order of their texts, so that one look-up tells whether any begins with given levels. The search
/// takes the topic's levels one by one, each as it is and as `+`, and follows only what some filter begins with.
pub(crate) fn any_matches<V>(filters: &BTreeMap<Box<str>, V>, topic: TopicName<'_>) -> Option<bool> {
    Search { filters, levels: topic.levels().collect(), text: String::new(), probes: 0 }.matches_below(0)
}

struct Search<'a, V> {
    filters: &'a BTreeMap<Box<str>, V>,
    levels: Vec<&'a str>,
    /// The levels that the filters in question begin with, each with a `/` behind it.
    text: String,
    probes: usize,
}

impl<V> Search<'_, V> {
    /// Whether a filter matches that begins with `text`, which stands for the first `level` levels. Every call is at
    /// least one look-up: at most [`PROBES_MAX`] calls are nested.
    fn matches_below(&mut self, level: usize) -> Option<bool> {
        let is_hidden = level == 0 && self.levels[0].starts_with('$');
        if !is_hidden && self.has_with("#")? {
            return Some(true);
        }
        let Some(name) = self.levels.get(level).copied() else {
            // All levels are there: without the `/` behind the last one, it is a whole filter.
            self.count()?;
            return Some(self.filters.contains_key(&self.text[..self.text.len() - 1]));
        };
        let wildcard = (!is_hidden).then_some("+");
        for wanted in [Some(name), wildcard].into_iter().flatten() {
            let len = self.text.len();
            self.text.push_str(wanted);
            self.text.push('/');
            let is_last = level + 1 == self.levels.len();
            if (is_last || self.begins_some()?) && self.matches_below(level + 1)? {
                return Some(true);
            }
            self.text.truncate(len);
        }
        Some(false)
    }

    /// Whether there is a filter of these levels and one more.
    fn has_with(&mut self, last: &str) -> Option<bool> {
        self.count()?;
        let len = self.text.len();
        self.text.push_str(last);
        let has = self.filters.contains_key(&*self.text);
        self.text.truncate(len);
        Some(has)
    }

    /// Whether a filter begins with these levels.
    fn begins_some(&mut self) -> Option<bool> {
        self.count()?;
        let mut behind = self.filters.range::<str, _>((Bound::Included(&*self.text), Bound::Unbounded));
        Some(behind.next().is_some_and(|(filter, _)| filter.starts_with(&*self.text)))
    }

    fn count(&mut self) -> Option<()> {
        self.probes += 1;
        (self.probes <= PROBES_MAX).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use topic::TopicFilter;

    use super::*;

    fn filters(texts: impl IntoIterator<Item = String>) -> BTreeMap<Box<str>, ()> {
        texts.into_iter().map(|text| (text.into(), ())).collect()
    }

    /// Returns all texts of up to this number of these levels.
    fn texts(levels: &[&str], depth: usize) -> Vec<String> {
        let mut all: Vec<String> = levels.iter().map(|level| (*level).to_owned()).collect();
        let mut last = all.clone();
        for _ in 1..depth {
            let longer = |text: &String| levels.iter().map(move |level| format!("{text}/{level}")).collect();
            last = last.iter().flat_map(|text| -> Vec<String> { longer(text) }).collect();
            all.extend(last.iter().cloned());
        }
        all
    }

    /// Every filter of up to three levels alone with every topic, and each third of all filters.
    #[test]
    fn a_filter_is_found_if_it_matches() {
        let all: Vec<String> = texts(&["a", "b", "", "+", "#", "$x", "a!"], 3)
            .into_iter()
            .filter(|text| TopicFilter::new(text).is_ok())
            .collect();
        let topics: Vec<String> =
            texts(&["a", "b", "", "$x"], 3).into_iter().filter(|text| TopicName::new(text).is_ok()).collect();
        for topic in &topics {
            let topic = TopicName::new(topic).expect("a topic");
            let matches = |text: &String| TopicFilter::new(text).expect("a filter").matches(topic);
            for text in &all {
                let found = any_matches(&filters([text.clone()]), topic);
                assert_eq!(found, Some(matches(text)), "{text} {}", topic.as_str());
            }
            for rest in 0..3 {
                let third = all.iter().enumerate().filter(|(number, text)| {
                    // Those that match are few among many: not all of them are there.
                    number % 3 == rest && (!matches(text) || number % 2 == 0)
                });
                let third: Vec<String> = third.map(|(_, text)| text.clone()).collect();
                let found = any_matches(&filters(third.iter().cloned()), topic);
                assert_eq!(found, Some(third.iter().any(matches)), "{}", topic.as_str());
            }
        }
    }

    /// The search gives up: its cost is not that of the number of filters.
    #[test]
    fn a_search_ends_after_a_bounded_number_of_look_ups() {
        for levels in [5, 8, 11] {
            let name = vec!["a"; levels].join("/");
            let topic = TopicName::new(&name).expect("a topic");
            // All arrangements of wildcards over these levels, none of which is of the right length.
            let texts = (0..1_u32 << levels).map(|places| {
                let level = |number: usize| if places >> number & 1 == 0 { "a" } else { "+" };
                (0..levels).map(level).collect::<Vec<_>>().join("/") + "/b"
            });
            let filters = filters(texts);
            let mut search = Search {
                filters: &filters,
                levels: topic.levels().collect(),
                text: String::new(),
                probes: 0,
            };
            let found = search.matches_below(0);
            assert!(search.probes <= PROBES_MAX + 1, "{} probes", search.probes);
            assert_eq!(found, (levels == 5 && search.probes <= PROBES_MAX).then_some(false));
        }
    }
}
