//! Clients of other languages that `cargo xtask tools` has installed.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Names the folder of the tools; `cargo xtask test` sets it.
const VARIABLE: &str = "PONDHAWK_TOOLS";

/// A Python that can import paho-mqtt.
///
/// # Panics
/// When the tools are not installed.
pub fn python() -> Command {
    Command::new(installed("python/bin/python"))
}

/// A Node.js that can require MQTT.js.
///
/// # Panics
/// When the tools are not installed.
pub fn node() -> Command {
    let modules = installed("javascript/node_modules");
    let mut node = Command::new("node");
    node.env("NODE_PATH", modules);
    node
}

/// The program in Go that talks with autopaho.
///
/// # Panics
/// When the tools are not installed.
pub fn autopaho() -> Command {
    Command::new(installed("go/talk"))
}

/// The path of the program in Go that publishes and receives with paho.golang as fast as it can.
///
/// # Panics
/// When the tools are not installed.
pub fn flood() -> PathBuf {
    installed("go/flood")
}

/// The program in Java that talks with HiveMQ's client.
///
/// # Panics
/// When the tools are not installed.
pub fn hivemq() -> Command {
    let [classes, libraries] = ["java/classes", "java/libraries"].map(installed);
    let mut java = Command::new("java");
    // What a program that lives for a second needs: no compiler that pays off later, no collector with threads.
    java.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp"]);
    java.arg(format!("{}:{}/*", classes.display(), libraries.display())).arg("Talk");
    java
}

fn installed(path: &str) -> PathBuf {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools");
    let path = std::env::var_os(VARIABLE).map_or_else(default, PathBuf::from).join(path);
    assert!(path.exists(), "{} is missing: run `cargo xtask tools`", path.display());
    path
}
