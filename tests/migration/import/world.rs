//! Sessions, subscriptions and messages that the real Mosquitto stores, and the same as the broker must have them.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use pondhawk_tests::conversation::{Conversation, Message, PUBACK, PUBCOMP, PUBREC, PUBREL, lose, publish};
use pondhawk_tests::packet::{self, Connect, user_property};
use pondhawk_tests::{Broker, Client, Mosquitto, Version, until};
use serde_json::{Value, json};

/// An expiry of an hour, as an encoded property of a message.
const HOUR: &[u8] = &[2, 0, 0, 0x0E, 0x10];
/// An expiry that has passed when Mosquitto has stopped and [`wait`] has returned.
const SECOND: &[u8] = &[2, 0, 0, 0, 1];
/// Messages that arrive for each session: its own, of which one has expired, and one to all sessions.
pub(crate) const PER_SESSION: usize = 4;

/// Numbers of a database.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) sessions: usize,
    pub(crate) retained: usize,
}

fn version(number: usize) -> Version {
    if number.is_multiple_of(2) { Version::V3_1_1 } else { Version::V5 }
}

fn client_id(number: usize) -> String {
    format!("session {number}")
}

/// Connects a session that lasts this long, in seconds. Before MQTT 5.0, it lasts for ever.
fn connect_for(
    version: Version,
    client_id: &str,
    secs: u8,
    act: impl FnOnce(&Connect<'_>) -> Client,
) -> Client {
    let expiry = [0x11, 0, 0, 0x0E * u8::from(secs == 0), if secs == 0 { 0x10 } else { secs }];
    let properties: &[u8] = if version.is_5() { &expiry } else { &[] };
    act(&Connect { clean_start: false, properties, ..Connect::new(version, client_id) })
}

/// A subscription with everything that MQTT 5.0 has.
struct Subscription {
    filter: String,
    qos: u8,
    no_local: bool,
    retain_as_published: bool,
    identifier: u32,
}

fn subscriptions(number: usize) -> [Subscription; 2] {
    let is_5 = version(number).is_5();
    let count = u32::try_from(number).expect("few sessions");
    let identifier = |identifier: u32| if is_5 && !number.is_multiple_of(5) { identifier } else { 0 };
    [
        Subscription {
            filter: format!("queue/{number}/#"),
            qos: 2,
            no_local: is_5 && number % 4 == 1,
            retain_as_published: is_5 && number.is_multiple_of(3),
            identifier: identifier(count + 1),
        },
        Subscription {
            filter: "all/+".to_owned(),
            qos: 1,
            no_local: false,
            retain_as_published: false,
            identifier: identifier((1 << 28) - 1 - count),
        },
    ]
}

fn identifier_property(identifier: u32) -> Vec<u8> {
    match identifier {
        0 => Vec::new(),
        _ => [vec![0x0B], packet::variable_byte_integer(identifier as usize)].concat(),
    }
}

/// A message with its end of properties, which says how long the message lasts.
struct Sample {
    qos: u8,
    topic: String,
    payload: String,
    user: Vec<u8>,
    expiry: &'static [u8],
}

impl Sample {
    fn of_session(number: usize, index: usize) -> Self {
        let expiry = match index {
            0 => HOUR,
            2 => SECOND,
            _ => &[],
        };
        let payload = format!("{index} of {number}");
        let user = [content_type("text"), user_property("payload", &payload)].concat();
        let qos = if index.is_multiple_of(2) { 1 } else { 2 };
        Self { qos, topic: format!("queue/{number}/{index}"), payload, user, expiry }
    }

    fn of_all() -> Self {
        let (topic, payload) = ("all/news".to_owned(), "for everybody".to_owned());
        Self { qos: 2, topic, payload, user: Vec::new(), expiry: &[] }
    }

    fn retained(number: usize) -> Self {
        let expiry = if number.is_multiple_of(7) { HOUR } else { &[] };
        let qos = u8::try_from(number % 3).expect("a QoS");
        let (topic, payload) = (format!("retained/{}/{number}", number % 10), format!("value {number}"));
        Self { qos, topic, user: user_property("number", &payload), payload, expiry }
    }

    fn send(&self, publisher: &mut Client, retain: bool) {
        let properties = [self.expiry, &self.user].concat();
        let first = 0x30 | self.qos << 1 | u8::from(retain);
        let version = publisher.version();
        publisher.send(&publish(version, first, 9, &self.topic, &properties, self.payload.as_bytes()));
        match self.qos {
            1 => publisher.expect_ack(PUBACK, 9),
            2 => {
                publisher.expect_ack(PUBREC, 9);
                publisher.acknowledge(PUBREL, 9);
                publisher.expect_ack(PUBCOMP, 9);
            }
            _ => {}
        }
    }
}

fn content_type(text: &str) -> Vec<u8> {
    [vec![0x03], packet::string(text)].concat()
}

/// Lets Mosquitto store sessions with their queues, and retained messages.
pub(crate) fn store(mosquitto: &Mosquitto, size: Size) {
    let connect = |version, client_id: &str, secs| {
        connect_for(version, client_id, secs, |connect| Client::connect(mosquitto.address(), connect))
    };
    for number in 0..size.sessions {
        let mut client = connect(version(number), &client_id(number), 0);
        for of in subscriptions(number) {
            let options = of.qos | u8::from(of.no_local) << 2 | u8::from(of.retain_as_published) << 3;
            client.subscribe_as(&identifier_property(of.identifier), &of.filter, options);
        }
        client.subscribe_with("never/again", 1);
        client.unsubscribe("never/again");
        client.leave();
    }
    let mut publisher = Client::connect(mosquitto.address(), &Connect::new(Version::V5, "publisher"));
    for index in 0..PER_SESSION {
        (0..size.sessions).for_each(|number| Sample::of_session(number, index).send(&mut publisher, false));
    }
    Sample::of_all().send(&mut publisher, false);
    (0..size.retained).for_each(|number| Sample::retained(number).send(&mut publisher, true));
    let cleared = Sample { topic: "retained/cleared".to_owned(), ..Sample::of_all() };
    cleared.send(&mut publisher, true);
    Sample { payload: String::new(), ..cleared }.send(&mut publisher, true);
    Sample { topic: "retained/past".to_owned(), expiry: SECOND, ..Sample::of_all() }
        .send(&mut publisher, true);
    publisher.leave();
    connect(Version::V5, "past", 1).leave();
    connect(Version::V5, "soon past", 6).leave();
}

/// Waits until so many seconds have passed since a time.
pub(crate) fn wait(since: SystemTime, secs: u64) {
    until("the time has passed", || (SystemTime::now() >= since + Duration::from_secs(secs)).then_some(()));
}

/// Checks the list of sessions, with their subscriptions.
pub(crate) fn listed(found: &Value, size: Size) {
    let of = |session: &Value| session["client_id"].as_str().expect("a text").to_owned();
    let sessions = found["sessions"].as_array().expect("a list");
    let sessions: BTreeMap<String, &Value> = sessions.iter().map(|session| (of(session), session)).collect();
    for number in 0..size.sessions {
        let session = sessions[&client_id(number)];
        let mut wanted: Vec<Value> = subscriptions(number).iter().map(Subscription::json).collect();
        wanted.sort_by_key(|of| of["filter"].to_string());
        assert_eq!(session["subscriptions"], Value::from(wanted), "{session}");
        let lasts = if version(number).is_5() { json!(3_600) } else { Value::Null };
        assert_eq!(session["expiry_secs"], lasts, "{session}");
        assert_eq!(session["queue"]["messages"], PER_SESSION, "{session}");
    }
    assert!(!sessions.contains_key("past"));
}

impl Subscription {
    fn json(&self) -> Value {
        json!({
            "filter": self.filter,
            "qos": self.qos,
            "no_local": self.no_local,
            "retain_as_published": self.retain_as_published,
            "identifier": if self.identifier == 0 { Value::Null } else { json!(self.identifier) },
        })
    }
}

/// Checks every message that a broker serves.
pub(crate) fn served(broker: &Broker, size: Size) {
    (0..size.sessions).for_each(|number| served_to(broker, number));
    let mut reader = broker.client(Version::V5, "reader");
    reader.subscribe_with("retained/#", 2);
    let mut found = BTreeMap::new();
    for message in take(&mut reader, size.retained) {
        assert!(message.retain && !message.dup, "{message:?}");
        assert_eq!(found.insert(message.topic.clone(), message), None, "twice");
    }
    for number in 0..size.retained {
        let wanted = Sample::retained(number);
        let message = found.get(&wanted.topic).unwrap_or_else(|| panic!("{} is not there", wanted.topic));
        assert_eq!((message.qos, &*message.payload), (wanted.qos, wanted.payload.as_bytes()));
        with_properties(&message.properties, &wanted, 0);
    }
}

/// A session has its messages in their order, and then what its subscriptions say.
fn served_to(broker: &Broker, number: usize) {
    let version = version(number);
    let mut client = connect_for(version, &client_id(number), 0, |connect| {
        let (client, connack) = broker.greet(connect);
        assert_eq!(connack[2], 1, "the session is there");
        client
    });
    let own = (0..PER_SESSION).map(|index| Sample::of_session(number, index));
    let own = own.filter(|sample| sample.expiry != SECOND);
    let [of_own, of_all] = subscriptions(number).map(|subscription| subscription.identifier);
    let wanted = own.map(|sample| (sample, of_own)).chain([(Sample { qos: 1, ..Sample::of_all() }, of_all)]);
    let (mut wanted, mut found): (Vec<_>, _) = (wanted.collect(), take(&mut client, PER_SESSION));
    // Messages of different QoS have no order.
    wanted.sort_by_key(|(sample, _)| sample.qos);
    found.sort_by_key(|message| message.qos);
    for ((sample, identifier), message) in wanted.iter().zip(&found) {
        assert_eq!((&*message.payload, message.qos), (sample.payload.as_bytes(), sample.qos));
        let (dup, retain) = (message.dup, message.retain);
        assert_eq!((dup, retain, &*message.topic), (false, false, &*sample.topic));
        if version.is_5() {
            with_properties(&message.properties, sample, *identifier);
        }
    }
    client.leave();
}

/// Receives so many messages, and completes the exchanges of acknowledgements.
fn take(client: &mut Client, count: usize) -> Vec<Message> {
    let mut messages = Vec::new();
    let mut unreleased = 0;
    while messages.len() < count || unreleased > 0 {
        let packet = client.read_packet();
        if packet[0] == PUBREL {
            client.acknowledge(PUBCOMP, u16::from_be_bytes([packet[2], packet[3]]));
            unreleased -= 1;
            continue;
        }
        let message = Message::parse(client.version(), &packet);
        match message.qos {
            0 => {}
            1 => client.acknowledge(PUBACK, message.packet_id),
            _ => {
                client.acknowledge(PUBREC, message.packet_id);
                unreleased += 1;
            }
        }
        messages.push(message);
    }
    messages
}

/// Checks the properties of a message: the user's, the rest of the expiry, and the subscription's identifier.
fn with_properties(properties: &[u8], sample: &Sample, identifier: u32) {
    let has = |part: &[u8]| part.is_empty() || properties.windows(part.len()).any(|bytes| bytes == part);
    let identifier = identifier_property(identifier);
    assert!(has(&sample.user) && has(&identifier), "{properties:02x?} {}", sample.payload);
    // Of an hour, the first two bytes of four are 0.
    assert!(sample.expiry.is_empty() || has(&[2, 0, 0]), "{properties:02x?} {}", sample.payload);
    let length = sample.user.len() + identifier.len() + sample.expiry.len();
    assert_eq!(properties.len(), length, "{properties:02x?} {}", sample.payload);
}

/// Leaves exchanges in the middle: a client with a message of each state, and a publisher.
pub(crate) fn begin_exchanges(mosquitto: &Mosquitto) {
    let connect = |client_id| Connect { clean_start: false, ..Connect::new(Version::V3_1_1, client_id) };
    let mut half = Client::connect(mosquitto.address(), &connect("half"));
    half.subscribe_with("half/#", 2);
    let mut publisher = Client::connect(mosquitto.address(), &Connect::new(Version::V5, "publisher"));
    for (qos, payload) in [(2, b"handed over"), (2, b"sent twice "), (1, b"sent before")] {
        publisher.deliver(qos, "half/way", payload);
    }
    let handed_over = half.message();
    half.acknowledge(PUBREC, handed_over.packet_id);
    let packets = [half.read_packet(), half.read_packet(), half.read_packet()];
    assert!(packets.contains(&vec![PUBREL, 2, 0, 1]) && handed_over.packet_id == 1, "{packets:02x?}");
    lose(half);
    publisher.deliver(1, "half/way", b"not sent");
    let mut giver = Client::connect(mosquitto.address(), &connect("giver"));
    giver.publish_at(2, 77, "half/given", b"not released");
    giver.expect_ack(PUBREC, 77);
    lose(giver);
    let mut giver = Client::connect(mosquitto.address(), &connect("keeper"));
    giver.send(&publish(Version::V3_1_1, 0x35, 78, "kept", &[], b"not released"));
    giver.expect_ack(PUBREC, 78);
    lose(giver);
}

/// The exchanges go on where they stood.
pub(crate) fn go_on_with_exchanges(broker: &Broker) {
    let connect = |client_id| Connect { clean_start: false, ..Connect::new(Version::V3_1_1, client_id) };
    for (client_id, packet_id) in [("giver", 77), ("keeper", 78)] {
        let mut giver = broker.client_with(&connect(client_id));
        giver.acknowledge(PUBREL, packet_id);
        giver.expect_ack(PUBCOMP, packet_id);
        giver.leave();
    }
    let mut half = broker.client_with(&connect("half"));
    let mut found = Vec::new();
    for _ in 0..5 {
        let packet = half.read_packet();
        if packet[0] == PUBREL {
            found.push((u16::from_be_bytes([packet[2], packet[3]]), "released".to_owned(), false));
            continue;
        }
        let message = Message::parse(Version::V3_1_1, &packet);
        let payload = String::from_utf8(message.payload).expect("a text");
        found.push((if message.dup { message.packet_id } else { 0 }, payload, message.dup));
    }
    half.expect_only_pong();
    let texts = [
        (1, "released", false),
        (2, "sent twice ", true),
        (3, "sent before", true),
        (0, "not sent", false),
        (0, "not released", false),
    ];
    assert_eq!(found, texts.map(|(packet_id, text, dup)| (packet_id, text.to_owned(), dup)));
    let mut reader = broker.client(Version::V3_1_1, "reader of one");
    reader.subscribe("kept");
    reader.expect_retained("kept", b"not released");
}

/// An expiry that began at Mosquitto goes on.
pub(crate) fn is_past(broker: &Broker, client_id: &str, since: SystemTime) {
    wait(since, 7);
    let connect = Connect { clean_start: false, ..Connect::new(Version::V5, client_id) };
    let (_, connack) = broker.greet(&connect);
    assert_eq!(connack[2], 0, "the session has expired");
}

/// Subscribes as a member of a group.
pub(crate) fn share(client: &mut Client) {
    client.subscribe_with("$share/g/shared/#", 1);
}
