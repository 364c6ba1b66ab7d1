//! Checks of passwords, tokens and proofs of clients, which run on threads of their own, and their outcomes.

use std::sync::{Arc, Weak};

use crate::{
    Bearer, PasswordCheck, ProcessCheck, ScramCheck, ServiceCheck, TokenCheck, TokenProblem, Workspace,
};

/// A check of the password in CONNECT. It takes too long for a thread that carries messages.
#[derive(Debug)]
pub enum Check {
    /// The password is that of a user.
    Password(PasswordCheck),
    /// The password is a token.
    Token(TokenCheck),
    /// There is no password, but a proof that the client knows it.
    Scram(ScramCheck),
    /// The password is that of a user whom a server elsewhere knows. The check waits for the server.
    Service(ServiceCheck),
    /// There is no password: the client is a process of this machine. The check may wait for the system.
    Process(ProcessCheck),
}

impl Check {
    /// Runs the check, at a time in seconds since 1970, in memory that the caller keeps for other checks.
    pub fn run_in(&self, workspace: &mut Workspace, unix_secs: u64) -> Checked {
        match self {
            Self::Password(check) if check.run_in(workspace) => Checked::Right,
            Self::Scram(check) if check.run() => Checked::Right,
            Self::Password(_) | Self::Scram(_) => Checked::Wrong,
            Self::Token(check) => match check.run(unix_secs) {
                Ok(bearer) => Checked::Bearer(Box::new(bearer)),
                Err(problem) => Checked::BadToken(problem),
            },
            Self::Service(check) => check.run(unix_secs),
            Self::Process(check) => check.run(),
        }
    }

    /// A number that stands for the user, or for the token. [`Attempts`](crate::Attempts) count by it.
    #[must_use]
    pub fn number(&self) -> u64 {
        match self {
            Self::Password(check) => check.user(),
            Self::Token(check) => check.number(),
            Self::Scram(check) => check.user(),
            Self::Service(check) => check.number(),
            Self::Process(check) => check.number(),
        }
    }

    /// Memory of the check, in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        match self {
            Self::Password(check) => check.size_bytes(),
            Self::Token(check) => check.size_bytes(),
            Self::Scram(check) => check.size_bytes(),
            Self::Service(check) => check.size_bytes(),
            Self::Process(check) => check.size_bytes(),
        }
    }
}

impl From<PasswordCheck> for Check {
    fn from(check: PasswordCheck) -> Self {
        Self::Password(check)
    }
}

/// The wish of a connection to know the outcome of a check. It ends with this value, which the connection keeps as long as it waits.
#[derive(Debug, Default)]
pub struct Wish(Arc<()>);

impl Wish {
    /// A view of the wish for the thread that runs the check.
    #[must_use]
    pub fn watch(&self) -> Wished {
        Wished(Arc::downgrade(&self.0))
    }
}

/// Says whether a connection still wishes to know the outcome of a check. Otherwise the check need not run.
#[derive(Debug, Clone)]
pub struct Wished(Weak<()>);

impl Wished {
    /// Whether somebody waits for the outcome.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// The outcome of a check of a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checked {
    /// The password is right.
    Right,
    /// The password is wrong, or there is no such user.
    Wrong,
    /// The password is a token that proves who its bearer is, a server elsewhere knows the user, or the system does.
    Bearer(Box<Bearer>),
    /// The password is a token that proves nothing.
    BadToken(TokenProblem),
    /// The client is a process whose user has no login name on this machine.
    Nameless,
    /// The password was not checked.
    Not(Unchecked),
}

/// The reason why a password is not checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unchecked {
    /// Too many others wait, or have waited too long.
    Busy,
    /// Too many wrong passwords have come from the address, for this user or for all.
    Guessing,
    /// A server elsewhere, which may know the user, does not answer.
    Unreachable,
}
