//! Enhanced authentication (MQTT 5.0, 4.12): AUTH packets between the client and an external authenticator.

use wire::{
    Auth, AuthProperties, AuthReason, Binary, Connect, ConnectRefusal, ReasonCode, Utf8, Version, Violation,
};

use crate::connect::refused;
use crate::{Session, Settings};

/// One step of an exchange, from the client to the authenticator.
#[derive(Debug, Clone, Copy)]
pub struct AuthenticationStep<'p> {
    /// CONNECT, for the first step. The client identifier is claimed only when the exchange has succeeded, so the
    /// caller must keep its fields. `None` for a later step, or for a re-authentication.
    pub connect: Option<Connect<'p>>,
    /// One of [`Settings::authentication_methods`].
    pub method: Utf8<'p>,
    /// Data of the authentication method.
    pub data: Option<Binary<'p>>,
}

/// The authenticator's answer to a step.
#[derive(Debug, Clone, Copy)]
pub enum AuthenticationOutcome<'a> {
    /// Another step is needed.
    Continue(Option<Binary<'a>>),
    /// The client is authenticated.
    Success(Option<Binary<'a>>),
    /// The client is refused.
    Failure(ConnectRefusal),
}

/// Consequence of an [`AuthenticationOutcome`].
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authenticated {
    /// The client was asked for the next step.
    Continues,
    /// The client identifier of CONNECT may be claimed.
    Claims,
    /// A connected client has authenticated itself again.
    Again,
    /// The connection ends, and [`Session::answer`] gives the client the reason.
    Refused(Violation),
}

/// The authentication method of a connection, and the state of its exchange.
#[derive(Debug)]
pub(crate) struct Authentication {
    method: Box<str>,
    turn: Turn,
    rounds: u8,
    /// Data of the outcome, for CONNACK.
    data: Option<Box<[u8]>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// There is no exchange.
    Nobody,
    /// The authenticator judges a step.
    Authenticator,
    /// The next AUTH of the client is expected.
    Client,
}

impl Authentication {
    pub(crate) fn of(connect: &Connect<'_>) -> Option<Box<Self>> {
        let method = connect.properties.authentication_method?.as_str().into();
        Some(Box::new(Self { method, turn: Turn::Authenticator, rounds: 0, data: None }))
    }

    /// Whether the authenticator judges a step.
    pub(crate) fn is_judging(&self) -> bool {
        self.turn == Turn::Authenticator
    }

    pub(crate) fn method(&self) -> &str {
        &self.method
    }

    pub(crate) fn data(&self) -> Option<&[u8]> {
        self.data.as_deref()
    }

    /// Handles an AUTH. `is_connected`: CONNACK was sent.
    pub(crate) fn step<'p>(
        &mut self,
        auth: &Auth<'p>,
        is_connected: bool,
        settings: &Settings,
    ) -> Result<AuthenticationStep<'p>, Violation> {
        let wrong = |statement, text| {
            let statements = [statement, "MQTT-4.8.0-1"];
            Err(Violation::after_connect(Version::V5, ReasonCode::ProtocolError, statements, text))
        };
        let method = auth.properties.authentication_method;
        let Some(method) = method.filter(|method| *method.as_str() == *self.method) else {
            return wrong("MQTT-4.12.0-5", "AUTH with another method than CONNECT, or none");
        };
        match (auth.reason, self.turn) {
            (AuthReason::ContinueAuthentication, Turn::Client) => {
                self.rounds += 1;
                if self.rounds > settings.authentication_rounds_max {
                    return Err(failure(ConnectRefusal::NotAuthorized, is_connected));
                }
            }
            (AuthReason::ReAuthenticate, Turn::Nobody) if is_connected => self.rounds = 1,
            (AuthReason::ReAuthenticate, _) => {
                return wrong("MQTT-4.12.1-1", "a re-authentication before the authentication is over");
            }
            (AuthReason::Success | AuthReason::ContinueAuthentication, _) => {
                return wrong("MQTT-4.12.0-3", "AUTH that nobody has asked for");
            }
        }
        self.turn = Turn::Authenticator;
        Ok(AuthenticationStep { connect: None, method, data: auth.properties.authentication_data })
    }
}

impl<T> Session<T> {
    /// Applies the authenticator's answer to [`Request::Authenticate`](crate::Request::Authenticate).
    pub fn authenticated(&mut self, outcome: AuthenticationOutcome<'_>, into: &mut Vec<u8>) -> Authenticated {
        let is_connected = self.is_connected();
        let refused = |reason| Authenticated::Refused(failure(reason, is_connected));
        let Some(mut authentication) = self.authentication.take() else {
            return refused(ConnectRefusal::BadAuthenticationMethod);
        };
        let (reason, data, turn) = match outcome {
            AuthenticationOutcome::Failure(reason) => return refused(reason),
            AuthenticationOutcome::Continue(data) => (AuthReason::ContinueAuthentication, data, Turn::Client),
            AuthenticationOutcome::Success(data) => (AuthReason::Success, data, Turn::Nobody),
        };
        authentication.turn = turn;
        let is_over = turn == Turn::Nobody;
        let packet = Auth {
            reason,
            properties: AuthProperties {
                authentication_method: Utf8::new(&authentication.method).ok(),
                authentication_data: data,
                ..AuthProperties::EMPTY
            },
        };
        // CONNACK reports the outcome of an exchange before CONNACK.
        let is_written = (is_over && !is_connected) || self.write(&packet.into(), into);
        if is_over && !is_connected {
            authentication.data = data.map(|data| data.as_bytes().into());
        }
        self.authentication = Some(authentication);
        if !is_written {
            return refused(ConnectRefusal::PacketTooLarge);
        }
        if !is_over {
            return Authenticated::Continues;
        }
        if is_connected {
            return Authenticated::Again;
        }
        self.claims();
        Authenticated::Claims
    }
}

/// Ends a failed exchange [MQTT-4.12.0-4], [MQTT-4.12.1-2].
fn failure(reason: ConnectRefusal, is_connected: bool) -> Violation {
    let text = "the authentication has failed";
    if is_connected {
        let statements = ["MQTT-4.12.1-2", "MQTT-4.8.0-1"];
        return Violation::after_connect(Version::V5, ReasonCode::from(reason), statements, text);
    }
    refused(Version::V5, reason, ["MQTT-4.12.0-4", "MQTT-3.2.2-6"], text)
}
