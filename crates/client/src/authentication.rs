//! Enhanced authentication (MQTT 5.0, section 4.12): the exchange of AUTH packets on one connection.

use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;
use wire::{Binary, DisconnectReason};

use crate::command::Reply;
use crate::engine::Engine;
use crate::error::{AuthenticateError, Ended};

/// Reason in DISCONNECT when the client gives up an exchange. MQTT has no reason code of its own for that.
const UNSPECIFIED: DisconnectReason = DisconnectReason::UnspecifiedError;

/// The client's part of an authentication method, for one connection. See
/// [`Options::authenticator`](crate::Options::authenticator).
///
/// ```text
///  begin ──► CONNECT ──►         ──► CONNACK ──► finish
///                        server
///  step  ◄── AUTH    ◄──         ◄── AUTH    ◄── step    as often as the server wants
/// ```
///
/// The task that drives the connection calls these methods and waits until each returns. Implementations must
/// therefore compute and return, without waiting for anything. Data has at most 65,535 bytes. If an implementation
/// returns more, the connection ends with [`Ended::AuthenticationUnsent`].
pub trait Authenticator: Send {
    /// Begins an exchange, and returns the authentication data for CONNECT. When an authentication begins [anew],
    /// the data goes into AUTH instead.
    ///
    /// [anew]: crate::Client::reauthenticate
    fn begin(&mut self) -> Option<Vec<u8>>;

    /// Answers a challenge from the server. The result is the data of the next AUTH packet.
    ///
    /// # Errors
    /// A description of the fault in the challenge. The connection then ends with [`Ended::NotAuthenticated`].
    fn step(&mut self, challenge: Option<&[u8]>) -> Result<Option<Vec<u8>>, String>;

    /// Checks the final data from the server, after the server has accepted the client. Mutual authentication
    /// methods verify the server's proof here.
    ///
    /// # Errors
    /// A description of the fault in the data. The connection then ends with [`Ended::NotAuthenticated`].
    fn finish(&mut self, data: Option<&[u8]>) -> Result<(), String> {
        let _ = data;
        Ok(())
    }
}

/// The end of a connection whose [`Authenticator`] has returned too much data.
pub(crate) fn too_long() -> Ended {
    Ended::AuthenticationUnsent("it has more than 65,535 bytes".to_owned())
}

/// Factory that makes a new [`Authenticator`] for each connection.
#[derive(Clone)]
pub(crate) struct Authenticators(pub(crate) Arc<Make>);

/// Signature of the factory in [`Authenticators`].
type Make = dyn Fn() -> Box<dyn Authenticator> + Send + Sync;

impl fmt::Debug for Authenticators {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authenticators")
    }
}

/// State of the authentication exchange on one connection.
#[derive(Default)]
pub(crate) struct Exchange {
    authenticator: Option<Box<dyn Authenticator>>,
    /// The reauthentication that is under way, if any.
    again: Option<Again>,
}

struct Again {
    due: Instant,
    reply: Reply<(), AuthenticateError>,
}

impl Exchange {
    /// Begins the exchange of a new connection. The second value is the authentication data for CONNECT.
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

    /// Fails a reauthentication that is under way, because the connection is lost.
    pub(crate) fn fail(&mut self, ended: &Ended) {
        if let Some(Again { reply, .. }) = self.again.take() {
            let _ = reply.send(Err(AuthenticateError::Ended(ended.clone())));
        }
    }
}

impl Engine {
    /// Answers an AUTH packet that asks for another step.
    pub(crate) fn authenticate(&mut self, challenge: Option<Binary<'_>>) -> Result<(), Ended> {
        let Some(authenticator) = &mut self.exchange.authenticator else {
            return Err(self.give_up(Ended::NoAuthenticator, UNSPECIFIED));
        };
        let step = authenticator.step(challenge.map(Binary::as_bytes));
        let data = step.map_err(|text| self.give_up(Ended::NotAuthenticated(text), UNSPECIFIED))?;
        let binary = data.as_deref().map(Binary::new).transpose();
        let binary = binary.map_err(|_| self.give_up(too_long(), UNSPECIFIED))?;
        let now = self.now();
        let sent = self.session.authenticate(binary, now, &mut self.output.bytes);
        sent.map_err(|error| self.give_up(Ended::AuthenticationUnsent(error.to_string()), UNSPECIFIED))
    }

    /// Completes the exchange, when the server has accepted the client by CONNACK or by AUTH.
    pub(crate) fn authenticated(&mut self, data: Option<Binary<'_>>) -> Result<(), Ended> {
        if let Some(authenticator) = &mut self.exchange.authenticator {
            let finished = authenticator.finish(data.map(Binary::as_bytes));
            finished.map_err(|text| self.give_up(Ended::NotAuthenticated(text), UNSPECIFIED))?;
        }
        if let Some(Again { reply, .. }) = self.exchange.again.take() {
            // The caller may have dropped its future.
            let _ = reply.send(Ok(()));
        }
        Ok(())
    }

    pub(crate) fn reauthenticate(&mut self, reply: Reply<(), AuthenticateError>) {
        // A second exchange must not interrupt the steps of the one that is under way.
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
