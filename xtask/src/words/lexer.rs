//! Splits Rust sources into comments and code.

/// The kind of a comment, by its readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Documentation for users of the code: `///` and `//!`, and their block forms.
    Doc,
    /// A remark for readers of the code: any other comment.
    Plain,
}

/// A comment. Consecutive lines of the same kind are one comment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Comment {
    pub(crate) kind: Kind,
    /// Line of the file at which the comment begins, from 1.
    pub(crate) line: usize,
    /// The text without comment marks. Newlines separate the lines.
    pub(crate) text: String,
}

/// The comments and the code of a file.
#[derive(Debug, Default)]
pub(crate) struct Divided {
    pub(crate) comments: Vec<Comment>,
    /// Tokens and literals as in the file, without the spaces between them.
    pub(crate) code: Vec<String>,
}

/// Splits the text of a file. The result for invalid Rust is unspecified, but there is no error.
pub(crate) fn divide(text: &str) -> Divided {
    let mut lexer = Lexer { rest: text, line: 1, last_line: 0, divided: Divided::default() };
    while lexer.step() {}
    lexer.divided
}

struct Lexer<'a> {
    rest: &'a str,
    line: usize,
    /// The last line of the previous comment, if only spaces follow it.
    last_line: usize,
    divided: Divided,
}

impl<'a> Lexer<'a> {
    /// Handles the next piece of text. Returns false at the end.
    fn step(&mut self) -> bool {
        let Some(first) = self.rest.chars().next() else { return false };
        if first.is_whitespace() {
            self.advance(first.len_utf8());
        } else if self.rest.starts_with("//") {
            let text = self.advance(self.rest.find('\n').unwrap_or(self.rest.len()));
            self.line_comment(text);
        } else if self.rest.starts_with("/*") {
            let line = self.line;
            let text = self.advance(block_comment_length(self.rest));
            self.block_comment(text, line);
        } else {
            let token = self.advance(token_length(self.rest, first));
            self.divided.code.push(token.to_owned());
            self.last_line = 0;
        }
        true
    }

    fn advance(&mut self, bytes: usize) -> &'a str {
        let (piece, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        self.line += piece.matches('\n').count();
        piece
    }

    fn line_comment(&mut self, text: &str) {
        let is_doc = (text.starts_with("///") && !text.starts_with("////")) || text.starts_with("//!");
        let (kind, text) = if is_doc { (Kind::Doc, &text[3..]) } else { (Kind::Plain, &text[2..]) };
        let text = text.strip_prefix(' ').unwrap_or(text).trim_end();
        match self.divided.comments.last_mut() {
            Some(before) if self.last_line + 1 == self.line && before.kind == kind => {
                before.text.push('\n');
                before.text.push_str(text);
            }
            _ => self.divided.comments.push(Comment { kind, line: self.line, text: text.to_owned() }),
        }
        self.last_line = self.line;
    }

    fn block_comment(&mut self, text: &str, line: usize) {
        let is_doc = (text.starts_with("/**") && text.len() > 5) || text.starts_with("/*!");
        let kind = if is_doc { Kind::Doc } else { Kind::Plain };
        let text = text.trim_matches(|character| "/*!".contains(character)).trim();
        let lines = text.lines().map(|line| line.trim().trim_start_matches("* "));
        let text = lines.collect::<Vec<_>>().join("\n");
        self.divided.comments.push(Comment { kind, line, text });
        self.last_line = 0;
    }
}

/// Length of a block comment, which may contain other block comments.
fn block_comment_length(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        match rest {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

fn token_length(text: &str, first: char) -> usize {
    if let Some(length) = raw_string_length(text) {
        return length;
    }
    // The prefix of a byte or C literal belongs to the literal.
    let prefix = usize::from(matches!(text.as_bytes(), [b'b' | b'c', b'"' | b'\'', ..]));
    match text.as_bytes()[prefix] {
        b'"' => return prefix + quoted_length(&text[prefix..], b'"'),
        b'\'' if prefix == 1 || is_character(text) => {
            return prefix + quoted_length(&text[prefix..], b'\'');
        }
        _ => {}
    }
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    if is_word(first) {
        return text.find(|character| !is_word(character)).unwrap_or(text.len());
    }
    first.len_utf8()
}

/// Whether the text begins with a character literal such as `'a'`, and not with a lifetime such as `'a`.
fn is_character(text: &str) -> bool {
    let mut characters = text.chars().skip(1);
    match characters.next() {
        Some('\\') => true,
        Some(_) => characters.next() == Some('\''),
        None => false,
    }
}

/// Length of a literal, from the first quotation mark to the last.
fn quoted_length(text: &str, mark: u8) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while at < bytes.len() && bytes[at] != mark {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

fn raw_string_length(text: &str) -> Option<usize> {
    let opening = ["br", "cr", "r"].into_iter().find(|opening| text.starts_with(opening))?;
    let behind = &text[opening.len()..];
    let marks = behind.len() - behind.trim_start_matches('#').len();
    let content = behind[marks..].strip_prefix('"')?;
    let closing = format!("\"{}", "#".repeat(marks));
    let length = content.find(&closing)? + closing.len();
    Some(opening.len() + marks + 1 + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comments(text: &str) -> Vec<(Kind, usize, String)> {
        divide(text).comments.into_iter().map(|found| (found.kind, found.line, found.text)).collect()
    }

    #[test]
    fn lines_that_follow_each_other_are_one_comment() {
        let text = "//! A.\n//! B.\n\n/// C.\n/// D.\nfn e() {} // F.\n// G.\n//// H.\n";
        let expected =
            [(Kind::Doc, 1, "A.\nB."), (Kind::Doc, 4, "C.\nD."), (Kind::Plain, 6, "F.\nG.\n// H.")];
        assert_eq!(comments(text), expected.map(|(kind, line, text)| (kind, line, text.to_owned())));
    }

    #[test]
    fn block_comments_contain_others() {
        assert_eq!(comments("a /* b /* c */ d */ e"), [(Kind::Plain, 1, "b /* c */ d".to_owned())]);
        assert_eq!(divide("a /* b /* c */ d */ e").code, ["a", "e"]);
    }

    #[test]
    fn literals_are_no_comments() {
        let literals = [
            r#""// no""#,
            r#"" \" // no""#,
            r##"r#"" // no"#"##,
            r##"br#"// no"#"##,
            r#"b"// no""#,
            r"'/'",
            r"'\''",
            r"b'\\'",
        ];
        for literal in literals {
            let divided = divide(&format!("a {literal} // yes"));
            assert_eq!(divided.code, ["a", literal]);
            assert_eq!(divided.comments.len(), 1, "{literal}");
        }
        assert_eq!(divide("&'a str, 'b'").code, ["&", "'", "a", "str", ",", "'b'"]);
    }
}
