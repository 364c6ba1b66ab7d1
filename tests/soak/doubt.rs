//! Tests that clients know which subscriptions the broker has, after connections whose answers were lost.

use pondhawk_tests::{Broker, Options, Random, Version, packet, until};

use crate::probe;
use crate::walker::{Arrival, Walker};

const LASTING: Arrival = Arrival { is_clean: false, lasts: true, is_brief: false, has_will: false };

fn settle(walker: &mut Walker, broker: &Broker) {
    walker.calm(broker);
    until("the client is settled", || {
        walker.hear();
        walker.settle(broker).then_some(())
    });
}

/// Returns a settled client with a lasting session that has two subscriptions.
fn subscriber(version: Version, broker: &Broker) -> Walker {
    let number = Version::ALL.iter().position(|one| *one == version).expect("it is one of all");
    let mut walker = Walker::new(number, Random::of(1, 1));
    assert_eq!(walker.version, version);
    walker.connect(broker, LASTING);
    settle(&mut walker, broker);
    let bytes = walker.subscribing(vec!["#".to_owned(), "$share/g0/#".to_owned()], false);
    walker.send(&bytes);
    settle(&mut walker, broker);
    assert_eq!(walker.session.filters().count(), 2);
    walker
}

#[test]
fn a_session_that_a_new_connection_takes_from_a_leaving_one_keeps_its_subscriptions() {
    let broker = Broker::start(&Options::default());
    for version in Version::ALL {
        let mut walker = subscriber(version, &broker);
        walker.leave(Vec::new(), false);
        walker.connect(&broker, LASTING);
        settle(&mut walker, &broker);
        assert_eq!(walker.findings, [""; 0]);
        assert_eq!(probe::differences(&broker, &mut walker), [""; 0], "MQTT {version}");
    }
}

#[test]
fn subscriptions_of_a_connection_whose_connect_arrives_late_are_found() {
    let broker = Broker::start(&Options::default());
    let mut walker = Walker::new(2, Random::of(1, 1));
    let clean = Arrival { is_clean: true, ..LASTING };
    let mut late = walker.arrive(&broker, clean);
    late.extend(walker.subscribing(vec!["soak/#".to_owned()], false));
    late.extend(packet::disconnect(walker.version, 0));
    walker.connect(&broker, clean);
    until("the newer connection is accepted", || {
        walker.hear();
        walker.is_in().then_some(())
    });
    walker.abandoned[0].send(&late);
    until("the older connection takes the session", || {
        walker.hear();
        (!walker.is_in() && walker.abandoned.is_empty()).then_some(())
    });
    walker.connect(&broker, LASTING);
    settle(&mut walker, &broker);
    assert_eq!(walker.findings, [""; 0]);
    assert_eq!(probe::differences(&broker, &mut walker), [""; 0]);
}

#[test]
fn a_refused_connection_says_nothing_of_the_session() {
    let broker = Broker::start(&Options::default());
    let mut walker = subscriber(Version::V5, &broker);
    walker.leave(Vec::new(), false);
    until("the connection is closed", || {
        walker.hear();
        walker.line.is_none().then_some(())
    });
    walker.arrive(&broker, Arrival { is_clean: true, ..LASTING });
    walker.line.as_mut().expect("it has arrived").is_leaving = true;
    walker.hear_packet(&[0x20, 3, 0, 0x88, 0]);
    walker.closed();
    walker.connect(&broker, LASTING);
    settle(&mut walker, &broker);
    assert_eq!(walker.findings, [""; 0]);
    assert_eq!(probe::differences(&broker, &mut walker), [""; 0]);
}
