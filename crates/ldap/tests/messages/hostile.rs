//! Bytes that a server sends on purpose or because it is broken.

use ldap::{Answer, DnTemplate, Filter, MESSAGE_BYTES_MAX, Malformed, Message, Search, decode, search};

use crate::bytes::{attribute, element, message, outcome, string};

/// One answer of each kind, with all optional elements.
fn answers() -> Vec<Vec<u8>> {
    let referral = element(0xa3, &[&string("ldap://other/")]);
    let name = element(0x8a, &[b"1.3.6.1.4.1.1466.20037"]);
    let controls = element(0xa0, &[&element(0x30, &[&string("1.2.3")])]);
    let groups = attribute("memberOf", &["cn=Frösche,dc=pond".as_bytes(), b"cn=all,dc=pond", b""]);
    let list = element(0x30, &[&groups, &attribute("mail", &[&[b'm'; 130]])]);
    vec![
        message(&[&element(0x61, &[&outcome(49, "nein, übel".as_bytes()), &referral])]),
        message(&[&element(0x64, &[&string("uid=frög,dc=pond"), &list]), &controls]),
        message(&[&element(0x65, &[&outcome(4, b"too many")]), &controls]),
        message(&[&element(0x73, &[&string("ldap://a/"), &string("ldap://b/")])]),
        message(&[&element(0x78, &[&outcome(0, b""), &name])]),
        message(&[&element(0x79, &[&element(0x80, &[b"1.2.3"])])]),
    ]
}

/// Reads all of a message, so that each of its iterators runs.
fn read(message: &Message) -> usize {
    if let Answer::Entry(entry) = &message.answer {
        let attributes = entry.attributes().flat_map(|attribute| attribute.values()).map(<[u8]>::len);
        return attributes.sum::<usize>() + entry.values("mail").count() + format!("{entry:?}").len();
    }
    format!("{message:?}").len()
}

#[test]
fn an_answer_that_is_cut_is_not_complete() {
    for bytes in answers() {
        for end in 0..bytes.len() {
            assert_eq!(decode(&bytes[..end]), Ok(None), "{end} bytes of {bytes:x?}");
        }
        assert!(decode(&bytes).is_ok_and(|message| message.is_some()));
    }
}

#[test]
fn content_that_is_cut_is_malformed() {
    for bytes in answers() {
        let (_, length) = decode(&bytes).expect("well-formed").expect("complete");
        let header = if bytes[1] < 0x80 { 2 } else { 3 };
        let content = &bytes[header..length];
        for end in 0..content.len() {
            let cut = element(0x30, &[&content[..end]]);
            // Without the controls, which are optional, the message is complete.
            let has_controls_only_cut = content[end..] == *b"\xa0\x09\x30\x07\x04\x051.2.3";
            assert_eq!(decode(&cut).is_ok(), has_controls_only_cut, "{end} bytes of {content:x?}");
        }
    }
}

/// A generator of numbers: xorshift64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(bound).expect("a bound")).expect("below a bound")
    }

    fn byte(&mut self) -> u8 {
        const TELLING: [u8; 14] =
            [0x00, 0x01, 0x04, 0x0a, 0x1f, 0x30, 0x31, 0x64, 0x7f, 0x80, 0x81, 0x84, 0x88, 0xff];
        if self.below(2) == 0 {
            TELLING[self.below(TELLING.len())]
        } else {
            u8::try_from(self.below(256)).expect("a byte")
        }
    }

    fn change(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len());
        match self.below(5) {
            0 => bytes[at] = self.byte(),
            1 => bytes[at] ^= 1 << self.below(8),
            2 => bytes.insert(at, self.byte()),
            3 if bytes.len() > 1 => drop(bytes.remove(at)),
            _ => {
                let end = at + self.below((bytes.len() - at).min(8) + 1);
                let piece = bytes[at..end].to_vec();
                let target = self.below(bytes.len());
                bytes.splice(target..target, piece);
            }
        }
    }
}

#[test]
fn changed_answers_never_panic() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x9e37_79b9_7f4a_7c15);
    println!("SEED={seed}");
    let mut random = Random(seed);
    let answers = answers();
    let (mut messages, mut missing, mut malformed) = (0, 0, 0);
    for _ in 0..100_000 {
        let mut bytes = answers[random.below(answers.len())].clone();
        for _ in 0..=random.below(4) {
            random.change(&mut bytes);
        }
        if random.below(2) == 0 {
            // The length fits again, so that the change is found further inside.
            let content = bytes.get(2..).unwrap_or_default();
            bytes = element(0x30, &[content]);
        }
        match decode(&bytes) {
            Ok(Some((message, length))) => {
                assert!(length <= bytes.len() && read(&message) > 0);
                messages += 1;
            }
            Ok(None) => missing += 1,
            Err(_) => malformed += 1,
        }
    }
    assert!(messages > 10_000 && missing > 1_000 && malformed > 10_000, "{messages} {missing} {malformed}");
}

#[test]
fn deep_nesting_needs_no_stack() {
    let mut deep = Vec::new();
    while deep.len() < 60_000 {
        let length = u16::try_from(deep.len()).expect("short");
        let [high, low] = length.to_be_bytes();
        // The elements are written from the end, because the innermost comes last.
        deep.extend([low, high, 0x82, 0xa3]);
    }
    deep.reverse();
    let bytes = message(&[&element(0x61, &[&outcome(0, b""), &deep])]);
    let small_stack = std::thread::Builder::new().stack_size(16 << 10);
    let decoded = small_stack.spawn(move || decode(&bytes).is_ok_and(|message| message.is_some()));
    assert!(decoded.expect("a thread").join().expect("no panic"));
}

#[test]
fn lengths_inside_are_within_their_element() {
    for inner in [b"\x04\x7f".as_slice(), b"\x04\x82\xff\xff", b"\x04\x88\0\0\0\0\0\0\xff\xff", b"\x04\x81"] {
        let bytes = message(&[&element(0x64, &[inner])]);
        assert_eq!(decode(&bytes), Err(Malformed::Cut), "{inner:x?}");
    }
    for inner in
        [b"\x04\x84\xff\xff\xff\xff".as_slice(), b"\x04\x88\xff\xff\xff\xff\xff\xff\xff\xff", b"\x04\xff"]
    {
        let bytes = message(&[&element(0x64, &[inner])]);
        assert_eq!(decode(&bytes), Err(Malformed::TooLong), "{inner:x?}");
    }
}

#[test]
fn many_small_values_are_all_there() {
    let values = b"\x04\x00".repeat(30_000);
    let of_one = element(0x30, &[&string("a"), &element(0x31, &[&values])]);
    let bytes = message(&[&element(0x64, &[&string(""), &element(0x30, &[&of_one])])]);
    assert!(bytes.len() <= MESSAGE_BYTES_MAX);
    let Ok(Some((Message { answer: Answer::Entry(entry), .. }, _))) = decode(&bytes) else {
        panic!("an entry")
    };
    assert_eq!(entry.values("A").count(), 30_000);
}

#[test]
fn changed_texts_never_panic() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x2545_f491_4f6c_dd1d);
    println!("SEED={seed}");
    let mut random = Random(seed);
    let texts =
        [r"(&(|(uid={user})(mail=a*{user}*\2a))(!(cn:dn:2.4.6:=b))(é>=ö))", r"uid={user}+cn=\,\2c,dc=pönd"];
    let (mut filters, mut names) = (0, 0);
    for _ in 0..100_000 {
        let mut bytes = texts[random.below(2)].as_bytes().to_vec();
        for _ in 0..=random.below(3) {
            random.change(&mut bytes);
        }
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(filter) = Filter::parse(&text) {
            let request = Search {
                base: &text,
                filter: &filter,
                user: &text,
                attribute: "1.1",
                entries_max: 2,
                secs_max: 5,
            };
            assert!(search(1, &request).ends_with(b"1.1"));
            filters += 1;
        }
        if let Ok(name) = DnTemplate::parse(&text) {
            assert!(!name.fill("\0").contains('\0'));
            names += 1;
        }
    }
    assert!(names > 1_000, "{filters} {names}");
}
