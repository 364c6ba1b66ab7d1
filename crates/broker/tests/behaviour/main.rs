//! What a broker does, seen by its clients: shards and a ledger in one thread, packets in, packets out.

mod life;
mod pressure;
mod retained;
mod routing;
mod world;
