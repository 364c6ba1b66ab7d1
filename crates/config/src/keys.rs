//! All keys of the configuration file, each declared once.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

use crate::acme::Acme;
use crate::address::ListenAddress;
use crate::admin::Admin;
use crate::jwt::Jwt;
use crate::kind::{
    Absent, Address, Choice, Count, Interface, KeyOf, ListOf, Mode, MountPoint, Network, OrOff, Origin,
    OwnerIds, Path, Pattern, Size, Switch, Target, Time, UrlPath, UserName, Words,
};
use crate::log::{LogFormat, LogLevel, LogTarget};
use crate::machine::Machine;
use crate::otlp::Otlp;
use crate::schema::{Table, keys};
use crate::services::{HttpAuth, Ldap, Vouchers};
use crate::shared_key::SharedKey;

/// Describes every table of the file, in the order of the manual.
pub fn tables() -> Vec<Table> {
    vec![
        Global::describe(),
        Auth::describe(),
        Jwt::describe(),
        HttpAuth::describe(),
        Ldap::describe(),
        Acme::describe(),
        Listener::describe(),
        Limits::describe(),
        Sessions::describe(),
        Shared::describe(),
        Journal::describe(),
        Log::describe(),
        Sys::describe(),
        Admin::describe(),
        Otlp::describe(),
    ]
}

keys! {
    /// These keys stand at the top of the file, before the first table.
    pub(crate) struct Global = "", applies Restart, given(machine: &Machine) {
        /// Other files of the configuration, whose keys count as if they were in this file. A relative path begins at the directory
        /// of the file that names it. In the name of a file, `*` stands for any characters and `?` for one. The directory must
        /// exist. Files that match are read in the order of their names, and hidden files do not match. Each key is in one file
        /// only, and listeners add up. An included file may include others: 100 files in all, in chains of at most 4, of at most
        /// 16 MiB each.
        include: Vec<String> { kind: ListOf<Pattern>, default: Vec::new(), applies: Reload }
        /// Whether clients may connect without proving who they are, for every listener that does not say so itself. A client
        /// that gives a user name must know the password in any case, where there is a password file. Without users and without
        /// this key, the broker serves clients of this machine only: it listens on the loopback address instead of others.
        allow_anonymous: Option<bool> {
            kind: Absent<Switch>, auto: None, "true on loopback addresses without users, otherwise false",
            applies: Reload,
        }
        /// How many threads carry connections. Each reads, routes and writes for its own share of them.
        shards: u16 {
            kind: Count<u16>, auto: machine.cores.clamp(1, SHARDS_MAX), "one per core", bounds: 1..=SHARDS_MAX
        }
        /// The directory for what survives a restart: sessions that outlive their connections, with their queues, and
        /// retained messages. One broker at a time uses it. Off: all of that is in memory only, and a restart forgets it.
        data_dir: Option<PathBuf> {
            kind: OrOff<Path>, auto: Some(machine.state_dir.clone()),
            "`$STATE_DIRECTORY`, `$XDG_STATE_HOME/pondhawk`, `~/.local/state/pondhawk` or `/var/lib/pondhawk`, whatever there is first",
        }
        /// The user whose rights the broker has after it has opened its listeners, certificates and log, if the superuser
        /// starts it. A data directory that does not exist yet is made for this user. Without this key the broker keeps the
        /// rights with which it was started. For any other user than the superuser the key has no effect.
        user: Option<String> { kind: Absent<UserName>, default: None }
        /// The file into which the broker writes the number of its process. The file is removed at the end.
        pid_file: Option<PathBuf> { kind: Absent<Path>, default: None }
        /// How often the broker looks whether the files of its configuration have changed. Files that have changed, and have then
        /// stayed as they are for this time, are read as after SIGHUP. Off: only SIGHUP and the admin server make the broker read
        /// them. Certificates, password files and rules are looked at in any case.
        watch_interval: Option<Duration> {
            kind: OrOff<Time>, default: None,
            bounds: WATCH_INTERVALS,
            applies: Reload,
        }
    }
}

/// The bounds of the time between two looks at files.
pub(crate) const WATCH_INTERVALS: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(3_600);

/// Maximum number of shards. A shard that waits for another shard sets its own bit in a word of 64 bits.
const SHARDS_MAX: u16 = 64;

keys! {
    /// Users and rules, for every listener that does not name files of its own. The files are read again after SIGHUP, and
    /// when they have changed. New rules hold for the next message. Clients whose user was removed, or has another password,
    /// are disconnected. If one of the files has a mistake, all of them stay as they were.
    pub struct Auth = "[auth]", applies Reload, given() {
        /// The file with users and the hashes of their passwords, in the format of mosquitto_passwd. `pondhawk user add` makes
        /// one.
        password_file: Option<PathBuf> { kind: OrOff<Path>, default: None }
        /// The file with the topics that clients may use, in the format of Mosquitto's `acl_file`. With such a file, everything
        /// is forbidden that it does not allow. Without one, everything is allowed.
        acl_file: Option<PathBuf> { kind: OrOff<Path>, default: None }
        /// The file with our own rules, in TOML: roles, groups, and the users who have them. With such a file, everything is
        /// forbidden that it does not allow. A listener has either `rules_file` or `acl_file`.
        rules_file: Option<PathBuf> { kind: OrOff<Path>, default: None }
        /// The file of Mosquitto's dynamic security, `dynamic-security.json`: clients, groups and roles, which `mosquitto_ctrl
        /// dynsec` changes while the broker runs. It decides first about the clients that are in it. `mosquitto_ctrl dynsec
        /// init` makes one.
        dynamic_security_file: Option<PathBuf> { kind: OrOff<Path>, default: None, applies: Restart }
    }
}

keys! {
    /// The addresses to which clients connect; one `[[listener]]` for each address. Without any, the broker listens on
    /// 127.0.0.1:1883.
    pub struct Listener = "[[listener]]", applies Connect, given(allow_anonymous_global: Option<bool>, auth: &Auth, vouchers: Vouchers<'_>, acme_file: Option<&std::path::Path>) {
        /// The host and port to listen on. Use `0.0.0.0:1883` for every IPv4 address of the machine and `[::]:1883` for every
        /// IPv6 address. Port 0 takes a free port. A host name is looked up once, at start-up. `quic://0.0.0.0:14567` is for
        /// clients that speak QUIC (over UDP), with a certificate. `unix:/run/pondhawk.sock` is a socket that programs of this
        /// machine reach, and `unix:@pondhawk` one without a file, on Linux. Such a name has at most 90 bytes. `systemd:NAME`
        /// is a socket that systemd has made and passes, from the unit with `FileDescriptorName=NAME`.
        address: ListenAddress { kind: Address, required: ListenAddress::loopback(0), applies: Reload }
        /// The file with the users of this listener.
        password_file: Option<PathBuf> {
            kind: OrOff<Path>, auto: auth.password_file.clone(), "`password_file` of `[auth]`",
            applies: Reload,
        }
        /// The file with the topics that clients may use here. Rules see whole topics, with the mount point.
        acl_file: Option<PathBuf> {
            kind: OrOff<Path>, auto: auth.acl_file.clone(), "`acl_file` of `[auth]`", applies: Reload
        }
        /// The file with our own rules for the clients of this listener.
        rules_file: Option<PathBuf> {
            kind: OrOff<Path>, auto: auth.rules_file.clone(), "`rules_file` of `[auth]`", applies: Reload
        }
        /// The file of dynamic security for this listener. All listeners that have one have the same.
        dynamic_security_file: Option<PathBuf> {
            kind: OrOff<Path>, auto: auth.dynamic_security_file.clone(), "`dynamic_security_file` of `[auth]`",
            applies: Restart,
        }
        /// Whether a password may be a token here, by the rules of `[jwt]`.
        jwt: bool { kind: Switch, auto: vouchers.jwt.has_keys(), "whether `[jwt]` names keys", applies: Reload }
        /// Whether the service of `[http_auth]` is asked about users here.
        http_auth: bool {
            kind: Switch, auto: vouchers.http.url.is_some(), "whether `[http_auth]` has a URL", applies: Reload
        }
        /// Whether the directory of `[ldap]` is asked about users here.
        ldap: bool { kind: Switch, auto: vouchers.ldap.url.is_some(), "whether `[ldap]` has a URL", applies: Reload }
        /// The part of a client's certificate that is its user name. `cn`: the common name. `subject`: the whole subject, such as
        /// `CN=ann,O=Pond`. The certificate takes the place of user name and password in CONNECT. A client without exactly one
        /// such name is refused. `none`: the certificate says nothing about the user.
        client_certificate_identity: CertificateIdentity {
            kind: Choice<CertificateIdentity>, default: CertificateIdentity::None,
            applies: Reconnect,
        }
        /// The part of a process that is its user name, at a Unix socket, on Linux. `user`: the login name of its user, as the
        /// system knows it. The name takes the place of user name and password in CONNECT. A process whose user has no login
        /// name here is refused. `none`: the process says nothing about the user.
        unix_identity: UnixIdentity {
            kind: Choice<UnixIdentity>, default: UnixIdentity::None,
            applies: Reconnect,
        }
        /// Whether clients may connect here without proving who they are.
        allow_anonymous: bool {
            kind: Switch,
            auto: allow_anonymous_global.unwrap_or_else(|| {
                let has_users = password_file.is_some()
                    || dynamic_security_file.is_some()
                    || jwt
                    || http_auth
                    || ldap
                    || client_certificate_identity != CertificateIdentity::None
                    || unix_identity != UnixIdentity::None;
                address.is_loopback() && !has_users
            }),
            "the global `allow_anonymous`",
            applies: Reload,
        }
        /// The condition for an acknowledgement to clients that connect here. `fsync`: its promise is on stable storage, and
        /// survives a loss of power. `os`: the operating system has the data, which survives the end of the broker. A loss of
        /// power can undo everything that was acknowledged since the last sync, under load as much as a segment. `none`: no
        /// condition; the end of the broker too can undo acknowledgements of its last moments. The same data is recorded in
        /// each case.
        durability: Durability { kind: Choice<Durability>, default: Durability::Fsync }
        /// The protocol of clients that connect here. `auto`: MQTT or MQTT over WebSocket, as the first byte of each connection says. `mqtt` and
        /// `websocket`: only that. With a certificate, the same inside of TLS.
        protocol: Protocol { kind: Choice<Protocol>, default: Protocol::Auto }
        /// Whether the listener has the certificate of `[acme]`, which the broker obtains and renews. Until the first certificate is
        /// there, TLS handshakes are refused.
        tls_acme: bool { kind: Switch, default: false }
        /// The files with the server's certificates, in PEM. Each has the certificate first, and behind it those of the
        /// authorities that have signed it. With a certificate the listener speaks TLS. Of several, a client gets the first
        /// that is valid for the host name that it asks for, or the first of all.
        tls_certificate: Vec<PathBuf> {
            kind: ListOf<Path>, auto: acme_file.filter(|_| tls_acme).map(PathBuf::from).into_iter().collect(),
            "a file in `data_dir` with `tls_acme`, otherwise none",
        }
        /// The files with the private keys, in PEM, one for each certificate in the same order.
        tls_key: Vec<PathBuf> {
            kind: ListOf<Path>, auto: acme_file.filter(|_| tls_acme).map(PathBuf::from).into_iter().collect(),
            "a file in `data_dir` with `tls_acme`, otherwise none",
        }
        /// The lowest version of TLS that is spoken here.
        tls_minimum: TlsVersion { kind: Choice<TlsVersion>, default: TlsVersion::V1_2 }
        /// Whether clients may also connect without TLS, although there is a certificate.
        tls_optional: bool { kind: Switch, default: false, applies: Reconnect }
        /// Whether clients show a certificate. `off`: they are not asked. `optional`: they may. `required`: they must. A
        /// certificate that no authority in `tls_client_ca` has signed ends the connection.
        tls_client_certificate: ClientCertificate {
            kind: Choice<ClientCertificate>, default: ClientCertificate::Off,
            applies: Reconnect,
        }
        /// The files with the certificates of the authorities that sign the certificates of clients, in PEM.
        tls_client_ca: Vec<PathBuf> { kind: ListOf<Path>, default: Vec::new(), applies: Reconnect }
        /// The files with lists of revoked client certificates (CRL), in PEM.
        tls_client_crl: Vec<PathBuf> { kind: ListOf<Path>, default: Vec::new() }
        /// The path in the URL of WebSocket clients. Without this key every path is accepted.
        websocket_path: Option<String> { kind: Absent<UrlPath>, default: None }
        /// The origins of the web pages whose scripts may connect. Without this key every origin is accepted. Clients that are
        /// no web pages send no origin, and are accepted in any case.
        websocket_origins: Vec<String> { kind: ListOf<Origin>, default: Vec::new() }
        /// The networks from which load balancers connect, each connection beginning with a header of the PROXY protocol that
        /// names the client. With this key every other connection is closed.
        proxy_from: Vec<IpNet> { kind: ListOf<Network>, default: Vec::new(), applies: Reconnect }
        /// QUIC handshakes at a time that are not complete. From a quarter of them on, a client has to prove that it receives at
        /// the address that it sends from. A proven address has at most an eighth of them at a time; 64 bits of IPv6 count as one
        /// address. Above these limits, connections are refused, and counted under `$SYS/broker/refused/quic_handshakes`.
        quic_handshakes: u32 { kind: Count<u32>, default: 1000, bounds: 1..=1 << 16, applies: Restart }
        /// The most that a QUIC client may send on a stream before it is read, and the most that is sent to a client on all streams
        /// before it is acknowledged. In the time of one round trip, a stream transfers at most this much.
        quic_buffer_bytes: u32 {
            kind: Size<u32>, default: 256 * KIB, bounds: 16 * KIB..=16 * MIB, applies: Restart
        }
        /// Streams that a QUIC client may have open at a time. The first one begins and ends the session. A packet on a further
        /// stream is kept until all of it has arrived, up to 16 KiB for each stream.
        quic_streams: u32 { kind: Count<u32>, default: 8, bounds: 1..=64, applies: Restart }
        /// The network interface of this listener, such as `eth0`, on Linux. Connections over another interface do not reach it,
        /// also if they are for the same address. Connections from this machine come over `lo`.
        interface: Option<String> { kind: Absent<Interface>, default: None, applies: Restart }
        /// Whether an address of IPv6 is for IPv6 alone. With `false`, `[::]:1883` accepts IPv4 too, and the log names clients
        /// of IPv4 by their addresses of IPv4.
        ipv6_only: bool { kind: Switch, default: true, applies: Restart }
        /// The permissions of the file of a Unix socket, in octal digits. Programs that may write to the file can connect.
        unix_mode: u32 { kind: Mode, default: 0o660, applies: Restart }
        /// The numbers of the user and the group that own the file of a Unix socket, such as `1000:1000`, `1000` or `:1000`.
        /// Only the superuser may name another user, or a group of which the broker is no member.
        unix_owner: Option<Owner> { kind: Absent<OwnerIds>, default: None, applies: Restart }
        /// Connections that the system keeps for the broker while the broker is busy. Linux also has a limit for all programs,
        /// `net.core.somaxconn`.
        backlog: u32 { kind: Count<u32>, default: 4096, bounds: 1..=1 << 20, applies: Restart }
        /// The most connections at a time that clients have here. Others are closed, and counted under
        /// `$SYS/broker/refused/listener_connections`. Without this key only `limits.connections` bounds them.
        connections: Option<u32> {
            kind: Absent<Count<u32>>, default: None, bounds: 1..=CONNECTIONS_MAX, applies: Reload
        }
        /// Connections that are accepted in a second. Others are closed, and counted under `$SYS/broker/refused/connection_rate`.
        /// Without this key all are accepted.
        connection_rate: Option<u32> {
            kind: Absent<Count<u32>>, default: None, bounds: 1..=1_000_000, applies: Reload
        }
        /// The same for the connections from each address. Addresses of IPv6 with the same first 64 bits are one address. With
        /// `proxy_from`, the address is that of the load balancer.
        connection_rate_per_address: Option<u32> {
            kind: Absent<Count<u32>>, default: None, bounds: 1..=1_000_000,
            applies: Reload,
        }
        /// The versions of MQTT that clients may speak here. A CONNECT with another one is refused with reason code 0x84, or 0x01
        /// before MQTT 5.0, and counted under `$SYS/broker/refused/protocol_version`.
        protocol_versions: Vec<MqttVersion> {
            kind: ListOf<Choice<MqttVersion>>,
            default: vec![MqttVersion::V3_1, MqttVersion::V3_1_1, MqttVersion::V5_0],
        }
        /// The highest QoS that clients may publish with here, and that their subscriptions are granted. MQTT 5.0 clients are told
        /// as Maximum QoS. The connection of a client that publishes with a higher one is ended, with reason code 0x9B in
        /// MQTT 5.0, and counted under `$SYS/broker/ended/qos`.
        max_qos: u8 { kind: Count<u8>, default: 2, bounds: 0..=2 }
        /// Whether clients may publish retained messages here, and get retained messages when they subscribe. The connection of a
        /// client that publishes one although it may not is ended, with reason code 0x9A in MQTT 5.0, and counted under
        /// `$SYS/broker/ended/retain`.
        retain_available: bool { kind: Switch, default: true }
        /// Whether clients may subscribe here to filters with wildcards. Such a subscription is refused, with reason code 0xA2 in
        /// MQTT 5.0.
        wildcard_subscriptions_available: bool { kind: Switch, default: true }
        /// Whether clients may leave the client identifier empty, so that the broker makes one. Otherwise such a CONNECT is refused
        /// with reason code 0x85, or 0x02 before MQTT 5.0.
        empty_client_ids: bool { kind: Switch, default: true }
        /// The beginning of the topics that clients can reach here, such as `house/`. It stands before every topic and filter that
        /// they send, and is cut from the topics that they get.
        mount_point: Option<String> { kind: Absent<MountPoint>, default: None, applies: Reconnect }
    }
}

/// A version of MQTT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MqttVersion {
    /// MQTT 3.1, which CONNECT calls 3.
    V3_1,
    /// MQTT 3.1.1, which CONNECT calls 4.
    V3_1_1,
    /// MQTT 5.0.
    V5_0,
}

impl Words for MqttVersion {
    const WORDS: &'static [(&'static str, Self)] =
        &[("3.1", Self::V3_1), ("3.1.1", Self::V3_1_1), ("5.0", Self::V5_0)];
}

/// The owner of a file, by numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The user. `None` is the user of the broker.
    pub user: Option<u32>,
    /// The group. `None` is the group of the broker.
    pub group: Option<u32>,
}

/// The protocol of a listener's clients, above TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// MQTT, or MQTT over WebSocket, as the first byte says.
    Auto,
    /// MQTT alone, without WebSocket.
    Mqtt,
    /// MQTT over WebSocket alone.
    WebSocket,
}

impl Words for Protocol {
    const WORDS: &'static [(&'static str, Self)] =
        &[("auto", Self::Auto), ("mqtt", Self::Mqtt), ("websocket", Self::WebSocket)];
}

/// The part of a client's certificate that is its user name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateIdentity {
    /// No part of it says who the user is.
    None,
    /// The common name of the subject.
    Cn,
    /// The whole subject, as RFC 2253 writes it.
    Subject,
}

impl Words for CertificateIdentity {
    const WORDS: &'static [(&'static str, Self)] =
        &[("none", Self::None), ("cn", Self::Cn), ("subject", Self::Subject)];
}

/// The part of a process that is its user name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnixIdentity {
    /// No part of it says who the user is.
    None,
    /// The login name of its user.
    User,
}

impl Words for UnixIdentity {
    const WORDS: &'static [(&'static str, Self)] = &[("none", Self::None), ("user", Self::User)];
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsVersion {
    /// RFC 5246.
    V1_2,
    /// RFC 8446.
    V1_3,
}

impl Words for TlsVersion {
    const WORDS: &'static [(&'static str, Self)] = &[("1.2", Self::V1_2), ("1.3", Self::V1_3)];
}

/// Whether clients show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientCertificate {
    /// Clients are not asked for one.
    Off,
    /// Clients may show one.
    Optional,
    /// Clients must show one.
    Required,
}

impl Words for ClientCertificate {
    const WORDS: &'static [(&'static str, Self)] =
        &[("off", Self::Off), ("optional", Self::Optional), ("required", Self::Required)];
}

/// The guarantee that an acknowledgement waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// The record is on stable storage, and survives a loss of power.
    Fsync,
    /// The operating system has the record, which survives the end of the broker.
    Os,
    /// The acknowledgement waits for nothing, and the record may be lost with the broker.
    None,
}

impl Words for Durability {
    const WORDS: &'static [(&'static str, Self)] =
        &[("fsync", Self::Fsync), ("os", Self::Os), ("none", Self::None)];
}

/// Maximum number of connections. Kernels allow a process fewer descriptors by default, and 32-bit counters suffice.
const CONNECTIONS_MAX: u32 = 16_777_216;

keys! {
    /// The limits of one client, and of all clients together. Nothing is unbounded. Each bound that is reached is
    /// counted under `$SYS`, and the client that caused it is told with a reason code, if its protocol version has one.
    pub struct Limits = "[limits]", applies Reload, given(machine: &Machine) {
        /// The largest control packet that is accepted, fixed header included; MQTT 5.0 clients are told as Maximum
        /// Packet Size. A larger one is refused when its fixed header has been read, before it takes up memory.
        packet_bytes: u32 {
            kind: Size<u32>, default: 2 * MIB, bounds: KIB..=PACKET_BYTES_MAX,
            applies: Connect,
        }
        /// The largest CONNECT packet, will included: the most that somebody unknown can make the broker hold.
        connect_packet_bytes: u32 {
            kind: Size<u32>, default: 256 * KIB, bounds: KIB..=PACKET_BYTES_MAX,
            applies: Connect,
        }
        /// The most User Properties of a CONNECT packet, and of the will in it: each may be empty, so that the packet's
        /// size bounds them badly. A client that has more is refused with reason code 0x97.
        connect_user_properties: u32 {
            kind: Count<u32>, default: 10_000, bounds: 0..=100_000_000, applies: Connect
        }
        /// Questions about users that servers elsewhere (`[http_auth]`, `[ldap]`) are asked at the same time. Others wait, for at
        /// most five seconds.
        user_questions: u16 { kind: Count<u16>, default: 8, bounds: 1..=256, applies: Restart }
        /// How many users have their messages counted one by one, as `pondhawk ctl traffic` shows them. A user on two listeners
        /// counts as two. All other users of a listener are counted together, and so are users with names of more than 256
        /// bytes. A user without connections makes room for a new one.
        counted_users: u16 { kind: Count<u16>, default: 1_024, bounds: 0..=16_384, applies: Restart }
        /// The time from opening a connection to the end of its CONNECT packet; then it is closed.
        connect_timeout: Duration {
            kind: Time, default: Duration::from_secs(10),
            bounds: Duration::from_millis(100)..=Duration::from_secs(3_600),
        }
        /// The longest Keep Alive. A client that asks for more, or for none at all, gets this one: MQTT 5.0 clients are
        /// told as Server Keep Alive, others are held to it in silence. Off: every client gets what it asks for. A client is
        /// ended for silence only when nothing of it waits to be read. After the broker itself has not run for a second or
        /// more (a suspended machine), silence counts from the end of that time on. Session expiry, Will Delay Interval and
        /// message expiry go on meanwhile, because MQTT counts them on the clock.
        keep_alive: Option<Duration> {
            kind: OrOff<Time>, default: None, bounds: Duration::from_secs(1)..=Duration::from_secs(65_535),
            applies: Connect,
        }
        /// The most connections at a time. The broker raises its open-file limit as far as the system lets it and keeps 64
        /// files for itself; one connection takes one. A connection that does nothing takes about 1.5 KiB of
        /// `memory_budget_bytes`, and is never ended for that. If strangers can connect, choose a bound that leaves half of
        /// that memory for other purposes.
        connections: u32 {
            kind: Count<u32>,
            auto: u32::try_from(machine.open_files.saturating_sub(RESERVED_FILES))
                .unwrap_or(u32::MAX)
                .clamp(1, CONNECTIONS_MAX),
            "what the open-file limit allows",
            bounds: 1..=CONNECTIONS_MAX,
        }
        /// The longest client identifier. Names and UUIDs fit many times; the standard's own bound is 65,535, and a
        /// broker must accept 23.
        client_id_bytes: u16 { kind: Size<u16>, default: 1_024, bounds: 23..=u16::MAX, applies: Connect }
        /// The most levels in a topic name or topic filter: `a/b/c` has three.
        topic_levels: u16 { kind: Count<u16>, default: 128, bounds: 1..=u16::MAX }
        /// The most subscriptions of one session; a filter beyond is refused with reason code 0x97 (0x80 in MQTT 3.1.1).
        /// A gateway or a dashboard holds some thousands; the default leaves room for the largest and still keeps one
        /// client from filling the memory.
        subscriptions_per_client: u32 {
            kind: Count<u32>, default: 100_000, bounds: 1..=100_000_000
        }
        /// The most shared subscriptions of one session; one more is refused with reason code 0x97 (0x80 in MQTT 3.1.1). A
        /// message goes to every group whose filter matches, so this bounds what one client can make a message cost.
        shared_subscriptions_per_client: u32 {
            kind: Count<u32>, default: 100, bounds: 0..=100_000_000
        }
        /// The most groups on one topic filter, that is the most share names NAME in `$share/NAME/filter`. One more is refused
        /// with reason code 0x97 (0x80 in MQTT 3.1.1); whoever joins a group that exists is not. One client can begin at
        /// most half of them.
        groups_per_filter: u32 { kind: Count<u32>, default: 1_000, bounds: 0..=100_000_000 }
        /// How many different arrangements of wildcards the filters of more than six levels may have, those of all clients
        /// together: `+` in the second and the last level is one, whatever the names are. A message to a topic of so many
        /// levels is looked up once for each. A filter that would add one is refused with reason code 0x97 (0x80 in MQTT
        /// 3.1.1).
        wildcard_shapes: u32 { kind: Count<u32>, default: 1_000, bounds: 0..=100_000_000 }
        /// The most of them that the filters of one client may have, so that no client can use up what is there for all. A
        /// filter that would add one is refused in the same way.
        wildcard_shapes_per_client: u32 {
            kind: Count<u32>,
            auto: (wildcard_shapes / 5).max(1),
            "a fifth of `wildcard_shapes`",
            bounds: 0..=100_000_000,
        }
        /// How many topic aliases a client may use towards the broker on one connection (MQTT 5.0 Topic Alias Maximum).
        /// Each holds a topic name in memory.
        topic_alias_maximum: u16 { kind: Count<u16>, default: 16, bounds: 0..=u16::MAX, applies: Connect }
        /// How many topic aliases the broker uses towards a client that allows as many; only topics that come again and
        /// again get one.
        topic_alias_maximum_out: u16 { kind: Count<u16>, default: 16, bounds: 0..=64, applies: Connect }
        /// How many bytes may wait to be written to one connection before the broker stops reading from those who
        /// publish to it; they go on when a quarter is left.
        output_buffer_bytes: u32 { kind: Size<u32>, default: 256 * KIB, bounds: 16 * KIB..=1024 * MIB }
        /// The memory that clients can make the broker hold, whatever for: buffers, packets that have begun, messages that wait
        /// or are retained, wills, connections, sessions, subscriptions. When 15/16 of it are used, nothing new is admitted.
        /// From 14/16 on, nothing is admitted that would stay when its client leaves, such as messages in queues. CONNECT,
        /// SUBSCRIBE and such messages are refused with reason code 0x97, before MQTT 5.0 as far as the version has a code for
        /// it; QoS 0 is dropped, and counted. From 14/16 on, clients that make no progress for three seconds are disconnected,
        /// until at most 13/16 are used. Clients that have stopped in the middle of a packet are the first.
        /// Clients that hold more than 16 KiB follow. The beginnings of packets take at most about half of all memory at any
        /// time: a beginning that grows displaces beginnings of more than 1 KiB that have not grown for longest, and their
        /// clients are disconnected. No client is disconnected for its subscriptions. The subscriptions of one client therefore
        /// take at most an eighth. While all subscriptions take more than a quarter, a client gets no more when its own take 16
        /// KiB, or a 1024th of all memory if that is more. Queues may hold all of this memory, as after a reload with a lower
        /// limit. Their clients can connect all the same, and take their messages: connections have another sixteenth then.
        /// Requests that free memory are always carried out. The bounds that follow are shares of this budget if they are not
        /// given.
        memory_budget_bytes: u64 {
            kind: Size<u64>, auto: (machine.memory_bytes / 2).clamp(MEMORY_MIN, MEMORY_MAX),
            "half of the machine's memory, or of the control group's if that is less",
            bounds: MEMORY_MIN..=MEMORY_MAX,
        }
        /// The memory for all retained messages together, topic names and properties included. `$SYS` does not count.
        /// A message of QoS 1 or 2 that does not fit is refused with reason code 0x97 (before MQTT 5.0 its client is disconnected); one of QoS 0
        /// is delivered and not retained, and counted. Clearing always works, and so does a value that is no larger than
        /// the one it replaces. After a restart with a lower bound all that was acknowledged is kept; the log says so, and
        /// nothing is added until there is less.
        retained_bytes: u64 {
            kind: Size<u64>, auto: memory_budget_bytes / 2, "half of `memory_budget_bytes`", bounds: 0..=MEMORY_MAX
        }
        /// The memory for all messages that wait in the queues of sessions and shared subscriptions, if there is a journal.
        /// Further messages wait on disk only, and are read when they are to be sent. With `dispatch = "key-ordered"` those of
        /// shared subscriptions stay in memory.
        queued_bytes_in_memory: u64 {
            kind: Size<u64>,
            auto: (memory_budget_bytes / 8).min(256 << 20),
            "an eighth of `memory_budget_bytes`, and not more than 256 MiB",
            bounds: 0..=MEMORY_MAX,
        }
        /// The memory for messages that wait to be written, of all connections together. Past it, messages are dropped
        /// and counted. A connection for which more than a quarter of this waits, and more than `output_buffer_bytes`,
        /// gets no more messages of QoS 0.
        waiting_bytes: u64 {
            kind: Size<u64>,
            auto: memory_budget_bytes / 4,
            "a quarter of `memory_budget_bytes`",
            bounds: MEMORY_MIN / 4..=MEMORY_MAX,
        }
        /// The longest will: topic name, properties and payload together. A client that has a longer one is refused with reason code
        /// 0x97 (0x03 before MQTT 5.0).
        will_bytes: u32 { kind: Size<u32>, default: 64 * KIB, bounds: 0..=PACKET_BYTES_MAX, applies: Connect }
    }
}

keys! {
    /// The state that is kept for clients: messages of QoS 1 and 2 on their way, and sessions that outlive their connection.
    pub struct Sessions = "[sessions]", applies Reload, given() {
        /// How many messages of QoS 1 and 2 one client may have published that the broker has not acknowledged (Receive
        /// Maximum). MQTT 5.0 clients are told; older ones are not read until there are fewer.
        receive_maximum: u16 { kind: Count<u16>, default: 1_000, bounds: 1..=u16::MAX, applies: Connect }
        /// How many messages of QoS 1 and 2 the broker has under way to one client before one is acknowledged, if the
        /// client takes as many.
        inflight_messages: u16 {
            kind: Count<u16>, default: 1_000, bounds: 1..=INFLIGHT_MAX, applies: Connect
        }
        /// The same for clients before MQTT 5.0, which cannot say how many they take.
        inflight_messages_3: u16 {
            kind: Count<u16>, default: 100, bounds: 1..=INFLIGHT_MAX, applies: Connect
        }
        /// How many messages may wait for one session, connected or not, or for one shared subscription. If more wait after a
        /// restart with a lower bound, they are kept until the next message does not fit; the log says so.
        queue_messages: u32 { kind: Count<u32>, default: 100_000, bounds: 1..=100_000_000 }
        /// How many bytes those messages may have.
        queue_bytes: u64 { kind: Size<u64>, default: 256 << 20, bounds: QUEUE_BYTES_MIN..=MEMORY_MAX }
        /// The action when a queue is full. `end-session`: the session is ended, so that a forgotten one cannot stop the
        /// others. Its client is told, and the log names the clients of at most 16 such sessions in a second, and counts the others. For
        /// a shared subscription, the sessions of all its members are ended, or with
        /// `dispatch = "key-ordered"` only that of the member for whom most waits. `refuse`: nobody gets the message, and its
        /// publisher is told (reason code 0x97; a client before MQTT 5.0 is disconnected). `drop-oldest`, `drop-newest`: the
        /// oldest messages, or the new one, are dropped and counted. A message that would need the places of more than 1,000
        /// others is dropped itself. If the broker is killed at that moment, the oldest may wait again: they may then come after
        /// a later message whose publisher has got no acknowledgement. A session that ends with its connection is always ended.
        queue_full: QueueFull { kind: Choice<QueueFull>, default: QueueFull::EndSession }
        /// The longest time for which a session is kept after its connection. A client that asks for more gets this;
        /// MQTT 5.0 clients are told as Session Expiry Interval. Off: as long as they ask for, which is for ever where a
        /// client before MQTT 5.0 asks for no clean session.
        expiry_max: Option<Duration> {
            kind: OrOff<Time>, default: None,
            bounds: Duration::from_secs(1)..=Duration::from_secs(u32::MAX as u64 - 1),
            applies: Connect,
        }
        /// The most sessions that are kept while their clients are not connected; beyond it a client that asks for one
        /// that lasts is refused (0x97, before MQTT 5.0 0x03).
        lasting_max: u32 { kind: Count<u32>, default: 10_000_000, bounds: 0..=100_000_000 }
        /// Whether a payload that claims to be UTF-8 (Payload Format Indicator of MQTT 5.0) is looked at; one that is
        /// something else is refused with reason code 0x99.
        check_payload_format: bool { kind: Switch, default: false }
    }
}

keys! {
    /// Shared subscriptions, `$share/GROUP/FILTER`: each message goes to one member of the group.
    pub struct Shared = "[shared]", applies Restart, given() {
        /// The member that gets a message. `round-robin`: the next member in turn that accepts a message. `key-ordered`:
        /// messages with one key go to one member, and keep their order while this member is connected. When it leaves, its
        /// unacknowledged messages go to another member, before newer messages of the same key. Messages that it was sent with
        /// QoS 2 stay with it.
        dispatch: Dispatch { kind: Choice<Dispatch>, default: Dispatch::RoundRobin }
        /// The key of messages that keep their order. `publisher`: the client that has published them. `property:NAME`: the
        /// value of their first User Property of that name; messages without one have their publisher's key.
        key: SharedKey { kind: KeyOf, default: SharedKey::Publisher }
    }
}

/// The rule that chooses the member of a group for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dispatch {
    /// The next member in turn that accepts a message.
    RoundRobin,
    /// The member that has the other messages with the same key.
    KeyOrdered,
}

impl Words for Dispatch {
    const WORDS: &'static [(&'static str, Self)] =
        &[("round-robin", Self::RoundRobin), ("key-ordered", Self::KeyOrdered)];
}

/// Maximum number of messages in flight. At least half of all packet identifiers are free, so a free one is found at once.
const INFLIGHT_MAX: u16 = 32_767;

/// The consequence for a message that does not fit into a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueFull {
    /// The broker ends the session of the queue.
    EndSession,
    /// The broker refuses the message, and tells its publisher.
    Refuse,
    /// The broker drops the oldest waiting message.
    DropOldest,
    /// The broker drops the new message.
    DropNewest,
}

impl Words for QueueFull {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("end-session", Self::EndSession),
        ("refuse", Self::Refuse),
        ("drop-oldest", Self::DropOldest),
        ("drop-newest", Self::DropNewest),
    ];
}

pub(crate) const KIB: u32 = 1_024;
pub(crate) const MIB: u32 = 1_024 * KIB;

/// Maximum length of a packet: four bytes less than the largest packet of the protocol. That packet has a fixed
/// header of five bytes and a Remaining Length of 268,435,455 (MQTT 5.0 section 1.5.5).
pub(crate) const PACKET_BYTES_MAX: u32 = 256 * MIB;

/// Number of files for other purposes: listeners, pollers, wakers, the log, and files that later versions keep
/// open.
const RESERVED_FILES: u64 = 64;

const MEMORY_MIN: u64 = 16 << 20;
const MEMORY_MAX: u64 = 64 << 40;
/// Minimum of the bytes in a queue, also in the roles of users.
pub(crate) const QUEUE_BYTES_MIN: u64 = 64 << 10;

keys! {
    /// The journal in `data_dir`, to which everything that must last is appended before it is acknowledged. The journal
    /// consists of numbered files, the segments. The oldest segment is reused when nothing in it is needed any more.
    pub struct Journal = "[journal]", applies Restart, given(packet_bytes: u32) {
        /// The length of a segment while there are few: a new journal takes three of them, and a fourth when the first is
        /// full. A power of two, and at least four times `packet_bytes`.
        segment_bytes_min: u32 {
            kind: Size<u32>,
            auto: packet_bytes.saturating_mul(4).checked_next_power_of_two().unwrap_or(1 << 30).clamp(8 * MIB, 1 << 30),
            "8 MiB, or more where `packet_bytes` asks for it",
            bounds: 64 * KIB..=1 << 30,
        }
        /// The length of a segment when there are many. A power of two.
        segment_bytes_max: u32 {
            kind: Size<u32>, auto: segment_bytes_min.max(64 * MIB), "64 MiB, or `segment_bytes_min` if that is more",
            bounds: 64 * KIB..=1 << 30,
        }
        /// The disk space that all segments together may take. When all of it is used, requests that would need more
        /// are refused with reason code 0x97 or have to wait. Requests that free space are carried out, but may have to wait
        /// too.
        disk_bytes: Option<u64> {
            kind: Absent<Size<u64>>, auto: None, "half of what is free when the broker starts, and of what it has",
            bounds: u64::from(256 * KIB)..=u64::MAX >> 1,
        }
        /// The disk space that is left to other programs: while less is free, no new segment is begun.
        free_bytes: u64 { kind: Size<u64>, default: 64 << 20, bounds: 0..=u64::MAX >> 1 }
    }
}

keys! {
    /// The log of the broker. Lines that come faster than anybody reads them, or than 1,000 a second from one shard,
    /// are left out, and one line says how many.
    pub struct Log = "[log]", applies Reload, given() {
        /// The least important lines that are written. `info` has one line per connect, refusal and disconnect.
        level: LogLevel { kind: Choice<LogLevel>, default: LogLevel::Info }
        /// Lines for people, or one JSON object per line for programs.
        format: LogFormat { kind: Choice<LogFormat>, default: LogFormat::Text, applies: Restart }
        /// The places to which each line goes. `stderr` and `stdout`: the streams of the process. `syslog`: the log of the system.
        /// `off`: nowhere. Anything with a slash is a file, to which lines are added, and which SIGHUP opens again. If a file
        /// cannot be opened at the start, its lines go to standard error.
        to: Vec<LogTarget> { kind: ListOf<Target>, default: vec![LogTarget::Stderr] }
    }
}

keys! {
    /// The broker's own counters, published as retained messages under `$SYS/broker/`.
    pub struct Sys = "[sys]", applies Restart, given() {
        /// How often they are published.
        interval: Option<Duration> {
            kind: OrOff<Time>, default: Some(Duration::from_secs(10)),
            bounds: Duration::from_secs(1)..=Duration::from_secs(86_400),
        }
    }
}
