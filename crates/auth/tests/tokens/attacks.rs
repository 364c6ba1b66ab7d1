//! Tokens of attackers, and of issuers with mistakes.

use super::*;

#[test]
fn headers_that_say_how_to_check_a_token_are_not_believed() {
    let good = r#"{"sub":"frog","exp":1900000000}"#;
    let claims = encode(good);
    let unsigned = |header: &str| format!("{}.{claims}.", encode(header));
    let signed = |header: &str| authenticated(header, good, SECRET.as_bytes());
    let rows = [
        (unsigned(r#"{"alg":"none"}"#), TokenProblem::Algorithm),
        (unsigned(r#"{"alg":"None"}"#), TokenProblem::Algorithm),
        (signed(r#"{"alg":"none"}"#), TokenProblem::Algorithm),
        (signed(r#"{"alg":"hs256"}"#), TokenProblem::Algorithm),
        (signed(r#"{"alg":""}"#), TokenProblem::Algorithm),
        (signed(r#"{"alg":["HS256"]}"#), TokenProblem::Malformed),
        (signed(r#"{}"#), TokenProblem::Malformed),
        (unsigned(r#"{"alg":"HS256"}"#), TokenProblem::Signature),
        (signed(r#"{"alg":"HS512"}"#), TokenProblem::Signature),
        (signed(r#"{"alg":"ES256"}"#), TokenProblem::UnknownKey),
        (signed(r#"{"alg":"none","alg":"HS256"}"#), TokenProblem::Malformed),
        (signed(r#"{"alg":"HS256","alg":"none"}"#), TokenProblem::Malformed),
        (signed(r#"{"alg":"HS256","crit":["b64"],"b64":false}"#), TokenProblem::Critical),
        (signed(r#"{"alg":"HS256","kid":7}"#), TokenProblem::Malformed),
        (signed(r#"["HS256"]"#), TokenProblem::Malformed),
    ];
    for (token, problem) in rows {
        assert_eq!(tokens().check(token.as_bytes(), None, NOW), Err(problem), "{token}");
    }
    // Keys that a token brings along are not used.
    let own = r#"{"alg":"HS256","jwk":{"kty":"oct","k":"AAAA"},"jku":"https://evil.example","x5u":"https://evil.example"}"#;
    assert!(tokens().check(signed(own).as_bytes(), None, NOW).is_ok());
    let forged = authenticated(own, good, &[0, 0, 0]);
    assert_eq!(tokens().check(forged.as_bytes(), None, NOW), Err(TokenProblem::Signature));
}

/// The public key of an issuer is known to everybody, and is the secret of no HMAC.
#[test]
fn a_public_key_is_never_a_secret() {
    let tokens = Tokens::new(TokenRules::default(), keys(PEM));
    let lines: String = PEM.lines().filter(|line| !line.starts_with('-')).collect();
    let first =
        format!("{}-----END PUBLIC KEY-----\n", PEM.split("-----END").next().expect("the first block"));
    let der = STANDARD.decode(first.lines().filter(|line| !line.starts_with('-')).collect::<String>());
    let secrets = [
        PEM.as_bytes(),
        PEM.trim_end().as_bytes(),
        first.as_bytes(),
        lines.as_bytes(),
        &der.expect("base64"),
    ];
    for secret in secrets {
        let token = authenticated(r#"{"alg":"HS256"}"#, r#"{"sub":"frog","exp":1900000000}"#, secret);
        assert_eq!(tokens.check(token.as_bytes(), None, NOW), Err(TokenProblem::UnknownKey));
    }
    // A key of RSA checks no signature of another kind, and neither does a secret.
    for (name, token) in SIGNED.lines().filter_map(|line| line.split_once('\t')) {
        let is_ours = name.starts_with("RS") || name.starts_with("PS");
        let checked = Tokens::new(TokenRules::default(), keys(&first)).check(token.as_bytes(), None, NOW);
        assert_eq!(checked.is_ok(), is_ours, "{name}");
        let checked = super::tokens().check(token.as_bytes(), None, NOW);
        assert_eq!(checked.is_ok(), name.starts_with("HS"), "{name}");
    }
}

#[test]
fn times_that_are_no_times_are_refused() {
    let rows = [
        ("", TokenProblem::NoExpiry),
        (r#","exp":253402300800"#, TokenProblem::Time),
        (r#","exp":9467000000000"#, TokenProblem::Time),
        (r#","exp":1900000000000"#, TokenProblem::Time),
        (r#","exp":18446744073709551615"#, TokenProblem::Time),
        (r#","exp":18446744073709551616"#, TokenProblem::Time),
        (r#","exp":1e300"#, TokenProblem::Time),
        (r#","exp":1e999"#, TokenProblem::Malformed),
        (r#","exp":-1"#, TokenProblem::Time),
        (r#","exp":-0.5"#, TokenProblem::Time),
        (r#","exp":"1900000000""#, TokenProblem::Time),
        (r#","exp":null"#, TokenProblem::Time),
        (r#","exp":true"#, TokenProblem::Time),
        (r#","exp":[1900000000]"#, TokenProblem::Time),
        (r#","exp":0"#, TokenProblem::Expired),
        (r#","exp":1800000000"#, TokenProblem::Expired),
        (r#","exp":1800000000.9"#, TokenProblem::Expired),
        (r#","exp":1700000000,"exp":1900000000"#, TokenProblem::Malformed),
        (r#","exp":1900000000,"nbf":1800000001"#, TokenProblem::NotYet),
        (r#","exp":1900000000,"nbf":1850000000"#, TokenProblem::NotYet),
        (r#","exp":1900000000,"nbf":"1""#, TokenProblem::Time),
        (r#","exp":1900000000,"nbf":-1"#, TokenProblem::Time),
        (r#","exp":1900000000,"nbf":9467000000000"#, TokenProblem::Time),
    ];
    for (times, problem) in rows {
        let claims = format!(r#"{{"sub":"frog"{times}}}"#);
        assert_eq!(claims_of(TokenRules::default(), &claims), Err(problem), "{claims}");
    }
    let latest = r#"{"sub":"frog","exp":253402300799}"#;
    let rules = TokenRules { leeway_secs: u64::MAX, ..TokenRules::default() };
    assert_eq!(claims_of(rules, latest), Ok(("frog".to_owned(), Some(u64::MAX))));
    let rules = TokenRules { requires_expiry: false, ..TokenRules::default() };
    assert_eq!(claims_of(rules.clone(), r#"{"sub":"frog"}"#), Ok(("frog".to_owned(), None)));
    assert_eq!(claims_of(rules, r#"{"sub":"frog","exp":-1}"#), Err(TokenProblem::Time));
}

#[test]
fn user_names_are_texts_that_a_client_may_have() {
    for name in ["", "a\\u0000b", "a\\nb", "\\u007f", "\\u0085"] {
        let claims = format!(r#"{{"sub":"{name}","exp":1900000000}}"#);
        assert_eq!(claims_of(TokenRules::default(), &claims), Err(TokenProblem::User), "{name}");
    }
    for value in ["null", "7", r#"["frog"]"#, "{}", "true"] {
        let claims = format!(r#"{{"sub":{value},"exp":1900000000}}"#);
        assert_eq!(claims_of(TokenRules::default(), &claims), Err(TokenProblem::User), "{value}");
    }
    // Rules treat wildcards in a name as such, whatever proves the name.
    for name in ["a+b", "#", "spiffe://pond/frog", "+/#", "Ünï", "\u{1F438}"] {
        let claims = format!(r#"{{"sub":"{name}","exp":1900000000}}"#);
        assert_eq!(claims_of(TokenRules::default(), &claims), Ok((name.to_owned(), Some(1_900_000_000))));
    }
    for claims in [
        &b"{\"sub\":\"\xFF\",\"exp\":1900000000}"[..],
        b"{\"sub\":\"\xED\xA0\x80\",\"exp\":1900000000}",
        b"{\"sub\":\"\\ud800\",\"exp\":1900000000}",
        b"{\"sub\":\"ann\",\"sub\":\"frog\",\"exp\":1900000000}",
    ] {
        let checked = tokens().check(token(claims).as_bytes(), None, NOW);
        assert_eq!(checked, Err(TokenProblem::Malformed), "{claims:?}");
    }
}

#[test]
fn a_user_name_in_connect_is_the_one_in_the_token() {
    let token = token(r#"{"sub":"frog","exp":1900000000}"#);
    let check = |user| tokens().check(token.as_bytes(), user, NOW).map(|bearer| bearer.user.to_string());
    assert_eq!(check(None), Ok("frog".to_owned()));
    assert_eq!(check(Some("frog")), Ok("frog".to_owned()));
    for other in ["toad", "Frog", "frog ", "fro"] {
        assert_eq!(check(Some(other)), Err(TokenProblem::OtherUser), "{other}");
    }
}

#[test]
fn a_text_that_is_no_token_is_malformed() {
    let good = token(r#"{"sub":"frog","exp":1900000000}"#);
    let [header, claims, tag] = good.split('.').collect::<Vec<_>>()[..] else { panic!("three parts") };
    let rows = [
        String::new(),
        "..".to_owned(),
        "secret".to_owned(),
        format!("{header}.{claims}"),
        format!("{header}.{claims}.{tag}.{tag}"),
        format!("{header}.{claims}.{tag}.{tag}.{tag}"),
        format!("{header}.{claims}.{tag}="),
        format!("{header}.{claims}.{tag}\n"),
        format!(" {good}"),
        format!("Bearer {good}"),
        format!("{header}!.{claims}.{tag}"),
        format!("{header}.{claims}.{}", tag.replace(['-', '_'], "+"))
            .replace(tag, &format!("+{}", &tag[1..])),
        format!("{}.{claims}.{tag}", encode("eyJ")),
    ];
    for text in rows {
        assert_eq!(tokens().check(text.as_bytes(), None, NOW), Err(TokenProblem::Malformed), "{text}");
    }
    let bytes = [good.as_bytes(), b"\xFF"].concat();
    assert_eq!(tokens().check(&bytes, None, NOW), Err(TokenProblem::Malformed));
    // The last letter of base64 has bits that mean nothing: a second text would be the same token.
    let last = if good.ends_with('A') { 'B' } else { 'A' };
    let twin = format!("{}{last}", &good[..good.len() - 1]);
    assert!(tokens().check(twin.as_bytes(), None, NOW).is_err());
    let deep = token(format!("{{\"a\":{}{}}}", "[".repeat(4_000), "]".repeat(4_000)));
    assert_eq!(tokens().check(deep.as_bytes(), None, NOW), Err(TokenProblem::Malformed));
}

#[test]
fn a_huge_token_is_refused_unread() {
    let name = |bytes: usize| format!(r#"{{"sub":"{}","exp":1900000000}}"#, "x".repeat(bytes));
    let long = token(name(70_000));
    assert_eq!(tokens().check(long.as_bytes(), None, NOW), Err(TokenProblem::TooLong));
    let fits = token(name(12_000));
    assert!(fits.len() < TOKEN_BYTES_MAX && tokens().check(fits.as_bytes(), None, NOW).is_ok());
    let dots = vec![b'.'; 65_535];
    assert_eq!(tokens().check(&dots, None, NOW), Err(TokenProblem::TooLong));
    assert_eq!(tokens().check(&dots[..TOKEN_BYTES_MAX], None, NOW), Err(TokenProblem::Malformed));
}

#[test]
fn only_tokens_that_may_be_made_up_count_as_guesses() {
    let guesses = [TokenProblem::Malformed, TokenProblem::Algorithm, TokenProblem::Signature];
    assert!(guesses.into_iter().all(TokenProblem::is_guess));
    let honest =
        [TokenProblem::Expired, TokenProblem::UnknownKey, TokenProblem::NoKeys, TokenProblem::NotYet];
    assert!(!honest.into_iter().any(TokenProblem::is_guess));
}
