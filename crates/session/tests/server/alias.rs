//! Topic aliases in both directions.

use pondhawk_session::{Request, Settings};
use topic::TopicName;
use wire::{Publish, PublishTopic, Qos, ReasonCode, TopicAlias, Version};

use crate::world::{World, connect, publish};

fn alias(number: u16) -> TopicAlias {
    TopicAlias::new(number).expect("not 0")
}

fn with_topic(topic: PublishTopic<'_>) -> Publish<'_> {
    Publish { topic, ..publish(Qos::AtMostOnce, 1) }
}

fn topic_of(request: &Request<'_>) -> String {
    match request {
        Request::Publish(message) => message.topic().as_str().to_owned(),
        other => panic!("{other:?}"),
    }
}

/// [MQTT-3.3.2-12]
#[test]
fn a_client_may_use_every_alias_up_to_the_maximum() {
    let mut world =
        World::connected(&connect(Version::V5), Settings { topic_alias_max: 3, ..Settings::default() });
    let names = ["one", "two", "three"];
    for (number, name) in (1..).zip(names) {
        let topic = PublishTopic::NameWithAlias(TopicName::new(name).expect("a name"), alias(number));
        assert_eq!(topic_of(&world.take(with_topic(topic)).expect("in order")), name);
    }
    for (number, name) in (1..=3).zip(names).rev() {
        let request = world.take(with_topic(PublishTopic::Alias(alias(number)))).expect("in order");
        assert_eq!(topic_of(&request), name);
    }
    let other = PublishTopic::NameWithAlias(topic::topic!("other"), alias(2));
    world.take(with_topic(other)).expect("in order");
    let request = world.take(with_topic(PublishTopic::Alias(alias(2)))).expect("in order");
    assert_eq!(topic_of(&request), "other");
}

/// [MQTT-3.3.2-9, MQTT-3.2.2-17, MQTT-3.2.2-18]
#[test]
fn an_alias_above_the_maximum_ends_the_connection() {
    for max in [0, 3] {
        let settings = Settings { topic_alias_max: max, ..Settings::default() };
        let mut world = World::connected(&connect(Version::V5), settings);
        let topic = PublishTopic::NameWithAlias(topic::topic!("a"), alias(max + 1));
        assert_eq!(world.refused(with_topic(topic)).reason, ReasonCode::TopicAliasInvalid);
        assert_eq!(world.sent(), ["DISCONNECT Topic Alias invalid"]);
    }
}

/// [MQTT-3.3.2-7]
#[test]
fn an_alias_ends_with_its_connection() {
    let mut world = World::new(Version::V5);
    let topic = PublishTopic::NameWithAlias(topic::topic!("a"), alias(1));
    world.take(with_topic(topic)).expect("in order");
    let mut world = World::new(Version::V5);
    let violation = world.refused(with_topic(PublishTopic::Alias(alias(1))));
    assert_eq!(violation.reason, ReasonCode::ProtocolError);
}

/// [MQTT-3.1.2-26, MQTT-3.1.2-27, MQTT-3.3.2-11]
#[test]
fn a_client_gets_aliases_up_to_its_own_maximum() {
    for (takes, uses, most) in
        [(None, 16, 0), (Some(0), 16, 0), (Some(2), 16, 2), (Some(2), 1, 1), (Some(9), 0, 0)]
    {
        let mut connect = connect(Version::V5);
        connect.properties.topic_alias_maximum = takes;
        let settings = Settings { topic_alias_out_max: uses, ..Settings::default() };
        let mut world = World::connected(&connect, settings);
        assert_eq!(world.session.uses_aliases(), most > 0);
        let mut highest = 0;
        for _ in 0..40 {
            for name in ["topics/one", "topics/two", "topics/three", "topics/four"] {
                let topic = world.session.outgoing_topic(TopicName::new(name).expect("a name"));
                highest = highest.max(topic.alias().map_or(0, TopicAlias::value));
            }
        }
        assert_eq!(highest, most);
    }
}

#[test]
fn an_alias_is_for_a_topic_that_repays_it() {
    let mut connect = connect(Version::V5);
    connect.properties.topic_alias_maximum = Some(1);
    let mut world = World::connected(&connect, Settings::default());
    let long = topic::topic!("a/topic/of/some/length");
    let short = topic::topic!("short");
    let mut named = |topic| world.session.outgoing_topic(topic);
    assert_eq!(named(long), PublishTopic::Name(long), "it may not come again");
    assert_eq!(named(long), PublishTopic::NameWithAlias(long, alias(1)));
    assert_eq!(named(long), PublishTopic::Alias(alias(1)));
    for _ in 0..3 {
        assert_eq!(named(short), PublishTopic::Name(short), "an alias would take as many bytes");
    }
}

#[test]
fn an_alias_that_was_not_sent_is_set_up_again() {
    let mut connect = connect(Version::V5);
    connect.properties.topic_alias_maximum = Some(1);
    let mut world = World::connected(&connect, Settings::default());
    let topic = topic::topic!("a/topic/of/some/length");
    world.session.outgoing_topic(topic);
    let set_up = world.session.outgoing_topic(topic);
    assert_eq!(set_up, PublishTopic::NameWithAlias(topic, alias(1)));
    world.session.unsent_topic(set_up);
    assert!(!matches!(world.session.outgoing_topic(topic), PublishTopic::Alias(_)));
}

#[test]
fn a_topic_that_comes_often_takes_the_alias_of_one_that_does_not() {
    let mut connect = connect(Version::V5);
    connect.properties.topic_alias_maximum = Some(1);
    let mut world = World::connected(&connect, Settings::default());
    for name in ["a/topic/of/yesterday", "a/topic/of/today"] {
        let topic = TopicName::new(name).expect("a name");
        let last = (0..40).map(|_| world.session.outgoing_topic(topic)).last();
        assert_eq!(last, Some(PublishTopic::Alias(alias(1))), "{name}");
    }
}
