//! How long a file and a function may be.

use std::collections::BTreeMap;

use crate::source::Source;

/// Past this, look for a seam to split a file along.
const FILE_LINES_MAX: usize = 800;
/// Past this, a function has more than one thing to say.
const FUNCTION_LINES_MAX: usize = 70;

/// What is longer than it should be and was let in: `LINES PATH` or `LINES PATH FUNCTION`. An entry may only shrink.
pub(crate) const RATCHET: &str = "tests/architecture/ratchet.txt";

/// Everything too long that the ratchet does not let in, and every entry of the ratchet that is not needed as it is.
pub(crate) fn findings(sources: &[Source], ratchet: &str) -> Vec<String> {
    let mut allowed = entries(ratchet);
    let mut findings = Vec::new();
    for (subject, lines, bound) in sources.iter().flat_map(measured) {
        match allowed.remove(&subject) {
            Some(entry) if lines > entry => {
                findings.push(format!("{subject}: {lines} lines, {entry} let in"));
            }
            Some(entry) if lines <= bound => {
                findings.push(format!("{subject}: short enough, take the {entry} out of {RATCHET}"));
            }
            Some(entry) if lines < entry => {
                findings.push(format!("{subject}: {lines} lines, lower the {entry} in {RATCHET}"));
            }
            None if lines > bound => findings.push(format!("{subject}: {lines} lines, at most {bound}")),
            _ => {}
        }
    }
    findings.extend(allowed.keys().map(|subject| format!("{subject}: not there, take it out of {RATCHET}")));
    findings
}

/// A file and its functions, each with its lines and how many there may be. Functions of one name in one file, as
/// the methods of several types are, count as their longest.
fn measured(source: &Source) -> Vec<(String, usize, usize)> {
    let mut longest: BTreeMap<String, usize> = BTreeMap::new();
    for function in source.functions() {
        let lines = longest.entry(format!("{} {}", source.path, function.name)).or_default();
        *lines = function.lines.max(*lines);
    }
    let functions = longest.into_iter().map(|(subject, lines)| (subject, lines, FUNCTION_LINES_MAX));
    let file = (source.path.clone(), source.text.lines().count(), FILE_LINES_MAX);
    [file].into_iter().chain(functions).collect()
}

fn entries(ratchet: &str) -> BTreeMap<String, usize> {
    let lines = ratchet.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (lines, subject) = line.split_once(' ').expect("LINES PATH [FUNCTION]");
            (subject.to_owned(), lines.parse().expect("a number of lines"))
        })
        .collect()
}

#[test]
fn code_that_is_too_long_is_found_and_the_ratchet_only_turns_one_way() {
    let function = |lines: usize| format!("fn a() {{\n{}}}", "\n".repeat(lines - 2));
    let found = |lines: usize, ratchet: &str| findings(&[Source::parse("a.rs", &function(lines))], ratchet);
    assert!(found(70, "").is_empty());
    assert_eq!(found(71, ""), ["a.rs a: 71 lines, at most 70"]);
    assert!(found(80, "80 a.rs a").is_empty());
    assert_eq!(found(81, "80 a.rs a"), ["a.rs a: 81 lines, 80 let in"]);
    assert_eq!(found(79, "# why\n\n80 a.rs a").len(), 1, "an entry is lowered when the function shrinks");
    assert_eq!(found(70, "80 a.rs a").len(), 1, "and taken out when it is short enough");
    assert_eq!(found(10, "80 a.rs b").len(), 1, "or gone");
    assert_eq!(found(801, "801 a.rs a"), ["a.rs: 801 lines, at most 800"], "a file is measured too");
}
