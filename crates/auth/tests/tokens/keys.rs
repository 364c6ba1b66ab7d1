//! Keys of issuers: their files, their names, and their change.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

const CLAIMS: &str = r#"{"sub":"frog","exp":1900000000}"#;

/// A key that signs, with the name `id`.
struct Signer {
    id: &'static str,
    pair: EcdsaKeyPair,
}

impl Signer {
    fn new(id: &'static str) -> Self {
        let how = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(how, &SystemRandom::new()).expect("a key");
        let pair = EcdsaKeyPair::from_pkcs8(how, document.as_ref(), &SystemRandom::new()).expect("a key");
        Self { id, pair }
    }

    fn jwk(&self) -> String {
        let point: &[u8] = self.pair.public_key().as_ref();
        let (x, y) = (encode(&point[1..33]), encode(&point[33..]));
        format!(r#"{{"kty":"EC","crv":"P-256","kid":"{}","x":"{x}","y":"{y}"}}"#, self.id)
    }

    /// A token of this key that names the key `kid`.
    fn sign(&self, kid: Option<&str>) -> String {
        let kid = kid.map_or_else(String::new, |kid| format!(r#","kid":"{kid}""#));
        let message = format!("{}.{}", encode(format!(r#"{{"alg":"ES256"{kid}}}"#)), encode(CLAIMS));
        let signature: signature::Signature =
            self.pair.sign(&SystemRandom::new(), message.as_bytes()).expect("a signature");
        format!("{message}.{}", encode(signature))
    }
}

fn jwks(keys: &[String]) -> String {
    format!(r#"{{"keys":[{}]}}"#, keys.join(","))
}

#[test]
fn keys_change_while_both_are_published() {
    let (old, new) = (Signer::new("2026-10"), Signer::new("2026-11"));
    let keys = |signers: &[&Signer]| {
        let list: Vec<String> = signers.iter().map(|signer| signer.jwk()).collect();
        TokenKeys::of_url(jwks(&list).as_bytes()).expect("keys")
    };
    let missed = Arc::new(AtomicU64::new(0));
    let tokens = |signers: &[&Signer]| {
        Tokens::new(TokenRules::default(), keys(signers)).with_missed(Arc::clone(&missed))
    };
    let check = |tokens: &Tokens, signer: &Signer| {
        tokens.check(signer.sign(Some(signer.id)).as_bytes(), None, NOW).map(|bearer| bearer.key)
    };
    let (before, during, after) = (tokens(&[&old]), tokens(&[&old, &new]), tokens(&[&new]));
    let key = check(&before, &old).expect("a token");
    assert_eq!(check(&before, &new), Err(TokenProblem::UnknownKey));
    assert_eq!(missed.load(Ordering::Relaxed), 1, "somebody may look for new keys");
    assert_eq!(check(&during, &old), Ok(key));
    assert!(check(&during, &new).is_ok_and(|other| other != key && during.has_key(other)));
    assert_eq!(check(&after, &old), Err(TokenProblem::UnknownKey));
    assert!(before.has_key(key) && during.has_key(key) && !after.has_key(key));
    // A name is only a hint: the signature counts.
    let forged = new.sign(Some(old.id));
    assert_eq!(during.check(forged.as_bytes(), None, NOW), Err(TokenProblem::Signature));
    assert!(during.check(new.sign(None).as_bytes(), None, NOW).is_ok(), "two keys are tried");
}

#[test]
fn a_token_without_a_key_name_is_not_tried_with_many_keys() {
    let signers: Vec<Signer> = ["a", "b", "c", "d", "e"].map(Signer::new).into();
    let list: Vec<String> = signers.iter().map(Signer::jwk).collect();
    let tokens = |count: usize| Tokens::new(TokenRules::default(), keys(&jwks(&list[..count])));
    let check = |count: usize, kid| tokens(count).check(signers[0].sign(kid).as_bytes(), None, NOW).err();
    assert_eq!(check(4, None), None);
    assert_eq!(check(5, None), Some(TokenProblem::UnknownKey));
    assert_eq!(check(5, Some("a")), None);
    assert_eq!(check(5, Some("f")), Some(TokenProblem::UnknownKey));
    assert_eq!(check(5, Some("")), Some(TokenProblem::UnknownKey));
}

#[test]
fn without_keys_nobody_is_to_blame() {
    let none = Tokens::default();
    let token = Signer::new("a").sign(None);
    assert_eq!(none.check(token.as_bytes(), None, NOW), Err(TokenProblem::NoKeys));
}

/// Keys that do not sign tokens are left out. Where no other is left, the text is refused.
#[test]
fn a_jwks_has_a_bounded_number_of_usable_keys() {
    let good = Signer::new("a").jwk();
    let with = |member: &str| good.replacen('{', &format!("{{{member},"), 1);
    let unusable = [
        with(r#""use":"enc""#),
        with(r#""key_ops":["sign"]"#),
        with(r#""alg":"ES384""#),
        with(r#""alg":"RSA-OAEP""#),
        good.replace("P-256", "P-384"),
        good.replace("P-256", "secp256k1"),
        good.replace("\"y\"", "\"z\""),
        r#"{"kty":"RSA","e":"AQAB","n":"AQAB"}"#.to_owned(),
        r#"{"kty":"RSA","e":"AQAB"}"#.to_owned(),
        r#"{"kty":"oct","k":"c2hvcnQ"}"#.to_owned(),
        r#"{"kty":"quantum"}"#.to_owned(),
        "{}".to_owned(),
        "7".to_owned(),
    ];
    for jwk in &unusable {
        assert_eq!(
            TokenKeys::of_url(jwks(std::slice::from_ref(jwk)).as_bytes()),
            Err(KeysError::NoKey),
            "{jwk}"
        );
        let both = TokenKeys::of_url(jwks(&[jwk.clone(), good.clone()]).as_bytes());
        assert_eq!(both.map(|keys| keys.len()), Ok(1), "{jwk}");
    }
    for usable in [with(r#""use":"sig""#), with(r#""key_ops":["verify"]"#), with(r#""alg":"ES256""#)] {
        assert_eq!(TokenKeys::of_url(jwks(&[usable]).as_bytes()).map(|keys| keys.len()), Ok(1));
    }
    let many = jwks(&vec![good.clone(); 10_000]);
    assert_eq!(TokenKeys::of_url(many.as_bytes()), Err(KeysError::TooMany));
    for text in ["", "{}", "[]", "<html>", r#"{"keys":{}}"#, r#"{"keys":[],"keys":[]}"#, r#"{"keys":null}"#] {
        assert_eq!(TokenKeys::of_url(text.as_bytes()), Err(KeysError::Jwks), "{text}");
    }
    assert_eq!(TokenKeys::of_url(br#"{"keys":[]}"#), Err(KeysError::NoKey));
    assert_eq!(TokenKeys::of_url(b"{\"keys\":\"\xFF\"}"), Err(KeysError::Jwks));
    // Everybody who can fetch the keys would know the secret.
    let secret = format!(r#"{{"kty":"oct","k":"{}"}}"#, encode(SECRET));
    assert_eq!(TokenKeys::of_url(jwks(std::slice::from_ref(&secret)).as_bytes()), Err(KeysError::NoKey));
    assert_eq!(keys(&jwks(std::slice::from_ref(&secret))), keys(&secret));
    let short = format!(r#"{{"kty":"oct","k":"{}"}}"#, encode(&SECRET[..31]));
    assert_eq!(TokenKeys::of_file(&short), Err(KeysError::NoKey));
}

/// RFC 7518, section 3.2: a secret is as long as the hash.
#[test]
fn a_short_secret_is_for_short_hashes_only() {
    let named =
        |name| SIGNED.lines().find_map(|line| line.split_once('\t').filter(|(known, _)| *known == name));
    for (bytes, problems) in [(47, [true, true]), (48, [false, true]), (64, [false, false])] {
        let tokens = Tokens::new(TokenRules::default(), keys(&SECRET[..bytes]));
        let is_unknown = ["HS384", "HS512"].map(|name| {
            let (_, token) = named(name).expect("it is in the table");
            tokens.check(token.as_bytes(), None, NOW) == Err(TokenProblem::UnknownKey)
        });
        assert_eq!(is_unknown, problems, "{bytes} bytes");
    }
}

#[test]
fn a_file_has_public_keys_or_a_secret_that_is_safe() {
    let block = |label: &str, body: &str| format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n");
    let body: String = PEM.lines().skip(1).take_while(|line| !line.starts_with('-')).collect();
    let long = "x".repeat(32);
    let rows = [
        (block("PRIVATE KEY", &body), KeysError::Private),
        (block("RSA PRIVATE KEY", &body), KeysError::Private),
        (format!("{PEM}{}", block("EC PRIVATE KEY", &body)), KeysError::Private),
        (r#"{"kty":"OKP","crv":"Ed25519","x":"AA","d":"AA"}"#.to_owned(), KeysError::Private),
        (block("CERTIFICATE", &body), KeysError::Kind),
        (block("PUBLIC KEY", &body[4..]), KeysError::Kind),
        (block("PUBLIC KEY", ""), KeysError::Kind),
        (block("PUBLIC KEY", "?"), KeysError::Pem),
        ("-----BEGIN PUBLIC KEY-----\n".to_owned(), KeysError::Pem),
        (block("PUBLIC KEY", &body).repeat(101), KeysError::TooMany),
        (body.clone(), KeysError::PublicSecret),
        (format!("{body}\n"), KeysError::PublicSecret),
        (format!("ssh-ed25519 {long}"), KeysError::PublicSecret),
        (long[1..].to_owned(), KeysError::ShortSecret),
        (format!("{}\n", &long[1..]), KeysError::ShortSecret),
        (String::new(), KeysError::ShortSecret),
        (format!("{long}\n\n"), KeysError::Secret),
        (format!("{long}\n{long}\n"), KeysError::Secret),
        (format!("{long}\0"), KeysError::Secret),
        (format!("{{{long}"), KeysError::Jwks),
    ];
    for (text, error) in rows {
        assert_eq!(TokenKeys::of_file(&text), Err(error), "{text}");
    }
    assert_eq!(keys(&format!("{long}\r\n")), keys(&long));
    assert_eq!((keys(PEM).len(), keys(&PEM.replace('\n', "\r\n")).len()), (4, 4));
    let shown = format!("{:?}", keys(SECRET));
    assert!(!shown.contains("secret for tests"), "{shown}");
    let rsa = format!("Comment\n{}", block("PUBLIC KEY", &body));
    assert_eq!(keys(&rsa).len(), 1);
}
