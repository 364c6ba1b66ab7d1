//! Looks at the packages of a release, and uses them.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Packages, Release, text_of};
use crate::log::Log;

/// Files that the Debian package must have.
const EXPECTED: [&str; 11] = [
    "./etc/pondhawk/pondhawk.toml",
    "./usr/bin/pondhawk",
    "./usr/lib/systemd/system/pondhawk.service",
    "./usr/share/bash-completion/completions/pondhawk",
    "./usr/share/doc/pondhawk/changelog.Debian.gz",
    "./usr/share/doc/pondhawk/changelog.gz",
    "./usr/share/doc/pondhawk/copyright",
    "./usr/share/pondhawk/grafana/pondhawk.json",
    "./usr/share/pondhawk/prometheus/pondhawk.rules.yml",
    "./usr/share/man/man1/pondhawk-sub.1.gz",
    "./usr/share/man/man1/pondhawk.1.gz",
];

/// The exposure that `systemd-analyze security` may find in the unit, in tenths.
const EXPOSURE_MAX: &str = "20";

/// Looks at the contents of packages.
pub(super) fn look(release: &Release<'_>, packages: &Packages, log: &mut Log) -> Result<(), String> {
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
    look_at_image(release, &packages.image)?;
    let listed = text_of(release.command("tar").arg("--list").arg("--file").arg(&packages.archive))?;
    let program = format!("pondhawk-{}-{}/pondhawk", release.version, Release::MACHINE);
    match listed.lines().any(|line| line == program) {
        true => Ok(()),
        false => Err(format!("the archive has no {program}:\n{listed}")),
    }
}

/// Compares each part of the image with its digest, and the references with the parts.
fn look_at_image(release: &Release<'_>, image: &Path) -> Result<(), String> {
    let folder = release.folder.join("unpacked");
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

/// Release of Debian in which the package is tried.
const SUITE: &str = "bookworm";

/// Installs the Debian package in a fresh system, uses it, upgrades it, and removes it.
///
/// The system has no service manager, so that the script starts the broker as the unit does. Needs the rights of the
/// superuser, and `debootstrap`.
pub(super) fn run(release: &Release<'_>, deb: &Path, log: &mut Log) -> Result<(), String> {
    let fresh = release.house.target().join("package/system.tar");
    let system = release.folder.join("system");
    if !fresh.exists() {
        let made = release.folder.join("debootstrap");
        let mut debootstrap = release.command("debootstrap");
        debootstrap.args(["--variant=minbase", "--include=adduser,init-system-helpers", SUITE]).arg(&made);
        log.run(&mut debootstrap).map_err(|error| format!("{error}; on Debian, install debootstrap"))?;
        log.run(release.command("tar").args(["-C"]).arg(&made).arg("-cf").arg(&fresh).arg("."))?;
    }
    fs::create_dir_all(&system).map_err(|error| error.to_string())?;
    log.run(release.command("tar").arg("-C").arg(&system).arg("-xf").arg(&fresh))?;
    let put = |from: &Path, name: &str| super::stage::copy(from, &system.join("trial").join(name), 0o755);
    put(deb, "first.deb")?;
    put(&next_version(release, log)?, "second.deb")?;
    put(&release.house.root().join("packaging/debian/trial.sh"), "trial.sh")?;
    // With ports of its own, and without a process that stays behind.
    let mut alone = release.command("unshare");
    alone.args(["--net", "--pid", "--fork", "--kill-child", "sh", "-c"]);
    alone.args(["ip link set lo up && exec chroot \"$0\" /bin/sh /trial/trial.sh"]).arg(&system);
    log.run(&mut alone)
}

/// The same package with a higher version.
fn next_version(release: &Release<'_>, log: &mut Log) -> Result<PathBuf, String> {
    let tree = release.folder.join("deb");
    let control = tree.join("DEBIAN/control");
    let text = fs::read_to_string(&control).map_err(|error| error.to_string())?;
    let version = format!("Version: {}", super::deb::version(release));
    super::write(&control, &text.replace(&version, &format!("{version}.1")))?;
    let package = release.folder.join("next.deb");
    let mut build = release.command("dpkg-deb");
    build.args(["--root-owner-group", "-Zgzip", "-z1", "--build"]);
    log.run(build.arg(&tree).arg(&package))?;
    super::write(&control, &text)?;
    Ok(package)
}
