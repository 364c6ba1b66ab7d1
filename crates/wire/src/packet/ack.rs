//! What the four packets of a QoS 1 or 2 exchange have in common.

use crate::property::properties;
use crate::repeated::UserProperties;
use crate::string::Utf8;

properties! {
    /// The properties of PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK and UNSUBACK.
    pub struct AckProperties<'a> {
        /// For people who look for the cause; not for programs to read.
        ReasonString => reason_string: Option<Utf8<'a>>,
        /// Anything else, in order.
        UserProperty => user_properties: UserProperties<'a>,
    }
}

/// Declares a packet of packet identifier, reason and properties. Reason and properties are left out where the
/// reason is Success and there are no properties. Before MQTT 5 there is the identifier alone;
/// `refuses_errors` says whether an error may then be left unsaid.
macro_rules! acknowledgement {
    ($(#[$doc:meta])* $name:ident, $text:literal, $reason:ident, $unlisted:ident, refuses_errors: $refuses:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $name<'a> {
            /// The identifier of the PUBLISH.
            pub packet_id: PacketId,
            /// What became of it.
            pub reason: $reason,
            /// More about it; MQTT 5 only.
            pub properties: AckProperties<'a>,
        }

        impl<'a> $name<'a> {
            /// Without properties.
            pub const fn new(packet_id: PacketId, reason: $reason) -> Self {
                Self { packet_id, reason, properties: AckProperties::EMPTY }
            }
        }

        impl<'a> ControlPacket<'a> for $name<'a> {
            const TYPE: PacketType = PacketType::$name;
        }

        impl<'a> Layout<'a> for $name<'a> {
            fn layout<W: Walk<'a, Self>>(walk: &mut W) -> Result<W::Built, Fault> {
                let packet_id = walk.field(|packet| packet.packet_id)?;
                let before_5 = !walk.version().is_5();
                let reason = walk.tail(
                    &rule::$unlisted,
                    |packet| before_5 || packet.reason == $reason::Success && packet.properties.is_empty(),
                    |packet| packet.reason,
                )?;
                walk.check(!($refuses && before_5 && reason.is_error()), &rule::$unlisted)?;
                let properties =
                    walk.tail_properties(|packet| packet.properties.is_empty(), |packet| &packet.properties)?;
                Ok(walk.build(|| Self { packet_id, reason, properties }))
            }
        }

        impl fmt::Display for $name<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($text, " id={} {}{}"), self.packet_id, self.reason, self.properties)
            }
        }
    };
}
pub(super) use acknowledgement;
