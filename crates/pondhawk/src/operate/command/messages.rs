//! Subcommands about messages and topics.

use clap::Args;
use clap::Subcommand;
use serde_json::{Value, json};

use super::{Work, delete, list, post};
use crate::operate::PIECE;
use crate::operate::client::encode;
use crate::operate::table;
use crate::operate::trace::TraceArguments;

/// Subcommands about messages and topics.
#[derive(Debug, Subcommand)]
pub(in crate::operate) enum MessagesCommand {
    /// List topics with retained messages, a level at a time
    Topics {
        /// The levels above, such as `pond/north` [default: the first levels of all topics]
        under: Option<String>,
        /// The most topics to list
        #[arg(long, default_value_t = PIECE)]
        limit: usize,
    },
    /// List the clients and groups that a message to a topic is for, with the filters that match
    Subscribers {
        /// Topic name, without wildcards
        topic: String,
        /// The most subscriptions to list
        #[arg(long, default_value_t = PIECE)]
        limit: usize,
    },
    /// List retained messages that match a filter
    Retained {
        /// Topic filter of the messages
        #[arg(default_value = "#")]
        filter: String,
        /// The most messages to list
        #[arg(long, default_value_t = PIECE)]
        limit: usize,
    },
    /// Clear the retained message of a topic, or of all topics that match a filter
    Clear {
        /// Topic name, without wildcards
        #[arg(required_unless_present = "filter", conflicts_with = "filter")]
        topic: Option<String>,
        /// Topic filter: clear the messages of all topics that match
        #[arg(long)]
        filter: Option<String>,
    },
    /// Publish a message of the broker itself
    Publish(PublishArguments),
    /// Show what crosses the connections of some clients, or the messages of some topics, as it happens
    Trace(TraceArguments),
}

/// The message of `ctl publish`.
#[derive(Debug, Args)]
pub(in crate::operate) struct PublishArguments {
    /// Topic name, without wildcards
    topic: String,
    /// Payload of the message, as text
    payload: String,
    /// QoS of the message
    #[arg(short, long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=2))]
    qos: u8,
    /// Make it the retained message of the topic
    #[arg(short, long)]
    retain: bool,
    /// Time until the message expires [default: never]
    #[arg(long, value_name = "N")]
    expiry_seconds: Option<u32>,
    /// Content Type of the payload
    #[arg(long, value_name = "TEXT")]
    content_type: Option<String>,
    /// Response Topic for the receivers
    #[arg(long, value_name = "TOPIC")]
    response_topic: Option<String>,
    /// User Property; can be repeated
    #[arg(long = "user-property", num_args = 2, value_names = ["NAME", "VALUE"])]
    user_properties: Vec<String>,
}

impl PublishArguments {
    /// The body of the request.
    fn body(&self) -> Value {
        json!({
            "topic": self.topic,
            "payload": self.payload,
            "qos": self.qos,
            "retain": self.retain,
            "expiry_seconds": self.expiry_seconds,
            "content_type": self.content_type,
            "response_topic": self.response_topic,
            "user_properties": self.user_properties.chunks(2).collect::<Vec<_>>(),
        })
    }
}

impl MessagesCommand {
    pub(super) fn work(&self) -> Work<'_> {
        match self {
            Self::Topics { under, limit } => {
                let under = under.as_ref().map(|under| format!("under={}", encode(under)));
                let path = format!("/api/v1/topics?{}", under.unwrap_or_default());
                list(path, "topics", table::TOPICS, *limit)
            }
            Self::Subscribers { topic, limit } => {
                let path = format!("/api/v1/subscriptions?topic={}", encode(topic));
                list(path, "subscriptions", table::SUBSCRIBERS, *limit)
            }
            Self::Retained { filter, limit } => {
                let path = format!("/api/v1/retained?filter={}", encode(filter));
                list(path, "retained", table::RETAINED, *limit)
            }
            Self::Clear { topic: Some(topic), .. } => delete(format!("/api/v1/retained/{}", encode(topic))),
            Self::Clear { topic: None, filter } => Work::Clear(filter.as_deref().unwrap_or_default()),
            Self::Publish(arguments) => post("/api/v1/publish", Some(arguments.body())),
            Self::Trace(arguments) => Work::Trace(arguments),
        }
    }
}
