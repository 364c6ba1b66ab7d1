//! Bytes as hexadecimal text.

/// Two lower-case digits for each byte.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of a text with two digits of either case for each. `None` if the text has other characters, or an odd number of
/// digits.
#[must_use]
pub fn decode(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    let pairs = (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16));
    pairs.collect::<Result<_, _>>().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_their_text() {
        assert_eq!(decode(&encode(&[0, 1, 0xff])), Some(vec![0, 1, 0xff]));
        assert_eq!(decode("00fF"), Some(vec![0, 0xff]));
        for wrong in ["0", "zz", "é"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }
}
