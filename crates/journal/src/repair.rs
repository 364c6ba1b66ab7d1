//! Looking at a directory without opening it, and giving up what is damaged in it.

use std::sync::Arc;

use crate::{Damage, OpenError, Report, Settings, Storage, discard};

/// Reads a whole journal without changing anything.
///
/// # Errors
/// What [`open`](crate::open) and [`Opening::start`](crate::Opening::start) would say.
pub fn check(storage: Arc<dyn Storage>) -> Result<Report, OpenError> {
    crate::open(storage, Settings::default())?.into_report()
}

/// Gives up what is damaged, so that the journal can be opened, and returns what that was. All frames that are whole stay;
/// what is given up cannot be had back afterwards.
///
/// # Errors
/// The directory is not one that this program could have written, or the file system has failed.
pub fn discard_damaged(storage: &Arc<dyn Storage>) -> Result<Vec<Damage>, OpenError> {
    let mut discarded: Vec<Damage> = Vec::new();
    loop {
        match check(storage.clone()) {
            Ok(_) => return Ok(discarded),
            // Damage that is still there after a repair cannot be repaired.
            Err(OpenError::Damaged(damage)) if !discarded.contains(&damage) => {
                discard(&**storage, &damage)?;
                discarded.push(damage);
            }
            Err(error) => return Err(error),
        }
    }
}
