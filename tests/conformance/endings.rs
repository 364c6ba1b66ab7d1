//! SUBSCRIBE and UNSUBSCRIBE as the last packet of a connection (sections 3.8.4 and 3.10.4).
//!
//! A server carries out what it has read, although the connection ends before the answer.

use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{Broker, Client, Version, until};

use crate::peer::{Conversation, in_each, lasting};

const FILTERS: [&str; 2] = ["t", "$share/group/t"];

/// The way in which the client sends its last packet, and the end that follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// DISCONNECT follows in the same segment.
    Segment,
    /// DISCONNECT follows, and each byte is sent alone.
    Bytewise,
    /// The client closes its side without DISCONNECT.
    Closed,
    /// The client resets the connection. Bytes that the broker has not read by then are lost.
    Reset,
}

const ENDS: [End; 4] = [End::Segment, End::Bytewise, End::Closed, End::Reset];

/// A client and its session.
#[derive(Debug, Clone, Copy)]
struct Case<'a> {
    broker: &'a Broker,
    version: Version,
    lasts: bool,
    filter: &'a str,
    end: End,
}

impl Case<'_> {
    fn connect(&self) -> Client {
        let connect =
            if self.lasts { lasting(self.version, "frog") } else { Connect::new(self.version, "frog") };
        self.broker.client_with(&connect)
    }

    /// Sends the packet, and waits until the broker has noticed the end.
    fn end(&self, mut client: Client, last: &[u8]) {
        let disconnect = packet::disconnect(self.version, 0);
        match self.end {
            End::Segment => client.send(&[last, &disconnect].concat()),
            End::Bytewise => client.send_bytewise(&[last, &disconnect].concat()),
            End::Closed => {
                client.send(last);
                client.finish();
            }
            End::Reset => {
                client.send(last);
                return client.into_raw().reset();
            }
        }
        client.read_to_end();
    }

    /// A session with this identifier ends, with all its subscriptions.
    fn forget_session(&self) {
        self.broker.client(self.version, "frog").leave();
    }
}

/// Runs a test in all versions, with sessions of both kinds, plain and shared filters, and each end.
fn in_all(test: impl Fn(Case<'_>, &mut Client) + Sync) {
    in_each(&Version::ALL, |broker, version| {
        let mut toad = broker.client(Version::V5, "toad");
        for lasts in [false, true] {
            for filter in FILTERS {
                for end in ENDS {
                    eprintln!("MQTT {version}, session lasts: {lasts}, {filter}, {end:?}");
                    test(Case { broker, version, lasts, filter, end }, &mut toad);
                }
            }
        }
    });
}

/// Publishes until PUBACK says that there is no subscriber.
fn expect_nobody(toad: &mut Client) {
    until("nobody has a subscription", || {
        toad.publish_at(1, 1, "t", b"hey");
        (toad.read_packet() == b"\x40\x03\x00\x01\x10").then_some(())
    });
}

/// [MQTT-3.10.4-1, MQTT-3.10.4-2, 3.1.1 MQTT-3.10.4-1, 3.1.1 MQTT-3.10.4-2]
#[test]
fn an_unsubscribe_at_the_end_of_a_connection_is_carried_out() {
    in_all(|case, toad| {
        let mut frog = case.connect();
        frog.subscribe_with(case.filter, 1);
        case.end(frog, &packet::unsubscribe(case.version, 7, case.filter));
        if case.end == End::Reset && case.lasts {
            // The broker may not have read it: then the session still has the subscription.
            case.forget_session();
        }
        expect_nobody(toad);
        if case.lasts {
            let mut frog = case.connect();
            frog.send(&packet::unsubscribe(case.version, 7, case.filter));
            frog.expect(&packet::unsuback(case.version, 7, 0x11));
            frog.expect_only_pong();
            frog.leave();
            case.forget_session();
        }
    });
}

/// [MQTT-3.8.4-5, MQTT-3.1.2-5, 3.1.1 MQTT-3.8.4-4, 3.1.1 MQTT-3.1.2-5]
#[test]
fn a_subscribe_at_the_end_of_a_connection_is_carried_out() {
    in_all(|case, toad| {
        let frog = case.connect();
        case.end(frog, &packet::subscribe_with(case.version, 7, case.filter, 1));
        if case.lasts && case.end != End::Reset {
            let mut frog = case.connect();
            toad.deliver(1, "t", b"hey");
            frog.take_message(b"hey");
            frog.expect_only_pong();
            frog.leave();
        }
        if case.lasts {
            case.forget_session();
        }
        expect_nobody(toad);
    });
}

/// [MQTT-3.8.4-5, MQTT-3.10.4-1, 3.1.1 MQTT-3.10.4-1]
#[test]
fn subscribe_and_unsubscribe_at_the_end_of_a_connection_leave_nothing() {
    in_all(|case, toad| {
        let frog = case.connect();
        let subscribe = packet::subscribe_with(case.version, 7, case.filter, 1);
        let unsubscribe = packet::unsubscribe(case.version, 8, case.filter);
        case.end(frog, &[subscribe, unsubscribe].concat());
        if case.end == End::Reset && case.lasts {
            case.forget_session();
        }
        expect_nobody(toad);
        if case.lasts {
            case.forget_session();
        }
    });
}
