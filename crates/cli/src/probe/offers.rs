//! What there is and what there is not.

use std::time::Duration;

use client::{
    Client, Disconnect, DisconnectReason, Message, MessageProperties, Outgoing, Qos, RetainHandling, Server,
    SubscriptionOptions, TopicFilter, Version, Will,
};

use super::finding::{Finding, Value, Verdict};
use super::{Failure, Probe, finding, leave, message, name, said};

/// Which versions it speaks; without any there is nothing to be tried.
pub(crate) async fn versions(probe: &mut Probe) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    let mut newest = Err("no version was tried".to_owned());
    for version in Version::ALL {
        let outcome = probe.connect_with(probe.options(version, "version")).await;
        if outcome.is_ok() || newest.is_err() {
            newest = outcome.as_ref().map(|_| version).map_err(Clone::clone);
        }
        let found = match outcome {
            Ok(client) => {
                leave(client).await;
                Ok(())
            }
            Err(why) => Err(why),
        };
        findings.push(finding(&format!("MQTT {version}"), found, None));
    }
    probe.version = newest?;
    Ok(findings)
}

/// What nobody can try without being a nuisance.
pub(crate) fn said_of(server: &Server) -> Vec<Finding> {
    if !server.version.is_5() {
        return Vec::new();
    }
    let number = |number: u64, unit| Value::Number(number, unit);
    let or = |value: Option<Value>, none: &str| value.unwrap_or_else(|| Value::Text(none.to_owned()));
    let packet_bytes = server.packet_bytes_max.map(|bytes| number(bytes.into(), "bytes"));
    let keep_alive = server.keep_alive_secs.map(|secs| number(secs.into(), "s"));
    vec![
        Finding::said("Maximum Packet Size", or(packet_bytes, "as MQTT has it")),
        Finding::said("Receive Maximum", number(server.receive_max.into(), "messages")),
        Finding::said("Topic Alias Maximum", number(server.topic_alias_max.into(), "topics")),
        Finding::said("keep alive", or(keep_alive, "as asked for")),
    ]
}

/// Everything that MQTT leaves to a server, and some of what it does not.
pub(crate) async fn all(probe: &Probe) -> Vec<Finding> {
    let mut findings = Vec::new();
    match probe.connect("offers").await {
        Ok(client) => {
            let server = client.server().clone();
            for qos in Qos::ALL {
                let is_said = said(&server, qos <= server.qos_max);
                findings.push(finding(
                    &format!("QoS {}", qos.level()),
                    round_trip(probe, &client, qos).await,
                    is_said,
                ));
            }
            let available = server.wildcard_subscriptions_available;
            findings.push(finding("wildcards", wildcards(probe, &client).await, said(&server, available)));
            let available = server.shared_subscriptions_available;
            findings.push(finding(
                "shared subscriptions",
                shared(probe, &client).await,
                said(&server, available),
            ));
            let available = server.retain_available;
            findings.push(finding(
                "retained messages",
                retained(probe, &client).await,
                said(&server, available),
            ));
            if probe.version.is_5() {
                let available = server.subscription_identifiers_available;
                let found = identifiers(probe, &client).await;
                findings.push(finding("subscription identifiers", found, said(&server, available)));
                // These are not for a server to choose.
                findings.push(finding(
                    "No Local, Retain As Published",
                    options(probe, &client).await,
                    Some(true),
                ));
                findings.push(finding("message expiry", expiry(probe, &client).await, Some(true)));
                findings.push(finding("will", will(probe, &client).await, Some(true)));
            }
            leave(client).await;
        }
        Err(why) => findings.push(Finding::measured("a connection", Value::No(why), Verdict::Wrong)),
    }
    findings
}

async fn round_trip(probe: &Probe, client: &Client, qos: Qos) -> Result<(), Failure> {
    let topic = probe.topic(&format!("qos/{}", qos.level()));
    let mut messages = probe.subscribe(client, &topic, qos).await?;
    probe.publish(client, &message(&topic, b"round trip", qos)?).await?;
    let heard = probe.hear(&mut messages).await?;
    expect(&heard, b"round trip")?;
    if heard.qos() == qos { Ok(()) } else { Err(format!("it comes with QoS {}", heard.qos().level())) }
}

async fn wildcards(probe: &Probe, client: &Client) -> Result<(), Failure> {
    for (filter, topic) in [("+/leaf", "any/leaf"), ("tree/#", "tree/branch/leaf")] {
        let mut messages = probe.subscribe(client, &probe.topic(filter), Qos::AtLeastOnce).await?;
        probe.publish(client, &message(&probe.topic(topic), b"green", Qos::AtLeastOnce)?).await?;
        expect(&probe.hear(&mut messages).await?, b"green")?;
    }
    Ok(())
}

/// Two members get each message once.
async fn shared(probe: &Probe, client: &Client) -> Result<(), Failure> {
    const COUNT: u8 = 20;
    let other = probe.connect("member").await?;
    let topic = probe.topic("shared");
    let filter = format!("$share/{}/{topic}", probe.prefix);
    let mut ours = probe.subscribe(client, &filter, Qos::AtLeastOnce).await?;
    let mut theirs = probe.subscribe(&other, &filter, Qos::AtLeastOnce).await?;
    for number in 0..COUNT {
        probe.publish(client, &message(&topic, &[number], Qos::AtLeastOnce)?).await?;
    }
    let mut numbers = Vec::new();
    while numbers.len() < usize::from(COUNT) {
        let heard = tokio::select! {
            heard = probe.hear(&mut ours) => heard?,
            heard = probe.hear(&mut theirs) => heard?,
        };
        numbers.extend_from_slice(heard.payload());
    }
    leave(other).await;
    numbers.sort_unstable();
    numbers.dedup();
    if numbers.len() == usize::from(COUNT) {
        Ok(())
    } else {
        Err("several members get the same message".to_owned())
    }
}

async fn retained(probe: &Probe, client: &Client) -> Result<(), Failure> {
    let topic = probe.topic("retained");
    let set = Outgoing { retain: true, ..message(&topic, b"kept", Qos::AtLeastOnce)? };
    probe.publish(client, &set).await?;
    let mut messages = probe.subscribe(client, &topic, Qos::AtLeastOnce).await?;
    let heard = probe.hear(&mut messages).await?;
    expect(&heard, b"kept")?;
    probe.publish(client, &Outgoing { payload: b"", ..set }).await?;
    if heard.retain() { Ok(()) } else { Err("it comes without RETAIN".to_owned()) }
}

async fn identifiers(probe: &Probe, client: &Client) -> Result<(), Failure> {
    let topic = probe.topic("identified");
    let mut messages = probe.subscribe(client, &topic, Qos::AtLeastOnce).await?;
    probe.publish(client, &message(&topic, b"", Qos::AtLeastOnce)?).await?;
    let heard = probe.hear(&mut messages).await?;
    if heard.subscription_identifiers().is_empty() { Err("messages come without".to_owned()) } else { Ok(()) }
}

async fn options(probe: &Probe, client: &Client) -> Result<(), Failure> {
    let other = probe.connect("other").await?;
    let topic = probe.topic("options");
    let options = SubscriptionOptions {
        qos: Qos::AtLeastOnce,
        no_local: true,
        retain_as_published: true,
        retain_handling: RetainHandling::DoNotSend,
    };
    let filter = TopicFilter::try_from(topic.as_str()).map_err(|error| error.to_string())?;
    let mut messages = client.subscribe_with(filter, options).await.map_err(|error| error.to_string())?;
    probe.publish(client, &message(&topic, b"own", Qos::AtLeastOnce)?).await?;
    let theirs = Outgoing { retain: true, ..message(&topic, b"other", Qos::AtLeastOnce)? };
    probe.publish(&other, &theirs).await?;
    let heard = probe.hear(&mut messages).await?;
    probe.publish(&other, &Outgoing { payload: b"", ..theirs }).await?;
    leave(other).await;
    expect(&heard, b"other")?;
    if heard.retain() { Ok(()) } else { Err("Retain As Published makes no difference".to_owned()) }
}

/// Of two retained messages the one whose time is over is gone.
async fn expiry(probe: &Probe, client: &Client) -> Result<(), Failure> {
    let (short, long) = (probe.topic("expiry/short"), probe.topic("expiry/long"));
    let expiring =
        |secs| MessageProperties { message_expiry_interval_secs: Some(secs), ..MessageProperties::EMPTY };
    for (topic, secs) in [(&short, 1), (&long, 60)] {
        let properties = expiring(secs);
        let kept = Outgoing { retain: true, properties, ..message(topic, b"kept", Qos::AtLeastOnce)? };
        probe.publish(client, &kept).await?;
    }
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    let mut messages = probe.subscribe(client, &probe.topic("expiry/+"), Qos::AtLeastOnce).await?;
    let heard = probe.hear(&mut messages).await?;
    for topic in [&short, &long] {
        probe.publish(client, &Outgoing { retain: true, ..message(topic, b"", Qos::AtLeastOnce)? }).await?;
    }
    if heard.topic() != name(&long)? {
        return Err("what has expired is still there".to_owned());
    }
    match heard.properties().message_expiry_interval_secs {
        Some(..60) => Ok(()),
        left => Err(format!("of 60 s, {left:?} are left after 2")),
    }
}

/// DISCONNECT with Will Message.
async fn will(probe: &Probe, client: &Client) -> Result<(), Failure> {
    let topic = probe.topic("will");
    let mut messages = probe.subscribe(client, &topic, Qos::AtLeastOnce).await?;
    let will = Will {
        topic: name(&topic)?,
        payload: client::Binary::new(b"gone").map_err(|error| error.to_string())?,
        qos: Qos::AtLeastOnce,
        retain: false,
        delay_interval_secs: None,
        properties: MessageProperties::EMPTY,
    };
    let mortal = probe.connect_with(probe.options(probe.version, "mortal").will(&will)).await?;
    let goodbye = Disconnect::new(DisconnectReason::DisconnectWithWillMessage);
    mortal.disconnect_with(&goodbye).await.map_err(|error| error.to_string())?;
    expect(&probe.hear(&mut messages).await?, b"gone")
}

fn expect(heard: &Message, payload: &[u8]) -> Result<(), Failure> {
    if heard.payload() == payload { Ok(()) } else { Err("another message comes".to_owned()) }
}
