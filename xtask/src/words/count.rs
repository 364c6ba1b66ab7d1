//! Counts comments and sentences that are hard to read.

use super::lexer::{self, Kind};

/// First words of sentences whose subject comes late.
const LATE_OPENERS: [&str; 4] = ["What", "Who", "Where", "So"];

/// Maximum number of words that a reader can keep in mind.
const SENTENCE_WORDS_MAX: usize = 40;

/// Minimum number of words of a documentation comment. A shorter comment says nothing beyond the name.
const DOC_WORDS_MIN: usize = 4;

/// Counts for a file or a folder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Number of comments, and of paragraphs in pages.
    pub(crate) comments: usize,
    /// Number of comments that begin with What, Who, Where or So.
    pub(crate) late: usize,
    /// Number of documentation comments with at most three words.
    pub(crate) short: usize,
    /// Number of sentences with more than 40 words.
    pub(crate) long: usize,
}

impl Count {
    pub(crate) fn add(&mut self, other: Self) {
        self.comments += other.comments;
        self.late += other.late;
        self.short += other.short;
        self.long += other.long;
    }
}

/// A comment or paragraph that is hard to read.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) line: usize,
    pub(crate) why: &'static str,
    pub(crate) text: String,
}

/// Counts in a Rust file, and records each finding.
pub(crate) fn in_rust(text: &str, findings: &mut Vec<Finding>) -> Count {
    let mut count = Count::default();
    for comment in lexer::divide(text).comments {
        let prose = prose_of(&comment.text);
        if prose.is_empty() {
            continue;
        }
        let is_doc = comment.kind == Kind::Doc;
        count.add(in_paragraphs(&prose, is_doc, comment.line, findings));
    }
    count
}

/// Counts in a Markdown page, and records each finding.
pub(crate) fn in_page(text: &str, findings: &mut Vec<Finding>) -> Count {
    let mut count = Count::default();
    let mut is_code = false;
    let mut paragraph = (1, String::new());
    for (at, line) in text.lines().enumerate() {
        let begins_item = line.trim_start().starts_with(['-', '*', '#', '|']);
        let is_fence = line.trim_start().starts_with("```");
        if line.trim().is_empty() || begins_item || is_fence || is_code {
            count.add(in_paragraphs(&[paragraph.1], false, paragraph.0, findings));
            paragraph = (at + 1, String::new());
        }
        is_code ^= is_fence;
        let is_prose = !is_code && !is_fence && !line.trim_start().starts_with(['#', '|']);
        if is_prose && !line.starts_with("    ") {
            paragraph.1.push_str(line.trim().trim_start_matches("- "));
            paragraph.1.push(' ');
        }
    }
    count.add(in_paragraphs(&[paragraph.1], false, paragraph.0, findings));
    count
}

/// Returns the paragraphs of a comment, without code, headings and tables.
fn prose_of(comment: &str) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    let mut is_code = false;
    for line in comment.lines() {
        let trimmed = line.trim();
        if trimmed.starts_with("```") {
            is_code = !is_code;
            paragraphs.push(String::new());
        } else if trimmed.is_empty() || trimmed.starts_with(['|', '#']) {
            paragraphs.push(String::new());
        } else if !is_code {
            if trimmed.starts_with("- ") {
                paragraphs.push(String::new());
            }
            let paragraph = paragraphs.last_mut().expect("there is always one");
            paragraph.push_str(trimmed.trim_start_matches("- "));
            paragraph.push(' ');
        }
    }
    paragraphs.retain(|paragraph| !paragraph.trim().is_empty());
    paragraphs
}

/// Counts in the paragraphs of a comment. Only the first paragraph decides about late subjects and short comments.
fn in_paragraphs(paragraphs: &[String], is_doc: bool, line: usize, findings: &mut Vec<Finding>) -> Count {
    let Some(first) = paragraphs.first().filter(|first| !first.trim().is_empty()) else {
        return Count::default();
    };
    let mut count = Count { comments: 1, ..Count::default() };
    let mut find = |is_found: bool, counter: &mut usize, why: &'static str, text: &str| {
        if is_found {
            *counter += 1;
            findings.push(Finding { line, why, text: text.trim().to_owned() });
        }
    };
    let opener = first.split_whitespace().next().unwrap_or_default();
    let opener = opener.trim_matches(|character: char| !character.is_alphanumeric());
    find(LATE_OPENERS.contains(&opener), &mut count.late, "begins with What, Who, Where or So", first);
    let is_short = is_doc && paragraphs.len() == 1 && words(first) < DOC_WORDS_MIN && !says_more(first);
    find(is_short, &mut count.short, "has at most three words", first);
    for sentence in paragraphs.iter().flat_map(|paragraph| sentences(paragraph)) {
        find(words(&sentence) > SENTENCE_WORDS_MAX, &mut count.long, "has more than 40 words", &sentence);
    }
    count
}

/// Whether a short comment contains a number, a bound, a link or code, and is therefore sufficient.
fn says_more(text: &str) -> bool {
    text.contains(|character: char| character.is_ascii_digit() || "[`".contains(character))
}

fn words(text: &str) -> usize {
    text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count()
}

/// Splits a paragraph into sentences. A colon or semicolon does not end a sentence.
fn sentences(paragraph: &str) -> Vec<String> {
    let mut sentences = vec![String::new()];
    let mut words = paragraph.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let sentence = sentences.last_mut().expect("there is always one");
        sentence.push_str(word);
        sentence.push(' ');
        let ends = word.trim_end_matches([')', '"', '*', '`', ']']).ends_with(['.', '?', '!']);
        let begins = words.peek().is_some_and(|next| !next.starts_with(char::is_lowercase));
        if ends && begins {
            sentences.push(String::new());
        }
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rust(text: &str) -> [usize; 4] {
        let count = in_rust(text, &mut Vec::new());
        [count.comments, count.late, count.short, count.long]
    }

    fn page(text: &str) -> [usize; 4] {
        let count = in_page(text, &mut Vec::new());
        [count.comments, count.late, count.short, count.long]
    }

    #[test]
    fn late_subjects_and_short_documentation_are_found() {
        assert_eq!(rust("/// What is there.\nfn a() {}\n// So it is.\n"), [2, 2, 1, 0]);
        assert_eq!(rust("/// Whose.\nfn a() {}\n/// The owner of it.\nfn b() {}\n"), [2, 0, 1, 0]);
        assert_eq!(rust("/// At most 8.\nfn a() {}\n/// See [`b`].\nfn b() {}\n"), [2, 0, 0, 0]);
        assert_eq!(rust("// Short.\nfn a() {}\n"), [1, 0, 0, 0]);
        assert_eq!(rust("/// Sort it.\n///\n/// More of it.\nfn a() {}\n"), [1, 0, 0, 0]);
    }

    #[test]
    fn a_long_sentence_is_found_and_two_short_ones_are_not() {
        let long = "word ".repeat(41);
        assert_eq!(rust(&format!("// {long}.\n")), [1, 0, 0, 1]);
        let half = format!("{}end.", "Word ".repeat(30));
        assert_eq!(rust(&format!("// {half} {half}\n")), [1, 0, 0, 0]);
        assert_eq!(
            rust(&format!("/// Good enough a line.\n///\n/// - {long}.\nfn a() {{}}\n")),
            [1, 0, 0, 1]
        );
    }

    #[test]
    fn code_tables_and_headings_of_a_page_are_no_prose() {
        let long = "word ".repeat(41);
        assert_eq!(page(&format!("# {long}\n\n```\n{long}\n```\n\n| {long} |\n")), [0, 0, 0, 0]);
        assert_eq!(page(&format!("# A\n\nSo it is.\n\n- What.\n- {long}.\n")), [3, 2, 0, 1]);
    }
}
