use core::fmt;

use crate::header::PacketType;
use crate::number::PacketId;
use crate::packet::RequestedFilter;
use crate::packet::subscribe::Requested;
use crate::property::properties;
use crate::repeated::{OneOrMore, UserProperties};
use crate::rule::{self, Fault};
use crate::walk::{ControlPacket, Layout, Walk};

/// UNSUBSCRIBE: a client ends subscriptions (section 3.10).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unsubscribe<'a> {
    /// The identifier that UNSUBACK repeats.
    pub packet_id: PacketId,
    /// The properties of the whole packet; MQTT 5 only.
    pub properties: UnsubscribeProperties<'a>,
    /// The filters of subscriptions, which are compared character by character.
    pub filters: OneOrMore<'a, RequestedFilter<'a>>,
}

properties! {
    /// The properties of UNSUBSCRIBE (section 3.10.2.1).
    pub struct UnsubscribeProperties<'a> {
        /// Pairs of name and value, in order. The application defines their meaning.
        UserProperty => user_properties: UserProperties<'a>,
    }
}

impl<'a> ControlPacket<'a> for Unsubscribe<'a> {
    const TYPE: PacketType = PacketType::Unsubscribe;
}

impl<'a> Layout<'a> for Unsubscribe<'a> {
    fn layout<W: Walk<'a, Self>>(walk: &mut W) -> Result<W::Built, Fault> {
        let packet_id = walk.field(|packet| packet.packet_id)?;
        let properties = walk.properties(|packet| &packet.properties)?;
        let filters = walk.list(&rule::NO_FILTER, |packet| Some(packet.filters))?;
        Ok(walk.build(|| Self { packet_id, properties, filters }))
    }
}

/// Writes the packet as in `UNSUBSCRIBE id=1 "a/b", "c/#"`.
impl fmt::Display for Unsubscribe<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UNSUBSCRIBE id={}{}", self.packet_id, self.properties)?;
        let mut separator = "";
        self.filters.iter().try_for_each(|filter| {
            write!(f, "{separator} {}", Requested(filter))?;
            separator = ",";
            Ok(())
        })
    }
}
