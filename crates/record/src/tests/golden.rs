//! One record of each kind, in hexadecimal: the format does not change unnoticed.

use super::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn message() -> Arc<Message> {
    let properties = MessageProperties { message_expiry_interval_secs: Some(60), ..MessageProperties::EMPTY };
    let topic = topic::topic!("a/b");
    let delivery = wire::Delivery::AtLeastOnce { packet_id: PacketId::MIN, dup: false };
    let publish = Publish { properties, retain: true, delivery, ..Publish::new(topic, b"hey") };
    Arc::new(Message::new(topic, &publish, Some("me".into()), Now { monotonic_ms: 0, unix_ms: 1_000_000 }))
}

fn granted(identifiers: &[u32]) -> Granted {
    let identifiers = identifiers.iter().map(|id| NonZeroU32::new(*id).expect("not 0")).collect();
    Granted { qos: Qos::ExactlyOnce, retain: true, identifiers }
}

fn packet_id(id: u16) -> PacketId {
    PacketId::new(id).expect("not 0")
}

#[test]
fn the_format_is_the_one_in_the_manual() {
    let session = Incarnation(1);
    let will = WillRecord { id: MessageId(9), message: message().into_field(), delay_secs: 30 };
    let interest = Interest::new(Qos::AtLeastOnce).with_no_local(true);
    let (group, message_id) = (Incarnation(200), MessageId(300));
    let (filter, shared) = ("a/#", "$share/g/a");
    let queues = vec![
        Queued { queue: session, granted: Granted { retain: false, ..granted(&[]) } },
        Queued { queue: group, granted: granted(&[5, 200]) },
    ];
    let records = [
        Record::Session { session, client_id: "me".into() },
        Record::Connected { session, expiry_secs: u32::MAX, will: None },
        Record::Connected { session, expiry_secs: 60, will: Some(will) },
        Record::Left { session, expiry_secs: 60, unix_ms: 1_000_000, will: WillFate::Waits },
        Record::Ended { session, will: WillFate::Due },
        Record::Subscribed { session, filter: filter.into(), interest },
        Record::Subscribed {
            session,
            filter: filter.into(),
            interest: interest.with_identifier(NonZeroU32::new(128)),
        },
        Record::Unsubscribed { session, filter: filter.into() },
        Record::Group { group, filter: shared.into() },
        Record::GroupEnded { group },
        Record::Enqueue {
            message: message_id,
            body: message().into_field(),
            queues: queues.into(),
            is_retained: true,
        },
        Record::Cleared { topic: "a/b".into() },
        Record::Opened { session, packet_id: packet_id(1) },
        Record::Closed { session, packet_id: packet_id(1) },
        Record::Sent { session, message: message_id, packet_id: packet_id(1) },
        Record::Moved {
            group,
            session,
            message: message_id,
            packet_id: packet_id(65_535),
            granted: granted(&[]).into_field(),
        },
        Record::Received { session, packet_id: packet_id(1) },
        Record::Finished { session, packet_id: packet_id(1) },
        Record::Removed { queue: session, message: message_id },
        Record::Cursor { session, filter: filter.into(), last: message_id },
        Record::CursorMoved { session, filter: filter.into(), from: b"a\0b".as_slice().into() },
        Record::CursorDone { session, filter: filter.into() },
        Record::WillDue { session },
        Record::WillDone { will: MessageId(9) },
        Record::WillKept { will: MessageId(9), message: message().into_field() },
        Record::Principal { session, user: Some("ann".into()), is_proved: true, rules: "acl".into() },
        Record::Principal { session, user: None, is_proved: false, rules: "".into() },
        will_principal(claims(&["g"], None)),
        owner(session, None),
        owner(session, claims(&["b", "a"], Some(Vec::new()))),
        owner(session, claims(&[], Some(rules()))),
        Record::ReceivedKept { session, packet_id: packet_id(1), place: 300 },
    ];
    let line = |record: &Record<'_>| {
        let trace = format!("{record:?}");
        let (name, _) = trace.split_once(' ').expect("a name and what it is about");
        format!("{name} {}\n", hex(&encode(std::slice::from_ref(record))))
    };
    let lines: String = records.iter().map(line).collect();
    assert_eq!(lines, include_str!("golden.txt"), "a format that has changed has a new version");
}

fn claims(groups: &[&str], rules: Option<Vec<ClaimRule>>) -> Option<Arc<Claims>> {
    let groups = groups.iter().map(|name| (*name).into()).collect();
    Some(Arc::new(Claims::new(groups, rules).expect("few of them")))
}

/// One that allows everything there is, and one that denies.
fn rules() -> Vec<ClaimRule> {
    let levels = ClaimLevels { qos_max: Qos::ExactlyOnce, retain: true };
    let rule = |filter: &str, uses, allows| ClaimRule { filter: filter.into(), uses, allows };
    vec![
        rule("a/%u", Uses::PUBLISH.and(Uses::SUBSCRIBE).and(Uses::RECEIVE), Some(levels)),
        rule("#", Uses::RECEIVE, None),
    ]
}

fn will_principal(claims: Option<Arc<Claims>>) -> Record<'static> {
    Record::WillPrincipal { will: MessageId(9), user: Some("ann".into()), rules: "acl".into(), claims }
}

fn owner(session: Incarnation, claims: Option<Arc<Claims>>) -> Record<'static> {
    Record::Owner {
        session,
        user: Some("ann".into()),
        is_proved: true,
        rules: "acl".into(),
        users: "pw".into(),
        mount: "m/".into(),
        prefix: "p/".into(),
        claims,
    }
}
