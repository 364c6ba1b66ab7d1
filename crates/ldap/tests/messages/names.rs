use ldap::{DN_BYTES_MAX, DnFault, DnTemplate, USERS_MAX};

fn filled(text: &str, user: &str) -> String {
    DnTemplate::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).fill(user)
}

#[test]
fn user_names_are_escaped() {
    let cases = [
        ("frog", "frog"),
        ("a b", "a b"),
        ("a,b+c\"d\\e<f>g;h=i", r#"a\,b\+c\"d\\e\<f\>g\;h\=i"#),
        ("#a#", r"\#a#"),
        (" a ", r"\20a\20"),
        (" ", r"\20"),
        ("  ", r"\20\20"),
        ("   ", r"\20 \20"),
        ("\0", r"\00"),
        ("a\r\n\x7f", r"a\0D\0A\7F"),
        ("\u{85}", r"\C2\85"),
        ("Lučić", "Lučić"),
        ("{user}", "{user}"),
        (r"\2c", r"\\2c"),
        ("x,ou=admins", r"x\,ou\=admins"),
        ("", ""),
    ];
    for (user, escaped) in cases {
        assert_eq!(filled("uid={user},dc=pond", user), format!("uid={escaped},dc=pond"), "{user:?}");
    }
}

#[test]
fn templates_may_have_any_name_around() {
    assert_eq!(filled("uid={user}", "a"), "uid=a");
    assert_eq!(filled("cn=x-{user}-y+uid={user},dc=pond", "a b"), "cn=x-a b-y+uid=a b,dc=pond");
    assert_eq!(filled("CN = {user} , DC=pond", "a"), "CN = a , DC=pond");
    assert_eq!(filled(r"0.9.2342=\,\2c\ \#{user}\\,dc=", "a"), r"0.9.2342=\,\2c\ \#a\\,dc=");
    assert_eq!(filled("uid={user},ou={others},dc=pönd", "a"), "uid=a,ou={others},dc=pönd");
    assert_eq!(filled("uid=a=b{user}", "c"), "uid=a=bc");
}

#[test]
fn errors_say_what_and_where() {
    use DnFault::*;
    let cases = [
        ("", Empty, 0),
        ("uid=frog", NoUser, 8),
        ("frog", EqualsMissing, 4),
        ("{user}", UserOutsideValue, 0),
        ("uid={user},{user}", UserOutsideValue, 11),
        ("u{user}=a", UserOutsideValue, 1),
        ("uid={user},", TypeMissing, 11),
        (",uid={user}", TypeMissing, 0),
        ("uid={user}+", TypeMissing, 11),
        ("=,uid={user}", TypeMissing, 0),
        ("ü=,uid={user}", TypeMissing, 0),
        ("uid={user},pond", EqualsMissing, 15),
        ("uid={user},d c=pond", EqualsMissing, 12),
        (r"uid=\{user}", Escape, 4),
        (r"uid=\5{user}", Escape, 4),
        (r"uid={user}\", Escape, 10),
        (r"uid={user}\é", Escape, 10),
        ("uid=\"{user}\"", Unescaped, 4),
        ("uid={user};dc=pond", Unescaped, 10),
        ("uid=<{user}>", Unescaped, 4),
        ("uid={user}\0", Unescaped, 10),
        ("uid=#{user}", Hexadecimal, 4),
        ("uid= #{user}", Hexadecimal, 5),
    ];
    for (text, fault, at) in cases {
        let error = DnTemplate::parse(text).expect_err(text);
        assert_eq!((error.fault, error.at), (fault, at), "{text}: {error}");
        assert!(error.to_string().ends_with(&format!(", at byte {at}")), "{error}");
    }
}

#[test]
fn length_and_user_names_are_limited() {
    let long = |length: usize| format!("uid={{user}}{}", "a".repeat(length - 10));
    assert!(DnTemplate::parse(&long(DN_BYTES_MAX)).is_ok());
    assert_eq!(
        DnTemplate::parse(&long(DN_BYTES_MAX + 1)).map_err(|error| error.fault),
        Err(DnFault::TooLong)
    );
    let users = |count: usize| format!("uid={}", "{user}".repeat(count));
    assert!(DnTemplate::parse(&users(USERS_MAX)).is_ok());
    let error = DnTemplate::parse(&users(USERS_MAX + 1)).expect_err("one too many");
    assert_eq!((error.fault, error.at), (DnFault::TooManyUsers, 4 + 6 * USERS_MAX));
}
