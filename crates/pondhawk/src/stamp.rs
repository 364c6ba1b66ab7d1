//! Signs that a file has changed.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

/// Length and time of change of a file. A link is followed, because certbot and Kubernetes change links.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    bytes: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    /// Looks at a file. `None` if that cannot be done, which is a state like others.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let file = fs::metadata(path).ok()?;
        Some(Self { bytes: file.len(), modified: file.modified().ok() })
    }
}
