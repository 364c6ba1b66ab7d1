//! Files of `packaging/` whose keys, ports, paths and versions must be those of the broker: the chart for Kubernetes, the
//! add-on for Home Assistant, and what package managers build from.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pondhawk_tests::packet::Connect;
use pondhawk_tests::{Broker, Options, RawClient, Version, install, packet};
use tempfile::TempDir;

use crate::admin::Server;

/// Address of the pod in these tests.
const POD_IP: &str = "192.0.2.7";
/// Tokens in the Secret of the chart.
const TOKENS: [(&str, &str); 2] =
    [("admin-token", "admin-0123456789-0123456789"), ("viewer-token", "viewer-0123456789-0123456789")];

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging")
}

fn read(file: &str) -> String {
    fs::read_to_string(packaging().join(file)).expect("a file of the packaging")
}

fn pondhawk(arguments: &[&str]) -> Command {
    let mut command = Command::new(pondhawk_tests::pondhawk());
    command.args(arguments);
    command
}

/// The command that makes certificates in a directory.
fn certificates(directory: &Path) -> Command {
    let mut command = pondhawk(&["certs", "init"]);
    command.arg(directory).args(["--host", "localhost"]);
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// The configuration in the values of the chart, with the listener for TLS, and with the files of the chart in a directory.
fn configuration_of_chart(directory: &Path) -> String {
    let values = read("helm/pondhawk/values.yaml");
    let block = values.split("\nconfig: |\n").nth(1).expect("the values have a configuration");
    let lines = block.lines().take_while(|line| line.is_empty() || line.starts_with("  "));
    let text: String =
        lines.map(|line| format!("{}\n", line.strip_prefix("  ").unwrap_or_default())).collect();
    let files = ["secret", "tls", "data"].map(|folder| directory.join(folder));
    files.iter().for_each(|folder| fs::create_dir_all(folder).expect("the directory is ours"));
    fs::write(files[0].join("users"), "").expect("the directory is ours");
    for (name, token) in TOKENS {
        fs::write(files[0].join(name), token).expect("the directory is ours");
    }
    let made = certificates(&directory.join("made")).output().expect("it can be run");
    assert!(made.status.success(), "{}", said(&made));
    for (from, to) in [("server.pem", "tls.crt"), ("server.key", "tls.key")] {
        fs::copy(directory.join("made").join(from), files[1].join(to)).expect("a certificate was made");
    }
    let text = text.replace("/etc/pondhawk", directory.to_str().expect("it is text"));
    let text = text.replace("/var/lib/pondhawk", files[2].to_str().expect("it is text"));
    let (before, listener) = text.split_once("# With a certificate").expect("a listener for TLS");
    let (_, listener) = listener.split_once('\n').expect("it is behind its title");
    let listener: String =
        listener.lines().map(|line| format!("{}\n", line.trim_start_matches("# "))).collect();
    format!("{before}{listener}")
}

#[test]
fn the_configuration_of_the_chart_is_good() {
    let directory = TempDir::new().expect("a directory");
    let file = directory.path().join("pondhawk.toml");
    fs::write(&file, configuration_of_chart(directory.path())).expect("it is ours");
    let check = |address: &str| {
        let mut command = pondhawk(&["check"]);
        command.arg(&file).env("POD_IP", POD_IP).env("PONDHAWK_ADMIN_ADDRESS", address);
        command.output().expect("it can be run")
    };
    // The chart sets the variable to what its configuration has.
    let manifest = read("helm/pondhawk/templates/statefulset.yaml");
    let variable = "- name: PONDHAWK_ADMIN_ADDRESS\n              value: \"0.0.0.0:9883\"";
    assert!(manifest.contains(variable) && manifest.contains("containerPort: 9883"), "{manifest}");
    let output = check("0.0.0.0:9883");
    assert!(output.status.success(), "{}", said(&output));
    for line in ["address = \"0.0.0.0:1883\"", "address = \"0.0.0.0:8883\"", "address = \"0.0.0.0:9883\""] {
        assert!(said(&output).contains(line), "{line}: {}", said(&output));
    }
    assert!(said(&check("0.0.0.0:9")).contains("address = \"0.0.0.0:9\""), "it is no variable of the broker");
    assert!(read("helm/pondhawk/values.yaml").contains("port: 1883\n    target: 1883"));
}

/// The paths behind this word in a manifest.
fn paths(manifest: &str, word: &str) -> Vec<String> {
    let behind = manifest.split(word).skip(1);
    let path =
        |text: &str| text.lines().find_map(|line| line.trim().strip_prefix("path: ").map(str::to_owned));
    behind.map(|text| path(text).expect("it has a path")).collect()
}

#[test]
fn the_probes_of_the_chart_need_no_token_and_metrics_the_token_of_a_viewer() {
    let directory = TempDir::new().expect("a directory");
    let text = configuration_of_chart(directory.path()).replace("${POD_IP}", POD_IP);
    let text = [":1883", ":8883", ":9883"]
        .iter()
        .fold(text, |text, port| text.replace(&format!("0.0.0.0{port}"), "127.0.0.1:0"));
    let file = directory.path().join("pondhawk.toml");
    fs::write(&file, text).expect("it is ours");
    let broker = Broker::start(&Options { file: Some(file), ..Options::default() });
    let address = &*Server::address_of(&broker);
    // The kubelet and Prometheus name the pod by its address.
    let status = |path: &str, token: &str| {
        let token =
            if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {POD_IP}:9883\r\nConnection: close\r\n{token}\r\n");
        Server::with(address, "").raw(request.as_bytes()).status
    };
    let probes = paths(&read("helm/pondhawk/templates/statefulset.yaml"), "httpGet:");
    assert_eq!(probes, ["/readyz", "/readyz", "/healthz"]);
    for path in probes {
        assert_eq!(status(&path, ""), 200, "{path}");
    }
    let monitor = read("helm/pondhawk/templates/servicemonitor.yaml");
    let [metrics] = &paths(&monitor, "port: admin")[..] else { panic!("one path: {monitor}") };
    assert_eq!(status(metrics, ""), 401);
    assert!(monitor.contains("key: viewer-token"), "{monitor}");
    assert_eq!(status(metrics, TOKENS[1].1), 200);
}

#[test]
fn the_add_on_makes_a_good_configuration_with_its_users() {
    let directory = TempDir::new().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    for folder in ["data", "config", "ssl", "bin"] {
        fs::create_dir(at(folder)).expect("the directory is ours");
    }
    // Only the broker itself is not run: the script is done when it would begin.
    let program = pondhawk_tests::pondhawk();
    let wrapper = format!(
        "#!/bin/sh\nif [ \"$1\" = --config ]; then exec \"{0}\" check \"$2\"; fi\nexec \"{0}\" \"$@\"\n",
        Path::new(&program).display()
    );
    fs::write(at("wrapper"), wrapper).expect("it is ours");
    install(&at("wrapper"), &at("bin/pondhawk"));
    let defaults = read("home-assistant/pondhawk/config.yaml");
    assert!(defaults.contains("  certfile: fullchain.pem\n  keyfile: privkey.pem\n"), "{defaults}");
    let options = r#"{"logins":[{"username":"ann o'pond","password":"a \"b\" $c"}],"certfile":"fullchain.pem","keyfile":"privkey.pem"}"#;
    fs::write(at("data/options.json"), options).expect("it is ours");
    fs::write(at("config/limits.toml"), "[limits]\nconnections = 77\n").expect("it is ours");
    let run = || {
        let mut command = Command::new("sh");
        command.arg(packaging().join("home-assistant/pondhawk/run.sh"));
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", at("bin").display())).env_remove("SUPERVISOR_TOKEN");
        command.env("ADDON_DATA", at("data")).env("ADDON_CONFIG", at("config")).env("ADDON_SSL", at("ssl"));
        let output = command.output().expect("there is a shell");
        assert!(output.status.success(), "{}", said(&output));
        said(&output)
    };
    let text = run();
    assert!(text.contains("connections = 77\n") && text.contains("\"0.0.0.0:1883\""), "{text}");
    assert!(!text.contains("0.0.0.0:8883"), "{text}");
    let made = certificates(&at("made")).output().expect("it can be run");
    assert!(made.status.success(), "{}", said(&made));
    fs::copy(at("made/server.pem"), at("ssl/fullchain.pem")).expect("a certificate was made");
    fs::copy(at("made/server.key"), at("ssl/privkey.pem")).expect("a certificate was made");
    let own = fs::read_to_string(at("data/password-of-home-assistant")).expect("it was made");
    assert!(own.len() >= 32 && run().contains("\"0.0.0.0:8883\""));

    // The users that it has made can log in.
    let settings = format!("[auth]\npassword_file = {:?}\n", at("data/users"));
    let broker = Broker::start(&Options { settings, ..Options::default() });
    let is_accepted = |user, password: &str| {
        let mut client = RawClient::connect(broker.address());
        let password = Some(password.as_bytes());
        client.send(&Connect { user: Some(user), password, ..Connect::new(Version::V5, "c") }.bytes());
        packet::is_accepted(&client.read_packet())
    };
    assert!(is_accepted("homeassistant", &own) && is_accepted("ann o'pond", "a \"b\" $c"));
    assert!(!is_accepted("homeassistant", "wrong"));
}

#[test]
fn all_packages_have_the_version_of_the_program() {
    let version = env!("CARGO_PKG_VERSION");
    for (file, line) in [
        ("helm/pondhawk/Chart.yaml", format!("\nversion: {version}\n")),
        ("helm/pondhawk/Chart.yaml", format!("\nappVersion: \"{version}\"\n")),
        (
            "homebrew/pondhawk.rb",
            format!("/releases/download/v{version}/pondhawk-{version}-source.tar.gz\"\n"),
        ),
        ("nix/package.nix", format!("  version = \"{version}\";\n")),
        ("home-assistant/pondhawk/config.yaml", format!("\nversion: \"{version}\"\n")),
        ("home-assistant/pondhawk/Dockerfile", format!("\nFROM docker.io/pondhawk/pondhawk:{version} AS ")),
        ("../docs/DOCKER.md", format!(" pondhawk/pondhawk:{version}\n")),
    ] {
        assert!(read(file).contains(&line), "{file} has no {line:?}");
    }
}
