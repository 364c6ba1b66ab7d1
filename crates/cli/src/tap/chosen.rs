//! The packets that `tap` prints, as its flags choose them. All bytes are forwarded and recorded in any case.

use std::collections::HashMap;

use clap::Args;
use topic::{TopicFilter, TopicFilterBuf};
use wire::{Packet, PublishTopic, TopicAlias};

use crate::trace;

/// Names of packet types, as the lines of `tap` begin.
const TYPES: [&str; 15] = [
    "CONNECT",
    "CONNACK",
    "PUBLISH",
    "PUBACK",
    "PUBREC",
    "PUBREL",
    "PUBCOMP",
    "SUBSCRIBE",
    "SUBACK",
    "UNSUBSCRIBE",
    "UNSUBACK",
    "PINGREQ",
    "PINGRESP",
    "DISCONNECT",
    "AUTH",
];

/// Flags that choose packets. A packet is printed if all of them choose it.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Chosen {
    /// Print connections of the client with this identifier only.
    #[arg(long, value_name = "ID")]
    client: Option<String>,

    /// Print packets of these types only, such as PUBLISH,PUBACK. May be given several times.
    #[arg(long, value_name = "TYPE", value_delimiter = ',', value_parser = packet_type)]
    packet: Vec<&'static str>,

    /// Print only messages whose topic matches this filter, and the subscriptions to exactly this filter.
    #[arg(long, value_name = "FILTER", value_parser = filter)]
    topic: Option<TopicFilterBuf>,
}

/// The topics behind the aliases of one direction: whether each matches the filter. At most 65,535 entries.
#[derive(Debug, Default)]
pub(crate) struct Aliases(HashMap<TopicAlias, bool>);

impl Chosen {
    /// Whether connections of a client are printed. `None` if the client has not said its identifier yet.
    pub(crate) fn has_client(&self, client_id: Option<&str>) -> bool {
        self.client.as_deref().is_none_or(|wanted| client_id == Some(wanted))
    }

    /// Whether lines that are no packets are printed, such as the end of a connection.
    pub(crate) fn has_events(&self) -> bool {
        self.packet.is_empty() && self.topic.is_none()
    }

    /// Whether a packet is printed, of a client that is. `aliases` are those of its direction.
    pub(crate) fn has(&self, packet: &Packet<'_>, aliases: &mut Aliases) -> bool {
        let has_topic = self.topic.as_ref().is_none_or(|wanted| is_about(packet, wanted.filter(), aliases));
        has_topic && (self.packet.is_empty() || self.packet.contains(&trace::name(packet)))
    }
}

/// Whether a packet has a topic or a filter that somebody asks for.
fn is_about(packet: &Packet<'_>, wanted: TopicFilter<'_>, aliases: &mut Aliases) -> bool {
    match packet {
        Packet::Publish(publish) => match publish.topic {
            PublishTopic::Name(name) => wanted.matches(name),
            PublishTopic::NameWithAlias(name, alias) => {
                let is_wanted = wanted.matches(name);
                aliases.0.insert(alias, is_wanted);
                is_wanted
            }
            PublishTopic::Alias(alias) => aliases.0.get(&alias).copied().unwrap_or(false),
        },
        Packet::Subscribe(subscribe) => {
            let mut filters = subscribe.subscriptions.iter().map(|subscription| subscription.filter());
            filters.any(|filter| filter.is_ok_and(|filter| filter == wanted))
        }
        Packet::Unsubscribe(unsubscribe) => {
            let mut filters = unsubscribe.filters.iter();
            filters.any(|filter| filter.is_ok_and(|filter| filter == wanted))
        }
        _ => false,
    }
}

fn packet_type(word: &str) -> Result<&'static str, String> {
    let known = TYPES.into_iter().find(|name| name.eq_ignore_ascii_case(word));
    known.ok_or_else(|| format!("the types of packets are {}", TYPES.join(", ")))
}

fn filter(text: &str) -> Result<TopicFilterBuf, String> {
    TopicFilter::new(text).map(TopicFilterBuf::from).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use topic::{TopicName, topic};
    use wire::{
        Delivery, MessageProperties, OneOrMore, PacketId, PingReq, Publish, Subscribe, SubscribeProperties,
        Subscription, SubscriptionIdentifiers, SubscriptionOptions,
    };

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        chosen: Chosen,
    }

    fn chosen(words: &[&str]) -> Chosen {
        Line::try_parse_from([&["tap"], words].concat()).unwrap_or_else(|error| panic!("{error}")).chosen
    }

    fn publish(topic: PublishTopic<'static>) -> Packet<'static> {
        Packet::Publish(Publish {
            topic,
            delivery: Delivery::AtMostOnce,
            retain: false,
            subscription_identifiers: SubscriptionIdentifiers::EMPTY,
            properties: MessageProperties::EMPTY,
            payload: b"croak",
        })
    }

    fn named(name: TopicName<'static>) -> Packet<'static> {
        publish(PublishTopic::Name(name))
    }

    #[test]
    fn all_flags_have_to_choose_a_packet() {
        let aliases = &mut Aliases::default();
        let all = chosen(&[]);
        assert!(all.has(&named(topic!("pond/frog")), aliases) && all.has(&Packet::PingReq(PingReq), aliases));
        assert!(all.has_events() && all.has_client(None) && all.has_client(Some("frog")));
        let some = chosen(&["--packet", "publish,PINGREQ", "--topic", "pond/#", "--client", "frog"]);
        assert!(some.has(&named(topic!("pond/frog")), aliases));
        assert!(!some.has(&named(topic!("lake")), aliases) && !some.has(&Packet::PingReq(PingReq), aliases));
        assert!(!some.has_events() && !some.has_client(None));
        assert!(some.has_client(Some("frog")) && !some.has_client(Some("toad")));
    }

    #[test]
    fn the_topic_behind_an_alias_counts() {
        let (pond, aliases) = (chosen(&["--topic", "pond/+"]), &mut Aliases::default());
        let alias = |number| TopicAlias::new(number).expect("at least 1");
        assert!(pond.has(&publish(PublishTopic::NameWithAlias(topic!("pond/frog"), alias(1))), aliases));
        assert!(!pond.has(&publish(PublishTopic::NameWithAlias(topic!("lake"), alias(2))), aliases));
        assert!(pond.has(&publish(PublishTopic::Alias(alias(1))), aliases));
        assert!(!pond.has(&publish(PublishTopic::Alias(alias(2))), aliases));
        assert!(!pond.has(&publish(PublishTopic::Alias(alias(3))), aliases), "nobody knows its topic");
    }

    #[test]
    fn a_subscription_to_the_same_filter_is_printed() {
        let aliases = &mut Aliases::default();
        let subscribe = |text: &'static str| {
            let filter = TopicFilter::new(text).expect("a filter");
            let subscription = Subscription::new(filter, SubscriptionOptions::default()).expect("no group");
            let subscriptions = OneOrMore::one(Box::leak(Box::new(subscription)));
            let packet_id = PacketId::new(1).expect("not 0");
            Packet::Subscribe(Subscribe { packet_id, properties: SubscribeProperties::EMPTY, subscriptions })
        };
        let pond = chosen(&["--topic", "pond/#"]);
        assert!(pond.has(&subscribe("pond/#"), aliases) && !pond.has(&subscribe("pond/frog"), aliases));
    }

    #[test]
    fn unknown_types_and_invalid_filters_are_refused_with_the_valid_ones() {
        let refused = |words: &[&str]| {
            let error =
                Line::try_parse_from([&["tap"], words].concat()).map(|_| ()).expect_err("it is refused");
            error.to_string()
        };
        assert!(refused(&["--packet", "PUBLISHED"]).contains("PUBLISH, PUBACK"));
        assert!(refused(&["--topic", "pond/#/frog"]).contains("--topic"));
    }
}
