//! The reason codes that each packet may carry. The lists of MQTT 5.0 are repeated here as numbers.

use pondhawk_wire::*;

/// A packet that contains a reason code.
struct Carrier {
    name: &'static str,
    /// The bytes before the code and after it.
    around: [&'static [u8]; 2],
    /// The ends that send the packet with these codes.
    senders: &'static [Role],
    /// The codes in the standard's list, ascending.
    codes: &'static [u8],
}

use Role::{Client, Server};

const PUBACK: &[u8] = &[0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99];

const CARRIERS: &[Carrier] = &[
    // Section 3.2.2.2.
    Carrier {
        name: "CONNACK",
        around: [b"\x20\x03\0", b"\0"],
        senders: &[Server],
        codes: &[
            0x00, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x8C, 0x90, 0x95, 0x97,
            0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F,
        ],
    },
    // Sections 3.4.2.1, 3.5.2.1, 3.6.2.1 and 3.7.2.1.
    Carrier { name: "PUBACK", around: [b"\x40\x03\0\x01", b""], senders: &[Client, Server], codes: PUBACK },
    Carrier { name: "PUBREC", around: [b"\x50\x03\0\x01", b""], senders: &[Client, Server], codes: PUBACK },
    Carrier {
        name: "PUBREL",
        around: [b"\x62\x03\0\x01", b""],
        senders: &[Client, Server],
        codes: &[0x00, 0x92],
    },
    Carrier {
        name: "PUBCOMP",
        around: [b"\x70\x03\0\x01", b""],
        senders: &[Client, Server],
        codes: &[0x00, 0x92],
    },
    // Sections 3.9.3 and 3.11.3.
    Carrier {
        name: "SUBACK",
        around: [b"\x90\x04\0\x01\0", b""],
        senders: &[Server],
        codes: &[0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2],
    },
    Carrier {
        name: "UNSUBACK",
        around: [b"\xB0\x04\0\x01\0", b""],
        senders: &[Server],
        codes: &[0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91],
    },
    // Section 3.14.2.1; 0x8C is in section 2.4 alone. The list assigns 0x00 to clients, and servers may send it as
    // well.
    Carrier {
        name: "DISCONNECT",
        around: [b"\xE0\x01", b""],
        senders: &[Client],
        codes: &[0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x8C, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99],
    },
    Carrier {
        name: "DISCONNECT",
        around: [b"\xE0\x01", b""],
        senders: &[Server],
        codes: &[
            0x00, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8C, 0x8D, 0x8E, 0x8F, 0x90, 0x93, 0x94, 0x95,
            0x96, 0x97, 0x98, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9E, 0x9F, 0xA0, 0xA1, 0xA2,
        ],
    },
    // Section 3.15.2.1.
    Carrier { name: "AUTH", around: [b"\xF0\x02", b"\0"], senders: &[Client], codes: &[0x18, 0x19] },
    Carrier { name: "AUTH", around: [b"\xF0\x02", b"\0"], senders: &[Server], codes: &[0x00, 0x18] },
];

/// Each packet can be read with the codes of its list and with no other, and is written with the code that was
/// read.
/// [MQTT-3.2.2-8, MQTT-3.4.2-1, MQTT-3.5.2-1, MQTT-3.6.2-1, MQTT-3.7.2-1, MQTT-3.9.3-2, MQTT-3.11.3-2,
/// MQTT-3.14.2-1, MQTT-3.15.2-1]
#[test]
fn a_packet_has_only_the_codes_of_its_list() {
    for Carrier { name, around: [before, behind], senders, codes } in CARRIERS {
        for (sender, code) in senders.iter().flat_map(|sender| (0..=u8::MAX).map(move |code| (*sender, code)))
        {
            let line = format!("{name} from the {sender:?} with 0x{code:02X}");
            let bytes = [before, &[code][..], behind].concat();
            let limits = Limits { sender: Some(sender), ..Limits::default() };
            match decode(&bytes, Some(Version::V5), &limits) {
                Ok(Decoded::Packet { packet, len }) => {
                    assert_eq!((codes.contains(&code), len), (true, bytes.len()), "{line}");
                    let mut written = Vec::new();
                    packet.encode(Version::V5, &mut written).expect("it was read");
                    // A packet that may end before the reason omits 0x00.
                    assert!(
                        written == bytes || code == 0 && written.len() < bytes.len(),
                        "{line}: {written:?}"
                    );
                }
                Ok(Decoded::Need { .. }) => panic!("{line}: it is whole"),
                Err(violation) => {
                    assert!(!codes.contains(&code), "{line}: {violation:?}");
                    assert_eq!(violation.reason, ReasonCode::ProtocolError, "{line}");
                }
            }
        }
    }
}

/// The types allow a program to send exactly the codes on the standard's list.
#[test]
fn the_lists_of_the_types_are_those_of_the_standard() {
    let of = |name: &str| {
        let carriers = CARRIERS.iter().filter(|carrier| carrier.name == name);
        let mut codes: Vec<u8> = carriers.flat_map(|carrier| carrier.codes).copied().collect();
        codes.sort_unstable();
        codes.dedup();
        codes
    };
    macro_rules! check {
        ($($list:ident $name:literal,)*) => {$(
            let found: Vec<u8> = $list::ALL.iter().map(|reason| reason.code()).collect();
            assert_eq!(found, of($name), stringify!($list));
            for reason in $list::ALL {
                assert_eq!(reason.reason().code(), reason.code());
                assert_eq!($list::try_from(reason.reason()), Ok(*reason));
                assert_eq!(reason.is_error(), reason.code() >= 0x80);
            }
            for reason in ReasonCode::ALL.iter().filter(|reason| !found.contains(&reason.code())) {
                assert_eq!($list::try_from(*reason), Err(Unlisted(*reason)));
            }
        )*};
    }
    check! {
        PubAckReason "PUBACK", PubAckReason "PUBREC", PubRelReason "PUBREL", PubRelReason "PUBCOMP",
        SubAckReason "SUBACK", UnsubAckReason "UNSUBACK", DisconnectReason "DISCONNECT", AuthReason "AUTH",
    }
    let refusals: Vec<u8> = ConnectRefusal::ALL.iter().map(|refusal| refusal.code()).collect();
    assert_eq!(refusals, of("CONNACK")[1..], "all but 0x00, which is no refusal");
    assert!(ConnectRefusal::ALL.iter().all(|refusal| refusal.reason().code() == refusal.code()));
}
