//! Tokens: those that other programs have signed, and those of attackers.

use std::sync::Arc;
use std::time::Duration;

use auth::{
    Access, Admission, Algorithm, Check, KeysError, Login, PasswordHash, Question, Refusal, Scheme,
    SourceSettings, TOKEN_BYTES_MAX, TokenKeys, TokenProblem, TokenRules, Tokens, UserService, UserSource,
    Users, Verdict, Voucher,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use ring::{hmac, signature};

mod attacks;
mod keys;
mod random;

/// Public keys of each kind, which another program has made: RSA, P-256, P-384 and Ed25519.
const PEM: &str = include_str!("keys.pem");
/// A token for each algorithm, of the user `frog`, which another program has signed with these keys and with [`SECRET`].
const SIGNED: &str = include_str!("signed.tsv");
const SECRET: &str = "a secret for tests, with sixty-four bytes at least, as HS512 needs";

/// The time of these tests, in seconds since 1970.
const NOW: u64 = 1_800_000_000;

fn encode(part: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(part)
}

/// A token with this header and these claims, signed with a secret.
fn authenticated(header: &str, claims: impl AsRef<[u8]>, secret: &[u8]) -> String {
    let message = format!("{}.{}", encode(header), encode(claims));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message.as_bytes());
    format!("{message}.{}", encode(tag))
}

/// A token that the issuer with [`SECRET`] has signed.
fn token(claims: impl AsRef<[u8]>) -> String {
    authenticated(r#"{"alg":"HS256"}"#, claims, SECRET.as_bytes())
}

fn keys(text: &str) -> TokenKeys {
    TokenKeys::of_file(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn tokens() -> Tokens {
    Tokens::new(TokenRules::default(), keys(SECRET))
}

/// The user whom a token proves to these rules, and the time until which it is good.
fn claims_of(rules: TokenRules, claims: &str) -> Result<(String, Option<u64>), TokenProblem> {
    let bearer = Tokens::new(rules, keys(SECRET)).check(token(claims).as_bytes(), None, NOW)?;
    Ok((bearer.user.to_string(), bearer.until_unix_secs))
}

#[test]
fn tokens_that_another_program_has_signed_are_accepted() {
    let keys = keys(PEM).and(&keys(SECRET));
    assert_eq!(SIGNED.lines().count(), Algorithm::NAMED.len());
    for line in SIGNED.lines() {
        let (name, token) = line.split_once('\t').expect("two columns");
        let bearer = Tokens::new(TokenRules::default(), keys.clone()).check(token.as_bytes(), None, NOW);
        let bearer = bearer.unwrap_or_else(|problem| panic!("{name}: {problem:?}"));
        assert_eq!((&*bearer.user, bearer.until_unix_secs), ("frog", Some(4_102_444_800)), "{name}");
        // Any other bit, in any part, and it is refused.
        for place in [5, token.len() / 2, token.len() - 8] {
            let mut other = token.to_owned().into_bytes();
            other[place] = if other[place] == b'A' { b'B' } else { b'A' };
            let tokens = Tokens::new(TokenRules::default(), keys.clone());
            assert!(tokens.check(&other, None, NOW).is_err(), "{name}");
        }
        let algorithm = Algorithm::named(name).expect("its name");
        let algorithms = TokenRules::default().algorithms.into_iter().filter(|one| *one != algorithm);
        let rules = TokenRules { algorithms: algorithms.collect(), ..TokenRules::default() };
        let checked = Tokens::new(rules, keys.clone()).check(token.as_bytes(), None, NOW);
        assert_eq!(checked, Err(TokenProblem::Algorithm), "{name} is not allowed");
    }
}

/// The examples of RFC 7515, appendices A.1 to A.3.
#[test]
fn the_examples_of_the_standard_are_accepted() {
    const CLAIMS: &str =
        "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    const N: &str = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ";
    let rows = [
        (
            r#"{"kty":"oct","k":"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"}"#.to_owned(),
            "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9",
            "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
        ),
        (
            format!(r#"{{"kty":"RSA","e":"AQAB","n":"{N}"}}"#),
            "eyJhbGciOiJSUzI1NiJ9",
            "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw",
        ),
        (
            r#"{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}"#.to_owned(),
            "eyJhbGciOiJFUzI1NiJ9",
            "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
        ),
    ];
    let rules = TokenRules { user_claim: "iss".to_owned(), ..TokenRules::default() };
    for (jwk, header, signature) in rows {
        let tokens = Tokens::new(rules.clone(), keys(&jwk));
        let token = format!("{header}.{CLAIMS}.{signature}");
        let check = |unix_secs| tokens.check(token.as_bytes(), None, unix_secs);
        assert_eq!(
            check(1_300_819_379).map(|bearer| bearer.user.to_string()),
            Ok("joe".to_owned()),
            "{header}"
        );
        assert_eq!(check(1_300_819_380), Err(TokenProblem::Expired));
    }
}

#[test]
fn claims_decide_whom_a_token_is_for() {
    let rules = TokenRules {
        issuer: Some("pond".to_owned()),
        audiences: vec!["mqtt".to_owned(), "house".to_owned()],
        user_claim: "name".to_owned(),
        leeway_secs: 30,
        ..TokenRules::default()
    };
    let good =
        r#"{"name":"frog","sub":"x","exp":1800000000,"nbf":1800000030,"iss":"pond","aud":["a","house"]}"#;
    assert_eq!(claims_of(rules.clone(), good), Ok(("frog".to_owned(), Some(NOW + 30))));
    let rows = [
        (r#"["a","house"]"#, r#""mqtt""#, None),
        ("1800000000", "1799999971.9", None),
        ("1800000000", "1799999970", Some(TokenProblem::Expired)),
        ("1800000030", "1800000031", Some(TokenProblem::NotYet)),
        (r#""pond""#, r#""sea""#, Some(TokenProblem::Issuer)),
        (r#""pond""#, r#"["pond"]"#, Some(TokenProblem::Issuer)),
        (r#","iss":"pond""#, "", Some(TokenProblem::Issuer)),
        (r#"["a","house"]"#, r#"["a"]"#, Some(TokenProblem::Audience)),
        (r#"["a","house"]"#, r#"[]"#, Some(TokenProblem::Audience)),
        (r#"["a","house"]"#, r#"{"mqtt":1}"#, Some(TokenProblem::Audience)),
        (r#","aud":["a","house"]"#, "", Some(TokenProblem::Audience)),
        (r#""name":"frog","#, "", Some(TokenProblem::User)),
    ];
    for (part, other, problem) in rows {
        assert!(good.contains(part));
        let claims = good.replace(part, other);
        assert_eq!(claims_of(rules.clone(), &claims).err(), problem, "{claims}");
    }
    let unnamed = claims_of(TokenRules::default(), r#"{"sub":"frog","exp":1800000001,"aud":"mqtt"}"#);
    assert_eq!(unnamed, Err(TokenProblem::Audience), "a broker without a name is no audience");
}

fn users() -> Users {
    let mut users = Users::default();
    let hash = PasswordHash::new(Scheme::MOSQUITTO, b"secret", b"twelve bytes").expect("a hash");
    users.add("ann", hash).expect("a user");
    users
}

/// The kind of the check that a CONNECT leads to.
fn admission(access: &Access, user: Option<&str>, password: &str, may_be_anonymous: bool) -> &'static str {
    let password = Some(password.as_bytes()).filter(|password| !password.is_empty());
    match access.admit(&Login { user, password, client_id: "c", may_be_anonymous }) {
        Admission::Verify(_, Check::Token(_)) => "token",
        Admission::Verify(_, Check::Scram(_)) => unreachable!("CONNECT alone has no proof"),
        Admission::Verify(_, Check::Process(_)) => unreachable!("CONNECT knows no processes"),
        Admission::Verify(_, Check::Password(_)) => "password",
        Admission::Verify(_, Check::Service(_)) => "service",
        Admission::Refused(Refusal::Password) => "refused",
        Admission::Refused(Refusal::Anonymous) => "anonymous refused",
        Admission::Admitted(identity) => identity.map_or("anonymous", |_| "named"),
    }
}

#[test]
fn a_password_with_the_form_of_a_token_is_one_where_there_are_tokens() {
    let tokens = Some(Arc::new(tokens()));
    let only = Access::default().with_tokens(tokens.clone());
    let both = Access::new(Some(users()), None).with_tokens(tokens);
    let neither = Access::new(Some(users()), None);
    let token = token(r#"{"sub":"frog"}"#);
    let rows = [
        (Some("ann"), &*token, "token", "token", "password"),
        (None, &token, "token", "token", "anonymous"),
        (Some(""), &token, "token", "token", "anonymous"),
        (Some("ann"), "secret", "token", "password", "password"),
        (Some("ann"), "eyJ.a", "token", "password", "password"),
        (Some("ann"), "", "refused", "refused", "refused"),
        (None, "secret", "token", "anonymous", "anonymous"),
        (None, "", "anonymous", "anonymous", "anonymous"),
    ];
    for (user, password, of_only, of_both, of_neither) in rows {
        let found = [&only, &both, &neither].map(|access| admission(access, user, password, true));
        assert_eq!(found, [of_only, of_both, of_neither], "{user:?} {password}");
    }
    assert_eq!(admission(&both, None, "", false), "anonymous refused");
    assert_eq!(admission(&both, None, &token, false), "token");
}

#[derive(Debug)]
struct Nobody;

impl UserService for Nobody {
    fn ask(&self, _: &Question<'_>) -> Verdict {
        Verdict::Unknown
    }
}

#[test]
fn a_service_is_asked_about_names_that_are_no_users_here() {
    let settings = SourceSettings { place: "a", number: 0, remembers: Duration::ZERO };
    let source = UserSource::new(Voucher::Http, settings, Arc::new(Nobody));
    let with = |access: Access| access.with_services(Arc::from([source.clone()]));
    let only = with(Access::default());
    let users = with(Access::new(Some(users()), None));
    let tokens = with(Access::default().with_tokens(Some(Arc::new(tokens()))));
    let number = source.number();
    assert!(only.still_knows("newt", "n1", number) && users.still_knows("newt", "n1", number));
    assert!(!users.still_knows("ann", "n1", number), "the rights of a user here are not for it");
    let token = token(r#"{"sub":"frog"}"#);
    let rows = [
        (Some("ann"), "secret", "service", "password", "service"),
        (Some("newt"), "secret", "service", "service", "service"),
        (Some("newt"), &*token, "service", "service", "token"),
        (None, &token, "anonymous refused", "anonymous refused", "token"),
        (Some("newt"), "", "refused", "refused", "refused"),
        (None, "secret", "anonymous refused", "anonymous refused", "anonymous refused"),
        (Some(""), "secret", "anonymous refused", "anonymous refused", "anonymous refused"),
    ];
    for (user, password, of_service, of_users, of_tokens) in rows {
        let found = [&only, &users, &tokens].map(|access| admission(access, user, password, false));
        assert_eq!(found, [of_service, of_users, of_tokens], "{user:?} {password:?}");
    }
    assert_eq!(admission(&only, None, "", true), "anonymous");
    assert!(only.vouches("newt", number) && !Access::default().vouches("newt", number));
}
