#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod answer;
mod ber;
pub mod code;
mod dn;
mod entry;
mod error;
mod filter;
mod parse;
mod request;

pub use answer::{Answer, Message, Outcome, decode};
pub use dn::DnTemplate;
pub use entry::{Attribute, Entry};
pub use error::{DnError, DnFault, FilterError, FilterFault, Malformed};
pub use filter::Filter;
pub use request::{Search, bind, search, start_tls, unbind};

/// Maximum length of a message of a server, in bytes, with its tag and its length.
///
/// An entry with one attribute has a few hundred bytes. A group attribute with a thousand groups still fits.
pub const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// Maximum length of the text of a filter, in bytes.
pub const FILTER_BYTES_MAX: usize = 4 << 10;

/// Maximum nesting of a filter. A filter without `&`, `|` and `!` has a nesting of 1.
pub const NESTING_MAX: usize = 16;

/// Maximum length of the text of a [`DnTemplate`], in bytes.
pub const DN_BYTES_MAX: usize = 4 << 10;

/// Maximum number of times that `{user}` occurs in a [`Filter`] or in a [`DnTemplate`].
///
/// The limit bounds a request: an MQTT user name has at most 65,535 bytes.
pub const USERS_MAX: usize = 16;

/// Maximum length of [`Outcome::diagnostic`], in characters.
pub const DIAGNOSTIC_CHARS_MAX: usize = 200;

/// The text that stands for the user name in a filter or in the name of an entry.
pub(crate) const USER: &str = "{user}";
