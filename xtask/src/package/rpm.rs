//! The RPM package of a release.

use std::fs;
use std::path::PathBuf;

use super::stage::copy;
use super::{Release, text_of, write};
use crate::log::Log;

/// The release of the packaging, behind the version.
const RELEASE: &str = "1";

/// Folder of completions for zsh: where Debian has them, and where others have them.
const ZSH: [&str; 2] = ["usr/share/zsh/vendor-completions", "usr/share/zsh/site-functions"];

/// Makes the package with RPM's own tool, which runs on Debian too.
pub(super) fn run(release: &Release<'_>, log: &mut Log) -> Result<PathBuf, String> {
    let tree = release.work.join("rpm");
    log.run(release.command("cp").arg("--archive").arg(&release.root).arg(&tree))?;
    let [from, to] = ZSH.map(|folder| tree.join(folder));
    fs::rename(&from, &to).map_err(|error| format!("{}: {error}", from.display()))?;
    for (file, folder) in
        [("LICENSE-APACHE", "licenses"), ("LICENSE-MIT", "licenses"), ("CHANGELOG.md", "doc")]
    {
        let to = tree.join("usr/share").join(folder).join("pondhawk").join(file);
        copy(&release.house.root().join(file), &to, 0o644)?;
    }
    let template = release.house.root().join("packaging/rpm/pondhawk.spec");
    let text = fs::read_to_string(&template).map_err(|error| format!("{}: {error}", template.display()))?;
    let spec = release.work.join("pondhawk.spec");
    let text = text.replace("@VERSION@", &release.version).replace("@RELEASE@", RELEASE);
    write(&spec, &text.replace("@TREE@", &tree.display().to_string()))?;
    log.run(build(release).arg(&spec))?;
    let name = format!("pondhawk-{}-{RELEASE}.{}.rpm", release.version, release.machine.name());
    Ok(release.folder.join(name))
}

/// The command that builds a package with nothing of this machine in it: neither its name, nor the time.
fn build(release: &Release<'_>) -> std::process::Command {
    let top = release.work.join("rpmbuild");
    let mut build = release.command("rpmbuild");
    build.args(["-bb", "--nodeps", "--target", release.machine.name()]);
    let effort = if release.is_small { "w9.gzdio" } else { "w1.gzdio" };
    for (name, value) in [
        ("_topdir", top.display().to_string()),
        ("_rpmdir", release.folder.display().to_string()),
        ("_rpmfilename", "%{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm".to_owned()),
        ("_buildhost", "pondhawk".to_owned()),
        ("_binary_payload", effort.to_owned()),
        ("use_source_date_epoch_as_buildtime", "1".to_owned()),
        ("clamp_mtime_to_source_date_epoch", "1".to_owned()),
        // The files are packed as they are.
        ("__os_install_post", "%{nil}".to_owned()),
        ("debug_package", "%{nil}".to_owned()),
        ("_build_id_links", "none".to_owned()),
    ] {
        build.arg("--define").arg(format!("{name} {value}"));
    }
    build
}

/// The files of a package, and what its scripts do, as RPM's tool reads them back.
pub(super) fn read_back(release: &Release<'_>, rpm: &std::path::Path) -> Result<[String; 2], String> {
    let query =
        |what: &[&str]| text_of(release.command("rpm").args(["--query", "--package"]).args(what).arg(rpm));
    Ok([
        query(&[
            "--queryformat",
            "[%{FILENAMES} %{FILEUSERNAME}:%{FILEGROUPNAME} %{FILEMODES:perms} %{FILEFLAGS:fflags}\n]",
        ])?,
        query(&["--scripts"])?,
    ])
}
