//! Questions of operators to a shard. The cost of each answer has a bound that no client can raise.

use std::sync::Arc;

use base::{AskFates, ConnectionId, FateList, Fates, Interest, Level, Message, Now, Principal, Subscriber};
use index::Match;
use protocol::{Command, Publish};
use topic::{TopicFilter, TopicName, TopicNameBuf};
use wire::{DisconnectReason, Qos, ReasonCode, TopicAlias, Version};

use crate::client::Client;
use crate::drain::Drain;
use crate::effects::Outside;
use crate::ending::{By, Ending};
use crate::filters::Filters;
use crate::{Effects, Mount, Shard};

/// Maximum number of places of connections that one answer visits.
pub const PLACES_PER_ANSWER: u32 = 256;
/// Maximum number of filters in one answer. Each costs a look-up in the index, under its read lock.
pub const FILTERS_PER_ANSWER: usize = 256;

/// A question to a shard, or an order.
#[derive(Debug)]
pub enum Question {
    /// The clients in the places from this one on.
    Clients {
        /// The first place, from 0.
        from_slot: u32,
    },
    /// The client of a connection.
    Client {
        /// The connection of the client.
        connection: ConnectionId,
    },
    /// The subscriptions of a client whose session ends with its connection, in the order of their bytes.
    Subscriptions {
        /// The connection of the client.
        connection: ConnectionId,
        /// The filter behind which the answer begins; an empty one for the first.
        after: Box<str>,
    },
    /// The subscriptions of all shards that match a topic, from one on.
    Subscribers {
        /// The topic, with the mount point of its listener.
        topic: TopicNameBuf,
        /// The number of the first subscription, from 0.
        from: usize,
    },
    /// Ends a connection with reason code 0x98. Its will is published.
    Disconnect {
        /// The connection to be ended.
        connection: ConnectionId,
    },
    /// Begins to drain the shard, or ends that: new clients are refused, and those that are connected leave.
    Drain(Option<Drain>),
    /// Publishes a message of the broker itself.
    Publish(Box<Message>),
    /// Begins, reads or ends the record of the last messages for a client.
    Fates(AskFates),
}

/// A subscription of a client or of a group that matches a topic.
pub type Subscription = Match<Arc<Subscriber>, Interest>;

/// The answer to a [`Question`].
#[derive(Debug)]
pub enum Answer {
    /// Some clients, and the place where the next answer begins. `None` behind the last place.
    Clients(Vec<ClientFacts>, Option<u32>),
    /// One client. `None` if its connection has ended.
    Client(Option<Box<ClientFacts>>),
    /// Some subscriptions, and whether more follow. `None` if the connection has ended.
    Subscriptions(Option<(Vec<SubscriptionFacts>, bool)>),
    /// Some subscriptions, and the number of the next one.
    Subscribers(Vec<Subscription>, Option<usize>),
    /// Whether the order was carried out.
    Done(bool),
    /// The last messages for a client, as far as this shard decides about them.
    Fates(FateList),
}

/// A client that is connected.
#[derive(Debug, Clone)]
pub struct ClientFacts {
    /// The connection of the client.
    pub connection: ConnectionId,
    /// Its identifier. Empty before CONNECT.
    pub client_id: Arc<str>,
    /// The user for whom it acts.
    pub principal: Arc<Principal>,
    /// Its version of MQTT. `None` before CONNECT.
    pub version: Option<Version>,
    /// Whether it was let in: CONNACK was sent.
    pub is_in: bool,
    /// Whether its session outlives the connection.
    pub is_lasting: bool,
    /// Keep Alive in seconds; 0 is none.
    pub keep_alive_secs: u16,
    /// Number of its subscriptions.
    pub subscriptions: usize,
    /// Messages of QoS 1 and 2 that were sent to it, and are not acknowledged.
    pub in_flight: usize,
    /// Messages that wait behind its window.
    pub waiting_messages: usize,
    /// The bytes of these messages.
    pub waiting_bytes: usize,
    /// Messages that it has acknowledged.
    pub acknowledged: u64,
    /// Messages that it published and may not publish.
    pub denied: u64,
    /// The level of its output.
    pub level: Level,
    /// Whether it is not read, because one of its receivers has no room.
    pub is_blocked: bool,
    /// The limits of its connection.
    pub limits: ClientLimits,
}

/// The limits of a connection that the listener or the client has set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientLimits {
    /// The highest QoS that the client may publish with.
    pub qos_max: Qos,
    /// Whether the client may set RETAIN.
    pub retain_available: bool,
    /// The largest packet that the client accepts, in bytes. [`usize::MAX`] if the client has not set a maximum.
    pub packet_bytes_max: usize,
    /// Maximum number of messages of QoS 1 and 2 in flight to the client.
    pub window: u16,
}

/// A subscription of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionFacts {
    /// The filter, with `$share/GROUP/` and with the mount point of its listener.
    pub filter: Box<str>,
    /// The granted QoS and the options. `None` if the broker has just begun to add the subscription, or if it is shared.
    pub interest: Option<Interest>,
}

impl Shard {
    /// Maximum length of a packet from this connection, in bytes: the one that CONNACK has announced, whatever a reload has changed
    /// since. Before that, it is the one that CONNACK will announce.
    #[must_use]
    pub fn packet_bytes_max(&self, connection: ConnectionId) -> usize {
        let session =
            self.clients.get(connection).filter(|client| client.is_in).map(|client| &client.session);
        session.map_or(self.settings.packet_bytes_max as usize, |session| {
            session.limits(&self.settings).max_packet_bytes
        })
    }

    /// Whether a CONNECT of this connection was read, or the connection is gone.
    #[must_use]
    pub fn has_begun(&self, connection: ConnectionId) -> bool {
        self.clients.get(connection).is_none_or(|client| client.session.version().is_some())
    }

    /// The client of a connection, if it was let in.
    #[must_use]
    pub fn let_in(&self, connection: ConnectionId) -> Option<&Subscriber> {
        self.clients.get(connection).filter(|client| client.is_in)?.subscriber.as_deref()
    }

    /// The mount point of the client of a connection, in front of all names that the client uses.
    #[must_use]
    pub fn mount_point(&self, connection: ConnectionId) -> Option<&Arc<Mount>> {
        self.clients.get(connection)?.mount.as_ref()
    }

    /// The topic for which an alias of the client stands, as the client names the topic.
    #[must_use]
    pub fn name_of_alias(&self, connection: ConnectionId, alias: TopicAlias) -> Option<TopicName<'_>> {
        self.clients.get(connection)?.session.name_of_alias(alias)
    }

    /// Answers a question, or carries out an order.
    pub fn ask(&mut self, question: Question, now: Now, to: &mut impl Effects) -> Answer {
        match question {
            Question::Clients { from_slot } => self.answer_clients(from_slot),
            Question::Client { connection } => {
                let client = self.clients.get(connection);
                Answer::Client(client.map(|client| Box::new(self.facts(connection, client))))
            }
            Question::Subscriptions { connection, after } => {
                Answer::Subscriptions(self.answer_subscriptions(connection, &after))
            }
            Question::Subscribers { topic, from } => {
                let (found, next) = self.index.matches(topic.name(), from, FILTERS_PER_ANSWER);
                Answer::Subscribers(found, next)
            }
            Question::Disconnect { connection } => {
                Answer::Done(self.disconnect_by_operator(connection, &mut Outside::new(now, to)))
            }
            Question::Drain(order) => {
                self.drain(order, now.monotonic_ms);
                Answer::Done(true)
            }
            Question::Fates(ask) => Answer::Fates(Fates::ask(&mut self.fates.rings, &ask, now)),
            Question::Publish(message) => {
                let message = Arc::new(message.charged_to(self.tally.budget()));
                Outside::new(now, to).command(Command::Publish(Publish::of_server(message)));
                Answer::Done(true)
            }
        }
    }

    fn answer_clients(&self, from_slot: u32) -> Answer {
        let end = from_slot.saturating_add(PLACES_PER_ANSWER).min(self.clients.slots());
        let clients = self.clients.in_slots(from_slot..end).map(|(id, client)| self.facts(id, client));
        Answer::Clients(clients.collect(), (end < self.clients.slots()).then_some(end))
    }

    fn answer_subscriptions(
        &self,
        connection: ConnectionId,
        after: &str,
    ) -> Option<(Vec<SubscriptionFacts>, bool)> {
        let client = self.clients.get(connection)?;
        let (filters, has_more) = client.filters.behind(after, FILTERS_PER_ANSWER);
        let describe = |filter: Box<str>| {
            let plain = TopicFilter::new(&filter).ok().filter(|plain| plain.shared().is_none());
            let interest = plain
                .zip(client.subscriber.as_ref())
                .and_then(|(plain, subscriber)| self.index.options_of(plain, subscriber));
            SubscriptionFacts { filter, interest }
        };
        Some((filters.into_iter().map(describe).collect(), has_more))
    }

    fn disconnect_by_operator(&mut self, id: ConnectionId, to: &mut Outside<'_, impl Effects>) -> bool {
        if self.clients.get(id).is_none() {
            return false;
        }
        self.disconnect(id, DisconnectReason::AdministrativeAction, to);
        let ending = Ending {
            reason: ReasonCode::AdministrativeAction,
            why: "an operator disconnected the client",
            cause: protocol::Cause::WithWill,
            by: By::Server,
        };
        self.end(id, ending, to);
        to.close(id);
        true
    }

    fn facts(&self, connection: ConnectionId, client: &Client) -> ClientFacts {
        let offered = client.session.offered(&self.settings);
        let subscriber = client.subscriber.as_ref();
        ClientFacts {
            connection,
            client_id: subscriber
                .map_or_else(|| client.client_id().into(), |known| Arc::clone(&known.client_id)),
            principal: subscriber.map_or_else(Principal::anonymous, |known| known.principal()),
            version: client.session.version(),
            is_in: client.is_in,
            is_lasting: client.queue().is_some(),
            keep_alive_secs: client.session.keep_alive_secs(),
            subscriptions: client.filters.len(),
            in_flight: client.session.in_flight(),
            waiting_messages: client.session.waiting_messages(),
            waiting_bytes: client.waiting_bytes(),
            acknowledged: client.acknowledged,
            denied: client.aside().denied,
            level: subscriber.map_or(Level::Open, |known| known.gauge.level()),
            is_blocked: client.blocked.is_some(),
            limits: ClientLimits {
                qos_max: offered.qos_max(),
                retain_available: offered.retain_available(),
                packet_bytes_max: client.session.packet_bytes_max(),
                window: client.session.window(),
            },
        }
    }
}

impl Filters {
    /// At most `count` filters behind `after`, in the order of their bytes, and whether more follow.
    ///
    /// A set of few filters has no order, and is sorted: at most 1,024 references.
    fn behind(&self, after: &str, count: usize) -> (Vec<Box<str>>, bool) {
        let mut found: Vec<&str> = match self {
            Self::None => Vec::new(),
            Self::One(one) => vec![one],
            Self::Many(all) => all.iter().map(|filter| &**filter).collect(),
            Self::VeryMany(all) => {
                let behind = (std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded);
                all.range::<str, _>(behind).take(count + 1).map(|filter| &**filter).collect()
            }
        };
        found.retain(|filter| *filter > after);
        found.sort_unstable();
        let has_more = found.len() > count;
        found.truncate(count);
        (found.into_iter().map(Box::from).collect(), has_more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_listed_in_pieces_and_in_order() {
        for count in [0, 1, 5, 1_024, 3_000] {
            let mut filters = Filters::default();
            let mut all: Vec<String> = (0..count).map(|number| format!("a/{number}")).collect();
            all.iter().for_each(|filter| filters.insert(filter));
            all.sort_unstable();
            let (mut listed, mut after) = (Vec::new(), Box::<str>::default());
            loop {
                let (piece, has_more) = filters.behind(&after, 100);
                assert!(piece.len() <= 100);
                listed.extend(piece.iter().map(|filter| filter.to_string()));
                if !has_more {
                    break;
                }
                after.clone_from(piece.last().expect("more follow behind something"));
            }
            assert_eq!(listed, all);
        }
    }
}
