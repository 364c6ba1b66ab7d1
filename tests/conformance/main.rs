//! What the standards demand of a server, statement by statement, over TCP.
//!
//! Written against the standards and not against the broker: a test says in its doc comment which statements it
//! shows, and fails if one of them is broken. `docs/CONFORMANCE.md` lists them all; what a table of packets or the tests
//! of a crate show already is not repeated here.

mod connect;
mod endings;
mod flow;
mod limits;
mod order;
mod peer;
mod publish;
mod qos;
mod resumed;
mod retained;
mod session;
mod shared;
mod subscribe;
mod websocket;
mod wills;
