//! The brokers and load balancers of other authors that `pondhawk shootout` compares, under `target/peers` or from Debian.

use std::fs;
use std::path::PathBuf;

use crate::house::House;
use crate::log::Log;
use crate::tools::{apt_command, install_packages, once};

/// A broker or a load balancer with the function that installs it.
struct Peer {
    name: &'static str,
    install: fn(&House, &mut Log) -> Result<(), String>,
}

/// The programs that come from package registries. `peers.toml` and `balancing/recipes.toml` in
/// `crates/bench/src/shootout` have the names too.
const PEERS: &[Peer] = &[
    Peer {
        name: "mosquitto",
        install: |house, log| install_packages(house, &[("mosquitto", "mosquitto")], log),
    },
    Peer {
        name: "rabbitmq",
        install: |house, log| install_packages(house, &[("rabbitmq-server", "rabbitmq-server")], log),
    },
    Peer { name: "mochi", install: |house, log| install_go(house, "mochi", "mochi", ".", log) },
    Peer {
        name: "nats",
        install: |house, log| {
            install_go(house, "nats", "nats-server", "github.com/nats-io/nats-server/v2", log)
        },
    },
    Peer { name: "aedes", install: install_aedes },
    Peer { name: "rumqttd", install: install_rumqttd },
    Peer { name: "hivemq", install: |house, log| install_java(house, "hivemq", log) },
    Peer { name: "moquette", install: |house, log| install_java(house, "moquette", log) },
    Peer { name: "haproxy", install: |house, log| install_packages(house, &[("haproxy", "haproxy")], log) },
    Peer { name: "nginx", install: |house, log| install_packages(house, &NGINX, log) },
    Peer { name: "ipvs", install: |house, log| install_packages(house, &[("ipvsadm", "ipvsadm")], log) },
];

/// Files of nginx and of its module for TCP, each with its package.
const NGINX: [(&str, &str); 2] =
    [("nginx", "nginx"), ("/usr/lib/nginx/modules/ngx_stream_module.so", "libnginx-mod-stream")];

/// The programs that tests start. Each takes at most two minutes to install.
pub(crate) const TESTED: [&str; 6] = ["mosquitto", "mochi", "nats", "aedes", "haproxy", "nginx"];

/// Installs the brokers and balancers with these names, or all. Goes on with the next one after one that failed.
///
/// # Errors
/// If there is none with one of the names, or if one cannot be installed.
pub(crate) fn install<S: AsRef<str>>(house: &House, names: &[S], log: &mut Log) -> Result<(), String> {
    let known = || PEERS.iter().map(|peer| peer.name).collect::<Vec<_>>().join(", ");
    let is_unknown = |name: &&S| PEERS.iter().all(|peer| peer.name != name.as_ref());
    if let Some(unknown) = names.iter().find(is_unknown) {
        return Err(format!("there is no broker or balancer `{}`; there are: {}", unknown.as_ref(), known()));
    }
    let is_wanted = |peer: &&Peer| names.is_empty() || names.iter().any(|name| name.as_ref() == peer.name);
    let failures: Vec<String> = PEERS
        .iter()
        .filter(is_wanted)
        .filter_map(|peer| Some(format!("{}: {}", peer.name, (peer.install)(house, log).err()?)))
        .collect();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// The folder of the sources and manifests of a broker.
fn sources(house: &House, name: &str) -> PathBuf {
    house.root().join("tests/peers").join(name)
}

/// Builds a program of the Go module of a broker.
fn install_go(house: &House, name: &str, program: &str, package: &str, log: &mut Log) -> Result<(), String> {
    let sources = sources(house, name);
    let files = ["go.mod", "go.sum", "main.go"].map(|file| sources.join(file));
    let inputs: Vec<PathBuf> = files.into_iter().filter(|file| file.is_file()).collect();
    once(&house.peers().join(name), &inputs, |folder, _| {
        let mut build = house.command("go");
        // A C compiler would change the result with the machine.
        build.current_dir(&sources).env("CGO_ENABLED", "0");
        build.args(["build", "-trimpath", "-o"]).arg(folder.join(program)).arg(package);
        log.run(&mut build).map_err(|error| {
            format!("{error}; Go is needed, of the version in {} or later", inputs[0].display())
        })
    })
}

/// Installs Aedes with its libraries beside the script that serves with it.
fn install_aedes(house: &House, log: &mut Log) -> Result<(), String> {
    let files = ["package.json", "package-lock.json", "server.js"];
    let inputs = files.map(|file| sources(house, "aedes").join(file));
    once(&house.peers().join("aedes"), &inputs, |folder, inputs| {
        for (file, input) in files.iter().zip(inputs) {
            fs::copy(input, folder.join(file)).map_err(|error| format!("{}: {error}", input.display()))?;
        }
        let mut npm = house.command("npm");
        // No script has to run: the package of LevelDB contains programs for all usual systems.
        npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix"]);
        log.run(npm.arg(folder)).map_err(|error| {
            format!("{error}; Node.js 20 or later with npm is needed; {}", on_debian(&["nodejs", "npm"]))
        })
    })
}

/// Builds a program around the library rumqttd, which takes minutes.
fn install_rumqttd(house: &House, log: &mut Log) -> Result<(), String> {
    let inputs = ["Cargo.toml", "Cargo.lock", "main.rs"].map(|file| sources(house, "rumqttd").join(file));
    once(&house.peers().join("rumqttd"), &inputs, |folder, inputs| {
        let built = folder.join("built");
        let mut build = house.cargo();
        build.args(["build", "--release", "--locked", "--manifest-path"]).arg(&inputs[0]);
        log.run(build.arg("--target-dir").arg(&built))?;
        let copy = fs::copy(built.join("release/rumqttd"), folder.join("rumqttd"));
        // The libraries take a gigabyte.
        copy.and_then(|_| fs::remove_dir_all(&built)).map_err(|error| format!("{}: {error}", built.display()))
    })
}

/// Installs a broker's libraries, and compiles the program that serves with them.
fn install_java(house: &House, name: &str, log: &mut Log) -> Result<(), String> {
    let inputs = ["pom.xml", "Main.java"].map(|file| sources(house, name).join(file));
    once(&house.peers().join(name), &inputs, |folder, inputs| {
        let needs = |error| {
            let packages = ["openjdk-17-jdk-headless", "maven"];
            format!("{error}; Java 17 or later with Maven is needed; {}", on_debian(&packages))
        };
        let libraries = folder.join("libraries");
        let mut maven = house.command("mvn");
        maven.args(["--batch-mode", "--quiet", "--strict-checksums", "--file"]).arg(&inputs[0]);
        maven.arg("dependency:copy-dependencies");
        log.run(maven.arg(format!("-DoutputDirectory={}", libraries.display()))).map_err(needs)?;
        let mut javac = house.command("javac");
        javac.arg("-cp").arg(libraries.join("*")).arg("-d").arg(folder.join("classes"));
        log.run(javac.arg(&inputs[1])).map_err(needs)
    })
}

fn on_debian(packages: &[&str]) -> String {
    format!("on Debian: {}", apt_command(packages))
}
