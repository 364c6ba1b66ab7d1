//! Retained cursors of lasting sessions wait while much waits in the line of their session.

use base::QueueId;

use crate::lines::Lines;
use crate::lines::bounds::Bounds;
use crate::queue::Queue;
use crate::retained::Stride;
use crate::retained::cursors::Cursors;
use crate::settings::Settings;

/// One step of a retained cursor ends with the message that reaches this size, or after looking at as many values, so
/// that nobody waits behind a filter that matches little.
pub(crate) const STRIDE: Stride = Stride { bytes: 64 * 1024, visits: 1_000 };

/// How much a cursor brings to a session at a time: it must never fill its queue.
pub(crate) fn stride(bounds: Bounds) -> Stride {
    Stride {
        bytes: STRIDE.bytes.min(bounds.bytes / 4),
        visits: STRIDE.visits.min(bounds.messages / 4).max(1),
    }
}

/// Whether so little waits for a session that a cursor may bring more: a queue that is never empty does not stop it.
pub(crate) fn is_short(queue: &Queue, bounds: Bounds) -> bool {
    let stride = stride(bounds);
    queue.len() < stride.visits && queue.bytes() < stride.bytes.max(1)
}

impl Cursors {
    /// Lets the cursors of a session go on if little waits in its queue.
    pub(crate) fn unpark(&mut self, lines: &mut Lines, settings: &Settings, queue: QueueId) {
        let line = lines.find_mut(queue);
        let line = line.filter(|line| is_short(&line.queue, line.bounds(settings)));
        if let Some(online) = line.and_then(|line| line.session_mut()?.online.as_mut()) {
            std::mem::take(&mut online.parked).into_iter().for_each(|key| self.ask(key));
        }
    }
}
