//! Rights of tokens beside other rules, and after a restart with other ones.

use super::*;
use crate::dynamic::Secured;

/// The code in UNSUBACK.
fn unsubscribe(client: &mut Client, filter: &str) -> u8 {
    client.send(&packet::packet(0xA2, &[&[0, 4, 0][..], &packet::string(filter)].concat()));
    let answer = client.read_packet();
    assert_eq!(answer[0], 0xB0, "{answer:02x?}");
    *answer.last().expect("a code")
}

#[test]
fn beside_dynamic_security_a_token_has_its_rules_and_may_end_subscriptions() {
    let (place, secured) = (Place::new(""), Secured::new());
    let broker = place.start(&secured.keys());
    let mut frog = client(&broker, "f", &place.token("frog", r#""acl":{"sub":["s/#"]}"#));
    assert_eq!((subscribe(&mut frog, "s/+", 1), subscribe(&mut frog, "t", 1)), (1, 0x87));
    assert_eq!((unsubscribe(&mut frog, "s/+"), unsubscribe(&mut frog, "s/+")), (0, 0x11));
    let mut bare = client(&broker, "bare", &place.token("toad", ""));
    assert!(!may(&mut bare, "s/a") && subscribe(&mut bare, "s/+", 0) == 0x87, "a token without rules");
    assert_eq!(unsubscribe(&mut bare, "s/+"), 0x11);
}

/// The keys of a configuration in which tokens give no rights.
const WITHOUT: &str = "";

#[test]
fn a_session_keeps_the_rules_of_its_token_after_a_restart_without_the_key() {
    let place = Place::new("");
    let token = place.token("frog", r#""acl":{"subscribe":["s/#"],"receive":["s/yes"]}"#);
    let connect = Connect { password: Some(token.as_bytes()), ..lasting(Version::V5, "f") };
    let broker = place.start("");
    let mut frog = broker.client_with(&connect);
    assert_eq!(subscribe(&mut frog, "s/#", 1), 1);
    frog.leave();
    drop(broker);
    let broker = place.start_with("", WITHOUT);
    // Nobody has rules, apart from the session.
    let mut free = client(&broker, "free", &place.token("toad", ""));
    for topic in ["s/no", "s/yes"] {
        assert!(may(&mut free, topic));
    }
    let (mut frog, connack) = broker.greet(&connect);
    assert!(session_present(&connack));
    assert_eq!(take(&mut frog), "s/yes");
    assert!(may(&mut free, "s/no"));
    assert_eq!(take(&mut frog), "s/no", "its new token has no rules");
}

#[test]
fn a_will_keeps_the_rules_of_its_token_after_a_restart_without_the_key() {
    a_will_is_published_by_its_token(WITHOUT);
}
