use ldap::{Filter, Search, bind, search, start_tls, unbind};

use crate::bytes::element;

#[test]
fn a_bind_is_simple_and_of_version_3() {
    let expected = b"\x30\x18\x02\x01\x01\x60\x13\x02\x01\x03\x04\x07cn=frog\x80\x05croak";
    assert_eq!(bind(1, "cn=frog", "croak"), expected);
    let anonymous = b"\x30\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\x00\x80\x00";
    assert_eq!(bind(1, "", ""), anonymous);
}

#[test]
fn start_tls_is_an_extended_request_without_value() {
    let expected = b"\x30\x1d\x02\x01\x01\x77\x18\x80\x161.3.6.1.4.1.1466.20037";
    assert_eq!(start_tls(1), expected);
}

#[test]
fn an_unbind_is_empty() {
    assert_eq!(unbind(3), b"\x30\x05\x02\x01\x03\x42\x00");
}

#[test]
fn a_search_has_all_fields() {
    let filter = Filter::parse("(uid={user})").expect("a filter");
    let request = Search {
        base: "dc=pond",
        filter: &filter,
        user: "frog",
        attribute: "1.1",
        entries_max: 2,
        secs_max: 5,
    };
    let expected =
        b"\x30\x31\x02\x01\x02\x63\x2c\x04\x07dc=pond\x0a\x01\x02\x0a\x01\x00\x02\x01\x02\x02\x01\x05\
        \x01\x01\x00\xa3\x0b\x04\x03uid\x04\x04frog\x30\x05\x04\x031.1";
    assert_eq!(search(2, &request), expected);
}

#[test]
fn numbers_have_as_few_bytes_as_possible() {
    let numbers: [(i32, &[u8]); 9] = [
        (0, b"\x02\x01\x00"),
        (1, b"\x02\x01\x01"),
        (127, b"\x02\x01\x7f"),
        (128, b"\x02\x02\x00\x80"),
        (255, b"\x02\x02\x00\xff"),
        (256, b"\x02\x02\x01\x00"),
        (32_768, b"\x02\x03\x00\x80\x00"),
        (i32::MAX, b"\x02\x04\x7f\xff\xff\xff"),
        (-1, b"\x02\x01\xff"),
    ];
    for (id, expected) in numbers {
        assert_eq!(unbind(id), element(0x30, &[expected, b"\x42\x00"]), "{id}");
    }
}

#[test]
fn limits_above_those_of_ldap_are_the_highest() {
    let filter = Filter::parse("(a=b)").expect("a filter");
    let request = Search {
        base: "",
        filter: &filter,
        user: "",
        attribute: "",
        entries_max: u32::MAX,
        secs_max: 1 << 31,
    };
    let limits = b"\x02\x04\x7f\xff\xff\xff\x02\x04\x7f\xff\xff\xff\x01\x01\x00";
    let bytes = search(1, &request);
    assert!(bytes.windows(limits.len()).any(|window| window == limits), "{bytes:x?}");
}

#[test]
fn long_texts_have_long_lengths() {
    for length in [1, 100, 127, 128, 200, 255, 256, 1000, 40_000] {
        let password = "p".repeat(length);
        let content = [b"\x02\x01\x03\x04\x00".as_slice(), &element(0x80, &[password.as_bytes()])].concat();
        let expected = element(0x30, &[b"\x02\x01\x01", &element(0x60, &[&content])]);
        assert_eq!(bind(1, "", &password), expected, "{length}");
    }
    let password = "p".repeat(65_535);
    assert!(bind(1, "", &password).starts_with(b"\x30\x83\x01\x00\x10\x02\x01\x01\x60\x83\x01\x00\x08"));
}
