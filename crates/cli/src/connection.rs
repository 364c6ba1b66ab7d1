//! Makes a connection from settings. This is the only module that sets options of the client library.

use std::num::{NonZeroU16, NonZeroU32};
use std::time::Duration;

use client::{
    Client, ConnectError, Disconnect, DisconnectProperties, DisconnectReason, Ended, Options, Utf8, Version,
    Will,
};
use topic::TopicName;
use wire::{Binary, Property, Shown};

use crate::end::End;
use crate::failure::Failure;
use crate::properties::Command;
use crate::settings::{Settings, Tool};
use crate::trace::Trace;
use crate::transport;

/// Maximum delay between two attempts to reconnect.
const RECONNECT_MAX: Duration = Duration::from_secs(1);

/// Time limit for the server's answers. The limit is very long: users who want a shorter one have `-W`.
const PATIENCE: Duration = Duration::from_secs(24 * 3_600);

/// Maximum time for pending acknowledgements after a signal or `-W`.
pub(crate) const LEAVE_MAX: Duration = Duration::from_secs(1);

/// Connects to the server.
///
/// `sub` reconnects when the connection is lost, and so does `pub` if it publishes many messages. With one message, and in
/// `rr`, the loss is reported instead.
pub(crate) async fn connect(settings: &Settings) -> Result<Client, Failure> {
    let mut options = options(settings)?;
    if settings.tool == Tool::Subscribe || settings.publishes_many() {
        options = options.reconnect(RECONNECT_MAX, RECONNECT_MAX);
    }
    if settings.debug {
        let trace = Trace::new(settings);
        options = options.trace(move |sender, packet| trace.print(sender, packet));
    }
    let endpoint = transport::endpoint(settings).await?;
    let connected = Client::connect_to(endpoint, options).await;
    connected.map_err(|error| refused(error, settings))
}

/// Address of the broker, for people to read.
pub(crate) fn broker(settings: &Settings) -> String {
    match &settings.server.unix {
        Some(path) => Shown(path.display()).to_string(),
        None => format!("{}:{}", Shown(settings.host()), settings.port()),
    }
}

/// Disconnects, with the properties that were given for DISCONNECT.
///
/// After a signal or `-W`, the program has not completed its work. The server then publishes the will, if the
/// version can express this (MQTT 5).
pub(crate) async fn disconnect(client: &Client, settings: &Settings, end: Option<End>) {
    let properties = &settings.properties;
    let pairs = properties.pairs(Command::Disconnect);
    let text = properties.text(Command::Disconnect, Property::ReasonString);
    let packet = Disconnect {
        reason: match end {
            None => DisconnectReason::NormalDisconnection,
            Some(_) => DisconnectReason::DisconnectWithWillMessage,
        },
        properties: DisconnectProperties {
            session_expiry_interval_secs: properties
                .number(Command::Disconnect, Property::SessionExpiryInterval),
            reason_string: text.and_then(|text| Utf8::new(text).ok()),
            user_properties: pairs[..].into(),
            ..DisconnectProperties::EMPTY
        },
    };
    // Acknowledgements of received messages are sent first.
    tokio::task::yield_now().await;
    // The outcome does not matter: the connection and the program end in any case.
    let disconnected = client.disconnect_with(&packet);
    let _ = match end {
        None => disconnected.await.is_ok(),
        Some(_) => tokio::time::timeout(LEAVE_MAX, disconnected).await.is_ok(),
    };
}

/// Makes the client's options, with all fields of CONNECT.
fn options(settings: &Settings) -> Result<Options, Failure> {
    let session = &settings.session;
    let mut options = Options::new(session.version)
        .clean_start(session.clean_start)
        .keep_alive_secs(session.keep_alive_secs)
        .request_timeout(PATIENCE)
        .client_id(client_id(settings));
    options = match (&session.user_name, &session.password) {
        (Some(name), password) => options.credentials(name, password.as_deref()),
        (None, Some(_)) if !session.version.is_5() => {
            return Err(Failure::new("Error: Problem setting username and/or password."));
        }
        (None, Some(password)) => options.password(password),
        (None, None) => options,
    };
    if let Some(inflight_max) = NonZeroU16::new(session.inflight_max) {
        options = options.inflight_max(inflight_max);
    }
    with_properties(with_will(options, settings)?, settings)
}

/// Client identifier. With MQTT 3.1 the program has to choose one, because servers cannot assign one.
fn client_id(settings: &Settings) -> String {
    let given = settings.session.client_id.clone();
    given.unwrap_or_else(|| match settings.session.version {
        Version::V3_1 => format!("pondhawk-{}", std::process::id()),
        Version::V3_1_1 | Version::V5 => String::new(),
    })
}

fn with_will(options: Options, settings: &Settings) -> Result<Options, Failure> {
    let will = &settings.will;
    let Some(topic) = &will.topic else { return Ok(options) };
    let bad = || Failure::new("Error: Problem setting will: it is too long.");
    let pairs = settings.properties.pairs(Command::Will);
    Ok(options.will(&Will {
        topic: TopicName::new(topic).map_err(|_| bad())?,
        payload: Binary::new(will.payload.as_deref().unwrap_or_default()).map_err(|_| bad())?,
        qos: will.qos,
        retain: will.retain,
        delay_interval_secs: settings.properties.number(Command::Will, Property::WillDelayInterval),
        properties: settings.properties.message(Command::Will, &pairs),
    }))
}

fn with_properties(mut options: Options, settings: &Settings) -> Result<Options, Failure> {
    let properties = &settings.properties;
    let number = |property| properties.number(Command::Connect, property);
    let small = |property| number(property).and_then(|number| u16::try_from(number).ok());
    let flag = settings.session.expiry_secs.filter(|secs| *secs > 0);
    if let Some(secs) = flag.or(number(Property::SessionExpiryInterval)) {
        options = options.session_expiry_secs(secs);
    }
    if let Some(max) = small(Property::ReceiveMaximum).and_then(NonZeroU16::new).or(receive_max(settings)) {
        options = options.receive_max(max);
    }
    if let Some(max) = number(Property::MaximumPacketSize).and_then(NonZeroU32::new) {
        options = options.packet_bytes_max(max);
    }
    // The default is 0 rather than the library's: an alias is of no use here, and `%A` would print it.
    options = options.topic_alias_max(small(Property::TopicAliasMaximum).unwrap_or_default());
    if let Some(is_wanted) = number(Property::RequestResponseInformation) {
        options = options.request_response_information(is_wanted == 1);
    }
    if let Some(is_wanted) = number(Property::RequestProblemInformation) {
        options = options.request_problem_information(is_wanted == 1);
    }
    let text = |property| properties.text(Command::Connect, property);
    let data = text(Property::AuthenticationData).map(str::as_bytes);
    match text(Property::AuthenticationMethod) {
        Some(method) => options = options.authentication(method, data),
        None if data.is_some() => {
            return Err(Failure::new(
                "Error in CONNECT properties: authentication-data needs an authentication-method.",
            ));
        }
        None => {}
    }
    Ok(options.user_properties(properties.pairs(Command::Connect)[..].into()))
}

/// Receive Maximum: the number of unacknowledged messages that the server may send, at most the number needed.
///
/// Messages that were sent to a program that ends stay with its session, if the session lasts.
fn receive_max(settings: &Settings) -> Option<NonZeroU16> {
    /// Default of Mosquitto's clients.
    const DEFAULT: u16 = 20;
    let wanted = match settings.tool {
        Tool::Publish => None,
        Tool::Subscribe => settings.incoming.count.and_then(|count| u16::try_from(count).ok()),
        Tool::Request => Some(1),
    };
    NonZeroU16::new(wanted.unwrap_or(DEFAULT).min(DEFAULT))
}

/// Failure for a refused or failed connection. The exit code is the server's return code or, with MQTT 5, reason code.
fn refused(error: ConnectError, settings: &Settings) -> Failure {
    let version = settings.session.version;
    match error {
        ConnectError::Refused { reason, text, server_reference } => {
            let code = if version.is_5() { Some(reason.reason().code()) } else { reason.return_code() };
            let what =
                if version.is_5() { reason.reason().as_str() } else { return_code(code.unwrap_or_default()) };
            let more = [text, server_reference.map(|server| format!("use {server}"))];
            let more: String = more.iter().flatten().map(|more| format!(" ({})", Shown(more))).collect();
            let failure = Failure::with_code(format!("Connection error: {what}{more}"), code.unwrap_or(1));
            match login_advice(code.unwrap_or_default(), settings) {
                Some(advice) => failure.advise(advice),
                None => failure,
            }
        }
        ConnectError::Ended(Ended::Io(error)) => transport::unreachable(&error, settings),
        ConnectError::Ended(ended @ (Ended::Closed | Ended::Violation(_) | Ended::TimedOut(_))) => {
            Failure::new(format!("Error: {ended}")).advise(transport::unanswered(settings))
        }
        other => Failure::new(format!("Error: {other}")),
    }
}

/// Hint for a login that was refused. The codes are those of MQTT 3.1.1 and of MQTT 5.0.
fn login_advice(code: u8, settings: &Settings) -> Option<String> {
    let is_about_login = matches!(code, 4 | 5 | 0x86 | 0x87);
    let is_anonymous = settings.session.user_name.is_none() && settings.session.password.is_none();
    let broker = broker(settings);
    (is_about_login && is_anonymous).then(|| format!("{broker} wants a user: -u NAME and -P PASSWORD."))
}

/// Texts of Mosquitto's clients for the return codes of MQTT 3.1 and 3.1.1.
fn return_code(code: u8) -> &'static str {
    match code {
        1 => "Connection Refused: unacceptable protocol version.",
        2 => "Connection Refused: identifier rejected.",
        3 => "Connection Refused: broker unavailable.",
        4 => "Connection Refused: bad user name or password.",
        5 => "Connection Refused: not authorised.",
        _ => "Connection Refused: unknown reason.",
    }
}

/// Failure for a connection that is over and is not replaced.
pub(crate) fn lost(ended: &Ended) -> Failure {
    /// Mosquitto's `MOSQ_ERR_CONN_LOST`.
    const CONNECTION_LOST: u8 = 7;
    match ended {
        Ended::Refused(reason) => {
            Failure::with_code(format!("Connection error: {}", reason.reason()), reason.reason().code())
        }
        Ended::ByServer { reason, .. } => {
            Failure::with_code(format!("Error: {ended}"), reason.reason().code())
        }
        other => Failure::with_code(format!("Error: {other}"), CONNECTION_LOST),
    }
}
