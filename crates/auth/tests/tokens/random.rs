//! Random tokens and keys: nothing that a peer or an issuer sends ends the broker, and no change of a token is accepted.

use proptest::prelude::*;

use super::*;

/// A place in a text, and the bytes that take the place of those there.
fn change() -> impl Strategy<Value = (prop::sample::Index, usize, Vec<u8>)> {
    (any::<prop::sample::Index>(), 0..4_usize, prop::collection::vec(any::<u8>(), 0..4))
}

fn changed(text: &[u8], (place, removed, added): (prop::sample::Index, usize, Vec<u8>)) -> Vec<u8> {
    let from = place.index(text.len());
    let until = (from + removed).min(text.len());
    [&text[..from], &added, &text[until..]].concat()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_changed_token_is_refused(line in any::<prop::sample::Index>(), change in change()) {
        let keys = keys(PEM).and(&keys(SECRET));
        let lines: Vec<&str> = SIGNED.lines().collect();
        let (_, token) = line.get(&lines).split_once('\t').expect("two columns");
        let other = changed(token.as_bytes(), change);
        let checked = Tokens::new(TokenRules::default(), keys).check(&other, None, NOW);
        prop_assert_eq!(checked.is_ok(), other == token.as_bytes());
    }

    #[test]
    fn any_bytes_may_be_a_token(bytes in prop::collection::vec(any::<u8>(), 0..200), claims in ".{0,80}") {
        prop_assert!(tokens().check(&bytes, None, NOW).is_err());
        // Signed by the issuer, and no claims.
        let _ = tokens().check(token(&claims).as_bytes(), None, NOW);
    }

    #[test]
    fn any_text_may_be_a_file_of_keys(text in ".{0,200}", change in change()) {
        let _ = TokenKeys::of_file(&text);
        let _ = TokenKeys::of_url(text.as_bytes());
        let file = changed(PEM.as_bytes(), change);
        let _ = TokenKeys::of_file(&String::from_utf8_lossy(&file));
    }

    /// The reader of DER sees what base64 cannot break.
    #[test]
    fn any_bytes_may_be_a_public_key(block in any::<prop::sample::Index>(), change in change()) {
        let blocks: Vec<&str> = PEM.split("-----BEGIN PUBLIC KEY-----").skip(1).collect();
        let body = block.get(&blocks).split("-----").next().unwrap_or_default().replace('\n', "");
        let der = changed(&STANDARD.decode(body).expect("base64"), change);
        let pem = format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(&der));
        if let Ok(keys) = TokenKeys::of_file(&pem) {
            let (_, token) = SIGNED.lines().next().and_then(|line| line.split_once('\t')).expect("a token");
            let _ = Tokens::new(TokenRules::default(), keys).check(token.as_bytes(), None, NOW);
        }
    }
}
