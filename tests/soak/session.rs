//! What the broker has to hold for one client identifier, as far as its client can know.

use std::collections::{BTreeMap, BTreeSet};

/// Whether there is a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    Absent,
    Present,
    /// The client was cut off from the answer that would tell.
    Unknown,
}

/// A subscription that there is, was, or may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subscription {
    /// 0 to 2.
    pub(crate) qos: u8,
    /// Nothing while nobody can tell.
    pub(crate) is_there: Option<bool>,
    /// The broker has said so, or has been seen to hold it.
    is_confirmed: bool,
}

/// The session of one client identifier.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) presence: Presence,
    /// Whether it outlives its connection.
    pub(crate) lasts: bool,
    /// Whether it is among those that the broker counts as such: a client can go on with a session that lasts, and ask for its
    /// end with this connection.
    pub(crate) is_counted: bool,
    /// The broker has said so, or has been seen to hold it.
    is_confirmed: bool,
    pub(crate) subscriptions: BTreeMap<String, Subscription>,
    /// Packet identifiers of QoS 2 that the broker may have open.
    pub(crate) unreleased: BTreeSet<u16>,
    /// Messages that wait for it for certain.
    pub(crate) owed: BTreeSet<Vec<u8>>,
    /// A will waits longer than this soak lasts.
    pub(crate) has_pending_will: bool,
}

impl Session {
    /// There is none.
    pub(crate) fn absent() -> Self {
        Self {
            presence: Presence::Absent,
            lasts: false,
            is_counted: false,
            is_confirmed: true,
            subscriptions: BTreeMap::new(),
            unreleased: BTreeSet::new(),
            owed: BTreeSet::new(),
            has_pending_will: false,
        }
    }

    /// The broker has said that there is one, and whether it is the one that there was.
    pub(crate) fn begin(&mut self, was_there: bool, lasts: bool) {
        if !was_there {
            *self = Self::absent();
        }
        self.presence = Presence::Present;
        self.lasts = lasts;
        self.is_counted |= lasts || was_there;
        self.is_confirmed = true;
        self.has_pending_will = false;
    }

    /// It has ended, though nobody has said so.
    pub(crate) fn end(&mut self) {
        *self = Self { is_confirmed: false, ..Self::absent() };
    }

    /// It may have ended.
    pub(crate) fn doubt(&mut self) {
        self.presence = Presence::Unknown;
        self.owed.clear();
    }

    /// A request is sent. Whether there was such a subscription, where anybody can tell.
    pub(crate) fn ask(&mut self, filter: &str) -> Option<bool> {
        let was_there = self.subscriptions.get(filter).map_or(Some(false), |known| known.is_there);
        self.doubt_subscription(filter);
        was_there
    }

    /// The broker has granted it, or has said that there is none any more.
    pub(crate) fn confirm_subscription(&mut self, filter: &str, granted: Option<u8>) {
        let subscription = self.subscription(filter);
        *subscription = Subscription {
            qos: granted.unwrap_or(subscription.qos),
            is_there: Some(granted.is_some()),
            is_confirmed: true,
        };
    }

    /// The broker has taken the request and the DISCONNECT behind it, but has not answered: it may forget it when it is
    /// killed.
    pub(crate) fn assume_subscription(&mut self, filter: &str, asked: Option<u8>) {
        self.confirm_subscription(filter, asked);
        self.subscription(filter).is_confirmed = false;
    }

    /// Nobody can tell.
    pub(crate) fn doubt_subscription(&mut self, filter: &str) {
        let subscription = self.subscription(filter);
        subscription.is_there = None;
        subscription.is_confirmed = false;
    }

    fn subscription(&mut self, filter: &str) -> &mut Subscription {
        let unknown = Subscription { qos: 0, is_there: Some(false), is_confirmed: true };
        self.subscriptions.entry(filter.to_owned()).or_insert(unknown)
    }

    /// Filters of which nobody can tell whether there is a subscription.
    pub(crate) fn doubtful(&self) -> Vec<String> {
        let doubtful = self.subscriptions.iter().filter(|(_, subscription)| subscription.is_there.is_none());
        doubtful.map(|(filter, _)| filter.clone()).collect()
    }

    /// Filters of subscriptions that there are for certain.
    pub(crate) fn filters(&self) -> impl Iterator<Item = (&str, u8)> {
        let there = self.subscriptions.iter().filter(|(_, subscription)| subscription.is_there == Some(true));
        there.map(|(filter, subscription)| (filter.as_str(), subscription.qos))
    }

    /// Whether nothing is doubtful.
    pub(crate) fn is_certain(&self) -> bool {
        self.presence != Presence::Unknown
            && self.subscriptions.values().all(|subscription| subscription.is_there.is_some())
    }

    /// The broker has been seen to hold all of it, long after it was asked for.
    pub(crate) fn confirm(&mut self) {
        self.is_confirmed = true;
        self.subscriptions.retain(|_, subscription| subscription.is_there == Some(true));
        self.subscriptions.values_mut().for_each(|subscription| subscription.is_confirmed = true);
    }

    /// The broker has ended: it may have forgotten what it had not confirmed.
    pub(crate) fn survive(&mut self) {
        if !self.is_confirmed {
            self.doubt();
        }
        for subscription in self.subscriptions.values_mut().filter(|subscription| !subscription.is_confirmed)
        {
            subscription.is_there = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_confirmed_is_doubtful_after_the_broker_has_ended() {
        let mut session = Session::absent();
        session.begin(false, true);
        session.confirm_subscription("a", Some(1));
        session.assume_subscription("b", Some(1));
        assert!(session.is_certain());
        session.survive();
        assert_eq!(session.doubtful(), ["b"]);
        session.confirm_subscription("b", None);
        session.confirm();
        assert_eq!(session.filters().collect::<Vec<_>>(), [("a", 1)]);
        session.end();
        session.survive();
        assert_eq!(session.presence, Presence::Unknown);
    }
}
