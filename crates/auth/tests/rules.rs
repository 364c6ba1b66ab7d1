//! Compiled rules decide as a list decides that is read from its beginning to its end.

use auth::{AclProblem, Action, Client, Decision, Permissions, Reason, Rule};
use proptest::prelude::*;
use proptest::sample::select;
use topic::TopicName;

/// A rule as a list has it.
#[derive(Debug)]
struct Line {
    number: u32,
    user: Option<String>,
    is_pattern: bool,
    access: String,
    filter: String,
}

/// The rules of a list whose lines are all valid.
fn lines(text: &str) -> Vec<Line> {
    let mut user = None;
    let mut all = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let words: Vec<&str> = line.splitn(3, ' ').collect();
        match words[..] {
            ["user", name] => user = Some(name.to_owned()),
            [kind, access, filter] => all.push(Line {
                number,
                user: user.clone(),
                is_pattern: kind == "pattern",
                access: access.to_owned(),
                filter: filter.to_owned(),
            }),
            _ => panic!("{line} is not generated"),
        }
    }
    all
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

fn covers(filter: &str, topic: &str) -> bool {
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    let (filter, topic): (Vec<&str>, Vec<&str>) = (filter.split('/').collect(), topic.split('/').collect());
    matches(&filter, &topic)
}

/// A filter with the names of a client in it; `None` where the client has no name for it, or none that may stand there. No
/// name opens a topic that begins with `$`.
fn filled(filter: &str, client: Client<'_>) -> Option<String> {
    let is_fit = |name: &&str| !name.is_empty() && !name.contains('/');
    let mut text = filter.to_owned();
    // A name is in place of a sign of the rule, and never of a sign in another name.
    text = text.replace("%c", "\u{1}").replace("%u", "\u{2}");
    if text.contains('\u{1}') {
        text = text.replace('\u{1}', Some(client.client_id).filter(is_fit)?);
    }
    if text.contains('\u{2}') {
        text = text.replace('\u{2}', client.user.filter(is_fit)?);
    }
    let has_name = filter.split('/').next().is_some_and(|first| first.contains("%c") || first.contains("%u"));
    (!has_name || !text.starts_with('$')).then_some(text)
}

/// The decision of some rules: those that deny first, then the others in their order.
fn first(rules: &[(&Line, String)], topic: &str, action: Action) -> Option<Decision<'static>> {
    let bits = if action == Action::Publish { ["write", "readwrite"] } else { ["read", "readwrite"] };
    let matching = |access: &[&str]| {
        let mut rules = rules.iter().filter(|(line, _)| access.contains(&line.access.as_str()));
        rules.find(|(_, filter)| covers(filter, topic)).map(|(line, _)| *line)
    };
    let decision = |is_allowed, line: &Line| {
        let rule = Rule { line: line.number, is_pattern: line.is_pattern };
        Decision { is_allowed, reason: Reason::Rule(rule) }
    };
    matching(&["deny"])
        .map(|line| decision(false, line))
        .or_else(|| matching(&bits).map(|line| decision(true, line)))
}

fn naive(lines: &[Line], client: Client<'_>, topic: &str, action: Action) -> Decision<'static> {
    let denied = |reason| Decision { is_allowed: false, reason };
    let own = lines.iter().filter(|line| !line.is_pattern && line.user.as_deref() == client.user);
    let own: Vec<_> = own.map(|line| (line, line.filter.clone())).collect();
    if let Some(decision) = first(&own, topic, action) {
        return decision;
    }
    let patterns: Vec<&Line> = lines.iter().filter(|line| line.is_pattern).collect();
    if patterns.is_empty() {
        return denied(Reason::NoMatch);
    }
    if format!("{}{}", client.user.unwrap_or_default(), client.client_id).contains(['+', '#']) {
        return denied(Reason::WildcardInName);
    }
    let patterns = patterns.iter().filter_map(|line| Some((*line, filled(&line.filter, client)?)));
    first(&patterns.collect::<Vec<_>>(), topic, action).unwrap_or(denied(Reason::NoMatch))
}

fn level() -> impl Strategy<Value = &'static str> {
    select(&["a", "b", "", "$x", "+", "+", "%c", "%u", "a%c", "%c-%u", "%%u", "$%c"][..])
}

fn filter() -> impl Strategy<Value = String> {
    (prop::collection::vec(level(), 0..4), any::<bool>()).prop_map(|(mut levels, is_open)| {
        if is_open || levels.is_empty() {
            levels.push("#");
        }
        levels.join("/")
    })
}

fn line() -> impl Strategy<Value = String> {
    let rule = |(kind, access, filter)| format!("{kind} {access} {filter}");
    let access = select(&["read", "write", "readwrite", "deny"][..]);
    prop_oneof![
        1 => select(&["user ann", "user bob", "user a", "user b+b"][..]).prop_map(str::to_owned),
        5 => (select(&["topic", "topic", "pattern"][..]), access, filter()).prop_map(rule),
    ]
}

fn topic() -> impl Strategy<Value = String> {
    let levels = select(
        &["a", "b", "", "$x", "$CONTROL", "$c1", "c1", "ac1", "c1-ann", "%ann", "ann", "a%c", "%c"][..],
    );
    prop::collection::vec(levels, 1..5)
        .prop_map(|levels| levels.join("/"))
        .prop_filter("not empty", |t| !t.is_empty())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn a_compiled_list_decides_as_one_that_is_read_line_by_line(
        text in prop::collection::vec(line(), 0..12).prop_map(|lines| lines.join("\n")),
        user in select(
            &[None, Some("ann"), Some("bob"), Some("a"), Some("b+b"), Some("a/b"), Some(""), Some("%c"), Some("$x")][..]
        ),
        client_id in select(&["c1", "c/1", "a", "#", "", "+", "%u", "ann", "$x", "$CONTROL"][..]),
        topics in prop::collection::vec(topic(), 1..12),
    ) {
        let permissions = Permissions::of_mosquitto(&text).expect("every line is a rule");
        let (lines, client) = (lines(&text), Client { user, client_id, claims: None });
        for topic in &topics {
            let name = TopicName::new(topic).expect("a topic");
            for action in [Action::Publish, Action::Receive] {
                let expected = naive(&lines, client, topic, action);
                prop_assert_eq!(permissions.decide(client, name, action), expected, "{} {:?}\n{}", topic, action, text);
            }
        }
    }
}

fn allows(text: &str, client: Client<'_>, topic: &str, action: Action) -> bool {
    let permissions = Permissions::of_mosquitto(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    permissions.allows(client, TopicName::new(topic).expect("a topic"), action)
}

const ANN: Client<'_> = Client { user: Some("ann"), client_id: "c1", claims: None };
const NOBODY: Client<'_> = Client { user: None, client_id: "c1", claims: None };

#[test]
fn a_list_is_read_as_mosquitto_reads_it() {
    let may_read = |text: &str, topic: &str| allows(text, ANN, topic, Action::Receive);
    assert!(may_read("user ann\r\ntopic read a\r\n", "a"), "lines may end as on Windows");
    assert!(may_read("  user   ann  \n  topic   read   a \t\n", "a"), "blanks between words");
    assert!(
        may_read("user ann\ntopic a", "a") && may_read("user ann\ntopic read", "read"),
        "one word is the filter"
    );
    assert!(may_read("user ann\ntopic read a b", "a b"), "a filter may have blanks");
    assert!(may_read("user ann\ntopic read a\nuser bob\nuser ann\ntopic read b", "b"), "sections add up");
    assert!(may_read("user bob\npattern read a", "a"), "a pattern below a user is for everybody");
    assert!(!may_read("topic read a", "a"), "rules before the first user are for clients without a name");
    assert!(allows("topic read a", NOBODY, "a", Action::Receive));
    assert!(
        !may_read("", "a") && !may_read("# topic read a\n\n \n", "a"),
        "nothing is allowed without a rule"
    );
    assert!(
        !may_read("user ann\ntopic read #", "$SYS/a") && may_read("user ann\ntopic read $SYS/#", "$SYS/a")
    );
}

#[test]
fn a_line_that_is_no_rule_refuses_the_list() {
    let rows = [
        ("topic", AclProblem::NoFilter),
        ("user", AclProblem::NoName),
        ("topic foo bar", AclProblem::Access),
        ("\ttopic read a", AclProblem::Word),
        ("topic\tread a", AclProblem::Word),
        (" # comment", AclProblem::Word),
        ("Topic read a", AclProblem::Word),
        ("topic read a/#/b", AclProblem::Filter),
        ("topic read a+", AclProblem::Filter),
        ("topic read a # comment", AclProblem::Filter),
        ("topic read a\0b", AclProblem::Filter),
    ];
    for (line, problem) in rows {
        let error = Permissions::of_mosquitto(&format!("user ann\n{line}\n")).expect_err(line);
        assert_eq!((error.line, error.problem), (2, problem), "{line}");
    }
}

/// CVE-2017-7650: a name is never a wildcard, and never more than a level.
#[test]
fn a_name_in_a_pattern_is_text() {
    for name in ["#", "+", "a/b", "+/+", "", ".*"] {
        for client in [
            Client { user: Some(name), client_id: "c1", claims: None },
            Client { user: Some("ann"), client_id: name, claims: None },
        ] {
            for (pattern, topic) in
                [("x/%u/%c", "x/q/r"), ("x/%u", "x/q"), ("x/%c/#", "x/q"), ("%c/#", "a/b"), ("%u", "a")]
            {
                let text = format!("pattern readwrite {pattern}");
                assert!(!allows(&text, client, topic, Action::Publish), "{name:?} {pattern} {topic}");
            }
        }
    }
    assert!(allows(
        "pattern write x/%c",
        Client { user: None, client_id: ".*", claims: None },
        "x/.*",
        Action::Publish
    ));
}
