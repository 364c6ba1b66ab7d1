//! The schemes of all users, and the work that makes a wrong password cost the same for everybody.

use std::collections::BTreeMap;

use crate::{Mechanism, PasswordHash, Scheme, Secret};

/// Number of functions that a [`Scheme`] may have a cost of.
const FUNCTIONS: usize = 3;

/// The schemes that users have.
#[derive(Debug, Clone, Default)]
pub(crate) struct Schemes {
    /// Number of users of each kind of hash.
    users: BTreeMap<Kind, usize>,
    /// The costliest scheme of each function.
    costliest: [Option<Scheme>; FUNCTIONS],
}

/// The part of a hash that an exchange of SCRAM tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kind {
    pub(crate) scheme: Scheme,
    /// Length of the salt, in bytes.
    pub(crate) salt_bytes: usize,
}

impl Kind {
    /// A number for the kind, drawn for a name. Both stay the same in each version of the program: invented salts follow from it.
    fn draw(self, name: u64) -> u64 {
        let [scheme, costs @ ..] = match self.scheme {
            Scheme::Sha512 => [6, 0, 0, 0],
            Scheme::Pbkdf2 { rounds } => [7, rounds, 0, 0],
            Scheme::ScramSha256 { rounds } => [8, rounds, 0, 0],
            Scheme::Argon2id { memory_kib, passes, lanes } => [9, memory_kib, passes, lanes],
        };
        let parts = [u64::from(scheme), self.salt_bytes as u64].into_iter().chain(costs.map(u64::from));
        parts.fold(name, |mixed, part| {
            // The last steps of SplitMix64: each bit of the result depends on each bit of both numbers.
            let mixed = (mixed ^ part).wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            mixed ^ (mixed >> 31)
        })
    }
}

impl Schemes {
    /// Counts one more user.
    pub(crate) fn add(&mut self, hash: &PasswordHash) {
        let kind = Kind { scheme: hash.scheme(), salt_bytes: hash.parts().0.len() };
        *self.users.entry(kind).or_default() += 1;
        self.note(kind.scheme);
    }

    fn note(&mut self, scheme: Scheme) {
        if let Some(function) = function(scheme) {
            let costliest = &mut self.costliest[function];
            *costliest = costliest.filter(|costliest| costliest.cost() >= scheme.cost()).or(Some(scheme));
        }
    }

    /// The work behind a wrong password of this scheme. With it, every wrong password costs the costliest check of each function
    /// that any user has, and so does an unknown name (`None`): the time of an answer does not tell which names exist.
    pub(crate) fn rest(&self, own: Option<Scheme>) -> Vec<Scheme> {
        let own_function = own.and_then(function);
        let rest = self.costliest.iter().enumerate().filter_map(|(number, costliest)| {
            let costliest = (*costliest)?;
            match own.filter(|_| own_function == Some(number)) {
                Some(own) => remainder(own, costliest),
                None => Some(costliest),
            }
        });
        let mut rest: Vec<Scheme> = rest.collect();
        if own.is_none() && rest.is_empty() {
            rest.push(if self.users.is_empty() { Scheme::DEFAULT } else { Scheme::Sha512 });
        }
        rest
    }

    /// A kind of hash that users have and an exchange needs, for a name that is no user's. Each kind is about as frequent among
    /// such names as among users.
    ///
    /// Each kind draws a number for the name, and the largest share of its draw wins. A kind with more users than before thus
    /// takes names over, and all other names keep theirs: a name that changed with each new user would be known as no user's.
    /// The shares are powers of two, so that few new users change one.
    pub(crate) fn decoy(&self, mechanism: Mechanism, name: &str, secret: &Secret) -> Option<Kind> {
        let serving = self.users.iter().filter(|(kind, _)| mechanism.rounds(kind.scheme).is_some());
        let name = mechanism.number(secret, name);
        let draw = |kind: &Kind, users: usize| {
            let number = kind.draw(name);
            // Weighted rendezvous hashing: the draw is between 0 and 1, and neither of them.
            let drawn = ((number >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
            users.next_power_of_two() as f64 / -drawn.ln()
        };
        let drawn = serving.map(|(kind, users)| (draw(kind, *users), *kind));
        drawn.max_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, kind)| kind)
    }
}

/// The number of a function. `None` for one whose check takes a microsecond.
fn function(scheme: Scheme) -> Option<usize> {
    match scheme {
        Scheme::Sha512 => None,
        Scheme::Pbkdf2 { .. } => Some(0),
        Scheme::ScramSha256 { .. } => Some(1),
        Scheme::Argon2id { .. } => Some(2),
    }
}

/// The work that is left of a costlier scheme of the same function.
fn remainder(own: Scheme, costliest: Scheme) -> Option<Scheme> {
    match (own, costliest) {
        (Scheme::Pbkdf2 { rounds: own }, Scheme::Pbkdf2 { rounds }) if own < rounds => {
            Some(Scheme::Pbkdf2 { rounds: rounds - own })
        }
        (Scheme::ScramSha256 { rounds: own }, Scheme::ScramSha256 { rounds }) if own < rounds => {
            Some(Scheme::ScramSha256 { rounds: rounds - own })
        }
        (Scheme::Argon2id { .. }, Scheme::Argon2id { memory_kib, .. }) => {
            /// Minimum memory of Argon2 with one lane, in KiB (RFC 9106 section 3.1).
            const MEMORY_KIB_MIN: u64 = 8;
            // The cost of Argon2 is its memory times its passes.
            let left = costliest.cost().saturating_sub(own.cost());
            let passes = left.div_ceil(memory_kib.into());
            let memory = left.checked_div(passes).unwrap_or(0);
            let is_worth_it = memory >= MEMORY_KIB_MIN;
            is_worth_it.then(|| Scheme::Argon2id {
                memory_kib: u32::try_from(memory).unwrap_or(memory_kib),
                passes: u32::try_from(passes).unwrap_or(1),
                lanes: 1,
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PBKDF2: Scheme = Scheme::Pbkdf2 { rounds: 60_000 };
    const WEAK: Scheme = Scheme::Pbkdf2 { rounds: 101 };
    const SCRAM: Scheme = Scheme::ScramSha256 { rounds: 4_096 };
    const SMALL: Scheme = Scheme::Argon2id { memory_kib: 1_024, passes: 1, lanes: 1 };

    fn of(schemes: &[Scheme]) -> Schemes {
        let mut all = Schemes::default();
        schemes.iter().for_each(|scheme| all.add(&PasswordHash::decoy(*scheme)));
        all
    }

    #[test]
    fn invented_kinds_are_as_frequent_as_those_of_users_and_stay_when_users_are_added() {
        let kinds = |weak: usize, strong: usize| {
            let all = [vec![WEAK; weak], vec![PBKDF2; strong]].concat();
            let schemes = of(&all);
            let kind = |number: usize| {
                let secret = Secret::new([7; Secret::BYTES]);
                schemes.decoy(Mechanism::Sha512, &format!("name {number}"), &secret).expect("a kind").scheme
            };
            (0..1_000).map(kind).collect::<Vec<_>>()
        };
        let before = kinds(5, 5);
        let weak = before.iter().filter(|scheme| **scheme == WEAK).count();
        assert!((400..600).contains(&weak), "{weak}");
        assert_eq!(kinds(6, 5), before, "one user more");
        let after = kinds(17, 5);
        assert!(after.iter().zip(&before).all(|(after, before)| after == before || *after == WEAK));
        let weak = after.iter().filter(|scheme| **scheme == WEAK).count();
        assert!((720..880).contains(&weak), "32 to 8: {weak}");
    }

    /// The costs of a wrong password, for each function.
    fn costs(schemes: &Schemes, own: Option<Scheme>) -> [u64; FUNCTIONS] {
        let mut costs = [0; FUNCTIONS];
        for scheme in schemes.rest(own).into_iter().chain(own) {
            if let Some(function) = function(scheme) {
                costs[function] += scheme.cost();
            }
        }
        costs
    }

    #[test]
    fn every_wrong_password_and_every_unknown_name_cost_the_same_work() {
        let all = [PBKDF2, WEAK, SCRAM, SMALL, Scheme::DEFAULT, Scheme::Sha512];
        for schemes in
            (0..64).map(|bits| all.into_iter().enumerate().filter(move |(n, _)| bits >> n & 1 == 1))
        {
            let schemes: Vec<Scheme> = schemes.map(|(_, scheme)| scheme).collect();
            let counted = of(&schemes);
            let unknown = costs(&counted, None);
            for own in &schemes {
                let has_slow_one = schemes.iter().any(|scheme| *scheme != Scheme::Sha512);
                if has_slow_one {
                    assert_eq!(costs(&counted, Some(*own)), unknown, "{own:?} among {schemes:?}");
                }
            }
        }
    }

    #[test]
    fn an_unknown_name_costs_something_where_nobody_has_a_password() {
        assert_eq!(of(&[]).rest(None), [Scheme::DEFAULT]);
        // Users with the fastest hash would be told apart from it.
        assert_eq!(of(&[Scheme::Sha512]).rest(None), [Scheme::Sha512]);
    }
}
