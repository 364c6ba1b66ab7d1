//! Boundaries of control packets (MQTT 5.0 section 2.1).

use crate::error::{Error, Result};

/// Longest Remaining Length field, bytes.
const REMAINING_LENGTH_BYTES_MAX: usize = 4;

/// Calls `handle` with each whole control packet at the start of `bytes`, and returns their total length.
///
/// # Errors
/// An error of `handle`, and a Remaining Length of more than four bytes.
#[inline]
pub(crate) fn for_each_packet(bytes: &[u8], mut handle: impl FnMut(&[u8]) -> Result<()>) -> Result<usize> {
    let mut at = 0;
    while let Some(len) = packet_len(&bytes[at..])? {
        let Some(packet) = bytes.get(at..at + len) else { break };
        handle(packet)?;
        at += len;
    }
    Ok(at)
}

/// The length of the packet that starts `bytes`, fixed header included, if enough of it is there to tell.
#[inline]
pub(crate) fn packet_len(bytes: &[u8]) -> Result<Option<usize>> {
    match bytes {
        [_, len @ 0..=127, ..] => Ok(Some(2 + usize::from(*len))),
        _ => long_packet_len(bytes),
    }
}

/// Length of the whole packets at the start of `bytes`.
pub(crate) fn whole_packets_len(bytes: &[u8]) -> Result<usize> {
    for_each_packet(bytes, |_| Ok(()))
}

fn long_packet_len(bytes: &[u8]) -> Result<Option<usize>> {
    let mut remaining = 0;
    for (position, byte) in bytes.iter().skip(1).take(REMAINING_LENGTH_BYTES_MAX).enumerate() {
        remaining |= usize::from(byte & 0x7F) << (7 * position);
        if byte & 0x80 == 0 {
            return Ok(Some(2 + position + remaining));
        }
    }
    if bytes.len() > REMAINING_LENGTH_BYTES_MAX {
        return Err(Error::Server("sent a Remaining Length of more than four bytes".into()));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_told_as_soon_as_its_last_byte_is_there() {
        assert_eq!(packet_len(&[]).unwrap(), None);
        assert_eq!(packet_len(&[0x30]).unwrap(), None);
        assert_eq!(packet_len(&[0x30, 127]).unwrap(), Some(129));
        assert_eq!(packet_len(&[0x30, 0x80]).unwrap(), None);
        assert_eq!(packet_len(&[0x30, 0x80, 0x01]).unwrap(), Some(3 + 128));
        assert_eq!(packet_len(&[0x30, 0xFF, 0xFF, 0xFF, 0x7F]).unwrap(), Some(5 + 268_435_455));
    }

    #[test]
    fn a_fifth_length_byte_is_refused() {
        assert!(packet_len(&[0x30, 0x80, 0x80, 0x80, 0x80]).is_err());
    }

    #[test]
    fn only_whole_packets_are_handed_over() {
        let bytes = [0xC0, 0, 0x30, 3, 1, 2, 3, 0x30, 2, 1];
        let mut packets = Vec::new();
        let used = for_each_packet(&bytes, |packet| {
            packets.push(packet.to_vec());
            Ok(())
        });
        assert_eq!(used.unwrap(), 7);
        assert_eq!(packets, [vec![0xC0, 0], vec![0x30, 3, 1, 2, 3]]);
    }
}
