//! The users of this machine, as the system knows them: in `/etc/passwd`, in a directory, or elsewhere.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use auth::{LoginNames, NoLoginNames};
use nix::errno::Errno;
use nix::unistd::{Uid, User};

/// Shortest time between two lines of the log about the same trouble.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// The users of the system, and the time of the last line of the log.
#[derive(Debug, Default)]
struct System(Mutex<Option<Instant>>);

/// The names of all users of the system.
pub(crate) fn of_system() -> Arc<dyn LoginNames> {
    Arc::new(System::default())
}

impl LoginNames for System {
    fn of(&self, uid: u32) -> Result<Option<String>, NoLoginNames> {
        match User::from_uid(Uid::from_raw(uid)) {
            // A name that is no UTF-8 has replacement characters here, as another name may have.
            Ok(user) => Ok(user.map(|user| user.name).filter(|name| !name.contains('\u{fffd}'))),
            // Some systems say so about a number that no user has.
            Err(Errno::ENOENT | Errno::ESRCH) => Ok(None),
            Err(error) => {
                let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                if told.is_none_or(|told| told.elapsed() >= TOLD_EVERY) {
                    *told = Some(Instant::now());
                    tracing::error!(%error, uid, "the system does not tell the name of a user");
                }
                Err(NoLoginNames)
            }
        }
    }
}
