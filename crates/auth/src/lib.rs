//! Identities and rules of a broker: the names that clients prove, and the topics that they may use.
//!
//! The crate has no files, threads, clock or random numbers. A caller reads files and gives their text, draws salts, and
//! chooses the thread on which a [`PasswordCheck`] runs, because a check of a password takes milliseconds on purpose.
//!
//! [`Access`] is the state of all files at one time. A changed file makes a new [`Access`], and the old one stays as it is.
//!
//! ```
//! use auth::{Access, Action, Client, Permissions};
//! use topic::topic;
//!
//! let permissions = Permissions::of_mosquitto("user frog\ntopic write pond/frog\npattern read pond/%u/#\n")?;
//! let access = Access::new(None, Some(permissions));
//! let frog = Client { user: Some("frog"), client_id: "f1", claims: None };
//! assert!(access.allows(frog, topic!("pond/frog"), Action::Publish));
//! assert!(access.allows(frog, topic!("pond/frog/depth"), Action::Receive));
//! assert!(!access.allows(frog, topic!("pond/toad"), Action::Publish));
//! # Ok::<(), auth::AclError>(())
//! ```

#![forbid(unsafe_code)]

mod access;
mod acl;
mod attempts;
mod bans;
mod bearer;
mod check;
mod claims;
mod client;
mod dynamic;
mod file;
mod guard;
mod json;
mod password;
mod permissions;
mod process;
mod remembered;
mod roles;
mod schemes;
mod scram;
mod service;
mod token;
mod tree;
mod users;

pub use access::{Access, Admission, Identity, Login, Refusal};
pub use acl::{AclError, AclProblem};
pub use attempts::{Attempts, Origin};
pub use bans::{Bans, REASON_BYTES_MAX, Suspect, Terms, Whom};
pub use bearer::{Bearer, Voucher};
pub use check::{Check, Checked, Unchecked, Wish, Wished};
pub use client::Client;
pub use dynamic::{
    ANSWER_BYTES_MAX, AclKind, COMMANDS_MAX, Controlled, DynamicError, DynamicSecurity, NewPassword,
    RESPONSE_TOPIC, TOPIC as CONTROL_TOPIC,
};
pub use file::{NameError, PasswordFile};
pub use guard::{Guard, Realms};
pub use json::strict_object;
pub use password::{HashError, PasswordHash, SALT_BYTES, Scheme, Workspace};
pub use permissions::{Action, Decision, FilterAction, Permissions, Reason, Rule};
pub use process::{LoginNames, NoLoginNames, ProcessCheck};
pub use remembered::{Remembered, RememberedAnswers};
pub use roles::{
    Deciding, Held, Holder, IdPattern, Limits, NoTopicPrefix, Permit, PrefixError, QueueLimits, Reach,
    RoleId, Roles, RolesBuilder, RolesError, RuleKind, TopicPrefix,
};
pub use scram::{
    Channel, Credential, Exchange, Mechanism, SCRAM_BYTES_MAX, ScramCheck, ScramProblem, Secret,
};
pub use service::{Question, ServiceCheck, SourceSettings, UserService, UserSource, Verdict};
pub use token::{
    Algorithm, KeysError, TOKEN_BYTES_MAX, TokenCheck, TokenKeys, TokenProblem, TokenRules, Tokens,
};
pub use users::{PasswordCheck, UserProblem, Users, UsersError};
