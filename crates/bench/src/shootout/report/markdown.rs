//! The report as Markdown, which reads well on a terminal too.

use super::super::balancing::Balancing;
use super::super::findings::Findings;
use super::super::results::{Claim, Results, Workload};
use super::contents::Contents;
use super::machine::machine;
use super::tables::{self, CellText, Grid};
use super::{CLAIMS, LEGEND, SERVERS, balancing, closed_loop, legend, sentence};
use crate::table::{Section, Table};

/// The whole report. Broken promises and defeats of the first server come first.
pub(in super::super) fn markdown(results: &Results) -> String {
    let findings = Findings::of(results);
    let mut page = Page::default();
    if let Some(overview) = tables::overview(results) {
        page.heading("Overview");
        page.text.push_str(&table(&overview, Vec::new()));
    }
    page.heading(LEGEND);
    let lines: Vec<String> = legend(results).iter().map(|line| line.replace('*', "\\*")).collect();
    page.text.push_str(&format!("{}\n", lines.join("\n\n")));
    for (title, items, or_else) in findings.lists() {
        page.list(&title, items, or_else);
    }
    for workload in &results.workloads {
        page.workload(results, workload);
    }
    if !results.claims.is_empty() {
        page.heading(CLAIMS);
        let notes = results.claims.iter().filter(|claim| !claim.claim.is_empty()).map(note);
        page.text.push_str(&table(&tables::of_claims(&results.claims), notes.collect()));
    }
    if let Some(figures) = &results.balancing {
        page.balancing(figures);
    }
    page.heading(SERVERS);
    servers(&mut page.text, results);
    let contents: String =
        page.contents.entries().map(|(title, id)| format!("- [{title}](#{id})\n")).collect();
    let (title, machine, command) = (&results.title, machine(results), &results.command);
    format!("# {title}\n\n{machine}\n\n```\n{command}\n```\n\n{contents}{}", page.text)
}

/// The page below its table of contents, as far as it is written.
#[derive(Default)]
struct Page {
    text: String,
    contents: Contents,
}

impl Page {
    fn heading(&mut self, title: &str) {
        self.contents.add(title);
        self.text.push_str(&format!("\n## {title}\n\n"));
    }

    fn list(&mut self, title: &str, items: &[String], or_else: Option<String>) {
        if items.is_empty() && or_else.is_none() {
            return;
        }
        self.heading(title);
        for item in items {
            self.text.push_str(&format!("- {item}\n"));
        }
        if let Some(sentence) = or_else.filter(|_| items.is_empty()) {
            self.text.push_str(&format!("{sentence}\n"));
        }
    }

    fn workload(&mut self, results: &Results, workload: &Workload) {
        self.heading(&workload.title);
        if !workload.text.is_empty() {
            self.text.push_str(&format!("{}\n\n", workload.text));
        }
        self.text.push_str(&format!("```\npondhawk bench {}\n```\n\n", workload.bench));
        if let Some(warning) = closed_loop(workload) {
            self.text.push_str(&format!("{warning}\n\n"));
        }
        self.text.push_str(&table(&tables::of_workload(results, workload), Vec::new()));
    }

    fn balancing(&mut self, figures: &Balancing) {
        self.heading(&balancing::heading(figures));
        for text in balancing::texts(figures).into_iter().chain(balancing::absences(figures)) {
            self.text.push_str(&format!("{text}\n\n"));
        }
        for difference in balancing::differences(figures) {
            self.text.push_str(&format!("- {difference}\n"));
        }
        for workload in &figures.workloads {
            let Workload { title, text, bench, .. } = workload;
            self.text.push_str(&format!("\n### {title}\n\n{text}\n\n```\npondhawk bench {bench}\n```\n\n"));
            self.text.push_str(&table(&balancing::grid(figures, workload), Vec::new()));
        }
        for balancer in figures.balancers.iter().filter(|balancer| balancer.absence.is_none()) {
            let all = [&balancer.fairness[..], &balancer.notes].concat();
            let text = settings(&balancer.command, &balancer.files, &all);
            self.text.push_str(&format!("\n### {}\n\n{}\n\n{text}", balancer.name, balancer.version));
        }
    }
}

/// A command, its files, and its settings.
fn settings(command: &str, files: &[(String, String)], settings: &[String]) -> String {
    let mut text = format!("```\n{command}\n```\n");
    for (name, content) in files {
        text.push_str(&format!("\n{name}:\n\n```\n{}\n```\n", content.trim_end()));
    }
    for setting in settings {
        text.push_str(&format!("\n- {}", sentence(setting)));
    }
    text.push('\n');
    text
}

/// A table with notes below it.
fn table(grid: &Grid, notes: Vec<String>) -> String {
    let mut headings = vec![String::new()];
    headings.extend(grid.headings.iter().cloned());
    let row = |(name, cells): &(String, Vec<CellText>)| {
        std::iter::once(name.clone()).chain(cells.iter().map(cell)).collect()
    };
    let sections = grid.sections.iter().map(|section| Section {
        title: section.title.clone(),
        rows: section.rows.iter().map(row).collect(),
    });
    let table = Table { title: String::new(), headings, sections: sections.collect(), notes };
    table.to_string().trim_start().replace("\n\n\n", "\n\n")
}

fn cell(CellText { mean, rest, is_best }: &CellText) -> String {
    if *is_best { format!("**{mean}**{rest}") } else { format!("{mean}{rest}") }
}

/// The claim of a server, its command, and its settings.
fn note(claim: &Claim) -> String {
    let settings: String =
        claim.settings.iter().map(|setting| format!("\n  - {}", sentence(setting))).collect();
    format!(
        "- {}: {}\n  - `{}`{settings}",
        claim.server,
        claim.claim.trim().replace('\n', " "),
        claim.command
    )
}

fn servers(text: &mut String, results: &Results) {
    for server in results.described() {
        let gap = if text.ends_with("\n\n") { "" } else { "\n" };
        text.push_str(&format!("{gap}### {}\n\n", server.name));
        if let Some(absence) = &server.absence {
            text.push_str(&format!("Not measured: {absence}.\n"));
            continue;
        }
        let language = if server.language.is_empty() { "" } else { &format!("{}, ", server.language) };
        let version = server.version.replace('|', "\\|").replace('<', "&lt;");
        let own = settings(&server.command, &server.files, &[&server.fairness[..], &server.notes].concat());
        text.push_str(&format!("{language}version: {version}\n\n{own}"));
        for layered in &server.layers {
            let all = [&layered.fairness[..], &layered.notes].concat();
            let own = settings(&layered.command, &layered.files, &all);
            text.push_str(&format!("\n{}, over {}:\n\n{own}", server.name, layered.over));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::fixture::{claim, results};
    use super::*;

    fn at(text: &str, what: &str) -> usize {
        text.find(what).unwrap_or_else(|| panic!("{what} is missing in {text}"))
    }

    #[test]
    fn broken_promises_and_defeats_come_first_and_every_figure_has_its_command() {
        let mut results = results();
        results.claims = vec![claim("third", 40, 40)];
        let text = markdown(&results);
        let order = [
            "\n## Overview",
            "\n## Acknowledged messages lost",
            "third lost 40 of 40",
            "\n## Where mine loses",
            "\n## Messages lost",
            "\n## loadtest",
            "pondhawk bench loadtest --conns 100,500",
            "900 ± 0 †",
            "setting: reason",
        ];
        assert!(order.windows(2).all(|pair| at(&text, pair[0]) < at(&text, pair[1])), "{text}");
        assert!(at(&text, "failed |") < at(&text, "setting: reason"));
    }

    #[test]
    fn signs_are_explained_before_the_first_workload_and_the_best_mean_is_bold() {
        let mut results = results();
        results.workloads[0].cells[1].runs[0].generator_busy = 1.0;
        let text = markdown(&results);
        assert!(at(&text, "\\* The generator") < at(&text, "\n## loadtest"));
        assert!(text.contains(" **200** ± 6.35 * |"), "{text}");
    }

    #[test]
    fn the_contents_name_every_heading() {
        let text = markdown(&results());
        let headings = text.lines().filter_map(|line| line.strip_prefix("## "));
        let contents = text.lines().filter_map(|line| line.strip_prefix("- [")?.split("](#").next());
        assert_eq!(headings.collect::<Vec<_>>(), contents.collect::<Vec<_>>());
        assert!(text.contains("- [How to read the tables](#how-to-read-the-tables)"), "{text}");
    }
}
