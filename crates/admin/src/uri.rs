//! Paths and queries of requests.

/// Maximum number of parameters in a query.
const PARAMETERS_MAX: usize = 32;

/// Decodes percent signs. `None` if they are not followed by two hexadecimal digits, or if the result is no UTF-8.
pub(crate) fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            let value = digit()? * 16 + digit()?;
            bytes.push(u8::try_from(value).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// A value in a path. `None` if it is empty or not well-formed.
///
/// Browsers and proxies take `.` and `..` out of paths, however they are encoded. With U+0000 before them they stay, and no name
/// of MQTT has this character.
pub(crate) fn segment(text: &str) -> Option<String> {
    let value = decode(text)?;
    let value = value
        .strip_prefix('\0')
        .filter(|rest| matches!(*rest, "." | ".."))
        .map_or_else(|| value.clone(), str::to_owned);
    Some(value).filter(|value| !value.is_empty())
}

/// Encodes everything but letters, digits and `-._~`.
#[cfg(test)]
pub(crate) fn encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// The parameters of a query. `None` if one is not well-formed, or if there are too many.
pub(crate) fn parameters(query: &str) -> Option<Vec<(String, String)>> {
    let parts: Vec<&str> = query.split('&').filter(|part| !part.is_empty()).collect();
    if parts.len() > PARAMETERS_MAX {
        return None;
    }
    let parse = |part: &str| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        Some((decode(&name.replace('+', " "))?, decode(&value.replace('+', " "))?))
    };
    parts.into_iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dot_segment_is_written_behind_a_nul() {
        assert_eq!(
            ["%00.", "%00..", ".", "a%2Fb"].map(segment),
            [".", "..", ".", "a/b"].map(|text| Some(text.to_owned()))
        );
        assert_eq!(segment("%00a").as_deref(), Some("\0a"), "only for these two");
        assert_eq!((segment(""), segment("%0")), (None, None));
    }

    #[test]
    fn texts_survive_encoding_and_decoding() {
        for text in ["", "a/b", "é+ %#?&", "$SYS/broker", "\u{1F438}"] {
            assert_eq!(decode(&encode(text)).as_deref(), Some(text));
        }
        for wrong in ["%", "%4", "%zz", "%ff"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_query_has_parameters() {
        let parsed = parameters("topic=a%2Fb&all&x=1+2&").expect("it is well-formed");
        let pairs: Vec<(&str, &str)> = parsed.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(pairs, [("topic", "a/b"), ("all", ""), ("x", "1 2")]);
        assert_eq!(parameters("a=%"), None);
        assert_eq!(parameters(&"a&".repeat(33)), None);
    }
}
