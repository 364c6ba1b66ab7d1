//! Groups hear that their members come and go: of a session in many groups, bit by bit.
//!
//! A group that has not heard yet finds out when it is the member's turn: one that is gone takes nothing. One that is back
//! is on another connection, on which it comes into the line anew.

use std::collections::VecDeque;
use std::ops::Bound;

use base::QueueId;

use crate::lines::Lines;
use crate::lines::pieces::pay;
use crate::lines::session::Session;
use index::Subscriptions;
use topic::TopicFilter;

/// How far the groups of a session have heard that it has come or gone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moving {
    after: Option<QueueId>,
}

/// Sessions that have come or gone, and some of whose groups have not heard.
#[derive(Debug)]
pub(crate) struct Movings {
    sessions: VecDeque<QueueId>,
    /// The groups of one session that hear of it at once.
    units_at_once: usize,
}

impl Movings {
    pub(crate) fn new(units_at_once: usize) -> Self {
        Self { sessions: VecDeque::new(), units_at_once }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }
}

impl Lines {
    /// A session has come to a connection, or has left it: its groups hear of it, some now and the others in turn.
    pub(crate) fn move_in_groups(&mut self, id: QueueId) {
        let mut units = self.moving.units_at_once;
        let session = self.session_mut(id).expect("the session that has come or gone is there");
        let was_moving = session.moving.replace(Moving { after: None }).is_some();
        let is_done = self.move_in_some(id, &mut units);
        if !(is_done || was_moving) {
            self.moving.sessions.push_back(id);
        }
    }

    /// Goes on with the sessions that have come or gone.
    pub(crate) fn move_some(&mut self, units: &mut usize) {
        while *units > 0
            && let Some(id) = self.moving.sessions.pop_front()
        {
            if !self.move_in_some(id, units) {
                self.moving.sessions.push_front(id);
            }
            *units = units.saturating_sub(1);
        }
    }

    /// Tells some groups. Whether all have heard.
    fn move_in_some(&mut self, id: QueueId, units: &mut usize) -> bool {
        while *units > 0 {
            // It may have ended since it came into the line.
            let Some(session) = self.session_mut(id) else { return true };
            let Some(Moving { after }) = session.moving else { return true };
            let behind = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
            let is_at = session.open().map(|online| online.place);
            let Some((group, share)) = session.shares.range_mut(behind).next() else {
                session.moving = None;
                return true;
            };
            let group = *group;
            session.moving = Some(Moving { after: Some(group) });
            *units -= 1;
            if share.present == is_at {
                continue;
            }
            if share.present.take().is_some() {
                let subscriber = session.subscriber.clone();
                let lanes = self.part_from(&subscriber, id, group);
                *units = units.saturating_sub(lanes);
            }
            if is_at.is_some() {
                self.take_part(id, group);
            }
        }
        false
    }
}

/// Routes through the filters of a session are to look again where it is. If these are more than this many units, all
/// routes are: each of them looks once.
const TOUCHED_AT_ONCE: usize = 1_000;

pub(crate) fn touch(index: &Subscriptions, session: &Session) {
    let mut left = TOUCHED_AT_ONCE;
    for filter in session.subscriptions.keys() {
        if pay(&mut left, filter).is_none() {
            return index.touch_all();
        }
        index.touch(TopicFilter::new(filter).ok());
    }
}
