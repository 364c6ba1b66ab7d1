//! Any bytes, in any split, are packets or a violation, and the same in each split.
#![no_main]

use inputs::Stream;
use libfuzzer_sys::fuzz_target;
use wire::{Decoded, Packet, decode};

fuzz_target!(|input: &[u8]| {
    let Some(stream) = Stream::of(input) else { return };
    let (mut version, mut rest) = (stream.version, stream.bytes);
    let limits = stream.limits();
    loop {
        let whole = decode(rest, version, &limits);
        let end = match &whole {
            Ok(Decoded::Packet { len, .. }) => *len,
            _ => rest.len(),
        };
        for split in [0, 1, 2, 3, 4, 5, end / 2, end.saturating_sub(1)] {
            if split >= end {
                continue;
            }
            match decode(&rest[..split], version, &limits) {
                Ok(Decoded::Need { total }) => assert!(total.is_none_or(|total| total > split)),
                Ok(packet) => panic!("{packet:?} in {split} of {end} bytes"),
                Err(violation) => assert_eq!(whole, Err(violation)),
            }
        }
        match whole {
            Ok(Decoded::Packet { packet, len }) => {
                assert!(!packet.to_string().contains(char::is_control));
                if let Packet::Connect(connect) = packet {
                    version = Some(connect.version());
                }
                rest = &rest[len..];
            }
            Ok(Decoded::Need { total }) => {
                assert!(total.is_none_or(|total| total > rest.len() && total <= limits.max_packet_bytes));
                return;
            }
            Err(violation) => {
                assert!(violation.reason.is_error());
                return;
            }
        }
    }
});
