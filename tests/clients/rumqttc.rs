//! rumqttc, a client in Rust, at every QoS in 3.1.1 and 5.0.

use std::thread;
use std::time::Duration;

use pondhawk_tests::{Broker, DEADLINE};

use crate::brokers;

/// Number of messages in a step with many: fewer than a client's queue of requests has room for.
const COUNT: u32 = 100;

/// Requests that wait for the connection to carry them out.
const REQUESTS_MAX: usize = 1_000;

/// Longer than a test.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

const SESSION_SECS: u32 = 3_600;

/// A message, as all that is compared: topic, payload, QoS, RETAIN.
type Message = (String, String, u8, bool);

/// Properties of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nature {
    Plain,
    /// Its session outlives its connections.
    Lasting,
    /// It leaves a will at this QoS.
    WithWill(u8),
}

/// Common part of the two clients in rumqttc, each of which has types of its own.
trait Client: Sized {
    /// Connects. Returns whether there was a session.
    fn connect(broker: &Broker, name: &str, nature: Nature) -> (Self, bool);

    /// Until it is granted.
    fn subscribe(&mut self, filter: &str, qos: u8);

    /// Hands a message over to be sent while others are waited for.
    fn begin_to_publish(&mut self, topic: &str, payload: &str, qos: u8, retain: bool);

    /// Waits until this number of messages is acknowledged, or sent at QoS 0.
    fn finish_publishing(&mut self, count: u32);

    /// Waits for the next message.
    fn hear(&mut self) -> Message;

    /// Until the connection has ended, with DISCONNECT.
    fn leave(self);

    fn expect(&mut self, topic: &str, payload: &str, qos: u8, retain: bool) {
        assert_eq!(self.hear(), (topic.to_owned(), payload.to_owned(), qos, retain));
    }
}

fn text(bytes: impl AsRef<[u8]>) -> String {
    String::from_utf8(bytes.as_ref().to_vec()).expect("text was sent")
}

/// The client at this path, with what it is told about its session.
macro_rules! client {
    ($name:ident, $($path:ident)::+, $will:expr, $settle:expr) => {
        mod $name {
            use $($path)::+::mqttbytes::QoS;
            use $($path)::+::{Client, Connection, Event, Incoming, MqttOptions};

            use super::*;

            pub(super) struct Rumqttc {
                client: Client,
                connection: Connection,
            }

            fn qos(number: u8) -> QoS {
                [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce][usize::from(number)]
            }

            impl Rumqttc {
                /// Lets the connection work until something comes of it.
                fn until<T>(&mut self, mut wish: impl FnMut(Event) -> Option<T>) -> T {
                    loop {
                        let event = self.connection.recv_timeout(DEADLINE).expect("something happens in time");
                        if let Some(outcome) = wish(event.expect("the connection does not break")) {
                            return outcome;
                        }
                    }
                }
            }

            impl super::Client for Rumqttc {
                fn connect(broker: &Broker, name: &str, nature: Nature) -> (Self, bool) {
                    let address = broker.address();
                    let mut options = MqttOptions::new(name, address.ip().to_string(), address.port());
                    options.set_keep_alive(KEEP_ALIVE);
                    let settle: fn(&mut MqttOptions, bool) = $settle;
                    settle(&mut options, nature == Nature::Lasting);
                    if let Nature::WithWill(number) = nature {
                        options.set_last_will($will(format!("will/{name}"), qos(number)));
                    }
                    let (client, connection) = Client::new(options, REQUESTS_MAX);
                    let mut this = Self { client, connection };
                    let session_present = this.until(|event| match event {
                        Event::Incoming(Incoming::ConnAck(answer)) => Some(answer.session_present),
                        _ => None,
                    });
                    (this, session_present)
                }

                fn subscribe(&mut self, filter: &str, number: u8) {
                    self.client.subscribe(filter, qos(number)).expect("the client takes requests");
                    let answer = self.until(|event| match event {
                        Event::Incoming(Incoming::SubAck(answer)) => Some(format!("{:?}", answer.return_codes)),
                        _ => None,
                    });
                    assert_eq!(answer, format!("[Success({:?})]", qos(number)));
                }

                fn begin_to_publish(&mut self, topic: &str, payload: &str, number: u8, retain: bool) {
                    let payload = payload.as_bytes().to_vec();
                    let taken = self.client.publish(topic, qos(number), retain, payload);
                    taken.expect("the client takes requests");
                }

                fn finish_publishing(&mut self, count: u32) {
                    let is_end = |event: Event| match event {
                        Event::Incoming(Incoming::PubAck(_) | Incoming::PubComp(_)) => Some(()),
                        // At QoS 0 there is no identifier.
                        Event::Outgoing(::rumqttc::Outgoing::Publish(0)) => Some(()),
                        _ => None,
                    };
                    (0..count).for_each(|_| self.until(is_end));
                }

                fn hear(&mut self) -> Message {
                    self.until(|event| match event {
                        Event::Incoming(Incoming::Publish(message)) => {
                            let (topic, payload) = (text(message.topic), text(message.payload));
                            Some((topic, payload, message.qos as u8, message.retain))
                        }
                        _ => None,
                    })
                }

                fn leave(mut self) {
                    self.client.disconnect().expect("the client takes requests");
                    self.until(|event| {
                        matches!(event, Event::Outgoing(::rumqttc::Outgoing::Disconnect)).then_some(())
                    });
                    // The broker closes the connection then, which the client takes for an error.
                    while let Ok(Ok(_)) = self.connection.recv_timeout(DEADLINE) {}
                }
            }
        }
    };
}

client!(
    v3_1_1,
    rumqttc,
    |topic, qos| rumqttc::LastWill::new(topic, "gone", qos, false),
    |options, lasting| {
        options.set_clean_session(!lasting);
    }
);
client!(
    v5,
    rumqttc::v5,
    |topic, qos| rumqttc::v5::mqttbytes::v5::LastWill::new(topic, "gone", qos, false, None),
    |options, lasting| {
        options.set_clean_start(!lasting).set_session_expiry_interval(lasting.then_some(SESSION_SECS));
    }
);

fn converse<C: Client>(broker: &Broker, qos: u8) {
    let [mut frog, mut toad] = ["frog", "toad"].map(|name| C::connect(broker, name, Nature::Plain).0);
    frog.subscribe("count/#", qos);
    (0..COUNT).for_each(|number| toad.begin_to_publish("count/all", &number.to_string(), qos, false));
    toad.finish_publishing(COUNT);
    (0..COUNT).for_each(|number| frog.expect("count/all", &number.to_string(), qos, false));
    toad.subscribe("leaf", qos);
    toad.begin_to_publish("leaf", "green", qos, true);
    toad.expect("leaf", "green", qos, false);
    frog.subscribe("leaf", qos);
    frog.expect("leaf", "green", qos, true);
    toad.begin_to_publish("leaf", "", qos, true);
    toad.expect("leaf", "", qos, false);
    frog.expect("leaf", "", qos, false);
    frog.subscribe("$share/pond/work", qos);
    toad.subscribe("work", qos);
    toad.begin_to_publish("work", "for whoever is there", qos, false);
    toad.expect("work", "for whoever is there", qos, false);
    frog.expect("work", "for whoever is there", qos, false);
    frog.leave();
    toad.leave();
}

fn leave_a_will<C: Client>(broker: &Broker, qos: u8) {
    let (mut frog, _) = C::connect(broker, "frog", Nature::Plain);
    frog.subscribe("will/+", qos);
    C::connect(broker, "polite", Nature::WithWill(qos)).0.leave();
    // Its connection is closed with it, and nothing is said.
    drop(C::connect(broker, "rude", Nature::WithWill(qos)));
    frog.expect("will/rude", "gone", qos, false);
    frog.leave();
}

fn come_back<C: Client>(broker: &Broker, qos: u8) {
    let (mut frog, was_there) = C::connect(broker, "away", Nature::Lasting);
    assert!(!was_there);
    frog.subscribe("away/+", qos);
    frog.leave();
    let (mut toad, _) = C::connect(broker, "toad", Nature::Plain);
    (0..COUNT).for_each(|number| toad.begin_to_publish("away/now", &number.to_string(), qos, false));
    toad.finish_publishing(COUNT);
    let (mut frog, was_there) = C::connect(broker, "away", Nature::Lasting);
    assert!(was_there);
    (0..COUNT).for_each(|number| frog.expect("away/now", &number.to_string(), qos, false));
    frog.leave();
    assert!(!C::connect(broker, "away", Nature::Plain).1);
    toad.leave();
}

fn talk<C: Client>() {
    thread::scope(|scope| {
        for broker in brokers() {
            scope.spawn(move || {
                (0..=2).for_each(|qos| converse::<C>(&broker, qos));
                (0..=2).for_each(|qos| leave_a_will::<C>(&broker, qos));
                (1..=2).for_each(|qos| come_back::<C>(&broker, qos));
                assert!(broker.stop().success());
            });
        }
    });
}

#[test]
fn rumqttc_converses_and_comes_back_in_3_1_1() {
    talk::<v3_1_1::Rumqttc>();
}

#[test]
fn rumqttc_converses_and_comes_back_in_5_0() {
    talk::<v5::Rumqttc>();
}
