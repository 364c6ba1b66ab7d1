//! Messages on their way from publishers into lines, to connected subscribers, and among the retained ones.
//!
//! Imports: `sessions` and the parts below.

mod expired;
mod full;
pub(crate) mod publish;
mod wills;

use protocol::Gauges;

use crate::bodies::Bodies;
use crate::lines::Lines;
use crate::publishing::publish::Plan;
use crate::replies::Replies;
use crate::retained::Retained;
use crate::sessions::Sessions;
use crate::settings::Settings;

/// The parts of the ledger that take messages in.
pub(crate) struct Publishing<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) sessions: &'a mut Sessions,
    pub(crate) lines: &'a mut Lines,
    pub(crate) bodies: &'a mut Bodies,
    pub(crate) replies: &'a mut Replies,
    pub(crate) retained: &'a mut Retained,
    /// The queues of the current message.
    pub(crate) plan: &'a mut Plan,
    pub(crate) gauges: &'a Gauges,
}
