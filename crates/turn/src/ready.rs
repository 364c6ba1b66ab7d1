//! Which connections a turn serves.

use std::collections::VecDeque;

use base::ConnectionId;

/// A turn hears of at most 1,024 sockets (`EVENTS_PER_TURN` in `net::shard`), and reads from as many connections...
const STAYING_PER_TURN: usize = 64;
/// ... and from as many whose peer has closed its direction. To end a connection costs many times what it costs to read
/// from one, and thousands may end at once: others do not wait for all of them.
const LEAVING_PER_TURN: usize = 8;

/// Connections that may have something to read, in the order in which they announced it.
#[derive(Default)]
pub(crate) struct Ready {
    staying: VecDeque<ConnectionId>,
    leaving: VecDeque<ConnectionId>,
}

/// How many one turn may still serve.
pub(crate) struct Share {
    staying: usize,
    leaving: usize,
}

impl Ready {
    pub(crate) fn push(&mut self, id: ConnectionId, is_leaving: bool) {
        if is_leaving { self.leaving.push_back(id) } else { self.staying.push_back(id) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.staying.is_empty() && self.leaving.is_empty()
    }

    /// The connections that are served in this turn. Connections that announce something meanwhile are served in the next.
    pub(crate) fn share(&self) -> Share {
        let (staying, leaving) = (self.staying.len(), self.leaving.len());
        Share { staying: staying.min(STAYING_PER_TURN), leaving: leaving.min(LEAVING_PER_TURN) }
    }

    /// The few that leave come first: they have their part of a turn however much the others send.
    pub(crate) fn next(&mut self, share: &mut Share) -> Option<ConnectionId> {
        let (queue, left) = match share {
            Share { leaving, .. } if *leaving > 0 => (&mut self.leaving, leaving),
            Share { staying, .. } if *staying > 0 => (&mut self.staying, staying),
            Share { .. } => return None,
        };
        *left -= 1;
        queue.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(slot: u32) -> ConnectionId {
        ConnectionId { slot, generation: 0 }
    }

    fn turn(ready: &mut Ready) -> Vec<u32> {
        let mut share = ready.share();
        std::iter::from_fn(|| ready.next(&mut share)).map(|id| id.slot).collect()
    }

    #[test]
    fn connections_that_stay_do_not_wait_for_all_that_leave() {
        let mut ready = Ready::default();
        (0..1_000).for_each(|slot| ready.push(connection(slot), true));
        ready.push(connection(1_000), false);
        let first = turn(&mut ready);
        assert_eq!(first, (0..8).chain([1_000]).collect::<Vec<_>>());
        let rest: Vec<u32> = (0..124).flat_map(|_| turn(&mut ready)).collect();
        assert_eq!(rest, (8..1_000).collect::<Vec<_>>());
        assert!(ready.is_empty());
    }

    #[test]
    fn connections_that_leave_do_not_wait_for_all_that_stay() {
        let mut ready = Ready::default();
        (0..200).for_each(|slot| ready.push(connection(slot), false));
        ready.push(connection(200), true);
        let mut share = ready.share();
        assert_eq!(ready.next(&mut share), Some(connection(200)));
        ready.push(connection(201), true);
        let staying: Vec<u32> = std::iter::from_fn(|| ready.next(&mut share)).map(|id| id.slot).collect();
        assert_eq!(staying, (0..64).collect::<Vec<_>>(), "and who announces itself meanwhile comes later");
        assert_eq!(turn(&mut ready)[0], 201);
    }
}
