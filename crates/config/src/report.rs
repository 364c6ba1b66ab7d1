//! Mistakes in a configuration, and their presentation to the user.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use crate::sources::Sources;

/// All mistakes in one configuration, in the order of the files.
#[derive(Debug, Clone)]
pub struct Report {
    sources: Sources,
    problems: Vec<Problem>,
}

/// One mistake in a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    place: Place,
    title: String,
    label: String,
    advice: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// A range of bytes in the row of all files.
    File(Range<usize>),
    /// A flag on the command line.
    Flag,
}

impl Problem {
    pub(crate) fn at(span: Range<usize>, title: impl Into<String>) -> Self {
        Self { place: Place::File(span), title: title.into(), label: String::new(), advice: None }
    }

    pub(crate) fn in_flags(title: impl Into<String>) -> Self {
        Self { place: Place::Flag, title: title.into(), label: String::new(), advice: None }
    }

    /// Sets the text that is printed at the place of the mistake.
    pub(crate) fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Sets the text that tells the user how to correct the mistake.
    pub(crate) fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// Description of the mistake in one line.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The whole problem in one line: description, explanation and advice.
    pub fn sentence(&self) -> String {
        let parts = [self.title.as_str(), &self.label, self.advice.as_deref().unwrap_or_default()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
    }

    /// `sources` are shown without secrets.
    fn group<'a>(&'a self, sources: &'a Sources) -> Group<'a> {
        let title = Level::ERROR.primary_title(&self.title);
        let file = match &self.place {
            Place::File(span) => sources.file(span.start).map(|file| (file, span)),
            Place::Flag => None,
        };
        let group = match file {
            Some((file, span)) => {
                let label = (!self.label.is_empty()).then_some(self.label.as_str());
                let span = span.start - file.start..span.end - file.start;
                let mark = AnnotationKind::Primary.span(span).label(label);
                title.element(Snippet::source(&file.text).path(&file.name).annotation(mark))
            }
            None => Group::with_title(title),
        };
        match &self.advice {
            Some(advice) => group.element(Level::HELP.message(advice)),
            None => group,
        }
    }
}

impl Report {
    /// Returns a report if there are problems, and `Ok` otherwise.
    pub(crate) fn unless_empty(sources: &Sources, mut problems: Vec<Problem>) -> Result<(), Self> {
        if problems.is_empty() {
            return Ok(());
        }
        problems.sort_by_key(|problem| match &problem.place {
            Place::File(span) => span.start,
            Place::Flag => usize::MAX,
        });
        Err(Self { sources: sources.clone(), problems })
    }

    /// The mistakes, in the order of the files. There is at least one.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Returns line and column of a problem in this report, if the problem is in a file. Both count from 1, and
    /// columns count characters.
    pub fn line_and_column(&self, problem: &Problem) -> Option<(usize, usize)> {
        let Place::File(span) = &problem.place else { return None };
        self.sources.position(span.start).map(|(_, line, column)| (line, column))
    }

    /// Returns the whole report as text for a terminal, with or without colours. Lines of the file are shown without what may be
    /// a secret.
    pub fn render(&self, colour: bool) -> String {
        let sources = self.sources.masked();
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        let groups: Vec<Group<'_>> = self.problems.iter().map(|problem| problem.group(&sources)).collect();
        let rendered: Vec<String> = groups.into_iter().map(|group| renderer.render(&[group])).collect();
        rendered.join("\n\n")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Report {}
