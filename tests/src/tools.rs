//! Clients in other languages, and a certificate authority, which `cargo xtask tools` installs.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Environment variable with the folder of the tools, which `cargo xtask test` sets.
const VARIABLE: &str = "PONDHAWK_TOOLS";

/// Makes a command for Python with paho-mqtt.
///
/// # Panics
/// If the tools are not installed.
pub fn python() -> Command {
    Command::new(installed("python/bin/python"))
}

/// Makes a command for schemathesis, which fuzzes an API by its OpenAPI document.
///
/// # Panics
/// If the tools are not installed.
pub fn schemathesis() -> Command {
    Command::new(installed("python/bin/schemathesis"))
}

/// Makes a command for Node.js with MQTT.js.
///
/// # Panics
/// If the tools are not installed.
pub fn node() -> Command {
    let modules = installed("javascript/node_modules");
    let mut node = Command::new("node");
    node.env("NODE_PATH", modules);
    node
}

/// Makes a command for the Go program that uses autopaho.
///
/// # Panics
/// If the tools are not installed.
pub fn autopaho() -> Command {
    Command::new(installed("go/talk"))
}

/// Returns the path of the Go program that publishes and receives with paho.golang as fast as possible.
///
/// # Panics
/// If the tools are not installed.
pub fn flood() -> PathBuf {
    installed("go/flood")
}

/// Returns the path of the Go program that is measured beside the example `pipeline` of the client library.
///
/// # Panics
/// If the tools are not installed.
pub fn peer_pipeline() -> PathBuf {
    installed("pipeline/pipeline")
}

/// Makes a command for the Java program that uses HiveMQ's client.
///
/// # Panics
/// If the tools are not installed.
pub fn hivemq(class: &str) -> Command {
    let [classes, libraries] = ["java/classes", "java/libraries"].map(installed);
    let mut java = Command::new("java");
    // A program that runs for a second needs neither an optimising compiler nor a collector with threads.
    java.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp"]);
    java.arg(format!("{}:{}/*", classes.display(), libraries.display())).arg(class);
    java
}

/// Returns the folder of the brokers of other authors.
///
/// # Panics
/// If they are not installed.
pub fn peers() -> PathBuf {
    let peers = installed("../peers");
    peers.canonicalize().expect("the folder was there")
}

/// Returns the path of Pebble, a certificate authority for tests of ACME.
///
/// # Panics
/// If the tools are not installed.
pub fn pebble() -> PathBuf {
    installed("pebble/pebble")
}

/// Returns the path of the name server that Pebble asks.
///
/// # Panics
/// If the tools are not installed.
pub fn pebble_names() -> PathBuf {
    installed("pebble/pebble-challtestsrv")
}

fn installed(path: &str) -> PathBuf {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools");
    let path = std::env::var_os(VARIABLE).map_or_else(default, PathBuf::from).join(path);
    assert!(path.exists(), "{} is missing: run `cargo xtask tools`", path.display());
    path
}
