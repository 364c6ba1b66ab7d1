//! Small recordings of sessions whose connections end within exchanges of QoS 1 and 2.

mod end;
mod from_client;
mod from_server;
mod model;
mod shared;

use std::time::Duration;

use wire::{Qos, Version};

use super::super::packet::{Seen, ServerReading};
use super::super::past::Moment;
use super::super::report::Report;
use super::super::script::{Greeting, Said};
use super::Judge;

/// A message that another client publishes to the session.
type Message = (Qos, u8);

/// Decodes a packet of a server. A PUBCOMP of five bytes has a reason code.
fn seen(bytes: &[u8]) -> Seen {
    let has_reason = bytes[0] == 0x70 && bytes.len() == 5;
    let version = if has_reason { Version::V5 } else { Version::V3_1_1 };
    let mut packets = Vec::new();
    let read = ServerReading::default().take(bytes, version, |packet| packets.push(packet));
    read.expect("the packet can be decoded");
    packets.pop().expect("the packet is complete")
}

fn connect(judge: &mut Judge, connection: u64, client_id: &str, version: Version) {
    connect_for(judge, connection, client_id, version, true);
}

fn connect_for(judge: &mut Judge, connection: u64, client_id: &str, version: Version, is_lasting: bool) {
    judge.open(connection);
    let client_id = client_id.to_owned();
    let greeting = Greeting { version, client_id, is_lasting, will: None };
    judge.said(connection, &Said::Connect(Box::new(greeting)));
}

fn judge() -> Judge {
    Judge::new(Moment { step: 0, time: Duration::ZERO }, Report::new(100))
}

fn publish(packet_id: u16, (qos, payload): Message, dup: bool) -> Vec<u8> {
    let [high, low] = packet_id.to_be_bytes();
    vec![0x30 | (qos as u8) << 1 | u8::from(dup) << 3, 6, 0, 1, b't', high, low, payload]
}
