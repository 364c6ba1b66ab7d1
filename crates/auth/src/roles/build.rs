//! Builds roles of the parts that a file has, and compiles them.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use super::grants::{Grants, Permit};
use super::{Compiled, Group, Limits, Owner, Reach, RoleRule, Roles, RuleKind};
use crate::tree::{Line, Names, is_filter};

/// Maximum number of rules in all trees together. A rule takes some hundred bytes in each tree that it is in.
const COMPILED_MAX: usize = 2_000_000;

/// A role, in the builder that has made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoleId(pub(super) usize);

/// Somebody to whom a role is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder<'a> {
    /// The user with this name.
    User(&'a str),
    /// The users of the group with this name.
    Group(&'a str),
    /// All clients with a name.
    EveryUser,
    /// All clients without a name.
    Anonymous,
}

/// The reason why there are no such roles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RolesError {
    /// The filter of a rule is not valid.
    Filter,
    /// The filter of a rule begins with `$share`. Rules are about the filter behind the name of the group.
    Shared,
    /// The roles of all users have more rules together than there may be.
    TooMany,
    /// Somebody has two roles with different topic prefixes.
    Prefixes {
        /// The first and the second of the roles.
        roles: [RoleId; 2],
        /// Whoever has both, such as `the user "ann"`.
        holder: String,
    },
}

impl fmt::Display for RolesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prefixes { holder, .. } => {
                return write!(f, "{holder} has roles with different topic prefixes");
            }
            Self::Filter => "this is no topic filter",
            Self::Shared => "rules are about the filter behind `$share/GROUP/`: leave that out",
            Self::TooMany => "the different combinations of roles have more than 2,000,000 rules together",
        })
    }
}

impl std::error::Error for RolesError {}

/// The parts of [`Roles`], in the order of a file.
#[derive(Debug, Default)]
pub struct RolesBuilder {
    roles: Roles,
}

impl RolesBuilder {
    /// Adds a role without rules.
    pub fn role(&mut self, name: &str) -> RoleId {
        self.roles.names.push(name.into());
        self.roles.limits.push(Limits::default());
        RoleId(self.roles.names.len() - 1)
    }

    /// Adds a rule to a role. It allows what `permit` says, and denies everything without one. `%c` and `%u` in the filter stand
    /// for client identifier and user name.
    ///
    /// # Errors
    /// The filter is not valid.
    pub fn rule(
        &mut self,
        role: RoleId,
        kind: RuleKind,
        filter: &str,
        permit: Option<Permit>,
        line: u32,
    ) -> Result<(), RolesError> {
        if filter.split('/').next() == Some("$share") {
            return Err(RolesError::Shared);
        }
        if !is_filter(filter) {
            return Err(RolesError::Filter);
        }
        self.roles.rules.push(RoleRule { role, kind, filter: filter.into(), permit, line });
        Ok(())
    }

    /// Sets the limits of a role. A pattern for client identifiers counts as a rule.
    pub fn limit(&mut self, role: RoleId, limits: Limits) {
        self.roles.limits[role.0] = limits;
    }

    /// Gives somebody a role.
    pub fn give(&mut self, holder: Holder<'_>, role: RoleId) {
        let own = match holder {
            Holder::User(name) => &mut self.roles.users.entry(name.into()).or_default().own,
            Holder::Group(name) => &mut self.group(name).roles,
            Holder::EveryUser => &mut self.roles.every_user.own,
            Holder::Anonymous => &mut self.roles.anonymous.own,
        };
        own.insert(role);
    }

    /// Adds a user to a group.
    pub fn join(&mut self, group: &str, user: &str) {
        self.roles.users.entry(user.into()).or_default();
        self.group(group).users.insert(user.into());
    }

    fn group(&mut self, name: &str) -> &mut Group {
        let next = self.roles.groups.len();
        let place = *self.roles.places.entry(name.into()).or_insert(next);
        if place == next {
            self.roles.groups.push(Group { name: name.into(), ..Group::default() });
        }
        &mut self.roles.groups[place]
    }

    /// Compiles the roles. The cost is that of the rules of all different combinations of roles.
    ///
    /// # Errors
    /// There are too many rules.
    pub fn build(self) -> Result<Roles, RolesError> {
        let mut roles = self.roles;
        let mut rules_of = vec![Vec::new(); roles.names.len()];
        for (number, rule) in (1..).zip(&roles.rules) {
            rules_of[rule.role.0].push(Line::new(number).ok_or(RolesError::TooMany)?);
        }
        let mut compiler = Compiler {
            rules: &roles.rules,
            limits: &roles.limits,
            rules_of,
            known: HashMap::new(),
            all: Vec::new(),
            rule_count: 0,
        };
        let anonymous = || "a client without a name".to_owned();
        roles.anonymous.trees = compiler.trees(roles.anonymous.own.clone(), anonymous)?;
        let every_user = roles.every_user.own.clone();
        roles.every_user.trees = compiler.trees(every_user.clone(), || "every user".to_owned())?;
        let mut all: HashMap<&str, BTreeSet<RoleId>> = HashMap::new();
        for group in &roles.groups {
            for user in &group.users {
                all.entry(user).or_default().extend(&group.roles);
            }
        }
        for (name, Owner { own, trees }) in &mut roles.users {
            let mut set = all.remove(&**name).unwrap_or_default();
            set.extend(own.iter().chain(&every_user));
            *trees = compiler.trees(set, || format!("the user {name:?}"))?;
        }
        for group in &mut roles.groups {
            let Group { name, .. } = &*group;
            group.trees = compiler.trees(group.roles.clone(), || format!("the group {name:?}"))?;
        }
        roles.compiled = compiler.all;
        Ok(roles)
    }
}

/// Makes the trees of each combination of roles once.
struct Compiler<'a> {
    rules: &'a [RoleRule],
    limits: &'a [Limits],
    /// The numbers of the rules of each role.
    rules_of: Vec<Vec<Line>>,
    known: HashMap<BTreeSet<RoleId>, usize>,
    all: Vec<Compiled>,
    /// Number of rules in all trees.
    rule_count: usize,
}

impl Compiler<'_> {
    /// The place of the trees of these roles, which somebody has.
    fn trees(
        &mut self,
        roles: BTreeSet<RoleId>,
        holder: impl FnOnce() -> String,
    ) -> Result<usize, RolesError> {
        if let Some(place) = self.known.get(&roles) {
            return Ok(*place);
        }
        if let Some(roles) = self.prefix_twice(&roles) {
            return Err(RolesError::Prefixes { roles, holder: holder() });
        }
        let patterns_of = |role: &RoleId| self.limits[role.0].client_ids.as_ref().map_or(0, Vec::len);
        self.rule_count +=
            roles.iter().map(|role| self.rules_of[role.0].len() + patterns_of(role)).sum::<usize>();
        if self.rule_count > COMPILED_MAX {
            return Err(RolesError::TooMany);
        }
        let mut compiled = Compiled::default();
        for number in roles.iter().flat_map(|role| &self.rules_of[role.0]) {
            let rule = &self.rules[number.get() as usize - 1];
            let marks = Grants::of(rule.permit, *number);
            compiled.trees[rule.kind as usize].add(&rule.filter, Names::Parts, &marks);
        }
        let limits = Arc::make_mut(&mut compiled.limits);
        roles.iter().for_each(|role| limits.merge(&self.limits[role.0]));
        self.all.push(compiled);
        self.known.insert(roles, self.all.len() - 1);
        Ok(self.all.len() - 1)
    }

    /// Two roles with different topic prefixes, if there are some.
    fn prefix_twice(&self, roles: &BTreeSet<RoleId>) -> Option<[RoleId; 2]> {
        let reach = |role: RoleId| &self.limits[role.0].reach;
        let mut with_prefix = roles.iter().copied().filter(|role| *reach(*role) != Reach::Whole);
        let first = with_prefix.next()?;
        with_prefix.find(|other| reach(*other) != reach(first)).map(|other| [first, other])
    }
}
