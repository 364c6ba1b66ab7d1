//! A stream whose output a trace sees.

use std::io::{self, IoSlice};

use stream::{Received, Stream};

/// A stream that copies what it has written.
pub(crate) struct Copying<'a, S> {
    pub(crate) stream: &'a mut S,
    pub(crate) copy: Vec<u8>,
}

impl<S: Stream> Stream for Copying<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        self.stream.read(buffer)
    }

    fn has_arrived(&mut self) -> bool {
        self.stream.has_arrived()
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let taken = self.stream.write(pieces)?;
        let mut left = taken;
        for piece in pieces {
            let bytes = &piece[..piece.len().min(left)];
            self.copy.extend_from_slice(bytes);
            left -= bytes.len();
        }
        Ok(taken)
    }

    fn shut_down_write(&mut self) {
        self.stream.shut_down_write();
    }
}
