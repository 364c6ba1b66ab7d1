//! Rights that a token gives: the roles of groups, and rules, with those of files.

use std::sync::Arc;

use auth::{
    Access, Action, Client, DynamicSecurity, FilterAction, Holder, Limits, Permissions, Permit, QueueLimits,
    Reason, Roles, RolesBuilder, RuleKind,
};
use base::{ClaimLevels, ClaimRule, Claims, Uses};
use proptest::prelude::*;
use proptest::sample::select;
use topic::{TopicFilter, TopicName};
use wire::Qos;

const KINDS: [(RuleKind, Uses); 3] = [
    (RuleKind::Publish, Uses::PUBLISH),
    (RuleKind::Subscribe, Uses::SUBSCRIBE),
    (RuleKind::Receive, Uses::RECEIVE),
];

/// A rule, as a file and a token may have it.
#[derive(Debug, Clone)]
struct Rule {
    kind: usize,
    filter: String,
    allows: Option<(Qos, bool)>,
}

fn rule() -> impl Strategy<Value = Rule> {
    let level = select(&["a", "b", "+", "%u", "%c", "x%c", "%u%c", "$%c", "$a", ""][..]);
    let filter = (prop::collection::vec(level, 1..4), any::<bool>()).prop_map(|(levels, is_open)| {
        let filter = levels.join("/");
        if is_open { format!("{filter}/#") } else { filter }
    });
    let filter =
        prop_oneof![9 => filter, 1 => Just("#".to_owned())].prop_filter("not empty", |text| !text.is_empty());
    let qos = prop_oneof![Just(Qos::AtMostOnce), Just(Qos::AtLeastOnce), Just(Qos::ExactlyOnce)];
    let allows = prop::option::weighted(0.8, (qos, any::<bool>()));
    (0..3_usize, filter, allows).prop_map(|(kind, filter, allows)| Rule { kind, filter, allows })
}

/// The rules in a file, for everybody with a name.
fn in_file(rules: &[Rule]) -> Roles {
    let mut builder = RolesBuilder::default();
    let role = builder.role("all");
    for Rule { kind, filter, allows } in rules {
        let kind = KINDS[*kind].0;
        let permit = allows.map(|(qos_max, retain)| match kind {
            RuleKind::Publish => Permit::up_to(qos_max, retain),
            RuleKind::Subscribe => Permit::up_to(qos_max, true),
            RuleKind::Receive => Permit::ALL,
        });
        builder.rule(role, kind, filter, permit, 1).expect("a filter");
    }
    builder.give(Holder::EveryUser, role);
    builder.build().expect("few rules")
}

fn in_token(rules: &[Rule]) -> Claims {
    let rules = rules.iter().map(|Rule { kind, filter, allows }| ClaimRule {
        filter: filter.as_str().into(),
        uses: KINDS[*kind].1,
        allows: allows.map(|(qos_max, retain)| ClaimLevels { qos_max, retain }),
    });
    Claims::new(Vec::new(), Some(rules.collect())).expect("few rules")
}

fn client<'a>(user: &'a str, claims: Option<&'a Claims>) -> Client<'a> {
    Client { user: Some(user), client_id: "c", claims }
}

/// Names that clients choose.
fn client_name() -> impl Strategy<Value = &'static str> {
    select(&["u", "c", "a", "$a", "$CONTROL", "+", "#", "", "a/b"][..])
}

/// All answers about a client: a permit, whether it receives, and the QoS of a subscription.
fn answers(access: &Access, client: Client<'_>, topic: &str, filter: &str) -> (Permit, bool, Option<Qos>) {
    let (topic, filter) =
        (TopicName::new(topic).expect("a topic"), TopicFilter::new(filter).expect("a filter"));
    let all = (
        access.permit(client, topic),
        access.allows(client, topic, Action::Receive),
        access.granted(client, filter),
    );
    // The reasons agree with the answers.
    for qos in [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce] {
        for retain in [false, true] {
            let decision = access.decide_publish(client, topic, (qos, retain));
            assert_eq!(decision.is_allowed, all.0.allows(qos, retain), "{decision:?}");
        }
    }
    assert_eq!(access.decide(client, topic, Action::Receive).is_allowed, all.1);
    assert_eq!(access.decide_filter(client, filter, FilterAction::Subscribe).is_allowed, all.2.is_some());
    all
}

proptest! {
    /// A token has the same meaning as a file with the same rules, and so have both with a part of the rules each.
    #[test]
    fn rules_mean_the_same_wherever_they_stand(
        rules in prop::collection::vec(rule(), 0..6),
        split in 0..6_usize,
        (user, client_id) in (client_name(), client_name()),
        topic in "(a|b|u|c|xc|\\$a|\\$c|\\$CONTROL)(/(a|b|u|c|xc|\\$a|)){0,2}",
        filter in "(a|b|u|c|xc|\\$a|\\$c|\\$CONTROL|\\+)(/(a|b|\\+|u|c|xc|\\$a|)){0,2}(/#)?|#",
        is_shared in any::<bool>(),
    ) {
        let client = |claims| Client { user: Some(user), client_id, claims };
        let filter = if is_shared { format!("$share/g/{filter}") } else { filter };
        let split = split.min(rules.len());
        let whole = Access::default().with_roles(in_file(&rules));
        let expected = answers(&whole, client(None), &topic, &filter);
        let alone = in_token(&rules);
        prop_assert_eq!(answers(&Access::default(), client(Some(&alone)), &topic, &filter), expected);
        let (file, token) = rules.split_at(split);
        let (file, token) = (Access::default().with_roles(in_file(file)), in_token(token));
        prop_assert_eq!(answers(&file, client(Some(&token)), &topic, &filter), expected);
        let filter = TopicFilter::new(&filter).expect("a filter");
        let end = file.decide_filter(client(Some(&token)), filter, FilterAction::Unsubscribe);
        prop_assert!(end.is_allowed, "everybody may end subscriptions");
    }
}

/// A client may call itself as a wildcard is written. Its name stands for that one level.
#[test]
fn the_name_of_a_client_never_covers_a_wildcard() {
    let claims = in_token(&[Rule { kind: 1, filter: "a/%c".into(), allows: Some((Qos::ExactlyOnce, true)) }]);
    let may = |client_id: &str, filter: &str| {
        let client = Client { user: Some("u"), client_id, claims: Some(&claims) };
        let filter = TopicFilter::new(filter).expect("a filter");
        Access::default().decide_filter(client, filter, FilterAction::Subscribe).is_allowed
    };
    assert!(may("c", "a/c"));
    assert_eq!(["a/+", "a/#"].map(|filter| may("+", filter) || may("#", filter)), [false; 2]);
}

fn groups(names: &[&str]) -> Claims {
    Claims::new(names.iter().map(|name| (*name).into()).collect(), None).expect("a few groups")
}

#[test]
fn the_groups_of_a_token_add_their_roles() {
    let mut builder = RolesBuilder::default();
    let (writer, muted) = (builder.role("writer"), builder.role("muted"));
    builder.rule(writer, RuleKind::Publish, "w/#", Some(Permit::ALL), 1).expect("a filter");
    builder.rule(muted, RuleKind::Publish, "w/no", None, 2).expect("a filter");
    builder.give(Holder::Group("writers"), writer);
    builder.give(Holder::Group("muted"), muted);
    let access = Access::default().with_roles(builder.build().expect("few rules"));
    let may = |claims: &Claims, topic: &str| {
        access.allows(client("u", Some(claims)), TopicName::new(topic).expect("a topic"), Action::Publish)
    };
    assert!(!may(&groups(&["other", "muted"]), "w/a"));
    let both = groups(&["writers", "muted"]);
    assert!(may(&groups(&["writers"]), "w/no") && may(&both, "w/a") && !may(&both, "w/no"));
    let decision = access.decide(client("u", Some(&both)), topic::topic!("w/a"), Action::Publish);
    assert!(
        matches!(decision.reason, Reason::Role(rule) if rule.held == auth::Held::Group("writers")),
        "{decision:?}"
    );
}

#[test]
fn the_bounds_of_queues_are_those_of_all_roles() {
    let mut builder = RolesBuilder::default();
    for (name, messages, bytes) in
        [("own", Some(3), None), ("large", Some(5), Some(7)), ("small", Some(2), Some(9))]
    {
        let role = builder.role(name);
        builder.limit(
            role,
            Limits { queue: QueueLimits { messages_max: messages, bytes_max: bytes }, ..Limits::default() },
        );
        builder.give(if name == "own" { Holder::User("ann") } else { Holder::Group(name) }, role);
    }
    let access = Access::default().with_roles(builder.build().expect("few rules"));
    for (user, names, expected) in [
        ("ann", &[][..], (Some(3), None)),
        ("bob", &[], (None, None)),
        ("ann", &["none", "small"], (Some(3), Some(9))),
        ("ann", &["large", "small"], (Some(5), Some(9))),
        ("bob", &["large"], (Some(5), Some(7))),
    ] {
        let claims = (!names.is_empty()).then(|| groups(names));
        let client = client(user, claims.as_ref());
        let QueueLimits { messages_max, bytes_max } = access.queue_limits(client);
        assert_eq!((messages_max, bytes_max), expected, "{user} {names:?}");
        assert_eq!(access.limits(client).expect("roles").queue, access.queue_limits(client));
    }
}

#[test]
fn a_list_of_mosquitto_and_a_token_count_together() {
    let list = "user u\ntopic readwrite a\ntopic deny no\n";
    let access = Access::new(None, Some(Permissions::of_mosquitto(list).expect("a list")));
    let rule =
        |filter: &str, allows: Option<(Qos, bool)>| Rule { kind: 0, filter: filter.to_owned(), allows };
    let all = Some((Qos::ExactlyOnce, true));
    let claims = in_token(&[rule("b", all), rule("no", all), rule("c", None), rule("c", all)]);
    let may = |topic: &str| answers(&access, client("u", Some(&claims)), topic, "x").0 == Permit::ALL;
    assert_eq!(["a", "b", "no", "c", "d"].map(may), [true, true, false, false, false]);
    assert_eq!(
        access.granted(client("u", Some(&claims)), TopicFilter::new("x").expect("a filter")),
        Some(Qos::ExactlyOnce)
    );
}

#[test]
fn dynamic_security_decides_before_a_token() {
    let text = r#"{"defaultACLAccess":{"publishClientSend":false},"clients":[{"username":"u","roles":[{"rolename":"r"}]}],
        "roles":[{"rolename":"r","acls":[{"acltype":"publishClientSend","topic":"no","priority":1,"allow":false}]}]}"#;
    let dynamic = Arc::new(DynamicSecurity::parse(text).expect("a file"));
    let access = Access::default().with_dynamic_security(dynamic);
    let all = Some((Qos::ExactlyOnce, true));
    let claims = in_token(&[Rule { kind: 0, filter: "#".to_owned(), allows: all }]);
    let may = |topic: &str| answers(&access, client("u", Some(&claims)), topic, "x").0 == Permit::ALL;
    assert_eq!(["no", "other"].map(may), [false, true]);
}

/// Dynamic security knows nobody of this name: without a default, everything else would be refused.
#[test]
fn a_client_with_a_token_may_end_subscriptions_unless_dynamic_security_refuses_it() {
    let text = r#"{"clients":[{"username":"u","roles":[{"rolename":"r"}]}],
        "roles":[{"rolename":"r","acls":[{"acltype":"unsubscribePattern","topic":"kept/#","allow":false}]}]}"#;
    let dynamic = Arc::new(DynamicSecurity::parse(text).expect("a file"));
    let access = Access::default().with_dynamic_security(dynamic);
    let claims = in_token(&[]);
    let end = |user, claims, filter| {
        let filter = TopicFilter::new(filter).expect("a filter");
        access.decide_filter(client(user, claims), filter, FilterAction::Unsubscribe).is_allowed
    };
    assert!(end("stranger", Some(&claims), "kept/a") && end("u", Some(&claims), "a"));
    assert!(!end("u", Some(&claims), "kept/a"));
    assert!(!end("stranger", None, "a") && !end("u", None, "a"), "as in Mosquitto");
}
