//! Addresses of servers, and connections to them.

use std::net::{IpAddr, Ipv4Addr};

use pondhawk_client::{Client, ConnectError, Endpoint, Fault, Options, UrlError, Version};
use tokio::net::{TcpListener, UnixListener};

use crate::peer::{Peer, converse};

/// A listener for one test, and its port.
pub(crate) async fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    (listener, port)
}

/// The error of a connection attempt that must fail.
pub(crate) async fn refused(endpoint: Endpoint) -> ConnectError {
    Client::connect_to(endpoint, Options::new(Version::V5)).await.expect_err("there is none")
}

#[tokio::test]
async fn a_host_is_found_by_its_name_and_from_an_address_of_our_own() {
    for endpoint in [
        |port| Endpoint::tcp("127.0.0.1", port),
        |port| Endpoint::tcp("localhost", port).no_delay(false),
        |port| format!("mqtt://localhost:{port}/").parse().expect("a URL"),
        |port| Endpoint::tcp("127.0.0.1", port).bind(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9))),
    ] as [fn(u16) -> Endpoint; 4]
    {
        let (listener, port) = listen().await;
        let server = async {
            let (stream, from) = listener.accept().await.expect("a connection");
            Peer::on(stream, Version::V5).converse().await;
            from.ip()
        };
        let endpoint = endpoint(port);
        let is_bound = format!("{endpoint:?}").contains("127.0.0.9");
        let (from, ()) = tokio::join!(server, converse(endpoint));
        assert_eq!(from == IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9)), is_bound);
    }
}

#[tokio::test]
async fn a_socket_of_this_machine_has_a_path() {
    let directory = tempfile::tempdir().expect("space for it");
    let path = directory.path().join("mqtt.sock");
    let listener = UnixListener::bind(&path).expect("a new path");
    let server = async {
        let (stream, _) = listener.accept().await.expect("a connection");
        Peer::on(stream, Version::V5).converse().await;
    };
    let endpoint = format!("unix://{}", path.display()).parse().expect("a URL");
    tokio::join!(server, converse(endpoint));
}

#[tokio::test]
async fn errors_name_the_endpoint_that_cannot_be_reached() {
    let (listener, port) = listen().await;
    drop(listener);
    let error = refused(Endpoint::tcp("127.0.0.1", port)).await;
    assert_eq!(error.fault(), Fault::Network);
    assert!(error.to_string().starts_with(&format!("127.0.0.1:{port} cannot be reached: ")), "{error}");
    let error = refused(Endpoint::unix("/nowhere/mqtt.sock")).await;
    assert!(error.to_string().starts_with("unix:///nowhere/mqtt.sock cannot be reached: "), "{error}");
    let elsewhere = Endpoint::tcp("127.0.0.1", port).bind("::1".parse().expect("an address"));
    assert!(refused(elsewhere).await.to_string().contains("another family than ::1"));
}

#[test]
fn a_url_is_an_endpoint() {
    let endpoint = |url: &str| url.parse::<Endpoint>().map(|endpoint| endpoint.to_string());
    for (url, same) in [
        ("mqtt://a", "mqtt://a:1883"),
        ("MQTT://a.b:7/", "mqtt://a.b:7"),
        ("tcp://[::1]", "mqtt://[::1]:1883"),
        ("mqtt://[::1]:7", "mqtt://[::1]:7"),
        ("unix:///a/b", "unix:///a/b"),
    ] {
        assert_eq!(endpoint(url).expect(url), same);
    }
    let wrong = |url: &str| endpoint(url).expect_err(url);
    assert!(matches!(wrong("a:1883"), UrlError::Scheme));
    assert!(matches!(wrong("http://a"), UrlError::Scheme));
    assert!(matches!(wrong("mqtt://"), UrlError::Host));
    assert!(matches!(wrong("mqtt://:1883"), UrlError::Host));
    assert!(matches!(wrong("mqtt://[::1"), UrlError::Host));
    assert!(matches!(wrong("unix://"), UrlError::Host));
    assert!(matches!(wrong("mqtt://a:65536"), UrlError::Port));
    assert!(matches!(wrong("mqtt://a:+1883"), UrlError::Port));
    assert!(matches!(wrong("mqtt://[::1]7"), UrlError::Port));
    assert!(matches!(wrong("mqtt://ann:secret@a"), UrlError::Credentials));
    assert!(matches!(wrong("mqtt://a/topic"), UrlError::Path));
}

#[cfg(not(feature = "websocket"))]
#[test]
fn the_error_for_a_url_names_the_missing_feature() {
    let error = "ws://a".parse::<Endpoint>().expect_err("it is not built in");
    assert!(matches!(error, UrlError::Feature("websocket")));
}

#[tokio::test]
async fn errors_of_a_connection_name_the_address() {
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = nobody.local_addr().expect("it is bound");
    drop(nobody);
    let options = || Options::new(Version::V5);
    let error = Client::connect_tcp(address, options()).await.expect_err("nobody listens").to_string();
    assert!(error.contains(&address.to_string()), "{error}");
    // A label of a host name has at most 63 letters. No name server is asked.
    let name = format!("{}:1883", "x".repeat(70));
    let error = Client::connect_tcp(name.clone(), options()).await.expect_err("no such host").to_string();
    assert!(error.contains(&name), "{error}");
    let error = Client::connect_unix("/nowhere", options()).await.expect_err("no such socket").to_string();
    assert!(error.contains("/nowhere"), "{error}");
}
