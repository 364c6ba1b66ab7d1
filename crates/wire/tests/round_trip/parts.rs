//! Random packets of every type, made of random texts, numbers and choices.

// Random numbers are truncated to the required size.
#![allow(clippy::cast_possible_truncation)]

use std::num::{NonZeroU16, NonZeroU32};

use pondhawk_wire::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// Random data from which the packets borrow.
#[derive(Clone, Debug)]
pub(crate) struct Texts {
    strings: Vec<String>,
    names: Vec<String>,
    filters: Vec<String>,
    binaries: Vec<Vec<u8>>,
    pairs: Vec<(String, String)>,
}

/// Random numbers. The bits of `bits` choose the optional fields that are present.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choices {
    bits: u64,
    number: u32,
    packet_id: PacketId,
    reason: usize,
    qos: Qos,
}

/// Lists of values, which borrow from the texts.
pub(crate) struct Parts<'t> {
    texts: &'t Texts,
    choices: Choices,
    user_properties: Vec<UserProperty<'t>>,
    identifiers: Vec<SubscriptionIdentifier>,
    subscriptions: Vec<Subscription<'t>>,
    filters: Vec<RequestedFilter<'t>>,
    suback_reasons: Vec<SubAckReason>,
    unsuback_reasons: Vec<UnsubAckReason>,
}

pub(crate) fn texts() -> impl Strategy<Value = Texts> {
    let string = || "[^\\x00]{0,12}";
    let filter =
        prop_oneof!["([^\\x00+#/]{0,4}|\\+)(/([^\\x00+#/]{0,4}|\\+)){0,4}(/#)?", Just("#".to_owned())];
    let filter = (filter, any::<bool>()).prop_map(|(filter, shared)| match shared {
        true => format!("$share/group/{filter}"),
        false => filter,
    });
    let valid = |filter: &String| TopicFilter::new(filter).is_ok();
    (
        vec(string(), 8),
        vec("[^\\x00+#]{1,20}", 2),
        vec(filter.prop_filter("a filter", valid), 1..4),
        vec(vec(any::<u8>(), 0..40), 3),
        vec((string(), string()), 0..4),
    )
        .prop_map(|(strings, names, filters, binaries, pairs)| Texts {
            strings,
            names,
            filters,
            binaries,
            pairs,
        })
}

pub(crate) fn choices() -> impl Strategy<Value = Choices> {
    (any::<u64>(), any::<u32>(), 1..=u16::MAX, any::<usize>(), 0..3_u8).prop_map(
        |(bits, number, packet_id, reason, qos)| Choices {
            bits,
            number,
            packet_id: PacketId::new(packet_id).unwrap(),
            reason,
            qos: Qos::from_level(qos).unwrap(),
        },
    )
}

impl<'t> Parts<'t> {
    pub(crate) fn new(texts: &'t Texts, choices: Choices) -> Self {
        let utf8 = |text: &'t String| Utf8::new(text).unwrap();
        let filter = |text: &'t String| TopicFilter::new(text).unwrap();
        let retain_handling =
            [RetainHandling::Send, RetainHandling::SendIfNew, RetainHandling::DoNotSend][choices.reason % 3];
        let options = |filter: &TopicFilter<'_>| SubscriptionOptions {
            qos: choices.qos,
            no_local: choices.bits & 1 != 0 && filter.shared().is_none(),
            retain_as_published: choices.bits & 2 != 0,
            retain_handling,
        };
        let plain = choices.bits & 4 != 0;
        let subscription = |filter: TopicFilter<'t>| match plain {
            true => Subscription::with_qos(filter, choices.qos),
            false => Subscription::new(filter, options(&filter)).unwrap(),
        };
        let count = texts.pairs.len();
        Self {
            texts,
            choices,
            user_properties: (texts.pairs.iter())
                .map(|(name, value)| UserProperty { name: utf8(name), value: utf8(value) })
                .collect(),
            identifiers: (0..count as u32)
                .filter_map(|n| SubscriptionIdentifier::new((choices.number >> n) % 0x1000_0000))
                .collect(),
            subscriptions: texts.filters.iter().map(filter).map(subscription).collect(),
            filters: texts.filters.iter().map(filter).map(Ok).collect(),
            suback_reasons: (0..=count)
                .map(|n| pick(SubAckReason::ALL, choices.reason.rotate_left(n as u32)))
                .collect(),
            unsuback_reasons: (0..=count)
                .map(|n| pick(UnsubAckReason::ALL, choices.reason.rotate_left(n as u32)))
                .collect(),
        }
    }

    /// Returns `value` if the bit with this number is set.
    fn maybe<T>(&self, bit: u32, value: T) -> Option<T> {
        (self.choices.bits >> bit & 1 == 1).then_some(value)
    }

    fn text(&self, bit: u32) -> Option<Utf8<'t>> {
        self.maybe(bit, Utf8::new(&self.texts.strings[bit as usize % 8]).unwrap())
    }

    fn binary(&self, bit: u32) -> Option<Binary<'t>> {
        self.maybe(bit, Binary::new(&self.texts.binaries[bit as usize % 3]).unwrap())
    }

    fn flag(&self, bit: u32) -> Option<bool> {
        self.maybe(bit, self.choices.number >> (bit % 32) & 1 == 1)
    }

    fn number(&self, bit: u32) -> Option<u32> {
        self.maybe(bit, self.choices.number.rotate_left(bit))
    }

    fn short(&self, bit: u32) -> Option<u16> {
        self.number(bit).map(|number| number as u16)
    }

    fn user_properties(&self) -> UserProperties<'_> {
        UserProperties::from(&self.user_properties[..])
    }

    fn ack_properties(&self) -> AckProperties<'_> {
        AckProperties { reason_string: self.text(10), user_properties: self.user_properties() }
    }

    fn message_properties(&self) -> MessageProperties<'_> {
        MessageProperties {
            payload_format: self.maybe(10, PayloadFormat::Utf8),
            message_expiry_interval_secs: self.number(11),
            content_type: self.text(12),
            response_topic: self.maybe(13, ResponseTopic(TopicName::new(&self.texts.names[1]).unwrap())),
            correlation_data: self.binary(14),
            user_properties: self.user_properties(),
        }
    }

    fn connect(&self, version: Version) -> Connect<'_> {
        let method = self.text(20);
        let mut connect = Connect::new(version, Utf8::new(&self.texts.strings[0]).unwrap());
        connect.clean_start = self.choices.bits & 1 == 0;
        connect.keep_alive_secs = self.choices.number as u16;
        connect.will = self.maybe(
            21,
            Will {
                topic: TopicName::new(&self.texts.names[0]).unwrap(),
                payload: Binary::new(&self.texts.binaries[0]).unwrap(),
                qos: self.choices.qos,
                retain: self.choices.bits & 2 == 0,
                delay_interval_secs: self.number(22),
                properties: self.message_properties(),
            },
        );
        connect.properties = ConnectProperties {
            session_expiry_interval_secs: self.number(23),
            receive_maximum: self.short(24).and_then(NonZeroU16::new),
            maximum_packet_bytes: self.number(25).and_then(NonZeroU32::new),
            topic_alias_maximum: self.short(26),
            request_response_information: self.flag(27),
            request_problem_information: self.flag(28),
            authentication_method: method,
            authentication_data: method.and(self.binary(29)),
            user_properties: self.user_properties(),
        };
        let user_name = self.text(30);
        let password = self.binary(31).filter(|_| user_name.is_some() || version.is_5());
        connect.set_credentials(user_name, password).unwrap();
        connect
    }

    fn connack(&self) -> ConnAck<'_> {
        let method = self.text(20);
        let outcome = match self.flag(21) {
            Some(session_present) => Connected::Accepted { session_present },
            None => Connected::Refused(pick(ConnectRefusal::ALL, self.choices.reason)),
        };
        let properties = ConnAckProperties {
            session_expiry_interval_secs: self.number(22),
            receive_maximum: self.short(23).and_then(NonZeroU16::new),
            maximum_qos: self.maybe(24, MaximumQos::AtLeastOnce),
            retain_available: self.flag(25),
            maximum_packet_bytes: self.number(26).and_then(NonZeroU32::new),
            assigned_client_identifier: self.text(27),
            topic_alias_maximum: self.short(28),
            reason_string: self.text(29),
            wildcard_subscription_available: self.flag(30),
            subscription_identifier_available: self.flag(31),
            shared_subscription_available: self.flag(32),
            server_keep_alive_secs: self.short(33),
            response_information: self.text(34),
            server_reference: self.text(35),
            authentication_method: method,
            authentication_data: method.and(self.binary(36)),
            user_properties: self.user_properties(),
        };
        ConnAck { outcome, properties }
    }

    pub(crate) fn publish(&self) -> Publish<'_> {
        let name = TopicName::new(&self.texts.names[0]).unwrap();
        let alias = self.short(20).and_then(TopicAlias::new);
        let topic = match (alias, self.choices.bits & 1) {
            (None, _) => PublishTopic::Name(name),
            (Some(alias), 0) => PublishTopic::NameWithAlias(name, alias),
            (Some(alias), _) => PublishTopic::Alias(alias),
        };
        let (packet_id, dup) = (self.choices.packet_id, self.choices.bits & 2 == 0);
        let delivery = match self.choices.qos {
            Qos::AtMostOnce => Delivery::AtMostOnce,
            Qos::AtLeastOnce => Delivery::AtLeastOnce { packet_id, dup },
            Qos::ExactlyOnce => Delivery::ExactlyOnce { packet_id, dup },
        };
        Publish {
            topic,
            delivery,
            retain: self.choices.bits & 4 == 0,
            subscription_identifiers: SubscriptionIdentifiers::from(&self.identifiers[..]),
            properties: self.message_properties(),
            payload: &self.texts.binaries[1],
        }
    }

    /// Makes one packet of each type.
    pub(crate) fn packets(&self, version: Version) -> Vec<Packet<'_>> {
        let Choices { packet_id, reason, .. } = self.choices;
        let properties = self.ack_properties();
        let method = self.text(20);
        vec![
            self.connect(version).into(),
            self.connack().into(),
            self.publish().into(),
            PubAck { packet_id, reason: pick(PubAckReason::ALL, reason), properties }.into(),
            PubRec { packet_id, reason: pick(PubAckReason::ALL, reason), properties }.into(),
            PubRel { packet_id, reason: pick(PubRelReason::ALL, reason), properties }.into(),
            PubComp { packet_id, reason: pick(PubRelReason::ALL, reason), properties }.into(),
            Subscribe {
                packet_id,
                properties: SubscribeProperties {
                    subscription_identifier: self.identifiers.first().copied(),
                    user_properties: self.user_properties(),
                },
                subscriptions: OneOrMore::new(&self.subscriptions).unwrap(),
            }
            .into(),
            SubAck { packet_id, properties, reasons: OneOrMore::new(&self.suback_reasons).unwrap() }.into(),
            Unsubscribe {
                packet_id,
                properties: UnsubscribeProperties { user_properties: self.user_properties() },
                filters: OneOrMore::new(&self.filters).unwrap(),
            }
            .into(),
            UnsubAck { packet_id, properties, reasons: OneOrMore::new(&self.unsuback_reasons) }.into(),
            PingReq.into(),
            PingResp.into(),
            Disconnect {
                reason: pick(DisconnectReason::ALL, reason),
                properties: DisconnectProperties {
                    session_expiry_interval_secs: self.number(21),
                    reason_string: self.text(22),
                    server_reference: self.text(23),
                    user_properties: self.user_properties(),
                },
            }
            .into(),
            Auth {
                reason: pick(AuthReason::ALL, reason),
                properties: AuthProperties {
                    authentication_method: method,
                    authentication_data: method.and(self.binary(24)),
                    reason_string: self.text(25),
                    user_properties: self.user_properties(),
                },
            }
            .into(),
        ]
    }
}

fn pick<T: Copy>(all: &[T], number: usize) -> T {
    all[number % all.len()]
}
