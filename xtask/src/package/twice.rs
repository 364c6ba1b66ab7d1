//! A second build of a release in another folder, which must be equal to the first one.

use std::fs;
use std::path::Path;

use super::{Made, Options, make_all, text_of};
use crate::house::House;
use crate::log::Log;

/// Makes the packages once more from a copy of the sources, and compares their checksums.
///
/// # Errors
/// A package differs. The error names it.
pub(super) fn run(house: &House, options: &Options, first: &Made<'_>, log: &mut Log) -> Result<(), String> {
    let folder = house.target().join("package/again");
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    // The folder is deeper than the first one, so that a path of another length is found too.
    let root = folder.join("in/another/folder");
    fs::create_dir_all(&root).map_err(|error| format!("{}: {error}", root.display()))?;
    let copy =
        "git ls-files -z | xargs -0 cp --parents --no-dereference --preserve=mode --target-directory=\"$0\"";
    log.run(house.command("sh").args(["-c", copy]).arg(&root))?;
    // The list of its files is that of the first one.
    let list = "git init --quiet && git add --all --force";
    log.run(house.command("sh").args(["-c", list]).current_dir(&root))?;
    let second = House::at(root.clone(), root.join("target"));
    let second = make_all(&second, options, &first.time, log)?;
    let sums = |made: &Made<'_>| {
        let path = made.folder.join("SHA256SUMS");
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let differing = differing(&sums(first)?, &sums(&second)?);
    for (one, other) in first.releases.iter().zip(&second.releases) {
        let sum = |root: &Path| text_of(one.release.command("sha256sum").arg(root.join("usr/bin/pondhawk")));
        log.note(&format!("{}{}", sum(&one.release.root)?, sum(&other.release.root)?));
    }
    match differing.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "a second build differs in: {}; it is in {}",
            differing.join(", "),
            second.folder.display()
        )),
    }
}

/// The names of files whose checksums differ, or that only one of the lists has.
fn differing(one: &str, other: &str) -> Vec<String> {
    let only = |one: &str, other: &str| {
        let missing = one.lines().filter(|line| other.lines().all(|known| known != *line));
        missing.filter_map(|line| line.split_whitespace().last()).map(str::to_owned).collect::<Vec<_>>()
    };
    let mut names = [only(one, other), only(other, one)].concat();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_another_checksum_or_without_one_differs() {
        assert!(differing("1  a\n2  b\n", "1  a\n2  b\n").is_empty());
        assert_eq!(differing("1  a\n2  b\n", "1  a\n3  b\n4  c\n"), ["b", "c"]);
    }
}
