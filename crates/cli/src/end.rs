//! Events outside the protocol that end a program.

use std::time::Duration;

use crate::failure::{Failure, TIMED_OUT};

/// The event that ended the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The time of `-W` is over.
    TimedOut,
    /// SIGINT or SIGTERM arrived.
    Signal(Signal),
}

/// A signal that asks the program to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    Interrupt,
    Terminate,
}

impl Signal {
    /// Exit code of a program that this signal ends, as shells report it.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Interrupt => 128 + 2,
            Self::Terminate => 128 + 15,
        }
    }
}

impl End {
    /// Exit status for this end. A signal is an ordinary end and no failure.
    pub(crate) fn outcome(self) -> Result<(), Failure> {
        match self {
            Self::TimedOut => Err(Failure::with_code("Timed out", TIMED_OUT)),
            Self::Signal(_) => Ok(()),
        }
    }
}

/// Waits for the first of these events. The time begins now.
pub(crate) async fn until(timeout: Option<Duration>) -> End {
    let over = async {
        match timeout {
            Some(timeout) => tokio::time::sleep(timeout).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = over => End::TimedOut,
        signal = signal() => End::Signal(signal),
    }
}

/// Waits for a signal. If signals cannot be caught, they end the process by default.
#[cfg(unix)]
pub(crate) async fn signal() -> Signal {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupted), Ok(mut terminated)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupted.recv() => Signal::Interrupt,
        _ = terminated.recv() => Signal::Terminate,
    }
}

#[cfg(not(unix))]
pub(crate) async fn signal() -> Signal {
    match tokio::signal::ctrl_c().await {
        Ok(()) => Signal::Interrupt,
        Err(_) => std::future::pending().await,
    }
}
