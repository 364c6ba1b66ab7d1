//! Packets that are too large for the client, and what it does not want to have.

use std::num::NonZeroU32;

use pondhawk_session::Settings;
use wire::{
    AckProperties, Auth, AuthProperties, AuthReason, Disconnect, DisconnectProperties, DisconnectReason,
    OneOrMore, Packet, PubAck, PubAckReason, PubComp, PubRec, PubRel, PubRelReason, Publish, SubAck,
    SubAckReason, UnsubAck, UnsubAckReason, UserProperties, UserProperty, Version,
};

use crate::world::{World, connect, id, utf8};

const WHY: &str = "reason-string=\"no\"";
const MORE: &str = "user-property=\"k\":\"v\"";

/// Each packet that explains itself, with everything it can say.
fn explained<'a>(pair: &'a [UserProperty<'a>]) -> [Packet<'a>; 8] {
    let (reason_string, user_properties) = (Some(utf8("no")), UserProperties::from(pair));
    let properties = AckProperties { reason_string, user_properties };
    let packet_id = id(1);
    [
        PubAck { packet_id, reason: PubAckReason::QuotaExceeded, properties }.into(),
        PubRec { packet_id, reason: PubAckReason::QuotaExceeded, properties }.into(),
        PubRel { packet_id, reason: PubRelReason::PacketIdentifierNotFound, properties }.into(),
        PubComp { packet_id, reason: PubRelReason::PacketIdentifierNotFound, properties }.into(),
        SubAck { packet_id, properties, reasons: OneOrMore::one(&SubAckReason::NotAuthorized) }.into(),
        UnsubAck { packet_id, properties, reasons: Some(OneOrMore::one(&UnsubAckReason::NotAuthorized)) }
            .into(),
        Disconnect {
            reason: DisconnectReason::QuotaExceeded,
            properties: DisconnectProperties {
                reason_string,
                user_properties,
                ..DisconnectProperties::EMPTY
            },
        }
        .into(),
        Auth {
            reason: AuthReason::ContinueAuthentication,
            properties: AuthProperties { reason_string, user_properties, ..AuthProperties::EMPTY },
        }
        .into(),
    ]
}

fn pair() -> [UserProperty<'static>; 1] {
    [UserProperty { name: utf8("k"), value: utf8("v") }]
}

/// The answers to a client with this Maximum Packet Size. CONNACK is as short as possible, 5 bytes, so that it fits.
fn written(packet: &Packet<'_>, packet_bytes_max: usize) -> Vec<String> {
    let settings =
        Settings { packet_bytes_max: 0, receive_max: u16::MAX, topic_alias_max: 0, ..Settings::default() };
    let mut connect = connect(Version::V5);
    connect.properties.maximum_packet_bytes =
        NonZeroU32::new(u32::try_from(packet_bytes_max).expect("small"));
    let mut world = World::connected(&connect, settings);
    assert!(world.session.is_connected());
    world.write(*packet);
    world.sent()
}

/// [MQTT-3.1.2-24, MQTT-3.4.2-2, MQTT-3.4.2-3, MQTT-3.5.2-2, MQTT-3.5.2-3, MQTT-3.6.2-2, MQTT-3.6.2-3, MQTT-3.7.2-2,
/// MQTT-3.7.2-3, MQTT-3.9.2-1, MQTT-3.9.2-2, MQTT-3.11.2-1, MQTT-3.11.2-2, MQTT-3.14.2-3, MQTT-3.14.2-4,
/// MQTT-3.15.2-2, MQTT-3.15.2-3]
#[test]
fn explanations_are_left_out_if_there_is_no_room() {
    let pair = pair();
    for packet in explained(&pair) {
        let len = packet.encoded_len(Version::V5).expect("MQTT 5 has it");
        let line = |room| written(&packet, room).pop().unwrap_or_default();
        assert!(line(len).contains(WHY) && line(len).contains(MORE), "{packet}");
        assert!(!line(len - 1).contains(WHY) && line(len - 1).contains(MORE), "{packet}");
        // Property, length and text.
        let without_reason = len - (1 + 2 + 2);
        assert!(line(without_reason).contains(MORE), "{packet}");
        assert!(!line(without_reason - 1).contains(MORE) && !line(without_reason - 1).is_empty(), "{packet}");
    }
}

/// [MQTT-3.1.2-29]
#[test]
fn clients_that_do_not_want_explanations_get_none() {
    let mut connect = connect(Version::V5);
    connect.properties.request_problem_information = Some(false);
    let mut world = World::connected(&connect, Settings::default());
    let pair = pair();
    for packet in explained(&pair) {
        world.write(packet);
        let line = world.sent().remove(0);
        let is_explained = line.contains(WHY) && line.contains(MORE);
        assert_eq!(is_explained, matches!(packet, Packet::Disconnect(_)), "{line}");
        assert_eq!(line.contains(WHY), line.contains(MORE));
    }
    let mut publish = Publish::new(topic::topic!("a"), b"");
    publish.properties.user_properties = UserProperties::from(&pair[..]);
    world.write(publish);
    assert!(world.sent()[0].contains(MORE), "what belongs to a message stays with it");
}

#[test]
fn a_message_is_never_made_smaller() {
    let pair = pair();
    let mut publish = Publish::new(topic::topic!("a"), b"");
    publish.properties.user_properties = UserProperties::from(&pair[..]);
    let len = publish.encoded_len(Version::V5).expect("MQTT 5 has it");
    assert_eq!(written(&publish.into(), len).len(), 1);
    assert!(written(&publish.into(), len - 1).is_empty());
}
