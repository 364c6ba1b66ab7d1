//! Tools that tests need besides Rust: Debian packages, and MQTT clients of other languages and a certificate authority under
//! `target/tools`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::house::House;
use crate::log::Log;
use crate::shootout;

/// Programs that tests run, each with the Debian package that contains it.
const PROGRAMS: &[(&str, &str)] = &[
    ("mosquitto", "mosquitto"),
    ("mosquitto_pub", "mosquitto-clients"),
    ("mosquitto_sub", "mosquitto-clients"),
    ("mosquitto_rr", "mosquitto-clients"),
    ("openssl", "openssl"),
    // Makes a terminal for programs.
    ("script", "bsdutils"),
    // A directory with users.
    ("slapd", "slapd"),
    ("python3", "python3"),
    ("node", "nodejs"),
    ("npm", "npm"),
    ("go", "golang"),
    ("javac", "openjdk-17-jdk-headless"),
    ("mvn", "maven"),
    ("c++", "g++"),
    // Looks at the unit of the packages.
    ("systemd-analyze", "systemd"),
    // Makes the RPM package.
    ("rpmbuild", "rpm"),
    // Look at the Debian package, and install it in a system of its own.
    ("lintian", "lintian"),
    ("adduser", "adduser"),
    ("ip", "iproute2"),
    // Looks at the dashboard.
    ("chromium", "chromium"),
    // Scrapes the broker, and evaluates the rules for alerts.
    ("prometheus", "prometheus"),
    ("promtool", "prometheus"),
    // Reads the options of the add-on for Home Assistant.
    ("jq", "jq"),
];

/// Installs all tools that tests need.
///
/// # Errors
/// If a tool is missing and cannot be installed. The error contains the command for a manual installation.
pub(crate) fn install(house: &House, log: &mut Log) -> Result<(), String> {
    install_packages(house, PROGRAMS, log)?;
    let lists = ["requirements.txt", "schemathesis.txt", "cyclonedx.txt"];
    let python = lists.map(|file| house.root().join("tests/clients/python").join(file));
    once(&house.tools().join("python"), &python, |folder, lists| install_python(house, folder, lists, log))?;
    let manifests = ["package.json", "package-lock.json"];
    let javascript = manifests.map(|file| house.root().join("tests/clients/javascript").join(file));
    once(&house.tools().join("javascript"), &javascript, |folder, inputs| {
        for (file, input) in manifests.iter().zip(inputs) {
            fs::copy(input, folder.join(file)).map_err(|error| format!("{}: {error}", input.display()))?;
        }
        log.run(house.command("npm").args(["ci", "--no-audit", "--no-fund", "--prefix"]).arg(folder))
    })?;
    let sources = house.root().join("tests/clients/go");
    let go = ["go.mod", "go.sum", "client.go", "link.go", "main.go", "flood/main.go"]
        .map(|file| sources.join(file));
    once(&house.tools().join("go"), &go, |folder, _| {
        [("talk", "."), ("flood", "./flood")]
            .into_iter()
            .try_for_each(|(program, package)| build_go(house, &sources, &folder.join(program), package, log))
    })?;
    install_pipeline(house, log)?;
    install_pebble(house, log)?;
    install_java(house, log)?;
    shootout::install(house, &shootout::TESTED, log)
}

/// Installs a C compiler for other machines, with the cargo command that uses it. Returns the value of `PATH` with both.
///
/// # Errors
/// If they cannot be installed.
pub(crate) fn with_zig(house: &House, log: &mut Log) -> Result<std::ffi::OsString, String> {
    let folder = house.tools().join("zig");
    let list = house.root().join("packaging/zig.txt");
    once(&folder, &[list], |folder, lists| install_python(house, folder, lists, log))?;
    let folders = env::var_os("PATH").unwrap_or_default();
    let all = [folder.join("bin")].into_iter().chain(env::split_paths(&folders));
    env::join_paths(all).map_err(|error| error.to_string())
}

/// Installs the Python packages of some lists into an environment of their own.
fn install_python(house: &House, folder: &Path, lists: &[PathBuf], log: &mut Log) -> Result<(), String> {
    log.run(house.command("python3").args(["-m", "venv"]).arg(folder))
        .map_err(|error| format!("{error}; on Debian: {}", apt_command(&["python3-venv"])))?;
    let mut pip = house.command(folder.join("bin/python"));
    pip.args(["-m", "pip", "install", "--require-hashes"]);
    for list in lists {
        pip.arg("--requirement").arg(list);
    }
    log.run(&mut pip)
}

/// Builds the program in Go that is measured beside the client library's example of a pipeline.
fn install_pipeline(house: &House, log: &mut Log) -> Result<(), String> {
    let sources = house.root().join("crates/bench/peers/pipeline");
    let inputs = ["go.mod", "go.sum", "main.go"].map(|file| sources.join(file));
    once(&house.tools().join("pipeline"), &inputs, |folder, _| {
        build_go(house, &sources, &folder.join("pipeline"), ".", log)
    })
}

/// Builds a package of a module in Go.
///
/// # Errors
/// If Go is missing, or the package does not compile.
pub(crate) fn build_go(
    house: &House,
    module: &Path,
    program: &Path,
    package: &str,
    log: &mut Log,
) -> Result<(), String> {
    let mut build = house.command("go");
    build.current_dir(module).args(["build", "-o"]).arg(program).arg(package);
    log.run(&mut build).map_err(|error| format!("{error}; Go 1.25 or later is needed: https://go.dev/dl"))
}

/// Builds a certificate authority for tests of ACME, and the name server that it asks.
fn install_pebble(house: &House, log: &mut Log) -> Result<(), String> {
    let sources = house.root().join("tests/clients/pebble");
    let inputs = ["go.mod", "go.sum"].map(|file| sources.join(file));
    once(&house.tools().join("pebble"), &inputs, |folder, _| {
        ["pebble", "pebble-challtestsrv"].into_iter().try_for_each(|program| {
            let package = format!("github.com/letsencrypt/pebble/v2/cmd/{program}");
            build_go(house, &sources, &folder.join(program), &package, log)
        })
    })
}

/// Installs HiveMQ's client with its libraries, and compiles the program that uses it. A run then takes about a
/// second.
fn install_java(house: &House, log: &mut Log) -> Result<(), String> {
    let sources = house.root().join("tests/clients/java");
    let files =
        ["pom.xml", "Client.java", "Client3.java", "Client5.java", "Link.java", "Scram.java", "Talk.java"];
    let inputs = files.map(|file| sources.join(file));
    once(&house.tools().join("java"), &inputs, |folder, inputs| {
        let libraries = folder.join("libraries");
        let mut maven = house.command("mvn");
        maven.args(["--batch-mode", "--quiet", "--strict-checksums", "--file"]).arg(&inputs[0]);
        maven.arg("dependency:copy-dependencies");
        log.run(maven.arg(format!("-DoutputDirectory={}", libraries.display())))?;
        let mut javac = house.command("javac");
        javac.arg("-cp").arg(libraries.join("*")).arg("-d").arg(folder.join("classes"));
        log.run(javac.args(&inputs[1..])).map_err(|error| {
            format!(
                "{error}; Java 17 or later is needed; on Debian: {}",
                apt_command(&["openjdk-17-jdk-headless"])
            )
        })
    })
}

/// Fills a folder, unless the folder was filled from the same inputs before.
///
/// # Errors
/// If an input cannot be read, or the folder cannot be filled.
pub(crate) fn once(
    folder: &Path,
    inputs: &[PathBuf],
    fill: impl FnOnce(&Path, &[PathBuf]) -> Result<(), String>,
) -> Result<(), String> {
    let read =
        |path: &PathBuf| fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()));
    let wanted = inputs.iter().map(read).collect::<Result<String, String>>()?;
    let stamp = folder.join("installed-from");
    if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    let in_folder = |error: std::io::Error| format!("{}: {error}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(in_folder)?;
    }
    fs::create_dir_all(folder).map_err(in_folder)?;
    fill(folder, inputs)?;
    fs::write(&stamp, wanted).map_err(in_folder)
}

/// Installs the packages of missing programs, if this user is allowed to. Each program, or absolute path, comes with its
/// package.
///
/// # Errors
/// If a program is missing and cannot be installed. The error contains the command for a manual installation.
pub(crate) fn install_packages(
    house: &House,
    programs: &[(&str, &'static str)],
    log: &mut Log,
) -> Result<(), String> {
    let mut packages: Vec<&str> =
        programs.iter().filter(|(program, _)| !is_there(program)).map(|(_, package)| *package).collect();
    packages.dedup();
    if packages.is_empty() {
        return Ok(());
    }
    let by_hand = format!("missing: {}. Install with: {}", packages.join(" "), apt_command(&packages));
    if !is_there("apt-get") {
        return Err(format!("{by_hand} (or what your system has for it)"));
    }
    let Some(become_root) = way_to_root(house) else { return Err(by_hand) };
    let mut apt = |arguments: &[&str]| {
        let words: Vec<&str> =
            become_root.iter().copied().chain(["apt-get"]).chain(arguments.iter().copied()).collect();
        log.run(house.command(words[0]).args(&words[1..]).env("DEBIAN_FRONTEND", "noninteractive"))
    };
    apt(&["update"])?;
    let install = ["install", "--yes", "--no-install-recommends"];
    apt(&[&install[..], &packages].concat()).map_err(|error| format!("{error}; {by_hand}"))
}

/// The command with which a user installs packages.
pub(crate) fn apt_command(packages: &[&str]) -> String {
    format!("sudo apt-get install --no-install-recommends {}", packages.join(" "))
}

/// Returns the words that precede a command to run it as root; `None` if that would need a password.
pub(crate) fn way_to_root(house: &House) -> Option<&'static [&'static str]> {
    let user = house.command("id").arg("-u").output().ok()?;
    if user.stdout.trim_ascii() == b"0" {
        return Some(&[]);
    }
    let sudo = house.command("sudo").args(["--non-interactive", "true"]).output().ok()?;
    sudo.status.success().then_some(&["sudo", "--non-interactive"])
}

/// Whether a program is installed. Debian puts servers into a folder that a user's `PATH` may not contain.
pub(crate) fn is_there(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    // An absolute path stays the same.
    folders.map(|folder| folder.join(program)).any(|file| file.is_file())
}

/// Returns the path of a program from crates.io. The first call builds the program, which takes minutes.
///
/// # Errors
/// If the program cannot be built.
pub(crate) fn cargo_program(house: &House, name: &str, log: &mut Log) -> Result<PathBuf, String> {
    let folder = house.tools().join("cargo");
    let program = folder.join("bin").join(name);
    if !program.is_file() {
        let mut install = house.cargo();
        log.run(install.args(["install", "--locked", name, "--root"]).arg(&folder))?;
    }
    Ok(program)
}

/// Compares the public items of all packages with those of a revision, and reports incompatible changes.
///
/// # Errors
/// If cargo-semver-checks cannot be built, or finds a change that the version numbers do not allow.
pub(crate) fn semver(house: &House, revision: &str, log: &mut Log) -> Result<(), String> {
    let program = cargo_program(house, "cargo-semver-checks", log)?;
    log.run(house.command(program).args(["semver-checks", "--workspace", "--baseline-rev", revision]))
}

/// The same since the last release. Before the first release there is nothing to compare with.
///
/// # Errors
/// As [`semver`].
pub(crate) fn semver_since_release(house: &House, log: &mut Log) -> Result<(), String> {
    let mut git = house.command("git");
    git.args([
        "tag",
        "--list",
        "v[0-9]*",
        "--merged",
        "HEAD",
        "--no-contains",
        "HEAD",
        "--sort",
        "-v:refname",
    ]);
    let found = git.output().map_err(|error| format!("cannot run git: {error}"))?;
    if !found.status.success() {
        return Err(format!("git tag: {}", String::from_utf8_lossy(&found.stderr)));
    }
    if let Some(tag) = String::from_utf8_lossy(&found.stdout).lines().next() {
        return semver(house, tag.trim(), log);
    }
    log.note("there is no earlier tag such as v0.1.0, and so no release to compare with");
    Ok(())
}

/// Checks licences, sources and duplicates of all dependencies.
///
/// # Errors
/// If cargo-deny cannot be built, or finds something that `deny.toml` does not allow.
pub(crate) fn deny(house: &House, log: &mut Log) -> Result<(), String> {
    let program = cargo_program(house, "cargo-deny", log)?;
    log.run(house.command(program).args(["--workspace", "check", "licenses", "bans", "sources"]))
}
