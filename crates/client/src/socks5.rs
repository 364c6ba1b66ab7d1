//! SOCKS5 (RFC 1928), optionally with user name and password (RFC 1929).

use std::io;

use tokio::net::TcpStream;
use tokio_socks::tcp::Socks5Stream;

use crate::dial::{Layer, TransportError};
use crate::error::Fault;

/// Address and credentials of a SOCKS5 proxy.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    host: String,
    port: u16,
    credentials: Option<(String, String)>,
}

impl Proxy {
    /// A proxy at this address, without credentials. The usual port is 1080.
    #[must_use]
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port, credentials: None }
    }

    /// Sets user name and password, from 1 to 255 bytes each. Debug output shows neither.
    #[must_use]
    pub fn credentials(mut self, user_name: impl Into<String>, password: impl Into<String>) -> Self {
        self.credentials = Some((user_name.into(), password.into()));
        self
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Asks the proxy to connect to a host. The proxy looks up the name.
    pub(crate) async fn wrap(
        &self,
        socket: TcpStream,
        host: &str,
        port: u16,
    ) -> io::Result<Socks5Stream<TcpStream>> {
        let target = (host, port);
        let wrapped = match &self.credentials {
            Some((name, password)) => {
                Socks5Stream::connect_with_password_and_socket(socket, target, name, password).await
            }
            None => Socks5Stream::connect_with_socket(socket, target).await,
        };
        let (proxy, fault) = (format_args!("{}:{}", self.host, self.port), Fault::Network);
        wrapped.map_err(|error| TransportError::new(Layer::Proxy, proxy, fault, error).into())
    }
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Proxy({}:{})", self.host, self.port)
    }
}
