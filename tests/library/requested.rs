//! Request and response.

use std::time::Duration;

use client::{Client, Fault, MessageProperties, Qos, RequestError, RequesterError, Version, filter, topic};
use pondhawk_tests::DEADLINE;

use crate::place::{EVERY_QOS, KEPT, Place, Server, at_each, hear};

/// Answers this number of requests with the same text in capitals.
async fn answer(place: &Place<'_>, toad: &Client, count: usize) {
    let mut questions = toad.subscribe(filter!("ask"), place.qos).await.expect("granted");
    for _ in 0..count {
        let question = hear(&mut questions).await;
        let properties = question.properties();
        let topic = properties.response_topic.expect("a question has one").0;
        let properties =
            MessageProperties { correlation_data: properties.correlation_data, ..MessageProperties::EMPTY };
        let payload = question.payload().to_ascii_uppercase();
        let response = place.message(topic, &payload).properties(properties);
        let acknowledgement = toad.publish(&response).await.expect("it is queued");
        acknowledgement.await.expect("it is taken");
    }
}

#[tokio::test]
async fn each_question_has_its_answer() {
    at_each(&[Version::V5], &EVERY_QOS, async |place: Place<'_>| {
        let (frog, toad) = (place.client("frog").await, place.client("toad").await);
        let requester = frog.requester(topic!("answers/frog")).await.expect("granted");
        // Whoever answers has subscribed before the first question is published: the server does one after the other.
        let asked = async {
            for question in ["how deep?", "how wide?", "how long?"] {
                let response = loop {
                    let asked = place.message(topic!("ask"), question.as_bytes());
                    match requester.request(&asked, Duration::from_millis(500)).await {
                        Ok(response) => break response,
                        // Nobody is there yet.
                        Err(RequestError::Nobody | RequestError::TimedOut) => {}
                        Err(error) => panic!("{error}"),
                    }
                };
                assert_eq!(response.payload(), question.to_ascii_uppercase().as_bytes());
            }
        };
        tokio::select! {
            () = asked => {}
            () = answer(&place, &toad, usize::MAX) => {}
        }
        frog.disconnect().await.expect("everything is acknowledged");
        toad.disconnect().await.expect("everything is acknowledged");
    })
    .await;
}

#[tokio::test]
async fn a_question_to_nobody_is_known_to_be_one() {
    at_each(&[Version::V5], &KEPT, async |place: Place<'_>| {
        // Mosquitto 2.0.11 says so in PUBACK, and not in PUBREC.
        if matches!(place.server, Server::Mosquitto(_)) && place.qos == Qos::ExactlyOnce {
            return;
        }
        let frog = place.client("frog").await;
        let requester = frog.requester(topic!("answers/frog")).await.expect("granted");
        let error = requester.request(&place.message(topic!("ask"), b"anybody?"), DEADLINE).await;
        assert!(matches!(error, Err(RequestError::Nobody)), "{error:?}");
        frog.disconnect().await.expect("everything is acknowledged");
    })
    .await;
}

#[tokio::test]
async fn before_mqtt_5_there_are_no_questions() {
    at_each(&[Version::V3_1, Version::V3_1_1], &KEPT[..1], async |place: Place<'_>| {
        let frog = place.client("frog").await;
        let error = frog.requester(topic!("answers/frog")).await.expect_err("there is no Response Topic");
        assert!(matches!(error, RequesterError::Version));
        assert_eq!(error.fault(), Fault::Application);
        frog.disconnect().await.expect("nothing is under way");
    })
    .await;
}
