//! The key of messages whose order a shared subscription preserves.

use std::fmt;
use std::str::FromStr;

/// The choice of the key, as the file names it. Messages with equal keys keep their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SharedKey {
    /// The client that published the message.
    Publisher,
    /// The value of the User Property with this name.
    Property(String),
}

const PUBLISHER: &str = "publisher";
const PROPERTY: &str = "property:";

impl FromStr for SharedKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix(PROPERTY) {
            Some("") => Err("names no property".to_owned()),
            Some(name) => Ok(Self::Property(name.to_owned())),
            None if text == PUBLISHER => Ok(Self::Publisher),
            None => Err(format!("cannot be `{text}`")),
        }
    }
}

impl fmt::Display for SharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Publisher => f.write_str(PUBLISHER),
            Self::Property(name) => write!(f, "{PROPERTY}{name}"),
        }
    }
}
