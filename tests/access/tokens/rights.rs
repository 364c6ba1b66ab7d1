//! Claims of a token that give rights: groups, and rules about topics.

use std::path::PathBuf;

use pondhawk_tests::conversation::{lasting, session_present};
use pondhawk_tests::packet::Will;

use super::*;
use crate::take;

mod prefixes;
mod seams;

/// Every user may publish below `own`. Writers may use `w`, and those who are muted not all of it.
const ROLES: &str = "\
[roles.base]
publish = [\"own/%u/#\"]
[roles.writer]
publish = [\"w/#\"]
subscribe = [\"w/#\"]
[roles.muted]
deny = { publish = [\"w/secret/#\"], subscribe = [\"w/secret/#\"] }
[roles.named]
client_ids = [\"%u-*\"]
[every_user]
roles = [\"base\"]
[groups.writers]
roles = [\"writer\"]
[groups.muted]
roles = [\"muted\"]
[groups.named]
roles = [\"named\"]
";

/// Keys about tokens that give rights.
const CLAIMS: &str = "groups_claim = \"groups\"\nrules_claim = \"acl\"\n";

/// A signer, and brokers that take rights from its tokens.
struct Place {
    signer: Signer,
    data: TempDir,
}

impl Place {
    fn new(roles: &str) -> Self {
        let signer = Signer { directory: TempDir::new().expect("there is a place for temporary files") };
        signer.write("secret", &format!("{SECRET}\n"));
        signer.write("roles.toml", roles);
        Self { signer, data: TempDir::new().expect("there is a place for temporary files") }
    }

    fn start(&self, auth: &str) -> Broker {
        self.start_with(auth, CLAIMS)
    }

    /// The same with these keys about tokens.
    fn start_with(&self, auth: &str, keys: &str) -> Broker {
        let settings = format!("{auth}[jwt]\nkey_file = {:?}\n{keys}", self.signer.path("secret"));
        let data_dir: Option<PathBuf> = Some(self.data.path().to_owned());
        Broker::start(&Options { shards: 2, settings, data_dir, ..Options::default() })
    }

    fn with_roles(&self) -> Broker {
        self.start(&format!("[auth]\nrules_file = {:?}\n", self.signer.path("roles.toml")))
    }

    /// A token of somebody who may use all topics.
    fn free(&self) -> String {
        self.token("toad", r##""acl":{"all":["#"]}"##)
    }

    /// A token with these members behind the user and the expiry.
    fn token(&self, user: &str, more: &str) -> String {
        let comma = if more.is_empty() { "" } else { "," };
        let claims = format!(r#"{{"sub":"{user}","exp":{}{comma}{more}}}"#, now() + 600);
        self.signer.sign("HS256", &claims)
    }
}

fn client(broker: &Broker, client_id: &str, token: &str) -> Client {
    let connect = Connect { password: Some(token.as_bytes()), ..Connect::new(Version::V5, client_id) };
    broker.client_with(&connect)
}

fn may(client: &mut Client, topic: &str) -> bool {
    let code = publish(client, topic, b"x");
    assert!(matches!(code, 0 | 0x10 | 0x87), "{code:#x}");
    code != 0x87
}

/// The code in SUBACK.
fn subscribe(client: &mut Client, filter: &str, qos: u8) -> u8 {
    client.send(&packet::subscribe_with(Version::V5, 1, filter, qos));
    let answer = client.read_packet();
    assert_eq!(answer[0], 0x90, "{answer:02x?}");
    *answer.last().expect("a code")
}

#[test]
fn the_roles_of_groups_in_a_token_count_with_those_of_its_user() {
    let place = Place::new(ROLES);
    let broker = place.with_roles();
    for (groups, may_write, may_tell) in [
        ("", false, false),
        (r#""groups":[]"#, false, false),
        (r#""groups":["unknown"]"#, false, false),
        (r#""groups":["unknown","writers"]"#, true, true),
        (r#""groups":"writers""#, true, true),
        (r#""groups":"muted  writers""#, true, false),
        (r#""groups":["writers","muted","writers"]"#, true, false),
    ] {
        let mut frog = client(&broker, "f", &place.token("frog", groups));
        assert!(may(&mut frog, "own/frog/a"), "{groups}: the role of every user");
        assert_eq!(may(&mut frog, "w/a"), may_write, "{groups}");
        assert_eq!(may(&mut frog, "w/secret/a"), may_tell, "{groups}");
        assert_eq!(subscribe(&mut frog, "w/#", 1), if may_write { 1 } else { 0x87 }, "{groups}");
    }
    // The limits of the roles count too.
    let token = place.token("frog", r#""groups":["named"]"#);
    let connect =
        |client_id| Connect { password: Some(token.as_bytes()), ..Connect::new(Version::V5, client_id) };
    assert_eq!(refusal(&broker, &connect("f")), 0x85);
    broker.client_with(&connect("frog-1")).leave();
}

#[test]
fn without_files_the_rules_of_a_token_decide_alone() {
    let place = Place::new("");
    let broker = place.start("");
    let acl = r#""acl":{"publish":["p/%u","q/%c"],"subscribe":["s/#"],"deny":{"subscribe":["s/x"]},"max_qos":1,"retain":false}"#;
    let mut frog = client(&broker, "f1", &place.token("frog", acl));
    for (topic, allowed) in
        [("p/frog", true), ("q/f1", true), ("p/toad", false), ("q/f2", false), ("s/a", false)]
    {
        assert_eq!(may(&mut frog, topic), allowed, "{topic}");
    }
    for (filter, code) in [("s/+", 1), ("s/#", 1), ("#", 0x87), ("p/frog", 0x87), ("s/x", 0x87)] {
        assert_eq!(subscribe(&mut frog, filter, 2), code, "{filter}");
    }
    frog.leave();
    let mut bare = client(&broker, "bare", &place.token("toad", ""));
    assert!(!may(&mut bare, "anything"), "a token without rules");
    for filter in ["#", "a", "$SYS/#"] {
        assert_eq!(subscribe(&mut bare, filter, 0), 0x87, "{filter}");
    }
    bare.leave();
    let acl = r#""acl":{"pub":["p/${username}"],"sub":["s/+"],"all":["both/${clientid}/#"]}"#;
    let mut emqx = client(&broker, "e1", &place.token("frog", acl));
    for (topic, allowed) in [("p/frog", true), ("both/e1/a", true), ("both/e2/a", false), ("s/a", false)] {
        assert_eq!(may(&mut emqx, topic), allowed, "{topic}");
    }
    for (filter, code) in [("s/+", 2), ("both/e1/#", 2), ("both/#", 0x87), ("p/frog", 0x87)] {
        assert_eq!(subscribe(&mut emqx, filter, 2), code, "{filter}");
    }
}

/// Live and retained messages, to a subscription that is wider than the rights to receive.
#[test]
fn a_client_receives_the_messages_that_its_token_allows() {
    let place = Place::new("");
    let broker = place.start("");
    let mut free = client(&broker, "free", &place.free());
    for topic in ["s/kept", "s/x/kept"] {
        free.retain(topic, b"kept");
    }
    assert!(may(&mut free, "s/mark"), "the retained messages are stored");
    let acl = r#""acl":{"subscribe":["s/#"],"receive":["s/+"],"deny":{"receive":["s/no"]}}"#;
    let mut frog = client(&broker, "f1", &place.token("frog", acl));
    assert_eq!(subscribe(&mut frog, "s/#", 0), 0);
    frog.expect_retained("s/kept", b"kept");
    for topic in ["s/no", "s/x/a", "s/yes"] {
        publish(&mut free, topic, b"x");
    }
    frog.expect_message("s/yes", b"x");
}

#[test]
fn rules_of_a_token_and_of_a_file_count_together() {
    let place = Place::new(ROLES);
    let broker = place.with_roles();
    let more = r#""groups":["muted"],"acl":{"publish":["w/#"],"deny":{"publish":["own/frog/no"]}}"#;
    let mut frog = client(&broker, "f", &place.token("frog", more));
    for (topic, allowed) in
        [("own/frog/a", true), ("own/frog/no", false), ("w/a", true), ("w/secret/a", false), ("other", false)]
    {
        assert_eq!(may(&mut frog, topic), allowed, "{topic}");
    }
}

#[test]
fn another_token_changes_the_rights_at_once() {
    let place = Place::new("");
    let broker = place.start("");
    let token = |topic: &str| {
        place.token("frog", &format!(r#""acl":{{"publish":["{topic}"],"subscribe":["{topic}"]}}"#))
    };
    let mut free = client(&broker, "free", &place.free());
    let connect =
        |token: &'static str| Connect { password: Some(token.as_bytes()), ..lasting(Version::V5, "f") };
    let leak = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
    let mut first = broker.client_with(&connect(leak(token("a"))));
    assert!(may(&mut first, "a") && !may(&mut first, "b"));
    assert_eq!(subscribe(&mut first, "a", 1), 1);
    assert!(may(&mut free, "a"));
    assert_eq!(take(&mut first), "a");
    // The second connection takes over the first.
    let (mut second, connack) = broker.greet(&connect(leak(token("b"))));
    assert!(session_present(&connack));
    assert!(may(&mut second, "b") && !may(&mut second, "a"));
    assert_eq!(subscribe(&mut second, "b", 1), 1);
    for topic in ["a", "b"] {
        assert!(may(&mut free, topic));
    }
    assert_eq!(take(&mut second), "b", "the subscription to `a` stays, and its messages do not come");
}

#[test]
fn a_session_keeps_the_rights_of_its_token_over_a_restart() {
    let place = Place::new("");
    let acl = r#""acl":{"subscribe":["s/#"],"receive":["s/yes"]}"#;
    let token = place.token("frog", acl);
    let connect = Connect { password: Some(token.as_bytes()), ..lasting(Version::V5, "f") };
    let broker = place.start("");
    let mut frog = broker.client_with(&connect);
    assert_eq!(subscribe(&mut frog, "s/#", 1), 1);
    frog.leave();
    // The record is copied when the journal is compacted, and read twice here.
    drop(broker);
    drop(place.start(""));
    let broker = place.start("");
    let mut free = client(&broker, "free", &place.free());
    for topic in ["s/no", "s/yes"] {
        publish(&mut free, topic, b"x");
    }
    let (mut frog, connack) = broker.greet(&connect);
    assert!(session_present(&connack));
    assert_eq!(take(&mut frog), "s/yes");
    // It was not there when the message came.
    frog.leave();
    let all = place.token("frog", r#""acl":{"subscribe":["s/#"]}"#);
    let (mut frog, _) = broker.greet(&Connect { password: Some(all.as_bytes()), ..connect });
    assert!(may(&mut free, "s/no"));
    assert_eq!(take(&mut frog), "s/no");
}

#[test]
fn a_will_is_published_by_the_rights_of_its_token_after_a_restart() {
    a_will_is_published_by_its_token(CLAIMS);
}

/// Wills that come after a restart with these keys about tokens.
fn a_will_is_published_by_its_token(after: &str) {
    let place = Place::new("");
    let broker = place.start("");
    for (client_id, topic) in [("f1", "will/yes"), ("f2", "will/no")] {
        let token = place.token("frog", r#""acl":{"publish":["will/yes"]}"#);
        let will = Will { retain: true, qos: 1, ..Will::new(topic, b"gone") };
        let connect =
            Connect { password: Some(token.as_bytes()), will: Some(will), ..lasting(Version::V5, client_id) };
        // The connection is there when the broker is killed.
        std::mem::forget(broker.client_with(&connect));
    }
    drop(broker);
    let broker = place.start_with("", after);
    let mut free = client(&broker, "free", &place.free());
    // The will is published before or after this, so it comes as a retained message or as a new one.
    free.subscribe("will/#");
    let packet = free.read_packet();
    assert_eq!((packet[0] & 0xF0, &packet[4..12]), (0x30, &b"will/yes"[..]), "{packet:02x?}");
    free.publish("will/end", b"");
    free.expect_message("will/end", b"");
}

#[test]
fn a_token_with_malformed_rights_lets_nobody_in() {
    let place = Place::new(ROLES);
    let broker = place.with_roles();
    let many = |count: usize| (0..count).map(|number| format!("\"{number}\"")).collect::<Vec<_>>().join(",");
    let long = "x".repeat(4_097);
    for (more, is_in) in [
        (format!(r#""groups":[{}]"#, many(32)), true),
        (format!(r#""groups":[{}]"#, many(33)), false),
        (r#""groups":{"a":1}"#.to_owned(), false),
        (r#""groups":[1]"#.to_owned(), false),
        (r#""groups":null"#.to_owned(), false),
        (r#""groups":[""]"#.to_owned(), false),
        (format!(r#""groups":["{long}"]"#), false),
        (format!(r#""acl":{{"publish":[{}]}}"#, many(64)), true),
        (format!(r#""acl":{{"publish":[{}]}}"#, many(65)), false),
        (format!(r#""acl":{{"publish":[{}],"deny":{{"receive":["a"]}}}}"#, many(64)), false),
        (format!(r#""acl":{{"publish":["{long}"]}}"#), false),
        (r#""acl":{}"#.to_owned(), true),
        (r#""acl":null"#.to_owned(), false),
        (r#""acl":[]"#.to_owned(), false),
        (r#""acl":{"publsh":[]}"#.to_owned(), false),
        (r#""acl":{"publish":"a"}"#.to_owned(), false),
        (r#""acl":{"publish":["a/#/b"]}"#.to_owned(), false),
        (r#""acl":{"subscribe":["$share/g/a"]}"#.to_owned(), false),
        (r#""acl":{"pub":["a"],"publish":["a"]}"#.to_owned(), false),
        (r#""acl":{"pub":["${host}"]}"#.to_owned(), false),
        (r#""acl":{"deny":{"all":["a"]}}"#.to_owned(), false),
        (r#""acl":{"max_qos":3}"#.to_owned(), false),
        (r#""acl":{"retain":1}"#.to_owned(), false),
    ] {
        let token = place.token("frog", &more);
        let connect = Connect { password: Some(token.as_bytes()), ..Connect::new(Version::V5, "f") };
        if is_in {
            broker.client_with(&connect).leave();
        } else {
            assert_eq!(refusal(&broker, &connect), 0x86, "{more:.100}");
        }
    }
    let why = "the groups in its token are no names, or too many";
    until(why, || (broker.log_lines(why).len() >= 6).then_some(()));
    let why = "the rules in its token are malformed, or too many";
    until(why, || (broker.log_lines(why).len() >= 13).then_some(()));
}

/// Clients whose rights come from other claims have to log in again.
#[test]
fn a_reload_of_the_claims_ends_the_connections() {
    let place = Place::new(ROLES);
    let file = place.signer.path("pondhawk.toml");
    let text = |keys: &str| {
        let (secret, roles) = (place.signer.path("secret"), place.signer.path("roles.toml"));
        format!(
            "[auth]\nrules_file = {roles:?}\n[[listener]]\naddress = \"127.0.0.1:0\"\n[jwt]\nkey_file = {secret:?}\n{keys}"
        )
    };
    fs::write(&file, text("groups_claim = \"groups\"\n")).expect("it can be written");
    let broker = Broker::start(&Options { shards: 2, file: Some(file.clone()), ..Options::default() });
    let token = place.token("frog", r#""groups":"writers","roles":"muted""#);
    let mut frog = client(&broker, "f", &token);
    assert!(may(&mut frog, "w/a"));
    fs::write(&file, text("groups_claim = \"roles\"\n")).expect("it can be written");
    broker.hang_up();
    frog.expect_disconnect(0x87);
    let mut frog = client(&broker, "f", &token);
    assert!(!may(&mut frog, "w/a"));
}
