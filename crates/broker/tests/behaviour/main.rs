//! Behaviour of a broker as its clients see it: shards and a ledger in one thread, packets in, packets out.

mod absence;
mod bearer;
mod counts;
mod disk;
mod drain;
mod endings;
mod exchanges;
mod lasting;
mod life;
mod login;
mod memory;
mod orders;
mod prefixes;
mod pressure;
mod qos;
mod reads;
mod relief;
mod retained;
mod roles;
mod routing;
mod scram;
mod spans;
mod tight;
mod turns;
mod world;
