//! The program of a release.

use std::env;
use std::path::{Path, PathBuf};

use super::machine::Machine;
use crate::house::House;
use crate::log::Log;
use crate::tools;

/// Builds a program that needs no library of the system. Names of folders of this machine are not in it.
///
/// # Errors
/// The build fails, or a compiler is missing.
pub(super) fn run(house: &House, machine: Machine, log: &mut Log) -> Result<PathBuf, String> {
    let target = machine.target();
    log.run(house.command("rustup").args(["target", "add", &target]))?;
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(Path::new(&env::var_os("HOME")?).join(".cargo"))).unwrap_or_default();
    let folder = house.target().join("package/build");
    // The last one that fits counts.
    let places = [(home.as_path(), "/cargo"), (house.root(), "/pondhawk"), (folder.as_path(), "/build")];
    let flags = places.map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()));
    let c_flags = places.map(|(from, to)| format!("-ffile-prefix-map={}={to}", from.display()));
    let is_foreign = machine != Machine::HERE;
    let mut cargo = house.cargo();
    cargo.arg(if is_foreign { "zigbuild" } else { "build" });
    cargo.args(["--release", "--locked", "--package", "pondhawk", "--target", &target]);
    cargo.arg("--target-dir").arg(&folder).env("RUSTFLAGS", flags.join(" "));
    // Sources in C say where they were too.
    cargo.env("CFLAGS", c_flags.join(" "));
    cargo.env("CARGO_PROFILE_RELEASE_STRIP", "symbols");
    if is_foreign {
        cargo.env("PATH", tools::with_zig(house, log)?);
    }
    log.run(&mut cargo).map_err(|error| format!("{error}; on Debian, the package musl-tools is needed"))?;
    Ok(folder.join(target).join("release/pondhawk"))
}
