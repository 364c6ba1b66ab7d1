//! Sessions that are stored, and go on in another program.

use std::io;
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex};

use pondhawk_client::{
    Client, ConnectError, Ended, Fault, FileStore, Options, Outgoing, Qos, SessionStore, Version, filter,
    topic,
};
use wire::{
    ConnAck, Delivery, PacketId, PubAck, PubAckReason, PubComp, PubRec, PubRel, PubRelReason, Publish,
    SubAckReason,
};

use crate::peer::{END, Peer, id};

/// A store in memory, which a test can copy at any time.
#[derive(Debug, Clone, Default)]
struct Memory {
    bytes: Arc<Mutex<Vec<u8>>>,
    /// The store after each call.
    states: Arc<Mutex<Vec<Vec<u8>>>>,
    is_broken: Arc<Mutex<bool>>,
}

impl Memory {
    fn of(bytes: Vec<u8>) -> Self {
        Self { bytes: Arc::new(Mutex::new(bytes)), ..Self::default() }
    }

    /// The state that another program would find.
    fn copy(&self) -> Self {
        Self::of(self.bytes())
    }

    fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().expect("no panic").clone()
    }

    fn change(&self, change: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        if *self.is_broken.lock().expect("no panic") {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let mut bytes = self.bytes.lock().expect("no panic");
        change(&mut bytes);
        self.states.lock().expect("no panic").push(bytes.clone());
        Ok(())
    }
}

impl SessionStore for Memory {
    fn load(&mut self) -> io::Result<Vec<u8>> {
        Ok(self.bytes())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.change(|stored| stored.extend(bytes))
    }

    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.change(|stored| *stored = bytes.to_vec())
    }
}

fn options(version: Version, store: &Memory) -> Options {
    let options = Options::new(version).client_id("me").session_expiry_secs(60);
    options.session_store(store.clone())
}

/// A program that goes on with a stored session, after its CONNACK.
async fn again(version: Version, store: &Memory, session_present: bool) -> (Peer, Client) {
    let (mut peer, client) = Peer::new(version, options(version, store));
    let connect = peer.next().await;
    assert!(connect.contains("\"me\"") && !connect.contains("clean"), "{connect}");
    peer.send(ConnAck::accepted(session_present)).await;
    (peer, client.await.expect("no panic").expect("it is accepted"))
}

/// The identifier of a packet, as its line shows it.
fn id_of(line: &str) -> PacketId {
    let digits = line.split("id=").nth(1).and_then(|rest| rest.split(' ').next());
    id(digits.and_then(|digits| digits.parse().ok()).expect("an identifier"))
}

/// Publishes a message. The client has handled all earlier packets of the peer when this returns.
async fn exchange(peer: &mut Peer, client: &Client) {
    let done = client.publish(&reading(b"new", Qos::AtLeastOnce)).await.expect("it is queued");
    let line = peer.next().await;
    assert!(line.ends_with("\"new\""), "{line}");
    peer.send(PubAck::new(id_of(&line), PubAckReason::Success)).await;
    done.await.expect("it is acknowledged");
}

fn reading(payload: &[u8], qos: Qos) -> Outgoing<'_> {
    Outgoing::new(topic!("a/b"), payload).qos(qos)
}

#[tokio::test]
async fn messages_without_an_acknowledgement_are_sent_again_by_the_next_program() {
    for version in [Version::V3_1_1, Version::V5] {
        let store = Memory::default();
        let (mut peer, client) = Peer::accepted_with(version, options(version, &store)).await;
        for (payload, qos) in [
            (b"1", Qos::AtLeastOnce),
            (b"2", Qos::ExactlyOnce),
            (b"3", Qos::ExactlyOnce),
            (b"4", Qos::AtLeastOnce),
        ] {
            drop(client.publish(&reading(payload, qos)).await.expect("it is queued"));
            assert!(peer.next().await.starts_with("PUBLISH"));
        }
        peer.send(PubAck::new(id(4), PubAckReason::Success)).await;
        peer.send(PubRec::new(id(3), PubAckReason::Success)).await;
        assert_eq!(peer.next().await, "PUBREL id=3 Success");

        let (mut peer, _client) = again(version, &store.copy(), true).await;
        assert_eq!(peer.next().await, "PUBREL id=3 Success");
        assert_eq!(peer.next().await, "PUBLISH q1 id=1 dup \"a/b\" 1 B \"1\"");
        assert_eq!(peer.next().await, "PUBLISH q2 id=2 dup \"a/b\" 1 B \"2\"");
        peer.send(PubComp::new(id(3), PubRelReason::Success)).await;
        peer.send(PubAck::new(id(1), PubAckReason::Success)).await;
        peer.send(PubRec::new(id(2), PubAckReason::Success)).await;
        assert_eq!(peer.next().await, "PUBREL id=2 Success");
    }
}

/// PUBRELs are sent again in the order of the PUBRECs [MQTT-4.6.0-3].
#[tokio::test]
async fn the_order_of_pubrecs_outlives_the_program() {
    let store = Memory::default();
    let (mut peer, client) = Peer::accepted_with(Version::V5, options(Version::V5, &store)).await;
    let numbers: Vec<u16> = (1..=20).collect();
    for _ in &numbers {
        drop(client.publish(&reading(b"x", Qos::ExactlyOnce)).await.expect("it is queued"));
        assert!(peer.next().await.starts_with("PUBLISH"));
    }
    // All in one turn of the client.
    let reversed = numbers.iter().rev().map(|number| PubRec::new(id(*number), PubAckReason::Success));
    peer.send_at_once(reversed).await;
    for number in numbers.iter().rev() {
        assert_eq!(peer.next().await, format!("PUBREL id={number} Success"));
    }
    let (mut peer, _client) = again(Version::V5, &store.copy(), true).await;
    for number in numbers.iter().rev() {
        assert_eq!(peer.next().await, format!("PUBREL id={number} Success"));
    }
}

#[tokio::test]
async fn messages_that_wait_outlive_the_program_in_their_order() {
    let store = Memory::default();
    let few = NonZeroU16::new(2).expect("not 0");
    let (mut peer, client) =
        Peer::accepted_with(Version::V5, options(Version::V5, &store).inflight_max(few)).await;
    let payloads: Vec<String> = (0..10).map(|number| number.to_string()).collect();
    for payload in &payloads {
        drop(client.publish(&reading(payload.as_bytes(), Qos::AtLeastOnce)).await.expect("it is queued"));
    }
    client.stored().await.expect("the store works");
    assert!(peer.next().await.ends_with("\"0\""));
    assert!(peer.next().await.ends_with("\"1\""));
    peer.send(PubAck::new(id(1), PubAckReason::Success)).await;
    assert!(peer.next().await.ends_with("\"2\""));

    let (mut peer, client) = again(Version::V5, &store.copy(), true).await;
    let new = client.publish(&reading(b"new", Qos::AtLeastOnce)).await.expect("it is queued");
    for (payload, is_again) in
        payloads[1..].iter().map(String::as_str).zip([true, true].into_iter().chain([false; 7]))
    {
        let line = peer.next().await;
        assert!(line.ends_with(&format!("\"{payload}\"")), "{line}");
        assert_eq!(line.contains(" dup "), is_again, "{line}");
    }
    let line = peer.next().await;
    assert!(line.ends_with("\"new\""), "{line}");
    peer.send(PubAck::new(id_of(&line), PubAckReason::Success)).await;
    new.await.expect("it is acknowledged");
}

#[tokio::test]
async fn a_message_of_qos_2_is_not_received_twice() {
    let store = Memory::default();
    let (mut peer, client) = Peer::accepted_with(Version::V5, options(Version::V5, &store)).await;
    let subscribing = tokio::spawn(async move {
        let messages = client.subscribe(filter!("a/b"), Qos::ExactlyOnce).await.expect("granted");
        (client, messages)
    });
    peer.suback(SubAckReason::GrantedQos2).await;
    let (_client, mut messages) = subscribing.await.expect("no panic");
    let message = |packet_id, dup| Publish {
        delivery: Delivery::ExactlyOnce { packet_id: id(packet_id), dup },
        ..Publish::new(topic!("a/b"), b"x")
    };
    peer.send(message(5, false)).await;
    assert_eq!(peer.next().await, "PUBREC id=5 Success");
    assert!(messages.next().await.is_some());

    let store = store.copy();
    let (mut peer, client) = again(Version::V5, &store, true).await;
    let mut inbox = client.inbox().await.expect("it is connected");
    peer.send(message(5, true)).await;
    peer.send(message(6, false)).await;
    assert_eq!(peer.next().await, "PUBREC id=5 Success");
    assert_eq!(peer.next().await, "PUBREC id=6 Success");
    assert_eq!(inbox.next().await.expect("a message").packet_id(), Some(id(6)));
    peer.send(PubRel::new(id(5), PubRelReason::Success)).await;
    assert_eq!(peer.next().await, "PUBCOMP id=5 Success");

    // A released identifier is that of another message.
    let (mut peer, client) = again(Version::V5, &store.copy(), true).await;
    let mut inbox = client.inbox().await.expect("it is connected");
    peer.send(message(5, false)).await;
    assert_eq!(inbox.next().await.expect("a message").packet_id(), Some(id(5)));
}

/// The client is stopped after each change of the store. Each message is in the store while its exchange is open, and a
/// message whose exchange is over is not sent again.
#[tokio::test]
async fn a_program_may_end_at_any_time() {
    const COUNT: u16 = 40;
    let store = Memory::default();
    let (mut peer, client) = Peer::accepted_with(Version::V5, options(Version::V5, &store)).await;
    for number in 1..=COUNT {
        let qos = if number % 2 == 0 { Qos::ExactlyOnce } else { Qos::AtLeastOnce };
        let payload = format!("<{number}>");
        let done = client.publish(&reading(payload.as_bytes(), qos)).await.expect("it is queued");
        let line = peer.next().await;
        assert!(line.ends_with(&format!("{payload}\"")), "{line}");
        let packet_id = id_of(&line);
        if number % 2 == 0 {
            peer.send(PubRec::new(packet_id, PubAckReason::Success)).await;
            assert!(peer.next().await.starts_with("PUBREL"));
            peer.send(PubComp::new(packet_id, PubRelReason::Success)).await;
        } else {
            peer.send(PubAck::new(packet_id, PubAckReason::Success)).await;
        }
        done.await.expect("it is acknowledged");
        assert!(number < COUNT || client.disconnect().await.is_ok());
    }
    let states = std::mem::take(&mut *store.states.lock().expect("no panic"));
    let mut open_states = 0;
    for state in &states {
        let (mut peer, client) = again(Version::V5, &Memory::of(state.clone()), true).await;
        let end = client.publish(&reading(b"end", Qos::AtMostOnce)).await.expect("it is queued");
        drop(end);
        let mut open = 0;
        loop {
            let line = peer.next().await;
            if line.ends_with("\"end\"") {
                break;
            }
            open += 1;
            assert!(line.starts_with("PUBREL") || line.contains(" dup "), "{line}");
        }
        assert!(open <= 1, "{open}");
        open_states += open;
    }
    // After PUBLISH of each message, and after PUBREC of each with QoS 2.
    assert_eq!(open_states, COUNT + COUNT / 2);
}

#[tokio::test]
async fn nothing_leaves_that_is_not_stored() {
    let store = Memory::default();
    let (mut peer, client) = Peer::accepted_with(Version::V5, options(Version::V5, &store)).await;
    *store.is_broken.lock().expect("no panic") = true;
    let done = client.publish(&reading(b"x", Qos::AtLeastOnce)).await.expect("it is queued");
    // This caller waits in the turn that fails.
    let (stored, heard) = tokio::join!(client.stored(), peer.next());
    assert!(matches!(stored, Err(Ended::Store(_))), "{stored:?}");
    assert_eq!(heard, END);
    assert!(done.await.is_err());
    let ended = client.ended().expect("it has ended").clone();
    assert!(matches!(ended, Ended::Store(_)) && ended.fault() == Fault::Application, "{ended:?}");
    let why = io::Error::from(io::ErrorKind::StorageFull);
    assert_eq!(ended.to_string(), format!("the session cannot be stored: {why}"));
    assert!(client.stored().await.is_err());
}

/// At QoS 1 a message may arrive twice, and must not be lost.
#[tokio::test]
async fn messages_of_a_session_that_the_server_has_lost_are_published_anew_or_counted() {
    let store = Memory::default();
    let (mut peer, client) = Peer::accepted_with(Version::V5, options(Version::V5, &store)).await;
    for qos in [Qos::AtLeastOnce, Qos::ExactlyOnce] {
        drop(client.publish(&reading(b"x", qos)).await.expect("it is queued"));
        assert!(peer.next().await.starts_with("PUBLISH"));
    }
    let store = store.copy();
    let (mut peer, client) = again(Version::V5, &store, false).await;
    assert_eq!(peer.next().await, "PUBLISH q1 id=1 \"a/b\" 1 B \"x\"");
    assert_eq!(client.restored_lost(), 1);
    // A message that is published anew is stored anew.
    let (mut peer, client) = again(Version::V5, &store.copy(), true).await;
    assert_eq!(peer.next().await, "PUBLISH q1 id=1 dup \"a/b\" 1 B \"x\"");
    peer.send(PubAck::new(id(1), PubAckReason::QuotaExceeded)).await;
    exchange(&mut peer, &client).await;
    assert_eq!(client.restored_lost(), 1, "the server has refused the message");
}

/// After PUBREC, the server has the message, also if it then loses the session.
#[tokio::test]
async fn a_message_that_the_server_has_received_is_not_counted_as_lost() {
    let store = Memory::default();
    let (mut peer, client) = Peer::accepted_with(Version::V5, options(Version::V5, &store)).await;
    drop(client.publish(&reading(b"x", Qos::ExactlyOnce)).await.expect("it is queued"));
    assert!(peer.next().await.starts_with("PUBLISH"));
    peer.send(PubRec::new(id(1), PubAckReason::Success)).await;
    assert_eq!(peer.next().await, "PUBREL id=1 Success");
    let (mut peer, client) = again(Version::V5, &store.copy(), false).await;
    exchange(&mut peer, &client).await;
    assert_eq!(client.restored_lost(), 0);
}

#[tokio::test]
async fn a_store_stays_small() {
    let store = Memory::default();
    let (mut peer, client) = Peer::accepted_with(Version::V5, options(Version::V5, &store)).await;
    let payload = vec![b'x'; 10_000];
    for _ in 0..500 {
        let done = client.publish(&reading(&payload, Qos::AtLeastOnce)).await.expect("it is queued");
        let line = peer.next().await;
        assert!(line.starts_with("PUBLISH"), "{line}");
        peer.send(PubAck::new(id_of(&line), PubAckReason::Success)).await;
        done.await.expect("it is acknowledged");
        assert!(store.bytes().len() < 2 << 20);
    }
}

#[tokio::test]
async fn clean_start_discards_the_stored_session() {
    let store = Memory::default();
    let (mut peer, client) = Peer::accepted_with(Version::V5, options(Version::V5, &store)).await;
    drop(client.publish(&reading(b"x", Qos::AtLeastOnce)).await.expect("it is queued"));
    assert!(peer.next().await.starts_with("PUBLISH"));
    let options = options(Version::V5, &store.copy()).clean_start(true);
    let (mut peer, client) = Peer::accepted_with(Version::V5, options).await;
    client.disconnect().await.expect("nothing is under way");
    assert_eq!(peer.next().await, "DISCONNECT Normal disconnection");
}

#[tokio::test]
async fn a_store_belongs_to_one_client() {
    let store = Memory::default();
    let (_peer, _client) = Peer::accepted_with(Version::V5, options(Version::V5, &store)).await;
    let other = Options::new(Version::V5).client_id("other").session_store(store.copy());
    let (_peer, client) = Peer::new(Version::V5, other);
    let refused = client.await.expect("no panic").expect_err("it is another client");
    assert!(refused.to_string().contains("\"me\""), "{refused}");
    // A client without a name gets that of the stored session.
    let unnamed = Options::new(Version::V5).session_expiry_secs(60).session_store(store.copy());
    let (mut peer, _client) = Peer::new(Version::V5, unnamed);
    assert!(peer.next().await.contains("\"me\""));
}

#[tokio::test]
async fn a_file_has_one_client_at_a_time_and_only_its_owner_reads_it() {
    let folder = tempfile::tempdir().expect("there is a place for temporary files");
    let path = folder.path().join("session");
    let options = || {
        let options = Options::new(Version::V5).client_id("me").session_expiry_secs(60);
        options.session_store(FileStore::new(&path))
    };
    let (mut peer, client) = Peer::accepted_with(Version::V5, options()).await;
    drop(client.publish(&reading(b"x", Qos::AtLeastOnce)).await.expect("it is queued"));
    assert!(peer.next().await.starts_with("PUBLISH"));
    let (_peer, second) = Peer::new(Version::V5, options());
    let refused = second.await.expect("no panic").expect_err("the file is in use");
    assert!(matches!(refused, ConnectError::Ended(Ended::Store(_))), "{refused:?}");
    let said = refused.to_string();
    assert!(said.contains("another client uses it") && said.contains("session"), "{said}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&path).expect("the file is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    // The end of the client releases the file.
    drop(peer);
    let mut state = client.state();
    while state.changed().await.is_ok() {}
    let (mut peer, third) = Peer::new(Version::V5, options());
    assert!(peer.next().await.contains("\"me\""));
    peer.send(ConnAck::accepted(true)).await;
    assert_eq!(peer.next().await, "PUBLISH q1 id=1 dup \"a/b\" 1 B \"x\"");
    drop(third);
}
