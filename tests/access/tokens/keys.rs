//! Tokens whose keys are in a file.

use super::*;

#[test]
fn tokens_that_openssl_has_signed_let_their_users_in() {
    let signer = Signer::new();
    let rules = "user frog\ntopic readwrite pond\npattern readwrite own/%u/#\n";
    signer.write("rules", rules);
    let keys = |file: &str| {
        let (keys, rules) = (signer.path(file), signer.path("rules"));
        start(&format!("[auth]\nacl_file = {rules:?}\n[jwt]\nkey_file = {keys:?}\n"))
    };
    let (public, secret) = (keys("keys.pem"), keys("secret"));
    for name in ["RS256", "ES256", "EdDSA", "HS256"] {
        let (broker, other) = if name == "HS256" { (&secret, &public) } else { (&public, &secret) };
        let token = signer.sign(name, &claims("frog", 600));
        for version in Version::ALL {
            let bad = if version.is_5() { 0x86 } else { 4 };
            let mut client = broker.client_with(&with_token(version, "f", "frog", &token));
            let accepted = |code| matches!(code, 0 | 0x10);
            assert!(
                accepted(publish(&mut client, "pond", b""))
                    && accepted(publish(&mut client, "own/frog/a", b""))
            );
            if version.is_5() {
                assert_eq!(publish(&mut client, "own/toad/a", b""), 0x87, "{name}");
            }
            client.leave();
            assert_eq!(refusal(broker, &with_token(version, "f", "toad", &token)), bad, "another name");
            assert_eq!(refusal(other, &with_token(version, "f", "frog", &token)), bad, "another key");
            assert_eq!(refusal(broker, &with_token(version, "f", "frog", &format!("{token}A"))), bad);
            let none = if version.is_5() { 0x87 } else { 5 };
            assert_eq!(refusal(broker, &Connect::new(version, "f")), none, "no token");
        }
        let nameless = Connect { password: Some(token.as_bytes()), ..Connect::new(Version::V5, "f") };
        broker.client_with(&nameless).leave();
        let part = &token[token.len() - 20..];
        assert!(!broker.log().contains(part) && !other.log().contains(part), "no log has a token");
    }
    let line = secret.log_lines("is of another user").pop().expect("a refusal");
    assert!(line.contains("client_id=f"), "{line}");
}

#[test]
fn a_connection_ends_with_its_token() {
    let signer = Signer::new();
    let broker = start(&format!("[jwt]\nkey_file = {:?}\nleeway = \"0s\"\n", signer.path("keys.pem")));
    let token = signer.sign("EdDSA", &claims("frog", 600));
    let mut watcher = broker.client_with(&with_token(Version::V5, "w", "frog", &token));
    watcher.subscribe("$SYS/broker/ended/login_expired");
    let short = signer.sign("EdDSA", &claims("frog", 3));
    let mut new = broker.client_with(&with_token(Version::V5, "new", "frog", &short));
    let old = broker.client_with(&with_token(Version::V3_1_1, "old", "frog", &short));
    new.expect_disconnect(0x87);
    old.into_raw().expect_closed();
    wait_for(&mut watcher, "2");
    assert_eq!(refusal(&broker, &with_token(Version::V5, "new", "frog", &short)), 0x86);
    assert!(broker.log_lines("its token has expired").len() >= 2);
}

#[test]
fn a_file_of_keys_is_read_again() {
    let signer = Signer::new();
    signer.write("current.pem", &signer.public("ES256"));
    let broker = start(&format!("[jwt]\nkey_file = {:?}\n", signer.path("current.pem")));
    let reload = || {
        let before = broker.log_lines(IN_USE).len();
        broker.hang_up();
        until(IN_USE, || (broker.log_lines(IN_USE).len() > before).then_some(()));
    };
    let (old, new) = (signer.sign("ES256", &claims("frog", 600)), signer.sign("RS256", &claims("toad", 600)));
    let (old, new) = (with_token(Version::V5, "f", "frog", &old), with_token(Version::V5, "t", "toad", &new));
    let mut frog = broker.client_with(&old);
    assert_eq!(refusal(&broker, &new), 0x86);
    signer.write("current.pem", &[signer.public("ES256"), signer.public("RS256")].concat());
    reload();
    let mut toad = broker.client_with(&new);
    assert!(matches!(publish(&mut frog, "pond", b""), 0 | 0x10), "nothing has ended");
    // A file with a mistake changes nothing.
    signer.write("current.pem", &fs::read_to_string(signer.path("RS256.key")).expect("it was made"));
    broker.hang_up();
    let line = broker.wait_for_log("the configuration stays as it was");
    assert!(line.contains("key_file") && line.contains("private key"), "{line}");
    // Nobody sends a signal.
    signer.write("current.pem", &signer.public("RS256"));
    frog.expect_disconnect(0x87);
    assert_eq!(refusal(&broker, &old), 0x86);
    assert!(matches!(publish(&mut toad, "pond", b""), 0 | 0x10));
}

/// Of a password and a token for the same name, the one that has come first keeps the client identifier.
#[test]
fn a_name_in_a_token_is_another_user_than_the_same_name_with_a_password() {
    let signer = Signer::new();
    signer.write("users", &users(&["frog"]));
    let keys = (signer.path("users"), signer.path("keys.pem"));
    let broker = start(&format!(
        "[auth]\npassword_file = {:?}\n[jwt]\nkey_file = {:?}\nissuer = \"https://id.example\"\n",
        keys.0, keys.1
    ));
    let claims = format!(r#"{{"sub":"frog","iss":"https://id.example","exp":{}}}"#, now() + 600);
    let token = signer.sign("ES256", &claims);
    for version in Version::ALL {
        let owner = if version.is_5() { 0x87 } else { 5 };
        let (by_password, by_token) =
            (Connect::new(version, "a").of("frog", "frog"), with_token(version, "a", "frog", &token));
        let first = broker.client_with(&by_password);
        assert_eq!(refusal(&broker, &by_token), owner);
        broker.client_with(&by_password).leave();
        drop(first);
        let other = Connect { client_id: "b", ..by_password };
        let first = broker.client_with(&Connect { client_id: "b", ..by_token });
        assert_eq!(refusal(&broker, &other), owner);
        broker.client_with(&Connect { client_id: "b", ..by_token }).leave();
        drop(first);
    }
    let unsigned = format!("{}.{}.", base64(br#"{"alg":"none"}"#), base64(claims.as_bytes()));
    assert_eq!(refusal(&broker, &with_token(Version::V5, "c", "frog", &unsigned)), 0x86);
    broker.client_with(&Connect::new(Version::V5, "c").of("frog", "frog")).leave();
}
