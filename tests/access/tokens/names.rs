//! Names that clients choose: nobody becomes an administrator, or reads the topics of the broker, by a name.

use serde_json::json;

use super::*;
use crate::dynamic::{Secured, TOPIC, admin, control, create, subscribe, user};

/// Rules of everybody that begin with a name.
const ROLES: &str = "\
[roles.own]
publish = [\"%u/#\", \"%c/#\"]
subscribe = [\"%u/#\", \"%c/#\"]
[every_user]
roles = [\"own\"]
[anonymous]
roles = [\"own\"]
";
const LIST: &str = "pattern readwrite %u/#\npattern readwrite %c/#\n";

/// Attacks from all places where a rule may stand.
fn nobody_is_administrator(key: &str, rules: &str) {
    let (secured, signer) = (Secured::new(), Signer { directory: TempDir::new().expect("there is a place") });
    signer.write("secret", &format!("{SECRET}\n"));
    signer.write("rules", rules);
    let settings = format!(
        "{}{key} = {:?}\n[jwt]\nkey_file = {:?}\nrules_claim = \"acl\"\n\
        [[listener]]\naddress = \"127.0.0.1:0\"\nallow_anonymous = true\n",
        secured.keys(),
        signer.path("rules"),
        signer.path("secret")
    );
    let broker = start(&settings);
    let mut admin = admin(&broker);
    create(&mut admin, "ann", "%c/#");
    create(&mut admin, "$CONTROL", "%u/#");
    let token = |user: &str, acl: &str| {
        let claims = format!(r#"{{"sub":"{user}","exp":{}{acl}}}"#, now() + 600);
        signer.sign("HS256", &claims)
    };
    let acl = r#","acl":{"pub":["${username}/#","${clientid}/#"],"sub":["${username}/#","${clientid}/#"]}"#;
    let (with_rules, without) = (token("$SYS", acl), token("$SYS", ""));
    let of = |client_id, token| with_token(Version::V5, client_id, "$SYS", token);
    let plain = |client_id| Connect::new(Version::V5, client_id);
    for (connect, who) in [
        (plain("$CONTROL").of("ann", "ann"), "a role of dynamic security, by the identifier"),
        (plain("c").of("$CONTROL", "$CONTROL"), "a role of dynamic security, by the user name"),
        (of("$CONTROL", &with_rules), "a rule of a token"),
        (of("$CONTROL", &without), "a rule of the file"),
        (plain("$CONTROL"), "a client without a name"),
    ] {
        let mut client = broker.client_with(&connect);
        let command =
            json!({ "commands": [{ "command": "createClient", "username": "evil", "password": "x" }] });
        assert_eq!(publish(&mut client, TOPIC, command.to_string().as_bytes()), 0x87, "{who}");
        assert_eq!(publish(&mut client, "$CONTROL", b""), 0x87, "{who}");
        // A list of Mosquitto has no rules about subscriptions.
        for filter in ["$CONTROL/#", "$SYS/#", "$share/g/$CONTROL/#"].iter().filter(|_| key == "rules_file") {
            assert_eq!(subscribe(&mut client, filter), 0x87, "{who}: {filter}");
        }
        client.leave();
    }
    // The rules count for other names.
    assert_ne!(publish(&mut user(&broker, "one", "ann"), "one/a", b""), 0x87);
    assert_ne!(publish(&mut broker.client_with(&of("two", &with_rules)), "two/a", b""), 0x87);
    let evil = control(&mut admin, &json!([{ "command": "getClient", "username": "evil" }]));
    assert_eq!(evil[0]["error"], "Client not found");
}

#[test]
fn nobody_becomes_an_administrator_by_a_name() {
    nobody_is_administrator("rules_file", ROLES);
    nobody_is_administrator("acl_file", LIST);
}
