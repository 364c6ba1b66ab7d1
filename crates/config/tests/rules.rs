//! The file with our own rules.

use auth::{Action, Client, Permit, Roles};
use config::parse_rules;
use proptest::prelude::*;
use topic::{TopicFilter, TopicName};
use wire::Qos;

fn roles(text: &str) -> Roles {
    parse_rules(text).unwrap_or_else(|problems| panic!("{problems}\n{text}"))
}

fn permit(roles: &Roles, user: &str, topic: &str) -> Permit {
    let client = Client { user: Some(user), client_id: "c1", claims: None };
    roles.permit(client, TopicName::new(topic).expect("a topic"))
}

fn receives(roles: &Roles, user: Option<&str>, topic: &str) -> bool {
    roles.receives(Client { user, client_id: "c1", claims: None }, TopicName::new(topic).expect("a topic"))
}

fn granted(roles: &Roles, user: Option<&str>, filter: &str) -> Option<Qos> {
    roles.granted(Client { user, client_id: "c1", claims: None }, TopicFilter::new(filter).expect("a filter"))
}

const FILE: &str = "\
# Our house
[roles.sensor]
publish = [\"devices/%u/#\"]
subscribe = [\"commands/%u/#\"]
max_qos = 1
retain = false

[roles.family]
publish = [\"house/#\"]
subscribe = [\"house/#\"]
deny = { publish = [\"house/alarm\"], subscribe = [\"house/safe/#\"] }

[roles.quiet]
subscribe = [\"a/#\"]
receive = [\"b\"]

[roles.empty]

[groups.field]
roles = [\"sensor\"]
users = [\"ann\", \"bob\"]

[users.bob]
roles = [\"family\"]

[users.\"cat 1\"]
roles = [\"quiet\"]

[every_user]
roles = [\"empty\"]

[anonymous]
roles = [\"family\", \"quiet\"]
";

#[test]
fn a_file_is_read_as_it_says() {
    let roles = roles(FILE);
    assert_eq!(permit(&roles, "ann", "devices/ann/a"), Permit::up_to(Qos::AtLeastOnce, false));
    assert_eq!(permit(&roles, "ann", "devices/bob/a"), Permit::NONE);
    assert_eq!(granted(&roles, Some("ann"), "commands/ann/+"), Some(Qos::AtLeastOnce));
    assert_eq!(permit(&roles, "bob", "devices/bob/a"), Permit::up_to(Qos::AtLeastOnce, false));
    assert_eq!(permit(&roles, "bob", "house/door"), Permit::ALL, "both roles");
    assert_eq!(permit(&roles, "bob", "house/alarm"), Permit::NONE);
    assert_eq!(granted(&roles, Some("bob"), "house/#"), Some(Qos::ExactlyOnce));
    assert_eq!(granted(&roles, Some("bob"), "house/safe/a"), None);
    assert!(receives(&roles, Some("bob"), "house/door") && !receives(&roles, Some("bob"), "house/safe/a"));
    // A list of messages takes the place of the filters of subscriptions.
    assert!(receives(&roles, Some("cat 1"), "b") && !receives(&roles, Some("cat 1"), "a/b"));
    assert!(receives(&roles, None, "house/a") && granted(&roles, None, "a/b").is_some());
    assert!(granted(&roles, Some("dan"), "house/a").is_none() && !receives(&roles, Some("dan"), "house/a"));
}

#[test]
fn limits_of_several_roles_add_up() {
    let roles = roles(
        "[roles.a]\nclient_ids = [\"%u-*\"]\nexpiry_max = \"2 h\"\n[roles.b]\nclient_ids = [\"x\"]\nexpiry_max = \"1 d\"\n\
         [every_user]\nroles = [\"a\"]\n[users.ann]\nroles = [\"b\"]\n",
    );
    let limits = |user| roles.limits(Client { user, client_id: "c1", claims: None });
    let permits = |user, client_id| limits(user).permit_client_id(Client { user, client_id, claims: None });
    assert!(permits(Some("bob"), "bob-1") && !permits(Some("bob"), "x") && permits(None, "x"));
    assert!(permits(Some("ann"), "ann-1") && permits(Some("ann"), "x") && !permits(Some("ann"), "ann"));
    let secs = [None, Some("bob"), Some("ann")].map(|user| limits(user).expiry_secs_max);
    assert_eq!(secs, [None, Some(7_200), Some(86_400)]);
    let roles = self::roles(
        "[roles.a]\nqueue_messages = 3\n[roles.b]\nqueue_messages = 2\nqueue_bytes = \"64 KiB\"\n\
         [every_user]\nroles = [\"a\"]\n[users.ann]\nroles = [\"b\"]\n",
    );
    let queue = |user| {
        let limits = roles.limits(Client { user, client_id: "c1", claims: None });
        (limits.queue.messages_max, limits.queue.bytes_max)
    };
    let all = [None, Some("bob"), Some("ann")].map(queue);
    assert_eq!(all, [(None, None), (Some(3), None), (Some(3), Some(65_536))]);
}

#[test]
fn a_role_without_a_topic_prefix_says_nothing_about_it() {
    let roles = roles(
        "[roles.a]\ntopic_prefix = \"t/%u/\"\n[roles.b]\n[roles.c]\ntopic_prefix = \"t/%u/\"\n\
         [users.ann]\nroles = [\"b\", \"a\", \"c\"]\n[every_user]\nroles = [\"b\"]\n",
    );
    let prefix = |user| {
        roles
            .limits(Client { user, client_id: "c1", claims: None })
            .topic_prefix_of(user)
            .expect("one at most")
    };
    assert_eq!([prefix(Some("ann")), prefix(Some("bob"))], [Some("t/ann/".into()), None]);
}

/// The roles of every user count, and so do those of groups.
#[test]
fn nobody_has_two_topic_prefixes() {
    let file = |rest: &str| {
        let roles = "[roles.a]\ntopic_prefix = \"a/\"\n[roles.b]\ntopic_prefix = \"b/\"\n";
        parse_rules(&format!("{roles}{rest}")).map(drop).map_err(|problems| problems.to_string())
    };
    let text = |holder| {
        Err(format!("line 4, column 16: {holder} has roles with different topic prefixes: \"a\" and \"b\""))
    };
    assert_eq!(file("[users.ann]\nroles = [\"b\", \"a\"]\n"), text("the user \"ann\""));
    assert_eq!(
        file("[users.ann]\nroles = [\"b\"]\n[groups.g]\nusers = [\"ann\"]\nroles = [\"a\"]\n"),
        text("the user \"ann\"")
    );
    assert_eq!(
        file("[users.ann]\nroles = [\"b\"]\n[every_user]\nroles = [\"a\"]\n"),
        text("the user \"ann\"")
    );
    assert_eq!(file("[every_user]\nroles = [\"a\", \"b\"]\n"), text("every user"));
    assert_eq!(file("[anonymous]\nroles = [\"a\", \"b\"]\n"), text("a client without a name"));
    let apart = "[users.ann]\nroles = [\"a\"]\n[users.bob]\nroles = [\"b\"]\n[anonymous]\nroles = [\"a\"]\n";
    assert_eq!(file(apart), Ok(()));
}

#[test]
fn an_empty_file_gives_nobody_a_right() {
    for text in ["", "# nothing\n", "[roles]\n[groups]\n[users]\n", "[roles.a]\n[users.ann]\nroles = []\n"] {
        let roles = roles(text);
        let client = Client { user: Some("ann"), client_id: "c1", claims: None };
        assert!(!roles.decide(client, topic::topic!("a"), Action::Publish).is_allowed, "{text}");
    }
}

/// Files with a mistake, and its text.
const MISTAKES: &[(&str, &str)] = &[
    (
        "[roles.a]\npublsh = []",
        "line 2, column 1: there is no key `publsh` in `roles.a`; did you mean `publish`?",
    ),
    ("[roles.a]\nzebra = 1", "line 2, column 1: there is no key `zebra` in `roles.a`; there are: publish"),
    ("[role.a]", "line 1, column 2: there is no key `role` at the top of the file; did you mean `roles`?"),
    ("[roles.a.deny]\nretain = true", "line 2, column 1: there is no key `retain` in `roles.a.deny`"),
    (
        "[users.ann]\nroles = [\"a\"]",
        "line 2, column 10: there is no role \"a\"; each role has a table [roles.NAME]",
    ),
    (
        "[roles.sensor]\n[groups.g]\nroles = [\"senser\"]",
        "there is no role \"senser\"; did you mean \"sensor\"?",
    ),
    ("[groups.g]\ngroups = [\"h\"]", "line 2, column 1: there is no key `groups` in `groups.g`"),
    ("[groups.g]\nusers = [\"\"]", "line 1, column 9: no user has an empty name"),
    ("[users.\"\"]\n", "line 1, column 8: no user has an empty name"),
    (
        "[roles.\"x y\"]\npublish = [\"a\", \"a/#/b\"]",
        "line 2, column 17: `roles.\"x y\".publish`: this is no topic filter",
    ),
    (
        "[roles.a]\nsubscribe = [\"$share/g/a\"]",
        "line 2, column 14: `roles.a.subscribe`: rules are about the filter behind",
    ),
    ("[roles.a]\npublish = \"a\"", "line 2, column 11: `roles.a.publish` is a list of topic filters"),
    (
        "[roles.a]\npublish = [1]",
        "line 2, column 12: `roles.a.publish` is a list of topic filters, in quotes",
    ),
    ("[roles.a]\nmax_qos = 3", "line 2, column 11: `roles.a.max_qos` is none of 0, 1 and 2"),
    ("[roles.a]\nmessages_per_second = 0", "line 2, column 23: `roles.a.messages_per_second` is from 1 to"),
    (
        "[roles.a]\nbytes_per_second = \"1 MB\"",
        "line 2, column 20: `roles.a.bytes_per_second` is a number of bytes",
    ),
    ("[roles.a]\nqueue_messages = 0", "line 2, column 18: `roles.a.queue_messages` is from 1 to"),
    ("[roles.a]\nqueue_bytes = 0", "line 2, column 15: `roles.a.queue_bytes` is a number of bytes"),
    ("[roles.a]\nqueue_bytes = 65_535", "line 2, column 15: `roles.a.queue_bytes` is at least 64 KiB"),
    ("[roles.a]\nmax_qos = -1", "line 2, column 11: `roles.a.max_qos` cannot be negative"),
    ("[roles.a]\nexpiry_max = 5", "line 2, column 14: `roles.a.expiry_max` is a time of at least one second"),
    ("[roles.a]\nexpiry_max = \"10 ms\"", "line 2, column 14: `roles.a.expiry_max` is a time of at least"),
    (
        "[roles.a]\nclient_ids = \"x\"",
        "line 2, column 14: `roles.a.client_ids` is a list of client identifiers",
    ),
    (
        "[roles.a]\ntopic_prefix = \"t\"",
        "line 2, column 16: `roles.a.topic_prefix` does not end with a slash",
    ),
    (
        "[roles.a]\ntopic_prefix = \"$t/\"",
        "line 2, column 16: `roles.a.topic_prefix` begins with `$`, or has",
    ),
    ("[roles.a]\ntopic_prefix = \"%c/\"", "line 2, column 16: `roles.a.topic_prefix` has `%c`: each client"),
    ("[roles.a]\ntopic_prefix = 1", "line 2, column 16: `roles.a.topic_prefix` is a text: write \"…\""),
    ("[roles.a]\nretain = 1", "line 2, column 10: `roles.a.retain` is `true` or `false`"),
    ("[roles.a]\ndeny = [\"a\"]", "line 2, column 8: `roles.a.deny` is a table: write [roles.a.deny]"),
    ("roles = []", "line 1, column 9: `roles` is a table: write [roles]"),
    ("[roles]\na = 1", "line 2, column 5: `roles.a` is a table: write [roles.a]"),
    ("[roles.a]\n\u{e9} x\n", "line 2, column"),
    ("[roles.a]\n[roles.a]\n", "line 2, column"),
];

#[test]
fn a_mistake_is_named_with_its_place() {
    for (text, expected) in MISTAKES {
        let problems = parse_rules(text).expect_err(text).to_string();
        assert!(problems.contains(expected), "{text}\n{problems}");
    }
}

#[test]
fn all_mistakes_are_named_and_no_values() {
    let text = "[roles.a]\npublish = [\"hush9+\"]\nmax_qos = \"hush9\"\nretain = \"hush9\"\nx = \"hush9\"\n";
    let problems = parse_rules(text).expect_err("four mistakes").to_string();
    assert_eq!(problems.lines().count(), 4, "{problems}");
    assert!(!problems.contains("hush9"), "{problems}");
    let many = "[users.a]\nroles = [".to_owned() + &"\"x\",\n".repeat(1_000) + "]";
    let problems = parse_rules(&many).expect_err("1,000 mistakes").to_string();
    assert!(problems.ends_with("and 980 more"), "{problems}");
}

/// Brackets, dots and headers without an end take no more of the stack than the parser allows.
#[test]
fn deep_files_are_refused() {
    const DEEP: usize = 100_000;
    for text in [
        format!("{}a = 1\n", "a.".repeat(DEEP)),
        format!("[roles{}]\n", ".a".repeat(DEEP)),
        format!("[roles.a]\npublish = {}\n", "[".repeat(DEEP)),
        format!("[roles.a]\ndeny = {}\n", "{a=".repeat(DEEP)),
    ] {
        parse_rules(&text).expect_err("it is no file of roles");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn no_file_makes_the_parser_panic(text in "(\\[(roles|groups|users|every_user|anonymous|x)(\\.[a\"]{0,2})?\\]\n|(publish|subscribe|receive|deny|roles|users|max_qos|retain|y) = [\\[\\]{}\"a/+#%1, ]{0,8}\n|\\PC{0,6}\n){0,8}") {
        let _ = parse_rules(&text).map_err(|problems| problems.to_string());
    }
}
