//! Who may know whom.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// What a crate may be built from.
struct Rule {
    /// The package, without the prefix `pondhawk-`.
    name: &'static str,
    layer: Layer,
    /// The house's own crates it may use.
    house: &'static [&'static str],
    /// The only foreign crates it may use; nothing here: any that is not [`RESERVED`].
    foreign: Option<&'static [&'static str]>,
}

/// Imports run downward only. A crate's tests may use its own layer too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    /// The words of the protocol.
    Words,
    /// No sockets, files, threads, clock, randomness.
    Core,
    /// Threads and sockets, no async.
    DataPlane,
    /// Async lives here.
    ControlPlane,
    /// What is run.
    Binary,
}

const fn rule(name: &'static str, layer: Layer, house: &'static [&'static str]) -> Rule {
    Rule { name, layer, house, foreign: None }
}

const fn pure(
    name: &'static str,
    layer: Layer,
    house: &'static [&'static str],
    foreign: &'static [&'static str],
) -> Rule {
    Rule { name, layer, house, foreign: Some(foreign) }
}

/// Every crate there may be; those that do not exist yet have their place already.
const RULES: &[Rule] = &[
    pure("topic", Layer::Words, &[], &[]),
    pure("wire", Layer::Words, &["topic"], &[]),
    pure("ldap", Layer::Words, &[], &[]),
    pure("capture", Layer::Words, &["wire"], &[]),
    pure("base", Layer::Core, &["topic", "wire"], &["foldhash", "thin-vec"]),
    pure("index", Layer::Core, &["topic", "wire", "base"], &["foldhash", "hashbrown", "thin-vec"]),
    pure("session", Layer::Core, &["topic", "wire", "base"], &["foldhash", "hashbrown", "thin-vec"]),
    // What shards and the ledger tell each other.
    pure("protocol", Layer::Core, &["wire", "base", "index"], &[]),
    pure(
        "auth",
        Layer::Core,
        &["topic", "wire", "base"],
        &["argon2", "base64", "ipnet", "pbkdf2", "ring", "serde", "serde_json", "sha2", "subtle"],
    ),
    // The ledger's records, and their bytes. A cluster sends them elsewhere.
    pure("record", Layer::Core, &["topic", "wire", "base", "protocol"], &[]),
    pure(
        "ledger",
        Layer::Core,
        &["topic", "wire", "base", "index", "protocol", "record", "auth"],
        &["foldhash", "hashbrown", "smallvec"],
    ),
    pure(
        "broker",
        Layer::Core,
        &["topic", "wire", "base", "index", "session", "protocol", "auth"],
        &["bytes", "foldhash", "hashbrown", "slab"],
    ),
    // The connections that an event loop reads and writes.
    pure("stream", Layer::Core, &["base"], &[]),
    // The event loops: what a thread does in a turn, without the thread.
    pure(
        "turn",
        Layer::Core,
        &["topic", "wire", "base", "index", "protocol", "stream", "auth", "ledger", "broker"],
        &["foldhash"],
    ),
    // TLS needs a clock and random numbers, which rustls brings along, and QUIC random numbers.
    pure(
        "layers",
        Layer::DataPlane,
        &["base", "stream"],
        &["base64", "bytes", "httparse", "proxy-header", "quinn-proto", "rustls", "sha1", "x509-parser"],
    ),
    rule(
        "net",
        Layer::DataPlane,
        &[
            "topic", "wire", "base", "index", "session", "protocol", "ledger", "auth", "broker", "stream",
            "turn", "layers",
        ],
    ),
    rule("journal", Layer::DataPlane, &["topic", "wire", "base", "protocol", "ledger", "record"]),
    rule("config", Layer::ControlPlane, &["topic", "wire", "auth", "ldap"]),
    // It writes our configuration as text, and knows nothing else of it.
    pure("mosquitto", Layer::ControlPlane, &[], &["strsim"]),
    rule("client", Layer::ControlPlane, &["topic", "wire", "base", "session"]),
    rule(
        "admin",
        Layer::ControlPlane,
        &[
            "topic", "wire", "capture", "base", "protocol", "ledger", "auth", "broker", "layers", "net",
            "config",
        ],
    ),
    rule("cluster", Layer::ControlPlane, &["topic", "wire", "ledger", "broker", "config"]),
    rule("cli", Layer::Binary, &["topic", "wire", "capture", "client"]),
    // It measures the ledger too, in its event loop, alone and on its journal, without a server around it.
    rule(
        "bench",
        Layer::Binary,
        &["topic", "wire", "base", "index", "protocol", "ledger", "turn", "record", "journal", "client"],
    ),
    rule(
        "sim",
        Layer::Binary,
        &[
            "topic", "wire", "base", "index", "session", "protocol", "ledger", "auth", "broker", "stream",
            "turn", "record", "journal", "capture",
        ],
    ),
    // The forms of the fuzzers' inputs. The fuzz targets are no part of the workspace.
    pure("inputs", Layer::Binary, &["wire"], &[]),
    // It builds the broker once more, with another file layer below the journal.
    rule(
        "tests",
        Layer::Binary,
        &["topic", "wire", "session", "auth", "client", "journal", "mosquitto", "pondhawk"],
    ),
    rule(
        "pondhawk",
        Layer::Binary,
        &[
            "topic",
            "wire",
            "base",
            "index",
            "session",
            "protocol",
            "ledger",
            "auth",
            "broker",
            "layers",
            "ldap",
            "net",
            "record",
            "journal",
            "config",
            "mosquitto",
            "admin",
            "cluster",
            "cli",
            "bench",
        ],
    ),
    // It builds the others, so it must build when they do not.
    rule("xtask", Layer::Binary, &[]),
];

/// Names of the crates below all sockets, files and threads.
pub(crate) fn core() -> impl Iterator<Item = &'static str> {
    RULES.iter().filter(|rule| rule.layer <= Layer::Core).map(|rule| rule.name)
}

/// Foreign crates with one place in the house each.
const RESERVED: &[(&str, &[&str])] = &[
    ("mio", &["net", "bench"]),
    ("polling", &[]),
    ("tokio", &["admin", "cluster", "client", "cli", "pondhawk", "tests"]),
    ("async-std", &[]),
    ("axum", &["admin"]),
    ("hyper", &["admin"]),
    ("hyper-util", &["admin"]),
    ("async-nats", &["cluster"]),
    ("rustls", &["layers", "client", "admin", "bench", "pondhawk"]),
    ("quinn", &["client"]),
    ("quinn-proto", &["layers", "bench", "tests"]),
    ("quinn-udp", &["net"]),
    ("tungstenite", &["client", "bench"]),
    ("instant-acme", &["pondhawk"]),
    ("toml", &["config", "bench"]),
    ("clap", &["pondhawk", "cli", "bench", "xtask"]),
    ("rand", &["bench", "sim"]),
];

/// A package and what it is built from.
#[derive(Debug)]
pub(crate) struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Debug)]
struct Dependency {
    name: String,
    is_of_tests: bool,
}

/// The packages of a workspace, from cargo itself.
pub(crate) fn packages_of(root: &Path) -> Vec<Package> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let metadata = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .expect("cargo can be run");
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    packages(&serde_json::from_slice(&metadata.stdout).expect("cargo prints JSON"))
}

fn packages(metadata: &Value) -> Vec<Package> {
    let dependency = |value: &Value| Dependency {
        name: own_name(value["name"].as_str().expect("a dependency has a name")),
        is_of_tests: value["kind"].as_str() == Some("dev"),
    };
    let list = |value: &Value| value.as_array().cloned().expect("a list");
    let package = |value: &Value| Package {
        name: own_name(value["name"].as_str().expect("a package has a name")),
        dependencies: list(&value["dependencies"]).iter().map(dependency).collect(),
    };
    list(&metadata["packages"]).iter().map(package).collect()
}

fn own_name(package: &str) -> String {
    package.strip_prefix("pondhawk-").unwrap_or(package).to_owned()
}

/// Every edge that the table does not allow.
pub(crate) fn findings(packages: &[Package]) -> Vec<String> {
    packages
        .iter()
        .flat_map(|package| match rule_of(&package.name) {
            None => vec![format!("{}: not in the table of tests/architecture/crates.rs", package.name)],
            Some(rule) => {
                package.dependencies.iter().filter_map(|dependency| refuse(rule, dependency)).collect()
            }
        })
        .collect()
}

fn rule_of(name: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.name == name)
}

fn refuse(rule: &Rule, dependency: &Dependency) -> Option<String> {
    let is_allowed = match (rule_of(&dependency.name), dependency.is_of_tests) {
        (Some(of_house), true) => of_house.layer <= rule.layer,
        (Some(of_house), false) => rule.house.contains(&of_house.name),
        (None, true) => true,
        (None, false) => {
            let reserved = RESERVED.iter().find(|(name, _)| *name == dependency.name);
            rule.foreign.is_none_or(|foreign| foreign.contains(&dependency.name.as_str()))
                && reserved.is_none_or(|(_, places)| places.contains(&rule.name))
        }
    };
    (!is_allowed).then(|| format!("{} may not depend on {}", rule.name, dependency.name))
}

#[test]
fn an_edge_that_runs_upward_is_found() {
    let findings = |name: &str, dependencies: &[(&str, bool)]| {
        let dependency = |(name, is_of_tests): &(&str, bool)| Dependency {
            name: (*name).to_owned(),
            is_of_tests: *is_of_tests,
        };
        let dependencies = dependencies.iter().map(dependency).collect();
        super::crates::findings(&[Package { name: name.to_owned(), dependencies }])
    };
    assert!(findings("session", &[("wire", false), ("topic", false), ("proptest", true)]).is_empty());
    assert_eq!(findings("wire", &[("index", false)]), ["wire may not depend on index"]);
    assert_eq!(findings("session", &[("index", false)]), ["session may not depend on index"]);
    assert_eq!(findings("broker", &[("ledger", false)]), ["broker may not depend on ledger"]);
    assert_eq!(findings("ledger", &[("session", false)]), ["ledger may not depend on session"]);
    assert!(findings("session", &[("index", true)]).is_empty(), "tests may use their own layer");
    assert_eq!(findings("session", &[("net", true)]), ["session may not depend on net"]);
    assert_eq!(findings("broker", &[("tokio", false)]), ["broker may not depend on tokio"]);
    assert_eq!(findings("journal", &[("mio", false)]), ["journal may not depend on mio"]);
    assert_eq!(findings("net", &[("config", false), ("mio", false)]), ["net may not depend on config"]);
    assert_eq!(findings("attic", &[]).len(), 1, "a crate that nobody placed");
}

#[test]
fn the_table_itself_runs_downward() {
    for rule in RULES {
        for used in rule.house {
            let used = rule_of(used).unwrap_or_else(|| panic!("{used} is not in the table"));
            assert!(used.layer <= rule.layer, "{} uses {}", rule.name, used.name);
            assert!(!used.house.contains(&rule.name), "{} and {} use each other", rule.name, used.name);
        }
    }
}

#[test]
fn packages_are_read_from_what_cargo_prints() {
    let metadata = serde_json::json!({"packages": [{"name": "pondhawk-wire", "dependencies": [
        {"name": "pondhawk-topic", "kind": null}, {"name": "proptest", "kind": "dev"}]}]});
    let packages = packages(&metadata);
    assert_eq!(packages[0].name, "wire");
    assert_eq!(packages[0].dependencies[0].name, "topic");
    assert!(packages[0].dependencies[1].is_of_tests);
}
