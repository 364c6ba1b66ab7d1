//! The topic prefix of a role: its clients use short names for the topics below it, and know no others.

use std::fmt;

use super::NoTopicPrefix;

/// The beginning of all topics that clients with a role use. `%u` in it stands for the user name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicPrefix(Box<str>);

/// The mark for the user name.
const USER: &str = "%u";

impl TopicPrefix {
    /// Maximum length in bytes, also with the user name. Each name that a client sends becomes longer by this.
    pub const BYTES_MAX: usize = 256;

    /// The prefix of a text, such as `tenants/%u/`.
    ///
    /// # Errors
    /// The text is no beginning of topic names.
    pub fn new(text: &str) -> Result<Self, PrefixError> {
        if !text.ends_with('/') {
            return Err(PrefixError::Slash);
        }
        if text.contains("%c") {
            return Err(PrefixError::ClientId);
        }
        let is_beginning = !text.starts_with('$') && !text.contains(['+', '#', '\0']);
        (is_beginning && text.len() <= Self::BYTES_MAX).then(|| Self(text.into())).ok_or(PrefixError::Topic)
    }

    /// The prefix of a user.
    ///
    /// # Errors
    /// The user name fits in no topic as a part of one level, or there is none, or the prefix would be too long.
    pub fn of_user(&self, user: Option<&str>) -> Result<Box<str>, NoTopicPrefix> {
        if !self.0.contains(USER) {
            return Ok(self.0.clone());
        }
        let user = user.filter(|user| !user.is_empty()).ok_or(NoTopicPrefix::Anonymous)?;
        if user.starts_with('$') || user.contains(['/', '+', '#', '\0']) {
            return Err(NoTopicPrefix::Name);
        }
        if user.len() > Self::BYTES_MAX {
            return Err(NoTopicPrefix::TooLong);
        }
        let prefix = self.0.replace(USER, user);
        if prefix.len() <= Self::BYTES_MAX { Ok(prefix.into()) } else { Err(NoTopicPrefix::TooLong) }
    }
}

/// The reason why a text is no topic prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrefixError {
    /// It does not end with a slash.
    Slash,
    /// It has `%c`. Each client chooses its identifier itself.
    ClientId,
    /// It begins with `$`, or has wildcards, or is too long.
    Topic,
}

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slash => f.write_str("does not end with a slash"),
            Self::ClientId => f.write_str("has `%c`: each client chooses its identifier itself"),
            Self::Topic => {
                let most = TopicPrefix::BYTES_MAX;
                write!(f, "begins with `$`, or has wildcards, or more than {most} bytes")
            }
        }
    }
}

impl std::error::Error for PrefixError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_the_beginning_of_topics() {
        for (text, why) in [
            ("", PrefixError::Slash),
            ("tenants", PrefixError::Slash),
            ("$SYS/", PrefixError::Topic),
            ("$share/g/", PrefixError::Topic),
            ("a/+/", PrefixError::Topic),
            ("#/", PrefixError::Topic),
            ("a\0/", PrefixError::Topic),
            ("%c/", PrefixError::ClientId),
            (&format!("{}/", "a".repeat(256)), PrefixError::Topic),
        ] {
            assert_eq!(TopicPrefix::new(text), Err(why), "{text}");
        }
        for text in ["/", "%u/", "a/%u/b/", "a-%u/", &format!("{}/", "a".repeat(255))] {
            assert!(TopicPrefix::new(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_name_is_a_part_of_one_level_or_has_no_prefix() {
        let of = |text, user| TopicPrefix::new(text).expect("a prefix").of_user(user);
        assert_eq!(of("tenants/%u/", Some("ann")).as_deref(), Ok("tenants/ann/"));
        assert_eq!(of("%u/%u-x/", Some("%u")).as_deref(), Ok("%u/%u-x/"));
        for user in [None, Some(""), Some("a/b"), Some("+"), Some("a#"), Some("$SYS"), Some("a\0b")] {
            let is_nobody = user.is_none_or(str::is_empty);
            let why = if is_nobody { NoTopicPrefix::Anonymous } else { NoTopicPrefix::Name };
            assert_eq!(of("tenants/%u/", user), Err(why), "{user:?}");
            assert_eq!(of("all/", user).as_deref(), Ok("all/"), "the name is not in it");
        }
        let name = "n".repeat(255);
        assert_eq!(of("%u/", Some(&name)).map(|prefix| prefix.len()), Ok(256));
        assert_eq!(of("%u/x/", Some(&name)), Err(NoTopicPrefix::TooLong));
        assert_eq!(of("%u/", Some(&"n".repeat(257))), Err(NoTopicPrefix::TooLong));
    }
}
