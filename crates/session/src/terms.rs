//! The terms of a listener for its clients.

use wire::{Qos, Version};

/// The features that a listener allows, of those that the [`Settings`](crate::Settings) allow for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Versions of MQTT that a CONNECT may have.
    pub versions: Versions,
    /// The highest QoS of messages that clients publish, and that subscriptions are granted.
    pub qos_max: Qos,
}

impl Default for Terms {
    fn default() -> Self {
        Self { versions: Version::ALL.into_iter().collect(), qos_max: Qos::ExactlyOnce }
    }
}

/// A set of versions of MQTT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions(u8);

impl Versions {
    /// Whether this version is in the set.
    #[must_use]
    pub fn contains(self, version: Version) -> bool {
        self.0 & bit(version) != 0
    }
}

impl FromIterator<Version> for Versions {
    fn from_iter<I: IntoIterator<Item = Version>>(versions: I) -> Self {
        Self(versions.into_iter().fold(0, |set, version| set | bit(version)))
    }
}

fn bit(version: Version) -> u8 {
    match version {
        Version::V3_1 => 1,
        Version::V3_1_1 => 2,
        Version::V5 => 4,
    }
}
