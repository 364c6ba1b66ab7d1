//! The headings of a page, and the ids with which the table of contents refers to them.

use std::collections::BTreeSet;

/// Headings in the order of the page.
#[derive(Debug, Default)]
pub(super) struct Contents {
    used: BTreeSet<String>,
    /// Title and id.
    entries: Vec<(String, String)>,
}

impl Contents {
    /// Adds a heading. Returns its id, which is the one that GitHub gives to the heading in Markdown.
    pub(super) fn add(&mut self, title: &str) -> String {
        let plain = slug(title);
        let numbered = (1..).map(|number| format!("{plain}-{number}"));
        let mut ids = std::iter::once(plain.clone()).chain(numbered);
        let id = ids.find(|id| self.used.insert(id.clone())).expect("there are more numbers than headings");
        self.entries.push((title.to_owned(), id.clone()));
        id
    }

    /// Titles with their ids.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().map(|(title, id)| (title.as_str(), id.as_str()))
    }
}

/// Small letters and digits, with hyphens for spaces.
fn slug(title: &str) -> String {
    let kept = title.chars().filter(|character| character.is_alphanumeric() || " -_".contains(*character));
    kept.flat_map(char::to_lowercase)
        .map(|character| if character == ' ' { '-' } else { character })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_heading_has_an_id_of_its_own() {
        let mut contents = Contents::default();
        let ids = ["Order by rate (~ no difference)", "loadtest", "loadtest", "Stored?"]
            .map(|title| contents.add(title));
        assert_eq!(ids, ["order-by-rate--no-difference", "loadtest", "loadtest-1", "stored"]);
        assert_eq!(contents.entries().nth(2), Some(("loadtest", "loadtest-1")));
    }
}
