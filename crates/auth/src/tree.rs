//! Rules of one owner, compiled to a tree of topic levels.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use topic::TopicName;

use crate::client::Client;

/// The line of a rule in its file, from 1.
pub(crate) type Line = NonZeroU32;

/// The kind of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grant {
    Read,
    Write,
    ReadWrite,
    Deny,
}

/// The marks that rules leave in a tree, and that a walk adds up.
pub(crate) trait Merge: Default + PartialEq {
    /// Adds the marks of other rules that match.
    fn merge(&mut self, other: &Self);
}

/// The first line of each kind among rules that match.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    pub(crate) deny: Option<Line>,
    pub(crate) read: Option<Line>,
    pub(crate) write: Option<Line>,
}

impl Marks {
    /// The marks of one rule.
    pub(crate) fn of(grant: Grant, line: Line) -> Self {
        match grant {
            Grant::Deny => Self { deny: Some(line), ..Self::default() },
            Grant::Read => Self { read: Some(line), ..Self::default() },
            Grant::Write => Self { write: Some(line), ..Self::default() },
            Grant::ReadWrite => Self { read: Some(line), write: Some(line), deny: None },
        }
    }
}

impl Merge for Marks {
    fn merge(&mut self, other: &Self) {
        self.deny = first(self.deny, other.deny);
        self.read = first(self.read, other.read);
        self.write = first(self.write, other.write);
    }
}

/// The line that stands first.
pub(crate) fn first(one: Option<Line>, other: Option<Line>) -> Option<Line> {
    [one, other].into_iter().flatten().min()
}

/// The places in a filter where `%c` and `%u` stand for names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    /// Nowhere: they are text like others.
    None,
    /// In a level that has nothing else.
    Levels,
    /// Everywhere, also inside of a level.
    Parts,
}

/// A level of a pattern in which `%c` or `%u` stands.
#[derive(Debug, PartialEq, Eq)]
struct Template(Box<[Part]>);

#[derive(Debug, PartialEq, Eq)]
enum Part {
    Text(Box<str>),
    Name(Name),
}

/// A name of a client in a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Name {
    /// The client identifier, `%c`.
    ClientId,
    /// The user name, `%u`.
    User,
}

impl Name {
    /// The first name in a text, and its place. It has two bytes.
    pub(crate) fn find(text: &str) -> Option<(usize, Self)> {
        let places = [("%c", Self::ClientId), ("%u", Self::User)];
        let found = places.iter().filter_map(|(mark, name)| Some((text.find(mark)?, *name)));
        found.min_by_key(|(place, _)| *place)
    }

    /// The name of a client. An empty one is none.
    pub(crate) fn of(self, client: Client<'_>) -> Option<&str> {
        let name = match self {
            Self::ClientId => Some(client.client_id),
            Self::User => client.user,
        };
        name.filter(|name| !name.is_empty())
    }
}

impl Template {
    /// The template of a level, if there is a `%c` or `%u` in it.
    fn parse(level: &str) -> Option<Self> {
        let (mut parts, mut rest) = (Vec::new(), level);
        let mut has_name = false;
        while let Some((at, name)) = Name::find(rest) {
            if at > 0 {
                parts.push(Part::Text(rest[..at].into()));
            }
            parts.push(Part::Name(name));
            rest = &rest[at + 2..];
            has_name = true;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.into()));
        }
        has_name.then(|| Self(parts.into()))
    }

    /// Whether a level of a topic is this one with the client's names in place. An empty name fits nowhere.
    fn matches(&self, level: &str, client: Client<'_>) -> bool {
        let rest = self.0.iter().try_fold(level, |rest, part| match part {
            Part::Text(text) => rest.strip_prefix(&**text),
            Part::Name(name) => rest.strip_prefix(name.of(client)?),
        });
        rest == Some("")
    }
}

/// A node: the levels of filters up to here are the same.
#[derive(Debug, Default)]
struct Node<M> {
    /// Nodes behind a level with this text.
    literals: BTreeMap<Box<str>, usize>,
    /// The node behind `+`.
    any: Option<usize>,
    /// Nodes behind levels with names.
    templates: Vec<(Template, usize)>,
    /// Rules whose filter ends here.
    here: M,
    /// Rules whose filter ends here with `#`.
    below: M,
}

impl<M> Node<M> {
    /// The nodes behind levels that are this one with the client's names in place.
    fn named(&self, level: &str, client: Client<'_>) -> impl Iterator<Item = usize> {
        let fitting = self.templates.iter().filter(move |(template, _)| template.matches(level, client));
        fitting.map(|(_, next)| *next)
    }
}

/// Rules of one owner.
///
/// A walk visits, for each level of a topic, the nodes whose filters match the topic up to this level. There are at most two
/// to the power of the level, plus those of templates, and never more than the tree has at this depth. The number of rules
/// that do not match does not count, apart from the depth of a search tree.
#[derive(Debug)]
pub(crate) struct Tree<M = Marks> {
    nodes: Vec<Node<M>>,
}

/// Whether a wildcard in the first level of a rule covers filters that begin with `$`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hidden {
    /// It does not, as it does not match topics that begin with `$`.
    Apart,
    /// It does, as in the dynamic security of Mosquitto.
    Covered,
}

impl<M: Default> Default for Tree<M> {
    fn default() -> Self {
        Self { nodes: vec![Node::default()] }
    }
}

impl<M: Merge> Tree<M> {
    /// Whether there are no rules.
    pub(crate) fn is_empty(&self) -> bool {
        let [root] = &self.nodes[..] else { return false };
        root.below == M::default()
    }

    /// Adds the marks of a rule. The wildcards of the filter are in valid places.
    pub(crate) fn add(&mut self, filter: &str, names: Names, marks: &M) {
        let mut at = 0;
        for level in filter.split('/') {
            if level == "#" {
                return self.nodes[at].below.merge(marks);
            }
            at = self.step(at, level, names);
        }
        self.nodes[at].here.merge(marks);
    }

    /// The node behind a level, which is made if there is none.
    fn step(&mut self, at: usize, level: &str, names: Names) -> usize {
        let next = self.nodes.len();
        let node = &mut self.nodes[at];
        let template = match names {
            Names::None => None,
            Names::Levels if !matches!(level, "%c" | "%u") => None,
            Names::Levels | Names::Parts => Template::parse(level),
        };
        let found = match template {
            Some(template) => match node.templates.iter().find(|(known, _)| *known == template) {
                Some((_, found)) => *found,
                None => {
                    node.templates.push((template, next));
                    next
                }
            },
            None if level == "+" => *node.any.get_or_insert(next),
            None => match node.literals.get(level) {
                Some(found) => *found,
                None => {
                    node.literals.insert(level.into(), next);
                    next
                }
            },
        };
        if found == next {
            self.nodes.push(Node::default());
        }
        found
    }

    /// The marks of the rules that match.
    pub(crate) fn walk(&self, topic: TopicName<'_>, client: Client<'_>) -> M {
        let mut marks = M::default();
        let (mut nodes, mut next) = (vec![0], Vec::new());
        for (number, level) in topic.levels().enumerate() {
            // Neither a wildcard in the first level [MQTT-4.7.2-1] nor a name matches a topic that begins with `$`.
            let is_hidden = number == 0 && level.starts_with('$');
            for node in nodes.drain(..).map(|at: usize| &self.nodes[at]) {
                count_visit();
                next.extend(node.literals.get(level));
                if !is_hidden {
                    marks.merge(&node.below);
                    next.extend(node.any);
                    next.extend(node.named(level, client));
                }
            }
            if next.is_empty() {
                return marks;
            }
            std::mem::swap(&mut nodes, &mut next);
        }
        for at in nodes {
            marks.merge(&self.nodes[at].here);
            marks.merge(&self.nodes[at].below);
        }
        marks
    }

    /// The marks of the rules whose filters match every topic that a valid `filter` matches.
    ///
    /// A name never stands for a wildcard: `%c` does not cover `+`, whatever the client is called. In the first level it covers
    /// nothing that begins with `$`, whatever `hidden` says about wildcards.
    pub(crate) fn cover(&self, filter: &str, client: Client<'_>, hidden: Hidden) -> M {
        let mut marks = M::default();
        let (mut nodes, mut next) = (vec![0], Vec::new());
        for (number, level) in filter.split('/').enumerate() {
            let is_rest = level == "#";
            let is_special = number == 0 && level.starts_with('$');
            let is_hidden = hidden == Hidden::Apart && is_special;
            for node in nodes.drain(..).map(|at: usize| &self.nodes[at]) {
                count_visit();
                if !is_hidden {
                    marks.merge(&node.below);
                }
                match node.any.filter(|_| !is_hidden) {
                    // Every topic has a first level, so `+/#` covers `#`.
                    Some(any) if is_rest && number == 0 => marks.merge(&self.nodes[any].below),
                    Some(any) if !is_rest => next.push(any),
                    _ => {}
                }
                if !matches!(level, "+" | "#") {
                    next.extend(node.literals.get(level));
                    next.extend(node.named(level, client).filter(|_| !is_special));
                }
            }
            if next.is_empty() {
                return marks;
            }
            std::mem::swap(&mut nodes, &mut next);
        }
        for at in nodes {
            marks.merge(&self.nodes[at].here);
            marks.merge(&self.nodes[at].below);
        }
        marks
    }
}

/// Whether wildcards are in valid places. `$share/…` is a text like others here.
pub(crate) fn is_filter(text: &str) -> bool {
    let before = text.strip_suffix('#').filter(|rest| rest.is_empty() || rest.ends_with('/')).unwrap_or(text);
    let is_level = |level: &str| level == "+" || !level.contains(['+', '#', '\0']);
    !text.is_empty() && text.len() <= topic::MAX_BYTES && before.split('/').all(is_level)
}

/// A walk has come to a node: tests count that.
fn count_visit() {
    #[cfg(test)]
    tests::VISITS.with(|visits| visits.set(visits.get() + 1));
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        pub(super) static VISITS: Cell<usize> = const { Cell::new(0) };
    }

    const FROG: Client<'_> = Client { user: Some("frog"), client_id: "f1", claims: None };

    fn tree(filters: impl IntoIterator<Item = String>, names: Names) -> Tree {
        let mut tree = Tree::default();
        for (filter, line) in filters.into_iter().zip(1..) {
            tree.add(&filter, names, &Marks::of(Grant::Read, Line::new(line).expect("not 0")));
        }
        tree
    }

    fn visits(tree: &Tree, topic: &str) -> usize {
        let before = VISITS.get();
        let marks = tree.walk(TopicName::new(topic).expect("a topic"), FROG);
        assert_ne!(marks, Marks::default(), "a rule matches");
        VISITS.get() - before
    }

    #[test]
    fn a_walk_costs_the_same_however_many_rules_do_not_match() {
        for rules in [1, 100_000] {
            let filters = (0..rules).map(|rule| format!("pond/{rule}/depth/#"));
            assert_eq!(visits(&tree(filters, Names::None), "pond/0/depth/now"), 4, "{rules} rules");
            let filters = (0..rules).map(|rule| format!("pond/%c/{rule}"));
            assert_eq!(visits(&tree(filters, Names::Parts), "pond/f1/0"), 3, "{rules} patterns");
        }
    }

    #[test]
    fn names_stand_for_themselves_only() {
        let matches =
            |level: &str, text: &str| Template::parse(level).expect("it has a name").matches(text, FROG);
        assert!(matches("%c", "f1") && matches("a-%c-b", "a-f1-b") && matches("%u%c", "frogf1"));
        assert!(matches("%%u", "%frog"), "the first sign is text");
        assert!(!matches("%c", "f2") && !matches("%c", "f1x") && !matches("a%c", "f1") && !matches("%c", ""));
        assert_eq!(Template::parse("%d"), None);
        let nobody = Client { user: None, client_id: "", claims: None };
        assert!(
            !Template::parse("%c").expect("it has a name").matches("", nobody),
            "an empty name fits nowhere"
        );
        assert!(!Template::parse("%u").expect("it has a name").matches("", nobody));
    }
}
