//! Topic prefixes that come from the groups of a token.

use super::*;

/// Two groups with a prefix each, and one without.
const PREFIXES: &str = "\
[roles.a]
topic_prefix = \"a/\"
publish = [\"#\"]
subscribe = [\"#\"]
[roles.b]
topic_prefix = \"b/\"
[roles.plain]
publish = [\"#\"]
subscribe = [\"#\"]
[groups.a]
roles = [\"a\"]
[groups.b]
roles = [\"b\"]
[groups.plain]
roles = [\"plain\"]
";

#[test]
fn groups_of_a_token_with_different_prefixes_are_refused() {
    let place = Place::new(PREFIXES);
    let broker = place.with_roles();
    let token = |groups: &str| place.token("frog", &format!("\"groups\":[{groups}]"));
    for groups in [r#""a""#, r#""b""#, r#""plain","a""#, r#""a","a""#, ""] {
        client(&broker, "f", &token(groups)).leave();
    }
    for groups in [r#""a","b""#, r#""b","plain","a""#] {
        let token = token(groups);
        let connect = Connect { password: Some(token.as_bytes()), ..Connect::new(Version::V5, "f") };
        assert_eq!(refusal(&broker, &connect), 0x87, "{groups}");
    }
    let why = "the groups of its token bring together roles with different topic prefixes";
    until(why, || (broker.log_lines(why).len() == 2).then_some(()));
}

#[test]
fn a_session_behind_the_prefix_of_a_group_is_resumed_with_the_group_only() {
    let place = Place::new(PREFIXES);
    let token = |groups: &str| place.token("frog", &format!("\"groups\":[{groups}]"));
    let (with, without, other) = (token(r#""plain","a""#), token(r#""plain""#), token(r#""b""#));
    let connect = |token| Connect { password: Some(str::as_bytes(token)), ..lasting(Version::V5, "f") };
    let broker = place.with_roles();
    let mut frog = broker.client_with(&connect(&with));
    assert_eq!(subscribe(&mut frog, "#", 1), 1);
    frog.leave();
    drop(broker);
    let broker = place.with_roles();
    for token in [&without, &other] {
        assert_eq!(refusal(&broker, &connect(token)), 0x87);
    }
    let mut plain = client(&broker, "plain", &without);
    assert!(may(&mut plain, "other/x") && may(&mut plain, "a/x"));
    let (mut frog, connack) = broker.greet(&connect(&with));
    assert!(session_present(&connack));
    assert_eq!(take(&mut frog), "x");
}
