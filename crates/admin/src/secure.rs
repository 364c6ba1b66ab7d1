//! TLS of the server: handshakes, their pace, and the names in the certificates of clients.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use layers::CurrentTls;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::server::TlsStream;

use crate::slow::Timed;

/// Handshakes that may begin together, before the pace counts.
const TOGETHER: u32 = 32;
/// The answer to somebody who does not speak TLS.
const NOT_TLS: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n\
    {\"error\":{\"status\":400,\"message\":\"this server speaks TLS: use https://\"}}\n";
/// The first byte of a handshake.
const HANDSHAKE: u8 = 0x16;

/// TLS of the server.
#[derive(Debug, Clone)]
pub struct Secure {
    /// The certificates and rules. They can be replaced at any time.
    pub tls: Arc<CurrentTls>,
    /// Maximum number of handshakes in a second.
    pub handshakes_per_second: u32,
}

/// A connection after its handshake.
pub(crate) struct Handshaken {
    pub(crate) stream: TlsStream<Timed<TcpStream>>,
    pub(crate) proof: Proof,
}

/// The certificate of a client.
pub(crate) struct Proof {
    /// The certificate. `None` if the client has shown none.
    certificate: Option<CertificateDer<'static>>,
    /// Its common name. `None` if there is no certificate, or not one name in it.
    name: Option<Arc<str>>,
    /// The rules of the handshake.
    rules: Arc<ServerConfig>,
}

/// Why there was no handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsafe {
    /// It was not over in time.
    Slow,
    /// The client does not speak TLS, or its certificate is not accepted.
    Failed,
}

impl Proof {
    /// The common name of the certificate, if the certificate has not expired, and the rules are still those in force: another
    /// list of revoked certificates may have come since. An error says that the client has to connect again.
    pub(crate) fn name(&self, secure: &Secure) -> Result<Option<&Arc<str>>, Outdated> {
        match &self.name {
            Some(_) if !Arc::ptr_eq(&self.rules, &secure.tls.config()) => Err(Outdated),
            Some(_) if self.has_expired(UnixTime::now()) => Err(Outdated),
            name => Ok(name.as_ref()),
        }
    }

    /// Whether the certificate has expired. A handshake that resumes a session verifies no certificate.
    fn has_expired(&self, now: UnixTime) -> bool {
        self.certificate.as_ref().is_some_and(|certificate| layers::expired(certificate, now).is_some())
    }
}

/// The certificate of the client has expired, or the certificates of the server, or the rules about those of clients, have changed
/// since the handshake.
pub(crate) struct Outdated;

impl Secure {
    /// Makes the handshake of a connection, in this time.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
        from: SocketAddr,
        within: Duration,
    ) -> Result<Handshaken, Unsafe> {
        let outcome = timeout(within, self.shake_hands(stream, within)).await;
        let outcome = outcome.map_err(|_| Unsafe::Slow)?;
        outcome.map_err(|error| {
            tracing::debug!(%from, %error, "a handshake with the admin server has failed");
            if error.kind() == io::ErrorKind::TimedOut { Unsafe::Slow } else { Unsafe::Failed }
        })
    }

    async fn shake_hands(&self, mut stream: TcpStream, write_timeout: Duration) -> io::Result<Handshaken> {
        let mut first = [0];
        if stream.peek(&mut first).await? == 1 && first[0].is_ascii_uppercase() {
            // A request that was not read would reset the connection before the answer has arrived.
            let _ = stream.read(&mut [0; 4_096]).await?;
            stream.write_all(NOT_TLS).await?;
            stream.shutdown().await?;
        }
        if first[0] != HANDSHAKE {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the client does not speak TLS"));
        }
        let rules = self.tls.config();
        let stream = Timed::new(stream, write_timeout);
        let stream = TlsAcceptor::from(Arc::clone(&rules)).accept(stream).await?;
        let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let certificate = certificate.map(|certificate| certificate.clone().into_owned());
        let name =
            certificate.as_ref().and_then(|certificate| layers::common_name(certificate)).map(Arc::from);
        let proof = Proof { certificate, name, rules };
        if proof.has_expired(UnixTime::now()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the certificate of the client has expired",
            ));
        }
        Ok(Handshaken { stream, proof })
    }
}

/// The pace of handshakes: each takes some time of a processor, which clients of MQTT need too.
#[derive(Debug)]
pub(crate) struct Pace {
    interval: Duration,
    /// The time from which the next one is due, if they come at this pace.
    due: Instant,
}

impl Pace {
    pub(crate) fn new(per_second: u32, now: Instant) -> Self {
        Self { interval: Duration::from_secs(1) / per_second.max(1), due: now }
    }

    /// The time until which the next handshake waits. `None` if it may begin now.
    fn next(&mut self, now: Instant) -> Option<Instant> {
        let earliest = now.checked_sub(self.interval * TOGETHER).unwrap_or(now);
        let due = self.due.max(earliest);
        self.due = due + self.interval;
        Some(due).filter(|due| *due > now)
    }

    /// Waits for the turn of the next handshake. Returns whether it had to wait.
    pub(crate) async fn turn(&mut self) -> bool {
        let Some(until) = self.next(Instant::now()) else { return false };
        sleep_until(until).await;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_have_a_pace_with_some_together() {
        let begin = Instant::now() + Duration::from_secs(3_600);
        let mut pace = Pace::new(100, begin);
        let at_once = (0..200).filter(|_| pace.next(begin).is_none()).count();
        assert_eq!(at_once, 1, "the first is due now");
        let later = begin + Duration::from_secs(60);
        let mut pace = Pace::new(100, begin);
        let at_once = (0..200).filter(|_| pace.next(later).is_none()).count();
        assert_eq!(at_once, 33);
        let last = pace.next(later).expect("it waits");
        assert_eq!(last - later, Duration::from_millis(10) * 168);
    }
}
