//! Being asked to stop, by SIGINT, SIGTERM or SIGHUP: servers are ended and files removed first.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

use crate::error::{Error, Result};

/// Whether somebody has asked this program to stop.
///
/// Whatever takes long looks at it now and then and ends with an error, so that everything in between is dropped in
/// order. No thread and no handler ends anything behind its owner's back.
#[derive(Debug, Default)]
pub(crate) struct Interrupt {
    /// The signal that asked, or 0.
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// From now on SIGINT, SIGTERM and SIGHUP are noted here, and no longer end the process.
    ///
    /// # Errors
    /// If the system refuses.
    pub(crate) fn on_signals() -> Result<Self> {
        let interrupt = Self::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let number = usize::try_from(signal).expect("signals are small positive numbers");
            flag::register_usize(signal, Arc::clone(&interrupt.signal), number)
                .map_err(Error::io("be told of signals"))?;
        }
        Ok(interrupt)
    }

    /// Goes on if nobody has asked.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if somebody has.
    pub(crate) fn check(&self) -> Result<()> {
        self.signal().map_or(Ok(()), |signal| Err(Error::Interrupted { signal }))
    }

    /// Lets the signal, if there was one, end the process as it would have at once: whoever started it can tell.
    ///
    /// # Errors
    /// If the system refuses.
    pub(crate) fn take_effect(&self) -> Result<()> {
        let end = |signal| low_level::emulate_default_handler(signal);
        self.signal().map_or(Ok(()), end).map_err(Error::io("end as the signal asks"))
    }

    fn signal(&self) -> Option<i32> {
        i32::try_from(self.signal.load(Ordering::Relaxed)).ok().filter(|signal| *signal != 0)
    }
}
