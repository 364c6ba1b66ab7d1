//! `pondhawk tap`, between our client and a broker.

use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use client::{Client, Options, Outgoing, Qos, Version, filter, topic};
use pondhawk_tests::{DEADLINE, Program, pondhawk};
use tokio::time::timeout;
use wire::{Decoded, Limits, decode};

use crate::place::{Server, deliver, expect};

/// A head of the file; before each packet its time and twice its length; IPv4 and TCP.
const FILE_HEAD_BYTES: usize = 24;
const RECORD_HEAD_BYTES: usize = 16;
const HEADERS_BYTES: usize = 40;

#[tokio::test]
async fn the_tap_prints_both_ways_and_captures_what_was_said() {
    for server in &Server::each() {
        let folder = tempfile::tempdir().expect("there is a place for temporary files");
        let capture = folder.path().join("said.pcap");
        let mut command = Command::new(pondhawk());
        command.args(["tap", "--listen", "127.0.0.1:0", "--to", &server.address().to_string(), "--capture"]);
        command.arg(&capture);
        let tap = Program::start(command);
        let line = tap.wait_for("listening on ");
        let address = line.rsplit(' ').next().and_then(|text| text.parse().ok()).expect("an address");
        timeout(DEADLINE, converse(address)).await.expect("it does not take so long");
        for said in [
            "-> CONNECT",
            "<- CONNACK",
            "-> SUBSCRIBE",
            "<- SUBACK",
            "<- PUBREC",
            "-> DISCONNECT",
            "-- closed",
        ] {
            let line = tap.wait_for(&format!("1 {said}"));
            assert!(line.as_bytes()[..12].iter().all(|byte| b"0123456789:.".contains(byte)), "{line}");
        }
        tap.kill();
        let captured = std::fs::read(&capture).expect("it is there");
        let packets = packets(&said_by_client(&captured));
        assert!(packets.first().is_some_and(|packet| packet.starts_with("CONNECT")), "{packets:?}");
        assert!(packets.last().is_some_and(|packet| packet.starts_with("DISCONNECT")), "{packets:?}");
    }
}

/// A capture may contain passwords: others must not read it, or choose where it goes.
#[test]
fn a_capture_is_a_file_of_its_owner() {
    let folder = tempfile::tempdir().expect("there is a place for temporary files");
    let path = |name: &str| folder.path().join(name);
    let start = |name: &str| {
        let mut command = Command::new(pondhawk());
        command.args(["tap", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:1", "--capture"]).arg(path(name));
        command
    };
    std::fs::write(path("old"), "readable by others").expect("a temporary file can be written");
    std::fs::set_permissions(path("old"), Permissions::from_mode(0o644)).expect("it is ours");
    for name in ["new", "old"] {
        let tap = Program::start(start(name));
        tap.wait_for("listening on ");
        tap.kill();
        let metadata = std::fs::metadata(path(name)).expect("it is there");
        assert_eq!((metadata.permissions().mode() & 0o777, metadata.len()), (0o600, 24), "{name}");
    }
    std::fs::write(path("target"), "of somebody else").expect("a temporary file can be written");
    std::os::unix::fs::symlink(path("target"), path("link")).expect("a link can be made");
    let made = Command::new("mkfifo").arg(path("pipe")).status().expect("mkfifo can be run");
    assert!(made.success());
    for name in ["link", "pipe"] {
        let refused = start(name).output().expect("it can be run");
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains("no regular file"), "{name}: {said}");
    }
    assert_eq!(std::fs::read(path("target")).expect("it is there"), b"of somebody else");
}

async fn converse(address: SocketAddr) {
    let frog = Client::connect_tcp(address, Options::new(Version::V5).client_id("frog")).await;
    let frog = frog.expect("it is accepted");
    let mut heard = frog.subscribe(filter!("a/b"), Qos::ExactlyOnce).await.expect("granted");
    // Larger than what is forwarded at a time.
    let payload = vec![b'x'; 100_000];
    deliver(&frog, &Outgoing::new(topic!("a/b"), &payload).qos(Qos::ExactlyOnce)).await;
    drop(expect(&mut heard, topic!("a/b"), &payload).await);
    frog.disconnect().await.expect("everything is acknowledged");
}

/// The bytes of the client in a capture. The client is the first sender, and is known by its port.
fn said_by_client(captured: &[u8]) -> Vec<u8> {
    let mut rest = &captured[FILE_HEAD_BYTES..];
    let mut said = Vec::new();
    let mut client = None;
    while let Some((head, packets)) = rest.split_first_chunk::<RECORD_HEAD_BYTES>() {
        let length = u32::from_le_bytes(*head.last_chunk().expect("16 bytes"));
        let (packet, behind) = packets.split_at(usize::try_from(length).expect("short"));
        let (headers, payload) = packet.split_at(HEADERS_BYTES);
        if *client.get_or_insert([headers[20], headers[21]]) == [headers[20], headers[21]] {
            said.extend_from_slice(payload);
        }
        rest = behind;
    }
    said
}

fn packets(mut bytes: &[u8]) -> Vec<String> {
    let mut packets = Vec::new();
    while !bytes.is_empty() {
        let version = (!packets.is_empty()).then_some(Version::V5);
        let Decoded::Packet { packet, len } = decode(bytes, version, &Limits::default()).expect("in order")
        else {
            panic!("a packet that is not whole");
        };
        packets.push(packet.to_string());
        bytes = &bytes[len..];
    }
    packets
}
