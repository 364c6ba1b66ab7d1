//! The client's part of a session, seen from its application and from its server. Each test names the statements it
//! checks.

mod authentication;
mod connect;
mod inherited;
mod life;
mod published;
mod received;
mod requests;
mod resumed;
mod world;
