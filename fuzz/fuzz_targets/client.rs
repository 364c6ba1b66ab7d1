//! Any bytes of a server, in any pieces, are packets to a client or end its connection with an error, and never a panic.
//!
//! The first byte of the input selects the version, and whether the server has accepted the connection. The second byte is
//! the size of the pieces. An application subscribes, publishes, and reads meanwhile. The clock is that of the runtime,
//! which advances when every task waits.
#![no_main]

use std::num::NonZeroU32;
use std::time::Duration;

use client::{Acknowledge, Client, Options, Outgoing, Qos, Version, filter, topic};
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::runtime::Builder;
use tokio::time::timeout;
use wire::{ConnAck, SubAckReason};

/// Bound of a packet and of each stream.
const BYTES_MAX: u32 = 1 << 16;

/// Longest time that an operation of the application may take.
const LIMIT: Duration = Duration::from_secs(3_600);

fuzz_target!(|input: &[u8]| {
    let &[how, size, ref bytes @ ..] = input else { return };
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let (ours, theirs) = duplex(1 << 12);
        let version = [Version::V3_1, Version::V3_1_1, Version::V5, Version::V5][usize::from(how % 4)];
        let server = tokio::spawn(play(ours, version, how, usize::from(size) + 1, bytes.to_vec()));
        timeout(LIMIT, converse(theirs, version, how)).await.expect("the client keeps its time limits");
        server.abort();
    });
});

/// Sends the bytes of the input, and discards what the client says.
async fn play(stream: DuplexStream, version: Version, how: u8, size: usize, bytes: Vec<u8>) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let discard = async {
        let mut heard = [0; 1 << 10];
        while reader.read(&mut heard).await.is_ok_and(|count| count > 0) {}
    };
    let send = async {
        let mut begin = Vec::new();
        if how & 4 == 0 {
            let accepted = ConnAck::accepted(how & 64 != 0);
            accepted.encode(version, &mut begin).expect("a vector has room");
            // The answer to the first SUBSCRIBE, with its usual packet identifier.
            let granted = wire::OneOrMore::new(&[SubAckReason::GrantedQos2]).expect("one");
            let suback = wire::SubAck {
                packet_id: wire::PacketId::new(1).expect("not 0"),
                properties: wire::AckProperties::EMPTY,
                reasons: granted,
            };
            if how & 128 == 0 {
                suback.encode(version, &mut begin).expect("a vector has room");
            }
        }
        if writer.write_all(&begin).await.is_err() {
            return;
        }
        for piece in bytes.chunks(size) {
            if writer.write_all(piece).await.is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    if how & 8 == 0 {
        tokio::join!(discard, send);
    } else {
        // A server that does not read.
        send.await;
        let _ = timeout(LIMIT, std::future::pending::<()>()).await;
    }
}

async fn converse(stream: DuplexStream, version: Version, how: u8) {
    let acknowledge = if how & 16 == 0 { Acknowledge::AtOnce } else { Acknowledge::ByApplication };
    let options = Options::new(version)
        .client_id("me")
        .clean_start(how & 32 == 0)
        .acknowledge(acknowledge)
        .packet_bytes_max(NonZeroU32::new(BYTES_MAX).expect("not 0"))
        .message_bytes_max(BYTES_MAX as usize)
        .messages_max(4);
    let Ok(client) = Client::connect(stream, options).await else { return };
    let mut inbox = client.inbox().await.ok();
    let question = Outgoing::new(topic!("b"), b"x").qos(Qos::ExactlyOnce);
    let (granted, published) =
        tokio::join!(client.subscribe(filter!("a/#"), Qos::ExactlyOnce), client.publish(&question));
    if let Ok(acknowledgement) = published {
        let _ = timeout(Duration::from_secs(1), acknowledgement).await;
    }
    if let Ok(mut messages) = granted {
        while let Ok(Some(message)) = timeout(Duration::from_secs(1), messages.next()).await {
            assert!(message.topic().as_str().starts_with('a'), "the filter does not match");
            message.acknowledge();
        }
    }
    while let Some(inbox) = &mut inbox
        && let Ok(Some(message)) = timeout(Duration::from_secs(1), inbox.next()).await
    {
        message.acknowledge();
    }
    if let Some(ended) = client.ended() {
        assert!(!ended.to_string().contains(char::is_control));
    }
    let _ = client.disconnect().await;
}
