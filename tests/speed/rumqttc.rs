//! The client `rumqttc`.

use std::error::Error;
use std::time::Duration;

use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::{AsyncClient, Event, EventLoop, Incoming, MqttOptions};

use crate::job::{Job, PAYLOAD_BYTES, READY, TOPIC, WINDOW};

type Outcome = Result<(), Box<dyn Error>>;

/// Requests that wait for the event loop: as many as ours.
const REQUESTS_MAX: usize = 256;

pub(crate) async fn publish(job: Job) -> Outcome {
    let (client, mut events) = connect(job, "publisher");
    let published = tokio::spawn(async move {
        for _ in 0..job.messages {
            client.publish(TOPIC, qos(job), false, vec![0; PAYLOAD_BYTES]).await?;
        }
        Ok::<_, rumqttc::v5::ClientError>(client)
    });
    let mut left = job.messages;
    while left > 0 {
        match events.poll().await? {
            Event::Incoming(Incoming::PubAck(_)) => left -= 1,
            // At QoS 0 there is no identifier.
            Event::Outgoing(rumqttc::Outgoing::Publish(0)) => left -= 1,
            _ => {}
        }
    }
    let client = published.await??;
    leave(client, events).await
}

pub(crate) async fn receive(job: Job) -> Outcome {
    let (client, mut events) = connect(job, "subscriber");
    client.subscribe(TOPIC, qos(job)).await?;
    let mut left = job.messages;
    while left > 0 {
        match events.poll().await? {
            Event::Incoming(Incoming::SubAck(_)) => println!("{READY}"),
            Event::Incoming(Incoming::Publish(message)) => {
                assert_eq!(message.payload.len(), PAYLOAD_BYTES);
                left -= 1;
            }
            _ => {}
        }
    }
    leave(client, events).await
}

async fn leave(client: AsyncClient, mut events: EventLoop) -> Outcome {
    client.disconnect().await?;
    while !matches!(events.poll().await?, Event::Outgoing(rumqttc::Outgoing::Disconnect)) {}
    Ok(())
}

fn connect(job: Job, name: &str) -> (AsyncClient, EventLoop) {
    let mut options = MqttOptions::new(name, "127.0.0.1", job.port);
    options.set_keep_alive(Duration::from_secs(60)).set_clean_start(true);
    options.set_outgoing_inflight_upper_limit(WINDOW).set_receive_maximum(Some(WINDOW));
    AsyncClient::new(options, REQUESTS_MAX)
}

fn qos(job: Job) -> QoS {
    if job.qos == 0 { QoS::AtMostOnce } else { QoS::AtLeastOnce }
}
