//! Permitted cost of an attack, and its presentation.

use std::time::Duration;

use super::attack::Conduct;
use super::innocent::{Account, Habit};
use crate::figure::{bytes, duration, median, share};

/// Time in which memory and disk are as before, and nobody is refused any more.
pub(super) const RECOVERY_MAX: Duration = Duration::from_secs(30);
/// Memory and disk that may stay: caches of the allocator, a segment of a log.
const MEMORY_SLACK_BYTES: u64 = 24 << 20;
const DISK_SLACK_BYTES: u64 = 64 << 20;

pub(super) const HEADINGS: [&str; 11] = [
    "",
    "strikes",
    "throughput kept",
    "p99 before",
    "beside a decoy",
    "under attack",
    "refused",
    "memory before",
    "peak",
    "after",
    "recovered after",
];

/// Limits to the harm that an attack does to innocent clients.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// At least this part of their throughput.
    share_min: f64,
    /// Maximum ratio of the 99th percentile of latency to that before the attack ...
    p99_ratio_max: u32,
    /// ... or at most this: less is a matter of who runs on a processor that the generator shares with others.
    p99_floor: Duration,
}

impl Rules {
    /// The rules of the long form.
    pub(super) const LONG: Self =
        Self { share_min: 0.5, p99_ratio_max: 3, p99_floor: Duration::from_millis(5) };
    /// The rules of the short form. Its 99th percentile is the longest of a few dozen latencies, on a machine that is busy
    /// with other tests.
    pub(super) const SHORT: Self =
        Self { share_min: 0.5, p99_ratio_max: 10, p99_floor: Duration::from_millis(500) };
}

/// Memory and disk space of a server, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Held {
    pub(super) memory_bytes: Option<u64>,
    pub(super) disk_bytes: Option<u64>,
}

/// The state of a server at one time after an attack.
#[derive(Debug)]
pub(super) struct Look {
    /// The accounts of the innocent clients since the last look.
    pub(super) accounts: Vec<Account>,
    pub(super) held: Held,
}

/// Result of one server under one attack, in all rounds.
#[derive(Debug)]
pub(super) enum Finding {
    /// The server did not start, or broke down.
    Failed(String),
    /// At least one round.
    Measured(Vec<Round>),
}

/// Result of one server under one attack, in one round.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) alone: Vec<Account>,
    /// While the attack was on a decoy, if it suits one.
    pub(super) beside_decoy: Option<Vec<Account>>,
    pub(super) under_attack: Vec<Account>,
    pub(super) conduct: Conduct,
    pub(super) held_before: Held,
    pub(super) peak_bytes: Option<u64>,
    /// The last look after the attack: the first at which all was as before, or the one at the end of the time for that.
    pub(super) after: Look,
    /// The time from the end of the attack to that look.
    pub(super) recovery: Duration,
}

impl Look {
    /// Returns the differences to before the attack, apart from memory and disk that an allocator and a log keep.
    pub(super) fn differences(&self, before: Held) -> Vec<String> {
        let mut differences = Vec::new();
        for account in &self.accounts {
            let name = account.habit.name();
            if account.refused > 0 {
                differences.push(format!("{name} is refused {} times", account.refused));
            } else if account.done == 0 {
                differences.push(format!("{name} is not served"));
            }
        }
        let mut compare = |what: &str, now: Option<u64>, then: Option<u64>, slack: u64| {
            if let (Some(now), Some(then)) = (now, then)
                && now > then + then / 4 + slack
            {
                let (now, then) = (bytes(now as f64), bytes(then as f64));
                differences.push(format!("{now} of {what}, {then} before"));
            }
        };
        compare("memory", self.held.memory_bytes, before.memory_bytes, MEMORY_SLACK_BYTES);
        compare("files", self.held.disk_bytes, before.disk_bytes, DISK_SLACK_BYTES);
        differences
    }
}

/// The figures of one kind of innocent client: medians of all rounds.
///
/// A median, unlike a mean, does not show what else the machine did in one of the rounds.
#[derive(Debug, Clone, Copy)]
struct Service {
    habit: Habit,
    share_alone: f64,
    share_attacked: f64,
    p99_alone: Duration,
    /// If the attack suits a decoy.
    p99_beside_decoy: Option<Duration>,
    p99_attacked: Duration,
}

impl Service {
    /// Ratio of the 99th percentile under attack to that before.
    fn ratio(&self) -> f64 {
        self.p99_attacked.as_secs_f64() / self.p99_alone.as_secs_f64().max(1e-9)
    }
}

impl Finding {
    /// Adds the rounds of another finding of the same attack. A server that failed in one round has failed.
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Measured(mut rounds), Self::Measured(more)) => {
                rounds.extend(more);
                Self::Measured(rounds)
            }
            (failed @ Self::Failed(_), _) | (_, failed) => failed,
        }
    }

    /// The rules that the server has broken, each with its figures, or why nothing can be said about it.
    pub(super) fn broken_rules(&self, rules: Rules) -> Vec<String> {
        match self {
            Self::Failed(what) => vec![what.clone()],
            Self::Measured(rounds) => broken_rules(rounds, rules),
        }
    }

    /// The cells of the table.
    pub(super) fn row(&self, name: &str, broken: &[String]) -> Vec<String> {
        let name = if broken.is_empty() { name.to_owned() } else { format!("{name} (FAILED)") };
        let mut row = vec![name];
        match self {
            Self::Failed(_) => row.resize(HEADINGS.len(), "-".to_owned()),
            Self::Measured(rounds) => row.extend(cells(rounds)),
        }
        row
    }
}

/// Which accounts of a round are meant: those before the attack, beside a decoy, or under it.
type Accounts = fn(&Round) -> Option<&[Account]>;

/// The figures of each kind of innocent client.
fn services(rounds: &[Round]) -> Vec<Service> {
    let of = |(place, habit)| {
        let middle = |figure: fn(&Account) -> f64, accounts: Accounts| {
            median(rounds.iter().filter_map(accounts).map(|accounts| figure(&accounts[place])).collect())
        };
        let p99 = |accounts| Duration::from_secs_f64(middle(|account| account.p99().as_secs_f64(), accounts));
        let alone: Accounts = |round| Some(&round.alone);
        let decoy: Accounts = |round| round.beside_decoy.as_deref();
        let attacked: Accounts = |round| Some(&round.under_attack);
        let suits_decoy = rounds.iter().any(|round| round.beside_decoy.is_some());
        Service {
            habit,
            share_alone: middle(Account::share, alone),
            share_attacked: middle(Account::share, attacked),
            p99_alone: p99(alone),
            p99_beside_decoy: suits_decoy.then(|| p99(decoy)),
            p99_attacked: p99(attacked),
        }
    };
    Habit::ALL.into_iter().enumerate().map(of).collect()
}

fn broken_rules(rounds: &[Round], rules: Rules) -> Vec<String> {
    // An attack that failed in one round, and a server that did not recover from one, are no matter of chance.
    let mut broken: Vec<String> = rounds.iter().filter_map(|round| round.conduct.fault()).collect();
    let unserved = |habit: Habit| {
        let is_unserved = |account: &Account| account.habit == habit && account.done == 0;
        rounds.iter().any(|round| round.alone.iter().any(is_unserved))
    };
    for service in services(rounds) {
        let name = service.habit.name();
        if unserved(service.habit) {
            broken.push(format!("{name} was not served before the attack"));
        }
        if service.share_attacked < rules.share_min * service.share_alone {
            broken.push(format!("{name} keeps {} of its throughput", share(service.share_attacked)));
        }
        if service.p99_attacked > (service.p99_alone * rules.p99_ratio_max).max(rules.p99_floor) {
            let (before, now) = (duration(service.p99_alone), duration(service.p99_attacked));
            broken.push(format!("{name} has a p99 of {now}, {before} before"));
        }
    }
    for round in rounds {
        let differences = round.after.differences(round.held_before);
        let after = duration(round.recovery);
        broken.extend(differences.iter().map(|what| format!("{what}, {after} after the attack")));
    }
    broken
}

/// Of the innocent clients the one that suffers most counts; of memory and recovery, the round with the most.
fn cells(rounds: &[Round]) -> [String; HEADINGS.len() - 1] {
    let strikes: u64 = rounds.iter().map(|round| round.conduct.strikes).sum();
    let failed: u64 = rounds.iter().map(|round| round.conduct.failed).sum();
    let strikes = if failed == 0 { strikes.to_string() } else { format!("{strikes} ({failed} failed)") };
    let services = services(rounds);
    let least = services.iter().min_by(|a, b| a.share_attacked.total_cmp(&b.share_attacked));
    let kept = least.map_or("-".to_owned(), |service| {
        format!("{} ({})", share(service.share_attacked), service.habit.name())
    });
    let worst = services.iter().max_by(|a, b| a.ratio().total_cmp(&b.ratio()));
    let before = worst.map_or("-".to_owned(), |service| duration(service.p99_alone));
    let beside_decoy = worst.and_then(|service| service.p99_beside_decoy);
    let beside_decoy = beside_decoy.map_or("-".to_owned(), duration);
    let under_attack = worst.map_or("-".to_owned(), |service| {
        format!("{} ({})", duration(service.p99_attacked), service.habit.name())
    });
    let refused: u64 =
        rounds.iter().flat_map(|round| &round.under_attack).map(|account| account.refused).sum();
    let most = |of: fn(&Round) -> Option<u64>| {
        let most = rounds.iter().filter_map(of).max();
        most.map_or("-".to_owned(), |value| bytes(value as f64))
    };
    let has_recovered = rounds.iter().all(|round| round.after.differences(round.held_before).is_empty());
    let recovery = rounds.iter().map(|round| round.recovery).max().unwrap_or_default();
    [
        strikes,
        kept,
        before,
        beside_decoy,
        under_attack,
        refused.to_string(),
        most(|round| round.held_before.memory_bytes),
        most(|round| round.peak_bytes),
        most(|round| round.after.held.memory_bytes),
        if has_recovered { duration(recovery) } else { "never".to_owned() },
    ]
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const MIB: u64 = 1 << 20;

    /// Accounts of all innocent clients that do everything that is due within a second, and need so long for each.
    fn served(took: Duration) -> Vec<Account> {
        let due = |habit: Habit| 1_000 / u64::try_from(habit.interval().as_millis()).expect("it is short");
        Habit::ALL.map(|habit| Account::of(habit, due(habit), took)).to_vec()
    }

    fn held(memory: u64, disk: u64) -> Held {
        Held { memory_bytes: Some(memory * MIB), disk_bytes: Some(disk * MIB) }
    }

    /// An attack that hurts nobody.
    fn harmless() -> Round {
        Round {
            alone: served(MS),
            beside_decoy: None,
            under_attack: served(2 * MS),
            conduct: Conduct { strikes: 1, ..Conduct::default() },
            held_before: held(20, 100),
            peak_bytes: Some(200 * MIB),
            after: Look { accounts: served(MS), held: held(21, 100) },
            recovery: Duration::from_secs(1),
        }
    }

    /// The one rule of both forms that is broken, if one is.
    fn broken(round: &Round) -> Option<String> {
        let [long, short] =
            [Rules::LONG, Rules::SHORT].map(|rules| broken_rules(slice::from_ref(round), rules));
        assert_eq!(long, short);
        assert!(long.len() <= 1, "{long:?}");
        long.into_iter().next()
    }

    #[test]
    fn an_attack_that_hurts_nobody_breaks_no_rule() {
        assert_eq!(broken(&harmless()), None);
    }

    #[test]
    fn innocent_clients_keep_half_of_their_throughput() {
        for (place, habit) in Habit::ALL.into_iter().enumerate() {
            let mut measured = harmless();
            let due = measured.alone[place].done;
            measured.under_attack[place] = Account::of(habit, due / 2, MS);
            assert_eq!(broken(&measured), None);
            measured.under_attack[place] = Account::of(habit, due / 2 - 1, MS);
            let broken = broken(&measured).expect("less than half");
            assert!(broken.contains(habit.name()) && broken.contains("throughput"), "{broken}");
        }
    }

    #[test]
    fn their_latency_is_at_most_a_few_times_what_it_was_or_short() {
        // Before, and the longest that is allowed in the long and in the short form.
        for (before, long, short) in [(1, 5, 500), (10, 30, 500), (60, 180, 600)] {
            for (rules, allowed) in [(Rules::LONG, long), (Rules::SHORT, short)] {
                let of = |took: u32| {
                    let mut measured = harmless();
                    measured.alone = served(before * MS);
                    measured.under_attack = served(MS);
                    let slow = &mut measured.under_attack[1];
                    *slow = Account::of(slow.habit, slow.done, took * MS);
                    broken_rules(&[measured], rules)
                };
                // A histogram has three digits.
                assert_eq!(of(allowed * 99 / 100), [""; 0]);
                let broken = of(allowed * 102 / 100 + 1);
                assert!(broken.len() == 1 && broken[0].starts_with("QoS 1 has a p99"), "{broken:?}");
            }
        }
    }

    #[test]
    fn memory_and_disk_are_given_back() {
        let mut measured = harmless();
        for (memory, disk, what) in [(49, 189, None), (50, 189, Some("memory")), (49, 190, Some("files"))] {
            measured.after.held = held(memory, disk);
            let broken = broken(&measured);
            assert_eq!(broken.is_some(), what.is_some(), "{broken:?}");
            assert!(what.is_none_or(|what| broken.expect("it is").contains(what)));
        }
    }

    #[test]
    fn nobody_is_refused_after_an_attack() {
        let mut measured = harmless();
        measured.under_attack[4].refused = 1;
        assert_eq!(broken(&measured), None, "under attack it costs throughput, which has a rule of its own");
        measured.after.accounts[4].refused = 1;
        assert!(broken(&measured).expect("a refusal").contains("CONNECT is refused 1 times"));
        measured.after.accounts[4].refused = 0;
        measured.after.accounts[4].done = 0;
        assert!(broken(&measured).expect("no answer").contains("CONNECT is not served"));
    }

    #[test]
    fn clients_that_were_never_served_are_no_measure() {
        let mut measured = harmless();
        measured.alone[0] = Account::of(Habit::Flow, 0, MS);
        assert!(broken(&measured).expect("no figures").contains("not served before"));
    }

    #[test]
    fn an_attack_that_did_not_happen_breaks_a_rule() {
        let mut measured = harmless();
        measured.conduct.strikes = 0;
        assert!(broken(&measured).expect("none").contains("never carried out"));
        measured.conduct.failed = 3;
        measured.conduct.last_failure = Some("connection refused".to_owned());
        assert!(broken(&measured).expect("none").contains("never carried out: connection refused"));
        measured.conduct.strikes = 1;
        assert_eq!(broken(&measured), None, "whoever the server ends begins again");
        measured.conduct.unprepared = Some("no answer".to_owned());
        assert!(broken(&measured).expect("none").contains("could not be prepared: no answer"));
    }

    #[test]
    fn one_slow_round_of_three_is_chance_and_two_are_not() {
        let round = |took: Duration| Round { under_attack: served(took), ..harmless() };
        let of = |rounds: [Duration; 3]| broken_rules(&rounds.map(round), Rules::LONG).len();
        assert_eq!(of([2 * MS, 400 * MS, 2 * MS]), 0);
        assert_eq!(of([2 * MS, 400 * MS, 9 * MS]), Habit::ALL.len());
    }

    #[test]
    fn the_figure_beside_a_decoy_is_that_of_the_client_that_suffers_most() {
        let column = HEADINGS.iter().position(|heading| *heading == "beside a decoy").unwrap();
        let cell = |rounds: &[Round]| cells(rounds)[column - 1].clone();
        assert_eq!(cell(&[harmless()]), "-");
        let mut measured = harmless();
        measured.under_attack[2] = Account::of(Habit::ALL[2], 100, 4 * MS);
        let beside = (1..).zip(Habit::ALL).map(|(number, habit)| Account::of(habit, 100, number * MS / 2));
        measured.beside_decoy = Some(beside.collect());
        let text = cell(&[measured]);
        assert!(text.starts_with("1.5") && text.ends_with(" ms"), "{text}");
    }

    #[test]
    fn a_round_without_recovery_or_without_an_attack_counts_whatever_the_others_were() {
        let mut rounds = [harmless(), harmless(), harmless()];
        rounds[1].after.held = held(900, 100);
        assert_eq!(broken_rules(&rounds, Rules::LONG).len(), 1);
        rounds[2].conduct.strikes = 0;
        assert_eq!(broken_rules(&rounds, Rules::LONG).len(), 2);
    }

    #[test]
    fn a_server_that_fails_in_one_round_has_failed() {
        let measured = || Finding::Measured(vec![harmless()]);
        let failed = || Finding::Failed("it ended".to_owned());
        for finding in [measured().and(failed()), failed().and(measured())] {
            assert_eq!(finding.broken_rules(Rules::LONG), ["it ended"]);
        }
        assert!(measured().and(measured()).broken_rules(Rules::LONG).is_empty());
    }

    #[test]
    fn a_server_that_broke_down_has_a_row_that_says_so() {
        let finding = Finding::Failed("it ended".to_owned());
        let broken = finding.broken_rules(Rules::SHORT);
        assert_eq!(broken, ["it ended"]);
        let row = finding.row("server", &broken);
        assert_eq!((row.len(), &*row[0]), (HEADINGS.len(), "server (FAILED)"));
    }
}
