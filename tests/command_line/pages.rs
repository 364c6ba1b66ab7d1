//! The examples in the pages: configurations that are good, and flags that exist.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{check, pondhawk};

/// README.md and all pages that nobody generates.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let docs = fs::read_dir(root.join("docs")).expect("the pages are there");
    let mut pages: Vec<_> = docs.map(|entry| entry.expect("a page").path()).collect();
    // A folder has figures and generated pages.
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages.push(root.join("README.md"));
    pages.retain(|page| !page.ends_with("BENCHMARKS.md") && !page.ends_with("CONFORMANCE.md"));
    pages
}

/// The blocks of this kind in a page.
fn blocks(page: &str, kind: &str) -> Vec<String> {
    let begin = format!("```{kind}\n");
    let blocks = page.split(&begin).skip(1).filter_map(|rest| rest.split_once("```"));
    blocks.map(|(block, _)| block.to_owned()).collect()
}

fn read(page: &Path) -> String {
    fs::read_to_string(page).expect("a page can be read")
}

/// Files of certificates are not on this machine; every other error counts.
#[test]
fn each_configuration_in_the_pages_is_good() {
    let mut count = 0;
    for page in pages() {
        for block in blocks(&read(&page), "toml").iter().filter(|block| block.contains("[[listener]]")) {
            let (is_good, _, said) = check(block);
            let is_about_files = said.contains("/etc/pondhawk/") && !said.contains("unknown");
            assert!(is_good || is_about_files, "{}:\n{block}\n{said}", page.display());
            count += 1;
        }
    }
    assert!(count >= 6, "{count}");
}

#[test]
fn each_flag_of_a_command_in_the_pages_exists() {
    let mut helps: HashMap<String, String> = HashMap::new();
    let mut count = 0;
    for page in pages() {
        let text = read(&page);
        let blocks = [blocks(&text, "sh"), blocks(&text, "")].concat();
        for line in blocks.iter().flat_map(|block| block.lines()) {
            let line = line.split(" #").next().unwrap_or_default();
            let Some((_, words)) = line.split_once("pondhawk ").filter(|(before, _)| before.is_empty())
            else {
                continue;
            };
            let words: Vec<_> = words.split_whitespace().take_while(|word| *word != "|").collect();
            let tools = ["pub", "sub", "rr", "probe", "tap", "replay", "check", "serve"];
            let Some(tool) = words.first().filter(|word| tools.contains(word)) else { continue };
            let help = helps.entry((*tool).to_owned()).or_insert_with(|| {
                String::from_utf8(pondhawk(&[tool, "--help"], "").stdout).expect("help is text")
            });
            for flag in words.iter().filter(|word| word.starts_with('-') && **word != "-") {
                let is_there = help.split(|c: char| c.is_whitespace() || c == ',').any(|word| word == *flag);
                assert!(is_there || *flag == "--help", "{}: {line}: there is no {flag}", page.display());
                count += 1;
            }
        }
    }
    assert!(count >= 20, "{count}");
}
