//! Byte buffers between the socket and the packets.

/// Maximum capacity that an empty buffer keeps for later bytes.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Bytes received from the socket.
#[derive(Default)]
pub(crate) struct Input {
    bytes: Vec<u8>,
    /// Number of bytes at the front that have been handled.
    handled: usize,
}

/// Bytes to be sent to the socket.
#[derive(Default)]
pub(crate) struct Output {
    pub(crate) bytes: Vec<u8>,
    written: usize,
    /// Number of bytes at the front that the packet trace has seen.
    traced: usize,
}

impl Input {
    /// Buffer to which received bytes are appended.
    ///
    /// Unhandled bytes move to the front only when they are at most half of the buffer. Otherwise a client with
    /// full streams, which frees room for one message at a time, would move the whole buffer for each message.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        if self.handled >= self.bytes.len() - self.handled {
            self.bytes.drain(..self.handled);
            self.handled = 0;
            release(&mut self.bytes);
        }
        &mut self.bytes
    }

    /// Bytes that have not been handled.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes[self.handled..]
    }

    /// Marks the next `count` bytes as handled.
    pub(crate) fn advance(&mut self, count: usize) {
        self.handled += count;
    }
}

impl Output {
    /// Bytes that have not been written.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    /// Marks the next `count` bytes as written.
    ///
    /// The space of written bytes is reused once it is at least as large as the rest. Bytes are therefore moved
    /// rarely, and a connection that always has something to write does not grow.
    pub(crate) fn advance(&mut self, count: usize) {
        self.written += count;
        if self.written >= self.rest().len() {
            self.bytes.drain(..self.written);
            self.traced = self.traced.saturating_sub(self.written);
            self.written = 0;
            release(&mut self.bytes);
        }
    }

    /// Bytes that the packet trace has not seen.
    pub(crate) fn untraced(&self) -> &[u8] {
        &self.bytes[self.traced..]
    }

    /// Marks the next `count` bytes as traced.
    pub(crate) fn trace(&mut self, count: usize) {
        self.traced += count;
    }
}

/// Frees the memory of an empty buffer that grew beyond [`KEPT_BYTES_MAX`].
fn release(bytes: &mut Vec<u8>) {
    if bytes.is_empty() && bytes.capacity() > KEPT_BYTES_MAX {
        *bytes = Vec::new();
    }
}
