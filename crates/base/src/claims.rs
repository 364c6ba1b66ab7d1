//! Rights that a token gives to its bearer, beside those of its user.

use std::fmt;
use std::sync::{Arc, OnceLock};

use topic::TopicFilter;
use wire::{Qos, Utf8};

use crate::{Budget, Charge, Purpose};

/// Groups that a token names, and rules that stand in it. They hold until the user logs in again.
///
/// They are charged to the [account](Budget) once, however many owners they have.
pub struct Claims {
    /// In their order, each once.
    groups: Box<[Box<str>]>,
    rules: Option<Box<[ClaimRule]>>,
    charge: OnceLock<Charge>,
}

/// A rule that stands in a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRule {
    /// The topics that the rule is about. `%u` and `%c` stand for user name and client identifier.
    pub filter: Box<str>,
    /// The uses of these topics that the rule is about.
    pub uses: Uses,
    /// The messages that the rule allows; `None` if it denies.
    pub allows: Option<ClaimLevels>,
}

/// The messages that a rule of a token allows to publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimLevels {
    /// The highest QoS, also of subscriptions.
    pub qos_max: Qos,
    /// Whether messages may be retained.
    pub retain: bool,
}

/// Uses of topics: at least one of publishing, subscribing and receiving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uses(u8);

impl Uses {
    /// The client publishes to the topic.
    pub const PUBLISH: Self = Self(1);
    /// The client subscribes to the topic.
    pub const SUBSCRIBE: Self = Self(2);
    /// The client receives messages of the topic.
    pub const RECEIVE: Self = Self(4);

    /// The uses with these bits; `None` for no use, and for other bits.
    #[must_use]
    pub fn from_bits(bits: u8) -> Option<Self> {
        (1..8).contains(&bits).then_some(Self(bits))
    }

    /// One bit for each use.
    #[must_use]
    pub fn bits(self) -> u8 {
        self.0
    }

    /// These uses and others.
    #[must_use]
    pub fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Whether one of these uses is among others.
    #[must_use]
    pub fn is_any_of(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }
}

impl Claims {
    /// Maximum number of groups.
    pub const GROUPS_MAX: usize = 32;
    /// Maximum number of rules.
    pub const RULES_MAX: usize = 64;
    /// Maximum bytes of the names of all groups, and of the filters of all rules.
    pub const BYTES_MAX: usize = 4_096;

    /// These groups and rules. `None` without any. `None` also if there are too many, or they are too long, or a name
    /// is empty or no text of MQTT, or a filter is no topic filter or one of a shared subscription.
    #[must_use]
    pub fn new(mut groups: Vec<Box<str>>, rules: Option<Vec<ClaimRule>>) -> Option<Self> {
        groups.sort_unstable();
        groups.dedup();
        let is_name = |name: &str| !name.is_empty() && Utf8::new(name).is_ok();
        let is_filter = |text: &str| TopicFilter::new(text).is_ok_and(|filter| filter.shared().is_none());
        let count = rules.as_ref().map_or(0, Vec::len);
        let name_bytes: usize = groups.iter().map(|name| name.len()).sum();
        let filter_bytes: usize = rules.iter().flatten().map(|rule| rule.filter.len()).sum();
        let is_some = !groups.is_empty() || rules.is_some();
        let is_bounded = is_some && groups.len() <= Self::GROUPS_MAX && count <= Self::RULES_MAX;
        let is_short = name_bytes <= Self::BYTES_MAX && filter_bytes <= Self::BYTES_MAX;
        let are_names = groups.iter().all(|name| is_name(name));
        let are_filters = rules.iter().flatten().all(|rule| is_filter(&rule.filter));
        (is_bounded && is_short && are_names && are_filters).then(|| Self {
            groups: groups.into(),
            rules: rules.map(Vec::into_boxed_slice),
            charge: OnceLock::new(),
        })
    }

    /// The names of the groups, in their order, each once.
    #[must_use]
    pub fn groups(&self) -> &[Box<str>] {
        &self.groups
    }

    /// The rules, if the token has some. An empty list allows nothing by itself.
    #[must_use]
    pub fn rules(&self) -> Option<&[ClaimRule]> {
        self.rules.as_deref()
    }

    /// Memory that the claims take, in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        let groups: usize = self.groups.iter().map(|name| size_of::<Box<str>>() + name.len()).sum();
        let rule = |rule: &ClaimRule| size_of::<ClaimRule>() + rule.filter.len();
        size_of::<Self>() + groups + self.rules.iter().flatten().map(rule).sum::<usize>()
    }

    /// Charges the memory, unless that was done before.
    pub fn charge(&self, budget: &Arc<Budget>) {
        self.charge.get_or_init(|| budget.charge(Purpose::Sessions, self.size_bytes()));
    }
}

/// The charge is not shown.
impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { groups, rules, .. } = self;
        f.debug_struct("Claims").field("groups", groups).field("rules", rules).finish_non_exhaustive()
    }
}

/// The charge makes no difference.
impl PartialEq for Claims {
    fn eq(&self, other: &Self) -> bool {
        self.groups == other.groups && self.rules == other.rules
    }
}

impl Eq for Claims {}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(filter: &str) -> ClaimRule {
        ClaimRule { filter: filter.into(), uses: Uses::PUBLISH, allows: None }
    }

    fn named(names: impl IntoIterator<Item = String>) -> Option<Claims> {
        Claims::new(names.into_iter().map(String::into_boxed_str).collect(), None)
    }

    #[test]
    fn claims_are_bounded() {
        let numbers = |count: usize| (0..count).map(|number| number.to_string());
        assert!(
            named(numbers(Claims::GROUPS_MAX)).is_some() && named(numbers(Claims::GROUPS_MAX + 1)).is_none()
        );
        let long = |bytes| named(["x".repeat(bytes)]);
        assert!(long(Claims::BYTES_MAX).is_some() && long(Claims::BYTES_MAX + 1).is_none());
        let rules = |count| Claims::new(Vec::new(), Some(vec![rule("a"); count]));
        assert!(rules(Claims::RULES_MAX).is_some() && rules(Claims::RULES_MAX + 1).is_none());
        let long = |bytes| Claims::new(Vec::new(), Some(vec![rule("a"), rule(&"x".repeat(bytes - 1))]));
        assert!(long(Claims::BYTES_MAX).is_some() && long(Claims::BYTES_MAX + 1).is_none());
    }

    #[test]
    fn a_name_is_a_text_and_a_filter_a_filter() {
        for name in ["", "a\0b", "a\nb"] {
            assert_eq!(named([name.to_owned()]).is_some(), name == "a\nb", "{name:?}");
        }
        for filter in ["", "a/#/b", "a+", "$share/g/a", "a\0b"] {
            assert!(Claims::new(Vec::new(), Some(vec![rule(filter)])).is_none(), "{filter:?}");
        }
        assert!(Claims::new(Vec::new(), None).is_none(), "no rights");
        let twice = named(["b", "a", "b"].map(str::to_owned)).expect("two groups");
        assert_eq!(twice.groups().iter().map(|name| &**name).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn claims_are_charged_once() {
        let budget = Arc::new(Budget::new(1 << 20));
        let claims = named(["a".to_owned()]).expect("a group");
        claims.charge(&budget);
        claims.charge(&budget);
        assert_eq!(budget.held_bytes(Purpose::Sessions), claims.size_bytes());
        drop(claims);
        assert_eq!(budget.held_bytes(Purpose::Sessions), 0);
    }
}
