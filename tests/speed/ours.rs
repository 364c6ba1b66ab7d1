//! The client `pondhawk-client`.

use std::error::Error;
use std::num::NonZeroU16;

use client::{Client, Options, Outgoing, Qos, TopicFilter, TopicName, Version};

use crate::job::{Job, PAYLOAD_BYTES, READY, TOPIC, WINDOW};

type Outcome = Result<(), Box<dyn Error>>;

pub(crate) async fn publish(job: Job) -> Outcome {
    let client = connect(job, "publisher").await?;
    let payload = [0; PAYLOAD_BYTES];
    let message = Outgoing::new(TopicName::try_from(TOPIC)?, &payload).qos(qos(job));
    for _ in 0..job.messages {
        drop(client.publish(&message).await?);
    }
    // An error if there is one that is not acknowledged.
    Ok(client.disconnect().await?)
}

pub(crate) async fn receive(job: Job) -> Outcome {
    let client = connect(job, "subscriber").await?;
    let mut messages = client.subscribe(TopicFilter::try_from(TOPIC)?, qos(job)).await?;
    println!("{READY}");
    for _ in 0..job.messages {
        let message = messages.next().await.ok_or("the connection is over")?;
        assert_eq!(message.payload().len(), PAYLOAD_BYTES);
    }
    Ok(client.disconnect().await?)
}

async fn connect(job: Job, name: &str) -> Result<Client, Box<dyn Error>> {
    let window = NonZeroU16::new(WINDOW).ok_or("no window")?;
    let options = Options::new(Version::V5).client_id(name).inflight_max(window).receive_max(window);
    Ok(Client::connect_tcp(("127.0.0.1", job.port), options).await?)
}

fn qos(job: Job) -> Qos {
    if job.qos == 0 { Qos::AtMostOnce } else { Qos::AtLeastOnce }
}
