//! Checks that the committed manual is the one that the keys generate.

use std::path::Path;

/// Environment variable of `cargo xtask docs`: the test writes the file instead of comparing it.
const WRITE: &str = "PONDHAWK_WRITE_DOCS";

#[test]
fn docs_configuration_md_is_what_the_keys_generate() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/CONFIGURATION.md");
    let generated = config::markdown();
    if std::env::var_os(WRITE).is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &generated).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == generated, "docs/CONFIGURATION.md is not current: run `cargo xtask docs`");
}

#[test]
fn the_help_names_every_key_and_fits_a_terminal() {
    let help = config::help();
    for key in config::tables().iter().flat_map(|table| &table.keys) {
        assert!(help.contains(&format!("\n  {}: ", key.name)), "{}", key.name);
    }
    assert!(help.lines().all(|line| line.len() <= 100), "{help}");
}
