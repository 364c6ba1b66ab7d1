//! The messages that rules of roles allow, as marks in a tree.

use wire::Qos;

use crate::tree::{Line, Merge, first};

/// The messages that a client may publish to a topic: at which QoS, and whether they may be retained.
///
/// Several rules add up. If one allows QoS 2, and another one messages that are retained at QoS 0, then a message at QoS 2
/// may not be retained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permit(u8);

/// Number of different messages as far as permits know them: three levels of QoS, retained or not.
const KINDS: usize = 6;

fn kind(qos: Qos, retain: bool) -> usize {
    2 * qos as usize + usize::from(retain)
}

impl Permit {
    /// No message is allowed.
    pub const NONE: Self = Self(0);
    /// Each message is allowed.
    pub const ALL: Self = Self(0b11_1111);

    /// Messages up to this QoS, with or without those that are retained.
    #[must_use]
    pub fn up_to(qos_max: Qos, retain: bool) -> Self {
        let mut permit = Self::NONE;
        for kind in 0..=kind(qos_max, true) {
            if retain || kind % 2 == 0 {
                permit.0 |= 1 << kind;
            }
        }
        permit
    }

    /// The messages that one of two permits allows.
    pub(crate) fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether a message with this QoS and RETAIN may be published. Costs one comparison.
    #[must_use]
    pub fn allows(self, qos: Qos, retain: bool) -> bool {
        self.0 >> kind(qos, retain) & 1 == 1
    }

    /// The highest QoS of the messages that are allowed; `None` if none are.
    #[must_use]
    pub fn qos_max(self) -> Option<Qos> {
        let all = [Qos::ExactlyOnce, Qos::AtLeastOnce, Qos::AtMostOnce];
        all.into_iter().find(|qos| self.allows(*qos, false) || self.allows(*qos, true))
    }
}

/// The first rule that denies, and for each kind of message the first rule that allows it, among rules that match.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Grants {
    deny: Option<Line>,
    allow: [Option<Line>; KINDS],
}

impl Grants {
    /// The marks of one rule, which denies everything or allows this.
    pub(super) fn of(permit: Option<Permit>, line: Line) -> Self {
        let Some(permit) = permit else { return Self { deny: Some(line), ..Self::default() } };
        let mut allow = [None; KINDS];
        for (kind, first) in allow.iter_mut().enumerate() {
            *first = (permit.0 >> kind & 1 == 1).then_some(line);
        }
        Self { deny: None, allow }
    }

    /// The messages that all rules together allow.
    pub(super) fn permit(&self) -> Permit {
        if self.deny.is_some() {
            return Permit::NONE;
        }
        let bits = self.allow.iter().enumerate().filter(|(_, first)| first.is_some());
        Permit(bits.fold(0, |all, (kind, _)| all | 1 << kind))
    }

    /// The first rule that denies.
    pub(super) fn denying(&self) -> Option<Line> {
        self.deny
    }

    /// The first rule that allows such a message.
    pub(super) fn allowing(&self, qos: Qos, retain: bool) -> Option<Line> {
        self.allow[kind(qos, retain)]
    }
}

impl Merge for Grants {
    fn merge(&mut self, other: &Self) {
        self.deny = first(self.deny, other.deny);
        for (own, other) in self.allow.iter_mut().zip(other.allow) {
            *own = first(*own, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_add_up_message_by_message() {
        let line = |number| Line::new(number).expect("not 0");
        let high = Permit::up_to(Qos::ExactlyOnce, false);
        let kept = Permit::up_to(Qos::AtMostOnce, true);
        let mut both = Grants::of(Some(high), line(7));
        both.merge(&Grants::of(Some(kept), line(3)));
        let allowed = both.permit();
        assert!(allowed.allows(Qos::ExactlyOnce, false) && allowed.allows(Qos::AtMostOnce, true));
        assert!(!allowed.allows(Qos::AtLeastOnce, true) && !allowed.allows(Qos::ExactlyOnce, true));
        assert_eq!(both.allowing(Qos::AtMostOnce, false), Some(line(3)), "the line that stands first");
        assert_eq!(allowed.qos_max(), Some(Qos::ExactlyOnce));
        both.merge(&Grants::of(None, line(9)));
        assert_eq!((both.permit(), both.denying()), (Permit::NONE, Some(line(9))));
        assert_eq!((Permit::up_to(Qos::ExactlyOnce, true), Permit::NONE.qos_max()), (Permit::ALL, None));
    }
}
