//! A stream of which some bytes were read already.

use std::io::{self, IoSlice};

use stream::{Received, Stream};

/// Gives back bytes that were read from the stream below, before it goes on reading.
#[derive(Debug)]
pub(crate) struct Prefixed<S> {
    prefix: Vec<u8>,
    below: S,
}

impl<S> Prefixed<S> {
    pub(crate) fn new(prefix: Vec<u8>, below: S) -> Self {
        Self { prefix, below }
    }

    pub(crate) fn below(&mut self) -> &mut S {
        &mut self.below
    }
}

impl<S: Stream> Stream for Prefixed<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        if self.prefix.is_empty() {
            return self.below.read(buffer);
        }
        let bytes = buffer.len().min(self.prefix.len());
        buffer[..bytes].copy_from_slice(&self.prefix[..bytes]);
        self.prefix.drain(..bytes);
        if self.prefix.is_empty() {
            self.prefix = Vec::new();
        }
        Ok(Received { bytes, is_drained: false })
    }

    fn has_arrived(&mut self) -> bool {
        !self.prefix.is_empty() || self.below.has_arrived()
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.below.write(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.below.flush()
    }

    fn wants_write(&self) -> bool {
        self.below.wants_write()
    }

    fn held_bytes(&self) -> usize {
        self.prefix.capacity() + self.below.held_bytes()
    }

    fn shut_down_write(&mut self) {
        self.below.shut_down_write();
    }
}
