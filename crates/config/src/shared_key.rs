//! What messages of a shared subscription have in common that keep their order.

use std::fmt;
use std::str::FromStr;

/// A key, as the file names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SharedKey {
    /// The client that has published them.
    Publisher,
    /// The value of the User Property of this name.
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
