//! Finds or builds the programs that tests run.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Environment variable with the folder in which `cargo xtask test` has built all programs of tests.
///
/// Without the variable, tests run cargo, which builds the programs from the current sources.
const BUILT: &str = "PONDHAWK_BUILT";

/// Returns the path of the `pondhawk` binary.
///
/// # Panics
/// If the binary cannot be built.
pub fn pondhawk() -> PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| built("pondhawk").unwrap_or_else(|| build("pondhawk", "--bin", "pondhawk"))).clone()
}

/// Returns the path of the broker that writes a trace.
///
/// # Panics
/// If the binary cannot be built.
pub(crate) fn recorded() -> PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    let build = || build("pondhawk-tests", "--bin", "pondhawk-recorded");
    BINARY.get_or_init(|| built("pondhawk-recorded").unwrap_or_else(build)).clone()
}

/// Returns the path of the server that mistreats messages.
///
/// # Panics
/// If the binary cannot be built.
pub fn liar() -> PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| built("liar").unwrap_or_else(|| build("pondhawk-tests", "--bin", "liar"))).clone()
}

/// Returns the path of an example of the client library.
///
/// # Panics
/// If the example cannot be built.
pub fn example(name: &str) -> PathBuf {
    built(&format!("examples/{name}")).unwrap_or_else(|| build("pondhawk-client", "--example", name))
}

/// Returns the path of a program in the folder of built programs, if the program is there.
fn built(program: &str) -> Option<PathBuf> {
    std::env::var_os(BUILT).map(|folder| PathBuf::from(folder).join(program)).filter(|path| path.exists())
}

/// Builds a program, and returns its path. `kind` is cargo's argument, `--bin` or `--example`.
fn build(package: &str, kind: &str, binary: &str) -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args([
        "build",
        "--quiet",
        "--package",
        package,
        kind,
        binary,
        "--message-format",
        "json-render-diagnostics",
    ]);
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    let output = command.stderr(Stdio::inherit()).output().expect("cargo can be run");
    assert!(output.status.success(), "{binary} cannot be built");
    let messages = String::from_utf8_lossy(&output.stdout);
    executable(&messages).expect("cargo names the binary that it has built")
}

/// Returns the value of the only `"executable":"…"` in cargo's messages.
fn executable(messages: &str) -> Option<PathBuf> {
    let (_, rest) = messages.split_once("\"executable\":\"")?;
    let (path, _) = rest.split_once('"')?;
    Some(PathBuf::from(path.replace("\\\\", "\\")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_is_found_among_cargos_messages() {
        let messages = "{\"executable\":null}\n{\"executable\":\"/target/debug/pondhawk\",\"fresh\":true}\n";
        assert_eq!(executable(messages), Some(PathBuf::from("/target/debug/pondhawk")));
        assert_eq!(executable("{\"executable\":null}"), None);
    }
}
