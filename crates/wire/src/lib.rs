#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod decode;
mod header;
#[cfg(feature = "meter")]
pub mod meter;
mod number;
mod packet;
mod property;
mod read;
mod reason;
mod repeated;
mod rule;
mod run;
mod shown;
mod sink;
mod string;
#[cfg(any(test, feature = "table"))]
pub mod table;
mod trace;
mod varint;
mod version;
mod walk;
mod write;

pub use decode::{Decoded, decode};
pub use header::{Limits, PacketType};
pub use number::{MaximumQos, PacketId, PayloadFormat, SubscriptionIdentifier, TopicAlias};
pub use packet::{
    AckProperties, Auth, AuthProperties, ConnAck, ConnAckProperties, Connect, ConnectProperties, Connected,
    Delivery, Disconnect, DisconnectProperties, MalformedShare, MessageProperties, NoLocalOnShared, Packet,
    PasswordWithoutUserName, PingReq, PingResp, PubAck, PubComp, PubRec, PubRel, Publish, PublishTopic,
    RequestedFilter, RetainHandling, SubAck, Subscribe, SubscribeProperties, Subscription,
    SubscriptionOptions, UnsubAck, Unsubscribe, UnsubscribeProperties, Will,
};
pub use property::Property;
pub use reason::{
    AuthReason, ConnectRefusal, DisconnectReason, PubAckReason, PubRelReason, ReasonCode, SubAckReason,
    Unlisted, UnsubAckReason,
};
pub use repeated::{
    OneOrMore, OneOrMoreIter, Repeated, RepeatedIter, SubscriptionIdentifiers, UserProperties, UserProperty,
};
pub use rule::{Answer, Violation};
pub use run::{
    Run, RunPayloads, brief_acknowledgement, brief_puback, brief_pubcomp, brief_pubrec, brief_pubrel,
    numbered_packets, numbered_run, publish_run, renumber, set_packet_id,
};
pub use shown::{Shown, is_hidden};
pub use sink::{Counter, EncodeError, Forbidden, Full, Sink, SliceSink};
pub use string::{Binary, BinaryTooLong, ResponseTopic, Utf8, Utf8Error};
pub use topic::{TopicFilter, TopicName};
pub use version::{Qos, Role, Version};
