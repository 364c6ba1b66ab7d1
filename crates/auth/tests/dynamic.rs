//! Dynamic security: which entry decides, and files that come back as they were.

use auth::{
    ANSWER_BYTES_MAX, Access, AclKind, Action, COMMANDS_MAX, Client, DynamicError, DynamicSecurity,
    FilterAction, PasswordHash, Reason, Scheme,
};
use std::sync::Arc;
use topic::{TopicFilter, TopicName};

const FILE: &str = r#"{
    "defaultACLAccess": { "publishClientSend": true, "subscribe": true },
    "anonymousGroup": "everybody",
    "clients": [
        { "username": "ann", "roles": [{ "roleName": "low" }, { "rolename": "high", "priority": 3 }] },
        { "username": "bob", "roles": [], "textName": "Bob" },
        { "username": "ann", "disabled": true },
        { "username": "" }, 7
    ],
    "groups": [
        { "groupname": "everybody", "roles": [{ "rolename": "low" }, { "rolename": "nobody's" }],
          "clients": [{ "username": "bob", "priority": 1 }, { "username": "nobody" }] },
        { "groupname": "others", "roles": [{ "rolename": "high" }], "clients": [{ "username": "bob", "priority": 2 }] }
    ],
    "roles": [
        { "rolename": "low", "acls": [
            { "acltype": "publishClientSend", "topic": "a/#", "allow": true },
            { "acltype": "PUBLISHCLIENTSEND", "topic": "$SYS/x", "allow": true },
            { "acltype": "subscribePattern", "topic": "+/#", "allow": false },
            { "acltype": "subscribeLiteral", "topic": "a/+", "allow": true } ] },
        { "rolename": "high", "acls": [
            { "acltype": "publishClientSend", "topic": "a/+", "allow": true, "priority": 1 },
            { "acltype": "publishClientSend", "topic": "a/b", "allow": false, "priority": 2 },
            { "acltype": "publishClientSend", "topic": "a/c", "allow": false, "priority": 1 } ] }
    ]
}"#;

fn access(text: &str) -> Access {
    let dynamic = DynamicSecurity::parse(text).expect("a file");
    Access::new(None, None).with_dynamic_security(Arc::new(dynamic))
}

fn client(user: Option<&str>) -> Client<'_> {
    Client { user, client_id: "c1", claims: None }
}

fn publish<'a>(access: &'a Access, user: Option<&str>, topic: &str) -> (bool, Reason<'a>) {
    let topic = TopicName::new(topic).expect("a topic");
    let decision = access.decide(client(user), topic, Action::Publish);
    (decision.is_allowed, decision.reason)
}

fn may_subscribe(access: &Access, user: Option<&str>, filter: &str) -> bool {
    let filter = TopicFilter::new(filter).expect("a filter");
    access.decide_filter(client(user), filter, FilterAction::Subscribe).is_allowed
}

#[test]
fn roles_decide_by_priority_and_then_entries_and_then_groups_and_then_the_default() {
    let access = access(FILE);
    let by = |role, group, topic| Reason::Entry { role, group, kind: AclKind::PublishClientSend, topic };
    assert_eq!(publish(&access, Some("ann"), "a/b"), (false, by("high", None, "a/b")));
    assert_eq!(publish(&access, Some("ann"), "a/c"), (true, by("high", None, "a/+")), "the first of two");
    assert_eq!(publish(&access, Some("ann"), "a/c/d"), (true, by("low", None, "a/#")));
    assert_eq!(publish(&access, Some("bob"), "a/b"), (false, by("high", Some("others"), "a/b")));
    assert_eq!(publish(&access, None, "a/b"), (true, by("low", Some("everybody"), "a/#")));
    assert_eq!(publish(&access, Some("ann"), "z"), (true, Reason::Default));
    assert_eq!(publish(&access, Some("ann"), "$CONTROL/z"), (false, Reason::NoMatch));
    assert_eq!(publish(&access, Some("stranger"), "a/x"), (false, Reason::NoMatch));
    let receive = access.decide(client(Some("ann")), topic::topic!("a"), Action::Receive);
    assert!(!receive.is_allowed, "a default that is missing");
}

#[test]
fn a_literal_entry_of_a_role_comes_before_its_patterns() {
    let access = access(FILE);
    assert!(may_subscribe(&access, None, "a/+") && may_subscribe(&access, None, "$share/g/a/+"));
    for filter in ["a/b", "#", "+", "$share/g/x", "$SYS/#"] {
        assert!(!may_subscribe(&access, None, filter), "{filter}");
    }
    assert!(!may_subscribe(&access, Some("nobody"), "a/b"), "a client that is not there");
}

#[test]
fn a_pattern_covers_a_filter_if_it_matches_each_topic_of_it() {
    for (pattern, filter, covers) in [
        ("a/#", "a", true),
        ("a/#", "a/+/b", true),
        ("a/#", "a/#", true),
        ("a/#", "+/b", false),
        ("a/+", "a/+", true),
        ("a/+", "a/#", false),
        ("+", "#", false),
        ("+/#", "#", true),
        ("#", "$SYS/#", true),
        ("/#", "#", false),
        ("+/b", "a/b", true),
        ("+/b", "a/+", false),
        ("a//#", "a//", true),
        ("a/+/#", "a/#", false),
        ("%c/#", "c1/x", true),
        ("%c/#", "+/x", false),
        ("x%c", "xc1", false),
        ("x%c", "x%c", true),
    ] {
        let acl = format!(r#"{{ "acltype": "subscribePattern", "topic": "{pattern}", "allow": true }}"#);
        let role = format!(r#"{{ "rolename": "r", "acls": [{acl}] }}"#);
        let member = r#"{ "groupname": "g", "roles": [{ "rolename": "r" }] }"#;
        let text = format!(r#"{{ "roles": [{role}], "groups": [{member}], "anonymousGroup": "g" }}"#);
        assert_eq!(may_subscribe(&access(&text), None, filter), covers, "{pattern} and {filter}");
    }
    let wild = access(&FILE.replace("+/#", "%c/x"));
    let plus = Client { user: None, client_id: "+", claims: None };
    let filter = TopicFilter::new("+/x").expect("a filter");
    let decision = wild.decide_filter(plus, filter, FilterAction::Subscribe);
    assert_eq!(decision.reason, Reason::Default, "a name is no wildcard");
}

#[test]
fn a_role_of_mosquitto_2_1_may_refuse_wildcards() {
    let access =
        access(&FILE.replace(
            r#""rolename": "low", "acls""#,
            r#""rolename": "low", "allowwildcardsubs": false, "acls""#,
        ));
    assert!(!may_subscribe(&access, None, "a/+"));
    assert!(access.dynamic_security().expect("it has some").to_json().contains("allowwildcardsubs"));
}

#[test]
fn a_file_that_is_written_says_the_same() {
    let hash = PasswordHash::new(Scheme::MOSQUITTO, b"secret", b"twelve bytes").expect("a hash").to_string();
    let [_, _, rounds, salt, password] = hash.split('$').collect::<Vec<_>>()[..] else { panic!("{hash}") };
    let fields =
        format!(r#""username": "bob", "password": "{password}", "salt": "{salt}", "iterations": {rounds}"#);
    let slow = r#""username": "ann", "encoded_password": "$6$c2FsdHNhbHRzYWx0$"#;
    let slow = format!("{slow}{password}\"");
    let text = FILE.replace(r#""username": "bob", "roles""#, &format!(r#"{fields}, "roles""#));
    let text = text.replacen(r#""username": "ann""#, &slow, 1);
    let first = DynamicSecurity::parse(&text).expect("a file");
    let second = DynamicSecurity::parse(&first.to_json()).expect("its own file");
    assert_eq!(first.to_json(), second.to_json());
    let bob = second.password("bob", "any").expect("a password");
    assert!(bob.matches(b"secret") && !bob.matches(b"other"));
    assert_eq!(second.password("ann", "any").map(|hash| hash.scheme()), Some(Scheme::Sha512));
}

#[test]
fn a_file_with_a_mistake_is_refused() {
    let bad = |text: &str| DynamicSecurity::parse(text).expect_err(text);
    assert!(matches!(bad("{"), DynamicError::Json(_)));
    assert_eq!(bad(r#"{ "roles": {} }"#), DynamicError::List("roles"));
    for rounds in ["0", "-1", "1e30"] {
        let text =
            r#"{ "clients": [{ "username": "a", "password": "eA==", "salt": "eA==", "iterations": 0 }] }"#;
        let error = bad(&text.replace("\"iterations\": 0", &format!("\"iterations\": {rounds}")));
        assert!(matches!(error, DynamicError::Password { .. }), "{error}");
    }
    assert!(DynamicSecurity::parse("").expect("nobody").is_empty());
}

/// One message can ask the same long question many times.
#[test]
fn the_answers_to_one_message_are_bounded_together() {
    let clients: Vec<_> = (0..1_000)
        .map(|number| serde_json::json!({ "username": format!("{number}"), "textname": "x".repeat(1_000) }))
        .collect();
    let mut dynamic =
        DynamicSecurity::parse(&serde_json::json!({ "clients": clients }).to_string()).expect("a file");
    let question = serde_json::json!({ "command": "listClients", "verbose": true });
    let change = serde_json::json!({ "command": "createGroup", "groupname": "last" });
    let commands: Vec<_> = std::iter::repeat_n(question, 300).chain([change]).collect();
    let payload = serde_json::json!({ "commands": commands }).to_string();
    let outcome = dynamic.control(payload.as_bytes(), &mut |_| Err(auth::HashError::Length));
    assert!(
        (ANSWER_BYTES_MAX..ANSWER_BYTES_MAX * 3 / 2).contains(&outcome.answer.len()),
        "{}",
        outcome.answer.len()
    );
    let is_refused =
        |(_, reason): &&(String, Option<String>)| reason.as_ref().is_some_and(|why| why.contains("too long"));
    let refused = outcome.commands.iter().filter(is_refused).count();
    assert!((250..300).contains(&refused), "{refused}");
    assert!(outcome.is_changed, "a command that is no question is carried out");
}

/// One message can have hundreds of thousands of commands, each with an answer.
#[test]
fn the_commands_of_one_message_are_bounded() {
    let mut dynamic = DynamicSecurity::parse("{}").expect("a file");
    let create =
        |number: usize| serde_json::json!({ "command": "createGroup", "groupname": number.to_string() });
    let commands: Vec<_> = (0..COMMANDS_MAX + 50).map(create).collect();
    let payload = serde_json::json!({ "commands": commands }).to_string();
    let outcome = dynamic.control(payload.as_bytes(), &mut |_| Err(auth::HashError::Length));
    assert_eq!(outcome.commands.len(), COMMANDS_MAX + 1);
    let (last, done) = outcome.commands.split_last().expect("there are some");
    assert!(last.1.as_ref().is_some_and(|why| why.contains("Too many commands")), "{last:?}");
    assert!(done.iter().all(|(_, refusal)| refusal.is_none()));
    let refused = DynamicSecurity::refuse_control(payload.as_bytes(), "no");
    assert_eq!(refused.commands.len(), COMMANDS_MAX);
}

/// The end of a role takes it from its clients and groups, and nothing else from them.
#[test]
fn a_deleted_role_is_taken_from_its_holders_alone() {
    let mut dynamic = DynamicSecurity::parse(FILE).expect("a file");
    let mut run = |commands: serde_json::Value| {
        let payload = serde_json::json!({ "commands": commands }).to_string();
        let outcome = dynamic.control(payload.as_bytes(), &mut |_| Err(auth::HashError::Length));
        let refusals: Vec<_> = outcome.commands.into_iter().map(|(_, refusal)| refusal).collect();
        let answer: serde_json::Value = serde_json::from_str(&outcome.answer).expect("JSON");
        (refusals, answer)
    };
    let (refusals, _) = run(serde_json::json!([
        { "command": "createClient", "username": "cat", "roles": [{ "rolename": "high" }] },
        { "command": "deleteRole", "rolename": "high" },
    ]));
    assert_eq!(refusals, [None, None]);
    let questions = [
        serde_json::json!({ "command": "getClient", "username": "ann" }),
        serde_json::json!({ "command": "getGroup", "groupname": "everybody" }),
        serde_json::json!({ "command": "getGroup", "groupname": "others" }),
        serde_json::json!({ "command": "getClient", "username": "cat" }),
    ];
    let (_, answer) = run(serde_json::json!(questions));
    let roles = |at: usize, kind: &str| {
        let roles = answer["responses"][at]["data"][kind]["roles"].as_array().expect("a list").clone();
        roles.iter().map(|role| role["rolename"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(roles(0, "client"), ["low"]);
    assert_eq!(roles(1, "group"), ["low"]);
    assert_eq!([roles(2, "group"), roles(3, "client")], [const { Vec::<String>::new() }; 2]);
}

#[test]
fn a_name_has_no_characters_that_are_controls_or_reserved() {
    let mut dynamic = DynamicSecurity::parse("{}").expect("a file");
    for (name, is_good) in [
        ("frog", true),
        ("a\u{1}", false),
        ("a\u{fdd0}", false),
        ("a\u{fdef}", false),
        ("a\u{fdf0}", true),
        ("a\u{fffe}", false),
        ("a\u{1ffff}", false),
    ] {
        let create = serde_json::json!({ "command": "createGroup", "groupname": name });
        let payload = serde_json::json!({ "commands": [create] }).to_string();
        let outcome = dynamic.control(payload.as_bytes(), &mut |_| Err(auth::HashError::Length));
        assert_eq!(outcome.commands[0].1.is_none(), is_good, "{name:?}: {:?}", outcome.commands);
    }
}

#[test]
fn a_client_is_not_made_in_a_group_that_does_not_exist() {
    let mut dynamic = DynamicSecurity::parse(FILE).expect("a file");
    for (group, is_known) in [("nowhere", false), ("others", true)] {
        let create = serde_json::json!({
            "command": "createClient", "username": group, "groups": [{ "groupname": group }]
        });
        let payload = serde_json::json!({ "commands": [create] }).to_string();
        let outcome = dynamic.control(payload.as_bytes(), &mut |_| Err(auth::HashError::Length));
        assert_eq!(outcome.commands[0].1.is_none(), is_known, "{:?}", outcome.commands);
    }
}

/// Entries decide as soon as their message is carried out, whatever changed them.
#[test]
fn changed_entries_of_a_role_decide_behind_their_message() {
    let mut dynamic = DynamicSecurity::parse(
        r#"{"clients":[{"username":"ann","roles":[{"rolename":"r"}]}],"roles":[{"rolename":"r"}]}"#,
    )
    .expect("a file");
    let may = |dynamic: &DynamicSecurity, topic: &str| {
        let access = Access::new(None, None).with_dynamic_security(Arc::new(dynamic.clone()));
        let ann = Client { user: Some("ann"), client_id: "a", claims: None };
        access.allows(ann, TopicName::new(topic).expect("a topic"), Action::Publish)
    };
    let run = |dynamic: &mut DynamicSecurity, commands: serde_json::Value| {
        let payload = serde_json::json!({ "commands": commands }).to_string();
        let outcome = dynamic.control(payload.as_bytes(), &mut |_| Err(auth::HashError::Length));
        assert!(outcome.commands.iter().all(|(_, refusal)| refusal.is_none()), "{:?}", outcome.commands);
    };
    let entry = |command: &str, topic: &str| {
        serde_json::json!({
            "command": command, "rolename": "r", "acltype": "publishClientSend", "topic": topic, "allow": true
        })
    };
    assert!(!may(&dynamic, "pond") && !may(&dynamic, "lake"));
    run(&mut dynamic, serde_json::json!([entry("addRoleACL", "pond"), entry("addRoleACL", "lake")]));
    assert!(may(&dynamic, "pond") && may(&dynamic, "lake"));
    run(&mut dynamic, serde_json::json!([entry("removeRoleACL", "pond")]));
    assert!(!may(&dynamic, "pond") && may(&dynamic, "lake"));
    // A change of other parts copies the role.
    let before = dynamic.clone();
    run(&mut dynamic, serde_json::json!([{ "command": "modifyRole", "rolename": "r", "textname": "R" }]));
    assert!(may(&dynamic, "lake") && may(&before, "lake"));
    let acls = serde_json::json!([{ "acltype": "publishClientSend", "topic": "sea", "allow": true }]);
    run(&mut dynamic, serde_json::json!([{ "command": "modifyRole", "rolename": "r", "acls": acls }]));
    assert!(may(&dynamic, "sea") && !may(&dynamic, "lake") && may(&before, "lake"));
}
