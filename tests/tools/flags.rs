//! Finds the flags of Mosquitto's programs in their help, and the flags in a row.

use std::process::Command;

/// Returns every flag in the help of a program: flags in lines of usage, and flags with an explanation.
pub(crate) fn of_help(tool: &str) -> Vec<String> {
    let program = format!("mosquitto_{tool}");
    let output =
        Command::new(&program).arg("--help").output().unwrap_or_else(|error| panic!("{program}: {error}"));
    let mut flags = of_text(&String::from_utf8_lossy(&output.stdout));
    flags.sort();
    flags.dedup();
    flags
}

fn of_text(help: &str) -> Vec<String> {
    let is_usage = |line: &&str| {
        let line = line.trim_start();
        line.starts_with(['[', '{']) || line.starts_with("Usage:")
    };
    let explained = help.lines().filter_map(|line| line.strip_prefix(" -")?.split_once(" :"));
    let explained = explained.map(|(flag, _)| format!("-{flag}"));
    let used = help.lines().filter(is_usage).flat_map(|line| line.split([' ', '[', ']', '{', '}', '|']));
    let used = used.filter(|word| word.len() > 1 && word.starts_with('-')).map(str::to_owned);
    explained.chain(used).collect()
}

/// Flags without a value. All other flags have a value.
const ALONE: &[&str] = &[
    "-c",
    "--disable-clean-session",
    "-d",
    "--debug",
    "-E",
    "--help",
    "--insecure",
    "-l",
    "--stdin-line",
    "-N",
    "-n",
    "--null-message",
    "--nodelay",
    "--pretty",
    "--quiet",
    "-R",
    "-r",
    "--retain",
    "--remove-retained",
    "--retain-as-published",
    "--retained-only",
    "-s",
    "--stdin-file",
    "--tls-use-os-certs",
    "-v",
    "--verbose",
    "--version",
    "--will-retain",
];

/// Splits the words of a row into flags, each with its values.
pub(crate) fn split(words: &[String]) -> Vec<&[String]> {
    let mut rest = words;
    let mut flags = Vec::new();
    while let Some(flag) = rest.first().map(String::as_str) {
        let count = match flag {
            "-D" | "--property" if rest.get(2).is_some_and(|name| name == "user-property") => 5,
            "-D" | "--property" => 4,
            flag if ALONE.contains(&flag) || !flag.starts_with('-') => 1,
            _ => 2,
        };
        let (these, behind) = rest.split_at(count.min(rest.len()));
        flags.push(these);
        rest = behind;
    }
    flags
}

/// Returns only the flags, without values that look like flags.
pub(crate) fn of_words(words: &[String]) -> Vec<&String> {
    split(words).into_iter().filter_map(<[String]>::first).filter(|word| word.starts_with('-')).collect()
}

#[test]
fn a_value_is_no_flag() {
    let words = ["-m", "-q", "-D", "publish", "user-property", "-r", "-x", "-v"].map(str::to_owned);
    assert_eq!(of_words(&words), ["-m", "-D", "-v"]);
}

#[test]
fn flags_are_found_in_usage_and_explanations() {
    let help = "Usage: x {[-h host] -t topic | -L URL}\n           [--tls-alpn protocol]\n -A : bind, see -B\n      more\n \
        --help : this\n";
    assert_eq!(of_text(help), ["-A", "--help", "-h", "-t", "-L", "--tls-alpn"]);
}
