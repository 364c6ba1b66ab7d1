use core::fmt;

use crate::scan::scan;
use crate::{MAX_BYTES, TopicError};

/// A topic name (section 4.7): the topic to which a message is published.
///
/// A name is not empty, has at most [`MAX_BYTES`] bytes, and contains neither wildcards nor U+0000. Names are not
/// normalised: two names are equal if their bytes are equal \[MQTT-4.7.3-4\].
///
/// ```
/// # use pondhawk_topic::{TopicError, TopicName};
/// let name = TopicName::new("house/kitchen/light")?;
/// assert_eq!(name.first_level(), "house");
/// assert_eq!(TopicName::new("house/#"), Err(TopicError::Wildcard));
/// # Ok::<(), TopicError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName<'a>(&'a str);

impl<'a> TopicName<'a> {
    /// Checks `text`, at compile time if the name is a constant.
    ///
    /// # Errors
    /// The first rule of section 4.7 that the text breaks.
    pub const fn new(text: &'a str) -> Result<Self, TopicError> {
        if text.is_empty() {
            return Err(TopicError::Empty);
        }
        if text.len() > MAX_BYTES {
            return Err(TopicError::TooLong);
        }
        let found = scan(text.as_bytes());
        if found.nul {
            return Err(TopicError::Nul);
        }
        if found.wildcard {
            return Err(TopicError::Wildcard);
        }
        Ok(Self(text))
    }

    /// Makes a name of a text that has been checked before.
    pub(crate) const fn trusted(text: &'a str) -> Self {
        Self(text)
    }

    /// The whole name as a string.
    pub const fn as_str(self) -> &'a str {
        self.0
    }

    /// Returns the levels in order: at least one, and each may be empty.
    pub fn levels(self) -> Levels<'a> {
        Levels::new(self.0)
    }

    /// The level before the first `/`.
    pub fn first_level(self) -> &'a str {
        first_level(self.0)
    }

    /// Number of levels, from 1 to 65,536.
    pub fn level_count(self) -> usize {
        level_count(self.0)
    }

    /// Whether the name begins with `$`. Such names belong to the server, and filters that begin with a wildcard do
    /// not match them \[MQTT-4.7.2-1\].
    pub const fn is_reserved(self) -> bool {
        // A name is never empty.
        self.0.as_bytes()[0] == b'$'
    }
}

/// Iterator over the levels of a name or filter. See [`TopicName::levels`] and
/// [`TopicFilter::levels`](crate::TopicFilter::levels).
#[derive(Clone, Debug)]
pub struct Levels<'a> {
    rest: Option<&'a str>,
}

impl<'a> Levels<'a> {
    pub(crate) const fn new(text: &'a str) -> Self {
        Self { rest: Some(text) }
    }
}

impl<'a> Iterator for Levels<'a> {
    type Item = &'a str;

    #[inline]
    fn next(&mut self) -> Option<&'a str> {
        let rest = self.rest?;
        match slash(rest) {
            Some(at) => {
                self.rest = Some(&rest[at + 1..]);
                Some(&rest[..at])
            }
            None => self.rest.take(),
        }
    }
}

impl core::iter::FusedIterator for Levels<'_> {}

impl fmt::Display for TopicName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

impl fmt::Debug for TopicName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0, f)
    }
}

impl AsRef<str> for TopicName<'_> {
    fn as_ref(&self) -> &str {
        self.0
    }
}

impl<'a> TryFrom<&'a str> for TopicName<'a> {
    type Error = TopicError;

    fn try_from(text: &'a str) -> Result<Self, TopicError> {
        Self::new(text)
    }
}

pub(crate) fn first_level(text: &str) -> &str {
    slash(text).map_or(text, |at| &text[..at])
}

pub(crate) fn level_count(text: &str) -> usize {
    1 + text.bytes().filter(|&byte| byte == b'/').count()
}

/// Index of the first `/`. Levels are short, and a plain loop is faster than a search that is made for long texts.
#[inline]
fn slash(text: &str) -> Option<usize> {
    text.as_bytes().iter().position(|&byte| byte == b'/')
}

#[cfg(test)]
mod tests {
    use alloc::string::String;
    use alloc::vec::Vec;

    use super::*;

    /// [MQTT-3.3.2-2, MQTT-4.7.0-1, MQTT-4.7.3-1, MQTT-4.7.3-2, MQTT-4.7.3-3, 3.1.1 MQTT-3.3.2-2,
    /// 3.1.1 MQTT-4.7.1-1, 3.1.1 MQTT-4.7.3-1, 3.1.1 MQTT-4.7.3-2, 3.1.1 MQTT-4.7.3-3]
    #[test]
    fn a_name_is_what_section_4_7_says() {
        for good in
            ["a", "/", "//", "a/", "/a", "a b/ü/😀", "$SYS/x", "$", "$share/g/t", "\u{feff}a", "\r\n\u{1}"]
        {
            assert_eq!(TopicName::new(good).map(TopicName::as_str), Ok(good));
        }
        assert_eq!(TopicName::new(""), Err(TopicError::Empty));
        assert_eq!(TopicName::new("a\0"), Err(TopicError::Nul));
        for bad in ["+", "#", "a/+", "a/#", "a+b/cccccccccc", "aaaaaaaaaaaa#b"] {
            assert_eq!(TopicName::new(bad), Err(TopicError::Wildcard));
        }
        assert!(TopicName::new(&"/".repeat(MAX_BYTES)).is_ok());
        assert_eq!(TopicName::new(&"/".repeat(MAX_BYTES + 1)), Err(TopicError::TooLong));
    }

    #[test]
    fn levels_may_be_empty_and_are_all_there() {
        for text in ["a", "/", "//", "a/b", "a//b/", "/ü/"] {
            let name = TopicName::new(text).unwrap();
            let levels: Vec<&str> = name.levels().collect();
            assert_eq!(levels, text.split('/').collect::<Vec<_>>());
            assert_eq!(name.level_count(), levels.len());
            assert_eq!(name.first_level(), levels[0]);
        }
    }

    /// [MQTT-4.7.3-4, 3.1.1 MQTT-4.7.3-4]
    #[test]
    fn names_are_compared_byte_for_byte() {
        let composed = TopicName::new("\u{e9}").unwrap();
        let decomposed = String::from("e\u{301}");
        assert_ne!(composed, TopicName::new(&decomposed).unwrap());
        assert_ne!(crate::topic!("a"), crate::topic!("A"));
        assert_ne!(crate::topic!("a"), crate::topic!("/a"));
    }
}
