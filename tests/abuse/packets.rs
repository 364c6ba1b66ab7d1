//! Packets that are wrong somewhere: put together from pieces that nobody has checked.

use pondhawk_tests::{Version, packet};

/// A CONNECT with these flags and, behind the keep alive and no properties, these bytes.
pub(crate) fn connect(version: Version, flags: u8, payload: &[u8]) -> Vec<u8> {
    connect_with(version, flags, &[], payload)
}

/// The same with these properties, in MQTT 5.
pub(crate) fn connect_with(version: Version, flags: u8, properties: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut body = packet::string(version.protocol_name());
    body.extend([version.protocol_level(), flags, 0x00, 0x00]);
    body.extend(block(version, properties));
    body.extend(payload);
    packet::packet(0x10, &body)
}

/// A CONNECT of a client with a will, the will's topic and payload as they are.
pub(crate) fn connect_with_will(version: Version, client_id: &str, topic: &[u8], payload: &[u8]) -> Vec<u8> {
    let fields =
        [packet::string(client_id), block(version, &[]), packet::binary(topic), packet::binary(payload)];
    connect(version, 0x06, &fields.concat())
}

/// A CONNECT of an MQTT 5 client with these properties in its will.
pub(crate) fn connect_with_will_properties(client_id: &str, properties: &[u8]) -> Vec<u8> {
    let fields = [
        packet::string(client_id),
        block(Version::V5, properties),
        packet::string("w"),
        packet::string("gone"),
    ];
    connect(Version::V5, 0x06, &fields.concat())
}

/// A PUBLISH at QoS 0 whose topic is not checked.
pub(crate) fn publish(version: Version, topic: &[u8]) -> Vec<u8> {
    packet::packet(0x30, &[packet::binary(topic), block(version, &[]), b"hey".to_vec()].concat())
}

/// An MQTT 5 PUBLISH at QoS 0 with these properties.
pub(crate) fn publish_with(properties: &[u8]) -> Vec<u8> {
    packet::publish_with(Version::V5, 0x30, "t", properties, b"hey")
}

/// A SUBSCRIBE with packet identifier 1, and behind it these bytes.
pub(crate) fn subscribe(version: Version, payload: &[u8]) -> Vec<u8> {
    subscribe_with(version, &[], payload)
}

/// The same with these properties, in MQTT 5.
pub(crate) fn subscribe_with(version: Version, properties: &[u8], payload: &[u8]) -> Vec<u8> {
    packet::packet(0x82, &[&[0x00, 0x01], &block(version, properties)[..], payload].concat())
}

/// An UNSUBSCRIBE with packet identifier 1, and behind it these bytes.
pub(crate) fn unsubscribe(version: Version, payload: &[u8]) -> Vec<u8> {
    packet::packet(0xA2, &[&[0x00, 0x01], &block(version, &[])[..], payload].concat())
}

/// A filter that is not checked, and its options.
pub(crate) fn filter(filter: &[u8], options: u8) -> Vec<u8> {
    [packet::binary(filter), vec![options]].concat()
}

/// An MQTT 5 DISCONNECT with a reason and properties.
pub(crate) fn disconnect_with(reason: u8, properties: &[u8]) -> Vec<u8> {
    packet::packet(0xE0, &[vec![reason], block(Version::V5, properties)].concat())
}

/// A property whose value is a string or binary data.
pub(crate) fn property(identifier: u8, value: &[u8]) -> Vec<u8> {
    [vec![identifier], packet::binary(value)].concat()
}

/// Properties with their length, where the version has any.
fn block(version: Version, properties: &[u8]) -> Vec<u8> {
    if !version.is_5() {
        return Vec::new();
    }
    [packet::variable_byte_integer(properties.len()), properties.to_vec()].concat()
}
