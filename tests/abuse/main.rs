//! Bad input and abuse against the running broker: what peers have broken other brokers with.
//!
//! `rows.tsv` has the rows: what a peer does and what has to come of it. Each test begins with the id of its row: F for
//! framing and lengths, S for strings and topics, C for CONNECT, P for the flow of PUBLISH, U for SUBSCRIBE, N for
//! sessions and identity, W for wills and retained messages, H for shared subscriptions, R for resources, T for
//! transports and TLS, X for WebSocket, Y for the PROXY protocol, Q for QUIC, A for rules about topics, D for the broker's
//! own topics and its files. Tests of some rows are elsewhere, and `rows.tsv` names them. Where a test gives two
//! numbers, the smaller one is the short form that CI has time for, and `cargo xtask abuse` takes the other.

mod connect;
mod floods;
mod framing;
mod groups;
mod identity;
mod layers;
mod memory;
mod packets;
mod publish;
mod quic;
mod resources;
mod retained;
mod rows;
mod sessions;
mod stage;
mod strings;
mod subscribe;
mod topics;
mod wills;
