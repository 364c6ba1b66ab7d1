//! Bad input and abuse against the running broker: packets and behaviour that have broken other brokers.
//!
//! `rows.tsv` has the rows: the actions of a peer, and the required outcome. Each test begins with the id of its row:
//!
//! | letter | rows |
//! |---|---|
//! | F | framing and lengths |
//! | S | strings and topics |
//! | C | CONNECT |
//! | P | the flow of PUBLISH |
//! | U | SUBSCRIBE |
//! | N | sessions and identity |
//! | W | wills and retained messages |
//! | H | shared subscriptions |
//! | R | resources |
//! | T | transports and TLS |
//! | X | WebSocket |
//! | Y | the PROXY protocol |
//! | Q | QUIC |
//! | A | rules about topics |
//! | D | the broker's own topics and its files |
//!
//! Tests of some rows are elsewhere, and `rows.tsv` names them. If a test gives two numbers, the smaller one is for the
//! short form that CI has time for, and `cargo xtask abuse` takes the larger one.

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
