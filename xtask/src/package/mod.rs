//! `cargo xtask package`: the packages of a release, under `target/package`.
//!
//! ```text
//!   program ──► stage: the files as they are installed ──┬──► pondhawk-VERSION-MACHINE.tar.gz
//!                                                        ├──► pondhawk_VERSION_MACHINE.deb
//!                                                        ├──► pondhawk-VERSION-1.MACHINE.rpm
//!                                                        └──► pondhawk-VERSION-MACHINE.oci.tar
//!   Cargo.lock ──► pondhawk-VERSION-MACHINE.cdx.json
//!   CHANGELOG.md ──► release-notes.md
//!   repository ──► pondhawk-VERSION-source.tar.gz ──► pondhawk.rb, the formula for Homebrew
//!   packaging/helm ──► pondhawk-chart-VERSION.tgz
//! ```
//!
//! All times in the packages are that of the last commit, or of `SOURCE_DATE_EPOCH`, so that two builds of it are equal.

mod build;
mod deb;
mod image;
mod listings;
mod look;
mod machine;
mod notes;
mod rpm;
mod sbom;
mod stage;
mod trial;
mod twice;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use image::Image;
use machine::Machine;

use crate::house::House;
use crate::log::Log;

/// The options of the command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// The program that is packed. `None` builds a static one.
    program: Option<PathBuf>,
    /// Whether the packages for Debian and RPM are installed, used, upgraded and removed in a fresh system.
    is_tried: bool,
    /// Whether everything is built a second time, in another folder, and compared.
    is_repeated: bool,
    /// Other machines that get packages.
    also: Vec<Machine>,
}

impl Options {
    /// Reads the words behind the command.
    ///
    /// # Errors
    /// There is no such option.
    pub(crate) fn parse(words: &[String]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--try" => options.is_tried = true,
                "--program" => {
                    options.program = Some(words.next().ok_or("--program takes a FILE")?.into());
                }
                "--twice" => options.is_repeated = true,
                "--also" => {
                    options.also.push(Machine::parse(words.next().ok_or("--also takes a MACHINE")?)?);
                }
                other => return Err(format!("package has no option `{other}`")),
            }
        }
        Ok(options)
    }
}

/// A release: its files, and the values that all packages have in common.
#[derive(Debug)]
pub(crate) struct Release<'a> {
    house: &'a House,
    machine: Machine,
    /// The folder of the packages.
    folder: PathBuf,
    /// The folder of what they are made from.
    work: PathBuf,
    /// The files, as they are installed.
    root: PathBuf,
    version: String,
    /// The time of the last commit, in seconds since 1970.
    time: String,
    /// Whether the packages are for use, and not only for a test of their contents.
    is_small: bool,
}

impl Release<'_> {
    /// The first part of the names of packages that have no other rule for it.
    fn name(&self) -> String {
        format!("pondhawk-{}-{}", self.version, self.machine.name())
    }

    /// The time of the packages, in a format of `date`.
    fn date(&self, format: &str) -> Result<String, String> {
        let time = format!("--date=@{}", self.time);
        Ok(text_of(self.command("date").args(["--utc", &time, format]))?.trim().to_owned())
    }

    fn command(&self, program: &str) -> Command {
        let mut command = self.house.command(program);
        command.env("SOURCE_DATE_EPOCH", &self.time).env("LC_ALL", "C");
        command
    }

    /// A tar archive of a folder, with names that begin with this prefix. Equal folders have equal archives.
    fn tar(&self, folder: &Path, prefix: &str, to: &Path, log: &mut Log) -> Result<(), String> {
        let mut tar = self.tar_of_root(to);
        tar.arg(format!("--transform=s,^\\.,{prefix},"));
        log.run(tar.arg("--directory").arg(folder).arg("."))
    }

    /// A command that makes an archive in which everything belongs to root.
    fn tar_of_root(&self, to: &Path) -> Command {
        let mut tar = self.command("tar");
        tar.args(["--create", "--sort=name", "--format=gnu", "--owner=0", "--group=0", "--numeric-owner"]);
        tar.arg(format!("--mtime=@{}", self.time)).arg("--file").arg(to);
        tar
    }
}

/// Makes all packages.
///
/// # Errors
/// A build fails, or a tool is missing.
pub(crate) fn run(house: &House, options: &Options, log: &mut Log) -> Result<(), String> {
    let made = make_all(house, options, &time(house), log)?;
    if options.is_tried {
        trial::run(&made.releases[0], log)?;
    }
    look::check_with_lintian(&made, log)?;
    if options.is_repeated {
        twice::run(house, options, &made, log)?;
    }
    log.remark(format!("{} in {}", made.names(), made.folder.display()));
    Ok(())
}

/// Makes packages of the program that tests use, and looks at them.
///
/// # Errors
/// A package cannot be made, or does not contain what it should.
pub(crate) fn run_in_short(house: &House, log: &mut Log) -> Result<(), String> {
    let release = prepare(house, Machine::HERE, &time(house), "short")?;
    stage::run(&release, &house.built().join("pondhawk"), None, log)?;
    let made = close(vec![make(release, log)?], log)?;
    made.releases.iter().try_for_each(|packages| look::run(packages, log))?;
    made.releases.iter().try_for_each(|packages| trial::run_here(packages, log))?;
    look::check_with_lintian(&made, log)
}

/// The packages for one machine.
#[derive(Debug)]
struct Packages<'a> {
    release: Release<'a>,
    archive: PathBuf,
    deb: PathBuf,
    rpm: PathBuf,
    image: Image,
    sbom: PathBuf,
}

impl Packages<'_> {
    fn files(&self) -> [&Path; 5] {
        [&self.archive, &self.deb, &self.rpm, &self.image.archive, &self.sbom]
    }
}

/// Everything that a release publishes.
#[derive(Debug)]
struct Made<'a> {
    folder: PathBuf,
    time: String,
    /// The first ones are those of this machine.
    releases: Vec<Packages<'a>>,
    /// All files, with their sizes in bytes.
    files: Vec<(String, u64)>,
}

impl Made<'_> {
    fn names(&self) -> String {
        let name = |(name, bytes): &(String, u64)| format!("{name} ({:.1} MB)", *bytes as f64 / 1e6);
        self.files.iter().map(name).collect::<Vec<_>>().join(", ")
    }
}

fn make_all<'a>(house: &'a House, options: &Options, time: &str, log: &mut Log) -> Result<Made<'a>, String> {
    let mut made: Vec<Packages<'a>> = Vec::new();
    for machine in [Machine::HERE].iter().chain(options.also.iter().filter(|also| **also != Machine::HERE)) {
        let program = match &options.program {
            Some(program) if *machine == Machine::HERE => program.clone(),
            _ => build::run(house, *machine, log)?,
        };
        let release = prepare(house, *machine, time, "release")?;
        stage::run(&release, &program, made.first().map(|first| &first.release), log)?;
        made.push(make(release, log)?);
    }
    close(made, log)
}

/// The time of the packages, in seconds since 1970.
fn time(house: &House) -> String {
    if let Ok(time) = env::var("SOURCE_DATE_EPOCH") {
        return time;
    }
    let output = house.command("git").args(["log", "-1", "--format=%ct"]).output();
    let time = output.ok().filter(|output| output.status.success());
    // Sources without a repository are packed with one fixed time.
    time.map_or_else(|| "0".to_owned(), |time| String::from_utf8_lossy(&time.stdout).trim().to_owned())
}

/// Empties the folders of the packages. `kind` is `release` or `short`.
fn prepare<'a>(house: &'a House, machine: Machine, time: &str, kind: &str) -> Result<Release<'a>, String> {
    let folder = house.target().join("package").join(kind);
    let work = house.target().join("package/work").join(kind).join(machine.name());
    let emptied: &[&Path] = if machine == Machine::HERE { &[&folder, &work] } else { &[&work] };
    for folder in emptied.iter().filter(|folder| folder.exists()) {
        fs::remove_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let root = work.join("root");
    for folder in [&folder, &root] {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let version = env!("CARGO_PKG_VERSION").to_owned();
    Ok(Release {
        house,
        machine,
        folder,
        work,
        root,
        version,
        time: time.to_owned(),
        is_small: kind == "release",
    })
}

fn make<'a>(release: Release<'a>, log: &mut Log) -> Result<Packages<'a>, String> {
    Ok(Packages {
        archive: stage::archive(&release, log)?,
        deb: deb::run(&release, log)?,
        rpm: rpm::run(&release, log)?,
        image: image::run(&release, log)?,
        sbom: sbom::run(&release)?,
        release,
    })
}

/// Adds all that belongs to no single machine, and the checksums.
fn close<'a>(releases: Vec<Packages<'a>>, log: &mut Log) -> Result<Made<'a>, String> {
    let release = &releases.first().expect("there are the packages of this machine").release;
    let mut paths: Vec<PathBuf> = releases.iter().flat_map(Packages::files).map(Path::to_path_buf).collect();
    if releases.len() > 1 {
        let images: Vec<&Image> = releases.iter().map(|packages| &packages.image).collect();
        paths.push(image::join(release, &images, log)?);
    }
    paths.extend(listings::run(release, log)?);
    paths.push(notes::run(release)?);
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let bytes = |path: &PathBuf| fs::metadata(path).map_or(0, |file| file.len());
    let files: Vec<(String, u64)> = paths.iter().map(|path| (name(path), bytes(path))).collect();
    let mut sums = release.command("sha256sum");
    sums.current_dir(&release.folder).args(files.iter().map(|(name, _)| name));
    let sums = text_of(&mut sums)?;
    write(&release.folder.join("SHA256SUMS"), &sums)?;
    log.note(&sums);
    Ok(Made { folder: release.folder.clone(), time: release.time.clone(), files, releases })
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, text))
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// The output of a program.
fn text_of(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("cannot run `{name}`: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("`{name}` failed: {}", String::from_utf8_lossy(&output.stderr)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_others_refused() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let options = Options::parse(&words("--try --program x --twice --also aarch64"));
        let also = vec![Machine::parse("aarch64").expect("it is known")];
        assert_eq!(
            options,
            Ok(Options { program: Some("x".into()), is_tried: true, is_repeated: true, also })
        );
        assert!(Options::parse(&words("--program")).is_err());
        assert!(Options::parse(&words("--also pdp11")).is_err());
        assert!(Options::parse(&words("--other")).is_err());
    }
}
