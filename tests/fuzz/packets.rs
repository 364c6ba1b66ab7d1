//! Packets that clients may send, and the words in them: few, so that what one client does meets what another did.

use pondhawk_tests::Version;
use pondhawk_tests::conversation::{PUBACK, PUBCOMP, PUBREC, PUBREL};

use crate::field::{Field, Fields};
use pondhawk_tests::Random;

const CLIENTS: &[&str] = &["frog", "toad", "newt", "heron", "", "#", "a/b"];
const TOPICS: &[&str] =
    &["a", "a/b", "a/b/c", "b", "/", "a//c", "$foo/a", "$SYS/broker/version", "$share/g/a", ""];
const FILTERS: &[&str] = &[
    "a",
    "a/b",
    "a/#",
    "+/b",
    "a/+/c",
    "#",
    "+",
    "/",
    "$share/g/a/#",
    "$share/h/+",
    "$SYS/#",
    "$foo/#",
    "a#",
    "",
];
const TEXTS: &[&str] = &["", "text/plain", "é", "answer", "a/b"];

type Property = Vec<Field>;

/// The bytes that connect, most of the time.
pub(crate) fn connect(random: &mut Random, version: Version) -> Fields {
    let (mut flags, mut payload) = (0, vec![Field::text(random.of_list(CLIENTS))]);
    if !random.one_in(3) {
        flags |= 0x02;
    }
    if random.one_in(3) {
        flags |= 0x04 | random.of_list(&[0x00, 0x08, 0x10]) | random.of_list(&[0x00, 0x20]);
        let mut properties = of_message(random);
        properties.push(vec![Field::Byte(0x18), Field::Four(u32::from(random.two()))]);
        payload.extend(Field::properties(version, properties));
        payload.extend([Field::text(random.of_list(TOPICS)), Field::Text(payload_of(random))]);
    }
    if random.one_in(6) {
        flags |= 0xC0;
        payload.extend([Field::text("user"), Field::text("secret")]);
    }
    let begin = [
        Field::text(version.protocol_name()),
        Field::Byte(version.protocol_level()),
        Field::Byte(flags),
        Field::Two(random.of_list(&[0, 1, 10, 60, u16::MAX])),
    ];
    let properties = Field::properties(version, of_connect(random));
    Fields::new(0x10, begin.into_iter().chain(properties).chain(payload))
}

/// Whatever a connected client may send.
pub(crate) fn any(random: &mut Random, version: Version) -> Fields {
    match random.below(16) {
        0..=4 => publish(random, version),
        5..=7 => subscribe(random, version),
        8 => unsubscribe(random, version),
        9..=12 => acknowledgement(random, version),
        13 => Fields::new(0xC0, []),
        14 => disconnect(random, version),
        _ if version.is_5() && random.one_in(2) => auth(random),
        _ => connect(random, version),
    }
}

fn publish(random: &mut Random, version: Version) -> Fields {
    let qos = random.of_list(&[0, 0, 1, 2]);
    let dup = if qos > 0 && random.one_in(4) { 0x08 } else { 0 };
    let mut fields = vec![Field::text(random.of_list(TOPICS))];
    if qos > 0 {
        fields.push(Field::Two(random.two()));
    }
    let mut properties = of_message(random);
    if random.one_in(4) {
        properties.push(vec![Field::Byte(0x23), Field::Two(random.two())]);
    }
    fields.extend(Field::properties(version, properties));
    fields.push(Field::Bare(payload_of(random)));
    Fields::new(0x30 | dup | qos << 1 | u8::from(random.one_in(4)), fields)
}

fn subscribe(random: &mut Random, version: Version) -> Fields {
    let mut properties = user_properties(random);
    if random.one_in(3) {
        properties.push(vec![Field::Byte(0x0B), Field::Varint(u32::from(random.two()))]);
    }
    let mut fields = vec![Field::Two(random.two())];
    fields.extend(Field::properties(version, properties));
    for _ in 0..=random.below(4) {
        let options = if version.is_5() { random.byte() & 0x2F } else { random.byte() & 0x03 };
        fields.extend([Field::text(random.of_list(FILTERS)), Field::Byte(options)]);
    }
    Fields::new(0x82, fields)
}

fn unsubscribe(random: &mut Random, version: Version) -> Fields {
    let mut fields = vec![Field::Two(random.two())];
    fields.extend(Field::properties(version, user_properties(random)));
    fields.extend((0..=random.below(3)).map(|_| Field::text(random.of_list(FILTERS))));
    Fields::new(0xA2, fields)
}

fn acknowledgement(random: &mut Random, version: Version) -> Fields {
    let mut fields = vec![Field::Two(random.two())];
    if version.is_5() && random.one_in(2) {
        fields.push(Field::Byte(random.of_list(&[0x00, 0x10, 0x80, 0x83, 0x92, 0x97])));
        if random.one_in(2) {
            fields.push(Field::Properties(user_properties(random)));
        }
    }
    Fields::new(random.of_list(&[PUBACK, PUBREC, PUBREL, PUBCOMP]), fields)
}

fn disconnect(random: &mut Random, version: Version) -> Fields {
    let mut fields = Vec::new();
    if version.is_5() && random.one_in(2) {
        fields.push(Field::Byte(random.of_list(&[0x00, 0x04, 0x80, 0x82])));
        let expiry = vec![Field::Byte(0x11), Field::Four(u32::from(random.two()))];
        fields.push(Field::Properties(vec![expiry]));
    }
    Fields::new(0xE0, fields)
}

fn auth(random: &mut Random) -> Fields {
    let properties = vec![
        vec![Field::Byte(0x15), Field::text("SCRAM-SHA-1")],
        vec![Field::Byte(0x16), Field::Text(random.bytes(8))],
    ];
    Fields::new(0xF0, [Field::Byte(random.of_list(&[0x00, 0x18, 0x19])), Field::Properties(properties)])
}

fn payload_of(random: &mut Random) -> Vec<u8> {
    let length = random.of_list(&[0, 1, 5, 100, 1_000, 5_000]);
    random.bytes(length)
}

fn of_connect(random: &mut Random) -> Vec<Property> {
    let mut all = user_properties(random);
    let numbers = [
        vec![Field::Byte(0x11), Field::Four(u32::from(random.two()))],
        vec![Field::Byte(0x21), Field::Two(random.two().max(1))],
        vec![Field::Byte(0x27), Field::Four(u32::from(random.two()) * 50 + 1)],
        vec![Field::Byte(0x22), Field::Two(random.two())],
        vec![Field::Byte(0x19), Field::Byte(random.byte() & 1)],
        vec![Field::Byte(0x17), Field::Byte(random.byte() & 1)],
        vec![Field::Byte(0x15), Field::text("SCRAM-SHA-1")],
    ];
    // Each may be there once.
    all.extend(numbers.into_iter().filter(|_| random.one_in(5)));
    all
}

fn of_message(random: &mut Random) -> Vec<Property> {
    let mut all = user_properties(random);
    let others = [
        vec![Field::Byte(0x01), Field::Byte(random.byte() & 1)],
        vec![Field::Byte(0x02), Field::Four(u32::from(random.two()))],
        vec![Field::Byte(0x03), Field::text(random.of_list(TEXTS))],
        vec![Field::Byte(0x08), Field::text(random.of_list(TEXTS))],
        vec![Field::Byte(0x09), Field::Text(random.bytes(3))],
    ];
    all.extend(others.into_iter().filter(|_| random.one_in(5)));
    all
}

fn user_properties(random: &mut Random) -> Vec<Property> {
    let count = random.of_list(&[0, 0, 0, 1, 3, 40]);
    let texts = || [Field::text("name"), Field::text("value")];
    (0..count).map(|_| std::iter::once(Field::Byte(0x26)).chain(texts()).collect()).collect()
}
