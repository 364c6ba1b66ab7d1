//! Client identifiers of publishers that were read lately, each in memory once.

use std::sync::Arc;

use wire::Utf8;

use super::error::Fault;

/// A power of two. Of more publishers than this some are in memory more than once.
const SLOTS: usize = 1_024;

/// Publishers by hash: the latest one has the place.
pub(super) struct Publishers(Box<[Option<Arc<str>>]>);

impl Default for Publishers {
    fn default() -> Self {
        Self(vec![None; SLOTS].into_boxed_slice())
    }
}

impl Publishers {
    /// The publisher with this identifier.
    pub(super) fn find(&mut self, bytes: &[u8]) -> Result<Arc<str>, Fault> {
        let slot = &mut self.0[hash(bytes) % SLOTS];
        match slot {
            Some(publisher) if publisher.as_bytes() == bytes => Ok(Arc::clone(publisher)),
            _ => {
                let text = std::str::from_utf8(bytes).map_err(|_| Fault::Utf8)?;
                let publisher: Arc<str> = Utf8::new(text).map_err(Fault::Text)?.as_str().into();
                Ok(Arc::clone(slot.insert(publisher)))
            }
        }
    }
}

/// Hash of the last bytes, because identifiers of many clients of one kind differ at their ends. If clients choose
/// identifiers that collide, the identifiers are merely copied.
fn hash(bytes: &[u8]) -> usize {
    let end = match bytes.last_chunk::<8>() {
        Some(end) => u64::from_le_bytes(*end),
        None => bytes.iter().fold(0, |end, byte| end << 8 | u64::from(*byte)),
    };
    // Fibonacci hashing: the high bits of the product depend on all of the factor's.
    (end.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48) as usize
}
