//! Enhanced authentication, with a method whose answer is the reversed challenge.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pondhawk_client::{
    AuthenticateError, Authenticator, Client, ConnectError, Ended, Fault, Options, State, Version,
};
use tokio::io::duplex;
use tokio::sync::mpsc;
use wire::{Auth, AuthProperties, AuthReason, Binary, ConnAck, ConnAckProperties, Utf8};

use crate::peer::{END, Peer};

struct Mirror;

impl Authenticator for Mirror {
    fn begin(&mut self) -> Option<Vec<u8>> {
        Some(b"ann".to_vec())
    }

    fn step(&mut self, challenge: Option<&[u8]>) -> Result<Option<Vec<u8>>, String> {
        let challenge = challenge.ok_or("no challenge")?;
        Ok(Some(challenge.iter().rev().copied().collect()))
    }

    fn finish(&mut self, data: Option<&[u8]>) -> Result<(), String> {
        if data == Some(b"bob") { Ok(()) } else { Err("that is not bob".to_owned()) }
    }
}

fn method() -> Option<Utf8<'static>> {
    Some(Utf8::new("MIRROR").expect("a string"))
}

fn data(bytes: &[u8]) -> Option<Binary<'_>> {
    Some(Binary::new(bytes).expect("it is short"))
}

fn auth(reason: AuthReason, bytes: &[u8]) -> Auth<'_> {
    let properties = AuthProperties {
        authentication_method: method(),
        authentication_data: data(bytes),
        ..AuthProperties::EMPTY
    };
    Auth { reason, properties }
}

fn accepted(bytes: &[u8]) -> ConnAck<'_> {
    let properties = ConnAckProperties {
        authentication_method: method(),
        authentication_data: data(bytes),
        ..ConnAckProperties::EMPTY
    };
    ConnAck { properties, ..ConnAck::accepted(false) }
}

/// A client whose CONNECT has the method and three bytes of data.
async fn begun(options: Options) -> (Peer, tokio::task::JoinHandle<Result<Client, ConnectError>>) {
    let (mut peer, client) = Peer::new(Version::V5, options);
    let connect = peer.next().await;
    assert!(connect.contains("authentication-method=\"MIRROR\" authentication-data=3 B"), "{connect}");
    (peer, client)
}

fn mirror() -> Options {
    Options::new(Version::V5).authenticator("MIRROR", || Mirror)
}

#[tokio::test]
async fn steps_go_on_until_the_server_is_content() {
    let (mut peer, client) = begun(mirror()).await;
    for challenge in [&b"abcd"[..], b"e"] {
        peer.send(auth(AuthReason::ContinueAuthentication, challenge)).await;
        let line = peer.next().await;
        let expected = format!("authentication-data={} B", challenge.len());
        assert!(line.starts_with("AUTH Continue") && line.contains(&expected), "{line}");
    }
    peer.send(accepted(b"bob")).await;
    let client = client.await.expect("no panic").expect("accepted");

    let server = async {
        assert!(peer.next().await.starts_with("AUTH Re-authenticate"));
        peer.send(auth(AuthReason::ContinueAuthentication, b"fg")).await;
        assert!(peer.next().await.starts_with("AUTH Continue"));
        peer.send(auth(AuthReason::Success, b"bob")).await;
    };
    let (again, ()) = tokio::join!(client.reauthenticate(), server);
    again.expect("the server is content again");
}

/// Answers with as many bytes as the number of times it has begun.
struct Counted(u8);

impl Authenticator for Counted {
    fn begin(&mut self) -> Option<Vec<u8>> {
        self.0 += 1;
        Some(b"ann".to_vec())
    }

    fn step(&mut self, _: Option<&[u8]>) -> Result<Option<Vec<u8>>, String> {
        Ok(Some(vec![0; self.0.into()]))
    }
}

#[tokio::test]
async fn an_authentication_that_is_under_way_is_not_begun_anew() {
    let (mut peer, client) = begun(Options::new(Version::V5).authenticator("MIRROR", || Counted(0))).await;
    peer.send(accepted(b"bob")).await;
    let client = client.await.expect("no panic").expect("accepted");
    let server = async {
        assert!(peer.next().await.starts_with("AUTH Re-authenticate"));
        let refused = client.reauthenticate().await.expect_err("there is one");
        let why = session::client::RequestError::NotOurTurn;
        assert!(matches!(refused, AuthenticateError::Protocol(error) if error == why), "{refused}");
        peer.send(auth(AuthReason::ContinueAuthentication, b"fg")).await;
        let line = peer.next().await;
        assert!(line.contains("authentication-data=2 B"), "it goes on as it was: {line}");
        peer.send(auth(AuthReason::Success, b"bob")).await;
    };
    let (again, ()) = tokio::join!(client.reauthenticate(), server);
    again.expect("the server is content again");
}

#[tokio::test]
async fn a_server_that_is_not_who_it_says_is_left() {
    let (mut peer, client) = begun(mirror()).await;
    peer.send(accepted(b"eve")).await;
    let error = client.await.expect("no panic").expect_err("that is not bob");
    assert!(matches!(&error, ConnectError::Ended(Ended::NotAuthenticated(why)) if why == "that is not bob"));
    assert_eq!(error.fault(), Fault::Server);
    assert_eq!(peer.next().await, "DISCONNECT Unspecified error");
    assert_eq!(peer.next().await, END);
}

/// Returns more data than a packet can have, from the second challenge or connection on.
struct TooLong {
    has_begun: bool,
}

impl Authenticator for TooLong {
    fn begin(&mut self) -> Option<Vec<u8>> {
        Some(if self.has_begun { vec![0; 65_536] } else { b"ann".to_vec() })
    }

    fn step(&mut self, _: Option<&[u8]>) -> Result<Option<Vec<u8>>, String> {
        Ok(Some(vec![0; 65_536]))
    }
}

fn is_unsent(ended: &Ended) -> bool {
    matches!(ended, Ended::AuthenticationUnsent(_)) && ended.fault() == Fault::Application
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_the_fault_of_the_application() {
    let options = Options::new(Version::V5).authenticator("MIRROR", || TooLong { has_begun: false });
    let (mut peer, client) = begun(options).await;
    peer.send(auth(AuthReason::ContinueAuthentication, b"abcd")).await;
    let error = client.await.expect("no panic").expect_err("there is no such packet");
    assert!(matches!(&error, ConnectError::Ended(ended) if is_unsent(ended)), "{error}");
    assert_eq!(peer.next().await, "DISCONNECT Unspecified error");
}

#[tokio::test(start_paused = true)]
async fn data_that_is_too_long_at_a_reconnect_is_the_fault_of_the_application() {
    let is_again = AtomicBool::new(false);
    let make = move || TooLong { has_begun: is_again.swap(true, Ordering::Relaxed) };
    let (to, mut streams) = mpsc::unbounded_channel();
    let connector = move || {
        let (ours, theirs) = duplex(1 << 16);
        std::future::ready(
            to.send(ours).map(|()| theirs).map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused)),
        )
    };
    let options = Options::new(Version::V5).reconnect(Duration::from_millis(100), Duration::from_secs(1));
    let accept = async {
        let mut peer = Peer::on(streams.recv().await.expect("the client connects"), Version::V5);
        assert!(peer.next().await.starts_with("CONNECT"));
        peer.send(accepted(b"bob")).await;
        peer
    };
    let connect = Client::connect_by(connector, options.authenticator("MIRROR", make));
    let (client, peer) = tokio::join!(connect, accept);
    let client = client.expect("it is accepted");
    let mut state = client.state();
    drop(peer);
    let has_ended = |state: &State| matches!(state, State::Ended(ended) if is_unsent(ended));
    drop(state.wait_for(has_ended).await.expect("the client says why"));
}

#[tokio::test]
async fn a_step_that_nobody_can_make_ends_the_connection() {
    let options = Options::new(Version::V5).authentication("MIRROR", Some(b"ann"));
    let (mut peer, client) = begun(options).await;
    peer.send(auth(AuthReason::ContinueAuthentication, b"abcd")).await;
    let error = client.await.expect("no panic").expect_err("there are no steps");
    assert!(matches!(error, ConnectError::Ended(Ended::NoAuthenticator)));
    assert_eq!(error.fault(), Fault::Application);
}

#[tokio::test(start_paused = true)]
async fn an_authentication_that_has_no_end_costs_the_connection() {
    let (mut peer, client) = begun(mirror()).await;
    peer.send(accepted(b"bob")).await;
    let client = client.await.expect("no panic").expect("accepted");
    let late = client.reauthenticate().await;
    assert!(matches!(late, Err(AuthenticateError::Ended(Ended::RequestTimedOut))));

    let (_peer, client) = Peer::accepted(Version::V5).await;
    let error = client.reauthenticate().await.expect_err("there is no method");
    assert!(matches!(error, AuthenticateError::Protocol(_)));
    assert_eq!(error.fault(), Fault::Application);
}
