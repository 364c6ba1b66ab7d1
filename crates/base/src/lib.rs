//! Messages, time, memory, identifiers and subscribers: the types that the broker, its ledger and its clients share.
//!
//! Every crate of the core uses these types, and none of them knows a packet's rules or a broker's. A [`Message`] is an
//! application message that outlives the packet it came in. [`Now`] is the time, read by the caller. A [`Budget`] is the
//! account of the memory that a whole process holds. [`ShardId`], [`ConnectionId`] and [`QueueId`] are numbers in tables.
//! A [`Subscriber`] is a session or a group to which subscriptions lead, with a [`Gauge`] that tells how full it is.
//! [`Fates`] record the outcomes of messages for an operator, and [`Span`]s their times for a collector.

#![forbid(unsafe_code)]

mod budget;
mod certificate;
mod claims;
mod dispatch;
mod fates;
mod gauge;
mod identifiers;
mod identity;
mod interest;
mod latency;
mod members;
mod message;
mod principal;
mod span;
mod subscriber;
mod sync;
mod ticket;
mod time;

pub use budget::{Budget, Charge, Purpose, Tally};
pub use certificate::CertificateName;
pub use claims::{ClaimLevels, ClaimRule, Claims, Uses};
pub use dispatch::{Dispatch, Key, Lane};
pub use fates::{AskFates, Fate, FateBounds, FateList, FateOf, FateRecord, FateRing, Fates};
pub use gauge::{Gauge, Level};
pub use identifiers::{ConnectionId, Place, QueueId, ShardId};
pub use identity::Identity;
pub use interest::{Identifiers, Interest};
pub use latency::{Latencies, Latency};
pub use members::{Member, Members};
pub use message::{Content, Message, Parts, PartsError};
pub use principal::{Principal, Realm, Tenant};
pub use span::{Span, SpanIdentifiers, SpanKind, SpanMark, SpanSettings, SpanSink};
pub use subscriber::Subscriber;
pub use ticket::Ticket;
pub use time::Now;
