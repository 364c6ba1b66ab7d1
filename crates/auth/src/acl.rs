//! Access control lists of Mosquitto, as its `acl_file` has them.

use std::fmt;

use topic::MAX_BYTES;

use crate::Permissions;
use crate::file::BLANKS;
use crate::tree::{Grant, Line, Marks, Names, Tree};

/// Largest number of lines of a list.
const LINES_MAX: usize = 10_000_000;

impl Permissions {
    /// Reads and compiles a list in the format of Mosquitto's `acl_file`.
    ///
    /// `topic` rules before the first `user` line are those of clients without a user name. `pattern` rules are for everybody,
    /// wherever they stand.
    ///
    /// # Errors
    /// The first line that is no rule. A list with such a line grants nothing.
    pub fn of_mosquitto(text: &str) -> Result<Self, AclError> {
        let mut permissions = Self::default();
        let mut user: Option<&str> = None;
        for (number, line) in (1..).zip(text.lines()) {
            let error = |problem| AclError { line: number, problem };
            let line_number = u32::try_from(number).ok().and_then(Line::new).filter(|_| number <= LINES_MAX);
            let line_number = line_number.ok_or(error(AclProblem::TooMany))?;
            match statement(line).map_err(error)? {
                None => {}
                Some(Statement::User(name)) => user = Some(name),
                Some(Statement::Rule { is_pattern, grant, filter }) => {
                    let tree = permissions.section(user, is_pattern);
                    let names = if is_pattern { Names::Parts } else { Names::None };
                    tree.add(filter, names, &Marks::of(grant, line_number));
                }
            }
        }
        Ok(permissions)
    }

    fn section(&mut self, user: Option<&str>, is_pattern: bool) -> &mut Tree {
        match user {
            _ if is_pattern => &mut self.patterns,
            None => &mut self.anonymous,
            Some(user) => {
                if !self.users.contains_key(user) {
                    self.users.insert(user.into(), Tree::default());
                }
                self.users.get_mut(user).expect("it was inserted if it was not there")
            }
        }
    }
}

/// A line that says something.
enum Statement<'a> {
    User(&'a str),
    Rule { is_pattern: bool, grant: Grant, filter: &'a str },
}

fn statement(line: &str) -> Result<Option<Statement<'_>>, AclProblem> {
    let line = line.trim_end_matches(BLANKS);
    if line.starts_with('#') {
        return Ok(None);
    }
    let Some((word, rest)) = word(line) else { return Ok(None) };
    match word {
        "user" => {
            let name = rest.trim_matches(BLANKS);
            if name.is_empty() { Err(AclProblem::NoName) } else { Ok(Some(Statement::User(name))) }
        }
        "topic" | "pattern" => {
            let (grant, filter) = rule(rest)?;
            Ok(Some(Statement::Rule { is_pattern: word == "pattern", grant, filter }))
        }
        _ => Err(AclProblem::Word),
    }
}

/// The first word of a line, without blanks before it, and the text behind the blank that ends it. Words end at blanks only, and
/// not at tabs.
fn word(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start_matches(' ');
    if line.is_empty() {
        return None;
    }
    Some(line.split_once(' ').unwrap_or((line, "")))
}

/// `[read|write|readwrite|deny] FILTER`. A single word is the filter, also if it is `read`.
fn rule(rest: &str) -> Result<(Grant, &str), AclProblem> {
    let (first, behind) = word(rest).ok_or(AclProblem::NoFilter)?;
    let (grant, filter) = match (first, behind.trim_matches(BLANKS)) {
        (filter, "") => (Grant::ReadWrite, filter),
        ("read", filter) => (Grant::Read, filter),
        ("write", filter) => (Grant::Write, filter),
        ("readwrite", filter) => (Grant::ReadWrite, filter),
        ("deny", filter) => (Grant::Deny, filter),
        _ => return Err(AclProblem::Access),
    };
    if filter.len() > MAX_BYTES {
        return Err(AclProblem::Filter);
    }
    let mut levels = filter.split('/').peekable();
    while let Some(level) = levels.next() {
        let is_wildcard = level == "+" || level == "#" && levels.peek().is_none();
        if !is_wildcard && level.contains(['+', '#', '\0']) {
            return Err(AclProblem::Filter);
        }
    }
    Ok((grant, filter))
}

/// A line of an access control list that is no rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AclError {
    /// The number of the line, from 1.
    pub line: usize,
    /// The rule of the format that the line breaks.
    pub problem: AclProblem,
}

/// The rule of the format that a line breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AclProblem {
    /// The first word is none of `user`, `topic` and `pattern`, or a tab stands before or behind it.
    Word,
    /// Behind `user` there is no name.
    NoName,
    /// Behind `topic` or `pattern` there is no filter.
    NoFilter,
    /// Of two words behind `topic` or `pattern` the first is none of `read`, `write`, `readwrite` and `deny`.
    Access,
    /// The topic filter is not valid. A comment behind a filter is a part of it.
    Filter,
    /// There are more lines than a list may have.
    TooMany,
}

impl fmt::Display for AclProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Word => "the first word is none of `user`, `topic` and `pattern`",
            Self::NoName => "`user` needs a name",
            Self::NoFilter => "`topic` and `pattern` need a topic filter",
            Self::Access => "the word before the filter is none of `read`, `write`, `readwrite` and `deny`",
            Self::Filter => "this is no topic filter; a comment needs a line of its own",
            Self::TooMany => "there are more lines than a list may have",
        })
    }
}

impl fmt::Display for AclError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for AclError {}
