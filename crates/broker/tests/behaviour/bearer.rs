//! Clients for whom a token or a server elsewhere vouches: their answers, and the end of their connections.

use std::sync::Arc;
use std::time::Duration;

use auth::{
    Access, Bearer, Checked, DynamicSecurity, LoginNames, NoLoginNames, PasswordHash, Question, Realms,
    Scheme, SourceSettings, TokenKeys, TokenProblem, TokenRules, Tokens, UserService, UserSource, Users,
    Verdict, Voucher,
};
use base::{Realm, Tenant};
use broker::{Admission, Entry, Naming};
use protocol::Durability;
use wire::{Binary, Connect, Version};

use crate::world::{Peer, World, utf8};

/// A token of the user `frog`, which another program has signed with the secret. It expires in 2100.
const TOKEN: &str = "eyJhbGciOiAiSFMyNTYiLCAidHlwIjogIkpXVCJ9.eyJzdWIiOiAiZnJvZyIsICJleHAiOiA0MTAyNDQ0ODAwfQ.ZU1bYerJ_oNBjS7J-k-xQ_ozuA6ykF427uz55CNDkiM";
const SECRET: &str = "a secret for tests, with sixty-four bytes at least, as HS512 needs";
const OTHER: &str = "another secret, of a key that has signed no token of these tests.";

fn tokens(secret: &str) -> Arc<Tokens> {
    let rules = TokenRules { leeway_secs: 0, ..TokenRules::default() };
    Arc::new(Tokens::new(rules, TokenKeys::of_file(secret).expect("a secret")))
}

fn realms(access: Access) -> Realms {
    let place = |users: &str| Arc::new(Tenant::new(users, "", ""));
    let realms = Realms::new(vec![("".into(), Arc::new(access))]);
    let bearers = vec![
        (Voucher::Token, place("jwt:pond")),
        (Voucher::Http, place("http:")),
        (Voucher::Process, place("unix:")),
    ];
    realms.with_tenants(vec![Some(place("users"))]).with_bearers(vec![bearers])
}

fn with_secret(secret: &str) -> Realms {
    realms(Access::default().with_tokens(Some(tokens(secret))))
}

fn world() -> World {
    let world = World::new(1);
    world.replace_realms(with_secret(SECRET));
    world
}

fn connect<'a>(version: Version, client_id: &'a str, password: &'a str) -> Connect<'a> {
    let mut connect = Connect::new(version, utf8(client_id));
    let password = Binary::new(password.as_bytes()).expect("short");
    connect.set_credentials(Some(utf8("frog")), Some(password)).expect("short");
    connect
}

/// A client whose token is good until then, or for as long as it says.
fn come(world: &mut World, version: Version, until_unix_secs: Option<u64>) -> Peer {
    let peer = world.accept(0, version);
    world.send(peer, &connect(version, "f1", TOKEN).into());
    let key = tokens(SECRET).check(TOKEN.as_bytes(), None, 0).expect("a token").key;
    let bearer = Bearer { user: "frog".into(), voucher: Voucher::Token, key, until_unix_secs, claims: None };
    world.verify(0, Some(&Checked::Bearer(Box::new(bearer))));
    let packets = world.packets(peer);
    assert!(packets[0].starts_with("CONNACK Success"), "{packets:?}");
    peer
}

#[test]
fn a_token_that_is_checked_lets_its_user_in() {
    for version in Version::ALL {
        let mut world = world();
        let peer = world.accept(0, version);
        world.send(peer, &connect(version, "f1", TOKEN).into());
        assert!(world.packets(peer).is_empty() && world.commands(0) == 0, "the ledger was not asked");
        world.verify(0, None);
        assert!(world.packets(peer)[0].starts_with("CONNACK Success"));
    }
}

#[test]
fn each_problem_of_a_token_has_its_answer_and_its_counter() {
    use TokenProblem as P;
    type Counted = fn(&broker::Totals) -> u64;
    let bad = "Bad User Name or Password";
    let rows: [(P, &str, Counted); 15] = [
        (P::Malformed, bad, |t| t.refused_token_malformed),
        (P::TooLong, bad, |t| t.refused_token_malformed),
        (P::Critical, bad, |t| t.refused_token_malformed),
        (P::Algorithm, bad, |t| t.refused_token_algorithm),
        (P::NoKeys, "Server unavailable", |t| t.refused_token_no_keys),
        (P::UnknownKey, bad, |t| t.refused_token_key),
        (P::Signature, bad, |t| t.refused_token_signature),
        (P::Expired, bad, |t| t.refused_token_expired),
        (P::Time, bad, |t| t.refused_token_claims),
        (P::NoExpiry, bad, |t| t.refused_token_claims),
        (P::NotYet, bad, |t| t.refused_token_claims),
        (P::Issuer, bad, |t| t.refused_token_claims),
        (P::Audience, bad, |t| t.refused_token_claims),
        (P::User, bad, |t| t.refused_token_user),
        (P::OtherUser, bad, |t| t.refused_token_user),
    ];
    for (problem, answer, counter) in rows {
        let mut world = world();
        let peer = world.accept(0, Version::V5);
        world.send(peer, &connect(Version::V5, "f1", TOKEN).into());
        world.verify(0, Some(&Checked::BadToken(problem)));
        let packets = world.packets(peer);
        assert!(packets.len() == 1 && packets[0].contains(answer), "{packets:?}");
        assert!(world.socket(peer).closed);
        let totals = broker::Totals::of(world.counters.iter().map(|counters| &**counters));
        assert_eq!((counter(&totals), totals.refused_connect), (1, 1), "{problem:?}");
    }
}

#[test]
fn a_connection_ends_when_its_token_expires() {
    for version in Version::ALL {
        let mut world = world();
        let now_secs = world.now.unix_ms / 1_000;
        // Longer than a timer is armed ahead.
        let peer = come(&mut world, version, Some(now_secs + 200));
        let forever = world.accept(0, version);
        world.send(forever, &connect(version, "f2", TOKEN).into());
        world.verify(0, None);
        world.packets(forever);
        world.wait(199_500);
        assert!(world.packets(peer).is_empty() && !world.socket(peer).closed);
        world.wait(700);
        let said: &[&str] = if version == Version::V5 { &["DISCONNECT Not authorized"] } else { &[] };
        assert_eq!(world.packets(peer), said, "{version:?}");
        assert!(world.socket(peer).closed && !world.socket(forever).closed);
        assert_eq!(world.total(|counters| counters.ended_login_expired.value()), 1);
    }
}

#[test]
fn a_jump_of_the_clock_moves_the_end_of_a_token() {
    let mut world = world();
    let now_secs = world.now.unix_ms / 1_000;
    let peer = come(&mut world, Version::V5, Some(now_secs + 3_600));
    world.wait(1_000);
    world.now.unix_ms += 3_600_000;
    world.wait(61_000);
    assert!(world.socket(peer).closed, "a timer is armed a minute ahead at most");
    let now_secs = world.now.unix_ms / 1_000;
    let peer = come(&mut world, Version::V5, Some(now_secs + 10));
    world.now.unix_ms -= 3_600_000;
    world.wait(60_000);
    assert!(!world.socket(peer).closed, "the token is good for an hour more");
}

#[test]
fn a_time_that_never_comes_is_none() {
    let mut world = world();
    let peer = come(&mut world, Version::V5, Some(u64::MAX / 1_000 + 2));
    world.wait(120_000);
    assert!(!world.socket(peer).closed);
}

#[test]
fn a_key_that_is_removed_ends_the_connections_that_it_has_let_in() {
    let mut world = world();
    let peer = come(&mut world, Version::V5, None);
    let both = TokenKeys::of_file(SECRET).and_then(|keys| Ok(keys.and(&TokenKeys::of_file(OTHER)?)));
    let both = Tokens::new(TokenRules::default(), both.expect("secrets"));
    world.replace_realms(realms(Access::default().with_tokens(Some(Arc::new(both)))));
    world.shards[0].users_changed();
    world.end_turn(0);
    assert!(!world.socket(peer).closed, "another key is no reason");
    world.replace_realms(with_secret(OTHER));
    world.shards[0].users_changed();
    world.end_turn(0);
    assert_eq!(world.packets(peer), ["DISCONNECT Not authorized"]);
    assert_eq!(world.total(|counters| counters.ended_user_removed.value()), 1);
}

#[test]
fn a_key_that_is_removed_during_the_check_lets_nobody_in() {
    for realms in [with_secret(OTHER), realms(Access::default()), Realms::default()] {
        let mut world = world();
        let peer = world.accept(0, Version::V5);
        world.send(peer, &connect(Version::V5, "f1", TOKEN).into());
        world.replace_realms(realms);
        world.verify(0, None);
        assert!(world.packets(peer)[0].contains("Bad User Name or Password"));
        assert_eq!(world.total(|counters| counters.refused_token_key.value()), 1);
    }
}

#[test]
fn a_user_who_is_disabled_does_not_come_in_with_a_token() {
    let text = r#"{"clients":[{"username":"frog","disabled":true}]}"#;
    let dynamic = Arc::new(DynamicSecurity::parse(text).expect("a file"));
    let access = Access::default().with_tokens(Some(tokens(SECRET))).with_dynamic_security(dynamic);
    let mut world = World::new(1);
    world.replace_realms(realms(access));
    let peer = world.accept(0, Version::V5);
    world.send(peer, &connect(Version::V5, "f1", TOKEN).into());
    world.verify(0, None);
    assert!(world.packets(peer)[0].contains("Not authorized"));
}

/// The name of a user in a password file and the same name in a token are two users.
#[test]
fn a_session_of_a_token_belongs_to_its_issuer() {
    let principal = |realms: &Realms, is_bearer: bool| base::Principal {
        user: Some("frog".into()),
        is_proved: true,
        tenant: if is_bearer { realms.bearers(Realm(0), Voucher::Token) } else { realms.tenant(Realm(0)) },
        ..base::Principal::default()
    };
    let realms = with_secret(SECRET);
    let (bearer, user) = (principal(&realms, true), principal(&realms, false));
    assert!(realms.is_same_user(&bearer, &bearer) && realms.is_same_user(&user, &user));
    assert!(!realms.is_same_user(&bearer, &user) && !realms.is_same_user(&user, &bearer));
    assert!(realms.may_have(&bearer), "nobody can tell whom the issuer knows");
    let dynamic = realms.with_dynamic_security(&Arc::default());
    assert!(!dynamic.is_same_user(&bearer, &user), "commands change no places");
}

/// A service with one answer.
#[derive(Debug)]
struct Service(Verdict);

impl UserService for Service {
    fn ask(&self, _: &Question<'_>) -> Verdict {
        self.0.clone()
    }
}

fn known(until_unix_secs: Option<u64>) -> Verdict {
    Verdict::Known { user: "frog".into(), until_unix_secs }
}

fn with_service(place: &str, verdict: Verdict) -> Access {
    let settings = SourceSettings { place, number: 0, remembers: Duration::ZERO };
    let source = UserSource::new(Voucher::Http, settings, Arc::new(Service(verdict)));
    Access::default().with_services(Arc::from([source]))
}

/// The answer to a client whom the service has been asked about, after the rules have changed to `then`.
fn answer(verdict: Verdict, password: &str, then: Option<Access>) -> (World, Peer, String) {
    let mut world = World::new(1);
    world.replace_realms(realms(with_service("a", verdict)));
    let peer = world.accept(0, Version::V5);
    world.send(peer, &connect(Version::V5, "f1", password).into());
    if let Some(then) = then {
        world.replace_realms(realms(then));
    }
    world.verify(0, None);
    let answer = world.packets(peer).first().cloned().unwrap_or_default();
    (world, peer, answer)
}

#[test]
fn a_service_decides_about_names_that_are_no_users_here() {
    for (verdict, expected) in [
        (known(None), "Success"),
        (Verdict::Denied, "Bad User Name or Password"),
        (Verdict::Unknown, "Bad User Name or Password"),
        (Verdict::Unreachable, "Server unavailable"),
    ] {
        let (_, _, answer) = answer(verdict.clone(), "croak", None);
        assert!(answer.starts_with(&format!("CONNACK {expected}")), "{verdict:?}: {answer}");
    }
    // Directories take an empty password for a stranger, and let the stranger in.
    let (world, _, answer) = answer(known(None), "", None);
    assert!(answer.contains("Bad User Name or Password"), "{answer}");
    let totals = broker::Totals::of(world.counters.iter().map(|counters| &**counters));
    assert_eq!((totals.refused_password, totals.refused_unreachable), (1, 0));
}

#[test]
fn an_answer_counts_only_as_long_as_its_service_does() {
    let users = || {
        let mut users = Users::default();
        let hash = PasswordHash::new(Scheme::MOSQUITTO, b"hop", b"twelve bytes").expect("a hash");
        users.add("frog", hash).expect("a user");
        users
    };
    let (_, _, other) = answer(known(None), "croak", Some(with_service("b", known(None))));
    assert!(other.contains("Server unavailable"), "{other}");
    let local = with_service("a", known(None));
    let local = Access::new(Some(users()), None).with_services(local.services().clone());
    let (_, _, local) = answer(known(None), "croak", Some(local));
    assert!(local.contains("Bad User Name or Password"), "the name is that of a user here by now: {local}");
    // A connected client goes when its name becomes that of a user here, whose rights are others.
    let (mut world, peer, _) = answer(known(None), "croak", None);
    let both =
        Access::new(Some(users()), None).with_services(with_service("a", known(None)).services().clone());
    world.replace_realms(realms(both));
    world.shards[0].users_changed();
    world.end_turn(0);
    assert_eq!(world.packets(peer), ["DISCONNECT Not authorized"]);
    // A connected client goes when its service does.
    let (mut world, peer, _) = answer(known(None), "croak", None);
    let replace = |world: &mut World, access| {
        world.replace_realms(realms(access));
        world.shards[0].users_changed();
        world.end_turn(0);
    };
    replace(&mut world, with_service("a", Verdict::Denied));
    assert!(!world.socket(peer).closed, "the same service, whatever it would say now");
    replace(&mut world, with_service("b", known(None)));
    assert_eq!(world.packets(peer), ["DISCONNECT Not authorized"]);
}

#[test]
fn an_answer_may_end_the_connection_later() {
    let until_unix_secs = Some(World::new(1).now.unix_ms / 1_000 + 10);
    let (mut world, peer, answer) = answer(known(until_unix_secs), "croak", None);
    assert!(answer.starts_with("CONNACK Success"), "{answer}");
    world.wait(9_500);
    assert!(!world.socket(peer).closed);
    world.wait(700);
    assert_eq!(world.packets(peer), ["DISCONNECT Not authorized"]);
}

/// A system with one user, which cannot tell about another one.
#[derive(Debug)]
struct System;

impl LoginNames for System {
    fn of(&self, uid: u32) -> Result<Option<String>, NoLoginNames> {
        match uid {
            1_000 => Ok(Some("frog".to_owned())),
            1_001 => Err(NoLoginNames),
            _ => Ok(None),
        }
    }
}

/// The answer to a process of this user, which gives another name and a password.
fn process(access: Access, user: Option<u32>) -> String {
    let mut world = World::new(1);
    world.replace_realms(realms(access));
    world.outside[0].process_user = user;
    let entry = Entry { allow_anonymous: true, naming: Naming::Process, ..Entry::default() };
    let peer = world.accept_with(0, Version::V5, Admission { entry, ..Durability::Fsync.into() });
    let mut connect = Connect::new(Version::V5, utf8("f1"));
    connect.set_credentials(Some(utf8("toad")), Some(Binary::new(b"croak").expect("short"))).expect("short");
    world.send(peer, &connect.into());
    world.verify(0, None);
    world.assert_account();
    world.packets(peer).first().cloned().unwrap_or_default()
}

#[test]
fn the_system_alone_says_which_user_a_process_has() {
    let system = || Access::default().with_login_names(Some(Arc::new(System)));
    for (user, expected) in [
        (Some(1_000), "Success"),
        (Some(1_001), "Server unavailable"),
        (Some(1_002), "Not authorized"),
        (None, "Not authorized"),
    ] {
        let answer = process(system(), user);
        assert!(answer.starts_with(&format!("CONNACK {expected}")), "{user:?}: {answer}");
    }
    let answer = process(Access::default(), Some(1_000));
    assert!(answer.starts_with("CONNACK Not authorized"), "nobody knows names here: {answer}");
    let text = r#"{"clients":[{"username":"frog","disabled":true}]}"#;
    let dynamic = Arc::new(DynamicSecurity::parse(text).expect("a file"));
    let answer = process(system().with_dynamic_security(dynamic), Some(1_000));
    assert!(answer.starts_with("CONNACK Not authorized"), "{answer}");
}
