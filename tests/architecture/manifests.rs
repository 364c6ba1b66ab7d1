//! What a crate's `Cargo.toml` has to say.

/// Every foreign dependency without a comment that gives its reason, and what a crate does not take from the workspace.
pub(crate) fn findings(path: &str, manifest: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let mut in_dependencies = false;
    let mut previous = "";
    for (index, line) in manifest.lines().enumerate() {
        if line.starts_with('[') {
            in_dependencies =
                line.trim_matches(['[', ']']).split('.').any(|part| part.ends_with("dependencies"));
        } else if in_dependencies && needs_reason(line) && !has_reason(previous, line) {
            findings.push(format!("{path}:{}: say in a comment what this dependency is for", index + 1));
        }
        previous = line;
    }
    if manifest.contains("\n[workspace]\n") {
        // A workspace of its own has nothing to take from this one.
        return findings;
    }
    for needed in ["version", "edition", "rust-version", "license", "repository"] {
        if !manifest.contains(&format!("\n{needed}.workspace = true")) {
            findings.push(format!("{path}: {needed} comes from the workspace"));
        }
    }
    if !manifest.contains("[lints]\nworkspace = true") {
        findings.push(format!("{path}: the lints come from the workspace"));
    }
    findings
}

fn needs_reason(line: &str) -> bool {
    let of_house = line.contains("workspace = true");
    line.contains('=') && !line.starts_with([' ', '#']) && !of_house
}

/// A comment above or behind it; or it follows the crate it belongs to, as `serde_json` follows `serde`.
fn has_reason(previous: &str, line: &str) -> bool {
    let name = |line: &str| line.split([' ', '=', '.']).next().unwrap_or_default().to_owned();
    let family = name(previous);
    previous.starts_with('#')
        || line.contains(" # ")
        || (!family.is_empty() && name(line).starts_with(&family))
}

#[test]
fn a_dependency_without_a_reason_is_found() {
    let head = "[package]\nversion.workspace = true\nedition.workspace = true\nrust-version.workspace = true\n\
        license.workspace = true\nrepository.workspace = true\n[lints]\nworkspace = true\n";
    let found = |tail: &str| findings("Cargo.toml", &format!("{head}{tail}"));
    assert!(
        found("[dependencies]\n# Why.\na = \"1\"\nb = { workspace = true }\nc = \"1\" # Why.\nc-d = \"1\"\n")
            .is_empty()
    );
    assert_eq!(found("[dependencies]\n# Why.\na = \"1\"\nb = \"1\"").len(), 1);
    assert_eq!(found("[target.'cfg(unix)'.dev-dependencies]\na = \"1\"").len(), 1);
    assert!(found("[[test]]\nname = \"a\"").is_empty());
    assert_eq!(findings("Cargo.toml", "[package]\n").len(), 6);
    assert_eq!(findings("Cargo.toml", "[package]\n[workspace]\n[dependencies]\nforeign = \"1\"\n").len(), 1);
}
