//! Parts that the four packets of a QoS 1 or 2 exchange share.

use crate::property::properties;
use crate::repeated::UserProperties;
use crate::string::Utf8;

properties! {
    /// The properties of PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK and UNSUBACK.
    pub struct AckProperties<'a> {
        /// A text that helps people to find the cause. Programs must not parse it.
        ReasonString => reason_string: Option<Utf8<'a>>,
        /// Pairs of name and value, in order. The application defines their meaning.
        UserProperty => user_properties: UserProperties<'a>,
    }
}

/// Declares a packet of packet identifier, reason and properties.
///
/// The packet omits reason and properties if the reason is Success and there are no properties. Before MQTT 5 the
/// packet has only the identifier. `refuses_errors` says whether an error is then refused or silently omitted.
macro_rules! acknowledgement {
    ($(#[$doc:meta])* $name:ident, $text:literal, $reason:ident, $unlisted:ident, refuses_errors: $refuses:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $name<'a> {
            /// The identifier of the PUBLISH.
            pub packet_id: PacketId,
            /// Result of this step of the exchange.
            pub reason: $reason,
            /// Details about the result; MQTT 5 only.
            pub properties: AckProperties<'a>,
        }

        impl<'a> $name<'a> {
            /// Makes the packet without properties.
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
