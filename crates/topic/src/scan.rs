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

/// Returns the index of the first U+0000, `+` or `#` from `from` on, or the length of `bytes`.
#[inline]
pub(crate) const fn next_special(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(word) = bytes.split_at(at).1.first_chunk::<8>() {
        let special = first_special(u64::from_le_bytes(*word));
        if special < 8 {
            return at + special;
        }
        at += 8;
    }
    let Some(last) = bytes.last_chunk::<8>() else { return next_special_short(bytes, at) };
    let len = bytes.len() - at;
    // The bytes before `at` leave the word, and zeros follow the last byte.
    let special = if len == 0 { 0 } else { first_special(u64::from_le_bytes(*last) >> (64 - 8 * len)) };
    if special < len { at + special } else { bytes.len() }
}

/// The same in fewer than eight bytes.
#[inline]
const fn next_special_short(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while at < bytes.len() && !matches!(bytes[at], 0 | b'+' | b'#') {
        at += 1;
    }
    at
}

/// Returns the place of the first special byte among eight, counted from the lowest one; 8 if there is none.
#[inline]
const fn first_special(word: u64) -> usize {
    let (nul, wildcard) = found_in(word.to_le_bytes());
    // A borrow may mark a byte above one that is found, but none below it.
    ((nul | wildcard).trailing_zeros() / 8) as usize
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
    let word = u64::from_le_bytes(word);
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
    use super::{next_special, scan};

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

    #[test]
    fn the_first_special_byte_from_any_index_on_is_found() {
        for len in 0..20 {
            for first in 0..len {
                for second in first..len {
                    for byte in 0..=u8::MAX {
                        // A byte of 1 above a found one is where the search for zeros marks a byte too many.
                        let mut bytes = [1; 20];
                        (bytes[first], bytes[second]) = (b'#', byte);
                        let bytes = &bytes[..len];
                        let is_special = |at: &usize| [0, b'+', b'#'].contains(&bytes[*at]);
                        for from in [0, first, first + 1, len] {
                            let expected = (from..len).find(is_special).unwrap_or(len);
                            assert_eq!(next_special(bytes, from), expected, "{bytes:?} from {from}");
                        }
                    }
                }
            }
        }
    }
}
