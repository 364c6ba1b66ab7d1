//! Sessions, beside their lines: the owners of client identifiers, timers, wills, and the remains of ended sessions.
//!
//! Imports: `replies` and the parts below.

pub(crate) mod claims;
mod connect;
pub(crate) mod end;
pub(crate) mod moved;
mod owners;
mod restore;
pub(crate) mod settle;
pub(crate) mod subscribe;
pub(crate) mod timers;
pub(crate) mod wills;

use std::collections::VecDeque;

use protocol::Gauges;

use crate::bodies::Bodies;
use crate::lines::Lines;
use crate::record::principals::UnknownRules;
use crate::replies::Replies;
use crate::retained::cursors::Cursors;
use crate::sessions::claims::Claims;
use crate::sessions::end::Ending;
use crate::sessions::moved::Moved;
use crate::sessions::settle::Restart;
use crate::sessions::timers::Timers;
use crate::sessions::wills::Wills;
use crate::settings::Settings;

/// The state of sessions that is not in their lines.
#[derive(Debug)]
pub(crate) struct Sessions {
    pub(crate) claims: Claims,
    pub(crate) timers: Timers,
    pub(crate) wills: Wills,
    pub(crate) endings: VecDeque<Ending>,
    pub(crate) moved: Moved,
    /// Bytes of memory for subscriptions.
    pub(crate) subscription_bytes: usize,
    /// Packet identifiers of QoS 2 that sessions have open.
    pub(crate) unreleased: usize,
    /// Rules of sessions and wills that no listener had at the start.
    pub(crate) unknown_rules: UnknownRules,
}

/// The parts of the ledger that change sessions: connections come and go, subscriptions begin and end, time runs out.
pub(crate) struct SessionWork<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) sessions: &'a mut Sessions,
    pub(crate) lines: &'a mut Lines,
    pub(crate) bodies: &'a mut Bodies,
    pub(crate) replies: &'a mut Replies,
    pub(crate) cursors: &'a mut Cursors,
    pub(crate) restart: &'a mut Restart,
    pub(crate) gauges: &'a Gauges,
}

impl Sessions {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            claims: Claims::new(seed),
            timers: Timers::default(),
            wills: Wills::default(),
            endings: VecDeque::new(),
            moved: Moved::default(),
            subscription_bytes: 0,
            unreleased: 0,
            unknown_rules: UnknownRules::default(),
        }
    }
}
