//! Checks that the committed manual is the one that the table of metrics generates.

use std::path::Path;

/// Environment variable of `cargo xtask docs`: the test writes the file instead of comparing it.
const WRITE: &str = "PONDHAWK_WRITE_DOCS";

#[test]
fn docs_metrics_md_is_what_the_table_generates() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/METRICS.md");
    let generated = pondhawk_admin::metrics::markdown();
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &generated).expect("the page is written");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == generated, "docs/METRICS.md is not current: run `cargo xtask docs`");
}
