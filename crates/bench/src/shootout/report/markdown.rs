//! The report as Markdown, which reads well on a terminal too.

use super::super::findings::{Findings, Quantity};
use super::super::results::{Claim, Results, Workload};
use super::{cell_text, legend, machine, quantities, sentence};
use crate::figure;
use crate::table::{Section, Table};

/// The whole report. Defeats of the first server come first.
pub(in super::super) fn markdown(results: &Results) -> String {
    let findings = Findings::of(results);
    let mut text = format!("# {}\n\n{}\n\n```\n{}\n```\n", results.title, machine(results), results.command);
    let subject = results.present().next().map(|server| server.name.as_str()).unwrap_or_default();
    list(&mut text, &format!("Where {subject} loses"), &findings.defeats, None);
    list(&mut text, "Messages lost, repeated or out of order", &findings.faults, Some("None."));
    list(&mut text, "Runs that failed", &findings.failures, None);
    list(&mut text, "Order by rate (~ no difference between neighbours)", &findings.rankings, None);
    for workload in &results.workloads {
        text.push_str(&format!("\n## {}\n\n", workload.title));
        if !workload.text.is_empty() {
            text.push_str(&format!("{}\n\n", workload.text));
        }
        text.push_str(&format!("```\npondhawk bench {}\n```\n\n", workload.bench));
        text.push_str(&table(results, workload).to_string().trim_start().replace("\n\n\n", "\n\n"));
    }
    if !results.claims.is_empty() {
        text.push_str("\n## Acknowledged means stored?\n\n");
        text.push_str(&claims(&results.claims).to_string().trim_start().replace("\n\n\n", "\n\n"));
    }
    text.push('\n');
    for line in legend(results) {
        text.push_str(&format!("{}\n\n", line.replace('*', "\\*")));
    }
    servers(&mut text, results);
    text
}

fn list(text: &mut String, title: &str, items: &[String], or_else: Option<&str>) {
    if items.is_empty() && or_else.is_none() {
        return;
    }
    text.push_str(&format!("\n## {title}\n\n"));
    for item in items {
        text.push_str(&format!("- {item}\n"));
    }
    if let Some(sentence) = or_else.filter(|_| items.is_empty()) {
        text.push_str(&format!("{sentence}\n"));
    }
}

fn table(results: &Results, workload: &Workload) -> Table {
    let mut headings = vec![String::new()];
    headings.extend(workload.sizes.iter().map(|size| size.name.clone()));
    let section = |quantity: &Quantity| {
        let row = |name: &String| {
            let cells = (0..workload.sizes.len()).map(|size| {
                workload
                    .cell(name, size)
                    .map_or_else(|| "–".to_owned(), |cell| cell_text(workload, cell, quantity))
            });
            std::iter::once(name.clone()).chain(cells).collect()
        };
        Section {
            title: quantity.name_in(workload),
            rows: results.present().map(|server| row(&server.name)).collect(),
        }
    };
    let sections = quantities(workload).into_iter().map(section).collect();
    Table { title: String::new(), headings, sections, notes: Vec::new() }
}

fn claims(claims: &[Claim]) -> Table {
    let headings = ["", "acknowledged before SIGKILL", "per second", "acknowledged and lost"];
    let row = |claim: &Claim| match &claim.failure {
        Some(why) => vec![claim.server.clone(), "–".into(), "–".into(), format!("failed: {why}")],
        None => vec![
            claim.server.clone(),
            claim.acknowledged.to_string(),
            figure::quantity(claim.acknowledged as f64 / claim.seconds.max(1e-9)),
            claim.lost.to_string(),
        ],
    };
    let notes = claims.iter().filter(|claim| !claim.claim.is_empty());
    Table {
        title: String::new(),
        headings: headings.map(str::to_owned).to_vec(),
        sections: vec![Section {
            title: "QoS 1, lasting session".into(),
            rows: claims.iter().map(row).collect(),
        }],
        notes: notes.map(note).collect(),
    }
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
    text.push_str("## Servers and their settings\n");
    for server in &results.servers {
        text.push_str(&format!("\n### {}\n\n", server.name));
        if let Some(absence) = &server.absence {
            text.push_str(&format!("Not measured: {absence}.\n"));
            continue;
        }
        let language = if server.language.is_empty() { "" } else { &format!("{}, ", server.language) };
        let version = server.version.replace('|', "\\|").replace('<', "&lt;");
        text.push_str(&format!("{language}version: {version}\n\n```\n{}\n```\n", server.command));
        for (name, content) in &server.files {
            text.push_str(&format!("\n{name}:\n\n```\n{}\n```\n", content.trim_end()));
        }
        for setting in server.fairness.iter().chain(&server.notes) {
            text.push_str(&format!("\n- {}", sentence(setting)));
        }
        text.push('\n');
        for layered in &server.layers {
            text.push_str(&format!(
                "\n{}, over {}:\n\n```\n{}\n```\n",
                server.name, layered.over, layered.command
            ));
            for (name, content) in &layered.files {
                text.push_str(&format!("\n{name}:\n\n```\n{}\n```\n", content.trim_end()));
            }
            for setting in layered.fairness.iter().chain(&layered.notes) {
                text.push_str(&format!("\n- {}", sentence(setting)));
            }
            text.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::findings::tests::results;
    use super::*;

    #[test]
    fn defeats_come_first_and_every_figure_has_its_command() {
        let text = markdown(&results());
        let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what} is missing in {text}"));
        assert!(at("## Where mine loses") < at("## Messages lost"));
        assert!(at("pondhawk bench loadtest --conns 100,500") < at("| mine "));
        assert!(at("| other") < at("900 ± 0 †"));
        assert!(at("failed") < at("setting: reason"));
    }
}
