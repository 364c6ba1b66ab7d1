#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod pcap;
mod reading;

pub use pcap::{Conversation, SEGMENT_BYTES_MAX, header, record};
pub use reading::{Reading, Told};
