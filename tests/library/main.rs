//! The client library against real servers: Pondhawk, and Mosquitto for what Pondhawk may have wrong in the same way.

mod acknowledged;
mod conversation;
mod ended;
mod examples;
mod place;
mod relay;
mod requested;
mod resumed;
mod storm;
mod transports;
