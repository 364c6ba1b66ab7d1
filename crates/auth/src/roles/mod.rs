//! Roles: rules about topics that many users share, each user with one role or several.
//!
//! A user has the roles that the user is given, those of its groups, and those of every user. All their rules count
//! together: a rule that denies decides before those that allow, whatever role it is in. Without a rule that matches, the
//! answer is no. Users with the same roles share trees that are compiled once, so a decision is one walk.

mod build;
mod decision;
mod grants;
mod limits;
mod prefix;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

pub use build::{Holder, RoleId, RolesBuilder, RolesError};
pub use grants::Permit;
pub use limits::{IdPattern, Limits, NoTopicPrefix, QueueLimits, Reach};
pub use prefix::{PrefixError, TopicPrefix};

use crate::tree::Tree;
use grants::Grants;

/// The rules of all roles, and the users who have them.
#[derive(Debug)]
pub struct Roles {
    /// The names of the roles.
    names: Vec<Box<str>>,
    /// The limits of each role.
    limits: Vec<Limits>,
    /// By number, from 1.
    rules: Vec<RoleRule>,
    /// The trees of each set of roles that somebody has.
    compiled: Vec<Compiled>,
    users: HashMap<Box<str>, Owner>,
    groups: Vec<Group>,
    /// The place of each group, by its name.
    places: HashMap<Box<str>, usize>,
    /// The roles of all clients with a name.
    every_user: Owner,
    /// The roles of clients without a name.
    anonymous: Owner,
}

/// Nobody has a role.
impl Default for Roles {
    fn default() -> Self {
        Self {
            names: Vec::new(),
            limits: Vec::new(),
            rules: Vec::new(),
            compiled: vec![Compiled::default()],
            users: HashMap::new(),
            groups: Vec::new(),
            places: HashMap::new(),
            every_user: Owner::default(),
            anonymous: Owner::default(),
        }
    }
}

/// Somebody who has roles.
#[derive(Debug, Default)]
struct Owner {
    /// The roles that are given here, and not by a group.
    own: BTreeSet<RoleId>,
    /// The place of the trees of all roles.
    trees: usize,
}

#[derive(Debug, Default)]
struct Group {
    name: Box<str>,
    roles: BTreeSet<RoleId>,
    users: BTreeSet<Box<str>>,
    /// The place of the trees of the group's roles, for clients whose token names the group.
    trees: usize,
}

/// A set of roles.
#[derive(Debug, Default)]
struct Compiled {
    /// One tree for each kind of rule.
    trees: [Tree<Grants>; 3],
    limits: Arc<Limits>,
}

impl Compiled {
    fn of(&self, kind: RuleKind) -> &Tree<Grants> {
        &self.trees[kind as usize]
    }
}

/// A rule of a role.
#[derive(Debug)]
struct RoleRule {
    role: RoleId,
    kind: RuleKind,
    filter: Box<str>,
    /// The messages that the rule allows; `None` if it denies.
    permit: Option<Permit>,
    /// The number of its line, from 1.
    line: u32,
}

/// The kind of a rule of a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleKind {
    /// Messages that the client publishes.
    Publish,
    /// Subscriptions with a filter that this one covers.
    Subscribe,
    /// Messages that the client receives.
    Receive,
}

impl RuleKind {
    /// The name in the file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Subscribe => "subscribe",
            Self::Receive => "receive",
        }
    }
}

/// A rule of a role that decides, and the way on which the client has the role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deciding<'a> {
    /// The name of the role.
    pub role: &'a str,
    /// The reason why the client has the role.
    pub held: Held<'a>,
    /// The kind of the rule.
    pub kind: RuleKind,
    /// The filter of the rule.
    pub filter: &'a str,
    /// The messages that the rule allows. `None` for a rule that denies.
    pub permit: Option<Permit>,
    /// The number of its line, from 1.
    pub line: u32,
}

/// The reason why a client has a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held<'a> {
    /// The role was given to the user.
    User,
    /// A group that the user belongs to has the role, or one that the client's token names.
    Group(&'a str),
    /// Every user has the role.
    EveryUser,
    /// Clients without a name have the role.
    Anonymous,
}
