//! Enhanced authentication (MQTT 5.0, 4.12): who makes the steps, and when.

use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;
use wire::{Binary, DisconnectReason};

use crate::command::Reply;
use crate::engine::Engine;
use crate::error::{AuthenticateError, Ended};

/// There is no reason that says why a client ends an exchange.
const UNSPECIFIED: DisconnectReason = DisconnectReason::UnspecifiedError;

/// The client's part of an authentication method, as one connection has it: see
/// [`Options::authenticator`](crate::Options::authenticator).
///
/// ```text
///  begin ──► CONNECT ──►         ──► CONNACK ──► finish
///                        server
///  step  ◄── AUTH    ◄──         ◄── AUTH    ◄── step    as often as the server wants
/// ```
///
/// The task that drives the connection calls it, and goes on when it returns: it computes, and does not wait. Data has at
/// most 65,535 bytes.
pub trait Authenticator: Send {
    /// Begins: what CONNECT has for the server, or AUTH when an authentication begins [anew].
    ///
    /// [anew]: crate::Client::reauthenticate
    fn begin(&mut self) -> Option<Vec<u8>>;

    /// The server has said this: what the answer has.
    ///
    /// # Errors
    /// What is wrong with it: the connection ends with [`Ended::NotAuthenticated`].
    fn step(&mut self, challenge: Option<&[u8]>) -> Result<Option<Vec<u8>>, String>;

    /// The server is content, and has said this at last. A method in which the server too proves who it is looks at it
    /// here.
    ///
    /// # Errors
    /// What is wrong with it: the connection ends with [`Ended::NotAuthenticated`].
    fn finish(&mut self, data: Option<&[u8]>) -> Result<(), String> {
        let _ = data;
        Ok(())
    }
}

/// Makes what each connection needs anew.
#[derive(Clone)]
pub(crate) struct Authenticators(pub(crate) Arc<Make>);

/// See [`Authenticators`].
type Make = dyn Fn() -> Box<dyn Authenticator> + Send + Sync;

impl fmt::Debug for Authenticators {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authenticators")
    }
}

/// Where the exchange of a connection stands.
#[derive(Default)]
pub(crate) struct Exchange {
    authenticator: Option<Box<dyn Authenticator>>,
    /// An authentication has begun anew.
    again: Option<Again>,
}

struct Again {
    due: Instant,
    reply: Reply<(), AuthenticateError>,
}

impl Exchange {
    /// That of a new connection, with what CONNECT says.
    pub(crate) fn begin(authenticators: Option<&Authenticators>) -> (Self, Option<Vec<u8>>) {
        let mut authenticator = authenticators.map(|make| make.0());
        let data = authenticator.as_mut().and_then(|authenticator| authenticator.begin());
        (Self { authenticator, again: None }, data)
    }

    pub(crate) fn due(&self) -> Option<Instant> {
        self.again.as_ref().map(|again| again.due)
    }

    pub(crate) fn postpone(&mut self, due: Instant) {
        if let Some(again) = &mut self.again {
            again.due = due;
        }
    }

    /// The connection is lost.
    pub(crate) fn fail(&mut self, ended: &Ended) {
        if let Some(Again { reply, .. }) = self.again.take() {
            let _ = reply.send(Err(AuthenticateError::Ended(ended.clone())));
        }
    }
}

impl Engine {
    /// The server wants another step.
    pub(crate) fn authenticate(&mut self, challenge: Option<Binary<'_>>) -> Result<(), Ended> {
        let Some(authenticator) = &mut self.exchange.authenticator else {
            return Err(self.give_up(Ended::NoAuthenticator, UNSPECIFIED));
        };
        let step = authenticator.step(challenge.map(Binary::as_bytes));
        let data = step.map_err(|text| self.give_up(Ended::NotAuthenticated(text), UNSPECIFIED))?;
        let binary = data.as_deref().map(Binary::new).transpose();
        let too_long = || Ended::NotAuthenticated("an answer of more than 65,535 bytes".to_owned());
        let binary = binary.map_err(|_| self.give_up(too_long(), UNSPECIFIED))?;
        let now = self.now();
        let sent = self.session.authenticate(binary, now, &mut self.output.bytes);
        sent.map_err(|error| self.give_up(Ended::NotAuthenticated(error.to_string()), UNSPECIFIED))
    }

    /// The server is content: with CONNACK, or with AUTH.
    pub(crate) fn authenticated(&mut self, data: Option<Binary<'_>>) -> Result<(), Ended> {
        if let Some(authenticator) = &mut self.exchange.authenticator {
            let finished = authenticator.finish(data.map(Binary::as_bytes));
            finished.map_err(|text| self.give_up(Ended::NotAuthenticated(text), UNSPECIFIED))?;
        }
        if let Some(Again { reply, .. }) = self.exchange.again.take() {
            // Whoever asked may have gone.
            let _ = reply.send(Ok(()));
        }
        Ok(())
    }

    pub(crate) fn reauthenticate(&mut self, reply: Reply<(), AuthenticateError>) {
        // The one that is under way has its own steps to make, which must not begin anew.
        if self.exchange.again.is_some() {
            let refused = session::client::RequestError::NotOurTurn;
            let _ = reply.send(Err(AuthenticateError::Protocol(refused)));
            return;
        }
        let data = match &mut self.exchange.authenticator {
            Some(authenticator) => authenticator.begin(),
            None => self.options.authentication_data().map(Vec::from),
        };
        let now = self.now();
        let sent = match data.as_deref().map(Binary::new).transpose() {
            Ok(data) => self.session.reauthenticate(data, now, &mut self.output.bytes),
            Err(_) => Err(session::client::RequestError::TooLarge),
        };
        match sent {
            Ok(()) => {
                let due = Instant::now() + self.options.request_timeout;
                self.exchange.again = Some(Again { due, reply });
            }
            Err(error) => {
                let _ = reply.send(Err(AuthenticateError::Protocol(error)));
            }
        }
    }
}
