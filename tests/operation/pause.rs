//! The whole broker is stopped for a while, as a suspended machine is.

use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{Broker, Options, RawClient, Version};

use crate::brokers;

const CLIENTS: usize = 200;
const PINGREQ: [u8; 2] = [0xC0, 0x00];
const PINGRESP: [u8; 2] = [0xD0, 0x00];
const KEEP_ALIVE_TIMEOUT: u8 = 0x8D;

/// Waits until clients with a Keep Alive of one second would have been ended: another broker, which goes on, ends a client
/// with a longer one.
fn let_keep_alive_pass() {
    let other = Broker::start(&Options::default());
    let mut connection = other.connect();
    connection.send(&Connect { keep_alive_secs: 2, ..Connect::new(Version::V5, "silent") }.bytes());
    assert!(packet::is_accepted(&connection.read_packet()));
    assert_eq!(connection.read_to_end(), packet::disconnect(Version::V5, KEEP_ALIVE_TIMEOUT));
}

/// [MQTT-3.1.2-22, 3.1.1 MQTT-3.1.2-24]
#[test]
fn clients_that_have_sent_something_while_the_broker_was_stopped_stay() {
    for broker in brokers("") {
        let mut clients: Vec<RawClient> = (0..=CLIENTS).map(|_| broker.connect()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            let client_id = format!("client {number}");
            let connect = Connect { keep_alive_secs: 1, ..Connect::new(Version::V5, &client_id) };
            client.send(&connect.bytes());
        }
        for client in &mut clients {
            assert!(packet::is_accepted(&client.read_packet()));
        }
        let mut silent = clients.pop().expect("one more than that");
        broker.pause();
        clients.iter_mut().for_each(|client| client.send(&PINGREQ));
        let_keep_alive_pass();
        broker.resume();
        clients.iter_mut().for_each(|client| client.expect(&PINGRESP));
        assert_eq!(silent.read_to_end(), packet::disconnect(Version::V5, KEEP_ALIVE_TIMEOUT));
    }
}
