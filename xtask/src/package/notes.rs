//! The notes of a release: its section of `CHANGELOG.md`.

use std::fs;
use std::path::PathBuf;

use super::{Release, write};

/// The section of changes that belong to no release yet.
const UNRELEASED: &str = "Unreleased";

/// Writes the notes beside the packages.
pub(super) fn run(release: &Release<'_>) -> Result<PathBuf, String> {
    let path = release.house.root().join("CHANGELOG.md");
    let changes = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let section = section(&changes, &release.version)
        .ok_or_else(|| format!("CHANGELOG.md has no section for {}", release.version))?;
    let notes = release.folder.join("release-notes.md");
    write(&notes, &format!("# Pondhawk {}\n\n{section}\n", release.version))?;
    Ok(notes)
}

/// The section of a version, or the one of unreleased changes if the version has none yet. Without its title.
fn section<'c>(changes: &'c str, version: &str) -> Option<&'c str> {
    let of = |wanted: &str| {
        let mut sections = changes.split("\n## ").skip(1);
        sections.find_map(|section| {
            let (title, text) = section.split_once('\n')?;
            let name = title.split(" - ").next()?.trim().trim_matches(['[', ']']);
            (name == wanted).then_some(text.trim()).filter(|text| !text.is_empty())
        })
    };
    of(version).or_else(|| of(UNRELEASED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_the_section_of_the_version_or_the_unreleased_one() {
        let changes = "# Changelog\n\n## Unreleased\n\n## [0.2.0] - 2026-12-01\n\n- new\n\n### Fixed\n- x\n\n## 0.1.0\n- old\n";
        assert_eq!(section(changes, "0.2.0"), Some("- new\n\n### Fixed\n- x"));
        assert_eq!(section(changes, "0.1.0"), Some("- old"));
        assert_eq!(section(changes, "0.3.0"), None, "nothing is unreleased");
        assert_eq!(section("# Changelog\n\n## Unreleased\n\n- soon\n", "0.3.0"), Some("- soon"));
    }
}
