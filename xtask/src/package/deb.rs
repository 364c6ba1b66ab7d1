//! The Debian package of a release.

use std::fs;
use std::path::{Path, PathBuf};

use super::stage::copy;
use super::{Release, text_of, write};
use crate::log::Log;

/// Makes the package with Debian's own tool.
pub(super) fn run(release: &Release<'_>, log: &mut Log) -> Result<PathBuf, String> {
    let sources = release.house.root().join("packaging/debian");
    let read = |name: &str| {
        let path = sources.join(name);
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let tree = release.work.join("deb");
    log.run(release.command("cp").arg("--archive").arg(&release.root).arg(&tree))?;
    let documents = tree.join("usr/share/doc/pondhawk");
    write(&documents.join("copyright"), &read("copyright")?.replace("@MIT@", &licence(release)?))?;
    let changes = documents.join("changelog");
    copy(&release.house.root().join("CHANGELOG.md"), &changes, 0o644)?;
    let debian = documents.join("changelog.Debian");
    write(&debian, &changelog(release)?)?;
    log.run(release.command("gzip").arg("-9n").arg(&changes).arg(&debian))?;
    copy(&sources.join("lintian-overrides"), &tree.join("usr/share/lintian/overrides/pondhawk"), 0o644)?;
    let control = tree.join("DEBIAN");
    let fields = read("control")?
        .replace("@VERSION@", &version(release))
        .replace("@ARCHITECTURE@", release.machine.architecture())
        .replace("@SIZE@", &kibibytes(&tree)?.to_string());
    write(&control.join("control"), &fields)?;
    write(&control.join("conffiles"), "/etc/pondhawk/pondhawk.toml\n")?;
    for script in ["postinst", "prerm", "postrm"] {
        copy(&sources.join(script), &control.join(script), 0o755)?;
    }
    let sums = "find usr -type f -print0 | sort -z | xargs -0 md5sum";
    write(&control.join("md5sums"), &text_of(release.command("sh").args(["-c", sums]).current_dir(&tree))?)?;
    let name = format!("pondhawk_{}_{}.deb", version(release), release.machine.architecture());
    let package = release.folder.join(name);
    let compression = if release.is_small { "-Zxz" } else { "-Zgzip" };
    let mut build = release.command("dpkg-deb");
    build.args(["--root-owner-group", compression, if release.is_small { "-z9" } else { "-z1" }, "--build"]);
    log.run(build.arg(&tree).arg(&package))?;
    Ok(package)
}

/// The version, with that of the packaging.
pub(super) fn version(release: &Release<'_>) -> String {
    format!("{}-1", release.version)
}

/// The changelog of the packaging, in Debian's format. It refers to that of the project.
fn changelog(release: &Release<'_>) -> Result<String, String> {
    let date = release.date("--rfc-email")?;
    Ok(format!(
        "pondhawk ({}) stable; urgency=medium\n\n  * Changes are in changelog.gz.\n\n -- {}  {date}\n",
        version(release),
        "The Pondhawk authors <pondhawk@users.noreply.github.com>"
    ))
}

/// The MIT licence, indented as the file of Debian wants it.
fn licence(release: &Release<'_>) -> Result<String, String> {
    let path = release.house.root().join("LICENSE-MIT");
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let line = |line: &str| if line.trim().is_empty() { " .".to_owned() } else { format!(" {line}") };
    Ok(text.trim().lines().map(line).collect::<Vec<_>>().join("\n"))
}

/// The size of all files of a folder.
fn kibibytes(folder: &Path) -> Result<u64, String> {
    let mut sum = 0;
    for entry in fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?.flatten() {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        sum += match is_folder {
            true => kibibytes(&entry.path())?,
            false => entry.metadata().map_or(0, |file| file.len().div_ceil(1024)),
        };
    }
    Ok(sum)
}
