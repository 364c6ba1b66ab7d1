//! Clients that prove their passwords in AUTH packets. The client's side of SCRAM is the test's own.

use std::sync::Arc;

use auth::{Access, Checked, PasswordHash, Realms, Scheme, Unchecked, Users};
use base::Budget;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::{digest, hmac};
use wire::{Auth, AuthProperties, AuthReason, Binary, Connect, PingReq, Version};

use crate::world::{Peer, World, utf8};

const METHOD: &str = "SCRAM-SHA-512";
const SALT: &[u8; 12] = b"twelve bytes";
const ROUNDS: u32 = 101;

fn realms(users: &[(&str, &str)]) -> Realms {
    let mut all = Users::default();
    for (name, password) in users {
        let hash = PasswordHash::new(Scheme::MOSQUITTO, password.as_bytes(), SALT).expect("a hash");
        all.add(name, hash).expect("a user");
    }
    Realms::new(vec![("".into(), Arc::new(Access::new(Some(all), None)))])
}

fn world() -> World {
    let mut settings = crate::world::settings();
    settings.authentication_methods = auth::Mechanism::NAMES.map(str::to_owned).to_vec();
    let world = World::with(1, settings);
    world.replace_realms(realms(&[("frog", "croak"), ("toad", "hop")]));
    world
}

fn properties(data: &str) -> AuthProperties<'_> {
    AuthProperties {
        authentication_method: Some(utf8(METHOD)),
        authentication_data: Binary::new(data.as_bytes()).ok(),
        ..AuthProperties::EMPTY
    }
}

fn auth(reason: AuthReason, data: &str) -> Auth<'_> {
    Auth { reason, properties: properties(data) }
}

fn connect<'a>(client_id: &'a str, data: &'a str) -> Connect<'a> {
    let mut connect = Connect::new(Version::V5, utf8(client_id));
    connect.properties.authentication_method = Some(utf8(METHOD));
    connect.properties.authentication_data = Binary::new(data.as_bytes()).ok();
    connect
}

fn first(user: &str) -> String {
    format!("n,,n={user},r=abc")
}

/// The nonce that the broker has added: the test counts.
fn nonce(number: u128) -> String {
    format!("abc{number:032x}")
}

/// The second message of a client with this password, and the answer that proves the broker to it.
fn second(user: &str, password: &str, number: u128) -> (String, String) {
    let hash =
        PasswordHash::new(Scheme::Pbkdf2 { rounds: ROUNDS }, password.as_bytes(), SALT).expect("a hash");
    let text = hash.to_string();
    let salted = STANDARD.decode(text.rsplit('$').next().expect("a field")).expect("base64");
    let sign = |key: &[u8], bytes: &[u8]| {
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA512, key), bytes).as_ref().to_vec()
    };
    let client_key = sign(&salted, b"Client Key");
    let stored = digest::digest(&digest::SHA512, &client_key);
    let (nonce, salt) = (nonce(number), STANDARD.encode(SALT));
    let unproved = format!("c=biws,r={nonce}");
    let signed = format!("n={user},r=abc,r={nonce},s={salt},i={ROUNDS},{unproved}");
    let signature = sign(stored.as_ref(), signed.as_bytes());
    let proof: Vec<u8> = client_key.iter().zip(signature).map(|(key, signature)| key ^ signature).collect();
    let answer = sign(&sign(&salted, b"Server Key"), signed.as_bytes());
    (format!("{unproved},p={}", STANDARD.encode(proof)), format!("v={}", STANDARD.encode(answer)))
}

/// A client whose proof is being checked.
fn proving(world: &mut World, client_id: &str, (user, password): (&str, &str), number: u128) -> Peer {
    let peer = world.accept(0, Version::V5);
    world.send(peer, &connect(client_id, &first(user)).into());
    let packets = world.packets(peer);
    assert!(packets[0].starts_with("AUTH Continue authentication"), "{packets:?}");
    world.send(peer, &auth(AuthReason::ContinueAuthentication, &second(user, password, number).0).into());
    assert!(world.packets(peer).is_empty() && world.commands(0) == 0, "the ledger was not asked");
    peer
}

fn come(world: &mut World, client_id: &str, user: (&str, &str), number: u128) -> Peer {
    let peer = proving(world, client_id, user, number);
    world.verify(0, None);
    let packets = world.packets(peer);
    assert!(packets[0].starts_with("CONNACK Success"), "{packets:?}");
    peer
}

/// [MQTT-4.12.0-2, MQTT-4.12.0-3, MQTT-4.12.0-5]
#[test]
fn a_client_that_knows_the_password_comes_in_and_learns_that_the_broker_knows_it_too() {
    let mut world = world();
    let peer = world.accept(0, Version::V5);
    world.send(peer, &connect("f1", &first("frog")).into());
    let (message, answer) = second("frog", "croak", 1);
    let question = format!("r={},s={},i={ROUNDS}", nonce(1), STANDARD.encode(SALT));
    assert!(contains(&world.socket(peer).sent, question.as_bytes()), "the broker asks as the standard says");
    world.packets(peer);
    world.send(peer, &auth(AuthReason::ContinueAuthentication, &message).into());
    world.verify(0, None);
    assert!(contains(&world.socket(peer).sent, answer.as_bytes()), "CONNACK has the proof of the broker");
    assert!(world.packets(peer)[0].starts_with("CONNACK Success"));
    world.assert_account();
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// [MQTT-4.12.0-4]
#[test]
fn a_wrong_password_and_an_unknown_user_are_refused_alike() {
    for (number, user) in (1..).zip([("frog", "hop"), ("newt", "croak")]) {
        let mut world = world();
        let peer = world.accept(0, Version::V5);
        world.send(peer, &connect("f1", &first(user.0)).into());
        let question = world.packets(peer).remove(0);
        assert!(question.starts_with("AUTH Continue authentication"), "{question}");
        world.send(peer, &auth(AuthReason::ContinueAuthentication, &second(user.0, user.1, 1).0).into());
        world.verify(0, None);
        assert!(world.packets(peer)[0].starts_with("CONNACK Not authorized"), "user {number}");
        assert_eq!(world.total(|counters| counters.refused_password.value()), 1);
        world.assert_account();
    }
}

#[test]
fn invalid_scram_messages_are_refused() {
    let messages = ["", "n,,n=frog", "p=tls-exporter,,n=frog,r=abc"];
    for message in messages {
        let mut world = world();
        let peer = world.accept(0, Version::V5);
        world.send(peer, &connect("f1", message).into());
        assert!(world.packets(peer)[0].starts_with("CONNACK Not authorized"), "{message}");
        assert_eq!(world.total(|counters| counters.refused_authentication.value()), 1);
    }
    for message in ["", "c=biws,r=abc,p=AAAA"] {
        let mut world = world();
        let peer = world.accept(0, Version::V5);
        world.send(peer, &connect("f1", &first("frog")).into());
        world.packets(peer);
        world.send(peer, &auth(AuthReason::ContinueAuthentication, message).into());
        assert!(world.packets(peer)[0].starts_with("CONNACK Not authorized"), "{message}");
        world.assert_account();
    }
}

/// The methods with channel binding are there where connections have one, and a client that does not know of them is refused.
#[test]
fn a_method_fits_the_connection() {
    const BOUND: &str = "p=tls-exporter,,n=frog,r=abc";
    const PLUS: &str = "SCRAM-SHA-512-PLUS";
    let is_bad = "CONNACK Bad authentication method";
    for (binding, method, message, expected) in [
        (None, METHOD, "y,,n=frog,r=abc", "AUTH Continue authentication"),
        (None, PLUS, BOUND, is_bad),
        (None, PLUS, "n,,n=frog,r=abc", is_bad),
        (Some([1; 32]), METHOD, "n,,n=frog,r=abc", "AUTH Continue authentication"),
        (Some([1; 32]), METHOD, "y,,n=frog,r=abc", "CONNACK Not authorized"),
        (Some([1; 32]), METHOD, BOUND, "CONNACK Not authorized"),
        (Some([1; 32]), PLUS, BOUND, "AUTH Continue authentication"),
        (Some([1; 32]), PLUS, "n,,n=frog,r=abc", "CONNACK Not authorized"),
        (Some([1; 32]), PLUS, "p=tls-unique,,n=frog,r=abc", "CONNACK Not authorized"),
    ] {
        let mut world = world();
        world.outside[0].binding = binding;
        let peer = world.accept(0, Version::V5);
        let mut connect = connect("f1", message);
        connect.properties.authentication_method = Some(utf8(method));
        world.send(peer, &connect.into());
        let answer = world.packets(peer).remove(0);
        assert!(answer.starts_with(expected), "{binding:?} {method} {message}: {answer}");
        world.assert_account();
    }
}

#[test]
fn the_name_in_connect_is_that_of_the_exchange() {
    let mut world = world();
    let peer = world.accept(0, Version::V5);
    let message = first("frog");
    let mut connect = connect("f1", &message);
    connect.set_credentials(Some(utf8("toad")), None).expect("short");
    world.send(peer, &connect.into());
    assert!(world.packets(peer)[0].starts_with("CONNACK Not authorized"));
}

/// [MQTT-4.12.0-1]
#[test]
fn without_users_there_is_nothing_to_prove() {
    let mut world = world();
    world.replace_realms(Realms::new(vec![("".into(), Arc::new(Access::default()))]));
    let peer = world.accept(0, Version::V5);
    world.send(peer, &connect("f1", &first("frog")).into());
    assert!(world.packets(peer)[0].starts_with("CONNACK Bad authentication method"));
}

/// [MQTT-3.1.2-30]
#[test]
fn another_packet_in_the_middle_ends_the_connection_and_the_claim() {
    let mut world = world();
    let peer = world.accept(0, Version::V5);
    world.send(peer, &connect("f1", &first("frog")).into());
    world.packets(peer);
    world.send(peer, &PingReq.into());
    assert!(world.packets(peer)[0].starts_with("CONNACK Protocol Error"));
    world.assert_account();
}

/// Nobody has to prove anything to begin an exchange.
#[test]
fn exchanges_that_wait_for_their_clients_make_room_for_other_logins() {
    let mut settings = crate::world::settings();
    settings.authentication_methods = auth::Mechanism::NAMES.map(str::to_owned).to_vec();
    (settings.connect_packet_bytes_max, settings.will_bytes_max) = (100_000, 100_000);
    let mut world = World::with_budget(1, settings, Budget::new(1 << 20));
    world.replace_realms(realms(&[("frog", "croak")]));
    let large = vec![b'x'; 40_000];
    let will = || crate::world::will(&large);
    let mut asked = Vec::new();
    for _ in 0..5 {
        let peer = world.accept(0, Version::V5);
        let begin = first("frog");
        let mut connect = connect("f1", &begin);
        connect.will = Some(will());
        world.send(peer, &connect.into());
        let packets = world.packets(peer);
        assert!(packets[0].starts_with("AUTH Continue authentication"), "{packets:?}");
        asked.push(peer);
    }
    for displaced in &asked[..4] {
        let packets = world.packets(*displaced);
        assert!(
            packets[0].starts_with("CONNACK Server busy") && world.socket(*displaced).closed,
            "{packets:?}"
        );
    }
    assert!(!world.socket(asked[4]).closed, "there is room for one");
    let mut connect = Connect::new(Version::V5, utf8("f2"));
    let password = Binary::new(b"croak").expect("short");
    connect.set_credentials(Some(utf8("frog")), Some(password)).expect("short");
    connect.will = Some(will());
    let peer = world.accept(0, Version::V5);
    world.send(peer, &connect.into());
    assert!(world.packets(peer).is_empty() && world.socket(asked[4]).closed, "the password is checked");
    world.verify(0, None);
    assert!(world.packets(peer)[0].starts_with("CONNACK Success"));
    world.assert_account();
}

#[test]
fn a_client_that_stops_in_the_middle_is_ended_in_time() {
    let mut world = world();
    let peer = world.accept(0, Version::V5);
    world.send(peer, &connect("f1", &first("frog")).into());
    world.packets(peer);
    world.wait(120_000);
    assert!(world.socket(peer).closed);
    world.assert_account();
}

#[test]
fn a_client_that_leaves_while_its_proof_is_checked_leaves_nothing() {
    let mut world = world();
    let peer = proving(&mut world, "f1", ("frog", "croak"), 1);
    assert!(world.outside[0].wishes[0].is_wanted() && world.shards[0].is_logging_in(peer.id));
    world.hang_up(peer);
    assert!(!world.outside[0].wishes[0].is_wanted(), "the check need not run");
    world.verify(0, None);
    world.assert_account();
}

#[test]
fn a_user_who_is_removed_meanwhile_does_not_come_in() {
    let mut world = world();
    let peer = proving(&mut world, "f1", ("frog", "croak"), 1);
    world.replace_realms(realms(&[("toad", "hop")]));
    world.verify(0, None);
    assert!(world.packets(peer)[0].starts_with("CONNACK Not authorized"));
}

/// A way to keep a client out, and its answer.
type Way = (fn(&mut World), &'static str);

const WAYS: [Way; 3] = [
    (|world| world.ban("client_id", "f1"), "CONNACK Banned"),
    (drain, "CONNACK Server unavailable"),
    (|world| world.ban("user", "frog"), "CONNACK Banned"),
];

fn drain(world: &mut World) {
    let order = broker::Drain { server_reference: None, over_ms: 60_000 };
    let now = world.now;
    world.shards[0].ask(broker::Question::Drain(Some(order)), now, &mut world.outside[0]);
}

#[test]
fn a_client_that_is_kept_out_is_not_asked_for_a_proof() {
    // A ban of the user applies later: the user is not known before the proof.
    let [banned, drained, _] = WAYS;
    for (keep_out, answer) in [banned, drained] {
        let mut world = world();
        keep_out(&mut world);
        let peer = world.accept(0, Version::V5);
        world.send(peer, &connect("f1", &first("frog")).into());
        let packets = world.packets(peer);
        assert!(packets.len() == 1 && packets[0].starts_with(answer), "{packets:?}");
        world.assert_account();
    }
}

#[test]
fn a_client_that_is_kept_out_while_its_proof_is_checked_does_not_come_in() {
    for (keep_out, answer) in WAYS {
        let mut world = world();
        let peer = proving(&mut world, "f1", ("frog", "croak"), 1);
        keep_out(&mut world);
        world.verify(0, None);
        let packets = world.packets(peer);
        assert!(packets.len() == 1 && packets[0].starts_with(answer), "{packets:?}");
        assert_eq!(world.commands(0), 0);
        world.assert_account();
    }
}

#[test]
fn too_many_guesses_and_a_busy_broker_are_answered_as_for_passwords() {
    for (unchecked, answer) in
        [(Unchecked::Busy, "CONNACK Server busy"), (Unchecked::Guessing, "CONNACK Server busy")]
    {
        let mut world = world();
        let peer = proving(&mut world, "f1", ("frog", "croak"), 1);
        world.verify(0, Some(&Checked::Not(unchecked)));
        assert!(world.packets(peer)[0].starts_with(answer));
    }
}

/// [MQTT-4.12.1-1]
#[test]
fn a_connected_client_proves_itself_again_and_stays() {
    let mut world = world();
    let peer = come(&mut world, "f1", ("frog", "croak"), 1);
    let message = first("frog");
    world.send(peer, &auth(AuthReason::ReAuthenticate, &message).into());
    assert!(world.packets(peer)[0].starts_with("AUTH Continue authentication"));
    // An exchange does not hold up other packets.
    world.send(peer, &PingReq.into());
    assert_eq!(world.packets(peer), ["PINGRESP"]);
    let message = second("frog", "croak", 2).0;
    world.send(peer, &auth(AuthReason::ContinueAuthentication, &message).into());
    assert!(!world.shards[0].is_logging_in(peer.id), "what it has sent was accepted");
    world.verify(0, None);
    assert!(world.packets(peer)[0].starts_with("AUTH Success"));
    world.send(peer, &PingReq.into());
    assert_eq!(world.packets(peer), ["PINGRESP"]);
    world.assert_account();
}

/// Otherwise the client could send as much as it likes, and nobody would read it.
#[test]
fn a_proof_of_a_connected_client_ends_no_wait_that_is_not_its_own() {
    let mut world = world();
    let mut builder = auth::RolesBuilder::default();
    let role = builder.role("slow");
    builder.rule(role, auth::RuleKind::Publish, "#", Some(auth::Permit::ALL), 1).expect("a filter");
    builder.limit(role, auth::Limits { messages_per_sec_max: Some(1), ..auth::Limits::default() });
    builder.give(auth::Holder::EveryUser, role);
    let mut users = Users::default();
    let hash = PasswordHash::new(Scheme::MOSQUITTO, b"croak", SALT).expect("a hash");
    users.add("frog", hash).expect("a user");
    let access = Access::new(Some(users), None).with_roles(builder.build().expect("few rules"));
    world.replace_realms(Realms::new(vec![("".into(), Arc::new(access))]));
    let peer = come(&mut world, "f1", ("frog", "croak"), 1);
    let message = first("frog");
    world.send(peer, &auth(AuthReason::ReAuthenticate, &message).into());
    world.packets(peer);
    let message = second("frog", "croak", 2).0;
    let proof = crate::world::bytes(&auth(AuthReason::ContinueAuthentication, &message).into(), Version::V5);
    world.feed(peer, &[proof, b"\x30\x05\x00\x01a\x00x".repeat(5)].concat());
    assert!(world.socket(peer).paused, "it has sent too much");
    world.verify(0, None);
    assert!(world.packets(peer)[0].starts_with("AUTH Success"));
    assert!(world.socket(peer).paused, "and waits still");
    world.assert_account();
}

/// [MQTT-4.12.1-2]
#[test]
fn a_client_that_fails_to_prove_itself_again_goes() {
    // Another user, and a wrong password.
    for (user, password) in [("toad", "hop"), ("frog", "hop")] {
        let mut world = world();
        let peer = come(&mut world, "f1", ("frog", "croak"), 1);
        let message = first(user);
        world.send(peer, &auth(AuthReason::ReAuthenticate, &message).into());
        let message = second(user, password, 2).0;
        if world.packets(peer)[0].starts_with("AUTH") {
            world.send(peer, &auth(AuthReason::ContinueAuthentication, &message).into());
            world.verify(0, None);
            assert!(world.packets(peer)[0].starts_with("DISCONNECT Not authorized"), "{user}");
        }
        assert!(world.socket(peer).closed, "{user}");
    }
}

/// The session of a user who has proved the name in this way is nobody else's.
#[test]
fn a_session_belongs_to_the_user_of_the_exchange() {
    let mut world = world();
    come(&mut world, "f1", ("frog", "croak"), 1);
    let other = proving(&mut world, "f1", ("toad", "hop"), 2);
    world.verify(0, None);
    assert!(world.packets(other)[0].starts_with("CONNACK Not authorized"));
}
