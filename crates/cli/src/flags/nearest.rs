//! Suggestions for unknown flags.

use super::{find, of};
use crate::settings::Tool;

/// Maximum number of wrong, missing or extra letters in a suggestion.
const DISTANCE_MAX: usize = 2;

/// Suggests a correction for an unknown word, if there is a likely one.
pub(crate) fn advice(tool: Tool, word: &str) -> Option<String> {
    if let Some((name, value)) = word.split_once('=')
        && find(tool, name).is_some()
    {
        return Some(format!("What a flag takes is the next word: {name} {value}"));
    }
    if !word.starts_with('-') {
        return Some(
            "Each value stands behind its flag: -t TOPIC, -m MESSAGE. One with spaces needs quotation marks."
                .to_owned(),
        );
    }
    if let Some(nearest) = nearest(tool, word) {
        return Some(format!("Did you mean {nearest}?"));
    }
    let other = Tool::ALL.into_iter().find(|other| find(*other, word).is_some())?;
    Some(format!("It is a flag of 'pondhawk {}'.", other.name()))
}

/// Finds the long flag with the smallest distance. Short flags are left out, because they differ too little.
fn nearest(tool: Tool, word: &str) -> Option<&'static str> {
    let long = of(tool).flat_map(|flag| flag.names).filter(|name| name.len() > 2 && word.len() > 3);
    let distances = long.map(|name| (distance(name, word), *name));
    let (distance, name) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= DISTANCE_MAX).then_some(name)
}

/// Levenshtein distance: the number of letters to insert, delete or change.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (number, letter) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], number + 1);
        for (at, other_letter) in other.chars().enumerate() {
            let changed = diagonal + usize::from(letter != other_letter);
            diagonal = row[at + 1];
            row[at + 1] = changed.min(diagonal + 1).min(row[at] + 1);
        }
    }
    row[other.chars().count()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_flag_is_found_and_nothing_far_away() {
        assert_eq!(distance("--qos", "--qos"), 0);
        assert_eq!(distance("--retain", "--retian"), 2);
        assert_eq!(nearest(Tool::Publish, "--retian"), Some("--retain"));
        assert_eq!(nearest(Tool::Subscribe, "--wil-topic"), Some("--will-topic"));
        assert_eq!(nearest(Tool::Publish, "--frobnicate"), None);
        assert_eq!(nearest(Tool::Publish, "-Z"), None);
    }

    #[test]
    fn advice_for_an_unknown_word_names_the_intended_flag() {
        for (word, expected) in [
            ("--qos=1", "What a flag takes is the next word: --qos 1"),
            ("-C", "It is a flag of 'pondhawk sub'."),
            ("--topc", "Did you mean --topic?"),
        ] {
            assert_eq!(advice(Tool::Publish, word).as_deref(), Some(expected));
        }
        assert!(advice(Tool::Publish, "stray").is_some_and(|advice| advice.contains("behind its flag")));
        assert_eq!(advice(Tool::Publish, "--frobnicate"), None);
    }
}
