//! Inputs of the fuzz targets in `fuzz/`: their two forms, and the bytes of a client that uses WebSocket.
//!
//! The program `seeds` of this package writes the inputs with which the fuzzers begin. The package is a part of the
//! workspace, because the fuzz targets need other compiler flags, and would need all their libraries once more without
//! these flags for one small program.
#![forbid(unsafe_code)]

mod cut;
mod input;
mod stream;
pub mod web;

pub use cut::Cut;
pub use input::Input;
pub use stream::Stream;
