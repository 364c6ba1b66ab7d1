//! Who holds which client identifier: one connection each, and at most one that waits for it.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;
use hashbrown::HashTable;
use index::Subscriber;

/// ```text
///            claim                    claim                   claim
///   free ───────────► held ───────────────► held + waiting ─────────► held + the newer one;
///     ▲    Claimed      │   Evict holder        │                     Evict the one that waited
///     └────── left ─────┘                       │ holder left
///                       ▲────── Claimed ────────┘
/// ```
#[derive(Debug)]
pub(crate) struct Claims {
    claims: HashTable<Claim>,
    hasher: SeedableRandomState,
}

/// One client identifier, which exists once: in its holder.
#[derive(Debug)]
struct Claim {
    holder: Arc<Subscriber>,
    waiting: Option<Arc<Subscriber>>,
}

/// Who is to be told what.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) evicted: Option<Arc<Subscriber>>,
    pub(crate) claimed: Option<Arc<Subscriber>>,
}

impl Claims {
    pub(crate) fn new(seed: u64) -> Self {
        let hasher = SeedableRandomState::with_seed(seed, SharedSeed::global_fixed());
        Self { claims: HashTable::new(), hasher }
    }

    /// Somebody wants its identifier [MQTT-3.1.4-3].
    pub(crate) fn claim(&mut self, claimant: &Arc<Subscriber>) -> Outcome {
        let hash = self.hasher.hash_one(&*claimant.client_id);
        if let Some(claim) = self.claims.find_mut(hash, |claim| claim.holder.client_id == claimant.client_id)
        {
            // A holder that was asked to leave is not asked twice: who waited gives way to the newer one.
            let waited = claim.waiting.replace(Arc::clone(claimant));
            let evicted = waited.unwrap_or_else(|| Arc::clone(&claim.holder));
            return Outcome { evicted: Some(evicted), claimed: None };
        }
        let claim = Claim { holder: Arc::clone(claimant), waiting: None };
        let hasher = &self.hasher;
        self.claims.insert_unique(hash, claim, |claim| hasher.hash_one(&*claim.holder.client_id));
        Outcome { evicted: None, claimed: Some(Arc::clone(claimant)) }
    }

    /// Somebody is gone; one that neither held nor waited changes nothing.
    pub(crate) fn left(&mut self, who: &Arc<Subscriber>) -> Outcome {
        let hash = self.hasher.hash_one(&*who.client_id);
        let found = self.claims.find_entry(hash, |claim| claim.holder.client_id == who.client_id);
        let Ok(mut found) = found else { return Outcome::default() };
        let claim = found.get_mut();
        if claim.waiting.as_ref().is_some_and(|waiting| Arc::ptr_eq(waiting, who)) {
            claim.waiting = None;
            return Outcome::default();
        }
        if !Arc::ptr_eq(&claim.holder, who) {
            return Outcome::default();
        }
        match claim.waiting.take() {
            Some(next) => {
                claim.holder = Arc::clone(&next);
                Outcome { evicted: None, claimed: Some(next) }
            }
            None => {
                found.remove();
                self.shrink();
                Outcome::default()
            }
        }
    }

    /// After most clients have gone the table gives its memory back.
    fn shrink(&mut self) {
        if self.claims.capacity() > 1_024 && self.claims.len() < self.claims.capacity() / 8 {
            let hasher = &self.hasher;
            self.claims.shrink_to(self.claims.len() * 2, |claim| hasher.hash_one(&*claim.holder.client_id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use index::{ConnectionId, ShardId};

    fn client(slot: u32) -> Arc<Subscriber> {
        let connection = ConnectionId { slot, generation: 0 };
        Arc::new(Subscriber::new("one".into(), ShardId::new(0), connection))
    }

    fn slots(outcome: &Outcome) -> (Option<u32>, Option<u32>) {
        let slot = |who: &Option<Arc<Subscriber>>| who.as_ref().map(|who| who.connection.slot);
        (slot(&outcome.evicted), slot(&outcome.claimed))
    }

    #[test]
    fn an_identifier_has_one_holder_and_the_newest_claimant_follows() {
        let mut claims = Claims::new(1);
        let [a, b, c] = [client(1), client(2), client(3)];
        assert_eq!(slots(&claims.claim(&a)), (None, Some(1)));
        assert_eq!(slots(&claims.claim(&b)), (Some(1), None));
        assert_eq!(slots(&claims.claim(&c)), (Some(2), None));
        assert_eq!(slots(&claims.left(&b)), (None, None), "who gave way changes nothing");
        assert_eq!(slots(&claims.left(&a)), (None, Some(3)));
        assert_eq!(slots(&claims.left(&a)), (None, None), "nobody leaves twice");
        assert_eq!(slots(&claims.left(&c)), (None, None));
        assert!(claims.claims.is_empty());
    }

    #[test]
    fn a_claimant_that_leaves_while_it_waits_is_forgotten() {
        let mut claims = Claims::new(1);
        let [a, b] = [client(1), client(2)];
        claims.claim(&a);
        claims.claim(&b);
        claims.left(&b);
        assert_eq!(slots(&claims.left(&a)), (None, None));
        assert!(claims.claims.is_empty());
    }
}
