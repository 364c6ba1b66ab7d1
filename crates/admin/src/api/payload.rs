//! Payloads in JSON: as text if they are UTF-8, otherwise in base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Describes a payload, at most its first `bytes_max` bytes.
pub(crate) fn describe(payload: &[u8], bytes_max: usize) -> Value {
    let is_whole = payload.len() <= bytes_max;
    let shown = &payload[..payload.len().min(bytes_max)];
    let text = match std::str::from_utf8(shown) {
        Ok(text) => Some(text),
        // A character that was cut.
        Err(error) if !is_whole && error.error_len().is_none() => {
            std::str::from_utf8(&shown[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    };
    let (encoding, shown) = match text {
        Some(text) => ("utf-8", text.to_owned()),
        None => ("base64", STANDARD.encode(shown)),
    };
    json!({ "bytes": payload.len(), "encoding": encoding, "payload": shown, "is_whole": is_whole })
}

/// The bytes of a payload in this encoding.
pub(crate) fn bytes(text: &str, encoding: &str) -> Option<Vec<u8>> {
    match encoding {
        "utf-8" => Some(text.as_bytes().to_vec()),
        "base64" => STANDARD.decode(text).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_text_if_it_can_be() {
        assert_eq!(describe("é".as_bytes(), 10)["payload"], "é");
        let cut = describe("aé".as_bytes(), 2);
        assert_eq!(
            (&cut["payload"], &cut["is_whole"], &cut["bytes"]),
            (&json!("a"), &json!(false), &json!(3))
        );
        let binary = describe(&[0xff, 0], 10);
        assert_eq!((&binary["encoding"], &binary["payload"]), (&json!("base64"), &json!("/wA=")));
        assert_eq!(bytes("/wA=", "base64"), Some(vec![0xff, 0]));
        assert_eq!((bytes("=", "base64"), bytes("a", "hex")), (None, None));
    }
}
