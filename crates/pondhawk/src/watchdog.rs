//! The watchdog of the service manager (`WatchdogSec=` of systemd): it hears of the broker as long as all threads answer.
//!
//! A thread that hangs answers no client either. The service manager then ends the process and starts it again, and no
//! acknowledged message is lost. The main thread is not asked: clients are served without it, also while a file that it reads
//! is slow.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;

use net::Operator;
use sd_notify::NotifyState;

use crate::process;

/// Tells the service manager that the broker lives, until it is dropped.
pub(crate) struct Watchdog {
    _until_dropped: Option<Sender<()>>,
}

impl Watchdog {
    /// Begins, if the service manager wants to know.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn start(operator: Operator) -> io::Result<Self> {
        let Some(limit) = sd_notify::watchdog_enabled() else { return Ok(Self { _until_dropped: None }) };
        // sd_watchdog_enabled(3) recommends half of the time.
        let interval = limit / 2;
        let (until_dropped, dropped) = channel::<()>();
        thread::Builder::new().name("watchdog".to_owned()).spawn(move || {
            while dropped.recv_timeout(interval / 2) == Err(RecvTimeoutError::Timeout) {
                if operator.all_answer(interval / 2) {
                    process::notify(&[NotifyState::Watchdog]);
                } else {
                    tracing::error!(
                        "a thread of the broker does not answer; the service manager may start it again"
                    );
                }
            }
        })?;
        Ok(Self { _until_dropped: Some(until_dropped) })
    }
}
