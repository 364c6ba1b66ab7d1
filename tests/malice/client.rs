//! A program that uses the client library, in a process of its own: this test binary once more.

use std::num::NonZeroU32;
use std::time::Duration;

use client::{Client, Endpoint, Options, Outgoing, Qos, Version, filter, topic};
use pondhawk_tests::DEADLINE;
use tokio::time::timeout;

/// Environment variable with the URL of the server.
pub(crate) const SERVER: &str = "PONDHAWK_MALICE";

/// Name of the test that is the program.
pub(crate) const NAME: &str = "client::a_program_with_the_library";

/// Bound of each stream of the program, and of a packet.
pub(crate) const BYTES_MAX: u32 = 1 << 20;

/// Time for which the program waits for a message or an acknowledgement.
const PATIENCE: Duration = Duration::from_millis(700);

#[tokio::test]
async fn a_program_with_the_library() {
    let Ok(url) = std::env::var(SERVER) else { return };
    timeout(2 * DEADLINE, converse(&url)).await.expect("the library keeps its time limits");
}

async fn converse(url: &str) {
    let second = Duration::from_secs(1);
    let options = Options::new(Version::V5)
        .client_id("me")
        .packet_bytes_max(NonZeroU32::new(BYTES_MAX).expect("not 0"))
        .message_bytes_max(BYTES_MAX as usize)
        .connect_timeout(second)
        .request_timeout(second)
        .flush_timeout(second)
        .reconnect(Duration::from_millis(10), Duration::from_millis(100));
    let endpoint: Endpoint = url.parse().expect("a URL");
    let client = match Client::connect_to(endpoint, options).await {
        Ok(client) => client,
        Err(error) => return tell(&error),
    };
    match client.subscribe(filter!("t"), Qos::ExactlyOnce).await {
        Ok(mut messages) => {
            let question = Outgoing::new(topic!("t"), b"x").qos(Qos::ExactlyOnce);
            if let Ok(acknowledgement) = client.publish(&question).await {
                match timeout(PATIENCE, acknowledgement).await {
                    Ok(Err(error)) => tell(&error),
                    Ok(Ok(reason)) => println!("acknowledged: {reason}"),
                    Err(_) => {}
                }
            }
            // Takes some messages, and leaves the others.
            for _ in 0..10 {
                let _ = timeout(PATIENCE / 10, messages.next()).await;
            }
        }
        Err(error) => tell(&error),
    }
    if let Some(ended) = client.ended() {
        tell(ended);
    }
    if let Err(error) = client.disconnect().await {
        tell(&error);
    }
}

/// Prints an error, which must be one line without control characters.
fn tell(error: &dyn std::fmt::Display) {
    let text = error.to_string();
    assert!(!text.is_empty() && !text.contains(char::is_control), "{text:?}");
    println!("{text}");
}
