//! Publishes the messages that match a regular expression to another topic, in upper case.
//!
//! Each of the three stages has the same number of workers. A message is acknowledged after its copy.
//! `crates/bench/peers/pipeline` is the same program in Go, with paho.golang.
//!
//! cargo run -p pondhawk-client --example pipeline -- localhost:1883 'news/#' '(?i)rain' loud/news 4

use std::error::Error;
use std::num::NonZeroU16;
use std::sync::Arc;

use pondhawk_client::pipeline::{Failed, Pipeline, Workers};
use pondhawk_client::{
    Acknowledge, Client, Message, Options, Outgoing, Qos, TopicFilter, TopicName, Version,
};
use regex::bytes::Regex;

/// Maximum number of messages that the program has received and not acknowledged.
const RECEIVE_MAX: NonZeroU16 = NonZeroU16::new(100).unwrap();

/// Any error, from any task.
type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, filter, pattern, to, workers] = &arguments[..] else {
        return Err("what is wanted: ADDRESS FILTER PATTERN TO WORKERS".into());
    };
    let (pattern, workers) = (Regex::new(pattern)?, Workers::unordered(workers.parse()?));
    TopicName::new(to)?;
    let options = Options::new(Version::V5).client_id("pipeline-in").receive_max(RECEIVE_MAX);
    let from = Client::connect_tcp(address.clone(), options.acknowledge(Acknowledge::ByApplication)).await?;
    // The server's acknowledgements arrive although the first connection waits for the stages.
    let out =
        Client::connect_tcp(address.clone(), Options::new(Version::V5).client_id("pipeline-out")).await?;
    let messages = from.subscribe(TopicFilter::new(filter)?, Qos::AtLeastOnce).await?;
    println!("{filter} to {to}");
    let to: Arc<str> = Arc::from(to.as_str());
    let mut published = Pipeline::new(messages)
        .filter(workers, move |message: &Message| pattern.is_match(message.payload()))
        .map(workers, |message: Message| message.payload().to_ascii_uppercase())
        .then(workers, move |text| publish(out.clone(), Arc::clone(&to), text));
    while let Some(outcome) = published.next().await {
        match outcome {
            Ok(job) => job.acknowledge(),
            // The message arrives again in a lasting session, because it is not acknowledged.
            Err(Failed { error, .. }) => return Err(error),
        }
    }
    Err("the subscription has ended".into())
}

/// Publishes a text, and waits for the server's acknowledgement.
async fn publish(client: Client, topic: Arc<str>, text: Vec<u8>) -> Result<Option<()>, Failure> {
    let message = Outgoing::new(TopicName::new(&topic)?, &text).qos(Qos::AtLeastOnce);
    client.publish(&message).await?.await?;
    Ok(Some(()))
}
