//! The client library against real servers: Pondhawk, and Mosquitto for what Pondhawk may have wrong in the same way. And
//! the tools for the command line that are made of it and that nobody else has.

mod acknowledged;
mod conversation;
mod ended;
mod examples;
mod listeners;
mod local;
mod moved;
mod pipeline;
mod place;
mod probe;
mod relay;
mod renewed;
mod requested;
mod resumed;
mod stored;
mod storm;
mod tap;
mod transports;
