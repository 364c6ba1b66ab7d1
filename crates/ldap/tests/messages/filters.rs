use ldap::{FILTER_BYTES_MAX, Filter, FilterFault, NESTING_MAX, Search, USERS_MAX, search};

use crate::bytes::{element, string};

/// The bytes of a filter within a search, of which all other fields are compared too.
fn encoded(text: &str, user: &str) -> Vec<u8> {
    let filter = Filter::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let request =
        Search { base: "dc=pond", filter: &filter, user, attribute: "cn", entries_max: 2, secs_max: 5 };
    let bytes = search(1, &request);
    let before = b"\x04\x07dc=pond\x0a\x01\x02\x0a\x01\x00\x02\x01\x02\x02\x01\x05\x01\x01\x00";
    let after = b"\x30\x04\x04\x02cn";
    let start =
        bytes.windows(before.len()).position(|window| window == before).expect("the fields") + before.len();
    let filter = bytes[start..bytes.len() - after.len()].to_vec();
    assert_eq!(bytes, element(0x30, &[b"\x02\x01\x01", &element(0x63, &[before, &filter, after])]));
    filter
}

/// A comparison of two texts.
fn compare(tag: u8, attribute: &str, value: &[u8]) -> Vec<u8> {
    element(tag, &[&string(attribute), &element(0x04, &[value])])
}

#[test]
fn comparisons() {
    assert_eq!(encoded("(uid=frog)", ""), b"\xa3\x0b\x04\x03uid\x04\x04frog");
    assert_eq!(encoded("(age>=3)", ""), b"\xa5\x08\x04\x03age\x04\x013");
    assert_eq!(encoded("(age<=3)", ""), b"\xa6\x08\x04\x03age\x04\x013");
    assert_eq!(encoded("(sn~=frok)", ""), b"\xa8\x0a\x04\x02sn\x04\x04frok");
    assert_eq!(encoded("(seeAlso=)", ""), b"\xa3\x0b\x04\x07seeAlso\x04\x00", "RFC 4515 has this example");
    assert_eq!(encoded("(cn;lang-de=a=b>=c)", ""), compare(0xa3, "cn;lang-de", b"a=b>=c"));
    assert_eq!(
        encoded("(2.5.4.3= a b )", ""),
        compare(0xa3, "2.5.4.3", b" a b "),
        "spaces belong to the value"
    );
}

#[test]
fn lists_and_not() {
    let a = b"\xa3\x06\x04\x01a\x04\x01b".as_slice();
    assert_eq!(encoded("(&(a=b))", ""), element(0xa0, &[a]));
    assert_eq!(encoded("(&(a=b)(a=b))", ""), element(0xa0, &[a, a]));
    assert_eq!(encoded("(|(a=b)(a=b)(a=b))", ""), element(0xa1, &[a, a, a]));
    assert_eq!(encoded("(!(a=b))", ""), element(0xa2, &[a]));
    let nested = element(0xa0, &[&element(0xa1, &[a, &element(0xa2, &[a])]), a]);
    assert_eq!(encoded("(&(|(a=b)(!(a=b)))(a=b))", ""), nested);
}

#[test]
fn presence_and_substrings() {
    assert_eq!(encoded("(mail=*)", ""), b"\x87\x04mail");
    assert_eq!(encoded("(cn=a*)", ""), b"\xa4\x09\x04\x02cn\x30\x03\x80\x01a");
    assert_eq!(encoded("(cn=*a)", ""), b"\xa4\x09\x04\x02cn\x30\x03\x82\x01a");
    assert_eq!(encoded("(cn=*a*)", ""), b"\xa4\x09\x04\x02cn\x30\x03\x81\x01a");
    let all = b"\xa4\x12\x04\x02cn\x30\x0c\x80\x01a\x81\x01b\x81\x01c\x82\x01d";
    assert_eq!(encoded("(cn=a*b*c*d)", ""), all);
}

#[test]
fn extensible_matches() {
    assert_eq!(
        encoded("(cn:caseExactMatch:=Fred)", ""),
        [b"\xa9\x1a\x81\x0ecaseExactMatch\x82\x02cn\x83\x04Fred".as_slice()].concat()
    );
    assert_eq!(encoded("(cn:=Betty)", ""), b"\xa9\x0b\x82\x02cn\x83\x05Betty");
    assert_eq!(encoded("(sn:dn:2.4.6:=B)", ""), b"\xa9\x11\x81\x052.4.6\x82\x02sn\x83\x01B\x84\x01\xff");
    assert_eq!(encoded("(o:DN:=Ace)", ""), b"\xa9\x0b\x82\x01o\x83\x03Ace\x84\x01\xff");
    assert_eq!(encoded("(:1.2.3:=W)", ""), b"\xa9\x0a\x81\x051.2.3\x83\x01W");
    assert_eq!(encoded("(:dn:2.4.6:={user})", "D"), b"\xa9\x0d\x81\x052.4.6\x83\x01D\x84\x01\xff");
    assert_eq!(encoded("(cn:dnMatch:=a)", ""), b"\xa9\x10\x81\x07dnMatch\x82\x02cn\x83\x01a");
}

#[test]
fn escapes_are_bytes() {
    assert_eq!(encoded(r"(cn=\28\29\2A\2a\5c\00)", ""), compare(0xa3, "cn", b"()**\\\0"));
    assert_eq!(encoded(r"(bin=\00\00\ff\80)", ""), compare(0xa3, "bin", b"\0\0\xff\x80"));
    assert_eq!(encoded(r"(sn=Lu\c4\8di\c4\87)", ""), compare(0xa3, "sn", "Lučić".as_bytes()));
    assert_eq!(encoded("(sn=Lučić)", ""), compare(0xa3, "sn", "Lučić".as_bytes()));
    assert_eq!(encoded(r"(cn=\7buser})", "frog"), compare(0xa3, "cn", b"{user}"), "not the user name");
    assert_eq!(encoded("(cn={SSHA}{users}{user)", "frog"), compare(0xa3, "cn", b"{SSHA}{users}{user"));
}

#[test]
fn the_user_name_may_be_a_part_of_a_value() {
    let mail = compare(0xa3, "mail", b"frog@pond.example");
    assert_eq!(encoded("(mail={user}@pond.example)", "frog"), mail);
    assert_eq!(encoded("(mail=a-{user}{user}-b)", "x"), compare(0xa3, "mail", b"a-xx-b"));
    let parts = element(0x30, &[b"\x80\x04f-{a", b"\x81\x03-f-", b"\x82\x01f"]);
    assert_eq!(encoded("(cn={user}-{a*-{user}-*{user})", "f"), element(0xa4, &[&string("cn"), &parts]));
    assert!(Filter::parse("(&(a=b)(!(c=*x{user})))").is_ok_and(|filter| filter.has_user()));
    assert!(Filter::parse("(&(a=b)(!(c=*)))").is_ok_and(|filter| !filter.has_user()));
}

#[test]
fn no_user_name_changes_the_filter() {
    for user in ["", "*", ")(uid=*", r"\2a", "\0", "a)(|(b=*)", "{user}", "(", r"\", "é", &"x".repeat(65_535)]
    {
        let uid = compare(0xa3, "uid", user.as_bytes());
        assert_eq!(encoded("(uid={user})", user), uid, "{user:.20}");
    }
    let parts = element(0x30, &[b"\x80\x07)(uid=*", b"\x81\x01b"]);
    assert_eq!(encoded("(uid={user}*b*)", ")(uid=*"), element(0xa4, &[&string("uid"), &parts]));
    assert_eq!(encoded("(uid:={user})", "*"), b"\xa9\x08\x82\x03uid\x83\x01*");
}

#[test]
fn errors_say_what_and_where() {
    use FilterFault::*;
    let cases = [
        ("", OpeningMissing, 0),
        ("uid=a", OpeningMissing, 0),
        ("()", NameMissing, 1),
        ("(&)", OpeningMissing, 2),
        ("(!)", OpeningMissing, 2),
        ("(!(a=b)(a=b))", ClosingMissing, 7),
        ("(&(a=b)", ClosingMissing, 7),
        ("(a=b", ClosingMissing, 4),
        ("(a=b))", Trailing, 5),
        ("(a=b) ", Trailing, 5),
        ("( a=b)", NameMissing, 1),
        ("(=b)", NameMissing, 1),
        ("(é=b)", NameMissing, 1),
        ("(a)", OperatorMissing, 2),
        ("(a b=c)", OperatorMissing, 2),
        ("(a>b)", OperatorMissing, 2),
        ("(a", OperatorMissing, 2),
        ("(a:b=c)", OperatorMissing, 4),
        ("(a:b", OperatorMissing, 4),
        ("(a:dn:", NameMissing, 6),
        ("(:=b)", NameMissing, 1),
        ("(:dn:=b)", NameMissing, 4),
        (r"(a=\2)", Escape, 3),
        (r"(a=\", Escape, 3),
        (r"(a=\é)", Escape, 3),
        (r"(a=\+1)", Escape, 3),
        ("(a=(b))", Unescaped, 3),
        ("(a=é\0)", Unescaped, 5),
        ("(a=b**c)", Star, 5),
        ("(a=**)", Star, 4),
        ("(a>=b*)", Star, 5),
        ("(a:=*)", Star, 4),
        ("{user}", UserOutsideValue, 0),
        ("({user}=a)", UserOutsideValue, 1),
        ("(a{user}=a)", UserOutsideValue, 2),
        ("(a:{user}:=a)", UserOutsideValue, 3),
        ("(&{user})", UserOutsideValue, 2),
        ("(a=b){user}", UserOutsideValue, 5),
    ];
    for (text, fault, at) in cases {
        let error = Filter::parse(text).expect_err(text);
        assert_eq!((error.fault, error.at), (fault, at), "{text}: {error}");
        assert!(error.to_string().ends_with(&format!(", at byte {at}")), "{error}");
    }
}

#[test]
fn nesting_length_and_user_names_are_limited() {
    let nested = |depth: usize| format!("{}(a=b){}", "(!".repeat(depth - 1), ")".repeat(depth - 1));
    assert!(Filter::parse(&nested(NESTING_MAX)).is_ok());
    let error = Filter::parse(&nested(NESTING_MAX + 1)).expect_err("one too many");
    assert_eq!((error.fault, error.at), (FilterFault::TooDeep, 2 * NESTING_MAX));

    let long = |length: usize| format!("(a={})", "b".repeat(length - 4));
    assert!(Filter::parse(&long(FILTER_BYTES_MAX)).is_ok());
    assert_eq!(
        Filter::parse(&long(FILTER_BYTES_MAX + 1)).map_err(|error| error.fault),
        Err(FilterFault::TooLong)
    );
    let error = Filter::parse(&"é".repeat(FILTER_BYTES_MAX)).expect_err("too long");
    assert_eq!((error.fault, error.at), (FilterFault::TooLong, FILTER_BYTES_MAX));
    let error = Filter::parse(&"ééé€".repeat(FILTER_BYTES_MAX)).expect_err("too long");
    assert_eq!(
        (error.fault, error.at),
        (FilterFault::TooLong, FILTER_BYTES_MAX - 1),
        "not within a character"
    );
    let deep = "(!".repeat(FILTER_BYTES_MAX / 2);
    assert_eq!(Filter::parse(&deep).map_err(|error| error.fault), Err(FilterFault::TooDeep));

    let users = |count: usize| format!("(a={})", "{user}".repeat(count));
    assert!(Filter::parse(&users(USERS_MAX)).is_ok());
    let error = Filter::parse(&users(USERS_MAX + 1)).expect_err("one too many");
    assert_eq!((error.fault, error.at), (FilterFault::TooManyUsers, 3 + 6 * USERS_MAX));
}
