//! `cargo xtask words`: measures how easy comments and pages are to read, and checks that a rewrite changes no
//! code.

mod count;
mod lexer;

use std::collections::BTreeMap;
use std::fs;
use std::process::ExitCode;

use count::{Count, Finding};

use crate::house::House;
use crate::log::Log;

/// The file with the maximum counts of each folder. `cargo xtask words --write` lowers them.
const RATCHET: &str = "tests/architecture/words.tsv";

const RATCHET_HEAD: &str = "\
# The highest counts for each folder: comments that begin with What, Who, Where or So; documentation comments of at
# most three words; sentences of more than 40 words. `cargo xtask words --write` lowers them, and nothing raises them.
# FOLDER	LATE	SHORT	LONG
";

/// Pages that are generated, or that quote other texts.
const NOT_OURS: &[&str] = &["docs/CONFORMANCE.md", "docs/BENCHMARKS.md"];

type Counts = BTreeMap<String, Count>;

/// Runs `words` with these arguments.
///
/// # Errors
/// If git or a file cannot be read, or if code differs.
pub(crate) fn run(house: &House, arguments: &[String]) -> Result<ExitCode, String> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["--unchanged", revision, paths @ ..] => unchanged(house, revision, paths),
        ["--write"] => write(house),
        ["--list", paths @ ..] => {
            list(house, paths)?;
            Ok(ExitCode::SUCCESS)
        }
        [] => {
            print(&counts(house, &mut |_, _| {})?);
            Ok(ExitCode::SUCCESS)
        }
        _ => Err("words takes --unchanged REVISION [PATH…], --list [PATH…], --write, or nothing".to_owned()),
    }
}

/// Compares the counts with the file of maximum counts.
///
/// # Errors
/// If a folder exceeds one of its maximum counts.
pub(crate) fn check(house: &House, log: &mut Log) -> Result<(), String> {
    let limits = read_limits(house)?;
    let over = over_limit(&counts(house, &mut |_, _| {})?, &limits);
    over.iter().for_each(|line| log.note(line));
    if over.is_empty() {
        return Ok(());
    }
    Err(format!("{}\n`cargo xtask words --list FOLDER` lists the places", over.join("\n")))
}

fn over_limit(counts: &Counts, limits: &Counts) -> Vec<String> {
    let over = counts.iter().flat_map(|(folder, count)| {
        let limit = limits.get(folder).copied().unwrap_or_default();
        let pairs = [
            ("begin with What, Who, Where or So", count.late, limit.late),
            ("have at most three words", count.short, limit.short),
            ("have more than 40 words", count.long, limit.long),
        ];
        pairs.into_iter().filter(|(_, found, limit)| found > limit).map(move |(what, found, limit)| {
            format!("{folder}: {found} comments or sentences {what}; at most {limit} may")
        })
    });
    over.collect()
}

fn read_limits(house: &House) -> Result<Counts, String> {
    let text =
        fs::read_to_string(house.root().join(RATCHET)).map_err(|error| format!("{RATCHET}: {error}"))?;
    parse_limits(&text)
}

fn parse_limits(text: &str) -> Result<Counts, String> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let parse = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        let number = |at: usize| fields.get(at).and_then(|field| field.parse().ok());
        let (Some(late), Some(short), Some(long)) = (number(1), number(2), number(3)) else {
            return Err(format!("{RATCHET}: not a folder and three numbers: {line}"));
        };
        Ok((fields[0].to_owned(), Count { comments: 0, late, short, long }))
    };
    lines.map(parse).collect()
}

/// Lowers the maximum counts to the current counts.
fn write(house: &House) -> Result<ExitCode, String> {
    let counts = counts(house, &mut |_, _| {})?;
    let limits = read_limits(house).ok();
    let mut text = RATCHET_HEAD.to_owned();
    for (folder, count) in &counts {
        let lower = |found: usize, limit: fn(&Count) -> usize| match &limits {
            Some(limits) => found.min(limits.get(folder).map_or(0, limit)),
            None => found,
        };
        let late = lower(count.late, |limit| limit.late);
        let short = lower(count.short, |limit| limit.short);
        let long = lower(count.long, |limit| limit.long);
        text.push_str(&format!("{folder}\t{late}\t{short}\t{long}\n"));
    }
    fs::write(house.root().join(RATCHET), text).map_err(|error| format!("{RATCHET}: {error}"))?;
    Ok(ExitCode::SUCCESS)
}

fn print(counts: &Counts) {
    println!("{:<24} {:>9} {:>9} {:>9} {:>9}", "folder", "comments", "late", "short", "long");
    let line = |folder: &str, count: Count| {
        let Count { comments, late, short, long } = count;
        println!("{folder:<24} {comments:>9} {late:>9} {short:>9} {long:>9}");
    };
    let mut all = Count::default();
    for (folder, count) in counts {
        line(folder, *count);
        all.add(*count);
    }
    line("all", all);
}

/// Prints the findings under these paths, or all findings.
fn list(house: &House, paths: &[&str]) -> Result<(), String> {
    let mut show = |path: &str, finding: &Finding| {
        if paths.is_empty() || paths.iter().any(|wanted| path.starts_with(wanted)) {
            println!("{path}:{}: {}: {}", finding.line, finding.why, finding.text);
        }
    };
    counts(house, &mut show).map(|_| ())
}

fn counts(house: &House, show: &mut dyn FnMut(&str, &Finding)) -> Result<Counts, String> {
    let mut counts = Counts::new();
    for path in tracked(house)? {
        let count: fn(&str, &mut Vec<Finding>) -> Count = match path.rsplit_once('.') {
            Some((_, "rs")) => count::in_rust,
            Some((_, "md")) if !NOT_OURS.contains(&path.as_str()) => count::in_page,
            _ => continue,
        };
        let text =
            fs::read_to_string(house.root().join(&path)).map_err(|error| format!("{path}: {error}"))?;
        let mut findings = Vec::new();
        let found = count(&text, &mut findings);
        findings.iter().for_each(|finding| show(&path, finding));
        counts.entry(folder_of(&path)).or_default().add(found);
    }
    Ok(counts)
}

/// Returns the folder to which a file counts: its crate, or the folder below the root. Pages are counted together.
fn folder_of(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        [page] | [.., page] if page.ends_with(".md") => "pages".to_owned(),
        ["crates" | "tests", name, _, ..] => format!("{}/{name}", parts[0]),
        [folder, ..] => (*folder).to_owned(),
        [] => String::new(),
    }
}

fn tracked(house: &House) -> Result<Vec<String>, String> {
    let output = git(house, &["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
    let names = output.split('\0').filter(|name| house.root().join(name).is_file());
    Ok(names.map(str::to_owned).collect())
}

/// Compares the code of a revision with the code of the working tree, without comments and spaces.
fn unchanged(house: &House, revision: &str, paths: &[&str]) -> Result<ExitCode, String> {
    let mut arguments = vec!["diff", "--name-only", "-z", revision, "--"];
    arguments.extend(paths);
    let changed = git(house, &arguments)?;
    let mut differences = 0;
    for path in changed.split('\0').filter(|path| path.ends_with(".rs")) {
        let now = fs::read_to_string(house.root().join(path)).unwrap_or_default();
        let before = git(house, &["show", &format!("{revision}:{path}")]).unwrap_or_default();
        if let Some(difference) = first_difference(&before, &now) {
            println!("{path}: {difference}");
            differences += 1;
        }
    }
    if differences > 0 {
        return Err(format!("the code of {differences} files differs from {revision}"));
    }
    println!("no code differs from {revision}");
    Ok(ExitCode::SUCCESS)
}

/// Returns the first token that differs, with the tokens before it.
fn first_difference(before: &str, now: &str) -> Option<String> {
    let [before, now] = [before, now].map(|text| lexer::divide(text).code);
    if before == now {
        return None;
    }
    let at = before.iter().zip(&now).take_while(|(before, now)| before == now).count();
    let show = |code: &[String]| code[at.saturating_sub(5)..code.len().min(at + 5)].join(" ");
    Some(format!("`{}` was `{}`", show(&now), show(&before)))
}

fn git(house: &House, arguments: &[&str]) -> Result<String, String> {
    let output = house.command("git").args(arguments).output();
    let output = output.map_err(|error| format!("cannot run git: {error}"))?;
    if !output.status.success() {
        return Err(format!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_code_is_told_from_a_change_of_words() {
        let before = "/// What it is.\nfn a() { b(\"c // d\") } // E.\n";
        assert_eq!(first_difference(before, "/// The sum.\nfn a() {\n    b(\"c // d\")\n}\n"), None);
        let changed = first_difference(before, "/// What it is.\nfn a() { b(\"c // e\") } // E.\n");
        assert!(changed.is_some_and(|text| text.contains("c // e")));
    }

    #[test]
    fn a_folder_may_have_at_most_what_the_ratchet_says() {
        let limits = parse_limits("# A\ncrates/a\t1\t2\t3\n").unwrap();
        let with =
            |late| Counts::from([("crates/a".to_owned(), Count { comments: 9, late, short: 2, long: 3 })]);
        assert!(over_limit(&with(1), &limits).is_empty());
        assert_eq!(over_limit(&with(2), &limits).len(), 1);
        let other =
            Counts::from([("crates/b".to_owned(), Count { comments: 9, late: 1, short: 1, long: 1 })]);
        assert_eq!(over_limit(&other, &limits).len(), 3);
        assert!(parse_limits("crates/a\t1\n").is_err());
    }

    #[test]
    fn files_are_counted_by_crate() {
        let folders =
            ["crates/a/src/b.rs", "tests/soak/main.rs", "sim/src/main.rs", "docs/A.md", "README.md"];
        assert_eq!(folders.map(folder_of), ["crates/a", "tests/soak", "sim", "pages", "pages"]);
        assert_eq!(folder_of("crates/a/README.md"), "pages");
    }
}
