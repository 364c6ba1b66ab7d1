//! Hides what may be a secret in the lines of a file that a report shows.
//!
//! No key of ours has a secret for its value. A secret is in a file by mistake: as the value of a key that does not exist,
//! such as `password`, as the user in a URL, or as a private key in the place of its path. A report shows lines as they are,
//! and may be in a log that others read.

use std::collections::HashSet;

use crate::keys::tables;

/// Returns the text with other characters in the place of such values. All places stay the same, in bytes and in characters.
pub(crate) fn masked(text: &str) -> String {
    let tables = tables();
    let known: HashSet<&str> = tables.iter().flat_map(|table| &table.keys).map(|key| key.name).collect();
    let mut is_shown = true;
    let mut masked = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let shown = shown_bytes(line, &known, &mut is_shown);
        masked.push_str(&hide_users(&line[..shown]));
        masked.extend(line[shown..].chars().map(mask));
    }
    masked
}

/// Length of the beginning of a line that may be shown. `is_shown` says whether the value of the line before may be shown, and
/// then whether the value of this line may.
fn shown_bytes(line: &str, known: &HashSet<&str>, is_shown: &mut bool) -> usize {
    let indent = line.len() - line.trim_start().len();
    let rest = &line[indent..];
    if let Some(key) = key_of(rest).filter(|key| *is_shown || begins_value(&rest[key.len()..])) {
        let last = key.rsplit('.').next().unwrap_or(key).trim_matches(['"', '\'']);
        *is_shown = known.contains(last) && !rest.contains(PEM);
        let is_word_alone = rest[key.len()..].trim().is_empty();
        return match (*is_shown, is_word_alone) {
            (true, _) => indent + before_comment(rest),
            (false, true) => 0,
            (false, false) => indent + key.len(),
        };
    }
    if rest.starts_with('[') && rest.contains(']') && !rest.contains(['"', '\'']) {
        *is_shown = true;
    }
    *is_shown &= !rest.contains(PEM);
    if *is_shown { indent + before_comment(rest) } else { 0 }
}

/// Beginning of certificates and keys.
const PEM: &str = "-----BEGIN";

/// The key at the beginning of a line, with or without `=` behind it. `None` for a line that goes on with the value of another
/// line.
fn key_of(line: &str) -> Option<&str> {
    let is_bare = |character: char| character.is_alphanumeric() || "_-.".contains(character);
    if line.starts_with(['"', '\'']) {
        let (key, value) = line.split_once('=')?;
        let key = key.trim_end();
        return (!value.is_empty() && key.len() > 1 && key.ends_with(['"', '\''])).then_some(key);
    }
    if !line.starts_with(char::is_alphanumeric) {
        return None;
    }
    let end = line.find(|character: char| !is_bare(character)).unwrap_or(line.len());
    // A value that goes on, such as the last line of a text, has a mark behind it that no key has.
    let is_value = matches!(line[..end].trim(), "true" | "false");
    (!is_value).then_some(&line[..end])
}

/// Whether the text behind a key has a value. The last line of a text in base64 has nothing behind its `=`.
fn begins_value(behind: &str) -> bool {
    behind
        .trim_start()
        .strip_prefix('=')
        .is_some_and(|value| !value.trim_matches(['=', ' ', '\n', '\r']).is_empty())
}

/// Length of a line up to its comment.
fn before_comment(line: &str) -> usize {
    let mut quote = None;
    for (place, character) in line.char_indices() {
        match (quote, character) {
            (None, '#') => return place,
            (None, '"' | '\'') => quote = Some(character),
            (Some(open), _) if open == character => quote = None,
            _ => {}
        }
    }
    line.len()
}

/// Returns the text with other characters in the place of user and password in URLs.
pub fn hide_users(text: &str) -> String {
    let mut parts = text.split("://");
    let mut hidden = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|character: char| character.is_whitespace() || "\"'`".contains(character));
        let users = part[..end.unwrap_or(part.len())].rfind('@').unwrap_or(0);
        hidden.push_str("://");
        hidden.extend(part[..users].chars().map(mask));
        hidden.push_str(&part[users..]);
    }
    hidden
}

/// A character of the same length in bytes.
fn mask(character: char) -> char {
    match character.len_utf8() {
        _ if character.is_whitespace() => character,
        1 => '*',
        2 => '×',
        3 => '•',
        _ => '🔒',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_keys_that_do_not_exist_are_hidden() {
        let rows = [
            ("password = \"ab c\"\n", "password * *** **\n"),
            ("  auth.password=\"a\"", "  auth.password****"),
            ("password: né€𝄞", "password* *×•🔒"),
            ("\"pass word\" = 'a'", "\"pass word\" * ***"),
            ("limits.packet_bytes = \"1 MB\" # old: a\n", "limits.packet_bytes = \"1 MB\" * **** *\n"),
            ("proxy_from = [\n  \"a\",\n]\n", "proxy_from = [\n  \"a\",\n]\n"),
            ("secrets = [\n  \"a\",\n]\n[auth]\n", "secrets * *\n  ****\n*\n[auth]\n"),
            (
                "tls_key = \"\"\"\n-----BEGIN KEY\nab/=\ncd\n\"\"\"\nshards = 1",
                "tls_key = \"\"\"\n********** ***\n****\n**\n***\nshards = 1",
            ),
            ("5ecret\ntoken\n[auth]\nshards\n", "******\n*****\n[auth]\nshards\n"),
            ("tls_key = \"-----BEGIN KEY\n", "tls_key * *********** ***\n"),
            ("address = \"mqtt://ann:b@c@pond:1\"", "address = \"mqtt://*******@pond:1\""),
            ("auth = { password = \"a\" }", "auth * * ******** * *** *"),
        ];
        for (text, expected) in rows {
            assert_eq!(masked(text), expected);
            assert_eq!(masked(text).len(), text.len());
        }
    }
}
