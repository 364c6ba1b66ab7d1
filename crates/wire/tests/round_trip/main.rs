//! Random packets in all versions: decoding an encoded packet returns the same packet.

use pondhawk_wire::*;
use proptest::collection::vec;
use proptest::prelude::*;

mod parts;
use parts::{Parts, choices, texts};

/// Whether a version before MQTT 5 can express the packet.
fn can_be_said_before_5(packet: &Packet<'_>, version: Version) -> bool {
    match packet {
        Packet::Auth(_) => false,
        Packet::Publish(publish) => publish.topic.name().is_some(),
        Packet::PubAck(ack) => !ack.reason.is_error(),
        Packet::PubRec(ack) => !ack.reason.is_error(),
        Packet::Disconnect(disconnect) => disconnect.reason == DisconnectReason::NormalDisconnection,
        Packet::ConnAck(ConnAck { outcome: Connected::Refused(reason), .. }) => {
            reason.return_code().is_some()
        }
        Packet::Subscribe(subscribe) => subscribe.subscriptions.iter().all(|subscription| {
            let SubscriptionOptions { qos, .. } = subscription.options();
            subscription.options() == SubscriptionOptions { qos, ..Default::default() }
        }),
        Packet::SubAck(ack) => version == Version::V3_1_1 || !ack.reasons.iter().any(SubAckReason::is_error),
        _ => true,
    }
}

/// The packet as expected after a round trip before MQTT 5. SUBACK reasons are compared elsewhere.
fn before_5<'a>(packet: Packet<'a>, version: Version) -> Packet<'a> {
    let connected = |outcome| match outcome {
        Connected::Accepted { session_present } => {
            Connected::Accepted { session_present: session_present && version == Version::V3_1_1 }
        }
        Connected::Refused(reason) => {
            Connected::Refused(reason.return_code().and_then(ConnectRefusal::from_return_code).unwrap())
        }
    };
    match packet {
        Packet::Connect(mut connect) => {
            connect.properties = ConnectProperties::EMPTY;
            let forget =
                |will| Will { delay_interval_secs: None, properties: MessageProperties::EMPTY, ..will };
            connect.will = connect.will.map(forget);
            connect.into()
        }
        Packet::ConnAck(ConnAck { outcome, .. }) => {
            ConnAck { outcome: connected(outcome), properties: ConnAckProperties::EMPTY }.into()
        }
        Packet::Publish(publish) => Publish {
            topic: PublishTopic::Name(publish.topic.name().unwrap()),
            subscription_identifiers: SubscriptionIdentifiers::EMPTY,
            properties: MessageProperties::EMPTY,
            ..publish
        }
        .into(),
        Packet::PubAck(ack) => PubAck::new(ack.packet_id, PubAckReason::Success).into(),
        Packet::PubRec(ack) => PubRec::new(ack.packet_id, PubAckReason::Success).into(),
        Packet::PubRel(ack) => PubRel::new(ack.packet_id, PubRelReason::Success).into(),
        Packet::PubComp(ack) => PubComp::new(ack.packet_id, PubRelReason::Success).into(),
        Packet::Subscribe(subscribe) => {
            Subscribe { properties: SubscribeProperties::EMPTY, ..subscribe }.into()
        }
        Packet::SubAck(ack) => SubAck { properties: AckProperties::EMPTY, ..ack }.into(),
        Packet::Unsubscribe(packet) => {
            Unsubscribe { properties: UnsubscribeProperties::EMPTY, ..packet }.into()
        }
        Packet::UnsubAck(ack) => UnsubAck { properties: AckProperties::EMPTY, reasons: None, ..ack }.into(),
        Packet::Disconnect(_) => Disconnect::default().into(),
        Packet::PingReq(_) | Packet::PingResp(_) | Packet::Auth(_) => packet,
    }
}

fn same(found: &Packet<'_>, wanted: &Packet<'_>) -> bool {
    let (Packet::SubAck(found), Packet::SubAck(wanted)) = (found, wanted) else { return found == wanted };
    // MQTT 3.1.1 has one failure code.
    let said = |reason: SubAckReason| if reason.is_error() { SubAckReason::UnspecifiedError } else { reason };
    found.packet_id == wanted.packet_id
        && found.properties == wanted.properties
        && found.reasons.iter().eq(wanted.reasons.iter().map(said))
}

fn decode_one(bytes: &[u8], version: Version) -> Packet<'_> {
    let first = bytes[0] >> 4 == PacketType::Connect as u8;
    match decode(bytes, (!first).then_some(version), &Limits::default()) {
        Ok(Decoded::Packet { packet, len }) if len == bytes.len() => packet,
        other => panic!("{other:?}"),
    }
}

proptest! {
    #[test]
    fn packets_written_in_5_are_read_unchanged(texts in texts(), choices in choices()) {
        for packet in Parts::new(&texts, choices).packets(Version::V5) {
            let mut bytes = Vec::new();
            prop_assert_eq!(packet.encode(Version::V5, &mut bytes), Ok(bytes.len()));
            prop_assert_eq!(packet.encoded_len(Version::V5), Ok(bytes.len()));
            prop_assert_eq!(decode_one(&bytes, Version::V5), packet);
        }
    }

    #[test]
    fn packets_written_before_5_are_read_without_the_fields_of_5(texts in texts(), choices in choices()) {
        for version in [Version::V3_1, Version::V3_1_1] {
            for packet in Parts::new(&texts, choices).packets(version) {
                let mut bytes = Vec::new();
                match packet.encode(version, &mut bytes) {
                    Ok(len) => {
                        prop_assert!(can_be_said_before_5(&packet, version), "{}", packet);
                        prop_assert_eq!(len, bytes.len());
                        let found = decode_one(&bytes, version);
                        let wanted = before_5(packet, version);
                        prop_assert!(same(&found, &wanted), "{} is not {}", found, wanted);
                    }
                    Err(EncodeError::Forbidden(_)) => {
                        prop_assert!(!can_be_said_before_5(&packet, version), "{}", packet);
                        prop_assert!(bytes.is_empty());
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        }
    }

    #[test]
    fn a_packet_is_written_whole_or_not_at_all(texts in texts(), choices in choices(), room in 0..80_usize) {
        for packet in Parts::new(&texts, choices).packets(Version::V5) {
            let len = packet.encoded_len(Version::V5).unwrap();
            let mut buffer = vec![0; room];
            let mut sink = SliceSink::new(&mut buffer);
            let result = packet.encode(Version::V5, &mut sink);
            if len <= room {
                prop_assert_eq!(result, Ok(len));
                prop_assert_eq!(sink.written().len(), len);
            } else {
                prop_assert_eq!(result, Err(EncodeError::Full { len }));
                prop_assert!(sink.written().is_empty());
            }
        }
    }

    /// [MQTT-3.3.2-4, MQTT-3.3.2-15, MQTT-3.3.2-16, MQTT-3.3.2-17, MQTT-3.3.2-18, MQTT-3.3.2-20]
    #[test]
    fn a_message_forwarded_keeps_what_belongs_to_it(texts in texts(), choices in choices(), other in choices()) {
        let parts = Parts::new(&texts, choices);
        let received = parts.publish();
        let mut bytes = Vec::new();
        received.encode(Version::V5, &mut bytes).unwrap();
        let Packet::Publish(received) = decode_one(&bytes, Version::V5) else { panic!() };

        let mut stored = Vec::new();
        received.properties.write_bytes(&mut stored).unwrap();
        let properties = MessageProperties::from_bytes(&stored).unwrap();
        prop_assert_eq!(properties, received.properties);

        let other = Parts::new(&texts, other);
        let sent = Publish { properties, payload: received.payload, ..other.publish() };
        let mut forwarded = Vec::new();
        sent.encode(Version::V5, &mut forwarded).unwrap();
        prop_assert_eq!(decode_one(&forwarded, Version::V5), sent.into());
    }

    #[test]
    fn any_bytes_are_a_packet_or_a_violation(bytes in vec(any::<u8>(), 0..60), first in any::<u8>()) {
        let mut packet = vec![first, u8::try_from(bytes.len()).unwrap()];
        packet.extend_from_slice(&bytes);
        for version in [None, Some(Version::V3_1), Some(Version::V3_1_1), Some(Version::V5)] {
            if let Ok(Decoded::Packet { packet, .. }) = decode(&packet, version, &Limits::default()) {
                let spoken = match packet {
                    Packet::Connect(connect) => connect.version(),
                    _ => version.unwrap(),
                };
                let mut again = Vec::new();
                packet.encode(spoken, &mut again).unwrap();
                prop_assert_eq!(decode_one(&again, spoken), packet);
                prop_assert!(!packet.to_string().contains(char::is_control));
            }
        }
    }

    #[test]
    fn a_run_is_what_decoding_one_by_one_finds(
        sizes in vec((0..4_usize, 0..200_usize), 1..40),
        cut in 0..20_usize,
        version in prop_oneof![Just(Version::V3_1_1), Just(Version::V5)],
    ) {
        let payload = [b'x'; 200];
        let topics = ["a", "a", "a", "ab"].map(|name| TopicName::new(name).unwrap());
        let mut bytes = Vec::new();
        for &(topic, size) in &sizes {
            Publish::new(topics[topic], &payload[..size]).encode(version, &mut bytes).unwrap();
        }
        bytes.truncate(bytes.len().saturating_sub(cut));

        let limits = Limits::default();
        let mut at = 0;
        while let Ok(Decoded::Packet { packet: Packet::Publish(first), len }) = decode(&bytes[at..], Some(version), &limits) {
            let run = publish_run(&bytes[at..], len, version, &limits);
            let mut payloads = run.payloads(&bytes[at..]);
            let mut one_by_one = 0;
            for _ in 0..run.count {
                let Ok(Decoded::Packet { packet: Packet::Publish(next), len }) =
                    decode(&bytes[at + one_by_one..], Some(version), &limits) else { panic!() };
                prop_assert_eq!(next.topic, first.topic);
                prop_assert_eq!(payloads.next(), Some(next.payload));
                one_by_one += len;
            }
            prop_assert_eq!((payloads.next(), one_by_one), (None, run.len));
            at += run.len;
            // A packet that could belong to the run must not end it.
            if let Ok(Decoded::Packet { packet: Packet::Publish(next), .. }) = decode(&bytes[at..], Some(version), &limits) {
                prop_assert_ne!(next.topic, first.topic);
            }
        }
        prop_assert!(bytes.len() - at < 210, "stopped at a whole packet");
    }
}
