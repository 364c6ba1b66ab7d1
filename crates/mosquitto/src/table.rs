//! Every directive of Mosquitto 2.0 and 2.1, each declared once.

use crate::directive::{Again, Directive, Fate, Form, Scope};
use Again::{Adds, Last, Never};
use Fate::{Ignored, Refused, RefusedIfOff, RefusedIfOn, Translated};
use Form::{Flag, Number, Secret, Text, Words};
use Scope::{Bridge, Global, Listener, Plugin, Security, Structure};

/// A whole number of 32 bits, as `int` in Mosquitto.
const INT: Form = Number(i32::MIN as i64, i32::MAX as i64);
const U16: Form = Number(0, u16::MAX as i64);

const ALIASES: &str = "`limits.topic_alias_maximum`";
const ENGINES: &str = "Pondhawk has no engines of OpenSSL; name a file with the private key in `keyfile`";
const NO_PSK: &str = "TLS with pre-shared keys is not supported; use certificates";
const OVERLAPS: &str = "overlapping subscriptions get one copy of a message each, which MQTT allows";
pub(crate) const SQLITE: &str =
    "a journal takes the place of the SQLite database; `pondhawk import` takes over what is in it";
const SWEEPS: &str = "expired messages are removed without a sweep at intervals";
const WEB_BUFFERS: &str = "the size of WebSocket headers has a fixed limit";

const fn new(name: &'static str, scope: Scope, form: Form, again: Again, fate: Fate) -> Directive {
    Directive { name, scope, form, again, fate, keys: "" }
}

/// A directive that becomes these keys.
const fn to(name: &'static str, scope: Scope, form: Form, again: Again, keys: &'static str) -> Directive {
    Directive { name, scope, form, again, fate: Translated, keys }
}

/// A directive of a bridge. The line that begins the bridge is reported.
const fn of_bridge(name: &'static str, form: Form, again: Again) -> Directive {
    Directive { name, scope: Bridge, form, again, fate: Translated, keys: "" }
}

/// All directives, in the order of the manual.
pub(crate) const DIRECTIVES: &[Directive] = &[
    // Access.
    to("acl_file", Security, Text, Last, "`auth.acl_file`, `listener.acl_file`"),
    to("allow_anonymous", Security, Flag, Last, "`listener.allow_anonymous`"),
    to("password_file", Security, Text, Last, "`auth.password_file`, `listener.password_file`"),
    to("per_listener_settings", Structure, Flag, Adds, "keys of each `[[listener]]`"),
    new("psk_file", Security, Text, Last, Refused(NO_PSK)),
    to("allow_zero_length_clientid", Security, Flag, Last, "`listener.empty_client_ids`"),
    new(
        "auto_id_prefix",
        Security,
        Text,
        Never,
        Ignored("identifiers that the broker makes up have another beginning"),
    ),
    new(
        "clientid_prefixes",
        Global,
        Text,
        Last,
        Refused(
            "a file of Mosquitto cannot restrict the beginning of client identifiers here; use `client_ids` in a `rules_file` instead",
        ),
    ),
    to("check_retain_source", Global, Flag, Last, ""),
    // Plugins.
    to("plugin", Structure, Text, Adds, ""),
    to("auth_plugin", Structure, Text, Adds, ""),
    to("global_plugin", Structure, Text, Adds, ""),
    to("plugin_load", Structure, Words, Adds, ""),
    to("plugin_use", Structure, Words, Adds, ""),
    to("plugin_opt_*", Plugin, Secret, Adds, ""),
    to("auth_opt_*", Plugin, Secret, Adds, ""),
    new(
        "auth_plugin_deny_special_chars",
        Plugin,
        Flag,
        Last,
        RefusedIfOff(
            "identifiers with wildcards are refused where patterns would use them",
            "identifiers with wildcards cannot be let through to access rules",
        ),
    ),
    // Listeners.
    to("listener", Structure, Words, Adds, "`[[listener]]`"),
    to("port", Structure, Number(1, u16::MAX as i64), Last, "`listener.address`"),
    to("bind_address", Structure, Text, Never, "`listener.address`"),
    to("accept_protocol_versions", Listener, Text, Last, "`listener.protocol_versions`"),
    to("bind_interface", Listener, Text, Never, "`listener.interface`"),
    to("enable_proxy_protocol", Listener, Number(1, 2), Last, "`listener.proxy_from`"),
    new(
        "proxy_protocol_v2_require_tls",
        Listener,
        Flag,
        Last,
        RefusedIfOn(
            "that is the default",
            "the broker cannot refuse clients that reached the load balancer without TLS",
        ),
    ),
    new(
        "http_dir",
        Listener,
        Text,
        Never,
        Ignored("Pondhawk serves no files; a web server can serve this directory"),
    ),
    to("listener_allow_anonymous", Listener, Flag, Last, "`listener.allow_anonymous`"),
    new(
        "listener_auto_id_prefix",
        Listener,
        Text,
        Never,
        Ignored("identifiers that the broker makes up have another beginning"),
    ),
    to("max_connections", Listener, INT, Last, "`listener.connections`"),
    to("max_qos", Listener, Number(0, 2), Last, "`listener.max_qos`"),
    to("maximum_qos", Listener, Number(0, 2), Last, "`listener.max_qos`"),
    to("max_topic_alias", Listener, U16, Last, ALIASES),
    to("max_topic_alias_broker", Listener, U16, Last, "`limits.topic_alias_maximum_out`"),
    to("mount_point", Listener, Text, Last, "`listener.mount_point`"),
    to("protocol", Listener, Words, Last, "`listener.protocol`"),
    to("socket_domain", Listener, Words, Last, "`listener.address`"),
    new(
        "use_username_as_clientid",
        Listener,
        Flag,
        Last,
        RefusedIfOn("that is the default", "the broker cannot make client identifiers of user names"),
    ),
    to("websockets_origin", Listener, Text, Adds, "`listener.websocket_origins`"),
    // TLS.
    to("cafile", Listener, Text, Last, "`listener.tls_client_ca`"),
    to("capath", Listener, Text, Last, "`listener.tls_client_ca`"),
    to("certfile", Listener, Text, Last, "`listener.tls_certificate`"),
    to("keyfile", Listener, Text, Last, "`listener.tls_key`"),
    to("ciphers", Listener, Text, Last, ""),
    to("ciphers_tls1.3", Listener, Text, Last, ""),
    to("crlfile", Listener, Text, Last, "`listener.tls_client_crl`"),
    new("dhparamfile", Listener, Text, Never, Ignored("TLS needs no such file any more")),
    new(
        "disable_client_cert_date_checks",
        Listener,
        Flag,
        Last,
        RefusedIfOn("that is the default", "expired client certificates are never accepted"),
    ),
    to("require_certificate", Listener, Flag, Last, "`listener.tls_client_certificate`"),
    new("tls_engine", Listener, Text, Never, Refused(ENGINES)),
    new("tls_engine_kpass_sha1", Listener, Text, Never, Refused(ENGINES)),
    to("tls_keyform", Listener, Text, Never, ""),
    to("tls_version", Listener, Text, Never, "`listener.tls_minimum`"),
    to("use_identity_as_username", Listener, Flag, Last, "`listener.client_certificate_identity`"),
    to("use_subject_as_username", Listener, Flag, Last, "`listener.client_certificate_identity`"),
    new("psk_hint", Listener, Text, Never, Refused(NO_PSK)),
    // Limits.
    to("global_max_clients", Global, INT, Last, "`sessions.lasting_max`"),
    to("global_max_connections", Global, INT, Last, "`limits.connections`"),
    to("max_keepalive", Global, U16, Last, "`limits.keep_alive`"),
    to("max_packet_size", Global, Number(20, i32::MAX as i64), Last, "`limits.packet_bytes`"),
    to("message_size_limit", Global, Number(0, 268_435_455), Last, "`limits.packet_bytes`"),
    to("memory_limit", Global, Number(0, i64::MAX), Last, "`limits.memory_budget_bytes`"),
    to("max_inflight_bytes", Global, INT, Last, ""),
    to(
        "max_inflight_messages",
        Global,
        Number(i32::MIN as i64, u16::MAX as i64),
        Last,
        "`sessions.inflight_messages`, `inflight_messages_3` and `receive_maximum`",
    ),
    to("max_queued_bytes", Global, INT, Last, "`sessions.queue_bytes`"),
    to("max_queued_messages", Global, INT, Last, "`sessions.queue_messages`"),
    to("persistent_client_expiration", Global, Words, Never, "`sessions.expiry_max`"),
    to("retain_available", Global, Flag, Last, "`listener.retain_available`"),
    new("retain_expiry_interval", Global, Number(0, 10_000_000), Last, Ignored(SWEEPS)),
    to("queue_qos0_messages", Global, Flag, Last, ""),
    new(
        "upgrade_outgoing_qos",
        Global,
        Flag,
        Last,
        RefusedIfOn(
            "that is the default",
            "messages are never sent with a higher QoS than they were published with",
        ),
    ),
    new("allow_duplicate_messages", Global, Flag, Last, Ignored(OVERLAPS)),
    new(
        "enable_control_api",
        Global,
        Flag,
        Last,
        RefusedIfOn("that is the default", "commands under `$CONTROL/broker` are not served"),
    ),
    new("retry_interval", Global, Text, Adds, Ignored("it has no effect in Mosquitto either")),
    new("set_tcp_nodelay", Global, Flag, Last, Ignored("small packets are always sent without delay")),
    // Storage.
    to("persistence", Global, Flag, Last, "`data_dir`"),
    to("retained_persistence", Global, Flag, Last, "`data_dir`"),
    to("persistence_location", Global, Text, Never, "`data_dir`"),
    to("persistence_file", Global, Text, Never, ""),
    new(
        "autosave_interval",
        Global,
        INT,
        Last,
        Ignored("what must survive a restart is on disk before it is acknowledged, without intervals"),
    ),
    new(
        "autosave_on_changes",
        Global,
        Flag,
        Last,
        Ignored("what must survive a restart is on disk before it is acknowledged, without intervals"),
    ),
    // Log and process.
    to("connection_messages", Global, Flag, Last, ""),
    to("log_dest", Global, Words, Adds, "`log.to`"),
    new("log_facility", Global, Number(0, 7), Last, Ignored("syslog lines have the facility `daemon`")),
    new("log_timestamp", Global, Flag, Last, Ignored("each line of the log begins with the time")),
    new(
        "log_timestamp_format",
        Global,
        Text,
        Never,
        Ignored("the time in the log is written as in ISO 8601"),
    ),
    to("log_type", Global, Words, Adds, "`log.level`"),
    new("websockets_log_level", Global, INT, Last, Ignored("WebSocket has no log level of its own")),
    new("packet_buffer_size", Global, U16, Last, Ignored(WEB_BUFFERS)),
    new("websockets_headers_size", Global, U16, Last, Ignored(WEB_BUFFERS)),
    to("sys_interval", Global, U16, Last, "`sys.interval`"),
    to("pid_file", Global, Text, Never, "`pid_file`"),
    to("user", Global, Text, Last, "`user`"),
    to("include_dir", Structure, Text, Adds, ""),
    // Bridges.
    to("connection", Structure, Words, Adds, ""),
    of_bridge("address", Words, Never),
    of_bridge("addresses", Words, Never),
    of_bridge("topic", Words, Adds),
    of_bridge("bridge_attempt_unsubscribe", Flag, Last),
    of_bridge("bridge_bind_address", Text, Never),
    of_bridge("bridge_max_packet_size", INT, Last),
    of_bridge("bridge_max_topic_alias", U16, Last),
    of_bridge("bridge_outgoing_retain", Flag, Last),
    of_bridge("bridge_protocol_version", Text, Last),
    of_bridge("bridge_receive_maximum", Number(1, u16::MAX as i64), Last),
    of_bridge("bridge_reload_type", Words, Last),
    of_bridge("bridge_session_expiry_interval", Number(0, i32::MAX as i64), Last),
    of_bridge("bridge_tcp_keepalive", Words, Last),
    of_bridge("bridge_tcp_user_timeout", Number(0, i32::MAX as i64), Last),
    of_bridge("cleansession", Flag, Last),
    of_bridge("local_cleansession", Flag, Last),
    of_bridge("clientid", Text, Never),
    of_bridge("remote_clientid", Text, Never),
    of_bridge("local_clientid", Text, Never),
    of_bridge("username", Text, Never),
    of_bridge("remote_username", Text, Never),
    of_bridge("password", Secret, Never),
    of_bridge("remote_password", Secret, Never),
    of_bridge("local_username", Text, Never),
    of_bridge("local_password", Secret, Never),
    of_bridge("keepalive_interval", Number(i32::MIN as i64, u16::MAX as i64), Last),
    of_bridge("idle_timeout", INT, Last),
    of_bridge("threshold", INT, Last),
    of_bridge("start_type", Words, Last),
    of_bridge("restart_timeout", Words, Last),
    of_bridge("round_robin", Flag, Last),
    of_bridge("try_private", Flag, Last),
    of_bridge("notifications", Flag, Last),
    of_bridge("notifications_local_only", Flag, Last),
    of_bridge("notification_topic", Text, Never),
    of_bridge("bridge_cafile", Text, Never),
    of_bridge("bridge_capath", Text, Never),
    of_bridge("bridge_tls_use_os_certs", Flag, Last),
    of_bridge("bridge_certfile", Text, Never),
    of_bridge("bridge_keyfile", Text, Last),
    of_bridge("bridge_insecure", Flag, Last),
    of_bridge("bridge_alpn", Text, Never),
    of_bridge("bridge_tls_version", Text, Never),
    of_bridge("bridge_ciphers", Text, Never),
    of_bridge("bridge_ciphers_tls1.3", Text, Never),
    of_bridge("bridge_require_ocsp", Flag, Last),
    of_bridge("bridge_identity", Text, Never),
    of_bridge("bridge_psk", Secret, Never),
];
