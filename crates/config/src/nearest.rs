//! Suggests the key that a user probably meant.

use crate::keys;

/// Returns a sentence that names the most similar key: a key of the same table if there is one, otherwise of
/// another.
pub(crate) fn suggestion(wrong: &str, prefix: &str, known: &[&str]) -> Option<String> {
    if let Some(near) = nearest(wrong, known.iter().copied()) {
        return Some(format!("did you mean `{near}`?"));
    }
    let tables = keys::tables();
    let elsewhere =
        tables.iter().flat_map(|table| table.keys.iter().map(move |key| (table.header, key.name)));
    let (header, name) = elsewhere
        .filter(|(header, _)| header.trim_matches(['[', ']']) != prefix.trim_end_matches('.'))
        .filter_map(|entry| Some((likeness(wrong, entry.1)?, entry)))
        .max_by(|left, right| left.0.total_cmp(&right.0))?
        .1;
    Some(match header {
        "" => format!("did you mean `{name}` at the top of the file?"),
        header => format!("did you mean `{name}` in {header}?"),
    })
}

/// Returns the most similar of some names, if there is one that is similar.
pub(crate) fn nearest<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let scored = known.filter_map(|name| Some((likeness(wrong, name)?, name)));
    scored.max_by(|left, right| left.0.total_cmp(&right.0)).map(|(_, name)| name)
}

/// Similarity of two keys, from 0 to 1; `None` if a suggestion would be a guess.
///
/// A misspelled key has a small edit distance. Another name for the same thing shares words, as `max_packet_size`
/// and `packet_bytes` do.
fn likeness(wrong: &str, name: &str) -> Option<f64> {
    let joined = |key| words(key).collect::<Vec<_>>().join("_");
    let spelling = strsim::normalized_damerau_levenshtein(&joined(wrong), &joined(name));
    let shared = words(wrong).filter(|word| words(name).any(|other| stem(other) == stem(word))).count();
    let all = words(wrong).count() + words(name).count();
    #[expect(clippy::cast_precision_loss, reason = "a key has a handful of words")]
    let vocabulary = 2.0 * shared as f64 / all as f64;
    (spelling >= 0.65 || vocabulary >= 0.4).then_some(spelling.max(vocabulary))
}

/// The significant words of a key. "max" and "maximum" could be in front of any other word.
fn words(key: &str) -> impl Iterator<Item = &str> {
    key.split(['_', '-', '.'])
        .filter(|word| !word.is_empty() && !["max", "maximum", "limit", "size"].contains(word))
}

fn stem(word: &str) -> &str {
    word.strip_suffix('s').unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspellings_and_other_names_lead_to_the_key() {
        let tables = keys::tables();
        let limits = tables.iter().find(|table| table.header == "[limits]").unwrap();
        let known: Vec<&str> = limits.keys.iter().map(|key| key.name).collect();
        for (wrong, meant) in [
            ("packet_byte", "packet_bytes"),
            ("topic_level", "topic_levels"),
            ("max_connections", "connections"),
            ("max_packet_size", "packet_bytes"),
            ("max_keepalive", "keep_alive"),
            ("conect_timeout", "connect_timeout"),
        ] {
            assert_eq!(
                suggestion(wrong, "limits.", &known),
                Some(format!("did you mean `{meant}`?")),
                "{wrong}"
            );
        }
        assert_eq!(suggestion("zebra", "limits.", &known), None);
    }

    #[test]
    fn a_key_of_another_table_is_named_with_its_table() {
        let text = suggestion("topic_levels", "", &["shards"]);
        assert_eq!(text.as_deref(), Some("did you mean `topic_levels` in [limits]?"));
        let text = suggestion("shards", "limits.", &["packet_bytes"]);
        assert_eq!(text.as_deref(), Some("did you mean `shards` at the top of the file?"));
    }
}
