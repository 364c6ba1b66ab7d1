use core::fmt;

/// Error of making a topic name from a text (section 4.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TopicError {
    /// The text is empty, and a name has at least one character \[MQTT-4.7.3-1\].
    Empty,
    /// The text has more than [`MAX_BYTES`](crate::MAX_BYTES) bytes \[MQTT-4.7.3-3\].
    TooLong,
    /// The text contains U+0000 \[MQTT-4.7.3-2\].
    Nul,
    /// The text contains `+` or `#`, which only filters may contain \[MQTT-4.7.0-1\].
    Wildcard,
}

/// Error of making a topic filter from a text (section 4.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FilterError {
    /// The text is empty, and a filter has at least one character \[MQTT-4.7.3-1\].
    Empty,
    /// The text has more than [`MAX_BYTES`](crate::MAX_BYTES) bytes \[MQTT-4.7.3-3\].
    TooLong,
    /// The text contains U+0000 \[MQTT-4.7.3-2\].
    Nul,
    /// A `#` is not alone on the last level \[MQTT-4.7.1-1\].
    MultiLevelWildcard,
    /// A `+` is not alone on its level \[MQTT-4.7.1-2\].
    SingleLevelWildcard,
    /// The text begins with `$share/`, but a share name and a plain filter do not follow
    /// \[MQTT-4.8.2-1\]\[MQTT-4.8.2-2\].
    MalformedShare,
}

impl TopicError {
    /// The error as a text, for compile-time messages and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "a topic name has at least one character [MQTT-4.7.3-1]",
            Self::TooLong => "a topic name has at most 65,535 bytes [MQTT-4.7.3-3]",
            Self::Nul => "a topic name does not contain U+0000 [MQTT-4.7.3-2]",
            Self::Wildcard => "a topic name does not contain + or # [MQTT-4.7.0-1]",
        }
    }
}

impl FilterError {
    /// The error as a text, for compile-time messages and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "a topic filter has at least one character [MQTT-4.7.3-1]",
            Self::TooLong => "a topic filter has at most 65,535 bytes [MQTT-4.7.3-3]",
            Self::Nul => "a topic filter does not contain U+0000 [MQTT-4.7.3-2]",
            Self::MultiLevelWildcard => "# stands alone on the last level [MQTT-4.7.1-1]",
            Self::SingleLevelWildcard => "+ takes a whole level [MQTT-4.7.1-2]",
            Self::MalformedShare => "a shared filter is $share/{name}/{filter} [MQTT-4.8.2-1]",
        }
    }
}

impl fmt::Display for TopicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl core::error::Error for TopicError {}
impl core::error::Error for FilterError {}
