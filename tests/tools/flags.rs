//! Which flags Mosquitto's programs have, from what they say themselves.

use std::process::Command;

/// Every flag in the help of this program: in its lines of usage, and with an explanation of its own.
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

#[test]
fn flags_are_found_in_usage_and_explanations() {
    let help = "Usage: x {[-h host] -t topic | -L URL}\n           [--tls-alpn protocol]\n -A : bind, see -B\n      more\n \
        --help : this\n";
    assert_eq!(of_text(help), ["-A", "--help", "-h", "-t", "-L", "--tls-alpn"]);
}
