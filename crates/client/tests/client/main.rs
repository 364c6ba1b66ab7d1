//! The client, seen from its application and from a server that a test plays packet by packet.

mod ended;
mod inbox;
mod peer;
mod published;
mod received;
mod reconnected;
mod requested;
