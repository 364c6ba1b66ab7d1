//! The form of the inputs of the targets for layers: a choice of the target, how the bytes are cut, and the bytes.

use crate::Cut;

/// An input, taken apart.
#[derive(Debug)]
pub struct Input<'a> {
    /// The meaning of this byte is the target's.
    pub choice: u8,
    /// The cut to compare with none.
    pub cut: Cut<'a>,
    /// Bytes of the peer.
    pub bytes: &'a [u8],
}

const BUFFERS: [usize; 4] = [1, 7, 1_000, 1 << 16];
const ROOMS: [usize; 4] = [1, 10, 1_000, usize::MAX];
const PIECES_MAX: u8 = 8;

impl<'a> Input<'a> {
    /// Takes an input apart: the choice, a byte for buffer, room and the number of pieces, their lengths, the bytes.
    pub fn of(input: &'a [u8]) -> Option<Self> {
        let [choice, sizes, rest @ ..] = input else { return None };
        let count = usize::from(sizes / 16 % PIECES_MAX);
        let (pieces, bytes) = rest.split_at_checked(count)?;
        let cut = Cut {
            pieces,
            buffer_bytes: BUFFERS[usize::from(sizes % 4)],
            room_bytes: ROOMS[usize::from(sizes / 4 % 4)],
        };
        Some(Self { choice: *choice, cut, bytes })
    }

    /// An input that [`of`](Self::of) takes apart: pieces of this many bytes, in small buffers.
    pub fn make(choice: u8, piece_bytes: u8, bytes: &[u8]) -> Vec<u8> {
        [&[choice, 0x15, piece_bytes][..], bytes].concat()
    }
}
