//! Operation of a running broker: health, metrics and an HTTP API.
//!
//! One thread serves all requests. It carries no messages, and it shares no lock with those that do. A request that needs
//! the state of a shard or of the ledger asks with a letter to its inbox ([`net::Operator`]), for a bounded piece at a time.

#![forbid(unsafe_code)]

mod admit;
mod answer;
mod api;
mod asked;
mod asking;
mod audit;
mod audit_file;
mod control;
mod counters;
mod doors;
mod explain;
mod gate;
pub mod metrics;
mod nearly;
mod page;
mod passwords;
mod room;
mod routes;
mod secure;
mod server;
mod sessions;
mod slow;
mod tokens;
mod trace;
mod uri;

pub use api::LOG_LEVELS;
pub use api::busiest::LISTS;
pub use api::clients::{PROTOCOLS, STATES};
pub use api::log::LEVELS;
pub use audit_file::AuditFile;
pub use control::{
    AccessSource, Backup, BackupRefused, BackupState, Certificate, CommandsRefused, Control, InForce,
    Listener, LogRecord, Operators, Queue, Reloaded, SourceKind,
};
pub use routes::{Parameter, Route, Values, routes};
pub use secure::Secure;
pub use server::{Running, Settings, start};
pub use tokens::{Role, Tokens, generate, own};
