//! A table in Markdown that reads well on a terminal too.

use std::fmt;

/// Rows in sections, under one heading.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Table {
    /// Title of the table.
    pub(crate) title: String,
    /// Column headings; the first is that of the row names.
    pub(crate) headings: Vec<String>,
    pub(crate) sections: Vec<Section>,
    /// Sentences below the table.
    pub(crate) notes: Vec<String>,
}

/// The rows that show one quantity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) title: String,
    /// Row name and cells.
    pub(crate) rows: Vec<Vec<String>>,
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n\n", self.title)?;
        let columns = self.headings.len();
        let mut lines = vec![self.headings.clone()];
        for section in &self.sections {
            let mut title = vec![format!("**{}**", section.title)];
            title.resize(columns, String::new());
            lines.push(title);
            lines.extend(section.rows.iter().cloned());
        }
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (number, line) in lines.iter().enumerate() {
            write_line(f, line, &widths)?;
            if number == 0 {
                write_rule(f, &widths)?;
            }
        }
        self.notes.iter().try_for_each(|note| write!(f, "\n{note}\n"))
    }
}

/// The first column is aligned left, the others right.
fn write_line(f: &mut fmt::Formatter<'_>, cells: &[String], widths: &[usize]) -> fmt::Result {
    for (column, (cell, &width)) in cells.iter().zip(widths).enumerate() {
        match column {
            0 => write!(f, "| {cell:<width$} ")?,
            _ => write!(f, "| {cell:>width$} ")?,
        }
    }
    f.write_str("|\n")
}

fn write_rule(f: &mut fmt::Formatter<'_>, widths: &[usize]) -> fmt::Result {
    for (column, &width) in widths.iter().enumerate() {
        let end = if column == 0 { '-' } else { ':' };
        write!(f, "|{}{end}", "-".repeat(width + 1))?;
    }
    f.write_str("|\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_sections_have_titles() {
        let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
        let table = Table {
            title: "A title".into(),
            headings: row(&["", "100", "1000"]),
            sections: vec![Section {
                title: "messages/s".into(),
                rows: vec![row(&["one", "1.00 M ± 2 k", "5"]), row(&["another", "7", "µ"])],
            }],
            notes: vec!["A note.".into()],
        };
        let expected = "\
            A title\n\n\
            |                |          100 | 1000 |\n\
            |----------------|-------------:|-----:|\n\
            | **messages/s** |              |      |\n\
            | one            | 1.00 M ± 2 k |    5 |\n\
            | another        |            7 |    µ |\n\
            \nA note.\n";
        assert_eq!(table.to_string(), expected);
    }
}
