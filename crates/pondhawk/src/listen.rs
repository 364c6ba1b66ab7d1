//! Sockets and rules of listeners, from the configuration.

use std::io;
use std::sync::Arc;

use base::{CertificateName, Realm};
use config::{Binding, CertificateIdentity, Config, Listener, UnixIdentity, UnixName};
use layers::Stack;
use layers::quic::QuicLimits;
use net::{Acceptor, Admission, Entry, Mount, Naming, RateLimits, Rules, TcpOptions};
use protocol::Durability;
use session::Terms;
use wire::{Qos, Version};

use crate::limits::size;
use crate::passed::Passed;

/// The rules of a listener about users.
fn entry(listener: &Listener, realm: Realm) -> Entry {
    Entry {
        realm,
        allow_anonymous: listener.allow_anonymous,
        naming: match (listener.client_certificate_identity, listener.unix_identity) {
            (CertificateIdentity::None, UnixIdentity::None) => Naming::Connect,
            (CertificateIdentity::None, UnixIdentity::User) => Naming::Process,
            (CertificateIdentity::Cn, _) => Naming::Certificate(CertificateName::CommonName),
            (CertificateIdentity::Subject, _) => Naming::Certificate(CertificateName::Subject),
        },
    }
}

/// Opens the socket of a listener.
///
/// # Errors
/// As the system says. The text names the address, and often the cause.
pub(crate) fn open(listener: &Listener, passed: &mut Passed) -> io::Result<Acceptor> {
    let explain = |error: io::Error| {
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => "; another program uses it, perhaps another broker",
            io::ErrorKind::PermissionDenied => "; ports below 1024 are the administrator's",
            io::ErrorKind::AddrNotAvailable => "; no network interface of this machine has it",
            _ => "",
        };
        io::Error::new(error.kind(), format!("cannot listen on {}: {error}{hint}", listener.address))
    };
    bind(listener, passed).map_err(explain)
}

/// The rules of a listener, with its layers and the realm of its clients.
pub(crate) fn rules(listener: &Listener, stack: &Arc<Stack>, realm: Realm, counted_as: u16) -> Rules {
    let rates =
        RateLimits { total: listener.connection_rate, per_address: listener.connection_rate_per_address };
    let mount = listener
        .mount_point
        .as_deref()
        .map(|text| Mount::new(text).map(Arc::new).expect("the configuration has looked at it"));
    let durability = durability(listener.durability);
    let (terms, entry) = (terms(listener), entry(listener, realm));
    let admission = Admission { durability, terms, mount, entry, counted_as };
    Rules {
        admission,
        connections_max: listener.connections.map_or(usize::MAX, size),
        stack: Arc::clone(stack),
        proxy_from: listener.proxy_from.clone(),
        rates,
    }
}

fn terms(listener: &Listener) -> Terms {
    let version = |version: &config::MqttVersion| match version {
        config::MqttVersion::V3_1 => Version::V3_1,
        config::MqttVersion::V3_1_1 => Version::V3_1_1,
        config::MqttVersion::V5_0 => Version::V5,
    };
    let qos_max = match listener.max_qos {
        0 => Qos::AtMostOnce,
        1 => Qos::AtLeastOnce,
        _ => Qos::ExactlyOnce,
    };
    Terms::new(listener.protocol_versions.iter().map(version), qos_max)
        .with_retain(listener.retain_available)
        .with_wildcard_subscriptions(listener.wildcard_subscriptions_available)
        .with_empty_client_ids(listener.empty_client_ids)
}

fn bind(listener: &Listener, passed: &mut Passed) -> io::Result<Acceptor> {
    let backlog = i32::try_from(listener.backlog).unwrap_or(i32::MAX);
    match listener.address.resolve()? {
        Binding::Inet(address) => {
            let interface = listener.interface.as_deref();
            let options = TcpOptions { backlog, ipv6_only: listener.ipv6_only, interface };
            net::listen(address, options).map(Acceptor::Tcp)
        }
        Binding::Quic(address) => {
            let interface = listener.interface.as_deref();
            let options = TcpOptions { backlog, ipv6_only: listener.ipv6_only, interface };
            let limits = QuicLimits {
                handshakes_max: size(listener.quic_handshakes),
                buffer_bytes: listener.quic_buffer_bytes,
                streams_max: listener.quic_streams,
            };
            net::listen_quic(address, options, limits).map(Acceptor::Quic)
        }
        Binding::Passed(name) => {
            let socket = passed.take(&name)?;
            if listener.unix_identity != UnixIdentity::None && !matches!(socket, Acceptor::Unix(_)) {
                return Err(io::Error::other(
                    "`unix_identity` is for Unix sockets, and systemd has passed another one",
                ));
            }
            Ok(socket)
        }
        Binding::Unix(UnixName::Abstract(name)) => net::listen_abstract(&name, backlog).map(Acceptor::Unix),
        Binding::Unix(UnixName::File(path)) => {
            let owner = listener.unix_owner;
            let access = net::Access {
                mode: listener.unix_mode,
                user: owner.and_then(|owner| owner.user),
                group: owner.and_then(|owner| owner.group),
            };
            net::listen_unix(&path, access, backlog).map(Acceptor::Unix)
        }
    }
}

/// The address of a listener with its actual port.
pub(crate) fn bound(listener: &Listener, socket: &Acceptor) -> io::Result<String> {
    match socket {
        Acceptor::Tcp(socket) => socket.local_addr().map(|address| address.to_string()),
        Acceptor::Quic(socket) => socket.local_addr().map(|address| format!("quic://{address}")),
        Acceptor::Unix(_) if listener.address.is_unix() => Ok(listener.address.to_string()),
        Acceptor::Unix(_) => Ok(format!("unix socket from {}", listener.address)),
    }
}

/// The most that clients of any listener wait for.
pub(crate) fn durability_max(config: &Config) -> Durability {
    config.listeners.iter().map(|listener| durability(listener.durability)).max().unwrap_or_default()
}

fn durability(of_listener: config::Durability) -> Durability {
    match of_listener {
        config::Durability::Fsync => Durability::Fsync,
        config::Durability::Os => Durability::Os,
        config::Durability::None => Durability::None,
    }
}
