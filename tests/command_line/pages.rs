//! The pages: configurations that are good, commands with good flags, and prose that is easy to read.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{check, pondhawk};

/// README.md and all pages that nobody generates.
pub(crate) fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let docs = fs::read_dir(root.join("docs")).expect("the pages are there");
    let mut pages: Vec<_> = docs.map(|entry| entry.expect("a page").path()).collect();
    // A folder has figures and generated pages.
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages.push(root.join("README.md"));
    pages.retain(|page| !page.ends_with("BENCHMARKS.md") && !page.ends_with("CONFORMANCE.md"));
    pages
}

/// The blocks of this kind in a page. A block in a list is indented.
pub(crate) fn blocks(page: &str, kind: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<(bool, String)> = None;
    for line in page.lines() {
        let fence = line.trim_start().strip_prefix("```");
        match (&mut open, fence) {
            (None, Some(its_kind)) => open = Some((its_kind == kind, String::new())),
            (Some(_), Some(_)) => blocks.extend(open.take().filter(|(is_wanted, _)| *is_wanted)),
            (Some((_, block)), None) => {
                block.push_str(line);
                block.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks.into_iter().map(|(_, block)| block).collect()
}

pub(crate) fn read(page: &Path) -> String {
    fs::read_to_string(page).expect("a page can be read")
}

/// Files of certificates are not on this machine; every other error counts.
#[test]
fn each_configuration_in_the_pages_is_good() {
    let mut count = 0;
    for page in pages() {
        for block in blocks(&read(&page), "toml").iter().filter(|block| block.contains("[[listener]]")) {
            let (is_good, _, said) = check(block);
            let is_about_files = said.contains("/etc/pondhawk/") && !said.contains("unknown");
            assert!(is_good || is_about_files, "{}:\n{block}\n{said}", page.display());
            count += 1;
        }
    }
    assert!(count >= 6, "{count}");
}

/// The commands of a block, without what a shell does with their output. A backslash joins lines.
fn commands(block: &str) -> Vec<Vec<String>> {
    let joined = block.split("\\\n").map(str::trim).collect::<Vec<_>>().join(" ");
    // In a list of commands, blanks stand in front of what each does.
    let lines = joined.lines().filter_map(|line| line.trim_start().split("  ").next());
    let commands = lines.flat_map(|line| {
        let mut commands = vec![Vec::new()];
        for word in shell_words(line) {
            match word.as_str() {
                "|" | "||" | "&&" | ";" | "(" | ")" | "&" => commands.push(Vec::new()),
                _ => commands.last_mut().expect("there is always one").push(word),
            }
        }
        commands
    });
    commands.filter_map(|words| of_pondhawk(&words)).collect()
}

/// The arguments of our program, if this command runs it. Words before it may set variables or give rights.
pub(crate) fn of_pondhawk(words: &[String]) -> Option<Vec<String>> {
    let before =
        |word: &&String| word.contains('=') || ["sudo", "time", "exec", "$"].contains(&word.as_str());
    let start = words.iter().take_while(before).count();
    let is_ours = words.get(start).is_some_and(|word| word == "pondhawk");
    let is_redirection = |word: &String| word.starts_with(['<', '>']) || word.starts_with("2>");
    is_ours.then(|| words[start + 1..].iter().take_while(|word| !is_redirection(word)).cloned().collect())
}

/// Splits a line as a shell does, as far as the pages need it. A comment ends the line.
pub(crate) fn shell_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (Some('"') | None, '\\') => word.get_or_insert_default().extend(letters.next()),
            (Some(_), letter) => word.get_or_insert_default().push(letter),
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, letter) if letter.is_whitespace() => words.extend(word.take()),
            (None, '|' | ';' | '&' | '(' | ')') => {
                words.extend(word.take());
                words.push(letter.to_string());
            }
            (None, letter) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// A command with `--help` behind its arguments reads them first. Only a bad flag or value keeps it from showing its help.
#[test]
fn each_command_in_the_pages_has_good_flags_and_values() {
    let mut count = 0;
    for page in pages() {
        let text = read(&page);
        for block in [blocks(&text, "sh"), blocks(&text, "console"), blocks(&text, "")].concat() {
            for words in commands(&block) {
                // Synopses have places for values.
                let is_place = |word: &String| {
                    word.contains('…')
                        || word.starts_with(['[', '<'])
                        || word.len() > 1 && word.chars().all(|letter| letter.is_ascii_uppercase())
                };
                if words.iter().any(is_place) {
                    continue;
                }
                let mut arguments: Vec<_> = words.iter().map(String::as_str).collect();
                arguments.push("--help");
                let output = pondhawk(&arguments, "");
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(output.status.success(), "{}: pondhawk {words:?}\n{said}", page.display());
                count += 1;
            }
        }
    }
    assert!(count >= 60, "{count}");
}

#[test]
fn blocks_are_found_by_their_kind() {
    let page = "a\n```\nb\n```\nc\n```sh\nd\n```\n- e\n  ```sh\n  f\n  ```\n```toml\ng\n```\n";
    assert_eq!(blocks(page, "sh"), ["d\n", "  f\n"]);
    assert_eq!(blocks(page, ""), ["b\n"]);
}

#[test]
fn a_command_line_is_read_as_a_shell_reads_it() {
    let line = "PONDHAWK_PORT=1 pondhawk pub -t 'a b' -m \"c \\\" d\" \\\n  -q 1 | grep x # why";
    assert_eq!(commands(line), [["pub", "-t", "a b", "-m", "c \" d", "-q", "1"]]);
    assert_eq!(commands("pondhawk sub -t a > file\nmosquitto_sub -t a\nsudo pondhawk check f").len(), 2);
}

/// The first line with each page's grade, from the program that computes them.
#[test]
fn each_page_can_be_read_after_ten_years_of_school() {
    const GRADE_MAX: f64 = 10.0;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut python = pondhawk_tests::python();
    let output =
        python.arg(root.join("clients/python/grade.py")).args(pages()).output().expect("Python runs");
    let said = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let grades: Vec<(&str, f64)> = said
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(grade, page)| (page, grade.parse().expect("a number")))
        .collect();
    assert_eq!(grades.len(), pages().len(), "{said}");
    assert!(grades.iter().all(|(_, grade)| (1.0..=GRADE_MAX).contains(grade)), "{said}");
}
