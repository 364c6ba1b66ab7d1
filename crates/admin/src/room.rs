//! The memory for large responses, which clients may take slowly.

use std::sync::Arc;

use hyper::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A response of at most this size is not counted: a connection has one at a time.
const SMALL_BYTES: usize = 64 * 1024;
/// Maximum size of all larger responses together that are not written yet.
const LARGE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Larger responses are counted in these units.
const UNIT_BYTES: usize = 1024;

/// The room for larger responses.
#[derive(Debug)]
pub(crate) struct Room(Arc<Semaphore>);

/// A response with its part of the room, which is free when the last of it is written.
struct Roomy {
    bytes: Bytes,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Roomy {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LARGE_BYTES_MAX / UNIT_BYTES)))
    }
}

impl Room {
    /// A response with its part of the room, or `None` if others have too much of it. A response that is larger than the whole
    /// room waits for nobody else, and takes all of it.
    pub(crate) fn take(&self, bytes: Bytes) -> Option<Bytes> {
        if bytes.len() <= SMALL_BYTES {
            return Some(bytes);
        }
        let units = bytes.len().div_ceil(UNIT_BYTES).min(LARGE_BYTES_MAX / UNIT_BYTES);
        let units = u32::try_from(units).expect("the room has few units");
        let room = Arc::clone(&self.0).try_acquire_many_owned(units).ok()?;
        Some(Bytes::from_owner(Roomy { bytes, _room: room }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_responses_share_the_room_until_they_are_written() {
        let room = Room::default();
        let of = |bytes: usize| room.take(vec![7; bytes].into());
        let half = of(LARGE_BYTES_MAX / 2).expect("the room is free");
        assert_eq!(half.len(), LARGE_BYTES_MAX / 2);
        let part = half.slice(1..2);
        drop(half);
        assert!(of(LARGE_BYTES_MAX).is_none(), "a part of it is not written yet");
        assert!(of(SMALL_BYTES).is_some());
        drop(part);
        assert!(of(3 * LARGE_BYTES_MAX).is_some());
    }
}
