//! The server's part of a session, seen from its client and from the world it asks. Each test names the statements it
//! checks.

mod alias;
mod authentication;
mod connect;
mod life;
mod limits;
mod published;
mod sent;
mod world;
