//! The terms of a listener for its clients.

use topic::TopicFilter;
use wire::{Qos, SubAckReason, Version};

use crate::Settings;

/// The features that a listener allows, of those that the [`Settings`](crate::Settings) allow for all.
///
/// The terms are one byte, because each session has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms(u8);

/// The place of the highest QoS in the byte, which is two bits. The bits below it are the versions.
const QOS_SHIFT: u32 = 3;
const QOS_MASK: u8 = 0b11;
/// Set where there are no retained messages.
const NO_RETAIN: u8 = 1 << 5;
/// Set where filters have no wildcards.
const NO_WILDCARDS: u8 = 1 << 6;
/// Set where each client must have an identifier of its own.
const NO_EMPTY_ID: u8 = 1 << 7;

impl Terms {
    /// A CONNECT may have any of these versions. `qos_max` is the highest QoS of messages that clients publish, and that
    /// subscriptions are granted. Retained messages and wildcards are available.
    pub fn new(versions: impl IntoIterator<Item = Version>, qos_max: Qos) -> Self {
        let versions = versions.into_iter().fold(0, |set, version| set | bit(version));
        Self(versions | (qos_max as u8) << QOS_SHIFT)
    }

    /// The same terms, where `is_available` says whether clients may set RETAIN, and get retained messages when they
    /// subscribe.
    #[must_use]
    pub fn with_retain(self, is_available: bool) -> Self {
        self.with(NO_RETAIN, !is_available)
    }

    /// The same terms, where `are_available` says whether filters may have wildcards.
    #[must_use]
    pub fn with_wildcard_subscriptions(self, are_available: bool) -> Self {
        self.with(NO_WILDCARDS, !are_available)
    }

    /// The same terms, where `may_be_empty` says whether clients may leave their identifier to the broker.
    #[must_use]
    pub fn with_empty_client_ids(self, may_be_empty: bool) -> Self {
        self.with(NO_EMPTY_ID, !may_be_empty)
    }

    /// These terms as far as the settings allow them.
    #[must_use]
    pub fn within(self, settings: &Settings) -> Self {
        let qos_max = self.qos_max().min(settings.qos_max);
        Self(self.0 & !(QOS_MASK << QOS_SHIFT) | (qos_max as u8) << QOS_SHIFT)
            .with_retain(self.retain_available() && settings.retain_available)
            .with_wildcard_subscriptions(
                self.wildcard_subscriptions_available() && settings.wildcard_subscriptions_available,
            )
    }

    /// Whether a CONNECT may have this version.
    #[must_use]
    pub fn allow(self, version: Version) -> bool {
        self.0 & bit(version) != 0
    }

    /// The highest QoS of messages that clients publish, and that subscriptions are granted.
    #[must_use]
    pub fn qos_max(self) -> Qos {
        match self.0 >> QOS_SHIFT & QOS_MASK {
            0 => Qos::AtMostOnce,
            1 => Qos::AtLeastOnce,
            _ => Qos::ExactlyOnce,
        }
    }

    /// Whether clients may set RETAIN, and get retained messages when they subscribe.
    #[must_use]
    pub fn retain_available(self) -> bool {
        self.0 & NO_RETAIN == 0
    }

    /// Whether filters may have wildcards.
    #[must_use]
    pub fn wildcard_subscriptions_available(self) -> bool {
        self.0 & NO_WILDCARDS == 0
    }

    /// Whether clients may leave their identifier to the broker.
    #[must_use]
    pub fn empty_client_ids(self) -> bool {
        self.0 & NO_EMPTY_ID == 0
    }

    /// Why a filter is not accepted that the settings allow.
    #[must_use]
    pub fn refusal(self, filter: TopicFilter<'_>, version: Version) -> Option<SubAckReason> {
        let is_refused = !self.wildcard_subscriptions_available() && filter.has_wildcard();
        let reason = match version {
            Version::V5 => SubAckReason::WildcardSubscriptionsNotSupported,
            Version::V3_1 | Version::V3_1_1 => SubAckReason::UnspecifiedError,
        };
        is_refused.then_some(reason)
    }

    fn with(self, bits: u8, are_set: bool) -> Self {
        Self(if are_set { self.0 | bits } else { self.0 & !bits })
    }
}

impl Default for Terms {
    fn default() -> Self {
        Self::new(Version::ALL, Qos::ExactlyOnce)
    }
}

fn bit(version: Version) -> u8 {
    match version {
        Version::V3_1 => 1,
        Version::V3_1_1 => 2,
        Version::V5 => 4,
    }
}
