//! The configuration of a broker that reloads: limits and listeners, and what an operator may write next.

use ledger::QueueFull;
use protocol::Durability::{self, Fsync};
use turn::Dismissal;
use wire::{Version, Version::V5};

use crate::oracle::Terms;
use crate::random::Random;
use crate::scenario::Scenario;

/// Addresses that a broker may listen on.
const ADDRESSES_MAX: usize = 4;
/// Out of a thousand keys: the operator changes the key.
const CHANGED_PER_MILLE: usize = 250;
/// Maximum bytes of a packet beside its payload.
pub(crate) const PACKET_HEAD_BYTES: usize = 150;

/// A configuration without mistakes.
#[derive(Debug, Clone)]
pub(crate) struct Configuration {
    pub(crate) session: session::Settings,
    pub(crate) ledger: ledger::Settings,
    pub(crate) output_bytes: usize,
    pub(crate) outputs_bytes: usize,
    pub(crate) memory_bytes_max: usize,
    /// The listeners in force, by address.
    pub(crate) listeners: Vec<Option<Rules>>,
    /// The number of the rules about topics, which all listeners have. They change their name only.
    pub(crate) rules: usize,
}

/// The rules of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) durability: Durability,
    pub(crate) allow_anonymous: bool,
    /// User names have to be proved. All clients that have a name can do that.
    has_passwords: bool,
    /// A key that applies on *reconnect*.
    mount_point: usize,
}

impl Rules {
    fn of(durability: Durability) -> Self {
        Self { durability, allow_anonymous: true, has_passwords: false, mount_point: 0 }
    }

    /// The connections that leave when these rules become others: docs/RELOAD.md.
    pub(crate) fn dismissal(&self, new: &Self) -> Option<Dismissal> {
        if self.mount_point != new.mount_point {
            Some(Dismissal::Everybody)
        } else if self.allow_anonymous && !new.allow_anonymous {
            Some(Dismissal::Strangers)
        } else if !self.has_passwords && new.has_passwords {
            Some(Dismissal::Unproved)
        } else {
            None
        }
    }
}

/// The operator of one run, who writes its files.
#[derive(Debug, Clone)]
pub(crate) struct Choices {
    durabilities: [Durability; 2],
    packet_bytes: Vec<u32>,
    expiry_secs: Vec<u32>,
    queue_full: Vec<QueueFull>,
    queue_messages: Vec<usize>,
    queue_bytes: Vec<usize>,
    retained_bytes: Vec<usize>,
    memory_bytes: Vec<usize>,
}

impl Choices {
    /// Draws them, and has the clients of a run keep to what they cannot be told.
    pub(crate) fn draw(scenario: &mut Scenario, random: &mut Random) -> Self {
        let weakest = scenario.clients.iter().map(|profile| profile.durability).min().unwrap_or_default();
        let message_bytes = scenario.payload_bytes_max + 1_000;
        let base = scenario.ledger.queue_full;
        let other = *random.pick(&[
            QueueFull::EndSession,
            QueueFull::DropOldest,
            QueueFull::DropNewest,
            QueueFull::Refuse,
        ]);
        let little_memory = scenario.little_memory(random.next());
        let choices = Self {
            durabilities: [weakest, Fsync],
            packet_bytes: random.pick(&[vec![100_000], vec![100_000, 300, 1_000]]).clone(),
            expiry_secs: random.pick(&[vec![u32::MAX], vec![u32::MAX, 60, 3], vec![3_600, 3]]).clone(),
            queue_full: random.pick(&[vec![base], vec![base, other]]).clone(),
            queue_messages: vec![5, 100, 100_000],
            queue_bytes: vec![3 * message_bytes, 1 << 20, 1 << 28],
            retained_bytes: random.pick(&[vec![256 << 20], vec![256 << 20, message_bytes, 300]]).clone(),
            memory_bytes: random
                .pick(&[vec![scenario.memory_bytes_max], vec![scenario.memory_bytes_max, little_memory]])
                .clone(),
        };
        let may_refuse = choices.queue_full.contains(&QueueFull::Refuse);
        for profile in &mut scenario.clients {
            match profile.version {
                // It would not be told that its session is gone.
                Version::V3_1 => profile.expiry_secs = 0,
                // It would be disconnected, come back and publish the same again.
                Version::V3_1_1 if may_refuse => profile.weights[1] = 0,
                _ => {}
            }
        }
        choices
    }

    /// The payload that fits into a packet of a client before MQTT 5, which is told nothing.
    pub(crate) fn payload_bytes_untold(&self, version: Version) -> usize {
        let least = self.packet_bytes.iter().min().map_or(usize::MAX, |least| *least as usize);
        if version == V5 { usize::MAX } else { least - PACKET_HEAD_BYTES }
    }
}

impl Configuration {
    /// The configuration that a run begins with, and ends with.
    pub(crate) fn of(scenario: &Scenario, choices: &Choices, random: &mut Random) -> Self {
        let listeners = (0..random.between(1, ADDRESSES_MAX))
            .map(|_| Some(Rules::of(*random.pick(&choices.durabilities))))
            .collect();
        Self {
            session: scenario.session.clone(),
            ledger: scenario.ledger.clone(),
            output_bytes: scenario.bounds.output,
            outputs_bytes: scenario.bounds.outputs,
            memory_bytes_max: scenario.memory_bytes_max,
            listeners,
            rules: 0,
        }
    }

    /// Replaces the settings of the next process.
    pub(crate) fn apply_to(&self, scenario: &mut Scenario) {
        scenario.session = self.session.clone();
        scenario.ledger = self.ledger.clone();
        (scenario.bounds.output, scenario.bounds.outputs) = (self.output_bytes, self.outputs_bytes);
        scenario.memory_bytes_max = self.memory_bytes_max;
        scenario.journal.durability = self.durability_max();
        scenario.rules = Some(self.rules);
    }

    /// The most that clients of any listener wait for.
    pub(crate) fn durability_max(&self) -> Durability {
        self.listeners.iter().flatten().map(|rules| rules.durability).max().unwrap_or_default()
    }

    pub(crate) fn terms(&self) -> Terms {
        let Self { session, ledger, .. } = self;
        Terms {
            receive_max: session.receive_max,
            packet_bytes_max: session.packet_bytes_max,
            topic_alias_max: session.topic_alias_max,
            expiry_secs_max: session.session_expiry_secs_max,
            inflight_max_3: session.inflight_max_3,
            queue_full: ledger.queue_full,
            ends_sessions: ledger.queue_full == QueueFull::EndSession,
            retained_bytes_max: ledger.retained_bytes_max,
        }
    }

    /// The next file: it has some other keys, and some other listeners.
    pub(crate) fn change(&mut self, choices: &Choices, random: &mut Random) {
        self.change_session(choices, random);
        self.change_ledger(choices, random);
        set(&mut self.output_bytes, &[100, 1_000, 1 << 18], random);
        set(&mut self.outputs_bytes, &[2_000, 1 << 24, 1 << 24], random);
        set(&mut self.memory_bytes_max, &choices.memory_bytes, random);
        for address in 0..self.listeners.len() {
            self.change_listener(address, choices, random);
        }
        if self.listeners.iter().all(Option::is_none) {
            self.listeners[0] = Some(Rules::of(choices.durabilities[1]));
        }
    }

    fn change_session(&mut self, choices: &Choices, random: &mut Random) {
        let session = &mut self.session;
        set(&mut session.packet_bytes_max, &choices.packet_bytes, random);
        set(&mut session.session_expiry_secs_max, &choices.expiry_secs, random);
        set(&mut session.receive_max, &[1, 3, 20], random);
        set(&mut session.inflight_max, &[1, 4, 1_000], random);
        set(&mut session.inflight_max_3, &[1, 4, 100], random);
        set(&mut session.topic_alias_max, &[0, 1, 3], random);
        set(&mut session.topic_alias_out_max, &[0, 3], random);
        set(&mut session.waiting_messages_max, &[3, 100, 100_000], random);
        set(&mut session.waiting_bytes_max, &[2_000, 1 << 20, 1 << 28], random);
        set(&mut session.subscriptions_max, &[2, 100_000, 100_000], random);
    }

    fn change_ledger(&mut self, choices: &Choices, random: &mut Random) {
        let ledger = &mut self.ledger;
        set(&mut ledger.queue_full, &choices.queue_full, random);
        set(&mut ledger.queue_messages_max, &choices.queue_messages, random);
        set(&mut ledger.queue_bytes_max, &choices.queue_bytes, random);
        set(&mut ledger.retained_bytes_max, &choices.retained_bytes, random);
        set(&mut ledger.queued_bytes_in_memory, &[0, 1_000, usize::MAX], random);
        set(&mut ledger.sessions_max, &[2, 1_000_000, 1_000_000], random);
        set(&mut ledger.shared_subscriptions_max, &[1, 100], random);
        set(&mut ledger.groups_per_filter_max, &[2, 1_000], random);
    }

    fn change_listener(&mut self, address: usize, choices: &Choices, random: &mut Random) {
        let listener = &mut self.listeners[address];
        match listener {
            None if random.chance(500) => *listener = Some(Rules::of(*random.pick(&choices.durabilities))),
            None => {}
            Some(_) if random.chance(CHANGED_PER_MILLE / 2) => *listener = None,
            Some(rules) => {
                set(&mut rules.durability, &choices.durabilities, random);
                set(&mut rules.allow_anonymous, &[true, true, false], random);
                set(&mut rules.has_passwords, &[true, false], random);
                set(&mut rules.mount_point, &[0, 0, 1], random);
            }
        }
    }
}

/// A key gets a value, now and then.
fn set<T: Clone>(key: &mut T, values: &[T], random: &mut Random) {
    if random.chance(CHANGED_PER_MILLE) {
        *key = random.pick(values).clone();
    }
}
