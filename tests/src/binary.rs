//! Which binary the tests run.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Names the folder where `cargo xtask test` has built everything that tests run. Without it they ask cargo, which builds
/// from the sources as they are now.
const BUILT: &str = "PONDHAWK_BUILT";

/// The path of the `pondhawk` binary.
///
/// # Panics
/// When it cannot be built.
pub fn pondhawk() -> PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| built("pondhawk").unwrap_or_else(|| build("pondhawk", "--bin", "pondhawk"))).clone()
}

/// The path of the broker that writes a trace.
///
/// # Panics
/// When it cannot be built.
pub(crate) fn recorded() -> PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    let build = || build("pondhawk-tests", "--bin", "pondhawk-recorded");
    BINARY.get_or_init(|| built("pondhawk-recorded").unwrap_or_else(build)).clone()
}

/// The path of one of the client library's examples.
///
/// # Panics
/// When it cannot be built.
pub fn example(name: &str) -> PathBuf {
    built(&format!("examples/{name}")).unwrap_or_else(|| build("pondhawk-client", "--example", name))
}

/// The path of a program in the folder of those that are built.
fn built(program: &str) -> Option<PathBuf> {
    std::env::var_os(BUILT).map(|folder| PathBuf::from(folder).join(program)).filter(|path| path.exists())
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
