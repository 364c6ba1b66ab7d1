//! The report as one HTML file: no script, nothing to download.

use std::fmt::Write;

use super::super::balancing::Balancing;
use super::super::findings::Findings;
use super::super::quantity::QUANTITIES;
use super::super::results::{Claim, Results, Workload};
use super::contents::Contents;
use super::drawing::Chart;
use super::machine::machine;
use super::tables::{self, CellText, Grid};
use super::{CLAIMS, LEGEND, SERVERS, balancing, charts, closed_loop, is_closed_loop, legend, sentence};
use crate::error::Result;

const STYLE: &str = include_str!("style.css");

/// The whole report. Broken promises and defeats of the first server come first.
///
/// # Errors
/// If a chart cannot be drawn.
pub(in super::super) fn html(results: &Results) -> Result<String> {
    let findings = Findings::of(results);
    let mut page = Page::default();
    if let Some(overview) = tables::overview(results) {
        page.heading("Overview");
        page.table(&overview, "overview");
    }
    page.heading(LEGEND);
    for line in legend(results) {
        page.element("p", line);
    }
    for (title, items, or_else) in findings.lists() {
        page.list(&title, items, or_else);
    }
    for workload in &results.workloads {
        page.workload(results, workload)?;
    }
    if !results.claims.is_empty() {
        page.claims(&results.claims);
    }
    if let Some(figures) = &results.balancing {
        page.balancing(figures);
    }
    page.servers(results);
    let mut top = Page::default();
    top.element("h1", &results.title);
    top.element("p", &machine(results));
    top.element("pre", &results.command);
    top.contents(&page.contents);
    let title = escaped(&results.title);
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n<style>\n{STYLE}\
         </style>\n</head>\n<body>\n<main>\n{}{}</main>\n</body>\n</html>\n",
        top.text, page.text
    ))
}

/// The body of the page, as far as it is written.
#[derive(Default)]
struct Page {
    text: String,
    contents: Contents,
}

impl Page {
    fn element(&mut self, name: &str, text: &str) {
        self.raw(&format!("<{name}>{}</{name}>\n", escaped(text)));
    }

    fn raw(&mut self, html: &str) {
        self.text.push_str(html);
    }

    /// A heading that the contents name.
    fn heading(&mut self, title: &str) {
        let id = self.contents.add(title);
        self.raw(&format!("<h2 id=\"{}\">{}</h2>\n", escaped(&id), escaped(title)));
    }

    /// The table of contents.
    fn contents(&mut self, contents: &Contents) {
        self.raw("<nav aria-label=\"Contents\"><ul>\n");
        for (title, id) in contents.entries() {
            self.raw(&format!("<li><a href=\"#{}\">{}</a></li>\n", escaped(id), escaped(title)));
        }
        self.raw("</ul></nav>\n");
    }

    fn list(&mut self, title: &str, items: &[String], or_else: Option<String>) {
        if items.is_empty() && or_else.is_none() {
            return;
        }
        self.heading(title);
        if let Some(sentence) = or_else.filter(|_| items.is_empty()) {
            return self.element("p", &sentence);
        }
        self.raw("<ul>\n");
        items.iter().for_each(|item| self.element("li", item));
        self.raw("</ul>\n");
    }

    fn workload(&mut self, results: &Results, workload: &Workload) -> Result<()> {
        self.heading(&workload.title);
        if !workload.text.is_empty() {
            self.element("p", &workload.text);
        }
        self.element("pre", &format!("pondhawk bench {}", workload.bench));
        if let Some(warning) = closed_loop(workload) {
            self.element("p", &warning);
        }
        self.chart(
            charts::rates(results, workload)?,
            &format!("{}: {}", workload.title, QUANTITIES[0].name_in(workload)),
        );
        self.chart(
            charts::cpu(results, workload)?,
            &format!("{}: {}", workload.title, QUANTITIES[1].name_in(workload)),
        );
        for (size, heading) in workload.sizes.iter().enumerate() {
            let without = if is_closed_loop(workload, size) { " without a schedule" } else { "" };
            let title = format!("{}, {}: latency{without}", workload.title, heading.name);
            self.chart(charts::latency(results, workload, size)?, &title);
        }
        if let Some((size, chart)) = charts::memory(results, workload)? {
            let title = format!("{}, {size}: resident memory over time in the last round", workload.title);
            self.chart(Some(chart), &title);
        }
        self.table(&tables::of_workload(results, workload), "figures");
        Ok(())
    }

    fn table(&mut self, grid: &Grid, class: &str) {
        // A region that scrolls can be reached with the keyboard, and has a name.
        let name = escaped(&grid.caption);
        self.raw(&format!(
            "<div class=\"wide\" role=\"region\" aria-label=\"{name}\" tabindex=\"0\"><table class=\"{class}\">\n"
        ));
        self.element("caption", &grid.caption);
        self.raw("<thead><tr><td></td>");
        grid.headings.iter().for_each(|name| self.header("col", name));
        self.raw("</tr></thead>\n");
        for section in &grid.sections {
            self.raw("<tbody>\n<tr class=\"quantity\">");
            let (columns, title) = (grid.headings.len() + 1, escaped(&section.title));
            // The text stays in sight while the table scrolls.
            self.raw(&format!(
                "<th scope=\"rowgroup\" colspan=\"{columns}\"><span>{title}</span></th></tr>\n"
            ));
            for (name, cells) in &section.rows {
                self.raw("<tr>");
                self.header("row", name);
                cells.iter().for_each(|cell| self.raw(&data(cell)));
                self.raw("</tr>\n");
            }
            self.raw("</tbody>\n");
        }
        self.raw("</table></div>\n");
    }

    /// A cell that names a row or a column.
    fn header(&mut self, scope: &str, text: &str) {
        self.raw(&format!("<th scope=\"{scope}\">{}</th>", escaped(text)));
    }

    /// A chart in both sizes, of which the page shows one.
    fn chart(&mut self, chart: Option<Chart>, title: &str) {
        let Some(Chart { wide, narrow }) = chart else { return };
        let title = escaped(title);
        // The size in the file is that of its coordinates; the page decides how wide it is.
        let named = |svg: &str, class: &str| {
            svg.replacen("<svg ", &format!("<svg class=\"{class}\" role=\"img\" aria-label=\"{title}\" "), 1)
        };
        let (wide, narrow) = (named(&wide, "on-wide"), named(&narrow, "on-narrow"));
        self.raw(&format!("<figure>{wide}{narrow}<figcaption>{title}</figcaption></figure>\n"));
    }

    fn claims(&mut self, claims: &[Claim]) {
        self.heading(CLAIMS);
        self.element(
            "p",
            "Each server that claims durability acknowledges messages of QoS 1 for a lasting session, is \
             killed with SIGKILL, and starts again. Then its subscriber comes back and counts. SIGKILL is \
             milder than a power cut.",
        );
        self.table(&tables::of_claims(claims), "claims");
        for claim in claims {
            self.details(&format!("Claim and settings of {}", claim.server));
            self.element("p", claim.claim.trim());
            self.element("pre", &claim.command);
            self.raw("<ul>\n");
            claim.settings.iter().for_each(|setting| self.element("li", &sentence(setting)));
            self.raw("</ul></details>\n");
        }
    }

    fn balancing(&mut self, figures: &Balancing) {
        self.heading(&balancing::heading(figures));
        balancing::texts(figures).iter().for_each(|text| self.element("p", text));
        balancing::absences(figures).iter().for_each(|text| self.element("p", text));
        let differences = balancing::differences(figures);
        if !differences.is_empty() {
            self.element("h3", "Differences to clients without a balancer");
            self.raw("<ul>\n");
            differences.iter().for_each(|item| self.element("li", item));
            self.raw("</ul>\n");
        }
        for workload in &figures.workloads {
            self.element("h3", &workload.title);
            self.element("p", &workload.text);
            self.element("pre", &format!("pondhawk bench {}", workload.bench));
            self.table(&balancing::grid(figures, workload), "figures");
        }
        for balancer in figures.balancers.iter().filter(|balancer| balancer.absence.is_none()) {
            self.details(&format!("Settings of {}", balancer.name));
            self.element("p", &balancer.version);
            let settings = [&balancer.fairness[..], &balancer.notes].concat();
            self.settings(&balancer.command, &balancer.files, &settings);
            self.raw("</details>\n");
        }
    }

    /// Begins a part that readers can close. It is open, because browsers do not print closed ones.
    fn details(&mut self, summary: &str) {
        self.raw(&format!("<details open><summary>{}</summary>\n", escaped(summary)));
    }

    fn servers(&mut self, results: &Results) {
        self.heading(SERVERS);
        for server in results.described() {
            self.element("h3", &server.name);
            if let Some(absence) = &server.absence {
                self.element("p", &format!("Not measured: {absence}."));
                continue;
            }
            self.element("p", &format!("{} {}", server.language, server.version));
            self.settings(&server.command, &server.files, &[&server.fairness[..], &server.notes].concat());
            for layered in &server.layers {
                let title = format!("{}, over {}", server.name, layered.over);
                self.details(&title);
                let settings = [&layered.fairness[..], &layered.notes].concat();
                self.settings(&layered.command, &layered.files, &settings);
                self.raw("</details>\n");
            }
        }
    }

    fn settings(&mut self, command: &str, files: &[(String, String)], settings: &[String]) {
        self.element("pre", command);
        for (name, content) in files {
            self.details(name);
            self.element("pre", content.trim_end());
            self.raw("</details>\n");
        }
        self.raw("<ul>\n");
        settings.iter().for_each(|setting| self.element("li", &sentence(setting)));
        self.raw("</ul>\n");
    }
}

/// The element of a cell with a figure.
fn data(CellText { mean, rest, is_best }: &CellText) -> String {
    let (mean, rest) = (escaped(mean), escaped(rest));
    if *is_best { format!("<td><b>{mean}</b>{rest}</td>") } else { format!("<td>{mean}{rest}</td>") }
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
    use super::super::super::fixture::{balancing, claim, results};
    use super::super::super::results::Layered;
    use super::*;

    #[test]
    fn texts_of_others_are_no_markup() {
        let mut results = results();
        results.servers[1].version = "<script>\u{1b}[31m".into();
        let page = html(&results).unwrap();
        assert!(page.contains("&lt;script&gt;\\u{1b}[31m") && !page.contains("<script"), "{page}");
    }

    #[test]
    fn broken_promises_and_defeats_come_first_and_signs_are_explained_before_workloads() {
        let mut results = results();
        results.claims = vec![claim("third", 40, 40)];
        let page = html(&results).unwrap();
        let at = |what: &str| page.find(what).unwrap_or_else(|| panic!("{what} is missing in {page}"));
        let order = [
            "<nav",
            "<table class=\"overview\"",
            "† Messages were lost",
            "third lost 40 of 40",
            "<h2 id=\"where-mine-loses\"",
            "<h2 id=\"messages-lost",
            "<h2 id=\"loadtest\"",
        ];
        assert!(order.windows(2).all(|pair| at(pair[0]) < at(pair[1])), "{page}");
        assert!(page.contains("<svg class=\"on-wide\" role=\"img\""));
    }

    #[test]
    fn load_balancers_have_a_section_with_their_configurations() {
        let mut results = results();
        results.servers.remove(0);
        results.balancing = Some(balancing());
        let page = html(&results).unwrap();
        for text in [
            "<h2 id=\"load-balancers-in-front-of-mine\"",
            "<span>2 replicas</span>",
            "Settings of front",
            "to {port of replica 1}",
            "worse than direct",
            // Its settings are printed, although it is not compared with the others.
            "<h3>mine</h3>",
        ] {
            assert!(page.contains(text), "{text} is missing in {page}");
        }
        let markdown = super::super::markdown(&results);
        for text in ["## Load balancers in front of mine", "| front ", "front.conf", "### mine"] {
            assert!(markdown.contains(text), "{text} is missing in {markdown}");
        }
        let why = "no module".to_owned();
        results.balancing.as_mut().unwrap().balancers[0].absence = Some(why);
        assert!(html(&results).unwrap().contains("Not measured: front: no module."));
    }

    #[test]
    fn every_link_of_the_contents_has_its_heading() {
        let page = html(&results()).unwrap();
        let links: Vec<&str> =
            page.split("href=\"#").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(links.len(), page.matches("<h2").count());
        for id in links {
            assert_eq!(page.matches(&format!("<h2 id=\"{id}\">")).count(), 1, "{id}");
        }
    }

    #[test]
    fn tables_have_captions_and_scopes_and_the_best_mean_is_bold() {
        let page = html(&results()).unwrap();
        assert_eq!(page.matches("<table").count(), page.matches("<caption>").count());
        assert_eq!(
            page.matches("<th").count(),
            page.matches("<th scope=").count() + page.matches("<thead").count()
        );
        assert!(page.contains("<td><b>200</b> ± 6.35</td>"), "{page}");
    }

    #[test]
    fn configurations_are_printed_and_long_tables_may_go_on_over_pages() {
        let mut results = results();
        let files = vec![("broker.conf".to_owned(), "queue 0".to_owned())];
        results.claims = vec![claim("mine", 100, 0)];
        results.servers[0].files.clone_from(&files);
        results.servers[0].layers = vec![Layered {
            over: "tls".into(),
            command: "command".into(),
            files,
            fairness: Vec::new(),
            notes: Vec::new(),
        }];
        let page = html(&results).unwrap();
        assert_eq!(page.matches("<details open>").count(), 4);
        assert_eq!(page.matches("<details").count(), 4, "browsers do not print closed parts");
        let rules = STYLE.split('}').filter(|rule| rule.contains("break-inside"));
        assert!(rules.clone().count() > 0 && rules.clone().all(|rule| !rule.contains("table")), "{STYLE}");
    }
}
