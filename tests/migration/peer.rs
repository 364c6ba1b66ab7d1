//! Clients that try every way into a broker, and every kind of topic, and write down what happens.

use std::path::Path;

use pondhawk_tests::Version;
use pondhawk_tests::packet::{self, Connect};

use crate::case::Door;
use crate::wire::{self, Wire};

/// A client that tries a door.
struct Client {
    name: &'static str,
    version: Version,
    client_id: &'static str,
    user: Option<(&'static str, Option<&'static str>)>,
    certificate: Option<&'static str>,
}

const fn client(
    name: &'static str,
    version: Version,
    client_id: &'static str,
    user: Option<(&'static str, Option<&'static str>)>,
) -> Client {
    Client { name, version, client_id, user, certificate: None }
}

const fn certified(name: &'static str, certificate: &'static str) -> Client {
    Client { name, version: Version::V5, client_id: "c1", user: None, certificate: Some(certificate) }
}

// An identifier that a user has just had may not be free yet for a client without a name.
const CLIENTS: [Client; 11] = [
    client("anonymous 3.1.1", Version::V3_1_1, "c1", None),
    client("anonymous 5.0", Version::V5, "c1", None),
    client("anonymous 3.1", Version::V3_1, "c1", None),
    client("without identifier 3.1.1", Version::V3_1_1, "", None),
    client("without identifier 5.0", Version::V5, "", None),
    client("ann 3.1.1", Version::V3_1_1, "c1", Some(("ann", Some("secret")))),
    client("ann 5.0", Version::V5, "c2", Some(("ann", Some("secret")))),
    client("ann with a wrong password", Version::V5, "c1", Some(("ann", Some("wrong")))),
    client("bob 5.0", Version::V5, "c3", Some(("bob", Some("builder")))),
    client("an empty name", Version::V3_1_1, "c4", Some(("", Some("")))),
    client("a stranger with a password", Version::V3_1_1, "c1", Some(("eve", Some("x")))),
];

const CERTIFIED: [Client; 2] =
    [certified("ann's certificate", "ann"), certified("a foreign certificate", "foreign")];

/// Topics that the clients publish to, and subscribe to with `#` and `$SYS/#`.
const TOPICS: [&str; 8] = [
    "room/light",
    "room/secret",
    "other/thing",
    "user/ann/x",
    "client/c1/x",
    "house/door",
    "dev-c1/x",
    "$SYS/broker/own",
];

/// Tries everything. One line for each step.
pub(crate) fn transcript(directory: &Path, doors: &[(Door, u16)]) -> Vec<String> {
    let mut lines = Vec::new();
    for (door, port) in doors {
        let is_other = wire::open(directory, *door, *port, None, !door.is_web);
        // A plain socket opens in any case.
        if !door.is_web {
            lines.push(format!(
                "door {}: websocket {}",
                door.port,
                if is_other.is_ok() { "yes" } else { "no" }
            ));
        }
        let certified: &[Client] = if door.is_tls { &CERTIFIED } else { &[] };
        for client in CLIENTS.iter().chain(certified) {
            let what = format!("door {}: {}", door.port, client.name);
            match wire::open(directory, *door, *port, client.certificate, door.is_web) {
                Ok(wire) => {
                    lines.extend(try_client(client, wire).into_iter().map(|line| format!("{what}: {line}")));
                }
                Err(_) => lines.push(format!("{what}: closed")),
            }
        }
    }
    lines
}

fn try_client(client: &Client, mut wire: Wire) -> Vec<String> {
    let version = client.version;
    wire.send(&connect(client));
    let Some(connack) = wire.read() else { return vec!["closed".to_owned()] };
    if !packet::is_accepted(&connack) {
        let code = connack.get(3).copied().unwrap_or_default();
        return vec![format!("refused with {code}")];
    }
    let mut lines = vec!["accepted".to_owned()];
    wire.send(&packet::subscribe_with(version, 1, "#", 1));
    wire.send(&packet::subscribe_with(version, 2, "room/+", 1));
    for (topic, number) in TOPICS.iter().zip(1..) {
        wire.send(&publish(version, number, topic));
    }
    wire.send(&[0xC0, 0]);
    loop {
        match wire.read() {
            None => {
                // Nobody knows which packets come before the end.
                return vec!["accepted, and ended".to_owned()];
            }
            Some(packet) if packet[0] == 0xD0 => break,
            Some(packet) => lines.extend(describe(&packet, version)),
        }
    }
    wire.send(&packet::disconnect(version, 0));
    // Copies come in different orders, and messages to two subscriptions once or twice.
    lines.sort();
    lines.dedup();
    vec![lines.join(", ")]
}

fn describe(packet: &[u8], version: Version) -> Option<String> {
    let body = &packet[2..];
    match packet[0] >> 4 {
        3 => {
            let end = 2 + usize::from(u16::from_be_bytes([body[0], body[1]]));
            let topic = String::from_utf8_lossy(&body[2..end]).into_owned();
            // Counters of the broker differ.
            (!topic.starts_with("$SYS/")).then(|| format!("got {topic}"))
        }
        4 => {
            let code = if version.is_5() { body.get(2).copied().unwrap_or(0) } else { 0 };
            let number = usize::from(body[1]).checked_sub(1).and_then(|index| TOPICS.get(index));
            // "Nobody has subscribed" is a word of courtesy.
            let code = if code == 0x10 { 0 } else { code };
            // A topic of the broker's own is refused with 0x87 or 0x90, which say the same.
            (code != 0).then(|| format!("{} refused", number.unwrap_or(&"?")))
        }
        9 => Some(format!("filter {} has {}", body[1], body.last().copied().unwrap_or_default())),
        14 => None,
        kind => Some(format!("packet {kind}")),
    }
}

fn connect(client: &Client) -> Vec<u8> {
    let mut bytes = Connect::new(client.version, client.client_id).bytes();
    let Some((user, password)) = client.user else { return bytes };
    let mut body = bytes.split_off(2);
    // Behind the length and the name of the protocol, and the level.
    let flags = 2 + client.version.protocol_name().len() + 1;
    body[flags] |= 0x80 | u8::from(password.is_some()) << 6;
    body.extend(packet::string(user));
    body.extend(password.map(packet::string).into_iter().flatten());
    packet::packet(0x10, &body)
}

fn publish(version: Version, number: u8, topic: &str) -> Vec<u8> {
    let properties: &[u8] = if version.is_5() { &[0] } else { &[] };
    packet::packet(0x32, &[&packet::string(topic), &[0, number][..], properties, b"hey"].concat())
}
