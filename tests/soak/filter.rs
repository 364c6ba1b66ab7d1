//! A simple implementation of filter matching (MQTT 5.0 section 4.7).

/// Whether the filter is shared by a group.
pub(crate) fn is_shared(filter: &str) -> bool {
    filter.starts_with("$share/")
}

/// The filter after the name of a group.
pub(crate) fn plain(filter: &str) -> &str {
    let rest = filter.strip_prefix("$share/").and_then(|rest| rest.split_once('/'));
    rest.map_or(filter, |(_, plain)| plain)
}

/// Whether a filter without a group matches a topic that does not begin with `$`.
pub(crate) fn matches(filter: &str, topic: &str) -> bool {
    let mut levels = topic.split('/');
    for wanted in filter.split('/') {
        if wanted == "#" {
            return true;
        }
        match levels.next() {
            Some(level) if wanted == "+" || wanted == level => {}
            _ => return false,
        }
    }
    levels.next().is_none()
}

/// The positions of wildcards in a filter; `None` without wildcards. Filters with equal positions have one shape.
pub(crate) fn shape(filter: &str) -> Option<String> {
    let level = |level| match level {
        "+" | "#" => level,
        _ => "-",
    };
    let shape: Vec<&str> = filter.split('/').map(level).collect();
    shape.iter().any(|level| *level != "-").then(|| shape.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_match_as_the_standard_says() {
        assert!(matches("#", "a/b") && matches("a/#", "a") && matches("a/+", "a/b") && matches("a/b", "a/b"));
        assert!(!matches("a/+", "a") && !matches("a", "a/b") && !matches("+", "a/b") && !matches("a/b", "a"));
        assert_eq!((plain("$share/g/a/#"), plain("a/#")), ("a/#", "a/#"));
        assert_eq!(shape("a/+/b/#").as_deref(), Some("-/+/-/#"));
        assert_eq!(shape("a/b"), None);
    }
}
