//! Compares matching with a second implementation of section 4.7, which ignores cost.

use pondhawk_topic::{FilterError, TopicFilter, TopicName};
use proptest::prelude::*;

/// Whether `filter` matches `name`, by recursion over the levels.
fn naive(filter: &[&str], name: &[&str]) -> bool {
    match (filter.split_first(), name.split_first()) {
        (Some((&"#", [])), _) => true,
        (Some((&wanted, filter)), Some((&level, name))) => {
            (wanted == "+" || wanted == level) && naive(filter, name)
        }
        (None, None) => true,
        _ => false,
    }
}

fn levels(text: &str) -> Vec<&str> {
    text.split('/').collect()
}

/// Names of few different words, so that many filters match.
fn name() -> impl Strategy<Value = String> {
    prop::collection::vec(prop_oneof!["[ab]?", Just("$x".to_owned())], 1..6)
        .prop_map(|levels| levels.join("/"))
        .prop_filter("not empty", |name| !name.is_empty())
}

fn filter() -> impl Strategy<Value = String> {
    let level = prop_oneof!["[ab]?", Just("+".to_owned()), Just("$x".to_owned())];
    (prop::collection::vec(level, 1..6), any::<bool>())
        .prop_map(|(levels, multi)| levels.join("/") + if multi { "/#" } else { "" })
        .prop_filter("not empty", |filter| !filter.is_empty())
}

/// Whether wildcards and share name are at permitted places.
fn is_valid(text: &str) -> bool {
    let plain = match text.strip_prefix("$share/") {
        None => text,
        Some(shared) => match shared.split_once('/') {
            Some((group, _)) if group.is_empty() || group.contains(['+', '#']) => return false,
            Some((_, filter)) if filter.is_empty() || filter.starts_with("$share/") => return false,
            Some((_, filter)) => filter,
            None => return false,
        },
    };
    let levels = levels(plain);
    let last = levels.len() - 1;
    !text.is_empty()
        && !text.contains('\0')
        && levels.iter().enumerate().all(|(at, &level)| match level {
            "+" => true,
            "#" => at == last,
            level => !level.contains(['+', '#']),
        })
}

proptest! {
    /// [MQTT-3.3.2-3, MQTT-4.7.2-1, 3.1.1 MQTT-3.3.2-3, 3.1.1 MQTT-4.7.2-1]
    #[test]
    fn a_filter_matches_what_the_standard_says(filter in filter(), name in name()) {
        let is_hidden = name.starts_with('$') && filter.starts_with(['+', '#']);
        let wanted = !is_hidden && naive(&levels(&filter), &levels(&name));
        let name = TopicName::new(&name).unwrap();
        prop_assert_eq!(TopicFilter::new(&filter).unwrap().matches(name), wanted);
        let shared = format!("$share/group/{filter}");
        prop_assert_eq!(TopicFilter::new(&shared).unwrap().matches(name), wanted);
    }

    /// [MQTT-4.7.3-4, 3.1.1 MQTT-4.7.3-4]
    #[test]
    fn a_name_is_a_filter_that_matches_it_alone(name in name(), other in name()) {
        let (name, other) = (TopicName::new(&name).unwrap(), TopicName::new(&other).unwrap());
        let filter = TopicFilter::try_from(name).unwrap();
        prop_assert!(filter.matches(name));
        prop_assert_eq!(filter.matches(other), name == other);
    }

    /// [MQTT-4.7.1-1, MQTT-4.7.1-2, MQTT-4.7.3-1, MQTT-4.7.3-2, MQTT-4.8.2-1, MQTT-4.8.2-2,
    /// 3.1.1 MQTT-4.7.1-2, 3.1.1 MQTT-4.7.1-3, 3.1.1 MQTT-4.7.3-1, 3.1.1 MQTT-4.7.3-2]
    #[test]
    fn a_text_is_a_filter_if_the_rules_say_so(text in "(\\$share/?)?[a+#/\\x00]{0,8}") {
        let filter = TopicFilter::new(&text);
        prop_assert_eq!(filter.is_ok(), is_valid(&text), "{:?}", filter);
        if let Ok(filter) = filter {
            prop_assert_eq!(filter.as_str(), &text);
            prop_assert_eq!(filter.level_count(), filter.levels().count());
            prop_assert_eq!(filter.levels().next(), Some(filter.first_level()));
        }
        let is_malformed_share = filter == Err(FilterError::MalformedShare);
        prop_assert!(!is_malformed_share || text.starts_with("$share/"));
    }

    /// [MQTT-3.3.2-2, MQTT-4.7.0-1, MQTT-4.7.3-1, MQTT-4.7.3-2, 3.1.1 MQTT-3.3.2-2, 3.1.1 MQTT-4.7.1-1,
    /// 3.1.1 MQTT-4.7.3-1, 3.1.1 MQTT-4.7.3-2]
    #[test]
    fn a_text_is_a_name_if_it_is_one(text in "[a+#/\\x00ü]{0,20}") {
        let is_name = !text.is_empty() && !text.contains(['+', '#', '\0']);
        prop_assert_eq!(TopicName::new(&text).is_ok(), is_name);
    }
}
