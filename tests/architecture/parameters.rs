//! How many parameters a function may have.

use crate::source::Source;

/// Past this, some of them belong together. `self` counts.
const PARAMETERS_MAX: usize = 6;

/// Every list that is longer than this.
pub(crate) fn findings(sources: &[Source]) -> Vec<String> {
    let mut findings = Vec::new();
    for source in sources {
        for (name, line, count) in functions(&source.text).filter(|(.., count)| *count > PARAMETERS_MAX) {
            let text = format!("{name} has {count} parameters, at most {PARAMETERS_MAX}");
            findings.push(source.finding(line, text));
        }
    }
    findings
}

/// Name, line from 1, and number of parameters of each function.
fn functions(text: &str) -> impl Iterator<Item = (&str, usize, usize)> {
    text.match_indices("fn ").filter_map(|(at, _)| {
        let line = text[..at].matches('\n').count();
        let before = text.lines().nth(line)?[..at - text[..at].rfind('\n').map_or(0, |end| end + 1)].trim();
        let is_head = before.split_whitespace().all(|word| {
            ["pub", "pub(crate)", "pub(super)", "const", "unsafe", "async", "extern"].contains(&word)
        });
        let rest = text[at + 3..].trim_start();
        let name_bytes = rest.find(|character: char| !(character.is_alphanumeric() || character == '_'))?;
        let (name, rest) = rest.split_at(name_bytes);
        (is_head && !name.is_empty()).then(|| (name, line + 1, parameters(rest)))
    })
}

/// Counts parameters behind the name of a function: what commas of its list divide, outside brackets.
fn parameters(rest: &str) -> usize {
    let (mut round, mut angle, mut count, mut has_some) = (0_usize, 0_usize, 0, false);
    let mut previous = ' ';
    for character in rest.chars() {
        match character {
            '<' if round <= 1 => angle += 1,
            '>' if round <= 1 && !['-', '='].contains(&previous) => angle = angle.saturating_sub(1),
            '(' if angle == 0 || round > 0 => round += 1,
            '[' | '{' if round > 0 => round += 1,
            ')' | ']' | '}' if round > 0 => {
                round -= 1;
                if round == 0 {
                    return count + usize::from(has_some);
                }
            }
            ',' if round == 1 && angle == 0 => {
                count += usize::from(has_some);
                has_some = false;
            }
            _ if round == 1 && !character.is_whitespace() => has_some = true,
            _ => {}
        }
        previous = character;
    }
    count
}

#[test]
fn long_lists_are_found() {
    let text = "impl A {\n    pub(crate) fn a<'x, F: Fn(u8, u8) -> u8>(&mut self, (b, c): (u8, u8), d: Vec<u8, G>, e: impl Fn(u8, u8), f: [u8; 2],\n        g: u8,\n    ) {}\n}\n";
    let counted: Vec<_> = functions(text).collect();
    assert_eq!(counted, [("a", 2, 6)]);
    let list = |count: usize| vec!["a: u8"; count].join(", ");
    let source = |count| [Source::parse("crates/wire/src/a.rs", &format!("fn a({}) {{}}\n", list(count)))];
    assert!(findings(&source(6)).is_empty());
    assert_eq!(findings(&source(7)), ["crates/wire/src/a.rs:1: a has 7 parameters, at most 6"]);
}
