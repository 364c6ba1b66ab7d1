//! Connections through a SOCKS5 proxy that the test plays.

use pondhawk_client::{Endpoint, Fault, Proxy, Version};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::endpoint::{listen, refused};
use crate::peer::{Peer, converse};

/// Accepts a client, asks for name and password, and answers its request.
async fn proxy(listener: &TcpListener, answer: u8) -> TcpStream {
    let (mut stream, _) = listener.accept().await.expect("a connection");
    let mut expect = async |expected: &[u8], answer: &[u8]| {
        let mut bytes = vec![0; expected.len()];
        stream.read_exact(&mut bytes).await.expect("as many");
        assert_eq!(bytes, expected);
        stream.write_all(answer).await.expect("it is there");
    };
    // RFC 1928: version 5, two methods (none, or name and password). The proxy selects the second.
    expect(&[5, 2, 0, 2], &[5, 2]).await;
    // RFC 1929: name and password. The proxy accepts them.
    expect(b"\x01\x03ann\x06secret", &[1, 0]).await;
    // CONNECT to a name, which the proxy looks up.
    expect(b"\x05\x01\x00\x03\x06broker\x07\x5b", &[5, answer, 0, 1, 0, 0, 0, 0, 0, 0]).await;
    stream
}

fn through(port: u16) -> Endpoint {
    Endpoint::tcp("broker", 1883).proxy(Proxy::new("127.0.0.1", port).credentials("ann", "secret"))
}

#[tokio::test]
async fn a_proxy_makes_the_connection() {
    let (listener, port) = listen().await;
    let server = async {
        let stream = proxy(&listener, 0).await;
        Peer::on(stream, Version::V5).converse().await;
    };
    tokio::join!(server, converse(through(port)));
}

#[tokio::test]
async fn a_proxy_that_does_not_says_why() {
    let (listener, port) = listen().await;
    let (_, error) = tokio::join!(proxy(&listener, 4), refused(through(port)));
    assert_eq!(error.fault(), Fault::Network);
    let said = error.to_string();
    assert!(said.starts_with(&format!("the proxy 127.0.0.1:{port} makes no connection: ")), "{said}");
    assert!(!format!("{:?}", through(port)).contains("secret"));
}
