//! Names that clients choose: none of them opens a topic that begins with `$`, wherever the rule stands.

use std::sync::Arc;

use auth::{
    Access, Action, Client, DynamicSecurity, FilterAction, Holder, Permissions, Permit, RolesBuilder,
    RuleKind,
};
use base::{ClaimLevels, ClaimRule, Claims, Uses};
use topic::{TopicFilter, TopicName};
use wire::Qos;

const KINDS: [RuleKind; 3] = [RuleKind::Publish, RuleKind::Subscribe, RuleKind::Receive];

fn in_roles(filter: &str) -> Access {
    let mut builder = RolesBuilder::default();
    let role = builder.role("role");
    for kind in KINDS {
        builder.rule(role, kind, filter, Some(Permit::ALL), 1).expect("a filter");
    }
    builder.give(Holder::EveryUser, role);
    Access::default().with_roles(builder.build().expect("few rules"))
}

fn in_list(filter: &str) -> Access {
    let list = format!("pattern readwrite {filter}\n");
    Access::new(None, Some(Permissions::of_mosquitto(&list).expect("a list")))
}

/// Dynamic security with one role, which clients of these names have.
fn in_dynamic_security(filter: &str, users: &[&str]) -> Access {
    let kinds = ["publishClientSend", "publishClientReceive", "subscribePattern", "unsubscribePattern"];
    let acl = |kind| serde_json::json!({ "acltype": kind, "topic": filter, "allow": true });
    let user = |name| serde_json::json!({ "username": name, "roles": [{ "rolename": "role" }] });
    let text = serde_json::json!({
        "roles": [{ "rolename": "role", "acls": kinds.map(acl) }],
        "clients": users.iter().map(user).collect::<Vec<_>>(),
    });
    let dynamic = DynamicSecurity::parse(&text.to_string()).expect("a file");
    Access::default().with_dynamic_security(Arc::new(dynamic))
}

fn in_token(filter: &str) -> Claims {
    let allows = Some(ClaimLevels { qos_max: Qos::ExactlyOnce, retain: true });
    let uses = Uses::PUBLISH.and(Uses::RECEIVE).and(Uses::SUBSCRIBE);
    let rule = ClaimRule { filter: filter.into(), uses, allows };
    Claims::new(Vec::new(), Some(vec![rule])).expect("few rules")
}

/// Whether a client may publish to a topic, receive it, and subscribe to it, alone and in a group.
fn may(access: &Access, client: Client<'_>, topic: &str) -> [bool; 4] {
    let name = TopicName::new(topic).expect("a topic");
    let subscribe = |filter: &str| {
        let filter = TopicFilter::new(filter).expect("a filter");
        assert_eq!(
            access.granted(client, filter).is_some(),
            access.decide_filter(client, filter, FilterAction::Subscribe).is_allowed
        );
        access.granted(client, filter).is_some()
    };
    [
        access.permit(client, name) != Permit::NONE,
        access.allows(client, name, Action::Receive),
        subscribe(topic),
        subscribe(&format!("$share/g/{topic}")),
    ]
}

const NAMES: [&str; 8] = ["$CONTROL", "$SYS", "$", "$share", "CONTROL", "SYS", "ann", "$a"];

#[test]
fn no_name_opens_a_topic_that_begins_with_a_dollar_sign() {
    let filters = ["%u/#", "%c/#", "%u/+/v1", "%u", "%c%u/#", "%cSYS/#", "$%u/#", "%u/%c/#"];
    let topics = ["$CONTROL/dynamic-security/v1", "$SYS/broker/uptime", "$a", "$SYS", "$CONTROL/$CONTROL/v1"];
    for filter in filters {
        let dynamic = in_dynamic_security(filter, &NAMES);
        let token = in_token(filter);
        for (user, client_id) in NAMES.into_iter().flat_map(|user| NAMES.map(|client_id| (user, client_id))) {
            for (access, claims) in [
                (&in_roles(filter), None),
                (&in_list(filter), None),
                (&dynamic, None),
                (&Access::default(), Some(&token)),
            ] {
                let client = Client { user: Some(user), client_id, claims };
                for topic in topics {
                    let [publish, receive, subscribe, shared] = may(access, client, topic);
                    assert!(!publish && !receive, "{filter} {client:?} {topic}");
                    // A list of Mosquitto has no rules about subscriptions.
                    let is_open = access.has_rules() && !access.has_filter_rules();
                    assert_eq!([subscribe, shared], [is_open; 2], "{filter} {client:?} {topic}");
                }
            }
        }
    }
}

/// Behind the first level, a name is text like others.
#[test]
fn a_name_behind_the_first_level_may_begin_with_a_dollar_sign() {
    let (filter, topic) = ("of/%u/%c", "of/$CONTROL/$a");
    let token = in_token(filter);
    for (access, claims) in [
        (in_roles(filter), None),
        (in_list(filter), None),
        (in_dynamic_security(filter, &["$CONTROL"]), None),
        (Access::default(), Some(&token)),
    ] {
        let client = Client { user: Some("$CONTROL"), client_id: "$a", claims };
        assert_eq!(may(&access, client, topic), [true; 4]);
        let own = Client { user: Some("$CONTROL"), client_id: "$b", claims };
        assert!(!may(&access, own, topic)[0]);
    }
}
