//! An asynchronous MQTT client, for 3.1, 3.1.1 and 5.0, on tokio.
//!
//! ```no_run
//! use client::{Client, Options};
//! use client::{Outgoing, Qos, Version, filter, topic};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let options = Options::new(Version::V5).client_id("sensor-7");
//! let client = Client::connect_tcp("localhost:1883", options).await?;
//!
//! let mut orders = client.subscribe(filter!("orders/#"), Qos::AtLeastOnce).await?;
//!
//! let reading = Outgoing { qos: Qos::AtLeastOnce, ..Outgoing::new(topic!("t"), b"21.5") };
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
//! [`Client::connect_tcp`] and [`Client::connect_unix`] need nothing else. An [`Endpoint`], for [`Client::connect_to`], knows
//! every other way, by features of this crate: `tls` (`TlsOptions`), `websocket` (`WebSocket`), `socks5` (`Proxy`), each over
//! the one before. [`Client::connect_by`] and [`Client::connect`] take any stream, so that a test needs no socket.
//!
//! # How it is made
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
//! A [`Client`] is a handle; clones of it are cheap and speak for one session. A task, the driver, owns the connection
//! and the protocol's state machine ([`session::client`]); nobody else touches either, so that an operation which is
//! given up half-way leaves nothing half-done: what it asked for is whole in the queue, or is not there.
//!
//! The driver ends when the connection does: after [`Client::disconnect`], when the last handle is dropped (what is
//! in the queue is still sent, and then DISCONNECT), or by a fault, which is then the answer to everything that waits.
//!
//! # Back pressure
//! Nothing here grows without a bound.
//! - [`Client::publish`] waits while the queue of commands is full. The driver takes no command while too many bytes
//!   wait for the socket, or too many messages for their turn in the server's Receive Maximum.
//! - Each stream holds so many messages ([`Options::messages_max`]). What comes for a full one waits behind it, and others
//!   go on, until as many messages wait as Receive Maximum says ([`Options::receive_max`]), behind all streams together. Then
//!   the driver stops reading from the server, and so nothing comes for any stream, until one that was full has room; it
//!   goes on with everything else, PINGREQ too. One connection has one order: no client can take messages for others from
//!   behind those that nobody takes, without a bound. Two ways around: [`Options::drop_when_full`], at QoS 0, or a
//!   connection of its own for a subscription that may be slow.
//! - An answer of the server stands behind the messages that it has sent before. Who waits for one and does not take
//!   messages meanwhile, as a task does that publishes in the loop over its own stream and waits for the
//!   [`Acknowledgement`] there, may wait for itself: when nothing has been taken for [`Options::request_timeout`] while
//!   something is waited for, the messages are read past. Those of QoS 0 that have no room are thrown away, and
//!   [counted](Messages::dropped); those of QoS 1 and 2 wait as before, until there are twice as many as Receive Maximum says.
//!   If that does not bring the answer either, the connection ends as [`Ended::Unread`]. Better to wait for
//!   acknowledgements in another task, or to look at them later.
//! - Messages of QoS 1 are acknowledged when they are taken out, so that from MQTT 5 on Receive Maximum bounds how many
//!   are there at a time; those of QoS 2, which may not be there twice, when they are put in.
//! - Acknowledgements leave in the order of the messages. What nobody takes, because its stream was dropped or was never
//!   there, is accepted after 10 s: until then it comes again if the connection ends. What has been taken out, and is the
//!   application's to acknowledge ([`Acknowledge::ByApplication`]), waits for it without end.
//!
//! # One stream, or one for each filter
//! [`Client::subscribe`] gives a stream for its filter alone. [`Client::subscribe_many`] asks for several filters with one
//! packet, and their messages come in the [`Inbox`]: each once, in the order of the server, with those of a session that an
//! earlier program has left.
//!
//! # Reconnecting
//! With [`Options::reconnect`], [`Client::connect_tcp`] and [`Client::connect_by`] make a lost connection anew. If the
//! server still has the session ([`Options::session_expiry_secs`]; Clean Session 0 before MQTT 5), messages of QoS 1 and 2
//! that were under way are sent again, and subscriptions go on. If not, those messages have failed with
//! [`SessionEnded`](session::client::PublishError::SessionEnded), and the server is told of the subscriptions again: their
//! [`Messages`] go on, with a gap. Between connections QoS 0 and requests are refused, and QoS 1 and 2 wait, up to a bound.
//! The time between two attempts doubles until a connection has lasted for the longest of them. After DISCONNECT with
//! Session taken over, or a refusal that will not pass, the client gives up: one that may pass is Server unavailable (in
//! MQTT 3 too), Server busy, Quota exceeded, Connection rate exceeded, Use another server, and the two errors that say
//! nothing, Unspecified and Implementation specific.
//!
//! # Sessions of earlier programs
//! Without [Clean Start](Options::clean_start) a first connection goes on with the session that an earlier program has left,
//! of which this one knows no more than that it is there. What that program has published at QoS 2 and not released is open
//! at the server, under packet identifiers that nobody here knows. A message that got one of them would be taken for the
//! earlier one, sent again, and be lost [MQTT-4.3.3-10]. So each identifier is released with PUBREL before the first message
//! gets it, 64 at a time, and messages of QoS 1 and 2 wait for the answer: the first of them leaves one round trip later.
//!
//! # What becomes of an operation
//!
//! | | its future is dropped | it takes too long | the connection ends |
//! |---|---|---|---|
//! | `publish` | before it is done: nothing is published; after: the message goes its way | waits, see below | QoS 0: may be lost. QoS 1, 2: the acknowledgement says that it may have arrived |
//! | `subscribe` | the subscription is ended when it is made | the connection is closed | the error of the connection |
//! | `unsubscribe` | it is carried out | the connection is closed | the error of the connection |
//! | `disconnect` | it is carried out | after [`Options::flush_timeout`] the connection is closed; the error says how much was not acknowledged | done, unless there is something to deliver and another connection may be made |
//!
//! # What times out
//!
//! | what is waited for | how long | then |
//! |---|---|---|
//! | a transport, and on it CONNACK | [`Options::connect_timeout`] each | the connection ends, or the next is tried for |
//! | the answer to PINGREQ, which is sent after three quarters of the [keep alive](Options::keep_alive_secs) | 10 s | the connection ends |
//! | that the server takes a byte of what waits for it, when a PINGREQ would be due behind it | 10 s, and 10 s since the last one | the connection ends |
//! | SUBACK, UNSUBACK, the end of an authentication that began anew | [`Options::request_timeout`] | the connection ends |
//! | room in the queue of commands, PUBACK, PUBREC, PUBCOMP | without end: until the connection ends | |
//! | a [`Requester`]'s answer | as long as it is told | [`RequestError::TimedOut`] |
//! | that somebody takes messages out of full streams | without end; while something is waited for, [`Options::request_timeout`] twice | see [above](#back-pressure) |
//! | that somebody takes a message for which there is no stream | 10 s, and 10 s since the connection began | it is accepted |
//! | what is to be delivered before the end | [`Options::flush_timeout`] | DISCONNECT |
//! | that the last bytes leave | 1 s | the connection ends |
//!
//! While nothing is read because streams are full, neither PINGREQ nor requests are late, since their answers may have come;
//! they have their time anew when something is read. With keep alive 0 there is no PINGREQ, and a server that is gone
//! without a word is never missed.
//!
//! # Whose fault
//! Each operation has an error of its own; [`Fault`] says for each whether to look at the own program, at the server or
//! at the network.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod authentication;
mod back_off;
mod buffers;
mod client;
mod command;
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
mod requester;
mod requests;
mod routes;
mod server;
#[cfg(feature = "socks5")]
mod socks5;
mod state;
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
pub use options::Options;
pub use requester::Requester;
pub use server::Server;
pub use session::client::{Acknowledge, Outgoing};
#[cfg(feature = "socks5")]
pub use socks5::Proxy;
pub use state::State;
#[cfg(feature = "tls")]
pub use tls::{Origin, Tls, TlsError, TlsOptions, TlsVersion};
#[cfg(feature = "tls")]
pub use tokio_rustls::rustls;
pub use topic::{TopicFilter, TopicName, filter, topic};
pub use url::UrlError;
#[cfg(feature = "websocket")]
pub use websocket::{WebSocket, WebSocketError};
pub use wire::{
    Binary, Disconnect, DisconnectProperties, DisconnectReason, MessageProperties, Packet, PacketId,
    PayloadFormat, Qos, ReasonCode, ResponseTopic, RetainHandling, Role, SubscribeProperties,
    SubscriptionIdentifier, SubscriptionOptions, TopicAlias, UnsubscribeProperties, UserProperties,
    UserProperty, Utf8, Version, Will,
};
