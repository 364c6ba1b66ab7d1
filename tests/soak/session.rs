//! The state that the broker must store for one client identifier, as far as its client can know.

use std::collections::{BTreeMap, BTreeSet};

/// Whether the session exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    Absent,
    Present,
    /// The connection was lost before an answer that would have told.
    Unknown,
}

/// A subscription that exists, existed, or may exist.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subscription {
    /// The granted QoS, from 0 to 2.
    pub(crate) qos: u8,
    /// Whether the subscription exists; `None` if uncertain.
    pub(crate) is_there: Option<bool>,
    /// Whether an acknowledgement or a comparison has confirmed the state.
    is_confirmed: bool,
}

/// The session of one client identifier.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) presence: Presence,
    /// Whether the session outlives its connection.
    pub(crate) lasts: bool,
    /// Whether the broker counts the session as lasting. A client can continue a lasting session, and let it end
    /// with this connection.
    pub(crate) is_counted: bool,
    /// Whether an acknowledgement or a comparison has confirmed the session.
    is_confirmed: bool,
    pub(crate) subscriptions: BTreeMap<String, Subscription>,
    /// Packet identifiers of QoS 2 exchanges that the broker may not have completed.
    pub(crate) unreleased: BTreeSet<u16>,
    /// Messages that certainly wait for the session.
    pub(crate) owed: BTreeSet<Vec<u8>>,
    /// Whether a will is pending whose delay is longer than this soak.
    pub(crate) has_pending_will: bool,
}

impl Session {
    /// Makes the state of a session that does not exist.
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

    /// Records that CONNACK has confirmed the session. `was_there` says whether the broker continues the old one.
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

    /// Records the end of the session, without a confirmation.
    ///
    /// If a killed broker loses the end, the session exists again. Its subscriptions and exchanges are therefore
    /// remembered until CONNACK or a comparison confirms the end.
    pub(crate) fn end(&mut self) {
        let (mut subscriptions, unreleased) =
            (std::mem::take(&mut self.subscriptions), std::mem::take(&mut self.unreleased));
        for subscription in subscriptions.values_mut() {
            subscription.is_there = Some(false);
            subscription.is_confirmed = false;
        }
        *self = Self { is_confirmed: false, subscriptions, unreleased, ..Self::absent() };
    }

    /// Records that the session may have ended.
    pub(crate) fn doubt(&mut self) {
        self.presence = Presence::Unknown;
        self.owed.clear();
    }

    /// Records a request. Returns whether the subscription existed, if that is certain.
    pub(crate) fn ask(&mut self, filter: &str) -> Option<bool> {
        let was_there = self.subscriptions.get(filter).map_or(Some(false), |known| known.is_there);
        self.doubt_subscription(filter);
        was_there
    }

    /// Records that the broker has granted or ended a subscription.
    pub(crate) fn confirm_subscription(&mut self, filter: &str, granted: Option<u8>) {
        let subscription = self.subscription(filter);
        *subscription = Subscription {
            qos: granted.unwrap_or(subscription.qos),
            is_there: Some(granted.is_some()),
            is_confirmed: true,
        };
    }

    /// Records a request that the broker has read with the DISCONNECT after it, but has not acknowledged. A killed
    /// broker may lose the request.
    pub(crate) fn assume_subscription(&mut self, filter: &str, asked: Option<u8>) {
        self.confirm_subscription(filter, asked);
        self.subscription(filter).is_confirmed = false;
    }

    /// Records that the state of a subscription is uncertain.
    pub(crate) fn doubt_subscription(&mut self, filter: &str) {
        let subscription = self.subscription(filter);
        subscription.is_there = None;
        subscription.is_confirmed = false;
    }

    /// Nobody can tell of any of them: the broker may have discarded the session that had them.
    pub(crate) fn doubt_subscriptions(&mut self) {
        for subscription in self.subscriptions.values_mut() {
            subscription.is_there = None;
            subscription.is_confirmed = false;
        }
    }

    fn subscription(&mut self, filter: &str) -> &mut Subscription {
        let unknown = Subscription { qos: 0, is_there: Some(false), is_confirmed: true };
        self.subscriptions.entry(filter.to_owned()).or_insert(unknown)
    }

    /// The filters of subscriptions whose state is uncertain.
    pub(crate) fn doubtful(&self) -> Vec<String> {
        let doubtful = self.subscriptions.iter().filter(|(_, subscription)| subscription.is_there.is_none());
        doubtful.map(|(filter, _)| filter.clone()).collect()
    }

    /// The filters of subscriptions that certainly exist, with their QoS.
    pub(crate) fn filters(&self) -> impl Iterator<Item = (&str, u8)> {
        let there = self.subscriptions.iter().filter(|(_, subscription)| subscription.is_there == Some(true));
        there.map(|(filter, subscription)| (filter.as_str(), subscription.qos))
    }

    /// Whether all state is certain.
    pub(crate) fn is_certain(&self) -> bool {
        self.presence != Presence::Unknown
            && self.subscriptions.values().all(|subscription| subscription.is_there.is_some())
    }

    /// Records that a comparison, long after all requests, has confirmed the whole state.
    pub(crate) fn confirm(&mut self) {
        self.is_confirmed = true;
        self.subscriptions.retain(|_, subscription| subscription.is_there == Some(true));
        self.subscriptions.values_mut().for_each(|subscription| subscription.is_confirmed = true);
    }

    /// Records the end of the broker, which may have lost all unconfirmed state.
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
    fn unconfirmed_changes_are_doubtful_after_the_broker_has_ended() {
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
        assert!(session.is_certain() && session.filters().next().is_none());
        session.survive();
        assert_eq!(session.presence, Presence::Unknown);
        session.begin(true, true);
        assert_eq!(session.doubtful(), ["a"], "the broker may have lost the end of the session");
    }

    #[test]
    fn subscriptions_of_a_session_that_may_be_a_new_one_are_doubtful() {
        let mut session = Session::absent();
        session.begin(false, true);
        session.confirm_subscription("a", Some(1));
        session.doubt();
        session.doubt_subscriptions();
        session.begin(true, true);
        assert_eq!(session.ask("a"), None);
    }
}
