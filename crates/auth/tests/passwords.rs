//! Password files and hashes, ours and those that other programs wrote.

use std::sync::Arc;

use auth::{
    Access, Admission, Channel, Check, DynamicSecurity, Exchange, HashError, Login, Mechanism, NameError,
    PasswordFile, PasswordHash, Refusal, Scheme, Secret, UserProblem, Users, Workspace,
};

/// As `mosquitto_passwd -H sha512` wrote it, for `swordfish`.
const SHA512: &str = "$6$doYs0q9hfBHVVShZ$ctB3p32tVQj423aCcbnh1vDExUk80K6Uqkuf+eruRU9ldoq9EfWsqsK6oX9qWA1vemSJTk0l2kEyeKifSx3hTw==";
/// As `mosquitto_passwd` of Mosquitto 2.0 wrote it, for `swordfish`.
const PBKDF2: &str = "$7$101$ikAzz34c5EKozjWa$C2+h3CV7CsNMsZuiJINx0yXzHW3K4JCGlp+bZ6kFQHeplHZS7SV5RH85/idGZkEuw/Lbv257J4T67xYx9xGxvw==";
/// From the tests of the reference implementation of Argon2, for `password`.
const ARGON2ID: &str = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";
/// A scheme for tests, with the least memory.
const CHEAP: Scheme = Scheme::Argon2id { memory_kib: 8, passes: 1, lanes: 1 };

#[test]
fn hashes_of_other_programs_are_read_and_written() {
    for (text, password) in [(SHA512, "swordfish"), (PBKDF2, "swordfish"), (ARGON2ID, "password")] {
        let hash = PasswordHash::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(hash.to_string(), text);
        assert!(hash.matches(password.as_bytes()), "{text}");
        for wrong in ["", "swordfis", "swordfish ", "swordfish\0", "passwor", "password\0x"] {
            assert!(!hash.matches(wrong.as_bytes()), "{text} {wrong:?}");
        }
        assert!(!format!("{hash:?}").contains(&text[20..]), "a hash stays out of logs");
    }
}

#[test]
fn a_new_hash_is_one_of_its_password() {
    for scheme in [Scheme::Sha512, Scheme::MOSQUITTO, CHEAP] {
        let hash = PasswordHash::new(scheme, b"pond", b"twelve bytes").expect("within bounds");
        assert_eq!(PasswordHash::parse(&hash.to_string()), Ok(hash.clone()));
        assert!(hash.matches(b"pond") && !hash.matches(b"Pond"), "{scheme:?}");
        let other = PasswordHash::new(scheme, b"pond", b"other bytes!").expect("within bounds");
        assert_ne!(hash, other, "the salt counts");
    }
    assert_eq!(PasswordHash::new(CHEAP, b"pond", b"short"), Err(HashError::Length));
    assert_eq!(PasswordHash::new(CHEAP, b"pond\0", b"twelve bytes"), Err(HashError::Nul));
}

#[test]
fn a_text_that_is_no_hash_is_refused() {
    let long = "A".repeat(88);
    let rows = [
        ("secret".to_owned(), HashError::Plain),
        (String::new(), HashError::Plain),
        ("$1$salt$hash".to_owned(), HashError::Scheme),
        ("$2b$12$abc".to_owned(), HashError::Scheme),
        ("$6$salt".to_owned(), HashError::Fields),
        (format!("{SHA512}$"), HashError::Fields),
        ("$6$!!!!$AAAA".to_owned(), HashError::Base64),
        ("$6$AAAA$AAAA".to_owned(), HashError::Length),
        (format!("$6$${}", &SHA512[20..]), HashError::Length),
        (PBKDF2.replace("$101$", "$0$"), HashError::Cost),
        (PBKDF2.replace("$101$", "$-1$"), HashError::Cost),
        (PBKDF2.replace("$101$", "$4000000000$"), HashError::Cost),
        (ARGON2ID.replace("m=256", "m=4000000000"), HashError::Cost),
        (ARGON2ID.replace("m=256", "m=1"), HashError::Cost),
        (ARGON2ID.replace("t=2", "t=4000000000"), HashError::Cost),
        (ARGON2ID.replace("p=1", "p=200"), HashError::Cost),
        (ARGON2ID.replace("p=1", "p=1,x=1"), HashError::Fields),
        (ARGON2ID.replace("v=19", "v=16"), HashError::Fields),
        (format!("$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ${long}"), HashError::Length),
        ("$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf64".to_owned(), HashError::Length),
    ];
    for (text, error) in rows {
        assert_eq!(PasswordHash::parse(&text), Err(error), "{text}");
    }
}

#[test]
fn a_password_file_is_read_as_mosquitto_reads_it() {
    let text =
        format!("# ann:{SHA512}\nno colon\n\n  bob :  {PBKDF2} \r\n::carl:{SHA512}:ignored\nd e:{SHA512}\n");
    let users = Users::of_file(&text).expect("every line is in order");
    assert_eq!(users.len(), 3);
    assert!(users.find("ann").is_none());
    for name in ["bob", "carl", "d e"] {
        assert!(users.check(name, b"swordfish").run(), "{name}");
        assert!(!users.check(name, b"swordfish\0").run(), "{name}");
    }
    assert!(!users.check("ann", b"swordfish").run(), "there is no such user");
}

/// A file that is not understood lets nobody in by mistake, and nobody disappears without a word.
#[test]
fn a_bad_line_refuses_the_file() {
    let hash = |error| UserProblem::Hash(error);
    let rows = [
        (format!("# x\n :{SHA512}\n"), UserProblem::Empty, 2),
        (format!("ann:{SHA512}\nann:{PBKDF2}\n"), UserProblem::Twice, 2),
        ("ann:secret".to_owned(), hash(HashError::Plain), 1),
        ("ann:".to_owned(), hash(HashError::Plain), 1),
        (format!("{}:{SHA512}", "a".repeat(65_536)), UserProblem::TooLong, 1),
    ];
    for (text, problem, line) in rows {
        let error = Users::of_file(&text).expect_err("a bad line");
        assert_eq!((error.problem, error.line), (problem, line));
    }
}

fn users() -> Users {
    let mut users = Users::default();
    for name in ["ann", "bob"] {
        let hash = PasswordHash::new(CHEAP, name.as_bytes(), b"twelve bytes").expect("within bounds");
        users.add(name, hash).expect("a new name");
    }
    users
}

#[test]
fn an_unknown_name_is_checked_like_a_known_one() {
    let check = users().check("carl", b"x");
    assert!(format!("{check:?}").contains(&format!("{CHEAP:?}")), "the scheme is that of most users");
    assert!(!check.run());
    // The decoy's own hash is of zeros, which a password cannot be found for; the name is unknown all the same.
    assert!(!Users::default().check("ann", b"").run());
}

/// C-13, and the order of decisions of Mosquitto.
#[test]
fn a_login_is_decided_by_the_users_or_by_the_listener() {
    let login = |user, password: Option<&'static str>, may_be_anonymous| Login {
        user,
        client_id: "c1",
        password: password.map(str::as_bytes),
        may_be_anonymous,
    };
    let told = |access: &Access, login: &Login<'_>| match access.admit(login) {
        Admission::Admitted(identity) => {
            format!("admitted {}", identity.as_ref().map_or("nobody", |i| i.name()))
        }
        Admission::Verify(identity, Check::Password(check)) => format!("{} {}", identity.name(), check.run()),
        Admission::Verify(_, Check::Token(_)) => "a token".to_owned(),
        Admission::Verify(_, Check::Scram(_)) => unreachable!("CONNECT alone has no proof"),
        Admission::Verify(_, Check::Process(_)) => unreachable!("CONNECT knows no processes"),
        Admission::Verify(_, Check::Service(_)) => "a service".to_owned(),
        Admission::Refused(Refusal::Anonymous) => "anonymous".to_owned(),
        Admission::Refused(Refusal::Password) => "password".to_owned(),
    };
    let (with, without) = (Access::new(Some(users()), None), Access::default());
    for (may_be_anonymous, nobody) in [(true, "admitted nobody"), (false, "anonymous")] {
        let told = |access, user, password| told(access, &login(user, password, may_be_anonymous));
        assert_eq!(told(&with, None, None), nobody);
        assert_eq!(told(&with, None, Some("ann")), nobody);
        assert_eq!(told(&with, Some("ann"), Some("ann")), "ann true");
        for wrong in ["Ann", "ann\0", "bob"] {
            assert_eq!(told(&with, Some("ann"), Some(wrong)), "ann false");
        }
        assert_eq!(told(&with, Some("carl"), Some("ann")), "carl false");
        assert_eq!(told(&with, Some(""), Some("ann")), nobody);
        for missing in [None, Some("")] {
            assert_eq!(told(&with, Some("ann"), missing), "password");
            assert_eq!(told(&with, Some("carl"), missing), "password");
        }
        assert_eq!(told(&without, None, None), nobody);
    }
    assert_eq!(told(&without, &login(Some("any"), Some("thing"), true)), "admitted any");
    assert_eq!(told(&without, &login(Some("any"), Some("thing"), false)), "anonymous");
}

#[test]
fn a_user_stays_while_name_and_password_are_the_same() {
    let identity = |access: &Access, user, password: &str| {
        let login = Login {
            user: Some(user),
            password: Some(password.as_bytes()),
            may_be_anonymous: true,
            client_id: "c1",
        };
        match access.admit(&login) {
            Admission::Admitted(Some(identity)) | Admission::Verify(identity, _) => identity,
            other => panic!("{other:?}"),
        }
    };
    let before = Access::new(Some(users()), None);
    let ann = identity(&before, "ann", "ann");
    assert!(before.confirms(&ann, "c1") && Access::new(Some(users()), None).confirms(&ann, "c1"));
    let mut changed = Users::default();
    changed
        .add("ann", PasswordHash::new(CHEAP, b"new", b"twelve bytes").expect("within bounds"))
        .expect("new");
    assert!(!Access::new(Some(changed), None).confirms(&ann, "c1"), "another password");
    assert!(!Access::new(Some(Users::default()), None).confirms(&ann, "c1"), "no such user");
    assert!(!Access::default().confirms(&ann, "c1"), "nobody is a user any more");
    let unproved = identity(&Access::default(), "ann", "x");
    assert!(Access::default().confirms(&unproved, "c1") && !before.confirms(&unproved, "c1"));
}

#[test]
fn a_file_is_changed_line_by_line() {
    let hash = PasswordHash::parse(SHA512).expect("a hash");
    let mut file = PasswordFile::parse(&format!("# people\nann:{PBKDF2}\n\nbob:{PBKDF2}\n"));
    file.set("ann", &hash).expect("a name");
    file.set("carl", &hash).expect("a name");
    assert!(file.remove("bob") && !file.remove("bob") && !file.remove("# people"));
    assert_eq!(file.to_string(), format!("# people\nann:{SHA512}\n\ncarl:{SHA512}\n"));
    for (name, error) in [
        ("", NameError::Empty),
        ("a:b", NameError::Colon),
        ("#a", NameError::Unwritable),
        (" a", NameError::Unwritable),
        ("a\nb", NameError::Unwritable),
    ] {
        assert_eq!(file.set(name, &hash), Err(error), "{name:?}");
    }
}

#[test]
fn plain_passwords_of_a_file_are_hashed() {
    let mut file = PasswordFile::parse(&format!("# x:y\nann:secret\nbob:{SHA512}\nno colon\n"));
    let hashed = file.hash_plain(|password| PasswordHash::new(CHEAP, password, b"twelve bytes"));
    assert_eq!(hashed, Ok(1));
    let users = Users::of_file(&file.to_string()).expect("all are hashed");
    assert!(users.check("ann", b"secret").run() && users.check("bob", b"swordfish").run());
    let before = file.clone();
    file.set("carl", &PasswordHash::parse(SHA512).expect("a hash")).expect("a name");
    let mut broken = PasswordFile::parse("ann:one\nbob:two\n");
    let refuse = |password: &[u8]| {
        if password == b"two" { Err("no") } else { Ok(PasswordHash::parse(SHA512).expect("a hash")) }
    };
    assert_eq!(broken.hash_plain(refuse), Err("no"));
    assert_eq!(broken.to_string(), "ann:one\nbob:two\n", "as it was");
    assert_ne!(before, file);
}

#[test]
fn checks_in_the_same_memory_come_to_the_same_answer_and_add_none() {
    let scheme = |memory_kib| Scheme::Argon2id { memory_kib, passes: 1, lanes: 1 };
    let hash = |memory_kib| PasswordHash::new(scheme(memory_kib), b"right", b"twelve bytes").expect("a hash");
    let mut workspace = Workspace::default();
    for memory_kib in [16, 64, 32, 64] {
        let hash = hash(memory_kib);
        assert!(hash.matches_in(b"right", &mut workspace) && !hash.matches_in(b"wrong", &mut workspace));
    }
    assert_eq!(workspace.size_bytes(), 64 * 1_024);
}

/// The answer to the first message of an exchange without a password, for this name and client identifier.
fn scram_answer(access: &Access, name: &str, client_id: &str) -> String {
    let method = (Mechanism::Sha512, Channel::Plain);
    let message = format!("n,,n={name},r=abc");
    let find = |name: &str| access.scram(method.0, name, client_id).expect("there are users").1;
    Exchange::begin(method, message.as_bytes(), 1, find).expect("a message").1
}

/// A salt that followed from a hash would be a way to try passwords without the broker.
#[test]
fn the_salt_of_an_unknown_name_follows_from_a_secret_and_from_no_password() {
    let of = |password: &[u8], secret: u8| {
        let mut users = Users::default();
        let hash = PasswordHash::new(Scheme::MOSQUITTO, password, b"twelve bytes").expect("a hash");
        users.add("admin", hash).expect("a user");
        Access::new(Some(users), None).with_secret(Secret::new([secret; Secret::BYTES]))
    };
    let answer = |access: &Access| scram_answer(access, "nobody", "");
    assert_eq!(answer(&of(b"right", 1)), answer(&of(b"other", 1)));
    assert_ne!(answer(&of(b"right", 1)), answer(&of(b"right", 2)));
    assert!(answer(&of(b"right", 1)).ends_with(",i=101"), "as for users");
}

/// Dynamic security knows hashes too: its clients and other names cost the same.
#[test]
fn a_wrong_password_costs_the_same_for_clients_of_dynamic_security_and_for_nobody() {
    let costly = Scheme::Pbkdf2 { rounds: 5_000 };
    let hash = PasswordHash::new(costly, b"right", b"twelve bytes").expect("a hash").to_string();
    let file = format!("{{\"clients\":[{{\"username\":\"ann\",\"encoded_password\":{hash:?}}}]}}");
    let dynamic = Arc::new(DynamicSecurity::parse(&file).expect("a file"));
    let access = Access::new(None, None).with_dynamic_security(dynamic);
    assert!(scram_answer(&access, "nobody", "").ends_with(",i=5000"));
    let check = |user| {
        let login =
            Login { user: Some(user), password: Some(b"wrong"), client_id: "", may_be_anonymous: true };
        match access.admit(&login) {
            Admission::Verify(_, Check::Password(check)) => format!("{check:?}"),
            other => panic!("{other:?}"),
        }
    };
    assert!(check("ann").contains("5000") && check("nobody").contains("5000"), "{}", check("nobody"));
}

/// Whether a client identifier is bound to a user is not told before the password is proved.
#[test]
fn an_exchange_looks_the_same_with_the_client_identifier_of_somebody_else() {
    let hash = PasswordHash::new(Scheme::MOSQUITTO, b"right", b"twelve bytes").expect("a hash").to_string();
    let client = format!("\"username\":\"ann\",\"clientid\":\"frog\",\"encoded_password\":{hash:?}");
    let dynamic =
        Arc::new(DynamicSecurity::parse(&format!("{{\"clients\":[{{{client}}}]}}")).expect("a file"));
    let access = Access::new(None, None).with_dynamic_security(dynamic);
    assert_eq!(scram_answer(&access, "ann", "frog"), scram_answer(&access, "ann", "toad"));
    let keys = |client_id| {
        format!("{:?}", access.scram(Mechanism::Sha512, "ann", client_id).expect("clients").0.proof())
    };
    assert!(keys("frog") != "None" && keys("toad") == "None");
}
