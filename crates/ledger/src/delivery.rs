//! Messages on their way from lines to clients, and the answers of clients.
//!
//! Imports: `walks` and the parts below.

pub(crate) mod acknowledge;
mod expired;
pub(crate) mod feed;
mod share;

use crate::bodies::Bodies;
use crate::delivery::feed::FirstFates;
use crate::lines::Lines;
use crate::replies::Replies;
use crate::retained::cursors::Cursors;
use crate::sessions::Sessions;
use crate::settings::Settings;

/// The parts of the ledger that deliver messages.
pub(crate) struct Delivery<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) sessions: &'a mut Sessions,
    pub(crate) lines: &'a mut Lines,
    pub(crate) bodies: &'a mut Bodies,
    pub(crate) replies: &'a mut Replies,
    pub(crate) cursors: &'a mut Cursors,
    pub(crate) first_fates: &'a mut FirstFates,
    /// Nothing is fed before: there was no space for the records.
    pub(crate) stalled_until_ms: &'a mut Option<u64>,
}
