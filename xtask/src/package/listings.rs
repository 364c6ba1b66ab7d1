//! Files from which package managers build or install: the sources, the formula for Homebrew, and the chart for Kubernetes.

use std::fs;
use std::path::PathBuf;

use super::{Release, text_of, write};
use crate::log::Log;

/// The place of the checksum in the formula.
const SUM: &str = "@SOURCE_SHA256@";

/// Makes all of them. Returns their paths.
///
/// # Errors
/// A file is missing, or cannot be packed.
pub(super) fn run(release: &Release<'_>, log: &mut Log) -> Result<Vec<PathBuf>, String> {
    if !release.house.root().join(".git").exists() {
        // The sources of a release are packed already, with their formula.
        return Ok(vec![chart(release, log)?]);
    }
    let sources = sources(release, log)?;
    let sum = text_of(release.command("sha256sum").arg(&sources))?;
    let sum = sum.split(' ').next().unwrap_or_default();
    let template = release.house.root().join("packaging/homebrew/pondhawk.rb");
    let text = fs::read_to_string(&template).map_err(|error| format!("{}: {error}", template.display()))?;
    if !text.contains(SUM) || !text.contains(&format!("/v{0}/pondhawk-{0}-source.tar.gz", release.version)) {
        return Err(format!("{} has another version, or no place for the checksum", template.display()));
    }
    let formula = release.folder.join("pondhawk.rb");
    write(&formula, &text.replace(SUM, sum))?;
    Ok(vec![sources, formula, chart(release, log)?])
}

/// Packs all files of the repository.
fn sources(release: &Release<'_>, log: &mut Log) -> Result<PathBuf, String> {
    let name = format!("pondhawk-{}", release.version);
    let list = release.work.join("sources");
    write(&list, &text_of(release.command("git").args(["ls-files", "-z"]))?)?;
    let tar = release.folder.join(format!("{name}-source.tar"));
    let mut pack = release.tar_of_root(&tar);
    pack.arg(format!("--transform=s,^,{name}/,S")).args(["--mode=u+w,go=rX", "--null", "--no-recursion"]);
    log.run(pack.arg("--directory").arg(release.house.root()).arg("--files-from").arg(&list))?;
    release.gzip(&tar, log)
}

/// Packs the chart, in the form of `helm package`.
fn chart(release: &Release<'_>, log: &mut Log) -> Result<PathBuf, String> {
    let tar = release.folder.join(format!("pondhawk-chart-{}.tar", release.version));
    let folder = release.house.root().join("packaging/helm/pondhawk");
    let mut pack = release.tar_of_root(&tar);
    pack.args(["--transform=s,^\\.,pondhawk,", "--mode=u+w,go=rX"]);
    log.run(pack.arg("--directory").arg(folder).arg("."))?;
    let chart = tar.with_extension("tgz");
    fs::rename(release.gzip(&tar, log)?, &chart).map_err(|error| error.to_string())?;
    Ok(chart)
}
