//! The control packets (section 3), one file each.

use core::fmt;

use crate::header::PacketType;
use crate::read::Reader;
use crate::rule::{self, Fault};
use crate::sink::{EncodeError, Sink};
use crate::version::Version;
use crate::walk::ControlPacket;
use crate::write::{encode, encoded_len};

mod ack;
mod auth;
mod connack;
mod connect;
mod disconnect;
mod message;
mod ping;
mod puback;
mod pubcomp;
mod publish;
mod pubrec;
mod pubrel;
mod suback;
mod subscribe;
mod unsuback;
mod unsubscribe;

pub use ack::AckProperties;
pub use auth::{Auth, AuthProperties};
pub use connack::{ConnAck, ConnAckProperties, Connected};
pub use connect::{Connect, ConnectProperties, PasswordWithoutUserName, Will};
pub use disconnect::{Disconnect, DisconnectProperties};
pub use message::MessageProperties;
pub use ping::{PingReq, PingResp};
pub use puback::PubAck;
pub use pubcomp::PubComp;
pub(crate) use publish::PublishFlags;
pub use publish::{Delivery, Publish, PublishTopic};
pub use pubrec::PubRec;
pub use pubrel::PubRel;
pub use suback::SubAck;
pub use subscribe::{
    MalformedShare, NoLocalOnShared, RequestedFilter, RetainHandling, Subscribe, SubscribeProperties,
    Subscription, SubscriptionOptions,
};
pub use unsuback::UnsubAck;
pub use unsubscribe::{Unsubscribe, UnsubscribeProperties};

/// Declares [`Packet`] with its variants, and the methods of every packet.
macro_rules! packets {
    ($($name:ident $(<$life:lifetime>)?,)*) => {
        /// A control packet, of any type and version.
        ///
        /// A packet prints itself on one line, as in a protocol trace. Control characters are escaped, long
        /// payloads are cut, and passwords are left out.
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[allow(missing_docs)] // The names say it.
        #[allow(clippy::large_enum_variant)] // CONNECT is large and rare, and nothing may be allocated.
        pub enum Packet<'a> {
            $($name($name $(<$life>)?),)*
        }

        impl<'a> Packet<'a> {
            /// The type of the packet.
            pub const fn packet_type(&self) -> PacketType {
                match self {
                    $(Self::$name(_) => PacketType::$name,)*
                }
            }

            /// Writes the packet in the format of `version`, and returns its length in bytes.
            ///
            /// A packet that would lose its meaning in this version is refused. The documentation of each packet
            /// gives the cases.
            ///
            /// # Errors
            /// [`EncodeError`]; then nothing has been written.
            pub fn encode<S: Sink + ?Sized>(&self, version: Version, sink: &mut S) -> Result<usize, EncodeError> {
                match self {
                    $(Self::$name(packet) => encode(packet, version, sink),)*
                }
            }

            /// Number of bytes that [`encode`](Self::encode) would write.
            ///
            /// # Errors
            /// Those of [`encode`](Self::encode), except [`EncodeError::Full`].
            pub fn encoded_len(&self, version: Version) -> Result<usize, EncodeError> {
                match self {
                    $(Self::$name(packet) => encoded_len(packet, version),)*
                }
            }

            /// Reads the bytes after the fixed header, up to the last one. Packets are large: `ok` builds each one
            /// in its final place.
            #[inline(always)]
            pub(crate) fn read<T, E>(
                packet_type: PacketType,
                from: &mut Reader<'a>,
                ok: impl FnOnce(Self) -> T,
                err: impl FnOnce(Fault, &Reader<'a>) -> E,
            ) -> Result<T, E> {
                match packet_type {
                    $(PacketType::$name => match read_all::<$name>(from) {
                        Ok(packet) => Ok(ok(Self::$name(packet))),
                        Err(fault) => Err(err(fault, from)),
                    },)*
                }
            }
        }

        impl fmt::Display for Packet<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name(packet) => packet.fmt(f),)*
                }
            }
        }

        $(
            impl $(<$life>)? $name $(<$life>)? {
                /// Writes the packet in the format of `version`, and returns its length in bytes.
                ///
                /// # Errors
                /// [`EncodeError`]; then nothing has been written.
                #[inline]
                pub fn encode<S: Sink + ?Sized>(&self, version: Version, sink: &mut S) -> Result<usize, EncodeError> {
                    encode(self, version, sink)
                }

                /// Number of bytes that [`encode`](Self::encode) would write.
                ///
                /// # Errors
                /// Those of [`encode`](Self::encode), except [`EncodeError::Full`].
                pub fn encoded_len(&self, version: Version) -> Result<usize, EncodeError> {
                    encoded_len(self, version)
                }
            }

            impl<'a> From<$name $(<$life>)?> for Packet<'a> {
                fn from(packet: $name $(<$life>)?) -> Self {
                    Self::$name(packet)
                }
            }
        )*
    };
}

packets! {
    Connect<'a>,
    ConnAck<'a>,
    Publish<'a>,
    PubAck<'a>,
    PubRec<'a>,
    PubRel<'a>,
    PubComp<'a>,
    Subscribe<'a>,
    SubAck<'a>,
    Unsubscribe<'a>,
    UnsubAck<'a>,
    PingReq,
    PingResp,
    Disconnect<'a>,
    Auth<'a>,
}

#[inline(always)]
fn read_all<'a, P: ControlPacket<'a>>(from: &mut Reader<'a>) -> Result<P, Fault> {
    let packet = P::layout(from)?;
    if from.rest.is_empty() { Ok(packet) } else { Err(&rule::SURPLUS) }
}
