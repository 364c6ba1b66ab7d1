//! Printable fields of a received message.

use client::{Message, MessageProperties, Qos};
use wire::PayloadFormat;

use crate::clock::Moment;
use crate::json::{Json, Pairs};

/// A received message, and its time.
#[derive(Debug)]
pub(crate) struct Received<'a> {
    pub(crate) topic: &'a str,
    pub(crate) payload: &'a [u8],
    pub(crate) qos: Qos,
    pub(crate) retain: bool,
    /// Packet identifier; 0 at QoS 0, which has none.
    pub(crate) packet_id: u16,
    pub(crate) topic_alias: Option<u16>,
    pub(crate) subscription_identifier: Option<u32>,
    pub(crate) properties: MessageProperties<'a>,
    /// Time at which the message was taken out of its stream.
    pub(crate) at: Moment,
}

/// Form of the payload in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Payload {
    /// Text up to the first zero byte, at which C strings end.
    Text,
    /// JSON value; the message is not printed if the payload is not JSON.
    Value,
    /// JSON value if possible, otherwise text, otherwise hexadecimal bytes.
    Anything,
}

impl<'a> Received<'a> {
    pub(crate) fn new(message: &'a Message, topic: &'a str, at: Moment) -> Self {
        Self {
            topic,
            payload: message.payload(),
            qos: message.qos(),
            retain: message.retain(),
            packet_id: message.packet_id().map_or(0, client::PacketId::value),
            topic_alias: message.topic_alias().map(client::TopicAlias::value),
            subscription_identifier: message
                .subscription_identifiers()
                .first()
                .map(|identifier| identifier.value()),
            properties: message.properties(),
            at,
        }
    }

    pub(crate) fn payload_format(&self) -> Option<u8> {
        self.properties.payload_format.map(|format| match format {
            PayloadFormat::Unspecified => 0,
            PayloadFormat::Utf8 => 1,
        })
    }

    /// The message as a JSON object; `None` if the payload should be JSON and is not.
    pub(crate) fn json(&self, payload: Payload) -> Option<Json> {
        let mut members = vec![
            ("tst", Json::text(&self.at.json())),
            ("topic", Json::text(self.topic)),
            ("qos", Json::number(self.qos.level())),
            ("retain", Json::number(self.retain)),
            ("payloadlen", Json::number(u64::try_from(self.payload.len()).unwrap_or(u64::MAX))),
        ];
        if self.qos > Qos::AtMostOnce {
            members.push(("mid", Json::number(self.packet_id)));
        }
        members.extend(self.json_properties().map(|properties| ("properties", properties)));
        members.push(self.json_payload(payload)?);
        let owned = |(name, value): (&str, Json)| (name.as_bytes().to_vec(), value);
        Some(Json::Object(members.into_iter().map(owned).collect()))
    }

    fn json_payload(&self, payload: Payload) -> Option<(&'static str, Json)> {
        let end = self.payload.iter().position(|byte| *byte == 0).unwrap_or(self.payload.len());
        let value = match payload {
            _ if self.payload.is_empty() => Json::Null,
            Payload::Text => Json::Text(self.payload[..end].to_vec()),
            Payload::Value => Json::parse(self.payload)?,
            Payload::Anything => match (Json::parse(self.payload), std::str::from_utf8(self.payload)) {
                (Some(value), _) if end == self.payload.len() => value,
                (_, Ok(text)) => Json::text(text),
                _ => return Some(("payloadhex", Json::Hexadecimal(self.payload.to_vec()))),
            },
        };
        Some(("payload", value))
    }

    fn json_properties(&self) -> Option<Json> {
        let properties = &self.properties;
        let pairs = properties.user_properties;
        let pairs = pairs.iter().next().is_some().then(|| Json::Pairs(Pairs::new(pairs)));
        let text = |text: client::Utf8<'_>| Json::text(text.as_str());
        let members = [
            ("topic-alias", self.topic_alias.map(Json::number)),
            ("subscription-identifier", self.subscription_identifier.map(Json::number)),
            ("payload-format-indicator", self.payload_format().map(Json::number)),
            ("message-expiry-interval", properties.message_expiry_interval_secs.map(Json::number)),
            ("content-type", properties.content_type.map(text)),
            ("response-topic", properties.response_topic.map(|topic| Json::text(topic.0.as_str()))),
            (
                "correlation-data",
                properties.correlation_data.map(|data| Json::Text(data.as_bytes().to_vec())),
            ),
            ("user-properties", pairs),
        ];
        let there = members.into_iter().filter_map(|(name, value)| Some((name.as_bytes().to_vec(), value?)));
        let there: Vec<_> = there.collect();
        (!there.is_empty()).then_some(Json::Object(there))
    }
}
