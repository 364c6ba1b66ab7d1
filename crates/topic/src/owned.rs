use alloc::boxed::Box;
use core::borrow::Borrow;
use core::fmt;

use crate::{TopicFilter, TopicName};

/// A [`TopicName`] that owns its text, and can outlive the packet that contained the name.
///
/// ```
/// # use pondhawk_topic::{TopicNameBuf, topic};
/// let stored = TopicNameBuf::from(topic!("a/b"));
/// assert_eq!(stored.name(), topic!("a/b"));
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicNameBuf(Box<str>);

/// A [`TopicFilter`] that owns its text, and can outlive the packet that contained the filter.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicFilterBuf(Box<str>);

impl TopicNameBuf {
    /// Returns the name, borrowed from this value.
    pub fn name(&self) -> TopicName<'_> {
        TopicName::trusted(&self.0)
    }
}

impl TopicFilterBuf {
    /// Returns the filter, borrowed from this value.
    pub fn filter(&self) -> TopicFilter<'_> {
        TopicFilter::trusted(&self.0)
    }
}

macro_rules! common {
    ($owned:ident, $borrowed:ident) => {
        impl From<$borrowed<'_>> for $owned {
            fn from(borrowed: $borrowed<'_>) -> Self {
                Self(borrowed.as_str().into())
            }
        }

        /// Allows maps with owned keys to be searched by a borrowed text.
        impl Borrow<str> for $owned {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $owned {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $owned {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

common!(TopicNameBuf, TopicName);
common!(TopicFilterBuf, TopicFilter);
