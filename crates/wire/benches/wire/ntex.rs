//! The codecs of ntex-mqtt: `v3` for 3.1.1, `v5` for 5.0.
//!
//! Strings are copied when a packet is created, as they are for rumqttc: an application has them as `&str`. Byte strings that
//! the library keeps by reference are not copied.

use crate::cases::{Case, Kind, Values};
use crate::measure::{BATCH, BUFFER_BYTES, Steps, sample};
use ntex_bytes::{BytePages, ByteString, Bytes, BytesMut};
use ntex_codec::{Decoder, Encoder};
use ntex_mqtt::{QoS, v3::codec as v3, v5::codec as v5};
use std::fmt::Debug;
use std::hint::black_box;
use std::num::{NonZeroU16, NonZeroU32};

pub(crate) const NAME: &str = "ntex-mqtt";

/// The steps of a case; `None` for AUTH of 3.1.1, which does not exist.
pub(crate) fn steps<'s>(case: &'s Case, values: &'s Values) -> Option<Steps<'s>> {
    let payload = Bytes::from(vec![b'x'; case.payload_bytes]);
    let (codec_3, codec_5) = (v3::Codec::new, v5::Codec::new);
    Some(match (case.version, case.packet) {
        (4, Kind::Connect) => steps_of(codec_3, || connect_3(black_box(values))),
        (4, Kind::Publish) => steps_of(codec_3, move || publish_3(case, black_box(values), &payload)),
        (4, Kind::Subscribe) => steps_of(codec_3, || subscribe_3(black_box(values))),
        (5, Kind::Connect) => steps_of(codec_5, || connect_5(case, black_box(values))),
        (5, Kind::Publish) => steps_of(codec_5, move || publish_5(case, black_box(values), &payload)),
        (5, Kind::Subscribe) => steps_of(codec_5, || subscribe_5(case, black_box(values))),
        (5, Kind::Auth) => steps_of(codec_5, || auth_5(black_box(values))),
        _ => return None,
    })
}

fn steps_of<'s, C, P>(codec: fn() -> C, make: impl Fn() -> P + Clone + 's) -> Steps<'s>
where
    C: Encoder<Item = P> + Decoder + 's,
    P: Clone + 's,
    <C as Encoder>::Error: Debug,
    <C as Decoder>::Error: Debug,
{
    let packet = make();
    let mut pages = BytePages::default();
    codec().encodev(packet.clone(), &mut pages).expect("a packet");
    let wire = pages.freeze().to_vec();
    let stream = wire.repeat(BATCH);
    let stream_of_all = stream.clone();
    let (writer, reader, both) = (codec(), codec(), codec());
    let mut pages_of_all = BytePages::default();

    let make_again = make.clone();
    let make_one = move || sample(|| _ = black_box(make()));
    let write = move || {
        // The encoder consumes the packet: the copies are made beforehand.
        let mut copies = vec![packet.clone(); BATCH];
        sample(|| {
            if pages.len() >= BUFFER_BYTES {
                pages.clear();
            }
            let copy = black_box(copies.pop().expect("one for each call"));
            writer.encodev(copy, &mut pages).expect("a packet");
        })
    };
    let read = move || {
        let mut stream = BytesMut::from(stream.as_slice());
        sample(|| _ = black_box(read_one(&reader, &mut stream)))
    };
    let all = move || {
        // The decoder reads another kind of buffer than the encoder writes: equal bytes lie there already.
        let mut stream = BytesMut::from(stream_of_all.as_slice());
        sample(|| {
            pages_of_all.clear();
            both.encodev(black_box(make_again()), &mut pages_of_all).expect("a packet");
            black_box(read_one(&both, &mut stream));
        })
    };
    Steps { wire, batches: [Box::new(make_one), Box::new(write), Box::new(read), Box::new(all)] }
}

#[inline]
fn read_one<C: Decoder>(codec: &C, from: &mut BytesMut) -> C::Item
where
    C::Error: Debug,
{
    codec.decode(from).expect("a packet").expect("a whole packet")
}

fn connect_3(values: &Values) -> v3::Encoded {
    v3::Encoded::Packet(v3::Packet::Connect(Box::new(v3::Connect {
        clean_session: true,
        keep_alive: values.keep_alive_secs,
        last_will: None,
        client_id: values.client_id.into(),
        username: Some(values.user_name.into()),
        password: Some(Bytes::from_static(values.password.as_bytes())),
    })))
}

fn publish_3(case: &Case, values: &Values, payload: &Bytes) -> v3::Encoded {
    let publish = v3::Publish {
        dup: false,
        retain: false,
        qos: qos(case),
        topic: values.topic.into(),
        packet_id: packet_id(case, values),
        payload_size: payload_size(payload),
    };
    v3::Encoded::Publish(publish, Some(payload.clone()))
}

fn subscribe_3(values: &Values) -> v3::Encoded {
    let topic_filters = values.filters.map(|filter| (filter.into(), QoS::AtLeastOnce)).into();
    let packet_id = NonZeroU16::new(values.packet_id).expect("not 0");
    v3::Encoded::Packet(v3::Packet::Subscribe { packet_id, topic_filters })
}

fn connect_5(case: &Case, values: &Values) -> v5::Encoded {
    let mut connect = v5::Connect {
        clean_start: true,
        keep_alive: values.keep_alive_secs,
        client_id: values.client_id.into(),
        username: Some(values.user_name.into()),
        password: Some(Bytes::from_static(values.password.as_bytes())),
        ..v5::Connect::default()
    };
    if case.properties {
        connect.session_expiry_interval_secs = values.session_expiry_secs;
        connect.receive_max = NonZeroU16::new(values.receive_maximum);
        connect.max_packet_size = NonZeroU32::new(values.maximum_packet_bytes);
        connect.topic_alias_max = values.topic_alias_maximum;
        connect.user_properties = vec![user_property(values)];
    }
    v5::Encoded::Packet(v5::Packet::Connect(Box::new(connect)))
}

fn publish_5(case: &Case, values: &Values, payload: &Bytes) -> v5::Encoded {
    let mut publish = v5::Publish {
        qos: qos(case),
        packet_id: packet_id(case, values),
        topic: values.topic.into(),
        payload_size: payload_size(payload),
        ..v5::Publish::default()
    };
    if case.properties {
        publish.properties = v5::PublishProperties {
            is_utf8_payload: true,
            message_expiry_interval: NonZeroU32::new(values.message_expiry_secs),
            content_type: Some(values.content_type.into()),
            response_topic: Some(values.response_topic.into()),
            correlation_data: Some(Bytes::from_static(values.correlation_data.as_bytes())),
            user_properties: vec![user_property(values)],
            ..v5::PublishProperties::default()
        };
    }
    v5::Encoded::Publish(publish, Some(payload.clone()))
}

fn subscribe_5(case: &Case, values: &Values) -> v5::Encoded {
    let options = v5::SubscriptionOptions { qos: QoS::AtLeastOnce, ..v5::SubscriptionOptions::default() };
    let mut subscribe = v5::Subscribe {
        packet_id: NonZeroU16::new(values.packet_id).expect("not 0"),
        id: None,
        user_properties: Vec::new(),
        topic_filters: values.filters.map(|filter| (filter.into(), options)).into(),
    };
    if case.properties {
        subscribe.id = NonZeroU32::new(values.subscription_id);
        subscribe.user_properties = vec![user_property(values)];
    }
    v5::Encoded::Packet(v5::Packet::Subscribe(subscribe))
}

fn auth_5(values: &Values) -> v5::Encoded {
    v5::Encoded::Packet(v5::Packet::Auth(v5::Auth {
        reason_code: v5::AuthReasonCode::ContinueAuth,
        auth_method: Some(values.authentication_method.into()),
        auth_data: Some(Bytes::from_static(values.authentication_data.as_bytes())),
        reason_string: None,
        user_properties: Vec::new(),
    }))
}

fn qos(case: &Case) -> QoS {
    if case.qos == 1 { QoS::AtLeastOnce } else { QoS::AtMostOnce }
}

fn packet_id(case: &Case, values: &Values) -> Option<NonZeroU16> {
    NonZeroU16::new(values.packet_id).filter(|_| case.qos > 0)
}

fn payload_size(payload: &Bytes) -> u32 {
    u32::try_from(payload.len()).expect("a payload of a case is short")
}

fn user_property(values: &Values) -> (ByteString, ByteString) {
    let [name, value] = values.user_property.map(ByteString::from);
    (name, value)
}
