//! The harness itself: what it sends, what it accepts, and what it says when a broker does not start.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use pondhawk_tests::{Broker, Options, RawClient, node, python};

/// A peer that does what it is told with the first connection.
fn peer(serve: impl FnOnce(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || serve(listener.accept().unwrap().0));
    address
}

fn panics(test: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(test)).is_err()
}

#[test]
fn expected_bytes_are_read_and_the_rest_is_kept() {
    let mut client = RawClient::connect(peer(|mut stream| {
        let mut request = [0; 2];
        stream.read_exact(&mut request).unwrap();
        assert_eq!(request, [0xC0, 0x00]);
        stream.write_all(&[0xD0, 0x00, 0x20, 0x02, 0x00, 0x00, 0x30]).unwrap();
        stream.write_all(&[0x01, 0x07]).unwrap();
    }));
    client.send_bytewise(&[0xC0, 0x00]);
    client.expect(&[0xD0, 0x00]);
    assert_eq!(client.read_packet(), [0x20, 0x02, 0x00, 0x00]);
    assert_eq!(client.read_packet(), [0x30, 0x01, 0x07]);
    client.expect_closed();
}

#[test]
fn other_bytes_than_expected_fail_the_test() {
    let mut client = RawClient::connect(peer(|mut stream| stream.write_all(&[1, 2, 3]).unwrap()));
    client.expect(&[1]);
    assert!(panics(|| client.expect(&[3])));
}

#[test]
fn a_connection_closed_too_early_fails_the_test() {
    let mut client = RawClient::connect(peer(|mut stream| stream.write_all(&[0x20]).unwrap()));
    assert!(panics(|| drop(client.read_packet())));
}

#[test]
fn bytes_where_the_end_is_expected_fail_the_test() {
    let mut client = RawClient::connect(peer(|mut stream| stream.write_all(&[0x20]).unwrap()));
    assert!(panics(|| client.expect_closed()));
}

#[test]
fn a_broker_is_started_talked_to_and_stopped() {
    for shards in [1, 4] {
        let mut broker = Broker::start(&Options { shards, ..Options::default() });
        let mut client = broker.connect();
        client.send(b"\x10\x10\x00\x04MQTT\x04\x02\x00\x00\x00\x04frog");
        client.expect(b"\x20\x02\x00\x00");
        client.expect_only_pong();
        assert!(broker.wait_for_log("frog").contains(&client.local_address().to_string()));
        broker.terminate();
        client.expect_closed();
        drop(client);
        assert!(broker.wait().success());
    }
}

#[test]
fn a_broker_that_does_not_start_is_quoted() {
    let options = Options { settings: "[limits]\npacket_byte = 1".to_owned(), ..Options::default() };
    let log = Broker::try_start(&options).expect_err("the key does not exist");
    assert!(log.contains("did you mean `packet_bytes`?"), "{log}");
}

#[test]
fn clients_of_other_languages_are_installed() {
    let paho = python().args(["-c", "import paho.mqtt.client"]).status().unwrap();
    assert!(paho.success());
    let mqtt_js = node().args(["-e", "require('mqtt').connect"]).status().unwrap();
    assert!(mqtt_js.success());
}
