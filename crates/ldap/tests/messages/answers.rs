use ldap::{
    Answer, DIAGNOSTIC_CHARS_MAX, Entry, MESSAGE_BYTES_MAX, Malformed, Message, Outcome, code, decode,
};

use crate::bytes::{attribute, element, long_element, message, outcome, string};

/// The answer in bytes that are one message with the identifier 7.
fn answer(bytes: &[u8]) -> Answer {
    let (message, length) = decode(bytes).expect("well-formed").expect("complete");
    assert_eq!((message.id, length), (7, bytes.len()));
    message.answer
}

fn entry(bytes: &[u8]) -> Entry {
    match answer(bytes) {
        Answer::Entry(entry) => entry,
        other => panic!("{other:?}"),
    }
}

fn diagnostic(bytes: &[u8]) -> String {
    match answer(&message(&[&element(0x61, &[&outcome(49, bytes)])])) {
        Answer::Bound(outcome) => outcome.diagnostic,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_end_of_each_operation() {
    let golden = b"\x30\x0c\x02\x01\x07\x61\x07\x0a\x01\x00\x04\x00\x04\x00";
    assert_eq!(answer(golden), Answer::Bound(Outcome { code: 0, diagnostic: String::new() }));
    let denied = Outcome { code: code::INVALID_CREDENTIALS, diagnostic: "no".to_owned() };
    let bytes = |tag| message(&[&element(tag, &[&outcome(49, b"no")])]);
    assert_eq!(answer(&bytes(0x61)), Answer::Bound(denied.clone()));
    assert_eq!(answer(&bytes(0x65)), Answer::Done(denied.clone()));
    assert_eq!(answer(&bytes(0x78)), Answer::Extended(denied.clone()));
    assert_eq!(denied.to_string(), "invalidCredentials (49): no");
    assert_eq!(Outcome { code: 80, diagnostic: String::new() }.to_string(), "result code 80");
}

#[test]
fn an_entry_has_a_name_and_attributes() {
    let groups = attribute("memberOf", &[b"cn=a", b"cn=b", b"\xff\x00"]);
    let list = element(0x30, &[&groups, &attribute("empty", &[]), &attribute("MEMBEROF", &[b""])]);
    let entry = entry(&message(&[&element(0x64, &[&string("uid=frög"), &list])]));
    assert_eq!(entry.name, "uid=frög");
    let names: Vec<_> = entry.attributes().map(|attribute| attribute.name).collect();
    assert_eq!(names, ["memberOf", "empty", "MEMBEROF"]);
    let counts: Vec<_> = entry.attributes().map(|attribute| attribute.values().count()).collect();
    assert_eq!(counts, [3, 0, 1]);
    let values: Vec<_> = entry.values("memberof").collect();
    assert_eq!(values, [b"cn=a".as_slice(), b"cn=b", b"\xff\x00", b""]);
    assert_eq!(entry.values("member").count(), 0);
    assert!(format!("{entry:?}").contains("uid=frög"));
}

#[test]
fn an_entry_without_attributes() {
    let bytes = message(&[&element(0x64, &[&string("dc=pond"), &element(0x30, &[])])]);
    assert_eq!(entry(&bytes).attributes().count(), 0);
}

#[test]
fn references_and_other_messages() {
    assert_eq!(
        answer(&message(&[&element(0x73, &[&string("ldap://a/"), &string("ldap://b/")])])),
        Answer::Reference
    );
    assert_eq!(answer(&message(&[&element(0x79, &[&element(0x80, &[b"1.2.3"])])])), Answer::Other);
    assert_eq!(answer(&message(&[&element(0x6b, &[&outcome(0, b"")])])), Answer::Other);
}

#[test]
fn elements_that_follow_are_passed_over() {
    let referral = element(0xa3, &[&string("ldap://other/")]);
    let credentials = element(0x87, &[b"sasl"]);
    let controls = element(0xa0, &[&element(0x30, &[&string("1.2.3")])]);
    let ended = Outcome { code: 0, diagnostic: "ok".to_owned() };
    let bytes = message(&[&element(0x61, &[&outcome(0, b"ok"), &referral, &credentials]), &controls]);
    assert_eq!(answer(&bytes), Answer::Bound(ended.clone()));
    let name = element(0x8a, &[b"1.3.6.1.4.1.1466.20037"]);
    let bytes = message(&[&element(0x78, &[&outcome(0, b"ok"), &name, &element(0x8b, &[b"v"])]), &controls]);
    assert_eq!(answer(&bytes), Answer::Extended(ended));
}

#[test]
fn the_notice_of_disconnection_is_extended_and_has_no_id() {
    let name = element(0x8a, &[b"1.3.6.1.4.1.1466.20036"]);
    let bytes = element(0x30, &[b"\x02\x01\x00", &element(0x78, &[&outcome(52, b"bye"), &name])]);
    let ended = Outcome { code: 52, diagnostic: "bye".to_owned() };
    let expected = Message { id: 0, answer: Answer::Extended(ended) };
    assert_eq!(decode(&bytes), Ok(Some((expected, bytes.len()))));
}

#[test]
fn lengths_in_the_long_form_mean_the_same() {
    let short = message(&[&element(0x64, &[&string("a"), &element(0x30, &[&attribute("b", &[b"c"])])])]);
    let values = long_element(0x31, &[&long_element(0x04, &[b"c"])]);
    let list = long_element(0x30, &[&long_element(0x30, &[&long_element(0x04, &[b"b"]), &values])]);
    let entry_of_long = long_element(0x64, &[&long_element(0x04, &[b"a"]), &list]);
    let long = entry(&long_element(0x30, &[&long_element(0x02, &[b"\x07"]), &entry_of_long]));
    assert_eq!(format!("{long:?}"), format!("{:?}", entry(&short)));
    // Active Directory writes all lengths in four bytes.
    let of_microsoft =
        b"\x30\x84\x00\x00\x00\x10\x02\x01\x07\x61\x84\x00\x00\x00\x07\x0a\x01\x31\x04\x00\x04\x00";
    assert!(matches!(answer(of_microsoft), Answer::Bound(outcome) if outcome.code == 49));
}

#[test]
fn several_messages_in_a_buffer_are_decoded_one_by_one() {
    let first = message(&[&element(0x73, &[])]);
    let second = message(&[&element(0x65, &[&outcome(4, b"")])]);
    let buffer = [first.clone(), second.clone()].concat();
    assert_eq!(decode(&buffer), decode(&first));
    assert_eq!(decode(&buffer[first.len()..]), decode(&second));
    assert_eq!(decode(b""), Ok(None));
}

#[test]
fn a_diagnostic_fits_into_a_log() {
    assert_eq!(diagnostic(b"80090308: v4563\0"), "80090308: v4563");
    assert_eq!(diagnostic(b"a\r\nb\x1b[31m\xc2\x85\xe2\x80\xae\xe2\x80\xa8c"), "a  b [31m   c");
    assert_eq!(diagnostic(b"a\xffb\xe2\x80"), "a\u{fffd}b\u{fffd}");
    assert_eq!(diagnostic("é".repeat(300).as_bytes()), "é".repeat(DIAGNOSTIC_CHARS_MAX));
    assert_eq!(diagnostic(&[0xff; 60_000]), "\u{fffd}".repeat(DIAGNOSTIC_CHARS_MAX));
}

#[test]
fn malformed_messages_have_a_reason() {
    let outcome = outcome(0, b"");
    let of = |tag: u8, parts: &[&[u8]]| message(&[&element(tag, parts)]);
    let list = |parts: &[&[u8]]| element(0x30, parts);
    let cases: Vec<(Vec<u8>, Malformed)> = vec![
        (b"HTTP/1.1 400 Bad Request\r\n".to_vec(), Malformed::NotAMessage),
        (element(0x30, &[]), Malformed::Cut),
        (message(&[]), Malformed::Cut),
        (message(&[b"\x61\x05\x0a\x01\x00"]), Malformed::Cut),
        (of(0x61, &[b"\x0a\x01\x00\x04\x00"]), Malformed::Cut),
        (of(0x61, &[b"\x0a\x01\x00\x04\x00\x04\x01"]), Malformed::Cut),
        (of(0x61, &[b"\x0a\x01\x00\x04\x00\x04\x80\x00\x00"]), Malformed::IndefiniteLength),
        (of(0x61, &[b"\x0a\x01\x00\x04\x00\x24\x02\x04\x00"]), Malformed::UnexpectedTag),
        (of(0x61, &[b"\x02\x01\x00\x04\x00\x04\x00"]), Malformed::UnexpectedTag),
        (of(0x61, &[b"\x0a\x01\xff\x04\x00\x04\x00"]), Malformed::Number),
        (of(0x61, &[b"\x0a\x00\x04\x00\x04\x00"]), Malformed::Number),
        (of(0x61, &[&outcome, b"\xa3\x05\x04"]), Malformed::Cut),
        (message(&[&element(0x61, &[&outcome]), b"\xa0\x01"]), Malformed::Cut),
        (message(&[&element(0x61, &[&outcome]), b"\x1f\x81\x01\x00"]), Malformed::UnexpectedTag),
        (of(0x30, &[&outcome]), Malformed::UnexpectedTag),
        (of(0x81, &[]), Malformed::UnexpectedTag),
        (of(0x73, &[b"\x04\x05a"]), Malformed::Cut),
        (of(0x64, &[b"\x04\x01\xff", &list(&[])]), Malformed::NotUtf8),
        (of(0x64, &[b"\x04\x01a", &list(&[b"\x30\x05\x04\x01\xff\x31\x00"])]), Malformed::NotUtf8),
        (of(0x64, &[b"\x04\x01a"]), Malformed::Cut),
        (of(0x64, &[b"\x04\x01a", &list(&[]), b"\x04\x01"]), Malformed::Cut),
        (of(0x64, &[b"\x04\x01a", &list(&[b"\x30\x07\x04\x01b\x31\x00\x04\x01"])]), Malformed::Cut),
        (of(0x64, &[b"\x04\x01a", &list(&[b"\x31\x00"])]), Malformed::UnexpectedTag),
        (of(0x64, &[b"\x04\x01a", &list(&[b"\x30\x03\x04\x01b"])]), Malformed::Cut),
        (of(0x64, &[b"\x04\x01a", &list(&[b"\x30\x07\x04\x01b\x31\x02\x02\x00"])]), Malformed::UnexpectedTag),
        (of(0x64, &[b"\x04\x01a", &list(&[b"\x30\x07\x04\x01b\x31\x02\x04\x01"])]), Malformed::Cut),
        (element(0x30, &[b"\x02\x01\xff", &element(0x61, &[&outcome])]), Malformed::Number),
        (element(0x30, &[b"\x02\x05\x00\x80\x00\x00\x00", &element(0x61, &[&outcome])]), Malformed::Number),
        (element(0x30, &[b"\x02\x09\0\0\0\0\0\0\0\0\x01", &element(0x61, &[&outcome])]), Malformed::Number),
    ];
    for (bytes, reason) in cases {
        assert_eq!(decode(&bytes), Err(reason), "{bytes:x?}");
        assert!(!reason.to_string().is_empty());
    }
}

#[test]
fn a_length_is_refused_before_its_message_arrives() {
    let refused = |bytes: &[u8], reason| assert_eq!(decode(bytes), Err(reason), "{bytes:x?}");
    refused(b"\x31", Malformed::NotAMessage);
    refused(b"\x30\x80", Malformed::IndefiniteLength);
    refused(b"\x30\x89", Malformed::TooLong);
    refused(b"\x30\xff", Malformed::TooLong);
    refused(b"\x30\x84\x01", Malformed::TooLong);
    refused(b"\x30\x84\x00\x02", Malformed::TooLong);
    refused(b"\x30\x88\x80", Malformed::TooLong);
    refused(b"\x30\x88\xff\xff\xff\xff\xff\xff\xff\xff", Malformed::TooLong);
    refused(b"\x30\x83\x01\x00\x00", Malformed::TooLong);
    for bytes in [b"\x30".as_slice(), b"\x30\x84", b"\x30\x84\x00\x00", b"\x30\x82\xff", b"\x30\x82\x01\x00"]
    {
        assert_eq!(decode(bytes), Ok(None), "{bytes:x?}");
    }
}

#[test]
fn the_longest_message_has_64_kib() {
    let with_value = |length: usize| message(&[&element(0x73, &[&element(0x04, &[&vec![b'a'; length]])])]);
    let overhead = with_value(60_000).len() - 60_000;
    let longest = with_value(MESSAGE_BYTES_MAX - overhead);
    assert_eq!(longest.len(), MESSAGE_BYTES_MAX);
    assert_eq!(answer(&longest), Answer::Reference);
    assert_eq!(decode(&with_value(MESSAGE_BYTES_MAX - overhead + 1)[..4]), Err(Malformed::TooLong));
}
