//! Bytes between the socket and the packets.

/// So much memory of an empty buffer is kept for what comes next.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Bytes that have come from the socket.
#[derive(Default)]
pub(crate) struct Input {
    bytes: Vec<u8>,
    /// So many of them have been handled.
    handled: usize,
}

/// Bytes on their way to the socket.
#[derive(Default)]
pub(crate) struct Output {
    pub(crate) bytes: Vec<u8>,
    written: usize,
    /// So many have been shown to whoever traces packets.
    traced: usize,
}

impl Input {
    /// Where more is read to. What is left is moved to the front when it is the smaller part, so that streams that are
    /// full, and give room for a message at a time, do not have all of it moved for each.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        if self.handled >= self.bytes.len() - self.handled {
            self.bytes.drain(..self.handled);
            self.handled = 0;
            release(&mut self.bytes);
        }
        &mut self.bytes
    }

    /// What has not been handled.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes[self.handled..]
    }

    /// So much of it has been.
    pub(crate) fn advance(&mut self, count: usize) {
        self.handled += count;
    }
}

impl Output {
    /// What has not been written.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    /// So much of it has been. Its place is used again when it is no less than what is left, so that bytes are moved
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

    /// What nobody has been shown.
    pub(crate) fn untraced(&self) -> &[u8] {
        &self.bytes[self.traced..]
    }

    /// So much of it has been.
    pub(crate) fn trace(&mut self, count: usize) {
        self.traced += count;
    }
}

/// Gives back the memory of packets that were larger than most.
fn release(bytes: &mut Vec<u8>) {
    if bytes.is_empty() && bytes.capacity() > KEPT_BYTES_MAX {
        *bytes = Vec::new();
    }
}
