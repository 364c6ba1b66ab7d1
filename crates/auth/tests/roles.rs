//! Roles decide as a list of their rules decides that is read from its beginning to its end.

use auth::{Access, Action, Client, Deciding, Decision, FilterAction, Held, Holder, Permit, Reason};
use auth::{Roles, RolesBuilder, RolesError, RuleKind};
use proptest::prelude::*;
use proptest::sample::select;
use topic::{TopicFilter, TopicName};
use wire::Qos;

const LEVELS: [Qos; 3] = [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce];
const KINDS: [RuleKind; 3] = [RuleKind::Publish, RuleKind::Subscribe, RuleKind::Receive];

/// A rule as a file has it.
#[derive(Debug, Clone)]
struct Line {
    role: usize,
    kind: RuleKind,
    filter: String,
    /// The highest QoS, and whether messages may be retained; `None` if the rule denies.
    allows: Option<(Qos, bool)>,
}

/// The holders of a role.
#[derive(Debug, Clone, Copy)]
enum Given {
    User(&'static str),
    Group(&'static str),
    EveryUser,
    Anonymous,
}

/// The members of all groups.
const GROUPS: [(&str, &[&str]); 2] = [("field", &["ann", "bob"]), ("office", &["bob"])];

#[derive(Debug, Clone)]
struct File {
    rules: Vec<Line>,
    given: Vec<(Given, usize)>,
}

const ROLES: usize = 4;

impl File {
    fn compile(&self) -> Roles {
        let mut builder = RolesBuilder::default();
        let roles: Vec<_> = (0..ROLES).map(|role| builder.role(&format!("role {role}"))).collect();
        for (Line { role, kind, filter, allows }, line) in self.rules.iter().zip(1..) {
            let permit = allows.map(|(qos, retain)| Permit::up_to(qos, retain));
            builder.rule(roles[*role], *kind, filter, permit, line).expect("a filter");
        }
        for (given, role) in &self.given {
            let holder = match given {
                Given::User(name) => Holder::User(name),
                Given::Group(name) => Holder::Group(name),
                Given::EveryUser => Holder::EveryUser,
                Given::Anonymous => Holder::Anonymous,
            };
            builder.give(holder, roles[*role]);
        }
        for (group, users) in GROUPS {
            users.iter().for_each(|user| builder.join(group, user));
        }
        builder.build().expect("few rules")
    }

    fn has(&self, user: Option<&str>, role: usize) -> bool {
        let is_in = |group: &str| {
            GROUPS.iter().any(|(name, users)| *name == group && users.contains(&user.unwrap_or("/")))
        };
        self.given.iter().any(|(given, of)| {
            *of == role
                && match given {
                    Given::User(name) => user == Some(name),
                    Given::Group(name) => is_in(name),
                    Given::EveryUser => user.is_some(),
                    Given::Anonymous => user.is_none(),
                }
        })
    }

    /// The rules of a client that fit, each with its number.
    fn fitting(&self, client: Client<'_>, kind: RuleKind, fits: impl Fn(&str) -> bool) -> Vec<(u32, &Line)> {
        let all =
            (1..).zip(&self.rules).filter(|(_, line)| line.kind == kind && self.has(client.user, line.role));
        all.filter(|(_, line)| filled(&line.filter, client).is_some_and(|filter| fits(&filter))).collect()
    }
}

/// Whether a message may pass, and the number of the rule that decides.
fn naive(fitting: &[(u32, &Line)], qos: Qos, retain: bool) -> (bool, Option<u32>) {
    if let Some((number, _)) = fitting.iter().find(|(_, line)| line.allows.is_none()) {
        return (false, Some(*number));
    }
    let allows = |line: &Line, (qos, retain): (Qos, bool)| {
        line.allows.is_some_and(|(most, may)| qos <= most && (may || !retain))
    };
    let mut enough = fitting.iter().filter(|(_, line)| allows(line, (qos, retain)));
    match enough.next() {
        Some((number, _)) => (true, Some(*number)),
        None => (false, fitting.first().map(|(number, _)| *number)),
    }
}

/// Section 4.7, word for word.
fn matches(filter: &[&str], name: &[&str]) -> bool {
    match (filter, name) {
        (["#"], _) | ([], []) => true,
        (["+", filter @ ..], [_, name @ ..]) => matches(filter, name),
        ([wanted, filter @ ..], [level, name @ ..]) => wanted == level && matches(filter, name),
        _ => false,
    }
}

fn covers(filter: &str, topic: &[&str]) -> bool {
    if topic[0].starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    matches(&filter.split('/').collect::<Vec<_>>(), topic)
}

/// A filter with the names of a client in it, none of which is more than text in one level. `None` where the client has no
/// name that may stand there. No name opens a topic that begins with `$`.
fn filled(filter: &str, client: Client<'_>) -> Option<String> {
    let is_fit = |name: &&str| !name.is_empty() && !name.contains(['/', '+', '#']);
    let mut text = filter.replace("%c", "\u{1}").replace("%u", "\u{2}");
    if text.contains('\u{1}') {
        text = text.replace('\u{1}', Some(client.client_id).filter(is_fit)?);
    }
    if text.contains('\u{2}') {
        text = text.replace('\u{2}', client.user.filter(is_fit)?);
    }
    let has_name = filter.split('/').next().is_some_and(|first| first.contains("%c") || first.contains("%u"));
    (!has_name || !text.starts_with('$')).then_some(text)
}

fn line_of(decision: Decision<'_>) -> (bool, Option<u32>) {
    let line = match decision.reason {
        Reason::Role(rule) => Some(rule.line),
        Reason::NoMatch => None,
        other => panic!("{other:?}"),
    };
    (decision.is_allowed, line)
}

fn filter() -> impl Strategy<Value = String> {
    let level = select(&["a", "b", "", "$x", "+", "+", "%c", "%u", "a%c", "%c-%u", "$%c"][..]);
    (prop::collection::vec(level, 0..4), any::<bool>())
        .prop_map(|(mut levels, is_open)| {
            if is_open || levels.is_empty() {
                levels.push("#");
            }
            levels.join("/")
        })
        .prop_filter("not empty", |filter| !filter.is_empty())
}

fn line() -> impl Strategy<Value = Line> {
    let allows = prop::option::weighted(0.8, (select(&LEVELS[..]), any::<bool>()));
    (0..ROLES, select(&KINDS[..]), filter(), allows).prop_map(|(role, kind, filter, allows)| Line {
        role,
        kind,
        filter,
        allows,
    })
}

fn file() -> impl Strategy<Value = File> {
    let given = select(
        &[
            Given::User("ann"),
            Given::User("a"),
            Given::Group("field"),
            Given::Group("office"),
            Given::EveryUser,
            Given::Anonymous,
        ][..],
    );
    (prop::collection::vec(line(), 0..12), prop::collection::vec((given, 0..ROLES), 0..7))
        .prop_map(|(rules, given)| File { rules, given })
}

fn topic() -> impl Strategy<Value = String> {
    let levels = select(&["a", "b", "", "$x", "$CONTROL", "$c1", "c1", "ac1", "c1-ann", "ann", "%c"][..]);
    prop::collection::vec(levels, 1..5)
        .prop_map(|levels| levels.join("/"))
        .prop_filter("not empty", |topic| !topic.is_empty())
}

fn user() -> impl Strategy<Value = Option<&'static str>> {
    select(
        &[
            None,
            Some("ann"),
            Some("bob"),
            Some("a"),
            Some("stranger"),
            Some("#"),
            Some("a/b"),
            Some("%c"),
            Some("$x"),
        ][..],
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn compiled_roles_decide_as_their_rules_one_by_one(
        file in file(),
        user in user(),
        client_id in select(&["c1", "c/1", "a", "#", "", "+", "%u", "ann", "$x", "$CONTROL"][..]),
        topics in prop::collection::vec(topic(), 1..8),
    ) {
        let (roles, client) = (file.compile(), Client { user, client_id, claims: None });
        for topic in &topics {
            let name = TopicName::new(topic).expect("a topic");
            let levels: Vec<&str> = topic.split('/').collect();
            let publish = file.fitting(client, RuleKind::Publish, |filter| covers(filter, &levels));
            let permit = roles.permit(client, name);
            for (qos, retain) in LEVELS.into_iter().flat_map(|qos| [(qos, false), (qos, true)]) {
                let expected = naive(&publish, qos, retain);
                let found = line_of(roles.decide_publish(client, name, (qos, retain)));
                prop_assert_eq!(found, expected, "{} {:?} {}", topic, qos, retain);
                prop_assert_eq!(permit.allows(qos, retain), expected.0);
            }
            let receive = file.fitting(client, RuleKind::Receive, |filter| covers(filter, &levels));
            let expected = naive(&receive, Qos::AtMostOnce, false);
            prop_assert_eq!(line_of(roles.decide(client, name, Action::Receive)), expected, "{}", topic);
            prop_assert_eq!(roles.receives(client, name), expected.0);
        }
    }
}

/// All topics of up to four levels, of the words that filters have, and one more. Filters are compared with the empty topic
/// too, which is none: `/#` begins with it, and `/+/#` does not cover that.
fn topics(client_id: &str) -> Vec<Vec<&'static str>> {
    let words = match client_id {
        "c1" => ["a", "b", "", "$x", "$c1", "c1", "ann", "ac1", "c1-ann", "else"],
        "$x" => ["a", "b", "", "$x", "$$x", "c1", "ann", "a$x", "$x-ann", "else"],
        other => panic!("{other} is not generated"),
    };
    let mut all: Vec<Vec<&str>> = vec![Vec::new()];
    let mut from = 0;
    for _ in 0..4 {
        let until = all.len();
        for place in from..until {
            let longer = words.iter().map(|word| [&all[place][..], &[*word]].concat());
            let longer: Vec<_> = longer.collect();
            all.extend(longer);
        }
        from = until;
    }
    all.retain(|topic| !topic.is_empty());
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// A rule covers a filter if it matches every topic that the filter matches.
    #[test]
    fn a_subscription_needs_a_rule_that_matches_all_its_topics(
        file in file(),
        user in user(),
        client_id in select(&["c1", "$x"][..]),
        filters in prop::collection::vec(filter(), 1..4),
    ) {
        let (roles, client) = (file.compile(), Client { user, client_id, claims: None });
        let all = topics(client_id);
        for asked in &filters {
            let asked = asked.replace("%c", client_id).replace("%u", "ann");
            let own: Vec<_> = all.iter().filter(|topic| covers(&asked, topic)).collect();
            let covering = |rule: &str| own.iter().all(|topic| covers(rule, topic));
            let fitting = file.fitting(client, RuleKind::Subscribe, covering);
            let name = TopicFilter::new(&asked).expect("a filter");
            let expected = naive(&fitting, Qos::AtMostOnce, false);
            let found = line_of(roles.decide_filter(client, name, FilterAction::Subscribe));
            prop_assert_eq!(found, expected, "{}", asked);
            let qos = LEVELS.into_iter().rev().find(|qos| naive(&fitting, *qos, false).0);
            prop_assert_eq!(roles.granted(client, name), qos, "{}", asked);
        }
    }
}

const ALL: Option<Permit> = Some(Permit::ALL);

/// One role of every user and of every client without a name.
fn of_everybody(rules: &[(RuleKind, &str, Option<Permit>)]) -> Roles {
    let mut builder = RolesBuilder::default();
    let role = builder.role("role");
    for (kind, filter, permit) in rules {
        builder.rule(role, *kind, filter, *permit, 1).expect("a filter");
    }
    builder.give(Holder::EveryUser, role);
    builder.give(Holder::Anonymous, role);
    builder.build().expect("few rules")
}

fn name(topic: &str) -> TopicName<'_> {
    TopicName::new(topic).expect("a topic")
}

fn filter_of(text: &str) -> TopicFilter<'_> {
    TopicFilter::new(text).expect("a filter")
}

/// CVE-2017-7650, for topics and for filters: a name is never a wildcard, and never more than a level.
#[test]
fn a_name_in_a_rule_is_text() {
    let rules = ["x/%u/%c", "x/%u", "x/%c/#", "%c/#", "%u", "%u/#", "x/p-%u", "x/%c-p/#"];
    for name_of_client in ["#", "+", "a/b", "+/+", "", "a/#", "$SYS"] {
        for rule in rules {
            let all: Vec<_> = KINDS.into_iter().map(|kind| (kind, rule, ALL)).collect();
            let roles = of_everybody(&all);
            for client in [
                Client { user: Some(name_of_client), client_id: "c1", claims: None },
                Client { user: Some("ann"), client_id: name_of_client, claims: None },
                Client { user: None, client_id: name_of_client, claims: None },
            ] {
                for topic in ["x/q/r", "x/q", "a/b", "a", "x/p-q", "x/q-p/r", "x/p-a/b"] {
                    let is_open = roles.permit(client, name(topic)) != Permit::NONE;
                    assert!(!is_open && !roles.receives(client, name(topic)), "{client:?} {rule} {topic}");
                }
                for filter in ["x/#", "x/+", "#", "+/#", "+", "x/+/+", "a/b", "a/#", "x/p-a/b", "$share/g/#"]
                {
                    assert_eq!(roles.granted(client, filter_of(filter)), None, "{client:?} {rule} {filter}");
                }
            }
        }
    }
}

#[test]
fn a_group_of_receivers_is_no_way_around_a_rule() {
    let roles =
        of_everybody(&[(RuleKind::Subscribe, "open/#", ALL), (RuleKind::Subscribe, "open/safe", None)]);
    let ann = Client { user: Some("ann"), client_id: "c1", claims: None };
    let granted = |filter| roles.granted(ann, filter_of(filter)).is_some();
    assert!(granted("$share/g/open/a") && granted("$share/open/open/+"));
    assert!(!granted("$share/open/a") && !granted("$share/g/#") && !granted("$share/g/open/safe"));
}

#[test]
fn wildcards_do_not_reach_topics_of_the_broker() {
    let all =
        [(RuleKind::Publish, "#", ALL), (RuleKind::Subscribe, "#", ALL), (RuleKind::Receive, "+/#", ALL)];
    let roles = of_everybody(&all);
    let ann = Client { user: Some("ann"), client_id: "c1", claims: None };
    assert!(roles.granted(ann, filter_of("#")).is_some() && roles.receives(ann, name("SYS/a")));
    for topic in ["$SYS/a", "$CONTROL/dynamic-security/v1", "$x"] {
        assert!(
            roles.permit(ann, name(topic)) == Permit::NONE && !roles.receives(ann, name(topic)),
            "{topic}"
        );
        assert_eq!(roles.granted(ann, filter_of(topic)), None, "{topic}");
        assert_eq!(roles.granted(ann, filter_of(&format!("{topic}/#"))), None, "{topic}");
    }
    let own = of_everybody(&[(RuleKind::Subscribe, "$SYS/#", ALL)]);
    assert!(own.granted(ann, filter_of("$SYS/+/a")).is_some());
}

#[test]
fn a_filter_that_is_none_is_no_rule() {
    let mut builder = RolesBuilder::default();
    let role = builder.role("role");
    let long = "a/".repeat(40_000);
    for filter in ["", "a/#/b", "a+", "#a", "a/b#", "a\0b", &long] {
        let found = builder.rule(role, RuleKind::Publish, filter, ALL, 1);
        assert_eq!(found, Err(RolesError::Filter), "{filter:.20}");
    }
    let found = builder.rule(role, RuleKind::Subscribe, "$share/g/a", ALL, 1);
    assert_eq!(found, Err(RolesError::Shared));
}

#[test]
fn nobody_may_do_anything_without_a_role_or_with_empty_ones() {
    let mut builder = RolesBuilder::default();
    let empty = builder.role("empty");
    for holder in [Holder::User("ann"), Holder::Group("g"), Holder::EveryUser] {
        builder.give(holder, empty);
    }
    for roles in [Roles::default(), of_everybody(&[]), builder.build().expect("no rules")] {
        let access = Access::new(None, None).with_roles(roles);
        for user in [None, Some("ann"), Some("")] {
            let client = Client { user, client_id: "c1", claims: None };
            let reason = access.decide(client, name("a"), Action::Publish).reason;
            assert_eq!((access.permit(client, name("a")), reason), (Permit::NONE, Reason::NoMatch));
            assert!(!access.allows(client, name("a"), Action::Receive));
            assert_eq!(access.granted(client, filter_of("a")), None);
        }
    }
}

/// 10,000 roles and users. Users with the same roles share trees; a role that all users have costs each combination its rules.
#[test]
fn very_many_roles_are_compiled() {
    let mut builder = RolesBuilder::default();
    let common = builder.role("common");
    builder.rule(common, RuleKind::Publish, "status/%u", ALL, 1).expect("a filter");
    builder.give(Holder::EveryUser, common);
    for number in 0..10_000_u32 {
        let (name, filter) = (format!("role-{number}"), format!("device/{number}/#"));
        let role = builder.role(&name);
        builder.rule(role, RuleKind::Publish, &filter, ALL, number + 2).expect("a filter");
        builder.give(Holder::User(&format!("user-{number}")), role);
        builder.join("all", &format!("user-{number}"));
    }
    let roles = builder.build().expect("20,000 rules");
    let client = Client { user: Some("user-9999"), client_id: "c1", claims: None };
    let decision = roles.decide(client, name("device/9999/a"), Action::Publish);
    let Reason::Role(Deciding { role, held, line, .. }) = decision.reason else { panic!("{decision:?}") };
    assert_eq!((role, held, line), ("role-9999", Held::User, 10_001));
    assert!(!roles.permit(client, name("device/1/a")).allows(Qos::AtMostOnce, false));
    let decision = roles.decide(client, name("status/user-9999"), Action::Publish);
    assert!(matches!(decision.reason, Reason::Role(Deciding { held: Held::EveryUser, .. })), "{decision:?}");
}

/// Each of 3,000 users has a role of its own, and one of 1,000 rules: 3,000,000 rules in all combinations.
#[test]
fn combinations_of_roles_are_bounded() {
    let mut builder = RolesBuilder::default();
    let large = builder.role("large");
    for number in 0..1_000 {
        builder.rule(large, RuleKind::Publish, &format!("a/{number}"), ALL, 1).expect("a filter");
    }
    builder.give(Holder::EveryUser, large);
    for number in 0..3_000 {
        let role = builder.role("own");
        builder.give(Holder::User(&format!("user-{number}")), role);
    }
    assert_eq!(builder.build().expect_err("too many"), RolesError::TooMany);
}
