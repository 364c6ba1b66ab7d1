//! Measures the figures of `docs/BENCHMARKS.md`. Each section is a command and its output.

mod page;
mod sections;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::house::{self, House};
use crate::log::Log;
use crate::tools;

use self::page::Page;
use self::sections::{CLIENTS, CODECS, Peer, SECTIONS, Section, USERS};

/// The manifest of the program that measures codecs, which has a workspace of its own.
pub(crate) const CODEC_MANIFEST: &str = "crates/wire/benches/wire/Cargo.toml";

/// The Go module of the same program for codecs in Go.
const CODECS_IN_GO: &str = "crates/bench/peers/wire";

/// Runs each command with few messages, to check that it works and loses nothing. Writes no page.
///
/// # Errors
/// If a command fails.
pub(crate) fn run_in_short(house: &House, log: &mut Log) -> Result<(), String> {
    house.build(log)?;
    tools::install(house, log)?;
    let pondhawk = house.built().join("pondhawk");
    let folder = folder(house)?;
    for section in SECTIONS {
        if section.has_own_program() {
            let built = section.build(house, false, log)?;
            log.run(in_shell(house, section.in_short, &built).current_dir(&folder))?;
            continue;
        }
        let mut command = house.command(&pondhawk);
        command.current_dir(&folder).arg("bench").args(section.in_short.split(' '));
        if !section.is_alone() {
            let serve = section.serve(&folder)?;
            command.env("PATH", on_path(&house.built()));
            command.arg("--spawn").arg(format!("pondhawk={serve}"));
        }
        log.run(&mut command)?;
    }
    Ok(())
}

/// Measures these sections, or all of them, and writes the page.
///
/// # Errors
/// If there is no such section, or a section cannot be measured. Sections that were measured before it are written.
pub(crate) fn run(house: &House, names: &[String], log: &mut Log) -> Result<(), String> {
    if let Some(unknown) = names.iter().find(|name| SECTIONS.iter().all(|section| section.name != **name)) {
        let known: Vec<&str> = SECTIONS.iter().map(|section| section.name).collect();
        return Err(format!("there is no benchmark `{unknown}`; there are: {}", known.join(", ")));
    }
    let is_wanted = |section: &&Section| names.is_empty() || names.iter().any(|name| name == section.name);
    if SECTIONS.iter().filter(is_wanted).any(|section| section.arguments != CODECS) {
        log.run(house.cargo().args(["build", "--release", "--package", "pondhawk"]))?;
    }
    let page = Page::of(house)?;
    let measured = SECTIONS.iter().filter(is_wanted).try_for_each(|section| {
        log.note(&format!("# {}", section.name));
        let built = section.build(house, true, log)?;
        let line = section.line(&section.serve(&page.folder)?);
        page.keep(section, &line, &section.measure(house, &line, &built, &page.folder, log)?)
    });
    page.write()?;
    measured
}

/// Returns the `PATH` variable with this folder in front.
fn on_path(folder: &Path) -> String {
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default())
}

/// Builds the programs that measure codecs, with or without optimization. Returns their folder.
fn build_codecs(house: &House, optimized: bool, log: &mut Log) -> Result<PathBuf, String> {
    let mut build = if optimized {
        let mut build = of_codecs(house, house.cargo());
        build.arg("--release");
        build
    } else {
        house::with_lints(of_codecs(house, house.cargo()))
    };
    log.run(&mut build)?;
    let built = house.target().join("codec").join(if optimized { "release" } else { "debug" });
    tools::build_go(house, &house.root().join(CODECS_IN_GO), &built.join("codec-speed-go"), ".", log)?;
    Ok(built)
}

/// Builds the program that measures codecs for its short run, with the time that other programs leave.
///
/// # Errors
/// If clippy warns, or the program does not compile.
pub(crate) fn check_codecs(house: &House, log: &mut Log) -> Result<(), String> {
    log.run(&mut house::with_lints(of_codecs(house, house.idle_cargo())))
}

/// Makes the command that builds the program that measures codecs.
fn of_codecs(house: &House, mut cargo: Command) -> Command {
    cargo.args(["build", "--locked", "--manifest-path", CODEC_MANIFEST]);
    cargo.arg("--target-dir").arg(house.target().join("codec"));
    cargo
}

/// Makes a shell command for `line`, which finds the programs in the folder `built`.
fn in_shell(house: &House, line: &str, built: &Path) -> Command {
    let mut shell = house.command("sh");
    shell.env("PATH", on_path(built)).env("PONDHAWK_BUILT", built);
    shell.env("PONDHAWK_TOOLS", house.tools()).args(["-c", line]);
    shell
}

/// Returns the folder for finished sections and configuration files.
fn folder(house: &House) -> Result<PathBuf, String> {
    let folder = house.target().join("xtask/bench");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

impl Section {
    /// Whether the command starts no servers.
    fn is_alone(&self) -> bool {
        let test = self.arguments.split(' ').next().unwrap_or_default();
        ["ledger", "durable", "recovery", CLIENTS, CODECS].contains(&test)
    }

    /// Whether the command is a whole one, and not one of `pondhawk bench`.
    fn has_own_program(&self) -> bool {
        [CLIENTS, CODECS].iter().any(|program| self.arguments.starts_with(program))
    }

    /// Builds the program, with or without optimization, if [`House::build`] does not. Returns the folder of all programs.
    fn build(&self, house: &House, optimized: bool, log: &mut Log) -> Result<PathBuf, String> {
        if self.arguments.starts_with(CODECS) {
            return build_codecs(house, optimized, log);
        }
        if !optimized {
            return Ok(house.built());
        }
        if self.arguments.starts_with(CLIENTS) {
            // The clients that cargo does not build are needed too.
            tools::install(house, log)?;
            let package = ["--package", "pondhawk-tests", "--bin", CLIENTS];
            log.run(house.cargo().args(["build", "--release"]).args(package))?;
            let example = ["--package", "pondhawk-client", "--example", "pipeline"];
            log.run(house.cargo().args(["build", "--release"]).args(example))?;
        }
        Ok(house.target().join("release"))
    }

    /// Returns the command that starts the broker on a new journal.
    ///
    /// Writes the configuration file into the folder, and removes the journals of the section before.
    fn serve(&self, folder: &Path) -> Result<String, String> {
        let data = folder.join("data");
        if data.exists() {
            fs::remove_dir_all(&data).map_err(|error| format!("{}: {error}", data.display()))?;
        }
        let serve = "pondhawk serve -p {port} --data-dir data/{port}";
        let Some(configuration) = self.configuration else { return Ok(serve.to_owned()) };
        let path = folder.join(format!("{}.toml", self.name));
        for (path, text) in [(&path, configuration), (&folder.join("users"), USERS)] {
            fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        if configuration.contains("${PORT}") {
            let places = "PORT={port} CERTIFICATE={cert} KEY={key}";
            return Ok(format!("env {places} pondhawk serve -c {}.toml --data-dir data/{{port}}", self.name));
        }
        Ok(format!("{serve} -c {}.toml", self.name))
    }

    /// Returns the command as a user types it who has `pondhawk` on the path.
    fn line(&self, serve: &str) -> String {
        if self.has_own_program() {
            return self.arguments.to_owned();
        }
        let mut line = format!("pondhawk bench {}", self.arguments);
        if self.is_alone() {
            return line;
        }
        line += &format!(" \\\n    --spawn 'pondhawk={serve}'");
        for peer in self.peers {
            line += match peer {
                Peer::Mosquitto => " --with-mosquitto",
                Peer::Relay => " --with-relay",
            };
        }
        if is_pinned() {
            line += " --server-cpu 0 --pin 1";
        }
        line
    }

    /// Runs the command, and returns its output. The failure of a peer in its own rows is a result, not an error.
    fn measure(
        &self,
        house: &House,
        line: &str,
        built: &Path,
        folder: &Path,
        log: &mut Log,
    ) -> Result<String, String> {
        log.note(&format!("$ {line}"));
        let mut shell = in_shell(house, line, built);
        shell.current_dir(folder);
        let output = shell.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
        let output = output.map_err(|error| format!("cannot run `{line}`: {error}"))?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        log.note(&printed);
        let is_ours = |line: &str| line.starts_with("FAILED: pondhawk");
        let is_measured = printed.contains("| pondhawk") && !printed.lines().any(is_ours);
        if output.status.success() || is_measured {
            Ok(printed)
        } else {
            Err(format!("`{line}` failed ({})\n{printed}", output.status))
        }
    }
}

fn is_pinned() -> bool {
    std::thread::available_parallelism().is_ok_and(|count| count.get() > 1)
}
