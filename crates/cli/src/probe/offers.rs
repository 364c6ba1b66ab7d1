//! Checks of the features that a broker offers.

use std::time::Duration;

use client::{
    Client, Disconnect, DisconnectReason, Message, MessageProperties, Qos, RetainHandling, Server,
    SubscriptionOptions, TopicFilter, Version, Will,
};

use super::finding::{Finding, Unit, Value};
use super::{Add, Failure, Probe, finding, leave, message, name, needs, needs_qos, said, surest};

/// Checks which versions the broker supports. Without any, nothing else can be tested.
pub(crate) async fn versions(probe: &mut Probe) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    let mut newest = Err("no version was tried".into());
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

/// Claims of the broker that are not tested, because the tests would disturb other clients.
pub(crate) fn said_of(server: &Server) -> Vec<Finding> {
    if !server.version.is_5() {
        return Vec::new();
    }
    let or = |value: Option<Value>, none| value.unwrap_or(Value::Unbounded(none));
    let packet_bytes = server.packet_bytes_max.map(|bytes| Value::Number(bytes.into(), Unit::Bytes));
    let keep_alive = server.keep_alive_secs.map(|secs| Value::Number(secs.into(), Unit::Seconds));
    vec![
        Finding::said("Maximum Packet Size", or(packet_bytes, "as MQTT has it")),
        Finding::said("Receive Maximum", Value::Number(server.receive_max.into(), Unit::Messages)),
        Finding::said("Topic Alias Maximum", Value::Number(server.topic_alias_max.into(), Unit::Topics)),
        Finding::said("keep alive", or(keep_alive, "as asked for")),
    ]
}

/// Checks all features that are optional for a server, and some that are required.
pub(crate) async fn all(probe: &Probe, add: Add<'_>) {
    let client = match probe.check("a connection", probe.connect("offers")).await {
        Ok(client) => client,
        Err(why) => return add(vec![Finding::failed("a connection", why)]),
    };
    let server = client.server().clone();
    for qos in Qos::ALL {
        let what = format!("QoS {}", qos.level());
        let found = probe.check(&what, round_trip(probe, &client, qos)).await;
        add(vec![finding(&what, found, said(&server, qos <= server.qos_max))]);
    }
    let available = server.wildcard_subscriptions_available;
    let found = probe.check("wildcards", wildcards(probe, &client)).await;
    add(vec![finding("wildcards", found, said(&server, available))]);
    let available = server.shared_subscriptions_available;
    let found = probe.check("shared subscriptions", shared(probe, &client)).await;
    add(vec![finding("shared subscriptions", found, said(&server, available))]);
    let found = probe.check("retained messages", retained(probe, &client)).await;
    add(vec![finding("retained messages", found, said(&server, server.retain_available))]);
    if probe.version.is_5() {
        let available = server.subscription_identifiers_available;
        let found = probe.check("subscription identifiers", identifiers(probe, &client)).await;
        add(vec![finding("subscription identifiers", found, said(&server, available))]);
        // These features are required.
        let what = "No Local, Retain As Published";
        add(vec![finding(what, probe.check(what, options(probe, &client)).await, Some(true))]);
        let what = "message expiry";
        add(vec![finding(what, probe.check(what, expiry(probe, &client)).await, Some(true))]);
        add(vec![finding("will", probe.check("will", will(probe, &client)).await, Some(true))]);
    }
    leave(client).await;
}

async fn round_trip(probe: &Probe, client: &Client, qos: Qos) -> Result<(), Failure> {
    needs_qos(client, qos)?;
    let topic = probe.topic(&format!("qos/{}", qos.level()));
    let mut messages = probe.subscribe(client, &topic, qos).await?;
    probe.publish(client, &message(&topic, b"round trip", qos)?).await?;
    let heard = probe.hear(&mut messages).await?;
    expect(&heard, b"round trip")?;
    if heard.qos() == qos { Ok(()) } else { Err(format!("it comes with QoS {}", heard.qos().level()).into()) }
}

async fn wildcards(probe: &Probe, client: &Client) -> Result<(), Failure> {
    needs(client.server().wildcard_subscriptions_available, "wildcards")?;
    let qos = surest(client);
    for (filter, topic) in [("+/leaf", "any/leaf"), ("tree/#", "tree/branch/leaf")] {
        let mut messages = probe.subscribe(client, &probe.topic(filter), qos).await?;
        probe.publish(client, &message(&probe.topic(topic), b"green", qos)?).await?;
        expect(&probe.hear(&mut messages).await?, b"green")?;
    }
    Ok(())
}

/// Checks that two members of a group receive each message once.
async fn shared(probe: &Probe, client: &Client) -> Result<(), Failure> {
    const COUNT: u8 = 20;
    needs(client.server().shared_subscriptions_available, "shared subscriptions")?;
    let qos = surest(client);
    let other = probe.connect("member").await?;
    let topic = probe.topic("shared");
    let filter = format!("$share/{}/{topic}", probe.prefix);
    let mut ours = probe.subscribe(client, &filter, qos).await?;
    let mut theirs = probe.subscribe(&other, &filter, qos).await?;
    for number in 0..COUNT {
        probe.publish(client, &message(&topic, &[number], qos)?).await?;
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
        Err("several members get the same message".into())
    }
}

async fn retained(probe: &Probe, client: &Client) -> Result<(), Failure> {
    needs_retain(client)?;
    let topic = probe.topic("retained");
    let found = comes_retained(probe, client, &topic).await;
    probe.take_away(&[&topic]).await;
    found
}

fn needs_retain(client: &Client) -> Result<(), Failure> {
    needs(client.server().retain_available, "retained messages")
}

async fn comes_retained(probe: &Probe, client: &Client, topic: &str) -> Result<(), Failure> {
    let qos = surest(client);
    probe.publish(client, &message(topic, b"kept", qos)?.retain(true)).await?;
    let mut messages = probe.subscribe(client, topic, qos).await?;
    let heard = probe.hear(&mut messages).await?;
    expect(&heard, b"kept")?;
    if heard.retain() { Ok(()) } else { Err("it comes without RETAIN".into()) }
}

async fn identifiers(probe: &Probe, client: &Client) -> Result<(), Failure> {
    needs(client.server().subscription_identifiers_available, "subscription identifiers")?;
    let (topic, qos) = (probe.topic("identified"), surest(client));
    let mut messages = probe.subscribe(client, &topic, qos).await?;
    probe.publish(client, &message(&topic, b"", qos)?).await?;
    let heard = probe.hear(&mut messages).await?;
    if heard.subscription_identifiers().is_empty() { Err("messages come without".into()) } else { Ok(()) }
}

async fn options(probe: &Probe, client: &Client) -> Result<(), Failure> {
    needs_retain(client)?;
    let topic = probe.topic("options");
    let found = obeys_options(probe, client, &topic).await;
    probe.take_away(&[&topic]).await;
    found
}

async fn obeys_options(probe: &Probe, client: &Client, topic: &str) -> Result<(), Failure> {
    let (other, qos) = (probe.connect("other").await?, surest(client));
    let options = SubscriptionOptions {
        qos,
        no_local: true,
        retain_as_published: true,
        retain_handling: RetainHandling::DoNotSend,
    };
    let filter = TopicFilter::try_from(topic).map_err(|error| error.to_string())?;
    let mut messages = client.subscribe_with(filter, options).await.map_err(|error| error.to_string())?;
    probe.publish(client, &message(topic, b"own", qos)?).await?;
    let theirs = message(topic, b"other", qos)?.retain(true);
    probe.publish(&other, &theirs).await?;
    let heard = probe.hear(&mut messages).await?;
    leave(other).await;
    expect(&heard, b"other")?;
    if heard.retain() { Ok(()) } else { Err("Retain As Published makes no difference".into()) }
}

/// Checks that a retained message disappears after its expiry, and that another one stays.
async fn expiry(probe: &Probe, client: &Client) -> Result<(), Failure> {
    needs_retain(client)?;
    needs(client.server().wildcard_subscriptions_available, "wildcards")?;
    let (short, long) = (probe.topic("expiry/short"), probe.topic("expiry/long"));
    let found = expires(probe, client, &short, &long).await;
    probe.take_away(&[&short, &long]).await;
    found
}

async fn expires(probe: &Probe, client: &Client, short: &str, long: &str) -> Result<(), Failure> {
    let qos = surest(client);
    let expiring =
        |secs| MessageProperties { message_expiry_interval_secs: Some(secs), ..MessageProperties::EMPTY };
    for (topic, secs) in [(short, 1), (long, 60)] {
        let properties = expiring(secs);
        let kept = message(topic, b"kept", qos)?.retain(true).properties(properties);
        probe.publish(client, &kept).await?;
    }
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    let mut messages = probe.subscribe(client, &probe.topic("expiry/+"), qos).await?;
    let heard = probe.hear(&mut messages).await?;
    if heard.topic() != name(long)? {
        return Err("what has expired is still there".into());
    }
    match heard.properties().message_expiry_interval_secs {
        Some(..60) => Ok(()),
        left => Err(format!("of 60 s, {left:?} are left after 2").into()),
    }
}

/// Checks the will, by DISCONNECT with Will Message.
async fn will(probe: &Probe, client: &Client) -> Result<(), Failure> {
    let (topic, qos) = (probe.topic("will"), surest(client));
    let mut messages = probe.subscribe(client, &topic, qos).await?;
    let will = Will {
        topic: name(&topic)?,
        payload: client::Binary::new(b"gone").map_err(|error| error.to_string())?,
        qos,
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
    if heard.payload() == payload { Ok(()) } else { Err("another message comes".into()) }
}
