//! The ledger's records on disk: an append-only log of groups of records, in segments that are recycled.
//!
//! Groups are appended to a frame in memory without waiting. One thread writes the frame and syncs it while the next one
//! fills, so that a commit takes what has come while the last one ran. The journal does not know what its records mean:
//! when the space of its oldest segment is wanted, it hands that segment's records back, and the ledger commits again
//! what of them is still true. `docs/JOURNAL.md` has the format byte by byte.
#![forbid(unsafe_code)]

mod ahead;
mod cleaning;
mod committer;
mod directory;
mod discard;
mod error;
mod fetcher;
mod frame;
mod journal;
mod log;
mod meta;
mod panel;
mod plan;
mod preparer;
mod recovery;
mod repair;
mod resume;
mod runner;
mod segment;
mod settings;
pub mod simulated;
mod storage;

pub use committer::Committer;
pub use directory::{Directory, DirectoryError};
pub use discard::discard;
pub use error::{Damage, Fault, OpenError};
pub use journal::{Journal, Opening, open};
pub use log::{Log, REST_MS, RecordPurpose, Status, Trouble, Urgency};
pub use preparer::{Pace, Preparer, SEGMENTS_BEYOND_LIMIT};
pub use recovery::{Parts, Recovery, Report};
pub use repair::{check, discard_damaged};
pub use runner::Wake;
pub use segment::{BYTES_MOST as SEGMENT_BYTES_MOST, is_segment};
pub use settings::Settings;
pub use storage::{File, Storage};
