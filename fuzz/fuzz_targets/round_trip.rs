//! A decoded packet can be encoded, and is then decoded as the same packet.
#![no_main]

use inputs::Stream;
use libfuzzer_sys::fuzz_target;
use wire::{Decoded, MessageProperties, Packet, decode, publish_run};

fuzz_target!(|input: &[u8]| {
    let Some(stream) = Stream::of(input) else { return };
    let limits = stream.limits();
    let Ok(Decoded::Packet { packet, len }) = decode(stream.bytes, stream.version, &limits) else { return };
    let version = match packet {
        Packet::Connect(connect) => connect.version(),
        _ => stream.version.expect("only CONNECT comes first"),
    };

    let mut bytes = Vec::new();
    assert_eq!(packet.encode(version, &mut bytes), Ok(bytes.len()));
    assert_eq!(packet.encoded_len(version), Ok(bytes.len()));
    assert!(bytes.len() <= len, "what is written is never longer than what was read");
    match decode(&bytes, stream.version, &limits) {
        Ok(Decoded::Packet { packet: again, len }) => {
            assert_eq!((again, len), (packet, bytes.len()));
        }
        other => panic!("{other:?} after {packet}"),
    }

    let Packet::Publish(publish) = packet else { return };
    let mut stored = Vec::new();
    publish.properties.write_bytes(&mut stored).expect("a Vec has room");
    assert_eq!(MessageProperties::from_bytes(&stored), Ok(publish.properties));

    let has_properties = !publish.properties.is_empty() || !publish.subscription_identifiers.is_empty();
    if publish.delivery.packet_id().is_none() && publish.topic.alias().is_none() && !has_properties {
        let run = publish_run(stream.bytes, len, version, &limits);
        assert_eq!(run.payloads(stream.bytes).count(), run.count);
        assert_eq!(run.payloads(stream.bytes).next(), Some(publish.payload));
    }
});
