//! The configuration of the broker: TOML files, flags that override them, and defaults for the rest.
//!
//! Every key is declared once, in [`keys`](crate::tables). This declaration generates the field of the typed
//! [`Config`], the parser, the help, and `docs/CONFIGURATION.md`.
//!
//! [`Config::parse`] is pure. [`Sources::gather`] asks for the files that others include, and [`Machine::detect`] asks the
//! system for the facts on which defaults depend.
//!
//! ```
//! use config::{Config, Flags, Machine, Sources};
//!
//! let machine = Machine { cores: 4, memory_bytes: 8 << 30, open_files: 1_024, state_dir: "/var/lib/pondhawk".into() };
//! let file = Sources::of("pond.toml", "[limits]\npacket_bytes = \"1 MiB\"");
//! let config = Config::parse(&file, &Flags::default(), &machine).unwrap();
//! assert_eq!(config.limits.packet_bytes, 1 << 20);
//! assert_eq!(config.listeners[0].address.to_string(), "127.0.0.1:1883");
//!
//! let file = Sources::of("pond.toml", "[limits]\npacket_byte = \"1 MiB\"");
//! let report = Config::parse(&file, &Flags::default(), &machine).unwrap_err();
//! assert!(report.to_string().contains("did you mean `packet_bytes`?"));
//! ```
#![forbid(unsafe_code)]

mod acme;
mod address;
mod admin;
mod environment;
mod jwt;
mod keys;
mod kind;
mod listeners;
mod load;
mod log;
mod machine;
mod manual;
mod masked;
mod named;
mod nearest;
mod otlp;
mod reader;
mod reload;
mod report;
mod rules;
mod schema;
mod services;
mod shared_key;
mod sources;
mod unit;
mod url;

pub use acme::Acme;
pub use address::{AddressError, Binding, ListenAddress, UnixName};
pub use admin::{Admin, OperatorRole};
pub use environment::{Environment, Origin};
pub use jwt::Jwt;
pub use keys::{
    Auth, CertificateIdentity, ClientCertificate, Dispatch, Durability, Journal, Limits, Listener, Log,
    MqttVersion, Owner, Protocol, QueueFull, Sessions, Shared, Sys, TlsVersion, UnixIdentity, tables,
};
pub use load::{Config, Flags};
pub use log::{LogFormat, LogLevel, LogTarget};
pub use machine::Machine;
pub use manual::{explain, help, markdown};
pub use masked::hide_users;
pub use otlp::Otlp;
pub use reload::{Change, Changes, origins_after};
pub use report::{Problem, Report};
pub use rules::{RulesProblems, parse_rules};
pub use schema::{Applies, Default, Key, Table};
pub use services::{AnswerForm, HttpAuth, Ldap, QuestionForm};
pub use shared_key::SharedKey;
pub use sources::{Files, Sources};
pub use url::{UrlParts, without_query};
