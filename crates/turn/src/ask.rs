//! Questions of operators, on their way to a thread and back.
//!
//! A question lies in the inbox of a shard or of the ledger as any other letter, and keeps the order of the inbox. Its answer
//! is passed to the function that came with it, which must not block. A thread that ends drops the questions that it has not
//! answered, and with them these functions.

use base::ConnectionId;
use stream::Peer;

/// A question to a shard.
pub struct AskShard {
    /// The question, or the order.
    pub question: broker::Question,
    /// Receives the answer, on the thread of the shard.
    pub answer: Box<dyn FnOnce(ShardAnswer) + Send>,
}

/// A question to the ledger.
pub struct AskLedger {
    /// The question, or the order.
    pub question: ledger::Question,
    /// Receives the answer, on the thread of the ledger.
    pub answer: Box<dyn FnOnce(ledger::OperatorAnswer) + Send>,
}

/// The answer of a shard, with the connections of the clients in it.
#[derive(Debug)]
pub struct ShardAnswer {
    /// The answer of its brain.
    pub answer: broker::Answer,
    /// The connections of the clients of the answer, in the same order.
    pub links: Vec<Option<Link>>,
}

/// A connection below MQTT.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    /// The other end of the connection.
    pub peer: Peer,
    /// The place of its listener among all.
    pub listener: u16,
    /// Bytes that wait to be written.
    pub output_bytes: usize,
    /// All bytes that its stream has taken.
    pub taken_bytes: u64,
}

/// The connections that an answer is about.
pub(crate) fn connections(answer: &broker::Answer) -> Vec<ConnectionId> {
    match answer {
        broker::Answer::Clients(clients, _) => clients.iter().map(|client| client.connection).collect(),
        broker::Answer::Client(client) => client.iter().map(|client| client.connection).collect(),
        broker::Answer::Subscriptions(_)
        | broker::Answer::Subscribers(..)
        | broker::Answer::Done(_)
        | broker::Answer::Fates(_) => Vec::new(),
    }
}
