//! Records as bytes and back: all kinds, and bytes that are something else.

use std::num::NonZeroU32;
use std::sync::Arc;

use base::{ClaimLevels, ClaimRule, Claims, Interest, Message, Now, Uses};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use protocol::MessageId;
use topic::TopicName;
use wire::{MessageProperties, PacketId, Publish, Qos, Utf8};

use super::*;

use crate::record::{Granted, Incarnation, Queued, Record, WillFate, WillRecord};

fn encode(group: &[Record<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_group(group, &mut bytes);
    bytes
}

/// The groups in `bytes`; the last one may be unfinished.
fn decode(bytes: &[u8]) -> Result<Vec<Vec<Record<'static>>>, Box<DecodeError>> {
    let mut groups = vec![Vec::new()];
    for decoded in Decoder::default().records(bytes) {
        let Decoded { record, is_last } = decoded?;
        groups.last_mut().expect("there is one").extend(record);
        if is_last {
            groups.push(Vec::new());
        }
    }
    groups.pop_if(|group| group.is_empty());
    Ok(groups)
}

/// Everything there is to a record: its trace counts bytes and leaves out queues beyond the first.
fn all_of(record: &Record<'_>) -> String {
    match record {
        Record::Enqueue { body, queues, .. } => format!("{record:?} {:?} {queues:?}", body.parts()),
        Record::Connected { will: Some(will), .. } => format!("{record:?} {:?}", will.message.parts()),
        Record::WillKept { message, .. } => format!("{record:?} {:?}", message.parts()),
        _ => format!("{record:?}"),
    }
}

fn all_of_group(group: &[Record<'_>]) -> Vec<String> {
    group.iter().map(all_of).collect()
}

fn qos() -> impl Strategy<Value = Qos> {
    prop_oneof![Just(Qos::AtMostOnce), Just(Qos::AtLeastOnce), Just(Qos::ExactlyOnce)]
}

fn incarnation() -> impl Strategy<Value = Incarnation> {
    prop_oneof![0..300u64, any::<u64>()].prop_map(Incarnation)
}

fn message_id() -> impl Strategy<Value = MessageId> {
    prop_oneof![0..300u64, any::<u64>()].prop_map(MessageId)
}

fn packet_id() -> impl Strategy<Value = PacketId> {
    (1..=u16::MAX).prop_map(|id| PacketId::new(id).expect("not 0"))
}

fn identifier() -> impl Strategy<Value = NonZeroU32> {
    prop_oneof![1..200u32, 1..=268_435_455u32].prop_map(|id| NonZeroU32::new(id).expect("not 0"))
}

fn fate() -> impl Strategy<Value = WillFate> {
    prop_oneof![Just(WillFate::Dropped), Just(WillFate::Waits), Just(WillFate::Due)]
}

fn filter() -> impl Strategy<Value = String> {
    prop_oneof!["([a-zä+]/){0,3}#", "[a-z/]{1,200}", "\\$share/[a-z]{1,3}/[a-z/]{1,9}"]
}

fn interest() -> impl Strategy<Value = Interest> {
    let options = (qos(), any::<bool>(), any::<bool>(), option::of(identifier()));
    options.prop_map(|(qos, no_local, as_published, identifier)| {
        let interest = Interest::new(qos).with_no_local(no_local).with_retain_as_published(as_published);
        interest.with_identifier(identifier)
    })
}

fn granted() -> impl Strategy<Value = Granted> {
    (qos(), any::<bool>(), vec(identifier(), 0..4)).prop_map(|(qos, retain, identifiers)| Granted {
        qos,
        retain,
        identifiers: identifiers.into(),
    })
}

fn user() -> impl Strategy<Value = Option<std::borrow::Cow<'static, str>>> {
    option::of("[a-zä]{0,9}").prop_map(|user| user.map(Into::into))
}

fn claims() -> impl Strategy<Value = Arc<Claims>> {
    let levels = (qos(), any::<bool>()).prop_map(|(qos_max, retain)| ClaimLevels { qos_max, retain });
    let uses = (1..8_u8).prop_map(|bits| Uses::from_bits(bits).expect("they are"));
    let rule = ("[a-z%/]{1,9}", uses, option::of(levels));
    let rule = rule.prop_map(|(filter, uses, allows)| ClaimRule { filter: filter.into(), uses, allows });
    let of_groups = vec("[a-zä]{1,9}".prop_map(String::into_boxed_str), 0..4);
    let all = (of_groups, option::of(vec(rule, 0..4)));
    let all = all.prop_filter("they give rights", |(groups, rules)| !groups.is_empty() || rules.is_some());
    all.prop_map(|(groups, rules)| Arc::new(Claims::new(groups, rules).expect("few of them")))
}

fn queues() -> impl Strategy<Value = Vec<Queued>> {
    vec((incarnation(), granted()).prop_map(|(queue, granted)| Queued { queue, granted }), 0..6)
}

prop_compose! {
    fn message()(
        topic in "[a-zä/]{1,150}",
        payload in vec(any::<u8>(), 0..300),
        publisher in option::of("[a-z]{0,9}"),
        expiry in option::of((any::<u32>(), 0..1u64 << 42)),
        content_type in option::of("[a-z]{0,9}"),
        retain in any::<bool>(),
        qos in qos(),
    ) -> Arc<Message> {
        let properties = MessageProperties {
            message_expiry_interval_secs: expiry.map(|(secs, _)| secs),
            content_type: content_type.as_deref().map(|text| Utf8::new(text).expect("short")),
            ..MessageProperties::EMPTY
        };
        let topic = TopicName::new(&topic).expect("no wildcards");
        let delivery = match qos {
            Qos::AtMostOnce => wire::Delivery::AtMostOnce,
            Qos::AtLeastOnce => wire::Delivery::AtLeastOnce { packet_id: PacketId::MIN, dup: false },
            Qos::ExactlyOnce => wire::Delivery::ExactlyOnce { packet_id: PacketId::MIN, dup: false },
        };
        let publish = Publish { properties, retain, delivery, ..Publish::new(topic, &payload) };
        let now = Now { monotonic_ms: 0, unix_ms: expiry.map_or(0, |(_, unix_ms)| unix_ms) };
        Arc::new(Message::new(topic, &publish, publisher.map(Into::into), now))
    }
}

fn will() -> impl Strategy<Value = WillRecord<'static>> {
    (message_id(), message(), any::<u32>()).prop_map(|(id, message, delay_secs)| WillRecord {
        id,
        message: std::borrow::Cow::Owned(message),
        delay_secs,
    })
}

/// One strategy for each variant, in the form of the variant itself.
macro_rules! any_record {
    ($($variant:ident { $($field:ident: $strategy:expr),* })*) => {
        fn record() -> BoxedStrategy<Record<'static>> {
            let each = vec![$(
                ($($strategy,)*)
                    .prop_map(|($($field,)*)| Record::$variant { $($field: $field.into_field()),* })
                    .boxed()
            ),*];
            proptest::strategy::Union::new(each).boxed()
        }
    };
}

/// The generated value, as it stands in the field.
trait IntoField<T> {
    fn into_field(self) -> T;
}

impl<T> IntoField<T> for T {
    fn into_field(self) -> T {
        self
    }
}

impl IntoField<std::borrow::Cow<'static, str>> for String {
    fn into_field(self) -> std::borrow::Cow<'static, str> {
        self.into()
    }
}

impl<T: Clone> IntoField<std::borrow::Cow<'static, [T]>> for Vec<T> {
    fn into_field(self) -> std::borrow::Cow<'static, [T]> {
        self.into()
    }
}

impl<T: Clone> IntoField<std::borrow::Cow<'static, T>> for T {
    fn into_field(self) -> std::borrow::Cow<'static, T> {
        std::borrow::Cow::Owned(self)
    }
}

any_record! {
    Session { session: incarnation(), client_id: "[a-zä]{0,40}" }
    Connected { session: incarnation(), expiry_secs: any::<u32>(), will: option::of(will()) }
    Left { session: incarnation(), expiry_secs: any::<u32>(), unix_ms: any::<u64>(), will: fate() }
    Ended { session: incarnation(), will: fate() }
    Subscribed { session: incarnation(), filter: filter(), interest: interest() }
    Unsubscribed { session: incarnation(), filter: filter() }
    Group { group: incarnation(), filter: "\\$share/[a-z]{1,3}/[a-z/]{1,9}" }
    GroupEnded { group: incarnation() }
    Enqueue { message: message_id(), body: message(), queues: queues(), is_retained: any::<bool>() }
    Cleared { topic: "[a-zä/]{1,150}" }
    Opened { session: incarnation(), packet_id: packet_id() }
    Closed { session: incarnation(), packet_id: packet_id() }
    Sent { session: incarnation(), message: message_id(), packet_id: packet_id() }
    Moved {
        group: incarnation(), session: incarnation(), message: message_id(),
        packet_id: packet_id(), granted: granted()
    }
    Received { session: incarnation(), packet_id: packet_id() }
    ReceivedKept { session: incarnation(), packet_id: packet_id(), place: any::<u64>() }
    Finished { session: incarnation(), packet_id: packet_id() }
    Removed { queue: incarnation(), message: message_id() }
    Cursor { session: incarnation(), filter: filter(), last: message_id() }
    CursorMoved { session: incarnation(), filter: filter(), from: vec(any::<u8>(), 0..40) }
    CursorDone { session: incarnation(), filter: filter() }
    WillDue { session: incarnation() }
    WillDone { will: message_id() }
    WillKept { will: message_id(), message: message() }
    Principal { session: incarnation(), user: user(), is_proved: any::<bool>(), rules: "[a-z/.]{0,9}" }
    WillPrincipal { will: message_id(), user: user(), rules: "[a-z/.]{0,9}", claims: option::of(claims()) }
    Owner {
        session: incarnation(), user: user(), is_proved: any::<bool>(), rules: "[a-z/.]{0,9}",
        users: "[a-z/.]{0,9}", mount: "[a-z/.]{0,9}", prefix: "[a-z/.]{0,9}", claims: option::of(claims())
    }
}

proptest! {
    #[test]
    fn groups_come_back_as_they_were(groups in vec(vec(record(), 1..5), 0..5)) {
        let bytes = groups.iter().flat_map(|group| encode(group)).collect::<Vec<_>>();
        let again = decode(&bytes).expect("what was encoded");
        let all_of = |groups: &[Vec<_>]| groups.iter().map(|group| all_of_group(group)).collect::<Vec<_>>();
        prop_assert_eq!(all_of(&groups), all_of(&again));
    }

    #[test]
    fn a_record_is_not_longer_than_the_ledger_expects(record in record()) {
        let most = record.bytes_most();
        let bytes = encode(&[record]);
        prop_assert!(bytes.len() <= most, "{} of at most {most} bytes", bytes.len());
    }

    #[test]
    fn a_record_that_is_cut_off_is_truncated(record in record()) {
        let bytes = encode(&[record]);
        for end in 1..bytes.len() {
            let error = decode(&bytes[..end]).expect_err("something is missing");
            prop_assert!(error.offset <= end, "{}", error);
            prop_assert!(error.fault == Fault::Truncated, "{}", error);
        }
    }

    /// Each value has one form, so what can be read is written the same way.
    #[test]
    fn a_byte_that_has_changed_makes_another_record_or_none(record in record(), mask in 1..=u8::MAX) {
        let mut bytes = encode(&[record]);
        for at in 0..bytes.len() {
            bytes[at] ^= mask;
            let decoded: Result<Vec<_>, _> = Decoder::default().records(&bytes).collect();
            if let Ok([Decoded { record: Some(record), is_last }]) = decoded.as_deref() {
                let mut again = encode(std::slice::from_ref(record));
                again[0] = again[0] & !LAST | if *is_last { LAST } else { 0 };
                prop_assert_eq!(&again, &bytes);
            }
            bytes[at] ^= mask;
        }
    }

    #[test]
    fn any_bytes_are_records_or_not(bytes in vec(any::<u8>(), 0..200)) {
        if let Err(error) = decode(&bytes) {
            prop_assert!(error.offset <= bytes.len());
        }
    }

    #[test]
    fn a_message_without_its_body_is_known_as_well(group in vec(record(), 1..4)) {
        let bytes = encode(&group);
        let mut decoder = Decoder::default();
        let mut at = 0;
        for (number, record) in group.iter().enumerate() {
            let mut records = decoder.records_from(&bytes, at);
            let Some((away, is_last)) = records.next_away().expect("it is whole") else {
                let is_one = matches!(record, Record::Enqueue { is_retained: false, queues, .. } if !queues.is_empty());
                prop_assert!(!is_one && records.offset() == at);
                records.next();
                at = records.offset();
                continue;
            };
            at = records.offset();
            let Record::Enqueue { message, body, queues, is_retained: false } = record else {
                panic!("it is {record:?}");
            };
            prop_assert_eq!(is_last, number + 1 == group.len());
            prop_assert_eq!(away.message, *message);
            prop_assert!(away.queues().eq(&**queues));
            prop_assert_eq!(away.size_bytes, body.size_bytes());
            prop_assert_eq!(away.expires_unix_ms, body.expires_unix_ms());
        }
        prop_assert_eq!(at, bytes.len());
    }
}

proptest! {
    #[test]
    fn needed_records_are_decoded_whole_and_in_order(
        groups in vec(vec(record(), 1..4), 0..5),
        needed in vec(any::<bool>(), 1..8),
    ) {
        let bytes = groups.iter().flat_map(|group| encode(group)).collect::<Vec<_>>();
        let needs = |queue: Incarnation, message: MessageId| {
            needed[usize::try_from((queue.0 ^ message.0) % needed.len() as u64).expect("few")]
        };
        let mut decoder = Decoder::default();
        let mut asks = |queue, message| needs(queue, message);
        let found: Vec<_> = decoder.needed(&bytes, &mut asks).map(|decoded| decoded.expect("whole")).collect();
        prop_assert_eq!(found.iter().filter(|decoded| decoded.is_last).count(), groups.len());
        let found: Vec<_> = found.iter().filter_map(|decoded| decoded.record.as_ref()).map(all_of).collect();
        let is_needed = |record: &&Record<'_>| match record {
            Record::Enqueue { message, queues, is_retained, .. } => {
                *is_retained || queues.iter().any(|queued| needs(queued.queue, *message))
            }
            other => other.begins_something(),
        };
        let expected: Vec<_> = groups.iter().flatten().filter(is_needed).map(all_of).collect();
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn an_error_says_where_and_what() {
    let mut bytes =
        encode(&[Record::Cleared { topic: "a/b".into() }, Record::WillDone { will: MessageId(1) }]);
    bytes[3] = b'+';
    let error = decode(&bytes).expect_err("a wildcard");
    assert_eq!(
        error.to_string(),
        format!("byte 1, field topic of a record Cleared: {}", topic::TopicError::Wildcard)
    );
    let error = decode(&[0x7F]).expect_err("no kind");
    assert_eq!(error.to_string(), "byte 0: there is no kind 127 of records");
}

#[test]
fn a_number_has_one_form() {
    let fault = |number: &[u8]| decode(&[&[23][..], number].concat()).expect_err("no number").fault;
    assert_eq!(fault(&[0x80, 0]), Fault::Number, "a byte too much");
    assert_eq!(fault(&[0xFF; 10]), Fault::Number, "no end");
    assert_eq!(fault(&[&[0xFF; 9][..], &[2]].concat()), Fault::Number, "65 bits");
    let largest = [&[23][..], &[0xFF; 9], &[1]].concat();
    assert_eq!(encode(&decode(&largest).expect("64 bits")[0])[1..], largest[1..]);
}

#[test]
fn publishers_are_in_memory_once() {
    let publish = Publish::new(topic::topic!("a"), b"");
    let message =
        Message::new(topic::topic!("a"), &publish, Some("me".into()), Now { monotonic_ms: 0, unix_ms: 0 });
    let record = Record::Enqueue {
        message: MessageId(1),
        body: Arc::new(message).into_field(),
        queues: vec![].into(),
        is_retained: true,
    };
    let groups = decode(&encode(&[record]).repeat(2)).expect("two groups");
    let publishers: Vec<_> = groups
        .iter()
        .map(|group| match &group[0] {
            Record::Enqueue { body, .. } => body.parts().publisher.cloned().expect("it has one"),
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(Arc::ptr_eq(&publishers[0], &publishers[1]));
}

mod golden;
