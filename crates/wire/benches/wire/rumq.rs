//! The codecs of rumqttc: `mqttbytes::v4` for 3.1.1, `v5::mqttbytes::v5` for 5.0.

use crate::cases::{Case, Kind, Values};
use crate::measure::{BATCH, BUFFER_BYTES, Steps, sample};
use bytes::{Bytes, BytesMut};
use rumqttc::mqttbytes::{QoS as QoS4, v4};
use rumqttc::v5::mqttbytes::{QoS as QoS5, v5};
use std::hint::black_box;

pub(crate) const NAME: &str = "rumqttc";

/// The steps of a case; `None` for AUTH, which the library cannot read and whose types it does not export.
pub(crate) fn steps<'s>(case: &'s Case, values: &'s Values) -> Option<Steps<'s>> {
    // A payload that is kept by reference, so that making a packet does not copy it.
    let payload = Bytes::from(vec![b'x'; case.payload_bytes]);
    match (case.version, case.packet) {
        (4, Kind::Connect) => Some(steps_of(|| connect_4(black_box(values)))),
        (4, Kind::Publish) => Some(steps_of(move || publish_4(case, black_box(values), &payload))),
        (5, Kind::Connect) => Some(steps_of(|| connect_5(case, black_box(values)))),
        (5, Kind::Publish) => Some(steps_of(move || publish_5(case, black_box(values), &payload))),
        (4, Kind::Subscribe) => Some(steps_of(|| subscribe_4(black_box(values)))),
        (5, Kind::Subscribe) => Some(steps_of(|| subscribe_5(case, black_box(values)))),
        _ => None,
    }
}

fn steps_of<'s, P: Codec + 's>(make: impl Fn() -> P + Clone + 's) -> Steps<'s> {
    let packet = make();
    let mut buffer = BytesMut::with_capacity(2 * BUFFER_BYTES);
    let mut buffer_of_all = BytesMut::with_capacity(2 * BUFFER_BYTES);
    packet.put(&mut buffer);
    let wire = buffer.to_vec();
    let stream = wire.repeat(BATCH);

    let make_again = make.clone();
    let make_one = move || sample(|| _ = black_box(make()));
    let write = move || {
        sample(|| {
            if buffer.len() >= BUFFER_BYTES {
                buffer.clear();
            }
            black_box(&packet).put(&mut buffer);
        })
    };
    let read = move || {
        let mut stream = BytesMut::from(stream.as_slice());
        sample(|| _ = black_box(P::read(&mut stream)))
    };
    let all = move || {
        sample(|| {
            black_box(&make_again()).put(&mut buffer_of_all);
            black_box(P::read(&mut buffer_of_all));
        })
    };
    Steps { wire, batches: [Box::new(make_one), Box::new(write), Box::new(read), Box::new(all)] }
}

trait Codec {
    fn put(&self, to: &mut BytesMut);
    fn read(from: &mut BytesMut) -> Self;
}

impl Codec for v4::Packet {
    fn put(&self, to: &mut BytesMut) {
        self.write(to, usize::MAX).expect("a packet");
    }

    fn read(from: &mut BytesMut) -> Self {
        Self::read(from, usize::MAX).expect("a packet")
    }
}

impl Codec for v5::Packet {
    fn put(&self, to: &mut BytesMut) {
        self.write(to, None).expect("a packet");
    }

    fn read(from: &mut BytesMut) -> Self {
        Self::read(from, None).expect("a packet")
    }
}

fn connect_4(values: &Values) -> v4::Packet {
    let mut connect = v4::Connect::new(values.client_id);
    connect.keep_alive = values.keep_alive_secs;
    connect.set_login(values.user_name, values.password);
    v4::Packet::Connect(connect)
}

fn publish_4(case: &Case, values: &Values, payload: &Bytes) -> v4::Packet {
    let qos = if case.qos == 1 { QoS4::AtLeastOnce } else { QoS4::AtMostOnce };
    let mut publish = v4::Publish::from_bytes(values.topic, qos, payload.clone());
    publish.pkid = packet_id(case, values);
    v4::Packet::Publish(publish)
}

fn connect_5(case: &Case, values: &Values) -> v5::Packet {
    let properties = case.properties.then(|| v5::ConnectProperties {
        session_expiry_interval: Some(values.session_expiry_secs),
        receive_maximum: Some(values.receive_maximum),
        max_packet_size: Some(values.maximum_packet_bytes),
        topic_alias_max: Some(values.topic_alias_maximum),
        user_properties: vec![user_property(values)],
        ..v5::ConnectProperties::new()
    });
    let (keep_alive, client_id) = (values.keep_alive_secs, values.client_id.to_owned());
    let connect = v5::Connect { keep_alive, client_id, clean_start: true, properties };
    v5::Packet::Connect(connect, None, Some(v5::Login::new(values.user_name, values.password)))
}

fn publish_5(case: &Case, values: &Values, payload: &Bytes) -> v5::Packet {
    let properties = case.properties.then(|| v5::PublishProperties {
        payload_format_indicator: Some(1),
        message_expiry_interval: Some(values.message_expiry_secs),
        content_type: Some(values.content_type.to_owned()),
        response_topic: Some(values.response_topic.to_owned()),
        correlation_data: Some(Bytes::from_static(values.correlation_data.as_bytes())),
        user_properties: vec![user_property(values)],
        ..v5::PublishProperties::default()
    });
    let qos = if case.qos == 1 { QoS5::AtLeastOnce } else { QoS5::AtMostOnce };
    let mut publish = v5::Publish::new(values.topic, qos, payload.clone(), properties);
    publish.pkid = packet_id(case, values);
    v5::Packet::Publish(publish)
}

fn subscribe_4(values: &Values) -> v4::Packet {
    let filters = values.filters.map(|path| v4::SubscribeFilter::new(path.to_owned(), QoS4::AtLeastOnce));
    v4::Packet::Subscribe(v4::Subscribe { pkid: values.packet_id, filters: filters.into() })
}

fn subscribe_5(case: &Case, values: &Values) -> v5::Packet {
    let properties = case.properties.then(|| v5::SubscribeProperties {
        id: Some(values.subscription_id as usize),
        user_properties: vec![user_property(values)],
    });
    let filters = values.filters.map(|path| v5::Filter::new(path, QoS5::AtLeastOnce));
    v5::Packet::Subscribe(v5::Subscribe { pkid: values.packet_id, filters: filters.into(), properties })
}

fn packet_id(case: &Case, values: &Values) -> u16 {
    if case.qos == 0 { 0 } else { values.packet_id }
}

fn user_property(values: &Values) -> (String, String) {
    let [name, value] = values.user_property.map(str::to_owned);
    (name, value)
}
