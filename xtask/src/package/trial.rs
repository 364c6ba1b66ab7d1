//! The trial of packages: installed, used, upgraded and removed in a fresh system.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Packages, Release};
use crate::log::Log;
use crate::tools;

/// Release of Debian in which the package is tried.
const SUITE: &str = "bookworm";

/// Installs the packages for Debian and RPM, each in a fresh system, uses them, upgrades them, and removes them.
///
/// The systems have no service manager, so that the script starts the broker as the unit does. Needs the rights of the
/// superuser, and `debootstrap`.
pub(super) fn run(Packages { release, deb, rpm, .. }: &Packages<'_>, log: &mut Log) -> Result<(), String> {
    let packaging = release.house.root().join("packaging");
    let system = fresh_system(release, "system", log)?;
    fill(release, deb, rpm, &system.join("trial"), log)?;
    // With ports of its own, and without a process that stays behind.
    let mut alone = release.command("unshare");
    alone.args(["--net", "--pid", "--fork", "--kill-child", "sh", "-c"]);
    alone.args(["ip link set lo up && exec chroot \"$0\" /bin/sh /trial/trial.sh"]).arg(&system);
    log.run(&mut alone)?;
    let system = fresh_system(release, "system-of-rpm", log)?;
    log.run(release.command("sh").arg(packaging.join("rpm/trial.sh")).arg(&system).arg(rpm))
}

/// Tries the packages over this system: what they change is in memory, and gone at the end.
///
/// This takes seconds, and the system is not a fresh one. Without the rights of the superuser, nothing is tried, and the log
/// says so.
pub(super) fn run_here(
    Packages { release, deb, rpm, .. }: &Packages<'_>,
    log: &mut Log,
) -> Result<(), String> {
    let Some(become_root) = tools::way_to_root(release.house) else {
        log.remark("the packages are not installed, because that needs root without a password".to_owned());
        return Ok(());
    };
    let files = release.work.join("trial");
    fill(release, deb, rpm, &files, log)?;
    let unshare =
        ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", OVER_THIS_SYSTEM];
    let words: Vec<&str> = become_root.iter().copied().chain(unshare).collect();
    log.run(release.command(words[0]).args(&words[1..]).arg(&files))
}

/// Puts a system over this one, and runs both trials in it. `$0` is the folder with their files. Without the file
/// `auto-update`, man-db does not index all manual pages of this system again at each step.
const OVER_THIS_SYSTEM: &str = "\
set -eu
mount --make-rprivate /
mount -t tmpfs tmpfs /mnt
mkdir /mnt/changes /mnt/work /mnt/system
mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/changes,workdir=/mnt/work /mnt/system
mount -t proc proc /mnt/system/proc
rm -f /mnt/system/var/lib/man-db/auto-update
cp -r \"$0\" /mnt/system/trial
ip link set lo up
chroot /mnt/system /bin/sh /trial/trial.sh
sh \"$0/trial-of-rpm.sh\" /mnt/system \"$0/first.rpm\"";

/// Copies the packages and the scripts of the trials into a folder.
fn fill(release: &Release<'_>, deb: &Path, rpm: &Path, folder: &Path, log: &mut Log) -> Result<(), String> {
    let packaging = release.house.root().join("packaging");
    for (from, name) in [
        (deb, "first.deb"),
        (&next_version(release, log)?, "second.deb"),
        (rpm, "first.rpm"),
        (&packaging.join("debian/trial.sh"), "trial.sh"),
        (&packaging.join("rpm/trial.sh"), "trial-of-rpm.sh"),
    ] {
        super::stage::copy(from, &folder.join(name), 0o755)?;
    }
    Ok(())
}

/// Unpacks a system without the packages. The first call makes it, which takes minutes.
fn fresh_system(release: &Release<'_>, name: &str, log: &mut Log) -> Result<PathBuf, String> {
    let fresh = release.house.target().join("package/system.tar");
    let system = release.work.join(name);
    if !fresh.exists() {
        let made = release.work.join("debootstrap");
        let mut debootstrap = release.command("debootstrap");
        debootstrap.args(["--variant=minbase", "--include=adduser,init-system-helpers", SUITE]).arg(&made);
        log.run(&mut debootstrap).map_err(|error| format!("{error}; on Debian, install debootstrap"))?;
        log.run(release.command("tar").args(["-C"]).arg(&made).arg("-cf").arg(&fresh).arg("."))?;
    }
    fs::create_dir_all(&system).map_err(|error| error.to_string())?;
    log.run(release.command("tar").arg("-C").arg(&system).arg("-xf").arg(&fresh))?;
    Ok(system)
}

/// The same package with a higher version.
fn next_version(release: &Release<'_>, log: &mut Log) -> Result<PathBuf, String> {
    let tree = release.work.join("deb");
    let control = tree.join("DEBIAN/control");
    let text = fs::read_to_string(&control).map_err(|error| error.to_string())?;
    let version = format!("Version: {}", super::deb::version(release));
    super::write(&control, &text.replace(&version, &format!("{version}.1")))?;
    let package = release.work.join("next.deb");
    let mut build = release.command("dpkg-deb");
    build.args(["--root-owner-group", "-Zgzip", "-z1", "--build"]);
    log.run(build.arg(&tree).arg(&package))?;
    super::write(&control, &text)?;
    Ok(package)
}
