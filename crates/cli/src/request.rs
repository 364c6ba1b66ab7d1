//! `pondhawk rr`: publishes a request, and prints its answer.

use std::pin::pin;

use client::{
    Acknowledgement, Binary, Client, Inbox, Message, Outgoing, ReasonCode, ResponseTopic,
    SubscribeProperties, SubscriptionOptions, TopicFilter, TopicName,
};

use crate::connection;
use crate::end::until;
use crate::failure::Failure;
use crate::output::Printer;
use crate::properties::Command;
use crate::publish;
use crate::settings::Settings;
use crate::subscribe::{failed, next, unprinted};

/// Subscribes to the response topic, publishes the request, and prints the answer.
pub(crate) async fn run(settings: &Settings) -> Result<(), Failure> {
    if settings.properties.text(Command::Publish, wire::Property::ResponseTopic).is_some() {
        return Err(Failure::new("Error in PUBLISH properties: Duplicate response topic."));
    }
    let request = publish::message(settings)?.unwrap_or_default();
    let mut ended = pin!(until(settings.incoming.timeout));
    let client = tokio::select! {
        client = connection::connect(settings) => client?,
        end = &mut ended => return end.outcome(),
    };
    let mut inbox = client.inbox().await.map_err(|error| failed(&error))?;
    let (outcome, end) = tokio::select! {
        outcome = ask(&client, &mut inbox, &request, settings) => (outcome, None),
        end = &mut ended => (end.outcome(), Some(end)),
    };
    drop(inbox);
    connection::disconnect(&client, settings, end).await;
    outcome
}

async fn ask(client: &Client, inbox: &mut Inbox, request: &[u8], settings: &Settings) -> Result<(), Failure> {
    let topic = settings.response_topic.as_deref().unwrap_or_default();
    let bad = |_| Failure::new(format!("Error: Invalid response topic '{topic}'."));
    let response_topic = TopicName::new(topic).map_err(bad)?;
    let filter = TopicFilter::new(topic).map_err(|error| Failure::new(format!("Error: {error}")))?;
    let options = SubscriptionOptions {
        qos: settings.qos,
        retain_as_published: settings.incoming.retain_as_published && settings.session.version.is_5(),
        ..SubscriptionOptions::default()
    };
    let pairs = settings.properties.pairs(Command::Subscribe);
    let properties: SubscribeProperties<'_> = settings.properties.subscribe(&pairs);
    let reasons = client.subscribe_many(&[(filter, options)], &properties).await;
    let reasons = reasons.map_err(|error| failed(&error))?;
    if let Some(reason) = reasons.iter().find(|reason| reason.is_error()) {
        return Err(Failure::new(format!(
            "Error: the broker does not let this program hear the answer: {reason}"
        )));
    }

    let pairs = settings.properties.pairs(Command::Publish);
    let mut outgoing = publish::outgoing(settings, &pairs)?.payload(request);
    outgoing.properties.response_topic = Some(ResponseTopic(response_topic));
    let acknowledgement = client.publish(&outgoing).await.map_err(|error| publish::failed(&error))?;
    tokio::select! {
        biased;
        answered = print_answer(client, inbox, &outgoing, settings) => answered,
        failure = failed_request(acknowledgement) => Err(failure),
    }
}

/// Waits for the failure of a request. After success it waits for ever, because the answer may arrive before or
/// after the acknowledgement.
async fn failed_request(acknowledgement: Acknowledgement) -> Failure {
    match acknowledgement.await {
        Ok(ReasonCode::NoMatchingSubscribers) => {
            Failure::new("Error: Nobody has subscribed to the topic of the request.")
        }
        Ok(_) => std::future::pending().await,
        Err(error) => publish::failed(&error),
    }
}

/// Whether a message is the answer to this request. Others may arrive first, such as those of a session that was kept.
///
/// A message without Correlation Data counts as the answer, because not every program returns the data.
fn is_answer(message: &Message, request: &Outgoing<'_>) -> bool {
    let is_expected = request.properties.response_topic.is_some_and(|topic| topic.0 == message.topic());
    let ours = request.properties.correlation_data.map(Binary::as_bytes);
    let theirs = message.properties().correlation_data.map(Binary::as_bytes);
    is_expected && ours.zip(theirs).is_none_or(|(ours, theirs)| ours == theirs)
}

async fn print_answer(
    client: &Client,
    inbox: &mut Inbox,
    request: &Outgoing<'_>,
    settings: &Settings,
) -> Result<(), Failure> {
    let mut printer = Printer::new(settings);
    loop {
        let Some(answer) = next(inbox, &mut printer).await.map_err(|error| unprinted(&error))? else {
            let lost = || Failure::new("Error: The connection was lost.");
            return Err(client.ended().map_or_else(lost, connection::lost));
        };
        if !is_answer(&answer, request) || settings.incoming.without_retained && answer.retain() {
            continue;
        }
        printer.print(&answer);
        return printer.finish().await.map_err(|error| unprinted(&error));
    }
}
