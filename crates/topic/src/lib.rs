#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod error;
mod filter;
mod name;
mod owned;
mod scan;

pub use error::{FilterError, TopicError};
pub use filter::{Shared, TopicFilter};
pub use name::{Levels, TopicName};
pub use owned::{TopicFilterBuf, TopicNameBuf};

/// Maximum length of a topic name or a topic filter in bytes \[MQTT-4.7.3-3\].
pub const MAX_BYTES: usize = 65_535;

/// Makes a [`TopicName`] of a literal, which is checked at compile time.
///
/// ```
/// let topic = pondhawk_topic::topic!("house/kitchen/light");
/// assert_eq!(topic.levels().count(), 3);
/// ```
/// A name must not contain wildcards:
/// ```compile_fail
/// pondhawk_topic::topic!("house/+/light");
/// ```
/// A name must not be empty:
/// ```compile_fail
/// pondhawk_topic::topic!("");
/// ```
#[macro_export]
macro_rules! topic {
    ($text:expr) => {{
        const NAME: $crate::TopicName<'static> = match $crate::TopicName::new($text) {
            Ok(name) => name,
            Err(error) => panic!("{}", error.as_str()),
        };
        NAME
    }};
}

/// Makes a [`TopicFilter`] of a literal, which is checked at compile time.
///
/// ```
/// let filter = pondhawk_topic::filter!("house/+/#");
/// assert!(filter.matches(pondhawk_topic::topic!("house/kitchen/light")));
/// ```
/// A `#` must be alone on the last level:
/// ```compile_fail
/// pondhawk_topic::filter!("house/#/light");
/// ```
/// A `+` must be alone on its level:
/// ```compile_fail
/// pondhawk_topic::filter!("house/kit+");
/// ```
/// A shared filter must have a share name and a filter:
/// ```compile_fail
/// pondhawk_topic::filter!("$share/cooks");
/// ```
#[macro_export]
macro_rules! filter {
    ($text:expr) => {{
        const FILTER: $crate::TopicFilter<'static> = match $crate::TopicFilter::new($text) {
            Ok(filter) => filter,
            Err(error) => panic!("{}", error.as_str()),
        };
        FILTER
    }};
}
