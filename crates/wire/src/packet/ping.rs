use core::fmt;

use crate::header::PacketType;
use crate::rule::Fault;
use crate::walk::{ControlPacket, Layout, Walk};

macro_rules! ping {
    ($(#[$doc:meta])* $name:ident $text:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name;

        impl<'a> ControlPacket<'a> for $name {
            const TYPE: PacketType = PacketType::$name;
        }

        impl<'a> Layout<'a> for $name {
            fn layout<W: Walk<'a, Self>>(walk: &mut W) -> Result<W::Built, Fault> {
                Ok(walk.build(|| Self))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($text)
            }
        }
    };
}

ping! {
    /// PINGREQ: a client reports that it is alive (section 3.12).
    PingReq "PINGREQ"
}

ping! {
    /// PINGRESP: the answer of the server to PINGREQ (section 3.13).
    PingResp "PINGRESP"
}
