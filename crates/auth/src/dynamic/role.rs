//! Roles: entries about topics, compiled for decisions.

use std::collections::{HashMap, HashSet};

use topic::{TopicFilter, TopicName};

use super::Texts;
use crate::client::Client;
use crate::permissions::{Action, FilterAction};
use crate::tree::{Grant, Hidden, Line, Marks, Names, Tree, is_filter};

/// The kind of an entry of a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AclKind {
    /// Messages that the client publishes.
    PublishClientSend,
    /// Messages that the client receives.
    PublishClientReceive,
    /// Subscriptions with exactly this filter.
    SubscribeLiteral,
    /// Subscriptions with a filter that this one covers.
    SubscribePattern,
    /// Ends of subscriptions with exactly this filter.
    UnsubscribeLiteral,
    /// Ends of subscriptions with a filter that this one covers.
    UnsubscribePattern,
}

impl AclKind {
    /// All kinds, in the order of the file.
    pub(super) const ALL: [Self; 6] = [
        Self::PublishClientSend,
        Self::PublishClientReceive,
        Self::SubscribeLiteral,
        Self::SubscribePattern,
        Self::UnsubscribeLiteral,
        Self::UnsubscribePattern,
    ];

    /// The name in the file and in commands.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::PublishClientSend => "publishClientSend",
            Self::PublishClientReceive => "publishClientReceive",
            Self::SubscribeLiteral => "subscribeLiteral",
            Self::SubscribePattern => "subscribePattern",
            Self::UnsubscribeLiteral => "unsubscribeLiteral",
            Self::UnsubscribePattern => "unsubscribePattern",
        }
    }

    /// The kind of this name, without regard to case.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name))
    }
}

/// An entry of a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Acl {
    pub(super) topic: Box<str>,
    pub(super) priority: i32,
    pub(super) is_allowed: bool,
}

/// A role. After changes and in a clone, it decides nothing before it is [compiled](Self::compile): the changes of one message
/// cost one compilation together.
#[derive(Debug, Default)]
pub(super) struct Role {
    pub(super) texts: Texts,
    /// Mosquitto 2.1: whether the role leaves filters with wildcards to its entries. If not, it refuses them.
    pub(super) refuses_wildcards: bool,
    /// Entries of each kind by priority; those with the same priority in the order in which they came.
    acls: [Vec<Acl>; 6],
    /// The topics of all entries of each kind.
    topics: [HashSet<Box<str>>; 6],
    compiled: [Compiled; 6],
    /// The entries have changed since they were compiled.
    is_stale: bool,
}

/// Entries of one kind. The number of an entry is its place, from 1.
#[derive(Debug)]
enum Compiled {
    Tree(Tree),
    Literals(HashMap<Box<str>, Line>),
}

impl Default for Compiled {
    fn default() -> Self {
        Self::Tree(Tree::default())
    }
}

impl Clone for Role {
    fn clone(&self) -> Self {
        Self {
            texts: self.texts.clone(),
            refuses_wildcards: self.refuses_wildcards,
            acls: self.acls.clone(),
            topics: self.topics.clone(),
            compiled: Default::default(),
            is_stale: true,
        }
    }
}

impl Role {
    /// A role without entries.
    pub(super) fn new(texts: Texts) -> Self {
        Self { texts, ..Self::default() }
    }

    /// The entries of a kind in the order in which they decide.
    pub(super) fn acls(&self, kind: AclKind) -> &[Acl] {
        &self.acls[kind as usize]
    }

    /// Whether there is an entry of this kind and topic.
    pub(super) fn has(&self, kind: AclKind, topic: &str) -> bool {
        self.topics[kind as usize].contains(topic)
    }

    /// Replaces all entries. Of two entries with the same kind and topic, the first stays.
    pub(super) fn set_all(&mut self, entries: impl IntoIterator<Item = (AclKind, Acl)>) {
        (self.acls, self.topics) = Default::default();
        for (kind, acl) in entries {
            if self.topics[kind as usize].insert(acl.topic.clone()) {
                self.acls[kind as usize].push(acl);
            }
        }
        // Stable: entries of one priority keep their order.
        self.acls.iter_mut().for_each(|acls| acls.sort_by_key(|acl| std::cmp::Reverse(acl.priority)));
        self.is_stale = true;
    }

    /// Adds an entry of a topic that [has](Self::has) none, behind those of the same priority.
    pub(super) fn add(&mut self, kind: AclKind, acl: Acl) {
        self.topics[kind as usize].insert(acl.topic.clone());
        let acls = &mut self.acls[kind as usize];
        let place = acls.partition_point(|known| known.priority >= acl.priority);
        acls.insert(place, acl);
        self.is_stale = true;
    }

    /// Removes an entry. Returns whether it was there.
    pub(super) fn remove(&mut self, kind: AclKind, topic: &str) -> bool {
        let is_known = self.topics[kind as usize].remove(topic);
        if is_known {
            self.acls[kind as usize].retain(|acl| *acl.topic != *topic);
            self.is_stale = true;
        }
        is_known
    }

    /// Whether the role has to be compiled.
    pub(super) fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Makes decisions follow the entries.
    pub(super) fn compile(&mut self) {
        AclKind::ALL.into_iter().for_each(|kind| self.compile_kind(kind));
        self.is_stale = false;
    }

    fn compile_kind(&mut self, kind: AclKind) {
        let acls = self.acls[kind as usize].iter().zip(1..);
        let numbered = acls.filter_map(|(acl, number)| Some((&acl.topic, Line::new(number)?)));
        self.compiled[kind as usize] = match kind {
            AclKind::SubscribeLiteral | AclKind::UnsubscribeLiteral => {
                Compiled::Literals(numbered.map(|(topic, number)| (topic.clone(), number)).collect())
            }
            _ => {
                let mut tree = Tree::default();
                // An entry that is no filter matches nothing.
                for (topic, number) in numbered.filter(|(topic, _)| is_filter(topic)) {
                    tree.add(topic, Names::Levels, &Marks::of(Grant::Read, number));
                }
                Compiled::Tree(tree)
            }
        };
    }

    /// The entry that decides about a topic.
    pub(super) fn decide(
        &self,
        client: Client<'_>,
        topic: TopicName<'_>,
        action: Action,
    ) -> Option<(AclKind, &Acl)> {
        let kind = match action {
            Action::Publish => AclKind::PublishClientSend,
            Action::Receive => AclKind::PublishClientReceive,
        };
        let Compiled::Tree(tree) = &self.compiled[kind as usize] else { return None };
        self.entry(kind, tree.walk(topic, client).read)
    }

    /// The entry that decides about a subscription, or about its end. `Err` if the role refuses its wildcards.
    ///
    /// An entry for the filter behind `$share/GROUP/` counts like one for the whole text: a group is no way around a rule.
    pub(super) fn decide_filter(
        &self,
        client: Client<'_>,
        filter: TopicFilter<'_>,
        action: FilterAction,
    ) -> Result<Option<(AclKind, &Acl)>, ()> {
        let (literal, pattern) = match action {
            FilterAction::Subscribe => (AclKind::SubscribeLiteral, AclKind::SubscribePattern),
            FilterAction::Unsubscribe => (AclKind::UnsubscribeLiteral, AclKind::UnsubscribePattern),
        };
        if self.refuses_wildcards && action == FilterAction::Subscribe && filter.has_wildcard() {
            return Err(());
        }
        let inner = filter.shared().map_or(filter, |shared| shared.filter);
        if let Compiled::Literals(literals) = &self.compiled[literal as usize] {
            let found =
                [filter, inner].into_iter().filter_map(|filter| literals.get(filter.as_str()).copied());
            if let Some(entry) = self.entry(literal, found.min()) {
                return Ok(Some(entry));
            }
        }
        let Compiled::Tree(tree) = &self.compiled[pattern as usize] else { return Ok(None) };
        let found = [filter, inner]
            .into_iter()
            .filter_map(|filter| tree.cover(filter.as_str(), client, Hidden::Covered).read);
        Ok(self.entry(pattern, found.min()))
    }

    fn entry(&self, kind: AclKind, number: Option<Line>) -> Option<(AclKind, &Acl)> {
        let place = usize::try_from(number?.get()).ok()? - 1;
        Some((kind, self.acls(kind).get(place)?))
    }
}
