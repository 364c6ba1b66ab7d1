//! Settings from the flags of a command line.

use std::path::PathBuf;
use std::time::Duration;

use client::{Qos, Version};

use crate::failure::Failure;
use crate::format::Template;
use crate::properties::Properties;

/// One of the three programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tool {
    /// `pondhawk pub`, the counterpart of `mosquitto_pub`.
    Publish,
    /// `pondhawk sub`, the counterpart of `mosquitto_sub`.
    Subscribe,
    /// `pondhawk rr`, the counterpart of `mosquitto_rr`.
    Request,
}

impl Tool {
    /// All three tools, for loops over them.
    pub const ALL: [Self; 3] = [Self::Publish, Self::Subscribe, Self::Request];

    /// Name of the subcommand, which is also the suffix of Mosquitto's program.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Publish => "pub",
            Self::Subscribe => "sub",
            Self::Request => "rr",
        }
    }
}

/// Values of all flags.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) tool: Tool,
    pub(crate) server: Server,
    pub(crate) tls: Tls,
    pub(crate) session: Session,
    pub(crate) will: Will,
    pub(crate) properties: Properties,
    /// Filters of `sub`, or the topic of the other tools, of which the last one counts.
    pub(crate) topics: Vec<String>,
    pub(crate) qos: Qos,
    pub(crate) outgoing: Outgoing,
    pub(crate) incoming: Incoming,
    pub(crate) response_topic: Option<String>,
    /// Name of a profile, from which other flags come.
    pub(crate) profile: Option<String>,
    pub(crate) debug: bool,
    pub(crate) quiet: bool,
    /// Set by `--help` and `--version`, which make all other settings irrelevant.
    pub(crate) asks: Option<Asks>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    Help,
    Version,
}

/// Address of the server, and the way to it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Server {
    pub(crate) host: Option<String>,
    pub(crate) port: Option<u16>,
    pub(crate) unix: Option<PathBuf>,
    /// Local address to connect from.
    pub(crate) bind: Option<String>,
    pub(crate) proxy: Option<crate::url::Proxy>,
    /// Path of the WebSocket; `None` for MQTT without WebSocket.
    pub(crate) websocket: Option<String>,
    /// QUIC instead of TCP.
    pub(crate) has_quic: bool,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Tls {
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) ca_directory: Option<PathBuf>,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) version: Option<String>,
    pub(crate) alpn: Option<String>,
    pub(crate) ciphers: Option<String>,
    pub(crate) is_insecure: bool,
    pub(crate) uses_system_roots: bool,
    pub(crate) key_form: Option<String>,
}

/// Fields of CONNECT except the will.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) version: Version,
    pub(crate) client_id: Option<String>,
    pub(crate) client_id_prefix: Option<String>,
    pub(crate) clean_start: bool,
    pub(crate) expiry_secs: Option<u32>,
    pub(crate) keep_alive_secs: u16,
    pub(crate) user_name: Option<String>,
    pub(crate) password: Option<Vec<u8>>,
    pub(crate) inflight_max: u16,
}

/// The will: the message that the server publishes if the program dies.
#[derive(Debug, Clone, Default)]
pub(crate) struct Will {
    /// Topic of the will; `None` if there is no will.
    pub(crate) topic: Option<String>,
    pub(crate) payload: Option<Vec<u8>>,
    pub(crate) qos: Qos,
    pub(crate) retain: bool,
}

/// Settings of published messages.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing {
    pub(crate) source: Option<Source>,
    pub(crate) retain: bool,
    pub(crate) repeat: u32,
    pub(crate) repeat_delay: Duration,
}

/// Source of the messages to publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    Bytes(Vec<u8>),
    File(PathBuf),
    /// All of standard input is one message.
    Input,
    /// Each line of standard input is a message.
    Lines,
}

/// Settings of received messages.
#[derive(Debug, Clone)]
pub(crate) struct Incoming {
    pub(crate) filtered_out: Vec<String>,
    pub(crate) unsubscribed: Vec<String>,
    pub(crate) count: Option<u64>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) ends_when_subscribed: bool,
    /// `-R`: ignore retained messages.
    pub(crate) without_retained: bool,
    pub(crate) retained_only: bool,
    pub(crate) remove_retained: bool,
    pub(crate) retain_as_published: bool,
    /// Share of the messages to print, from 0 to 1.
    pub(crate) chance: Option<f64>,
    pub(crate) output: Output,
    pub(crate) stats: bool,
}

/// Output format of messages.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    pub(crate) template: Option<Template>,
    pub(crate) verbose: bool,
    pub(crate) without_end_of_line: bool,
    pub(crate) pretty: bool,
    /// `--json`: print one JSON object for each message.
    pub(crate) json: bool,
}

impl Settings {
    /// Settings of a tool without any flags.
    pub(crate) fn new(tool: Tool) -> Self {
        Self {
            tool,
            server: Server::default(),
            tls: Tls::default(),
            session: Session::new(tool),
            will: Will::default(),
            properties: Properties::default(),
            topics: Vec::new(),
            qos: Qos::AtMostOnce,
            outgoing: Outgoing { source: None, retain: false, repeat: 1, repeat_delay: Duration::ZERO },
            incoming: Incoming::new(),
            response_topic: None,
            profile: None,
            debug: false,
            quiet: false,
            asks: None,
        }
    }

    /// Sets the source of messages, of which only one is allowed.
    pub(crate) fn set_source(&mut self, source: Source) -> Result<(), Failure> {
        if self.outgoing.source.replace(source).is_some() {
            return Err(Failure::usage("Error: Only one type of message can be sent at once."));
        }
        Ok(())
    }

    /// Whether the connection is encrypted, because of a flag about trust or the port of MQTT over TLS.
    pub(crate) fn wants_tls(&self) -> bool {
        let tls = &self.tls;
        tls.ca_file.is_some()
            || tls.ca_directory.is_some()
            || tls.uses_system_roots
            || self.server.has_quic
            || self.port() == TLS_PORT
    }

    /// Whether `pub` publishes more than one message.
    pub(crate) fn publishes_many(&self) -> bool {
        let is_many = self.outgoing.source == Some(Source::Lines) || self.outgoing.repeat > 1;
        self.tool == Tool::Publish && is_many
    }

    pub(crate) fn host(&self) -> &str {
        self.server.host.as_deref().unwrap_or("localhost")
    }

    pub(crate) fn port(&self) -> u16 {
        let tls = &self.tls;
        let is_encrypted = tls.ca_file.is_some() || tls.ca_directory.is_some() || tls.uses_system_roots;
        let by_default = match is_encrypted {
            _ if self.server.has_quic => QUIC_PORT,
            true => TLS_PORT,
            false => PORT,
        };
        self.server.port.unwrap_or(by_default)
    }
}

pub(crate) const PORT: u16 = 1883;
pub(crate) const TLS_PORT: u16 = 8883;
/// The port that EMQX and NanoMQ use for MQTT over QUIC. None is assigned.
pub(crate) const QUIC_PORT: u16 = 14_567;

impl Session {
    fn new(tool: Tool) -> Self {
        Self {
            version: if tool == Tool::Request { Version::V5 } else { Version::V3_1_1 },
            client_id: None,
            client_id_prefix: None,
            clean_start: true,
            expiry_secs: None,
            keep_alive_secs: 60,
            user_name: None,
            password: None,
            inflight_max: 20,
        }
    }
}

impl Incoming {
    fn new() -> Self {
        Self {
            filtered_out: Vec::new(),
            unsubscribed: Vec::new(),
            count: None,
            timeout: None,
            ends_when_subscribed: false,
            without_retained: false,
            retained_only: false,
            remove_retained: false,
            retain_as_published: false,
            chance: None,
            output: Output {
                template: None,
                verbose: false,
                without_end_of_line: false,
                pretty: false,
                json: false,
            },
            stats: false,
        }
    }
}
