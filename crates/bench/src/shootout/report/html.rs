//! The report as one HTML file: no script, nothing to download.

use std::fmt::Write;

use super::super::findings::{Findings, QUANTITIES};
use super::super::results::{Claim, Results, Workload};
use super::{cell_text, charts, legend, machine, quantities, sentence};
use crate::error::Result;
use crate::figure;

const STYLE: &str = include_str!("style.css");

/// The whole report. Defeats of the first server come first.
///
/// # Errors
/// If a chart cannot be drawn.
pub(in super::super) fn html(results: &Results) -> Result<String> {
    let findings = Findings::of(results);
    let subject = results.present().next().map(|server| server.name.as_str()).unwrap_or_default();
    let mut page = Page::default();
    page.element("h1", &results.title);
    page.element("p", &machine(results));
    page.element("pre", &results.command);
    page.list(&format!("Where {subject} loses"), &findings.defeats, None);
    page.list("Messages lost, repeated or out of order", &findings.faults, Some("None."));
    page.list("Runs that failed", &findings.failures, None);
    page.list("Order by rate (~ no difference between neighbours)", &findings.rankings, None);
    for workload in &results.workloads {
        page.workload(results, workload)?;
    }
    if !results.claims.is_empty() {
        page.claims(&results.claims);
    }
    page.element("h2", "How to read the tables");
    for line in legend(results) {
        page.element("p", line);
    }
    page.servers(results);
    let title = escaped(&results.title);
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n\
         <body>\n<main>\n{}</main>\n</body>\n</html>\n",
        page.text
    ))
}

/// The body of the page, as far as it is written.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn element(&mut self, name: &str, text: &str) {
        self.raw(&format!("<{name}>{}</{name}>\n", escaped(text)));
    }

    fn raw(&mut self, html: &str) {
        self.text.push_str(html);
    }

    fn list(&mut self, title: &str, items: &[String], or_else: Option<&str>) {
        if items.is_empty() && or_else.is_none() {
            return;
        }
        self.element("h2", title);
        if let Some(sentence) = or_else.filter(|_| items.is_empty()) {
            return self.element("p", sentence);
        }
        self.raw("<ul>\n");
        items.iter().for_each(|item| self.element("li", item));
        self.raw("</ul>\n");
    }

    fn workload(&mut self, results: &Results, workload: &Workload) -> Result<()> {
        self.element("h2", &workload.title);
        if !workload.text.is_empty() {
            self.element("p", &workload.text);
        }
        self.element("pre", &format!("pondhawk bench {}", workload.bench));
        self.chart(
            charts::rates(results, workload)?,
            &format!("{}: {}", workload.title, QUANTITIES[0].name_in(workload)),
        );
        self.chart(
            charts::cpu(results, workload)?,
            &format!("{}: {}", workload.title, QUANTITIES[1].name_in(workload)),
        );
        for (size, heading) in workload.sizes.iter().enumerate() {
            let title = format!("{}, {}: latency", workload.title, heading.name);
            self.chart(charts::latency(results, workload, size)?, &title);
        }
        self.raw("<div class=\"wide\"><table>\n<tr><th></th>");
        workload.sizes.iter().for_each(|size| self.element("th", &size.name));
        self.raw("</tr>\n");
        for quantity in quantities(workload) {
            let columns = workload.sizes.len() + 1;
            self.raw(&format!(
                "<tr class=\"quantity\"><th colspan=\"{columns}\">{}</th></tr>\n",
                quantity.name_in(workload)
            ));
            for server in results.present() {
                self.raw("<tr>");
                self.element("th", &server.name);
                for size in 0..workload.sizes.len() {
                    let cell = workload.cell(&server.name, size);
                    self.element(
                        "td",
                        &cell.map_or_else(|| "–".to_owned(), |cell| cell_text(workload, cell, quantity)),
                    );
                }
                self.raw("</tr>\n");
            }
        }
        self.raw("</table></div>\n");
        Ok(())
    }

    fn chart(&mut self, svg: Option<String>, title: &str) {
        let Some(svg) = svg else { return };
        let title = escaped(title);
        // The size in the file is that of its coordinates; the page decides how wide it is.
        let svg = svg.replacen("<svg ", &format!("<svg role=\"img\" aria-label=\"{title}\" "), 1);
        self.raw(&format!("<figure>{svg}<figcaption>{title}</figcaption></figure>\n"));
    }

    fn claims(&mut self, claims: &[Claim]) {
        self.element("h2", "Acknowledged means stored?");
        self.element(
            "p",
            "Each server that claims durability acknowledges messages of QoS 1 for a lasting session, is killed with \
             SIGKILL, and starts again. Then its subscriber comes back and counts. SIGKILL is kinder than a power cut.",
        );
        self.raw(
            "<div class=\"wide\"><table class=\"claims\">\n<tr><th></th><th>acknowledged</th><th>per second</th>\
             <th>acknowledged and lost</th><th>claim</th></tr>\n",
        );
        for claim in claims {
            self.raw("<tr>");
            self.element("th", &claim.server);
            let per_sec = figure::quantity(claim.acknowledged as f64 / claim.seconds.max(1e-9));
            let cells = match &claim.failure {
                Some(why) => ["–".to_owned(), "–".to_owned(), format!("failed: {why}"), claim.claim.clone()],
                None => {
                    [claim.acknowledged.to_string(), per_sec, claim.lost.to_string(), claim.claim.clone()]
                }
            };
            cells.iter().for_each(|cell| self.element("td", cell));
            self.raw("</tr>\n");
        }
        self.raw("</table></div>\n");
        for claim in claims {
            self.raw(&format!("<details><summary>Settings of {}</summary>\n", escaped(&claim.server)));
            self.element("pre", &claim.command);
            self.raw("<ul>\n");
            claim.settings.iter().for_each(|setting| self.element("li", &sentence(setting)));
            self.raw("</ul></details>\n");
        }
    }

    fn servers(&mut self, results: &Results) {
        self.element("h2", "Servers and their settings");
        for server in &results.servers {
            self.element("h3", &server.name);
            if let Some(absence) = &server.absence {
                self.element("p", &format!("Not measured: {absence}."));
                continue;
            }
            self.element("p", &format!("{} {}", server.language, server.version));
            self.settings(&server.command, &server.files, &[&server.fairness[..], &server.notes].concat());
            for layered in &server.layers {
                let title = format!("{}, over {}", server.name, layered.over);
                self.raw(&format!("<details><summary>{}</summary>\n", escaped(&title)));
                let settings = [&layered.fairness[..], &layered.notes].concat();
                self.settings(&layered.command, &layered.files, &settings);
                self.raw("</details>\n");
            }
        }
    }

    fn settings(&mut self, command: &str, files: &[(String, String)], settings: &[String]) {
        self.element("pre", command);
        for (name, content) in files {
            self.raw(&format!("<details><summary>{}</summary>", escaped(name)));
            self.element("pre", content.trim_end());
            self.raw("</details>\n");
        }
        self.raw("<ul>\n");
        settings.iter().for_each(|setting| self.element("li", &sentence(setting)));
        self.raw("</ul>\n");
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            // A version that a program prints may contain anything.
            character if character.is_control() && character != '\n' => {
                let _ = write!(escaped, "\\u{{{:x}}}", u32::from(character));
            }
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::super::super::findings::tests::results;
    use super::*;

    #[test]
    fn texts_of_others_are_no_markup() {
        let mut results = results();
        results.servers[1].version = "<script>\u{1b}[31m".into();
        let page = html(&results).unwrap();
        assert!(page.contains("&lt;script&gt;\\u{1b}[31m") && !page.contains("<script"), "{page}");
    }

    #[test]
    fn defeats_come_first() {
        let page = html(&results()).unwrap();
        assert!(page.find("Where mine loses") < page.find("Messages lost"));
        assert!(page.contains("<svg role=\"img\""));
    }
}
