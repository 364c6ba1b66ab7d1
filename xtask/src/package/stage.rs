//! The files of a package, as they are installed.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{Release, text_of, write};
use crate::log::Log;
use crate::tools;

/// Folder of the manual pages.
const MANUAL: &str = "usr/share/man/man1";

/// Completions: the shell, and the file in which it looks for them.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/pondhawk"),
    ("zsh", "usr/share/zsh/vendor-completions/_pondhawk"),
    ("fish", "usr/share/fish/vendor_completions.d/pondhawk.fish"),
];

/// Rules for Prometheus and a board for Grafana: each file below `packaging`, and where it is installed.
const MONITORING: [(&str, &str); 2] = [
    ("prometheus/pondhawk.rules.yml", "usr/share/pondhawk/prometheus/pondhawk.rules.yml"),
    ("grafana/pondhawk.json", "usr/share/pondhawk/grafana/pondhawk.json"),
];

/// Copies the program and all files around it. The program prints its own pages, unless another release has them: a program
/// for another machine cannot run here.
pub(super) fn run(
    release: &Release<'_>,
    program: &Path,
    pages: Option<&Release<'_>>,
    log: &mut Log,
) -> Result<(), String> {
    let root = &release.root;
    let installed = root.join("usr/bin/pondhawk");
    copy(program, &installed, 0o755)?;
    let packaging = release.house.root().join("packaging");
    copy(&packaging.join("pondhawk.service"), &root.join("usr/lib/systemd/system/pondhawk.service"), 0o644)?;
    copy(&packaging.join("pondhawk.toml"), &root.join("etc/pondhawk/pondhawk.toml"), 0o644)?;
    if let Some(other) = pages {
        let emulator = format!("qemu-{}", release.machine.name());
        if tools::is_there(&emulator) {
            log.run(release.command(&emulator).arg(&installed).arg("--version"))?;
        }
        let [from, to] = [&other.root, root].map(|root| root.join("usr/share"));
        return log.run(release.command("cp").args(["--archive", "--no-target-directory"]).arg(from).arg(to));
    }
    for (from, to) in MONITORING {
        copy(&packaging.join(from), &root.join(to), 0o644)?;
    }
    log.run(release.command("strip").arg(&installed))?;
    for (shell, file) in COMPLETIONS {
        let text = text_of(release.command(&installed.to_string_lossy()).args(["completions", shell]))?;
        write(&root.join(file), &text)?;
    }
    let manual = root.join(MANUAL);
    fs::create_dir_all(&manual).map_err(|error| format!("{}: {error}", manual.display()))?;
    log.run(release.command(&installed.to_string_lossy()).arg("man").arg(&manual))?;
    log.run(release.command("gzip").arg("-9nr").arg(&manual))
}

/// Packs the files for systems without packages of their own.
pub(super) fn archive(release: &Release<'_>, log: &mut Log) -> Result<PathBuf, String> {
    let name = release.name();
    let folder = release.work.join("archive");
    for (from, to) in [
        ("usr/bin/pondhawk", "pondhawk"),
        ("usr/lib/systemd/system/pondhawk.service", "pondhawk.service"),
        ("etc/pondhawk/pondhawk.toml", "pondhawk.toml"),
    ] {
        let mode = if to == "pondhawk" { 0o755 } else { 0o644 };
        copy(&release.root.join(from), &folder.join(to), mode)?;
    }
    for file in ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "CHANGELOG.md"] {
        copy(&release.house.root().join(file), &folder.join(file), 0o644)?;
    }
    for (name, file) in MONITORING {
        copy(&release.root.join(file), &folder.join(name), 0o644)?;
    }
    copy_all(&release.root.join(MANUAL), &folder.join("man"))?;
    for (shell, file) in COMPLETIONS {
        copy(&release.root.join(file), &folder.join("completions").join(format!("pondhawk.{shell}")), 0o644)?;
    }
    let tar = release.folder.join(format!("{name}.tar"));
    release.tar(&folder, &name, &tar, log)?;
    release.gzip(&tar, log)
}

impl Release<'_> {
    /// Compresses a file, and puts the result in its place. Packages that are only looked at are made quickly.
    pub(super) fn gzip(&self, file: &Path, log: &mut Log) -> Result<PathBuf, String> {
        let effort = if self.is_small { "-9" } else { "-1" };
        log.run(self.command("gzip").args([effort, "-n"]).arg(file))?;
        Ok(file.with_added_extension("gz"))
    }
}

/// Copies a file, with all folders above it.
pub(super) fn copy(from: &Path, to: &Path, mode: u32) -> Result<(), String> {
    let folder = to.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)
        .and_then(|()| fs::copy(from, to))
        .and_then(|_| fs::set_permissions(to, Permissions::from_mode(mode)))
        .map_err(|error| format!("cannot copy {} to {}: {error}", from.display(), to.display()))
}

fn copy_all(from: &Path, to: &Path) -> Result<(), String> {
    let entries = fs::read_dir(from).map_err(|error| format!("{}: {error}", from.display()))?;
    entries.flatten().try_for_each(|entry| copy(&entry.path(), &to.join(entry.file_name()), 0o644))
}
