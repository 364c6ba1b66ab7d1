//! The way in which the bytes of a connection arrive.

/// The way in which bytes are cut.
#[derive(Debug, Clone)]
pub struct Cut<'a> {
    /// Lengths of the pieces that arrive, repeated; 0 stands for 256. Without lengths there is one piece.
    pub pieces: &'a [u8],
    /// Length of the reader's buffer, in bytes.
    pub buffer_bytes: usize,
    /// Bytes that the peer takes before the broker has to wait for it.
    pub room_bytes: usize,
}

impl Cut<'_> {
    /// All bytes at the same time, with all the room there may be.
    pub const NONE: Cut<'static> = Cut { pieces: &[], buffer_bytes: 1 << 16, room_bytes: usize::MAX };

    /// Sends bytes in pieces.
    pub fn send(&self, mut bytes: &[u8], mut send: impl FnMut(&[u8])) {
        for length in self.pieces.iter().cycle() {
            let length = if *length == 0 { 256 } else { usize::from(*length) };
            let (piece, rest) = bytes.split_at(bytes.len().min(length));
            send(piece);
            bytes = rest;
            if bytes.is_empty() {
                return;
            }
        }
        send(bytes);
    }
}
