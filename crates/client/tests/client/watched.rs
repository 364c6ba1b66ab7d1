//! The parts of a connection that an application can watch: its state, and every packet.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pondhawk_client::{Client, Ended, Options, Outgoing, Qos, Role, State, Version, filter, topic};
use tokio::io::{DuplexStream, duplex};
use tokio::sync::mpsc;
use wire::{ConnAck, PubAck, PubAckReason, Publish, SubAckReason};

use crate::peer::{Peer, id};

#[tokio::test]
async fn each_packet_is_shown_with_its_sender() {
    for version in Version::ALL {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&lines);
        let options = Options::new(version).client_id("me").credentials("ann", Some(b"secret"));
        let options = options.trace(move |sender, packet| {
            let arrow = if sender == Role::Client { "->" } else { "<-" };
            seen.lock().expect("no panic").push(format!("{arrow} {packet}"));
        });
        let (mut peer, client) = Peer::accepted_with(version, options).await;
        let (messages, ()) = tokio::join!(
            client.subscribe(filter!("a"), Qos::AtMostOnce),
            peer.suback(SubAckReason::GrantedQos0)
        );
        peer.send(Publish::new(topic!("a"), b"hey")).await;
        drop(messages.expect("granted").next().await.expect("a message"));
        let message = Outgoing::new(topic!("a"), b"you").qos(Qos::AtLeastOnce);
        let acknowledgement = client.publish(&message).await.expect("queued");
        assert!(peer.next().await.starts_with("PUBLISH"));
        peer.send(PubAck::new(id(2), PubAckReason::Success)).await;
        acknowledgement.await.expect("acknowledged");
        client.disconnect().await.expect("nothing is under way");
        let lines = lines.lock().expect("no panic");
        let types: Vec<_> =
            lines.iter().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect();
        let expected = ["-> CONNECT", "<- CONNACK", "-> SUBSCRIBE", "<- SUBACK", "<- PUBLISH"];
        assert_eq!(types[..5], expected);
        assert_eq!(types[5..], ["-> PUBLISH", "<- PUBACK", "-> DISCONNECT"]);
        assert!(!lines[0].contains("secret"), "{}", lines[0]);
    }
}

#[tokio::test(start_paused = true)]
async fn each_attempt_in_vain_says_why_and_streams_go_on() {
    let (to, mut streams) = mpsc::unbounded_channel::<DuplexStream>();
    let mut attempts = 0;
    let connector = move || {
        attempts += 1;
        let (ours, theirs) = duplex(1 << 16);
        let is_first = attempts == 1;
        if is_first {
            to.send(ours).expect("somebody listens");
        }
        std::future::ready(if is_first { Ok(theirs) } else { Err(io::ErrorKind::HostUnreachable.into()) })
    };
    let options = Options::new(Version::V5).client_id("me").session_expiry_secs(60).messages_max(1);
    let options = options.reconnect(Duration::from_millis(100), Duration::from_secs(1));
    let server = async {
        let mut peer = Peer::on(streams.recv().await.expect("the client tries"), Version::V5);
        assert!(peer.next().await.starts_with("CONNECT"));
        peer.send(ConnAck::accepted(false)).await;
        peer
    };
    let (client, mut peer) = tokio::join!(Client::connect_by(connector, options), server);
    let client = client.expect("it is accepted");
    let (messages, ()) =
        tokio::join!(client.subscribe(filter!("a"), Qos::AtMostOnce), peer.suback(SubAckReason::GrantedQos0));
    let mut messages = messages.expect("granted");
    for _ in 0..3 {
        peer.send(Publish::new(topic!("a"), b"hey")).await;
    }
    drop(peer);
    let mut state = client.state();
    let is_vain = |state: &State| matches!(state, State::Reconnecting(Ended::Io(_)));
    drop(state.wait_for(is_vain).await.expect("the driver is there"));
    for _ in 0..3 {
        drop(messages.next().await.expect("it had come before"));
    }
}

#[tokio::test(start_paused = true)]
async fn the_state_follows_the_connection() {
    let (to, mut streams) = mpsc::unbounded_channel::<DuplexStream>();
    let connector = move || {
        let (ours, theirs) = duplex(1 << 16);
        to.send(ours).expect("somebody listens");
        std::future::ready(Ok(theirs))
    };
    let options = Options::new(Version::V5).client_id("me").session_expiry_secs(60);
    let options = options.reconnect(Duration::from_millis(100), Duration::from_secs(1));
    let mut accept = async |session_present| {
        let mut peer = Peer::on(streams.recv().await.expect("the client tries"), Version::V5);
        assert!(peer.next().await.starts_with("CONNECT"));
        peer.send(ConnAck::accepted(session_present)).await;
        peer
    };
    let (client, peer) = tokio::join!(Client::connect_by(connector, options), accept(false));
    let client = client.expect("it is accepted");
    let mut state = client.state();
    assert!(matches!(&*state.borrow(), State::Connected(server) if !server.session_present));
    drop(peer);
    state.changed().await.expect("the driver is there");
    assert!(matches!(&*state.borrow_and_update(), State::Reconnecting(Ended::Closed)));
    let _peer = accept(true).await;
    state.changed().await.expect("the driver is there");
    assert!(matches!(&*state.borrow_and_update(), State::Connected(server) if server.session_present));
    assert!(!client.server().session_present, "that was the first connection");
    drop(client);
    state.changed().await.expect("it is the last change");
    assert!(matches!(&*state.borrow_and_update(), State::Ended(Ended::ByUs)));
}
