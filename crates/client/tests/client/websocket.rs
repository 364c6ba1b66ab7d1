//! WebSocket, with a server that the test plays.

use std::num::NonZeroU32;

use futures_util::{SinkExt, StreamExt};
use pondhawk_client::{
    Client, ConnectError, Ended, Endpoint, Fault, Layer, Options, TransportError, Version, WebSocket,
    WebSocketError,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::{WebSocketStream, accept_hdr_async};

use crate::endpoint::{listen, refused};
use crate::peer::{Peer, converse};

/// Checks the handshake of a client, and accepts it with this subprotocol.
async fn accept(listener: &TcpListener, subprotocol: Option<&'static str>) -> WebSocketStream<TcpStream> {
    let (stream, from) = listener.accept().await.expect("a connection");
    let port = listener.local_addr().expect("it is bound").port();
    assert!(from.ip().is_loopback());
    #[allow(clippy::result_large_err)] // Signature required by tungstenite.
    let check = |request: &Request, mut response: Response| {
        let header = |name: &str| request.headers().get(name).map(HeaderValue::as_bytes);
        assert_eq!(header("sec-websocket-protocol"), Some(&b"mqtt"[..]));
        assert_eq!(header("host"), Some(format!("127.0.0.1:{port}").as_bytes()));
        assert_eq!(header("authorization"), Some(&b"Bearer 7"[..]));
        assert_eq!(request.uri().path_and_query().expect("a path").as_str(), "/mqtt?a=b");
        if let Some(subprotocol) = subprotocol {
            let value = HeaderValue::from_static(subprotocol);
            response.headers_mut().insert("Sec-WebSocket-Protocol", value);
        }
        Ok(response)
    };
    accept_hdr_async(stream, check).await.expect("a client")
}

fn endpoint(port: u16) -> Endpoint {
    let websocket = WebSocket::new("/mqtt?a=b").expect("a path").header("Authorization", "Bearer 7");
    Endpoint::tcp("127.0.0.1", port).websocket(websocket.expect("a header"))
}

/// Forwards bytes between a WebSocket and a stream, in frames of at most `frame_bytes`, with pings between them.
async fn carry(frames: WebSocketStream<TcpStream>, mut bytes: DuplexStream, frame_bytes: usize) {
    let (mut to, mut from) = frames.split();
    let mut chunk = vec![0; frame_bytes];
    loop {
        tokio::select! {
            frame = from.next() => match frame {
                Some(Ok(Message::Binary(frame))) => bytes.write_all(&frame).await.expect("in memory"),
                Some(Ok(Message::Close(_))) | None => return,
                Some(Ok(_)) => {}
                Some(Err(error)) => panic!("{error}"),
            },
            read = bytes.read(&mut chunk) => {
                let count = read.expect("in memory");
                if count == 0 {
                    return;
                }
                to.send(Message::Ping("still there?".into())).await.expect("it is there");
                to.send(Message::Binary(chunk[..count].to_vec().into())).await.expect("it is there");
            }
        }
    }
}

#[tokio::test]
async fn packets_are_in_frames_wherever_these_begin() {
    for frame_bytes in [10, 1_000, 1 << 20] {
        let (listener, port) = listen().await;
        let server = async {
            let (ours, theirs) = duplex(1 << 20);
            let mut peer = Peer::on(ours, Version::V5);
            let frames = accept(&listener, Some("mqtt")).await;
            tokio::join!(carry(frames, theirs, frame_bytes), peer.converse());
        };
        tokio::join!(server, converse(endpoint(port)));
    }
}

#[tokio::test]
async fn a_server_without_the_subprotocol_is_none() {
    let (listener, port) = listen().await;
    let (_, error) = tokio::join!(accept(&listener, None), refused(endpoint(port)));
    assert!(error.to_string().contains("does not offer the subprotocol mqtt"), "{error}");
    assert_eq!(error.fault(), Fault::Server);
}

#[tokio::test]
async fn an_answer_of_http_is_told() {
    let (listener, port) = listen().await;
    let server = async {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").await.expect("it is there");
        stream
    };
    let (_, error) = tokio::join!(server, refused(endpoint(port)));
    let said = format!("no WebSocket with ws://127.0.0.1:{port}: it has answered with HTTP 404 Not Found");
    assert!(error.to_string().starts_with(&said), "{error}");
    let pondhawk_client::ConnectError::Ended(pondhawk_client::Ended::Io(error)) = error else {
        panic!("{error:?}")
    };
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<TransportError>());
    assert_eq!(inner.map(TransportError::layer), Some(Layer::WebSocket));
}

#[tokio::test]
async fn a_text_frame_ends_the_connection() {
    let (listener, port) = listen().await;
    let server = async {
        let mut frames = accept(&listener, Some("mqtt")).await;
        frames.send(Message::Text("MQTT".into())).await.expect("it is there");
        frames
    };
    let connect = Client::connect_to(endpoint(port), Options::new(Version::V5));
    let (_frames, refused) = tokio::join!(server, connect);
    assert!(refused.expect_err("it is no MQTT").to_string().contains("MQTT-6.0.0-1"));
}

/// The client answers pings. A server that does not read the answers must not fill the client's memory.
#[tokio::test]
async fn answers_to_pings_are_bounded() {
    const PINGS: usize = 300_000;
    let (listener, port) = listen().await;
    let server = async {
        let mut stream = accept(&listener, Some("mqtt")).await.into_inner();
        let mut ping = vec![0x89, 125];
        ping.extend_from_slice(&[b'x'; 125]);
        let pings = ping.repeat(1_000);
        for _ in 0..PINGS / 1_000 {
            stream.write_all(&pings).await.expect("the client reads");
        }
        stream.write_all(&[0x88, 0]).await.expect("the client reads");
        let (mut answers, mut buffer) = (0, vec![0; 1 << 16]);
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            answers += count;
        }
        answers
    };
    let connect = Client::connect_to(endpoint(port), Options::new(Version::V5));
    let (answers, refused) = tokio::join!(server, connect);
    refused.expect_err("the server has closed the connection");
    // Two sockets have buffers of several MiB.
    assert!(answers < PINGS * 131 / 2, "{answers} bytes were kept for the server");
}

#[tokio::test]
async fn the_reason_of_a_close_frame_is_told() {
    let close = |code: u16, reason: &str| {
        let mut frame = vec![0x88, u8::try_from(2 + reason.len()).expect("short")];
        frame.extend_from_slice(&code.to_be_bytes());
        frame.extend_from_slice(reason.as_bytes());
        frame
    };
    for (frame, said) in [
        (close(1008, "not\nyou"), r"has closed it with code 1008 (not\nyou)"),
        (close(1011, ""), "has closed it with code 1011"),
        (close(1000, ""), "the server has closed the connection"),
        (vec![0x88, 0], "the server has closed the connection"),
    ] {
        let (listener, port) = listen().await;
        let server = async {
            let mut stream = accept(&listener, Some("mqtt")).await.into_inner();
            stream.write_all(&frame).await.expect("it is there");
            stream
        };
        let connect = Client::connect_to(endpoint(port), Options::new(Version::V5));
        let (_stream, refused) = tokio::join!(server, connect);
        let refused = refused.expect_err("it is closed").to_string();
        assert!(refused.contains(said), "{refused}");
    }
}

#[tokio::test]
async fn a_frame_is_no_larger_than_packets_may_be() {
    let (listener, port) = listen().await;
    let server = async {
        let mut stream = accept(&listener, Some("mqtt")).await.into_inner();
        // Announces a frame of 2 MiB, without its payload.
        let mut head = vec![0x82, 127];
        head.extend_from_slice(&(2_u64 << 20).to_be_bytes());
        stream.write_all(&head).await.expect("it is there");
        stream
    };
    let options = Options::new(Version::V5).packet_bytes_max(NonZeroU32::new(1_000).expect("not 0"));
    let (_stream, refused) = tokio::join!(server, Client::connect_to(endpoint(port), options));
    let error = refused.expect_err("it is too large");
    assert!(matches!(error, ConnectError::Ended(Ended::Io(_))), "{error}");
}

#[test]
fn headers_and_paths_are_what_http_can_have() {
    let websocket = WebSocket::new("/").expect("a path");
    let header = |name, value| websocket.clone().header(name, value).expect_err("no header");
    assert_eq!(header("a b", "c"), WebSocketError::Header("a b".into()));
    assert_eq!(header("a", "b\nc"), WebSocketError::Header("a".into()));
    assert_eq!(header("Host", "a"), WebSocketError::Reserved("Host".into()));
    assert!(matches!(header("Sec-WebSocket-Protocol", "a"), WebSocketError::Reserved(_)));
    assert!(matches!(WebSocket::new("mqtt"), Err(WebSocketError::Path(_))));
    assert!(matches!(WebSocket::new("/a b"), Err(WebSocketError::Path(_))));
    let shown = format!("{:?}", websocket.header("Authorization", "secret").expect("a header"));
    assert!(!shown.contains("secret"), "{shown}");
    let url: Endpoint = "ws://localhost".parse().expect("a URL");
    assert_eq!(url.to_string(), "ws://localhost:80");
}
