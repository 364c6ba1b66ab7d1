//! Addresses on which the broker listens.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

/// A place to listen on: a host and a port, or a socket.
///
/// Hosts and ports are `127.0.0.1:1883`, `[::1]:1883`, `localhost:1883` or `broker.example:1883`, and the same for QUIC, such
/// as `quic://127.0.0.1:14567`. `unix:/run/pondhawk.sock` and `unix:@pondhawk` are sockets of this machine. `systemd:mqtt` is
/// a socket that the service manager passes.
///
/// Port 0 asks the system for a free port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ListenAddress(Place);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Place {
    Inet { transport: Transport, host: Host, port: u16 },
    Unix(UnixName),
    Passed(String),
}

/// The protocol below MQTT at an address of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Transport {
    Tcp,
    Quic,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Host {
    Ip(IpAddr),
    Name(String),
}

/// The name of a socket of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum UnixName {
    /// The absolute path of a file.
    File(PathBuf),
    /// A name that is no file. Only Linux has them.
    Abstract(String),
}

/// An address to bind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Binding {
    /// An address and port of TCP.
    Inet(SocketAddr),
    /// An address and port of UDP, for QUIC.
    Quic(SocketAddr),
    /// A socket of this machine.
    Unix(UnixName),
    /// Nothing: the service manager passes a socket that listens, under this name.
    Passed(String),
}

/// In front of a host and a port for QUIC.
const QUIC: &str = "quic://";
/// In front of the name of a socket of this machine.
const UNIX: &str = "unix:";
/// In front of the name of a socket that the service manager passes.
const SYSTEMD: &str = "systemd:";
/// Maximum length of that name, in bytes (sd_listen_fds_with_names).
const PASSED_BYTES_MAX: usize = 255;
/// Maximum length of the name of a socket of this machine, in bytes. Systems allow 103 to 107, and the socket has another
/// name while it is made.
const UNIX_BYTES_MAX: usize = 90;

impl ListenAddress {
    /// Makes the address of IPv4 loopback at `port`.
    pub const fn loopback(port: u16) -> Self {
        let host = Host::Ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
        Self(Place::Inet { transport: Transport::Tcp, host, port })
    }

    /// Returns the same host with another port, or `None` for an address without a port.
    #[must_use]
    pub fn with_port(&self, port: u16) -> Option<Self> {
        match &self.0 {
            Place::Inet { transport, host, .. } => {
                Some(Self(Place::Inet { transport: *transport, host: host.clone(), port }))
            }
            Place::Unix(_) | Place::Passed(_) => None,
        }
    }

    /// Returns the loopback address with the same port, of IPv6 if this address is. `None` for an address without a port.
    #[must_use]
    pub fn on_loopback(&self) -> Option<Self> {
        let Place::Inet { transport, host, port } = &self.0 else { return None };
        let loopback = match host {
            Host::Ip(IpAddr::V6(address)) if address.to_ipv4_mapped().is_none() => Ipv6Addr::LOCALHOST.into(),
            _ => IpAddr::V4(Ipv4Addr::LOCALHOST),
        };
        Some(Self(Place::Inet { transport: *transport, host: Host::Ip(loopback), port: *port }))
    }

    /// Whether a socket at one address can keep the other from being opened: both have the same port, of TCP.
    pub fn shares_port(&self, other: &Self) -> bool {
        let port = |address: &Self| match address.0 {
            Place::Inet { transport: Transport::Tcp, port, .. } if port > 0 => Some(port),
            _ => None,
        };
        port(self).is_some() && port(self) == port(other)
    }

    /// Whether the system chooses a free port.
    pub const fn is_any_port(&self) -> bool {
        matches!(self.0, Place::Inet { port: 0, .. })
    }

    /// Whether this is a socket of this machine.
    pub const fn is_unix(&self) -> bool {
        matches!(self.0, Place::Unix(_))
    }

    /// Whether this may be a socket of this machine. Only systemd knows about a socket that it passes.
    pub const fn may_be_unix(&self) -> bool {
        matches!(self.0, Place::Unix(_) | Place::Passed(_))
    }

    /// Whether this is a host and a port.
    pub const fn is_inet(&self) -> bool {
        matches!(self.0, Place::Inet { .. })
    }

    /// Whether clients speak QUIC at this address.
    pub const fn is_quic(&self) -> bool {
        matches!(self.0, Place::Inet { transport: Transport::Quic, .. })
    }

    /// Whether this is an address of IPv6 for certain, or a name, which may have one.
    pub const fn may_be_ipv6(&self) -> bool {
        matches!(self.0, Place::Inet { host: Host::Ip(IpAddr::V6(_)) | Host::Name(_), .. })
    }

    /// Whether only this machine can reach the address.
    ///
    /// A name other than `localhost` counts as reachable from outside, because the address of a name may change.
    pub fn is_loopback(&self) -> bool {
        match &self.0 {
            Place::Inet { host: Host::Ip(ip), .. } => ip.to_canonical().is_loopback(),
            Place::Inet { host: Host::Name(name), .. } => is_localhost(name),
            Place::Unix(_) => true,
            // Another program has chosen the address.
            Place::Passed(_) => false,
        }
    }

    /// Returns what to bind. `localhost` is always 127.0.0.1. Any other name is looked up, and its first address is used.
    ///
    /// # Errors
    /// If the name cannot be looked up or has no address.
    pub fn resolve(&self) -> io::Result<Binding> {
        let (transport, host, port) = match &self.0 {
            Place::Inet { transport, host, port } => (*transport, host, *port),
            Place::Unix(name) => return Ok(Binding::Unix(name.clone())),
            Place::Passed(name) => return Ok(Binding::Passed(name.clone())),
        };
        let address = match host {
            Host::Ip(ip) => SocketAddr::new(*ip, port),
            Host::Name(name) if is_localhost(name) => (Ipv4Addr::LOCALHOST, port).into(),
            Host::Name(name) => (name.as_str(), port)
                .to_socket_addrs()?
                .next()
                .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{name} has no address")))?,
        };
        Ok(match transport {
            Transport::Tcp => Binding::Inet(address),
            Transport::Quic => Binding::Quic(address),
        })
    }
}

/// RFC 6761 section 6.3: `localhost` is loopback, whatever address a resolver returns.
fn is_localhost(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost")
}

impl FromStr for ListenAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if let Some(name) = text.strip_prefix(UNIX) {
            return name.parse().map(|name| Self(Place::Unix(name)));
        }
        if let Some(name) = text.strip_prefix(SYSTEMD) {
            let is_name = (1..=PASSED_BYTES_MAX).contains(&name.len())
                && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':');
            return if is_name {
                Ok(Self(Place::Passed(name.to_owned())))
            } else {
                Err(AddressError::PassedName)
            };
        }
        let (transport, text) = match text.strip_prefix(QUIC) {
            Some(rest) => (Transport::Quic, rest),
            None => (Transport::Tcp, text),
        };
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Self(Place::Inet { transport, host: Host::Ip(address.ip()), port: address.port() }));
        }
        if text.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv4()) {
            return Err(AddressError::NoPort);
        }
        let (host, port) = text.rsplit_once(':').ok_or(AddressError::NoPort)?;
        if host.contains(':') {
            return Err(AddressError::Ipv6WithoutBrackets);
        }
        let port = port.parse().map_err(|_| AddressError::Port)?;
        if !is_host_name(host) {
            return Err(AddressError::Host);
        }
        Ok(Self(Place::Inet { transport, host: Host::Name(host.to_owned()), port }))
    }
}

impl FromStr for UnixName {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if text.len() > UNIX_BYTES_MAX || text.contains('\0') {
            return Err(AddressError::UnixName);
        }
        match text.strip_prefix('@') {
            Some("") => Err(AddressError::UnixName),
            Some(name) => Ok(Self::Abstract(name.to_owned())),
            None if text.starts_with('/') && !text.ends_with('/') => Ok(Self::File(text.into())),
            None => Err(AddressError::UnixName),
        }
    }
}

/// Checks a host name by RFC 1123 section 2.1. An underscore is allowed too, because container networks use it.
///
/// A last label of digits only is refused, because it belongs to a mistyped IPv4 address.
fn is_host_name(host: &str) -> bool {
    let label_is_valid = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    let last_is_number =
        host.rsplit('.').next().is_some_and(|label| label.bytes().all(|byte| byte.is_ascii_digit()));
    host.len() <= 253 && host.split('.').all(label_is_valid) && !last_is_number
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_quic() {
            f.write_str(QUIC)?;
        }
        match &self.0 {
            Place::Inet { host: Host::Ip(ip), port, .. } => SocketAddr::new(*ip, *port).fmt(f),
            Place::Inet { host: Host::Name(name), port, .. } => write!(f, "{name}:{port}"),
            Place::Unix(UnixName::File(path)) => write!(f, "{UNIX}{}", path.display()),
            Place::Unix(UnixName::Abstract(name)) => write!(f, "{UNIX}@{name}"),
            Place::Passed(name) => write!(f, "{SYSTEMD}{name}"),
        }
    }
}

/// Error of parsing a [`ListenAddress`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressError {
    /// The text does not end in `:PORT`.
    NoPort,
    /// The text after the last colon is not a number from 0 to 65,535.
    Port,
    /// The host is neither an IP address nor a host name.
    Host,
    /// An IPv6 address has no brackets, and therefore cannot be separated from the port.
    Ipv6WithoutBrackets,
    /// The name of a socket of this machine is neither an absolute path nor `@NAME`, or is too long.
    UnixName,
    /// The name of a socket that the service manager passes is empty, too long, or has other characters than ASCII.
    PassedName,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoPort => "the port is missing: write HOST:PORT, such as 127.0.0.1:1883",
            Self::Port => "the port must be a number from 0 to 65535 (0: any free port)",
            Self::Host => "the host must be an IP address or a host name",
            Self::PassedName => {
                "a socket from systemd is systemd:NAME, with the FileDescriptorName= of its unit"
            }
            Self::UnixName => {
                "a socket of this machine is unix:/PATH, or unix:@NAME on Linux, with at most 90 bytes"
            }
            Self::Ipv6WithoutBrackets => "an IPv6 address needs brackets: write [::1]:1883",
        })
    }
}

impl std::error::Error for AddressError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ListenAddress, AddressError> {
        text.parse()
    }

    #[test]
    fn every_form_prints_as_it_was_written() {
        for text in [
            "127.0.0.1:1883",
            "0.0.0.0:0",
            "[::1]:1883",
            "[::]:8883",
            "localhost:1883",
            "a-b.example_1.net:1",
            "unix:/run/pondhawk.sock",
            "unix:@pondhawk",
            "systemd:mqtt",
            "systemd:pondhawk.socket",
            "quic://0.0.0.0:14567",
            "quic://[::1]:0",
            "quic://broker.example:14567",
        ] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_bad_form_is_told_what_it_lacks() {
        for (text, error) in [
            ("127.0.0.1", AddressError::NoPort),
            ("localhost", AddressError::NoPort),
            ("", AddressError::NoPort),
            ("::1", AddressError::Ipv6WithoutBrackets),
            ("::1:1883", AddressError::Ipv6WithoutBrackets),
            ("localhost:65536", AddressError::Port),
            ("localhost:", AddressError::Port),
            (":1883", AddressError::Host),
            ("127.0.0.256:1883", AddressError::Host),
            ("a b:1883", AddressError::Host),
            ("tcp//x:1883", AddressError::Host),
            ("unix:", AddressError::UnixName),
            ("unix:pond.sock", AddressError::UnixName),
            ("unix:/run/", AddressError::UnixName),
            ("unix:@", AddressError::UnixName),
            ("unix:/a\0b", AddressError::UnixName),
            ("quic://127.0.0.1", AddressError::NoPort),
            ("quic:127.0.0.1:1", AddressError::Ipv6WithoutBrackets),
            ("quic://unix:/run/pond.sock", AddressError::Port),
            ("systemd:", AddressError::PassedName),
            ("systemd:a:b", AddressError::PassedName),
            ("systemd:a b", AddressError::PassedName),
            (format!("unix:/{}", "a".repeat(90)).as_str(), AddressError::UnixName),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn loopback_is_what_only_this_machine_reaches() {
        for (text, loopback) in [
            ("127.0.0.1:1", true),
            ("127.9.9.9:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("LOCALHOST:1", true),
            ("0.0.0.0:1", false),
            ("[::]:1", false),
            ("192.168.0.1:1", false),
            ("localhost.example:1", false),
            ("unix:/run/pondhawk.sock", true),
            ("quic://127.0.0.1:1", true),
            ("quic://0.0.0.0:1", false),
            ("systemd:mqtt", false),
        ] {
            assert_eq!(parse(text).unwrap().is_loopback(), loopback, "{text}");
        }
    }

    #[test]
    fn localhost_is_never_looked_up() {
        let binding = |text| parse(text).unwrap().resolve().unwrap();
        assert_eq!(binding("localhost:1883"), Binding::Inet(([127, 0, 0, 1], 1883).into()));
        assert_eq!(binding("quic://localhost:1883"), Binding::Quic(([127, 0, 0, 1], 1883).into()));
    }
}
