//! Which binary the tests run.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Names the binary to test; `cargo xtask test` sets it to the one it has built.
const VARIABLE: &str = "PONDHAWK_BIN";

/// The path of the `pondhawk` binary: what `PONDHAWK_BIN` names, or else what cargo builds now from the sources, in
/// the profile of the test that asks.
///
/// # Panics
/// When it cannot be built.
pub fn pondhawk() -> PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    let build = || build("pondhawk", "--bin", "pondhawk");
    BINARY.get_or_init(|| std::env::var_os(VARIABLE).map_or_else(build, PathBuf::from)).clone()
}

/// The path of the broker that writes a trace: where the running program lies if it is there, or else what cargo builds
/// now.
///
/// # Panics
/// When it cannot be built.
pub(crate) fn recorded() -> PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    let beside = || {
        let path = std::env::current_exe().ok()?.with_file_name(RECORDED);
        path.exists().then_some(path)
    };
    BINARY.get_or_init(|| beside().unwrap_or_else(|| build("pondhawk-tests", "--bin", RECORDED))).clone()
}

const RECORDED: &str = "pondhawk-recorded";

/// The path of one of the client library's examples, which cargo builds now.
///
/// # Panics
/// When it cannot be built.
pub fn example(name: &str) -> PathBuf {
    build("pondhawk-client", "--example", name)
}

/// `kind` is what cargo calls it: `--bin` or `--example`.
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

/// The value of the only `"executable":"…"` among cargo's messages.
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
