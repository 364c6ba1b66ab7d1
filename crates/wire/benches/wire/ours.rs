//! The codec of Pondhawk.

use crate::cases::{Case, Kind, Values};
use crate::measure::{BATCH, BUFFER_BYTES, Measured, Steps, sample};
use std::hint::black_box;
use std::num::{NonZeroU16, NonZeroU32};
use wire::{
    Auth, AuthProperties, AuthReason, Binary, Connect, ConnectProperties, Decoded, Delivery, Limits,
    MessageProperties, OneOrMore, Packet, PacketId, PayloadFormat, Publish, Qos, ResponseTopic, Subscribe,
    SubscribeProperties, Subscription, SubscriptionIdentifier, TopicFilter, TopicName, UserProperties,
    UserProperty, Utf8, Version, decode,
};

pub(crate) const NAME: &str = "Pondhawk";

pub(crate) fn with_steps<R>(case: &Case, values: &Values, then: impl FnOnce(Steps<'_>) -> R) -> R {
    let payload = &vec![b'x'; case.payload_bytes];
    match case.packet {
        Kind::Connect => with_steps_of(case, &MakeConnect { case, values }, then),
        Kind::Publish => with_steps_of(case, &MakePublish { case, values, payload }, then),
        Kind::Subscribe => with_steps_of(case, &MakeSubscribe { case, values }, then),
        Kind::Auth => with_steps_of(case, &MakeAuth { values }, then),
    }
}

/// Checks that all codecs encoded the same packet.
///
/// # Panics
/// If a codec wrote another packet.
pub(crate) fn check_all_mean_the_same(case: &Case, measured: &[Measured]) {
    let of_case = || measured.iter().filter(|measured| measured.case == case.name);
    let ours = of_case().find(|measured| measured.codec == NAME).expect("every case is measured");
    let expected = read(&ours.wire, before(case)).to_string();
    for other in of_case() {
        assert_eq!(other.wire.len(), ours.wire.len(), "{} writes another {}", other.codec, case.name);
        assert_eq!(in_our_order(&other.wire, case), expected, "{} writes another {}", other.codec, case.name);
    }
}

/// The packet in the format of a trace, which does not depend on the order of the properties on the wire.
fn in_our_order(bytes: &[u8], case: &Case) -> String {
    read(bytes, before(case)).to_string()
}

fn with_steps_of<R>(case: &Case, maker: &impl Make, then: impl FnOnce(Steps<'_>) -> R) -> R {
    let version = version(case);
    let mut wire = Vec::new();
    maker.with_packet(|packet| packet.put(version, &mut wire));
    let stream = wire.repeat(BATCH);
    let mut buffer = Vec::with_capacity(2 * BUFFER_BYTES);
    let mut buffer_of_all = Vec::with_capacity(2 * BUFFER_BYTES);

    let make = || sample(|| maker.with_packet(|packet| _ = black_box(packet)));
    let read_stream = || {
        let mut rest = stream.as_slice();
        sample(|| {
            let (packet, len) = read_first(rest, before(case));
            black_box(&packet);
            rest = &rest[len..];
        })
    };
    let all = || {
        sample(|| {
            buffer_of_all.clear();
            maker.with_packet(|packet| black_box(packet).put(version, &mut buffer_of_all));
            black_box(&read(&buffer_of_all, before(case)));
        })
    };
    maker.with_packet(|packet| {
        let write = || {
            sample(|| {
                if buffer.len() >= BUFFER_BYTES {
                    buffer.clear();
                }
                black_box(packet).put(version, &mut buffer);
            })
        };
        then(Steps { wire, batches: [Box::new(make), Box::new(write), Box::new(read_stream), Box::new(all)] })
    })
}

fn read(bytes: &[u8], before: Option<Version>) -> Packet<'_> {
    read_first(bytes, before).0
}

#[inline]
fn read_first(bytes: &[u8], before: Option<Version>) -> (Packet<'_>, usize) {
    match decode(bytes, before, &Limits::default()) {
        Ok(Decoded::Packet { packet, len }) => (packet, len),
        other => panic!("no packet: {other:?}"),
    }
}

fn version(case: &Case) -> Version {
    if case.version == 5 { Version::V5 } else { Version::V3_1_1 }
}

/// The version that is known before the packet arrives.
fn before(case: &Case) -> Option<Version> {
    (case.packet != Kind::Connect).then(|| version(case))
}

/// Makes a packet of plain values, checks all of them, and passes the packet to a closure.
trait Make {
    type Packet<'p>: Put;

    fn with_packet<R>(&self, then: impl FnOnce(&Self::Packet<'_>) -> R) -> R;
}

trait Put {
    fn put(&self, version: Version, to: &mut Vec<u8>);
}

macro_rules! put {
    ($($packet:ident)*) => {$(
        impl Put for $packet<'_> {
            fn put(&self, version: Version, to: &mut Vec<u8>) {
                self.encode(version, to).expect("a vector has room");
            }
        }
    )*};
}

put! { Connect Publish Subscribe Auth }

struct MakeConnect<'v> {
    case: &'v Case,
    values: &'v Values,
}

impl Make for MakeConnect<'_> {
    type Packet<'p> = Connect<'p>;

    fn with_packet<R>(&self, then: impl FnOnce(&Connect<'_>) -> R) -> R {
        let values = black_box(self.values);
        let pairs;
        let mut connect = Connect::new(version(self.case), utf8(values.client_id));
        connect.keep_alive_secs = values.keep_alive_secs;
        let credentials = (Some(utf8(values.user_name)), Some(binary(values.password)));
        connect.set_credentials(credentials.0, credentials.1).expect("a password with a user name");
        if self.case.properties {
            pairs = [user_property(values)];
            connect.properties = ConnectProperties {
                session_expiry_interval_secs: Some(values.session_expiry_secs),
                receive_maximum: NonZeroU16::new(values.receive_maximum),
                maximum_packet_bytes: NonZeroU32::new(values.maximum_packet_bytes),
                topic_alias_maximum: Some(values.topic_alias_maximum),
                user_properties: UserProperties::from(&pairs[..]),
                ..ConnectProperties::EMPTY
            };
        }
        then(&connect)
    }
}

struct MakePublish<'v> {
    case: &'v Case,
    values: &'v Values,
    payload: &'v [u8],
}

impl Make for MakePublish<'_> {
    type Packet<'p> = Publish<'p>;

    fn with_packet<R>(&self, then: impl FnOnce(&Publish<'_>) -> R) -> R {
        let values = black_box(self.values);
        let pairs;
        let topic = TopicName::new(values.topic).expect("a topic name");
        let mut publish = Publish::new(topic, black_box(self.payload));
        if self.case.qos == 1 {
            let packet_id = PacketId::new(values.packet_id).expect("not 0");
            publish.delivery = Delivery::AtLeastOnce { packet_id, dup: false };
        }
        if self.case.properties {
            pairs = [user_property(values)];
            let response_topic = TopicName::new(values.response_topic).expect("a topic name");
            publish.properties = MessageProperties {
                payload_format: Some(PayloadFormat::Utf8),
                message_expiry_interval_secs: Some(values.message_expiry_secs),
                content_type: Some(utf8(values.content_type)),
                response_topic: Some(ResponseTopic(response_topic)),
                correlation_data: Some(binary(values.correlation_data)),
                user_properties: UserProperties::from(&pairs[..]),
            };
        }
        then(&publish)
    }
}

struct MakeSubscribe<'v> {
    case: &'v Case,
    values: &'v Values,
}

impl Make for MakeSubscribe<'_> {
    type Packet<'p> = Subscribe<'p>;

    fn with_packet<R>(&self, then: impl FnOnce(&Subscribe<'_>) -> R) -> R {
        let values = black_box(self.values);
        let pairs;
        let filter = |text| TopicFilter::new(text).expect("a topic filter");
        let subscriptions = values.filters.map(|text| Subscription::with_qos(filter(text), Qos::AtLeastOnce));
        let mut subscribe = Subscribe {
            packet_id: PacketId::new(values.packet_id).expect("not 0"),
            properties: SubscribeProperties::EMPTY,
            subscriptions: OneOrMore::new(&subscriptions).expect("there are three"),
        };
        if self.case.properties {
            pairs = [user_property(values)];
            subscribe.properties = SubscribeProperties {
                subscription_identifier: SubscriptionIdentifier::new(values.subscription_id),
                user_properties: UserProperties::from(&pairs[..]),
            };
        }
        then(&subscribe)
    }
}

struct MakeAuth<'v> {
    values: &'v Values,
}

impl Make for MakeAuth<'_> {
    type Packet<'p> = Auth<'p>;

    fn with_packet<R>(&self, then: impl FnOnce(&Auth<'_>) -> R) -> R {
        let values = black_box(self.values);
        then(&Auth {
            reason: AuthReason::ContinueAuthentication,
            properties: AuthProperties {
                authentication_method: Some(utf8(values.authentication_method)),
                authentication_data: Some(binary(values.authentication_data)),
                ..AuthProperties::EMPTY
            },
        })
    }
}

fn utf8(text: &str) -> Utf8<'_> {
    Utf8::new(text).expect("a string that MQTT can carry")
}

fn binary(text: &str) -> Binary<'_> {
    Binary::new(text.as_bytes()).expect("short")
}

fn user_property<'v>(values: &Values) -> UserProperty<'v> {
    let [name, value] = values.user_property.map(utf8);
    UserProperty { name, value }
}
