//! Options of one subscription, in four bytes.

use std::num::NonZeroU32;

use thin_vec::ThinVec;
use wire::Qos;

/// Subscription Identifiers [5.0 section 3.8.2.1.2]; mostly none.
pub type Identifiers = ThinVec<NonZeroU32>;

/// The options of a subscription that count at delivery (MQTT 5.0, 3.8.3.1), and its identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interest(u32);

/// The largest subscription identifier is 2^28 - 1 (MQTT 5.0, 3.8.2.1.2): the rest of the word is free.
const IDENTIFIER_BITS: u32 = 28;
const NO_LOCAL: u32 = 1 << 30;
const RETAIN_AS_PUBLISHED: u32 = 1 << 31;

impl Interest {
    /// A subscription with the granted `qos` and no options.
    #[must_use]
    pub fn new(qos: Qos) -> Self {
        Self((qos as u32) << IDENTIFIER_BITS)
    }

    /// The same options with or without No Local.
    #[must_use]
    pub fn with_no_local(self, no_local: bool) -> Self {
        self.with(NO_LOCAL, no_local)
    }

    /// The same options with or without Retain As Published.
    #[must_use]
    pub fn with_retain_as_published(self, retain_as_published: bool) -> Self {
        self.with(RETAIN_AS_PUBLISHED, retain_as_published)
    }

    /// The same options with a subscription identifier, or without.
    #[must_use]
    pub fn with_identifier(self, identifier: Option<NonZeroU32>) -> Self {
        let flags = self.0 & !(u32::MAX >> (32 - IDENTIFIER_BITS));
        Self(flags | identifier.map_or(0, |identifier| identifier.get()))
    }

    fn with(self, flag: u32, set: bool) -> Self {
        Self(if set { self.0 | flag } else { self.0 & !flag })
    }

    /// The maximum QoS that was granted.
    #[must_use]
    pub fn qos(self) -> Qos {
        match self.0 >> IDENTIFIER_BITS & 3 {
            0 => Qos::AtMostOnce,
            1 => Qos::AtLeastOnce,
            _ => Qos::ExactlyOnce,
        }
    }

    /// Whether the client's own messages are left out.
    #[must_use]
    pub fn no_local(self) -> bool {
        self.0 & NO_LOCAL != 0
    }

    /// Whether RETAIN is forwarded as it was published.
    #[must_use]
    pub fn retain_as_published(self) -> bool {
        self.0 & RETAIN_AS_PUBLISHED != 0
    }

    /// Subscription identifier, if the client gave one.
    #[must_use]
    pub fn identifier(self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.0 & (u32::MAX >> (32 - IDENTIFIER_BITS)))
    }
}
