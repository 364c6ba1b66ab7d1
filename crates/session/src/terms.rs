//! The terms of a listener for its clients.

use wire::{Qos, Version};

/// The features that a listener allows, of those that the [`Settings`](crate::Settings) allow for all.
///
/// The terms are one byte, because each session has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms(u8);

/// The place of the highest QoS in the byte. The bits below it are the versions.
const QOS_SHIFT: u32 = 3;

impl Terms {
    /// A CONNECT may have any of these versions. `qos_max` is the highest QoS of messages that clients publish, and that
    /// subscriptions are granted.
    pub fn new(versions: impl IntoIterator<Item = Version>, qos_max: Qos) -> Self {
        let versions = versions.into_iter().fold(0, |set, version| set | bit(version));
        Self(versions | (qos_max as u8) << QOS_SHIFT)
    }

    /// Whether a CONNECT may have this version.
    #[must_use]
    pub fn allow(self, version: Version) -> bool {
        self.0 & bit(version) != 0
    }

    /// The highest QoS of messages that clients publish, and that subscriptions are granted.
    #[must_use]
    pub fn qos_max(self) -> Qos {
        match self.0 >> QOS_SHIFT {
            0 => Qos::AtMostOnce,
            1 => Qos::AtLeastOnce,
            _ => Qos::ExactlyOnce,
        }
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
