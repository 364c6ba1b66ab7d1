//! What ends a program from outside.

use std::time::Duration;

use crate::failure::{Failure, TIMED_OUT};

/// Which it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// `-W`.
    TimedOut,
    /// SIGINT or SIGTERM.
    Signal,
}

impl End {
    /// A signal is a way to end as others are.
    pub(crate) fn outcome(self) -> Result<(), Failure> {
        match self {
            Self::TimedOut => Err(Failure::with_code("Timed out", TIMED_OUT)),
            Self::Signal => Ok(()),
        }
    }
}

/// Waits for the first of them; the time begins now.
pub(crate) async fn until(timeout: Option<Duration>) -> End {
    let over = async {
        match timeout {
            Some(timeout) => tokio::time::sleep(timeout).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = over => End::TimedOut,
        () = signal() => End::Signal,
    }
}

/// Where signals cannot be caught, they end the program anyway.
#[cfg(unix)]
async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupted), Ok(mut terminated)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupted.recv() => {}
        _ = terminated.recv() => {}
    }
}

#[cfg(not(unix))]
async fn signal() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}
