//! Enhanced authentication, the client's part (MQTT 5.0, 4.12).

use base::Now;
use wire::{
    Auth, AuthProperties, AuthReason, Binary, ConnAckProperties, Connect, ReasonCode, Utf8, Violation,
};

use super::connection::Link;
use super::{Client, Event, RequestError, violation};

/// The authentication method of a connection, and the state of its exchange.
#[derive(Debug)]
pub(super) struct Exchange {
    method: Option<Box<str>>,
    turn: Turn,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// There is no exchange.
    Nobody,
    /// The server judges a step.
    Server,
    /// The application makes a step.
    Application,
}

impl Exchange {
    pub(super) fn of(connect: &Connect<'_>) -> Self {
        let method = connect.properties.authentication_method.filter(|_| connect.version().is_5());
        let turn = if method.is_some() { Turn::Server } else { Turn::Nobody };
        Self { method: method.map(|method| method.as_str().into()), turn }
    }

    pub(super) fn end(&mut self) {
        self.turn = Turn::Nobody;
    }
}

impl Link {
    /// Checks that CONNACK has the method of CONNECT, or none if CONNECT had none.
    pub(super) fn check_method(&self, properties: &ConnAckProperties<'_>) -> Result<(), Violation> {
        self.is_our_method(properties.authentication_method)
    }

    fn is_our_method(&self, method: Option<Utf8<'_>>) -> Result<(), Violation> {
        let (ours, theirs) = (self.exchange.method.as_deref(), method.map(Utf8::as_str));
        if ours == theirs {
            return Ok(());
        }
        let statement = if ours.is_some() { "MQTT-4.12.0-5" } else { "MQTT-4.12.0-6" };
        let text = "another authentication method than that of CONNECT";
        Err(violation(self, ReasonCode::ProtocolError, [statement, "MQTT-4.8.0-1"], text))
    }
}

impl<T> Client<T> {
    /// Makes the next step of the authentication, after [`Event::Authenticate`].
    ///
    /// # Errors
    /// [`RequestError`]; then nothing was written.
    pub fn authenticate(
        &mut self,
        data: Option<Binary<'_>>,
        now: Now,
        into: &mut Vec<u8>,
    ) -> Result<(), RequestError> {
        self.send_auth(AuthReason::ContinueAuthentication, Turn::Application, data, now, into)
    }

    /// Authenticates again, with the method of CONNECT [MQTT-4.12.1-1].
    ///
    /// # Errors
    /// [`RequestError`]; then nothing was written.
    pub fn reauthenticate(
        &mut self,
        data: Option<Binary<'_>>,
        now: Now,
        into: &mut Vec<u8>,
    ) -> Result<(), RequestError> {
        if !self.is_connected() {
            return Err(RequestError::NotConnected);
        }
        self.send_auth(AuthReason::ReAuthenticate, Turn::Nobody, data, now, into)
    }

    fn send_auth(
        &mut self,
        reason: AuthReason,
        turn: Turn,
        data: Option<Binary<'_>>,
        now: Now,
        into: &mut Vec<u8>,
    ) -> Result<(), RequestError> {
        let Some(link) = &mut self.link else { return Err(RequestError::NotConnected) };
        let Some(method) = &link.exchange.method else { return Err(RequestError::NoAuthenticationMethod) };
        if link.exchange.turn != turn {
            return Err(RequestError::NotOurTurn);
        }
        let properties = AuthProperties {
            authentication_method: Utf8::new(method).ok(),
            authentication_data: data,
            ..AuthProperties::EMPTY
        };
        if !link.receiver().write(&Auth { reason, properties }.into(), into) {
            return Err(RequestError::TooLarge);
        }
        link.exchange.turn = Turn::Server;
        link.note_sent(link.is_connected, now);
        Ok(())
    }

    pub(super) fn handle_auth<'p>(&mut self, packet: &Auth<'p>) -> Result<Event<'p, T>, Violation> {
        let Some(link) = &mut self.link else { return Ok(Event::None) };
        if link.exchange.method.is_none() {
            let statements = ["MQTT-4.12.0-6", "MQTT-4.8.0-1"];
            let text = "AUTH, where CONNECT had no authentication method";
            return Err(violation(link, ReasonCode::ProtocolError, statements, text));
        }
        let data = packet.properties.authentication_data;
        // An AUTH without properties reports success, and nothing else.
        let is_bare = packet.reason == AuthReason::Success && packet.properties.is_empty();
        if !is_bare {
            link.is_our_method(packet.properties.authentication_method)?;
        }
        match (packet.reason, link.exchange.turn) {
            (AuthReason::ContinueAuthentication, Turn::Server) => {
                link.exchange.turn = Turn::Application;
                Ok(Event::Authenticate { data })
            }
            (AuthReason::Success, Turn::Server) if link.is_connected => {
                link.exchange.turn = Turn::Nobody;
                Ok(Event::Authenticated { data })
            }
            _ => {
                let statements = ["MQTT-4.12.0-2", "MQTT-4.8.0-1"];
                let text = "AUTH that is not the server's to send now";
                Err(violation(link, ReasonCode::ProtocolError, statements, text))
            }
        }
    }
}
