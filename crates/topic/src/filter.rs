use core::fmt;

use crate::name::{first_level, level_count};
use crate::scan::{next_special, scan};
use crate::{FilterError, Levels, MAX_BYTES, TopicName};

/// A topic filter (section 4.7): the part of a subscription that selects topics.
///
/// A filter consists of levels. The wildcard `+` matches any one level, and `#` as the last level matches any
/// number of levels. A filter has at most [`MAX_BYTES`] bytes, is not empty, and does not contain U+0000.
///
/// A filter that begins with `$share/` is shared (section 4.8.2), and [`shared`](Self::shared) returns its parts.
/// Methods about levels ([`levels`](Self::levels), [`matches`](Self::matches), …) use only the part after
/// `$share/{name}/`. [`as_str`](Self::as_str) returns the whole text.
///
/// ```
/// # use pondhawk_topic::{FilterError, TopicFilter, topic};
/// let filter = TopicFilter::new("house/+/light")?;
/// assert!(filter.matches(topic!("house/kitchen/light")));
/// assert!(!filter.matches(topic!("house/light")));
///
/// let shared = TopicFilter::new("$share/cooks/house/#")?.shared().unwrap();
/// assert_eq!((shared.group, shared.filter.as_str()), ("cooks", "house/#"));
/// # Ok::<(), FilterError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicFilter<'a>(&'a str);

/// The two parts of a shared filter, `$share/{group}/{filter}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shared<'a> {
    /// The share name: not empty, and without `/`, `+` and `#`.
    pub group: &'a str,
    /// The filter after the share name. This filter is never shared.
    pub filter: TopicFilter<'a>,
}

impl<'a> TopicFilter<'a> {
    /// Checks `text`, at compile time if the filter is a constant.
    ///
    /// # Errors
    /// The first rule of sections 4.7 and 4.8.2 that the text breaks. A text that begins with `$share/` must
    /// continue with a share name and a plain filter; otherwise the error is [`FilterError::MalformedShare`].
    /// `$share` alone is a plain filter.
    pub const fn new(text: &'a str) -> Result<Self, FilterError> {
        if text.is_empty() {
            return Err(FilterError::Empty);
        }
        if text.len() > MAX_BYTES {
            return Err(FilterError::TooLong);
        }
        let bytes = text.as_bytes();
        let start = match plain_start(bytes) {
            Ok(start) => start,
            Err(error) => return Err(error),
        };
        match check_levels(bytes, start) {
            Ok(()) => Ok(Self(text)),
            Err(error) => Err(error),
        }
    }

    /// Makes a filter of a text that has been checked before.
    pub(crate) const fn trusted(text: &'a str) -> Self {
        Self(text)
    }

    /// The whole filter, `$share/{name}/` included.
    pub const fn as_str(self) -> &'a str {
        self.0
    }

    /// Returns share name and filter, if this is a shared filter.
    pub fn shared(self) -> Option<Shared<'a>> {
        let (group, filter) = self.0.strip_prefix(SHARE)?.split_once('/')?;
        Some(Shared { group, filter: Self(filter) })
    }

    /// Returns the levels in order: at least one, and each may be empty.
    pub fn levels(self) -> Levels<'a> {
        Levels::new(self.plain())
    }

    /// The level before the first `/`.
    pub fn first_level(self) -> &'a str {
        first_level(self.plain())
    }

    /// Number of levels, wildcards included: from 1 to 65,536.
    pub fn level_count(self) -> usize {
        level_count(self.plain())
    }

    /// Whether the filter contains a wildcard, and can therefore match more than one name.
    pub fn has_wildcard(self) -> bool {
        scan(self.0.as_bytes()).wildcard
    }

    /// Whether the filter matches `name`. `a/#` matches `a`.
    ///
    /// A wildcard in the first level does not match names that begin with `$` \[MQTT-4.7.2-1\].
    pub fn matches(self, name: TopicName<'_>) -> bool {
        let plain = self.plain();
        if name.is_reserved() && plain.starts_with(['+', '#']) {
            return false;
        }
        let mut levels = name.levels();
        for wanted in Levels::new(plain) {
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

    /// The filter without `$share/{name}/`.
    fn plain(self) -> &'a str {
        self.shared().map_or(self.0, |shared| shared.filter.0)
    }
}

const SHARE: &str = "$share/";

/// Index at which the plain filter begins: 0, or the index after `$share/{name}/`.
const fn plain_start(bytes: &[u8]) -> Result<usize, FilterError> {
    if !begins_with_share(bytes, 0) {
        return Ok(0);
    }
    let mut at = SHARE.len();
    while at < bytes.len() && bytes[at] != b'/' {
        if bytes[at] == b'+' || bytes[at] == b'#' {
            return Err(FilterError::MalformedShare);
        }
        at += 1;
    }
    let start = at + 1;
    // Only a plain filter may follow the share name, not a second shared one.
    if at == SHARE.len() || start >= bytes.len() || begins_with_share(bytes, start) {
        return Err(FilterError::MalformedShare);
    }
    Ok(start)
}

const fn begins_with_share(bytes: &[u8], start: usize) -> bool {
    let share = SHARE.as_bytes();
    let mut at = 0;
    while at < share.len() {
        if start + at >= bytes.len() || bytes[start + at] != share[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Checks the wildcards from `start` on, and checks the whole text for U+0000.
const fn check_levels(bytes: &[u8], start: usize) -> Result<(), FilterError> {
    let mut at = next_special(bytes, 0);
    while at < bytes.len() {
        let begins_level = at == start || bytes[at.saturating_sub(1)] == b'/';
        let is_last = at + 1 == bytes.len();
        match bytes[at] {
            0 => return Err(FilterError::Nul),
            b'#' if !begins_level || !is_last => return Err(FilterError::MultiLevelWildcard),
            b'+' if !begins_level || !(is_last || bytes[at + 1] == b'/') => {
                return Err(FilterError::SingleLevelWildcard);
            }
            _ => at = next_special(bytes, at + 1),
        }
    }
    Ok(())
}

impl fmt::Display for TopicFilter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

impl fmt::Debug for TopicFilter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0, f)
    }
}

impl AsRef<str> for TopicFilter<'_> {
    fn as_ref(&self) -> &str {
        self.0
    }
}

impl<'a> TryFrom<&'a str> for TopicFilter<'a> {
    type Error = FilterError;

    fn try_from(text: &'a str) -> Result<Self, FilterError> {
        Self::new(text)
    }
}

/// Makes a filter of a name, which matches this name only. Fails for names that begin with `$share/` and are no
/// shared filter.
impl<'a> TryFrom<TopicName<'a>> for TopicFilter<'a> {
    type Error = FilterError;

    fn try_from(name: TopicName<'a>) -> Result<Self, FilterError> {
        Self::new(name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use super::*;

    fn matches(filter: &str, name: &str) -> bool {
        TopicFilter::new(filter).unwrap().matches(TopicName::new(name).unwrap())
    }

    /// [MQTT-4.7.1-1, MQTT-4.7.1-2, MQTT-4.7.3-1, MQTT-4.7.3-2, MQTT-4.7.3-3, 3.1.1 MQTT-4.7.1-2,
    /// 3.1.1 MQTT-4.7.1-3, 3.1.1 MQTT-4.7.3-1, 3.1.1 MQTT-4.7.3-2, 3.1.1 MQTT-4.7.3-3]
    #[test]
    fn wildcards_stand_where_section_4_7_1_allows() {
        for good in ["#", "+", "/", "a/#", "+/#", "a/+/b", "/+", "+/", "+/+", "//#", "$SYS/#", "ü/+"] {
            assert_eq!(TopicFilter::new(good).map(TopicFilter::as_str), Ok(good));
        }
        for bad in ["a#", "#/a", "a/#/b", "##", "#/", "/a#"] {
            assert_eq!(TopicFilter::new(bad), Err(FilterError::MultiLevelWildcard), "{bad}");
        }
        for bad in ["a+", "+a/b", "++", "a/+b", "+#"] {
            assert_eq!(TopicFilter::new(bad), Err(FilterError::SingleLevelWildcard), "{bad}");
        }
        assert_eq!(TopicFilter::new(""), Err(FilterError::Empty));
        assert_eq!(TopicFilter::new("a/\0"), Err(FilterError::Nul));
        assert_eq!(TopicFilter::new(&"a".repeat(MAX_BYTES + 1)), Err(FilterError::TooLong));
    }

    /// [MQTT-4.8.2-1, MQTT-4.8.2-2]
    #[test]
    fn a_shared_filter_has_a_share_name_and_a_plain_filter() {
        let filter = TopicFilter::new("$share/g/a/+/#").unwrap();
        let shared = filter.shared().unwrap();
        assert_eq!((shared.group, shared.filter.as_str()), ("g", "a/+/#"));
        assert_eq!((filter.level_count(), filter.first_level()), (3, "a"));
        assert!(filter.matches(crate::topic!("a/b")));
        assert!(!filter.matches(crate::topic!("$share/g/a/b")));
        assert_eq!(TopicFilter::new("$share/g//").unwrap().shared().unwrap().filter.as_str(), "/");

        for plain in ["$share", "$shared/g/t", "a/$share/g", "$SHARE/g/t"] {
            assert_eq!(TopicFilter::new(plain).unwrap().shared(), None, "{plain}");
        }
        for bad in [
            "$share/",
            "$share//t",
            "$share/g",
            "$share/g/",
            "$share/+/t",
            "$share/a#/t",
            "$share/g/$share/h/t",
        ] {
            assert_eq!(TopicFilter::new(bad), Err(FilterError::MalformedShare), "{bad}");
        }
        assert_eq!(TopicFilter::new("$share/g/a#"), Err(FilterError::MultiLevelWildcard));
        assert_eq!(TopicFilter::new("$share/g/+a"), Err(FilterError::SingleLevelWildcard));
    }

    #[test]
    fn the_examples_of_section_4_7_match() {
        for name in
            ["sport/tennis/player1", "sport/tennis/player1/ranking", "sport/tennis/player1/score/wimbledon"]
        {
            assert!(matches("sport/tennis/player1/#", name));
        }
        assert!(matches("sport/#", "sport"));
        assert!(matches("#", "a"));
        assert!(matches("sport/tennis/+", "sport/tennis/player1"));
        assert!(!matches("sport/tennis/+", "sport/tennis/player1/ranking"));
        assert!(!matches("sport/+", "sport"));
        assert!(matches("sport/+", "sport/"));
        assert!(matches("+/+", "/finance") && matches("/+", "/finance") && !matches("+", "/finance"));
        assert!(!matches("a", "a/") && !matches("a/", "a") && !matches("a/b", "a"));
    }

    /// [MQTT-4.7.2-1, 3.1.1 MQTT-4.7.2-1]
    #[test]
    fn a_leading_wildcard_does_not_match_dollar_names() {
        for filter in ["#", "+/x", "+", "+/#", "$share/g/#"] {
            for name in ["$foo/x", "$", "$/x"] {
                assert!(!matches(filter, name), "{filter} {name}");
            }
        }
        assert!(matches("$foo/#", "$foo/x"));
        assert!(matches("$foo/+", "$foo/x"));
        assert!(matches("a/#", "a/$x"));
    }

    #[test]
    fn the_deepest_filter_needs_no_stack() {
        let name: String = "/".repeat(MAX_BYTES);
        let filter = "+/".repeat(MAX_BYTES / 2);
        assert!(matches("#", &name));
        assert!(!matches(&filter, &name));
        assert!(matches(&filter, &name[..MAX_BYTES / 2]));
    }
}
