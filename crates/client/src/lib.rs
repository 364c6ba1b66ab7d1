//! An asynchronous MQTT client, for 3.1, 3.1.1 and 5.0, on tokio.
//!
//! ```no_run
//! use pondhawk_client::{Client, Options};
//! use pondhawk_client::{Outgoing, Qos, Version, filter, topic};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let options = Options::new(Version::V5).client_id("sensor-7");
//! let client = Client::connect_tcp("localhost:1883", options).await?;
//!
//! let mut orders = client.subscribe(filter!("orders/#"), Qos::AtLeastOnce).await?;
//!
//! let reading = Outgoing::new(topic!("t"), b"21.5").qos(Qos::AtLeastOnce);
//! let acknowledgement = client.publish(&reading).await?; // It is queued.
//! acknowledgement.await?; // The server has it.
//!
//! while let Some(order) = orders.next().await {
//!     println!("{}: {:?}", order.topic(), order.payload());
//! }
//! client.disconnect().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Ways to a server
//! [`Client::connect_tcp`] and [`Client::connect_unix`] need no features. An [`Endpoint`], for
//! [`Client::connect_to`], adds layers by features of this crate: `tls` (`TlsOptions`), `websocket` (`WebSocket`)
//! and `socks5` (`Proxy`). The layers can be combined. [`Client::connect_by`] and [`Client::connect`] accept any
//! stream, which lets tests run without sockets.
//!
//! # How the crate works
//!
//! ```text
//!  Client ─┐  commands, bounded        ┌──────────────┐
//!  Client ─┼──────────────────────────►│    driver    │  bytes   any AsyncRead
//!  Client ─┘◄── one answer each ───────│              │◄────────►+ AsyncWrite
//!                                      │ session::    │
//!  Messages ◄── messages, bounded ─────│ client::     │
//!  Messages ◄───────────────────────── │ Client       │
//!     └──── acknowledgements ─────────►└──────────────┘
//! ```
//!
//! A [`Client`] is a handle. Clones are cheap and belong to one session. A task, the driver, owns the connection
//! and the protocol's state machine ([`session::client`]). Nothing else changes the connection or the state machine. An
//! operation that is cancelled half-way is therefore never half-done: its command is in the queue completely, or not at
//! all.
//!
//! The driver ends after [`Client::disconnect`], after the last handle is dropped, or after a fault that ends the client.
//! With [`Options::reconnect`], most faults only end the connection. When the last handle is dropped, the driver still sends
//! everything in the queue, and then DISCONNECT. A fault that ends the client becomes the result of every pending operation.
//! With [`Options::wait_for_server`], the client also waits for the first connection, as it does for later ones.
//!
//! # Back pressure
//! All queues and buffers of the client are bounded.
//! - [`Client::publish`] waits while the queue of commands is full. The driver accepts no command while too many
//!   bytes wait for the socket, or while too many messages wait for the server's Receive Maximum.
//! - Each stream stores at most [`Options::messages_max`] messages with at most [`Options::message_bytes_max`] bytes.
//!   Further messages for a full stream wait behind the stream, and other streams continue. The messages that wait
//!   behind all streams together have two bounds: Receive Maximum ([`Options::receive_max`]) messages, and as many
//!   bytes as one stream stores. At either bound, the driver stops reading. No stream then receives anything until a
//!   full stream has room. Everything else continues, including PINGREQ. A connection delivers its messages in one
//!   order: a client with bounded memory cannot read past messages that the application does not take. There are two
//!   ways around this limit: [`Options::drop_when_full`], for QoS 0, or a separate connection for a subscription that
//!   may be slow.
//! - An answer from the server arrives behind the messages that the server sent before it. A task may therefore
//!   block itself: for example, by publishing inside the loop over its own stream, and waiting for the
//!   [`Acknowledgement`] there. If an answer is awaited, and the application takes no message for
//!   [`Options::request_timeout`], the client reads past the messages. Messages of QoS 0 without room are dropped, and
//!   [counted](Messages::dropped). Messages of QoS 1 and 2 wait as before, up to twice Receive Maximum. If the answer
//!   still does not arrive, the connection ends with [`Ended::Unread`]. Waiting for acknowledgements in another task,
//!   or checking them later, avoids this case.
//! - Messages of QoS 1 are acknowledged when they are taken out of a stream. From MQTT 5 on, Receive Maximum
//!   therefore limits their number. Messages of QoS 2 are acknowledged when they are put into a stream, because they
//!   must not arrive twice.
//! - While 256 KiB of answers to the server's packets wait for the socket, the driver stops reading from the server.
//! - A packet other than PUBLISH has at most 1 MiB. [`Options::packet_bytes_max`] bounds PUBLISH.
//! - Acknowledgements leave in the order of the messages. A message that nobody takes, because its stream was dropped
//!   or never existed, is accepted after 10 s. If such messages together have more bytes than one stream stores, the
//!   oldest are accepted earlier, and [counted](Client::unclaimed_dropped). If the connection ends before that, the
//!   message arrives again. A message that was taken out, and that the application must acknowledge
//!   ([`Acknowledge::ByApplication`]), waits without a time limit. If the application drops such a message instead, the
//!   client [counts](Client::unacknowledged_dropped) it.
//!
//! # One stream, or one for each filter
//! [`Client::subscribe`] returns a stream for one filter. [`Client::subscribe_many`] subscribes to several filters
//! with one packet, and their messages arrive in the [`Inbox`]. The inbox receives each message once, in the order
//! of the server. Messages from a session that an earlier program left arrive there too.
//!
//! # Pipelines
//! A [`Pipeline`](pipeline::Pipeline) handles the messages of a stream in stages, each with a bounded number of workers.
//! Back pressure, and the acknowledgement of a message, extend over all stages.
//!
//! # Reconnecting
//! With [`Options::reconnect`], [`Client::connect_tcp`], [`Client::connect_unix`], [`Client::connect_to`] and
//! [`Client::connect_by`] replace a lost connection. Between connections, QoS 0 messages and requests are refused.
//! Messages of QoS 1 and 2 wait, up to a bound.
//!
//! The server may still have the session ([`Options::session_expiry_secs`]; Clean Session 0 before MQTT 5).
//! Messages of QoS 1 and 2 that were in flight are then sent again, and subscriptions continue. If the session is gone,
//! those messages fail with [`SessionEnded`](session::client::PublishError::SessionEnded), and the client subscribes
//! again. The [`Messages`] continue, with a gap.
//!
//! The delay between two attempts doubles up to a maximum. A connection that lasts at least that maximum resets the
//! delay. The client gives up after DISCONNECT with Session taken over, after a permanent refusal, and after
//! [`Ended::NoAuthenticator`], [`Ended::NotAuthenticated`], [`Ended::AuthenticationUnsent`] and [`Ended::Unread`].
//! These refusals count as temporary: Server unavailable (in MQTT 3 too), Server busy, Quota exceeded, Connection
//! rate exceeded and Use another server. The two errors without a specific meaning, Unspecified and Implementation
//! specific, count as temporary too.
//!
//! # Sessions of earlier programs
//! Without [Clean Start](Options::clean_start), a first connection resumes the session that an earlier program
//! left. The client knows nothing about that session except that it exists. QoS 2 messages that the earlier program
//! published and did not release are still open at the server, under unknown packet identifiers. The server would
//! mistake a new message with such an identifier for a repetition of the old one, and the new message would be lost
//! [MQTT-4.3.3-10]. The client therefore releases each identifier with PUBREL before its first use, 64 at a time.
//! Messages of QoS 1 and 2 wait for the answer, so the first one leaves one round trip later.
//!
//! With [`Options::session_store`], the client knows the session, because the earlier program has stored it. Messages
//! of QoS 1 and 2 that were not acknowledged are sent again, including those that were published without a connection.
//! At QoS 2, each message still arrives once. [`Client::stored`] waits until messages are in the store. [`FileStore`]
//! is a store in a file.
//!
//! Messages that the server sends are not in the store, because the server keeps them until they are acknowledged. By
//! default, the client acknowledges a message when the application takes it. With [`Acknowledge::ByApplication`], a
//! message is not lost if the program ends while handling the message.
//!
//! # Cancelled, slow and interrupted operations
//!
//! | | its future is dropped | it takes too long | the connection ends |
//! |---|---|---|---|
//! | `publish` | before it returns: nothing is published; after: the message is sent | waits, see below | QoS 0: may be lost. QoS 1, 2: the acknowledgement says that the message may have arrived |
//! | `subscribe` | the subscription is ended once it is made | the connection is closed | the error of the connection |
//! | `unsubscribe` | the operation is carried out | the connection is closed | the error of the connection |
//! | `disconnect` | the operation is carried out | after [`Options::flush_timeout`] the connection is closed; the error has the number of unacknowledged messages | done, unless messages remain to be delivered and another connection may be made |
//!
//! # Time limits
//!
//! | the client waits for | time limit | afterwards |
//! |---|---|---|
//! | a transport, and on it CONNACK | [`Options::connect_timeout`] each | the connection ends, or the client tries again |
//! | the answer to PINGREQ, which is sent after three quarters of the [keep alive](Options::keep_alive_secs) | 10 s | the connection ends |
//! | the server to accept a byte of the output, when PINGREQ is due behind it | 10 s, and 10 s since the last byte | the connection ends |
//! | SUBACK, UNSUBACK, the end of a reauthentication | [`Options::request_timeout`] | the connection ends |
//! | room in the queue of commands, PUBACK, PUBREC, PUBCOMP | none: until the connection ends | |
//! | the answer to a [`Requester`] | as given by the caller | [`RequestError::TimedOut`] |
//! | the application to take messages from full streams | none; while an answer is awaited, twice [`Options::request_timeout`] | see [above](#back-pressure) |
//! | the application to take a message for which there is no stream | 10 s, and 10 s since the connection began | the message is accepted |
//! | delivery of queued messages before the end | [`Options::flush_timeout`] | DISCONNECT |
//! | the last bytes to leave | 1 s | the connection ends |
//!
//! While nothing is read because streams are full, neither PINGREQ nor requests are late, because their answers may
//! have arrived unread. Their time limits begin anew when reading resumes. With keep alive 0 there is no PINGREQ, and
//! the client never notices a server that disappears silently.
//!
//! # Whose fault
//! Each operation has its own error type. [`Fault`] says for each error whether the cause is in the calling
//! program, at the server or in the network.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

/// The programs of the README, and of the page for developers, compile.
#[cfg(all(doctest, feature = "tls"))]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../../../docs/RUST.md")]
mod pages {}

mod authentication;
mod back_off;
mod buffers;
mod client;
mod command;
mod counters;
mod dial;
mod driver;
mod endpoint;
mod engine;
mod error;
mod inbox;
mod message;
mod options;
mod outlet;
mod owned;
pub mod pipeline;
#[cfg(feature = "quic")]
mod quic;
mod requester;
mod requests;
mod restored;
mod routes;
mod server;
#[cfg(feature = "socks5")]
mod socks5;
mod state;
mod store;
#[cfg(feature = "tls")]
mod tls;
mod url;
#[cfg(feature = "websocket")]
mod websocket;

pub use authentication::Authenticator;
pub use client::{Acknowledgement, Client};
pub use dial::{Layer, TransportError};
pub use endpoint::{Endpoint, Stream};
pub use error::{
    AuthenticateError, ConnectError, DisconnectError, Ended, Fault, OptionsError, PublishError, RequestError,
    RequesterError, SubscribeError, UnsubscribeError,
};
pub use inbox::Inbox;
pub use message::{Message, Messages};
pub use options::{Acknowledge, Options};
pub use requester::Requester;
pub use server::Server;
pub use session::client::{Outgoing, TimedOut};
#[cfg(feature = "socks5")]
pub use socks5::Proxy;
pub use state::State;
pub use store::{FileStore, SessionStore};
#[cfg(feature = "tls")]
pub use tls::{Origin, Tls, TlsError, TlsOptions, TlsVersion};
#[cfg(feature = "tls")]
pub use tokio_rustls::rustls;
pub use topic::{FilterError, TopicError, TopicFilter, TopicName, filter, topic};
pub use url::UrlError;
#[cfg(feature = "websocket")]
pub use websocket::{WebSocket, WebSocketError};
pub use wire::{
    Binary, BinaryTooLong, ConnectRefusal, Disconnect, DisconnectProperties, DisconnectReason, EncodeError,
    MessageProperties, Packet, PacketId, PayloadFormat, PubAckReason, Qos, ReasonCode, ResponseTopic,
    RetainHandling, Role, SubscribeProperties, SubscriptionIdentifier, SubscriptionOptions, TopicAlias,
    UnsubscribeProperties, UserProperties, UserProperty, Utf8, Utf8Error, Version, Violation, Will,
};

/// Errors of the protocol's state machine, which the variants `Protocol` of this crate's errors contain.
pub mod protocol {
    pub use session::client::{ConnectError, DisconnectError, PublishError, RequestError};
}
