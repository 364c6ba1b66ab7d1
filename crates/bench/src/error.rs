//! Why a load test could not be run, or why a run of it counts as failed.

use std::{fmt, io};

/// Reason why a load test ended early.
///
/// A fault of the server, [`Error::Server`], is reported as the failure of that run, and the other runs continue. Any
/// other error ends the program.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused something.
    Io {
        /// The failed operation, behind "cannot".
        doing: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// More connections were asked for than this process may have descriptors.
    Descriptors {
        /// Descriptors that the run needs.
        needed: u64,
        /// Descriptors that the process may open.
        limit: u64,
    },
    /// The arguments contradict each other.
    Arguments(String),
    /// The server could not be started, did what no MQTT server may do, or refused what the test needs.
    Server(String),
    /// The program was asked to stop.
    Interrupted {
        /// The number of the signal that asked.
        signal: i32,
    },
}

/// The result of everything in this crate that can fail.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A server that delivered every message, and did not finish every exchange of QoS 1 or 2.
    pub(crate) fn unacknowledged() -> Self {
        Self::Server("delivered every message, but did not acknowledge all that were sent".to_owned())
    }

    /// The same fault, with the name of the part of a server that has it.
    pub(crate) fn of(self, part: &str) -> Self {
        match self {
            Self::Server(what) => Self::Server(format!("{part} {what}")),
            error => error,
        }
    }

    /// Wraps a refusal of the operating system; `doing` goes after "cannot".
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }

    /// Wraps a refusal that came as a bare error number.
    pub(crate) fn errno(doing: impl Into<String>) -> impl FnOnce(nix::Error) -> Self {
        let doing = doing.into();
        move |errno| Self::Io { doing, source: errno.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { doing, source } => write!(f, "cannot {doing}: {source}"),
            Self::Descriptors { needed, limit } => write!(
                f,
                "{needed} file descriptors are needed and {limit} are allowed: raise the hard limit (`ulimit -Hn {needed}`) or ask for fewer connections"
            ),
            Self::Arguments(what) | Self::Server(what) => f.write_str(what),
            Self::Interrupted { signal } => write!(f, "interrupted by signal {signal}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Descriptors { .. } | Self::Arguments(_) | Self::Server(_) | Self::Interrupted { .. } => {
                None
            }
        }
    }
}
