//! Forwards messages from one broker to another.
//!
//! A message is acknowledged to the first broker after the second one has acknowledged it. A message published with
//! QoS 1 or 2 therefore arrives at least once, whatever is interrupted.
//!
//! cargo run -p pondhawk-client --example bridge -- localhost:1883 localhost:1884 'news/#'

use std::error::Error;
use std::time::Duration;

use pondhawk_client::{
    Acknowledge, Acknowledgement, Client, Message, Options, Outgoing, Qos, TopicFilter, Version,
};
use tokio::sync::mpsc;

/// Maximum number of messages that wait for the second broker's acknowledgement.
const UNDER_WAY_MAX: usize = 100;

const SESSION_SECS: u32 = 24 * 3_600;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [from, to, filter] = &arguments[..] else { return Err("what is wanted: FROM TO FILTER".into()) };
    let here = Client::connect_tcp(from.clone(), options().acknowledge(Acknowledge::ByApplication)).await?;
    let there = Client::connect_tcp(to.clone(), options()).await?;
    let mut messages = here.subscribe(TopicFilter::try_from(filter.as_str())?, Qos::ExactlyOnce).await?;
    println!("{filter} from {from} to {to}");
    let (sent, acknowledged) = mpsc::channel(UNDER_WAY_MAX);
    let bridged = async {
        while let Some(message) = messages.next().await {
            let outgoing = Outgoing::new(message.topic(), message.payload())
                .qos(message.qos())
                .retain(message.retain())
                .properties(message.properties());
            let acknowledgement = there.publish(&outgoing).await?;
            sent.send((message, acknowledgement)).await?;
        }
        Ok::<(), Box<dyn Error>>(())
    };
    tokio::select! {
        outcome = bridged => outcome,
        outcome = acknowledge(acknowledged) => outcome,
    }
}

/// Options for a session that lasts while the other broker, or this program, is not available.
fn options() -> Options {
    let options = Options::new(Version::V5).client_id("bridge").clean_start(false);
    options.session_expiry_secs(SESSION_SECS).reconnect(Duration::from_millis(100), Duration::from_secs(10))
}

async fn acknowledge(mut sent: mpsc::Receiver<(Message, Acknowledgement)>) -> Result<(), Box<dyn Error>> {
    while let Some((message, acknowledgement)) = sent.recv().await {
        acknowledgement.await?;
        message.acknowledge();
    }
    Ok(())
}
