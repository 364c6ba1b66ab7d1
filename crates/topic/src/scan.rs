//! A search for the special characters of topics, eight bytes at a time, because every PUBLISH contains a name.

/// The special characters that a text contains.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub(crate) nul: bool,
    pub(crate) wildcard: bool,
}

/// Searches `bytes` for U+0000, `+` and `#`.
#[inline]
pub(crate) const fn scan(bytes: &[u8]) -> Found {
    let Some(last) = bytes.last_chunk::<8>() else { return scan_short(bytes) };
    let (mut nul, mut wildcard) = found_in(*last);
    let mut rest = bytes;
    while rest.len() > 8
        && let Some((word, tail)) = rest.split_first_chunk::<8>()
    {
        let found = found_in(*word);
        nul |= found.0;
        wildcard |= found.1;
        rest = tail;
    }
    Found { nul: nul != 0, wildcard: wildcard != 0 }
}

/// Searches fewer than eight bytes.
#[inline]
const fn scan_short(bytes: &[u8]) -> Found {
    let (mut nul, mut wildcard) = (false, false);
    let mut rest = bytes;
    while let Some((&byte, tail)) = rest.split_first() {
        nul |= byte == 0;
        wildcard |= byte == b'+' || byte == b'#';
        rest = tail;
    }
    Found { nul, wildcard }
}

/// Returns two numbers: the first is not 0 if there is U+0000, the second is not 0 if there is a wildcard.
#[inline]
const fn found_in(word: [u8; 8]) -> (u64, u64) {
    let word = u64::from_ne_bytes(word);
    (zero_bytes(word), zero_bytes((word & !WILDCARD_DIFFERENCE) ^ HASHES))
}

const LOW_BITS: u64 = u64::from_ne_bytes([0x01; 8]);
const HIGH_BITS: u64 = u64::from_ne_bytes([0x80; 8]);
const HASHES: u64 = u64::from_ne_bytes([b'#'; 8]);
/// The one bit in which `+` and `#` differ. With this bit cleared, one comparison finds both.
const WILDCARD_DIFFERENCE: u64 = u64::from_ne_bytes([b'+' ^ b'#'; 8]);

/// Returns a number other than 0 if and only if one of the eight bytes is 0.
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(LOW_BITS) & !word & HIGH_BITS
}

#[cfg(test)]
mod tests {
    use super::scan;

    #[test]
    fn every_byte_value_at_every_position_is_told_apart() {
        for len in 1..20 {
            for at in 0..len {
                for byte in 0..=u8::MAX {
                    let mut bytes = [b'a'; 20];
                    bytes[at] = byte;
                    let found = scan(&bytes[..len]);
                    assert_eq!(found.nul, byte == 0, "{byte} at {at} of {len}");
                    assert_eq!(found.wildcard, byte == b'+' || byte == b'#', "{byte} at {at} of {len}");
                }
            }
        }
    }
}
