//! `cargo xtask package`: the packages of a release, under `target/package`.
//!
//! ```text
//!   program ──► stage: the files as they are installed ──┬──► pondhawk-VERSION-MACHINE.tar.gz
//!                                                        ├──► pondhawk_VERSION_MACHINE.deb
//!                                                        └──► pondhawk-VERSION-MACHINE.oci.tar
//! ```
//!
//! All times in the packages are that of the last commit, so that two builds of it are equal.

mod deb;
mod image;
mod stage;
mod trial;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::house::House;
use crate::log::Log;

/// The options of the command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// The program that is packed. `None` builds a static one.
    program: Option<PathBuf>,
    /// Whether the Debian package is installed, used, upgraded and removed in a fresh system.
    is_tried: bool,
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
    /// The folder of the packages.
    folder: PathBuf,
    /// The files, as they are installed.
    root: PathBuf,
    version: String,
    /// The time of the last commit, in seconds since 1970.
    time: String,
    /// Whether the packages are for use, and not only for a test of their contents.
    is_small: bool,
}

impl Release<'_> {
    /// Machine of the packages, as Rust and RPM call it.
    const MACHINE: &'static str = env::consts::ARCH;

    /// The same machine, as Debian and OCI call it.
    fn architecture() -> &'static str {
        match Self::MACHINE {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        }
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
    let program = match &options.program {
        Some(program) => program.clone(),
        None => build(house, log)?,
    };
    let release = prepare(house, true)?;
    let packages = make(&release, &program, log)?;
    if options.is_tried {
        trial::run(&release, &packages.deb, log)?;
    }
    log.remark(format!("{} in {}", packages.names(), release.folder.display()));
    Ok(())
}

/// Makes packages of the program that tests use, and looks at them.
///
/// # Errors
/// A package cannot be made, or does not contain what it should.
pub(crate) fn run_in_short(house: &House, log: &mut Log) -> Result<(), String> {
    let release = prepare(house, false)?;
    let packages = make(&release, &house.built().join("pondhawk"), log)?;
    trial::look(&release, &packages, log)
}

/// The packages of a release.
#[derive(Debug)]
pub(crate) struct Packages {
    pub(crate) archive: PathBuf,
    pub(crate) deb: PathBuf,
    pub(crate) image: PathBuf,
}

impl Packages {
    fn names(&self) -> String {
        let name = |path: &PathBuf| {
            let bytes = fs::metadata(path).map_or(0, |file| file.len());
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            format!("{name} ({:.1} MB)", bytes as f64 / 1e6)
        };
        [&self.archive, &self.deb, &self.image].map(name).join(", ")
    }
}

fn prepare(house: &House, is_small: bool) -> Result<Release<'_>, String> {
    let folder = house.target().join("package").join(if is_small { "release" } else { "short" });
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let root = folder.join("root");
    fs::create_dir_all(&root).map_err(|error| format!("{}: {error}", root.display()))?;
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let output = house.command("git").args(["log", "-1", "--format=%ct"]).output();
    let time = output.ok().filter(|output| output.status.success());
    // Sources without a repository are packed with one fixed time.
    let time =
        time.map_or_else(|| "0".to_owned(), |time| String::from_utf8_lossy(&time.stdout).trim().to_owned());
    Ok(Release { house, folder, root, version, time, is_small })
}

fn make(release: &Release<'_>, program: &Path, log: &mut Log) -> Result<Packages, String> {
    stage::run(release, program, log)?;
    let packages = Packages {
        archive: stage::archive(release, log)?,
        deb: deb::run(release, log)?,
        image: image::run(release, log)?,
    };
    let mut sums = release.command("sha256sum");
    sums.current_dir(&release.folder);
    sums.args(
        [&packages.archive, &packages.deb, &packages.image].map(|path| path.file_name().unwrap_or_default()),
    );
    let sums = text_of(&mut sums)?;
    write(&release.folder.join("SHA256SUMS"), &sums)?;
    log.note(&sums);
    Ok(packages)
}

/// Builds a program that needs no library of the system. Names of folders of this machine are not in it.
fn build(house: &House, log: &mut Log) -> Result<PathBuf, String> {
    let target = format!("{}-unknown-linux-musl", Release::MACHINE);
    log.run(house.command("rustup").args(["target", "add", &target]))?;
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(Path::new(&env::var_os("HOME")?).join(".cargo"))).unwrap_or_default();
    let flags = [(home.as_path(), "/cargo"), (house.root(), "/pondhawk")]
        .map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()));
    let folder = house.target().join("package/build");
    let mut cargo = house.cargo();
    cargo.args(["build", "--release", "--locked", "--package", "pondhawk", "--target", &target]);
    cargo.arg("--target-dir").arg(&folder).env("RUSTFLAGS", flags.join(" "));
    // Sources in C say where they were too.
    cargo.env("CFLAGS", format!("-ffile-prefix-map={}=/cargo", home.display()));
    log.run(&mut cargo).map_err(|error| format!("{error}; on Debian, the package musl-tools is needed"))?;
    Ok(folder.join(target).join("release/pondhawk"))
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
        let options = Options::parse(&words("--try --program x"));
        assert_eq!(options, Ok(Options { program: Some("x".into()), is_tried: true }));
        assert!(Options::parse(&words("--program")).is_err());
        assert!(Options::parse(&words("--other")).is_err());
    }
}
