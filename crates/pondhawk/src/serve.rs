//! `pondhawk serve`: runs the broker.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;

use auth::{Guard, Realms};
use base::{Dispatch, Key};
use config::{Binding, CertificateIdentity, Config, Limits, Sessions, Shared, SharedKey, UnixName};
use layers::quic::QuicLimits;
use ledger::QueueFull;
use mosquitto::Kind;
use net::{
    Acceptor, Admission, CertificateName, Ended, Entry, Listening, Mount, Options, Orders, RateLimits,
    Server, TcpOptions,
};
use protocol::Durability;
use session::{Settings, Terms};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use wire::{Qos, Version};

use crate::access::AccessFiles;
use crate::admin::{MainThread, Prepared};
use crate::certificates::{self, Certificates, Files};
use crate::control::Controls;
use crate::file::Loaded;
use crate::passed::Passed;
use crate::privileges::Successor;
use crate::process::PidFile;
use crate::reload::Reload;
use crate::{FileLayer, banner, logging, process, stack, store, variables};

/// Runs the broker until SIGTERM or SIGINT, then disconnects its clients and returns.
///
/// # Errors
/// An address cannot be listened on, the system refuses a thread, or a thread fails.
pub(crate) fn serve(loaded: &Loaded, mut reload: Reload, file_layer: FileLayer) -> io::Result<()> {
    let config = &loaded.config;
    // Before any thread runs.
    let mut passed = Passed::from_environment();
    if process::is_detached() {
        process::begin_session();
    }
    let successor = Successor::of(config)?;
    // Lives until the function returns, on every path: dropping it writes the waiting lines.
    let log = logging::start(&config.log, successor.as_ref());
    // Before the server's threads start: from here on, a signal ends the broker in order.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let (mut access, realms) = AccessFiles::open(&config.listeners)?;
    // Files that change while they are read are found by the first look.
    let files: Vec<Files> = config.listeners.iter().map(Files::of).collect();
    let listeners = config
        .listeners
        .iter()
        .map(|listener| listen(listener, entry(listener, &access), &mut passed))
        .collect::<io::Result<Vec<_>>>()?;
    let admin = Prepared::open(config)?;
    let pairs = config.listeners.iter().zip(&listeners);
    let bound =
        pairs.map(|(listener, listening)| bound(listener, listening)).collect::<io::Result<Vec<String>>>()?;
    let current = listeners.iter().map(|listening| listening.stack.tls.clone());
    let watched = config.listeners.iter().cloned().zip(files).zip(current);
    let mut certificates =
        Certificates::watch(watched.map(|((listener, files), current)| (listener, files, current)).collect());
    let _pid_file = PidFile::write(config.pid_file.as_deref(), successor.is_some());
    if let Some(successor) = &successor {
        become_user(successor, config)?;
    }
    let store = store::open(config, file_layer)?;
    let (ended, events) = mpsc::channel();
    let mut options = options(config);
    options.guard = Arc::new(Guard::new(realms));
    options.instruments.extend(certificates.instruments());
    options.instruments.extend(access.instruments());
    let controls = access.dynamic_security().cloned().map(|file| controls(file, &mut options, &ended));
    let server = Server::start(listeners, &options, store, &ended)?;
    eprint!("{}", banner::text(config, &bound));
    let main_thread = Box::new(MainThread { in_force: reload.in_force(), events: ended.clone() });
    let admin = admin
        .map(|admin| admin.start(config, &banner::transports(config, &bound), server.operator(), main_thread))
        .transpose()?;
    admin.iter().flat_map(|(_, lines)| lines).for_each(|line| eprintln!("{line}"));
    tell_remarks(loaded);
    for name in variables::unknown(&crate::environment()) {
        tracing::warn!("the environment variable {name} sets no key");
    }
    process::notify_ready();
    forward(signals, ended);
    let access = (&mut access, controls.as_ref(), &server);
    let event = wait(&events, &mut certificates, access, || reload.run(&log));
    // Before the threads that it asks.
    drop(admin);
    match event {
        Some(Ended { thread }) if thread == SIGNAL => {
            tracing::info!("stopping");
            process::notify_stopping();
            server.shut_down()
        }
        Some(Ended { thread }) => {
            let failure = server.shut_down();
            Err(io::Error::other(format!("{thread} has stopped unexpectedly: {failure:?}")))
        }
        None => server.shut_down(),
    }
}

/// Gives up the rights of the superuser, after a last use of them for the data directory. Names the files that cannot be read
/// again from then on.
fn become_user(successor: &Successor, config: &Config) -> io::Result<()> {
    if let Some(path) = &config.data_dir {
        let explain = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot make {}: {error}", path.display()))
        };
        successor.make_data_dir(path).map_err(explain)?;
    }
    successor.take_over()?;
    for listener in &config.listeners {
        let certificates = certificates::paths(listener);
        for path in certificates.chain(&listener.password_file).chain(&listener.acl_file) {
            if let Err(error) = File::open(path) {
                tracing::error!(
                    %error,
                    "{} cannot be read by the `user` of this broker: changes of it, such as a user who is removed, have no \
                     effect before a restart",
                    path.display()
                );
            }
        }
    }
    Ok(())
}

/// Logs the lines of Mosquitto's files whose meaning is not exactly kept.
fn tell_remarks(loaded: &Loaded) {
    for remark in loaded.translated.iter().flat_map(|translation| &translation.remarks) {
        match remark.kind {
            Kind::Changed | Kind::NotYet => tracing::warn!("{remark}"),
            Kind::Ignored => tracing::info!("{remark}"),
        }
    }
}

/// Name of the event that reports a signal to stop.
const SIGNAL: &str = "signal";
/// Name of the event that reports SIGHUP.
pub(crate) const HANG_UP: &str = "hang-up";

/// Name of the event that reports commands of administrators.
const CONTROL: &str = "control";

/// Makes a place for commands of administrators, which the main thread carries out.
fn controls(file: PathBuf, options: &mut Options, ended: &mpsc::Sender<Ended>) -> Controls {
    let ended = ended.clone();
    // Nobody listens any more after the end.
    let wake = move || drop(ended.send(Ended { thread: CONTROL.to_owned() }));
    let orders = Arc::new(Orders::new(wake));
    options.orders = Some(Arc::clone(&orders));
    let controls = Controls::new(file, orders, Arc::clone(&options.guard));
    options.instruments.push(controls.instruments());
    controls
}

/// Waits for an event that ends the broker. Meanwhile the configuration, certificates, users and rules are read again, and
/// commands are carried out.
fn wait(
    events: &mpsc::Receiver<Ended>,
    certificates: &mut Certificates,
    (access, controls, server): (&mut AccessFiles, Option<&Controls>, &Server),
    mut reload: impl FnMut(),
) -> Option<Ended> {
    loop {
        let event = if certificates.is_empty() && access.is_empty() {
            events.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            events.recv_timeout(certificates::INTERVAL)
        };
        match event {
            Ok(Ended { thread }) if thread == HANG_UP => {
                reload();
                certificates.read_again();
                let realms = access.read_again();
                use_realms(realms, access, server);
            }
            Ok(Ended { thread }) if thread == CONTROL => {
                if controls.is_some_and(|controls| controls.run(server)) {
                    access.count_users(&server.realms());
                }
            }
            Ok(ended) => return Some(ended),
            Err(RecvTimeoutError::Timeout) => {
                certificates.look();
                let realms = access.look();
                use_realms(realms, access, server);
            }
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
}

fn use_realms(realms: Option<Realms>, access: &AccessFiles, server: &Server) {
    if let Some(realms) = realms {
        server.replace_realms(realms);
        access.tell_in_use();
    }
}

fn forward(mut signals: Signals, to: mpsc::Sender<Ended>) {
    thread::spawn(move || {
        let mut is_stopping = false;
        for signal in signals.forever() {
            match signal {
                SIGHUP => drop(to.send(Ended { thread: HANG_UP.to_owned() })),
                // A second signal ends the process at once, without disconnecting clients.
                _ if is_stopping => std::process::exit(1),
                _ => {
                    is_stopping = true;
                    drop(to.send(Ended { thread: SIGNAL.to_owned() }));
                }
            }
        }
    });
}

/// The rules of a listener about users.
fn entry(listener: &config::Listener, access: &AccessFiles) -> Entry {
    Entry {
        realm: access.realm(listener),
        allow_anonymous: listener.allow_anonymous,
        certificate: match listener.client_certificate_identity {
            CertificateIdentity::None => None,
            CertificateIdentity::Cn => Some(CertificateName::CommonName),
            CertificateIdentity::Subject => Some(CertificateName::Subject),
        },
    }
}

fn listen(listener: &config::Listener, entry: Entry, passed: &mut Passed) -> io::Result<Listening> {
    let explain = |error: io::Error| {
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => "; another program uses it, perhaps another broker",
            io::ErrorKind::PermissionDenied => "; ports below 1024 are the administrator's",
            io::ErrorKind::AddrNotAvailable => "; no network interface of this machine has it",
            _ => "",
        };
        io::Error::new(error.kind(), format!("cannot listen on {}: {error}{hint}", listener.address))
    };
    let stack = Arc::new(stack::of(listener)?);
    let socket = bind(listener, passed).map_err(explain)?;
    let proxy_from = listener.proxy_from.clone();
    let rates =
        RateLimits { total: listener.connection_rate, per_address: listener.connection_rate_per_address };
    let mount = listener
        .mount_point
        .as_deref()
        .map(|text| Mount::new(text).map(Arc::new).expect("the configuration has looked at it"));
    let durability = durability(listener.durability);
    let admission = Admission { durability, terms: terms(listener), mount, entry };
    let connections_max = listener.connections.map_or(usize::MAX, size);
    Ok(Listening { socket, admission, connections_max, stack, proxy_from, rates })
}

fn terms(listener: &config::Listener) -> Terms {
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

fn bind(listener: &config::Listener, passed: &mut Passed) -> io::Result<Acceptor> {
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
            };
            net::listen_quic(address, options, limits).map(Acceptor::Quic)
        }
        Binding::Passed(name) => passed.take(&name),
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
fn bound(listener: &config::Listener, listening: &Listening) -> io::Result<String> {
    match &listening.socket {
        Acceptor::Tcp(socket) => socket.local_addr().map(|address| address.to_string()),
        Acceptor::Quic(socket) => socket.local_addr().map(|address| format!("quic://{address}")),
        Acceptor::Unix(_) if listener.address.is_unix() => Ok(listener.address.to_string()),
        Acceptor::Unix(_) => Ok(format!("unix socket from {}", listener.address)),
    }
}

pub(crate) fn durability(of_listener: config::Durability) -> Durability {
    match of_listener {
        config::Durability::Fsync => Durability::Fsync,
        config::Durability::Os => Durability::Os,
        config::Durability::None => Durability::None,
    }
}

fn options(config: &Config) -> Options {
    let limits = &config.limits;
    Options {
        shards: usize::from(config.shards),
        settings: settings(limits, &config.sessions),
        limits: net::Limits {
            connections_max: size(limits.connections),
            high_water_bytes: size(limits.output_buffer_bytes),
            waiting_bytes_max: size(limits.waiting_bytes),
            memory_bytes_max: size(limits.memory_budget_bytes),
        },
        ledger: ledger(limits, &config.sessions, &config.shared),
        sys_interval_ms: config.sys.interval.map(millis),
        guard: Arc::default(),
        orders: None,
        instruments: Vec::new(),
    }
}

fn settings(limits: &Limits, sessions: &Sessions) -> Settings {
    Settings {
        packet_bytes_max: limits.packet_bytes,
        connect_packet_bytes_max: limits.connect_packet_bytes,
        connect_user_properties_max: size(limits.connect_user_properties),
        topic_levels_max: usize::from(limits.topic_levels),
        client_id_bytes_max: usize::from(limits.client_id_bytes),
        will_bytes_max: size(limits.will_bytes),
        subscriptions_max: size(limits.subscriptions_per_client),
        deep_shapes_max: size(limits.wildcard_shapes),
        deep_shapes_per_client_max: size(limits.wildcard_shapes_per_client),
        topic_alias_max: limits.topic_alias_maximum,
        topic_alias_out_max: limits.topic_alias_maximum_out,
        receive_max: sessions.receive_maximum,
        inflight_max: sessions.inflight_messages,
        inflight_max_3: sessions.inflight_messages_3,
        waiting_messages_max: size(sessions.queue_messages),
        waiting_bytes_max: size(sessions.queue_bytes),
        session_expiry_secs_max: sessions
            .expiry_max
            .map_or(u32::MAX, |longest| u32::try_from(longest.as_secs()).unwrap_or(u32::MAX)),
        check_payload_format: sessions.check_payload_format,
        keep_alive_secs_max: limits
            .keep_alive
            .map_or(0, |longest| u16::try_from(longest.as_secs()).unwrap_or(u16::MAX)),
        connect_timeout_ms: millis(limits.connect_timeout),
        ..Settings::default()
    }
}

fn ledger(limits: &Limits, sessions: &Sessions, shared: &Shared) -> ledger::Settings {
    ledger::Settings {
        retained_bytes_max: size(limits.retained_bytes),
        sessions_max: size(sessions.lasting_max),
        queue_messages_max: size(sessions.queue_messages),
        queue_bytes_max: size(sessions.queue_bytes),
        queued_bytes_in_memory: size(limits.queued_bytes_in_memory),
        shared_subscriptions_max: size(limits.shared_subscriptions_per_client),
        groups_per_filter_max: size(limits.groups_per_filter),
        queue_full: match sessions.queue_full {
            config::QueueFull::EndSession => QueueFull::EndSession,
            config::QueueFull::Refuse => QueueFull::Refuse,
            config::QueueFull::DropOldest => QueueFull::DropOldest,
            config::QueueFull::DropNewest => QueueFull::DropNewest,
        },
        dispatch: match (shared.dispatch, &shared.key) {
            (config::Dispatch::RoundRobin, _) => Dispatch::RoundRobin,
            (config::Dispatch::KeyOrdered, SharedKey::Publisher) => Dispatch::KeyOrdered(Key::Publisher),
            (config::Dispatch::KeyOrdered, SharedKey::Property(name)) => {
                Dispatch::KeyOrdered(Key::Property(name.as_str().into()))
            }
        },
        ..ledger::Settings::default()
    }
}

fn size(number: impl TryInto<usize>) -> usize {
    number.try_into().unwrap_or(usize::MAX)
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
