//! Bytes of packets and frames, whole or broken, put together by hand.

/// A control packet with this first byte.
pub(crate) fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    [&[first][..], &varint(body.len()), body].concat()
}

/// A Variable Byte Integer (section 1.5.5).
pub(crate) fn varint(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let byte = u8::try_from(number % 128).expect("below 128");
        number /= 128;
        bytes.push(if number > 0 { byte | 0x80 } else { byte });
        if number == 0 {
            return bytes;
        }
    }
}

/// A string or binary data with its length.
pub(crate) fn field(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).expect("at most 65,535 bytes");
    [&length.to_be_bytes()[..], bytes].concat()
}

/// Properties with their length.
pub(crate) fn properties(properties: &[u8]) -> Vec<u8> {
    [&varint(properties.len())[..], properties].concat()
}

/// CONNACK that accepts the client, with these properties.
pub(crate) fn connack(with: &[u8]) -> Vec<u8> {
    connack_of([0, 0], with)
}

/// CONNACK with these flags, reason code and properties.
pub(crate) fn connack_of(begin: [u8; 2], with: &[u8]) -> Vec<u8> {
    packet(0x20, &[&begin[..], &properties(with)].concat())
}

/// Text that would forge a line on a terminal and clear it.
pub(crate) const ESCAPES: &[u8] = b"bye\nConnected\r\x1b[2J\x1b]0;title\x07";

/// A string property that has [`ESCAPES`].
pub(crate) fn escapes(property: u8) -> Vec<u8> {
    [&[property][..], &field(ESCAPES)].concat()
}

/// User Properties of 5 bytes each, `bytes` in total.
pub(crate) fn pairs(bytes: usize) -> Vec<u8> {
    [0x26, 0, 0, 0, 0].repeat(bytes / 5)
}

/// A PUBLISH to the topic `t`.
pub(crate) fn publish(qos: u8, id: u16, with: &[u8], payload: &[u8]) -> Vec<u8> {
    publish_to(b"t", qos, id, with, payload)
}

/// A PUBLISH of MQTT 5.
pub(crate) fn publish_to(topic: &[u8], qos: u8, id: u16, with: &[u8], payload: &[u8]) -> Vec<u8> {
    let id = if qos > 0 { id.to_be_bytes().to_vec() } else { Vec::new() };
    packet(0x30 | qos << 1, &[&field(topic)[..], &id, &properties(with), payload].concat())
}

/// A packet that has only a packet identifier, such as PUBACK.
pub(crate) fn numbered(first: u8, id: u16) -> Vec<u8> {
    packet(first, &id.to_be_bytes())
}

/// The same packet with each packet identifier that there is.
pub(crate) fn all_numbers(packet: impl Fn(u16) -> Vec<u8>) -> Vec<u8> {
    (1..=u16::MAX).flat_map(packet).collect()
}

/// A WebSocket frame without a mask. The first byte has the flags and the opcode.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = match payload.len() {
        length @ 0..126 => vec![u8::try_from(length).expect("below 126")],
        length @ 126..65_536 => {
            [&[126][..], &u16::try_from(length).expect("below 65,536").to_be_bytes()].concat()
        }
        length => [&[127][..], &(length as u64).to_be_bytes()].concat(),
    };
    [&[first][..], &length, payload].concat()
}

/// A TLS record of this kind.
pub(crate) fn record(kind: u8, payload: &[u8]) -> Vec<u8> {
    [&[kind, 3, 3][..], &field(payload)].concat()
}
