//! Bad input and abuse against the running broker: what peers have broken other brokers with.
//!
//! Each test begins with the id of its kind: F for framing and lengths, S for strings and topics, C for CONNECT, U for
//! SUBSCRIBE, N for identity, W for wills and retained messages, H for shared subscriptions, R for resources, T for
//! transports, D for the broker's own topics. Where a test gives numbers, they are the short form of something that
//! happens a thousand times as often.

mod connect;
mod framing;
mod identity;
mod packets;
mod resources;
mod stage;
mod strings;
mod subscribe;
mod topics;
mod wills;
