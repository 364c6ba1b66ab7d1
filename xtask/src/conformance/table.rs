//! Cases in a table of bad packets. Each has its versions, and the statement that its bytes violate.
//!
//! A case is a call of `bad` or `refused`. Its arguments are a name, versions, for `bad` the sender, and further
//! ones. The first text that begins with `MQTT-` is the statement. A test that runs the table names it in its doc
//! comment.

use super::statements::Version;

/// One case of a bad packet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// The standards of the case. Empty for a case of MQTT 3.1 only, whose statements have no numbers.
    pub(crate) versions: Vec<Version>,
    /// Whether a server sends the packet, and a client's decoder refuses it.
    pub(crate) is_of_server: bool,
    pub(crate) number: String,
}

const CALLS: [&str; 2] = ["bad", "refused"];

/// Returns the cases of one file.
///
/// # Errors
/// If a call has other arguments than a case.
pub(crate) fn cases_in(text: &str) -> Result<Vec<Case>, String> {
    let tokens = tokens(text);
    let is_call = |at: &usize| match &tokens[at.saturating_sub(1)..] {
        [Token::Word("fn"), ..] => false,
        [_, Token::Word(word), Token::Mark('('), ..] => CALLS.contains(word),
        _ => false,
    };
    (1..tokens.len()).filter(is_call).map(|at| case(&tokens[at + 2..])).collect()
}

fn case(tokens: &[Token<'_>]) -> Result<Case, String> {
    let [Token::Text(name), Token::Mark(','), Token::Word(versions), ..] = tokens else {
        return Err(format!("no case: {:?}", &tokens[..tokens.len().min(4)]));
    };
    let versions = match *versions {
        "ALL" => Version::ALL.to_vec(),
        "V5" => vec![Version::V5],
        "BEFORE_5" | "V3_1_1" => vec![Version::V3_1_1],
        "V3_1" => Vec::new(),
        other => return Err(format!("{name}: there are no versions `{other}`")),
    };
    let is_of_server = matches!(tokens, [_, _, _, Token::Mark(','), Token::Word("SERVER"), ..]);
    let mut texts = tokens.iter().filter_map(|token| match token {
        Token::Text(text) => Some(*text),
        _ => None,
    });
    let number = texts.find(|text| text.starts_with("MQTT-"));
    let number = number.ok_or_else(|| format!("{name}: no statement"))?.to_owned();
    Ok(Case { name: (*name).to_owned(), versions, is_of_server, number })
}

#[derive(Debug)]
enum Token<'a> {
    Word(&'a str),
    /// The text between quotes. Escape sequences are not decoded.
    Text(&'a str),
    Mark(char),
}

/// Splits a Rust text into the tokens of tables, without comments. A byte string or raw string becomes a word and a
/// text.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let end = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if first == '"' {
            let length = text_length(&rest[1..]);
            tokens.push(Token::Text(&rest[1..=length]));
            (length + 2).min(rest.len())
        } else if first.is_alphanumeric() || first == '_' {
            let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            tokens.push(Token::Word(&rest[..length]));
            length
        } else {
            tokens.push(Token::Mark(first));
            first.len_utf8()
        };
        rest = rest[end..].trim_start();
    }
    tokens
}

/// Number of bytes before the quote that ends a text.
fn text_length(text: &str) -> usize {
    let mut is_escaped = false;
    for (index, character) in text.char_indices() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return index,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_read_from_calls() {
        let text = r#"
// bad("not", V5, this)
const fn bad(name: &'static str, statement: &'static str) -> Case {}
const CASES: &[Case] = &[
    good("fine", V5, CLIENT, b"\x30\x22", "PUBLISH"),
    bad("QoS 3, a \"quote\"", V5, CLIENT, b"\x36\x00MQTT-", MalformedPacket, "MQTT-3.3.1-4"),
    refused(
        "first", ALL,
        b"\x30", ProtocolError, "MQTT-3.1.0-1", b"",
    ),
    bad("old", V3_1, SERVER, b"", MalformedPacket, "MQTT-4.8.0-1"),
];
"#;
        let case = |name: &str, versions: &[Version], number: &str| Case {
            name: name.to_owned(),
            versions: versions.to_vec(),
            is_of_server: name == "old",
            number: number.to_owned(),
        };
        assert_eq!(
            cases_in(text).unwrap(),
            [
                case("QoS 3, a \\\"quote\\\"", &[Version::V5], "MQTT-3.3.1-4"),
                case("first", &Version::ALL, "MQTT-3.1.0-1"),
                case("old", &[], "MQTT-4.8.0-1"),
            ]
        );
        assert!(cases_in("x = bad(name, V5)").is_err());
    }
}
