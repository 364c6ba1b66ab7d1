//! Looks at the contents of packages.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Made, Packages, Release, rpm, text_of};
use crate::log::Log;
use crate::tools;

/// Files that the Debian package must have.
const EXPECTED: [&str; 11] = [
    "./etc/pondhawk/pondhawk.toml",
    "./usr/bin/pondhawk",
    "./usr/lib/systemd/system/pondhawk.service",
    "./usr/share/bash-completion/completions/pondhawk",
    "./usr/share/doc/pondhawk/changelog.Debian.gz",
    "./usr/share/doc/pondhawk/changelog.gz",
    "./usr/share/doc/pondhawk/copyright",
    "./usr/share/man/man1/pondhawk-sub.1.gz",
    "./usr/share/man/man1/pondhawk.1.gz",
    "./usr/share/pondhawk/grafana/pondhawk.json",
    "./usr/share/pondhawk/prometheus/pondhawk.rules.yml",
];

/// The exposure that `systemd-analyze security` may find in the unit, in tenths.
const EXPOSURE_MAX: &str = "20";

/// Looks at the contents of packages.
///
/// # Errors
/// A package does not contain what it should.
pub(super) fn run(packages: &Packages<'_>, log: &mut Log) -> Result<(), String> {
    let release = &packages.release;
    let contents = text_of(release.command("dpkg-deb").arg("--contents").arg(&packages.deb))?;
    let names: Vec<&str> = contents.lines().filter_map(|line| line.split_whitespace().last()).collect();
    if let Some(missing) = EXPECTED.iter().find(|file| !names.contains(file)) {
        return Err(format!("the Debian package has no {missing}:\n{contents}"));
    }
    if let Some(foreign) = contents.lines().find(|line| !line.contains(" root/root ")) {
        return Err(format!("not everything belongs to root in the Debian package: {foreign}"));
    }
    let unit = release.root.join("usr/lib/systemd/system/pondhawk.service");
    let mut analyze = release.command("systemd-analyze");
    analyze.args(["security", "--offline=true", "--no-pager"]).arg(format!("--threshold={EXPOSURE_MAX}"));
    log.run(analyze.arg(unit))?;
    let mut check = release.command(&release.root.join("usr/bin/pondhawk").to_string_lossy());
    log.run(check.arg("check").arg(release.root.join("etc/pondhawk/pondhawk.toml")))?;
    look_at_rpm(packages)?;
    look_at_image(release, &packages.image.archive)?;
    look_at_sbom(packages, log)?;
    let listed = text_of(release.command("tar").arg("--list").arg("--file").arg(&packages.archive))?;
    let program = format!("{}/pondhawk", release.name());
    match listed.lines().any(|line| line == program) {
        true => Ok(()),
        false => Err(format!("the archive has no {program}:\n{listed}")),
    }
}

/// Lines of the RPM package: each file that it must have, with its owner, its permissions and its flags. `cn` is a configuration
/// that an upgrade does not replace.
const EXPECTED_OF_RPM: [&str; 14] = [
    "/etc/pondhawk root:pondhawk drwxr-s---",
    "/etc/pondhawk/pondhawk.toml root:pondhawk -rw-r--r-- cn",
    "/usr/bin/pondhawk root:root -rwxr-xr-x",
    "/usr/lib/systemd/system/pondhawk.service root:root -rw-r--r--",
    "/usr/share/bash-completion/completions/pondhawk root:root -rw-r--r--",
    "/usr/share/doc/pondhawk/CHANGELOG.md root:root -rw-r--r-- d",
    "/usr/share/fish/vendor_completions.d/pondhawk.fish root:root -rw-r--r--",
    "/usr/share/licenses/pondhawk/LICENSE-APACHE root:root -rw-r--r-- l",
    "/usr/share/licenses/pondhawk/LICENSE-MIT root:root -rw-r--r-- l",
    "/usr/share/man/man1/pondhawk-sub.1.gz root:root -rw-r--r-- d",
    "/usr/share/man/man1/pondhawk.1.gz root:root -rw-r--r-- d",
    "/usr/share/pondhawk/grafana/pondhawk.json root:root -rw-r--r--",
    "/usr/share/pondhawk/prometheus/pondhawk.rules.yml root:root -rw-r--r--",
    "/usr/share/zsh/site-functions/_pondhawk root:root -rw-r--r--",
];

/// Parts of the scripts of the RPM package.
const EXPECTED_OF_SCRIPTS: [&str; 4] =
    ["groupadd --system pondhawk", "useradd --system", "disable --now pondhawk", "try-restart pondhawk"];

/// Reads the RPM package back.
fn look_at_rpm(packages: &Packages<'_>) -> Result<(), String> {
    let [files, scripts] = rpm::read_back(&packages.release, &packages.rpm)?;
    if let Some(missing) =
        EXPECTED_OF_RPM.iter().find(|line| !files.lines().any(|file| file.trim_end() == **line))
    {
        return Err(format!("the RPM package has no {missing}:\n{files}"));
    }
    let folder = "/etc/pondhawk";
    if let Some(foreign) =
        files.lines().find(|file| !file.starts_with(folder) && !file.contains(" root:root "))
    {
        return Err(format!("not everything belongs to root in the RPM package: {foreign}"));
    }
    match EXPECTED_OF_SCRIPTS.iter().find(|part| !scripts.contains(*part)) {
        Some(missing) => Err(format!("no script of the RPM package has `{missing}`:\n{scripts}")),
        None => Ok(()),
    }
}

/// Compares the list of libraries with the schema of its format.
fn look_at_sbom(packages: &Packages<'_>, log: &mut Log) -> Result<(), String> {
    let house = packages.release.house;
    let mut check = house.command(house.tools().join("python/bin/python"));
    check.arg(house.root().join("packaging/check_sbom.py"));
    log.run(check.arg(&packages.sbom))
        .map_err(|error| format!("{error}; `cargo xtask tools` installs Python's packages"))
}

/// Looks at the Debian packages with Debian's own checker, where it is installed.
///
/// # Errors
/// The checker finds an error, or something that may be one.
pub(super) fn check_with_lintian(made: &Made<'_>, log: &mut Log) -> Result<(), String> {
    if !tools::is_there("lintian") {
        log.note("lintian is not installed: the Debian package is not checked with it");
        return Ok(());
    }
    made.releases.iter().try_for_each(|Packages { release, deb, .. }| {
        // The superuser may run it, as in CI.
        let mut lintian = release.command("lintian");
        lintian.args(["--allow-root", "--tag-display-limit", "0", "--fail-on", "error,warning"]);
        if !release.is_small {
            // The program that tests use needs the library, and the one of a release does not.
            lintian.args(["--suppress-tags", "missing-dependency-on-libc"]);
        }
        log.run(lintian.arg(deb))
    })
}

/// Compares each part of the image with its digest, and the references with the parts.
fn look_at_image(release: &Release<'_>, image: &Path) -> Result<(), String> {
    let folder = release.work.join("unpacked");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    text_of(
        release.command("tar").arg("--extract").arg("--file").arg(image).arg("--directory").arg(&folder),
    )?;
    let blobs = folder.join("blobs/sha256");
    let parts: Vec<PathBuf> =
        fs::read_dir(&blobs).map_err(|error| error.to_string())?.flatten().map(|part| part.path()).collect();
    for part in &parts {
        let sum = text_of(release.command("sha256sum").arg(part))?;
        let name = part.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !sum.starts_with(&name) {
            return Err(format!("the image has other contents than the digest {name}"));
        }
        // Each part is named by the index, or by another part.
        let is_named = std::iter::once(&folder.join("index.json"))
            .chain(&parts)
            .any(|by| by != part && fs::read(by).is_ok_and(|text| contains(&text, name.as_bytes())));
        if !is_named {
            return Err(format!("nothing in the image refers to {name}"));
        }
    }
    match parts.len() {
        3 => Ok(()),
        other => Err(format!("the image has {other} parts instead of configuration, layer and manifest")),
    }
}

fn contains(text: &[u8], name: &[u8]) -> bool {
    text.windows(name.len()).any(|window| window == name)
}
