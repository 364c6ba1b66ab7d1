//! SUBSCRIBE and UNSUBSCRIBE, and their answers.

use pondhawk_session::client::Event;
use wire::{
    AckProperties, OneOrMore, PacketId, RequestedFilter, SubAck, SubAckReason, SubscribeProperties,
    TopicFilter, UnsubAck, UnsubAckReason, UnsubscribeProperties, Version,
};

use crate::world::{World, id};

fn suback(packet_id: PacketId, reasons: &[SubAckReason]) -> SubAck<'_> {
    let reasons = OneOrMore::new(reasons).expect("at least one");
    SubAck { packet_id, properties: AckProperties::EMPTY, reasons }
}

fn unsubscribe(world: &mut World) -> PacketId {
    let filters: [RequestedFilter<'_>; 2] =
        ["a", "b"].map(|text| Ok(TopicFilter::new(text).expect("a filter")));
    let (now, mut out) = (world.now(), Vec::new());
    let filters = OneOrMore::new(&filters).expect("two");
    let packet_id = world.client.unsubscribe(filters, UnsubscribeProperties::EMPTY, now, &mut out);
    world.out().extend_from_slice(&out);
    packet_id.expect("in order")
}

fn unsuback(packet_id: PacketId, version: Version, reasons: &[UnsubAckReason]) -> UnsubAck<'_> {
    let reasons = OneOrMore::new(reasons).filter(|_| version.is_5());
    UnsubAck { packet_id, properties: AckProperties::EMPTY, reasons }
}

#[test]
fn requests_are_answered_by_their_identifier() {
    for version in Version::ALL {
        let mut world = World::new(version);
        let first = world.subscribe("a/+", SubscribeProperties::EMPTY).expect("in order");
        let second = unsubscribe(&mut world);
        assert_ne!(first, second);
        assert_eq!(world.sent(), ["SUBSCRIBE id=1 \"a/+\" q2", "UNSUBSCRIBE id=2 \"a\", \"b\""]);
        let both = [UnsubAckReason::Success, UnsubAckReason::NoSubscriptionExisted];
        let event = world.take(unsuback(second, version, &both)).expect("in order");
        assert!(matches!(event, Event::Unsubscribed(answer) if answer.packet_id == second));
        let event = world.take(suback(first, &[SubAckReason::GrantedQos1])).expect("in order");
        assert!(matches!(event, Event::Subscribed(answer) if answer.packet_id == first));
    }
}

/// [MQTT-3.8.4-6, 3.1.1 MQTT-3.8.4-5]
#[test]
fn an_answer_to_nothing_that_was_asked_ends_the_connection() {
    for version in Version::ALL {
        let one = [SubAckReason::GrantedQos0];
        let two = [SubAckReason::GrantedQos0; 2];
        World::new(version).refused(suback(id(1), &one));
        let mut world = World::new(version);
        let packet_id = world.subscribe("a", SubscribeProperties::EMPTY).expect("in order");
        world.refused(suback(packet_id, &two));
        let mut world = World::new(version);
        let packet_id = unsubscribe(&mut world);
        world.refused(suback(packet_id, &two));
        let mut world = World::new(version);
        let packet_id = world.subscribe("a", SubscribeProperties::EMPTY).expect("in order");
        world.take(suback(packet_id, &one)).expect("in order");
        world.refused(suback(packet_id, &one));
    }
    let mut world = World::new(Version::V5);
    let packet_id = unsubscribe(&mut world);
    world.refused(unsuback(packet_id, Version::V5, &[UnsubAckReason::Success]));
}

#[test]
fn a_request_ends_with_its_connection() {
    let mut world = World::new(Version::V5);
    let packet_id = world.subscribe("a", SubscribeProperties::EMPTY).expect("in order");
    world.reconnect(wire::ConnAck::accepted(true));
    assert!(world.sent().is_empty());
    world.refused(suback(packet_id, &[SubAckReason::GrantedQos0]));
}
