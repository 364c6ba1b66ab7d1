//! Runs in which the space on the disk matters, in the proportions of real ones: the log has a limit of some segments,
//! segments double, records are large beside them, and what is live is little beside the log.

use ledger::QueueFull;
use turn::Bounds;
use wire::{Qos, Version};

use crate::random::Random;
use crate::scenario::{QOS, Scenario, Topic};

/// Parameters of a run with a bounded log.
#[derive(Debug, Clone)]
pub(crate) struct Pressure {
    /// An operator changes the bounds between two processes.
    changes_bounds: bool,
    /// Among others, how much may be retained.
    lowers_retained: bool,
    /// Maximum bytes of retained messages.
    retained_bytes: usize,
    /// Bytes that are published when everything works, as a percentage of the limit.
    load_percent: u64,
}

/// Maximum bytes of all values together, with their topics.
const RETAINED_BYTES_MAX: usize = 500_000;

/// A group of records is to fit into the smallest segment: half of it is more than the largest message.
const SEGMENT_BYTES: [u32; 3] = [64 << 10, 64 << 10, 128 << 10];

impl Scenario {
    pub(crate) fn draw_pressure(random: &mut Random) -> Self {
        let topics = topics(random);
        let retained = topics.iter().filter(|topic| topic.is_retained).map(|topic| topic.name.len());
        let most = (RETAINED_BYTES_MAX - retained.clone().sum::<usize>()) / retained.count();
        let payload_bytes_max = most.min(*random.pick(&[60, 2_000, 8_000, 16_000, 24_000]));
        let of_value = |topic: &Topic| topic.name.len() + payload_bytes_max + 100;
        let retained_bytes = topics.iter().filter(|topic| topic.is_retained).map(of_value).sum();
        let mut scenario = Self::about(topics, random);
        scenario.payload_bytes_max = payload_bytes_max;
        scenario.reads_bytes_max = 1 << 17;
        scenario.steps = *random.pick(&[500, 1_500, 3_000]);
        scenario.bounds = Bounds {
            mail: 1 << 20,
            commands: *random.pick(&[5_000, 1 << 20]),
            answers: 1 << 16,
            unasked: 1 << 15,
            output: 1 << 18,
            outputs: 1 << 24,
            allowance: 200,
            ..Bounds::default()
        };
        scenario.socket_bytes = *random.pick(&[30_000, 1 << 17]);
        scenario.session.packet_bytes_max = 100_000;
        scenario.session.waiting_bytes_max = 1 << 28;
        if scenario.ledger.queue_full == QueueFull::Refuse {
            // That is no want of space.
            scenario.ledger.queue_full = QueueFull::DropOldest;
        }
        let lowers_retained = random.chance(300);
        if lowers_retained {
            // Before MQTT 5 nobody is told, but disconnected, and comes back to publish the same again.
            scenario.clients.iter_mut().for_each(|profile| profile.version = Version::V5);
        }
        scenario.pressure = Some(Pressure {
            changes_bounds: random.chance(500),
            lowers_retained,
            retained_bytes,
            load_percent: *random.pick(&[0, 50, 150, 300]),
        });
        scenario.draw_weather(random);
        scenario.draw_bounds(random);
        scenario
    }

    /// Mostly fair: what is wanted is a load that goes on.
    fn draw_weather(&mut self, random: &mut Random) {
        let is_fair = random.chance(400);
        let mut rarely = |rates: &[usize]| if is_fair { 0 } else { *random.pick(rates) };
        let weather = &mut self.weather;
        weather.crashes_per_million = rarely(&[0, 500, 2_000]);
        weather.failures_per_million = rarely(&[0, 0, 0, 500]);
        weather.full_per_mille = rarely(&[0, 0, 0, 20]);
        weather.slow_per_mille = rarely(&[0, 0, 20, 100]);
        weather.power_cuts_per_mille = rarely(&[0, 500, 1_000]);
        weather.decays_per_mille = 0;
        weather.cuts_per_mille = rarely(&[0, 2, 10]);
        weather.weights = [30, 15, *random.pick(&[15, 30, 60]), *random.pick(&[4, 20]), 5];
        let weakest = self.clients.iter().map(|profile| profile.durability).min().unwrap_or_default();
        self.weather.allow(weakest);
    }

    /// Before a process begins that is not the first.
    pub(crate) fn change_bounds(&mut self, random: &mut Random) {
        if self.pressure.as_ref().is_some_and(|pressure| pressure.changes_bounds) {
            self.draw_bounds(random);
        }
    }

    fn draw_bounds(&mut self, random: &mut Random) {
        let Some(Pressure { retained_bytes, lowers_retained, .. }) = self.pressure else { return };
        let durability = self.durability();
        let journal = &mut self.journal;
        journal.durability = durability;
        journal.segment_bytes_min = *random.pick(&SEGMENT_BYTES);
        journal.segment_bytes_max = journal.segment_bytes_min * *random.pick(&[1, 2, 4, 8]);
        journal.free_bytes_min = *random.pick(&[0, 0, 100_000]);
        // Retained messages take at most a quarter of it.
        let segments = *random.pick(&[4, 8, 8, 12, 16, 32, 64]);
        let least = 4 * retained_bytes as u64;
        journal.disk_bytes_max = (segments * u64::from(journal.segment_bytes_min)).max(least);
        let ledger = &mut self.ledger;
        let message_bytes = self.payload_bytes_max + 1_000;
        let lower_bytes = if lowers_retained { retained_bytes / 3 } else { 256 << 20 };
        ledger.retained_bytes_max = *random.pick(&[256 << 20, 256 << 20, lower_bytes]);
        ledger.queue_messages_max = *random.pick(&[5, 100, 100_000, 100_000]);
        ledger.queue_bytes_max = *random.pick(&[3 * message_bytes, 200_000.max(message_bytes), 1 << 28]);
        ledger.queued_bytes_in_memory = *random.pick(&[0, 10_000, usize::MAX]);
    }

    /// Returns the number of bytes that are published when everything works.
    pub(crate) fn load_bytes(&self) -> u64 {
        let percent = self.pressure.as_ref().map_or(0, |pressure| pressure.load_percent);
        (self.journal.disk_bytes_max / 100 * percent).min(6 << 20)
    }
}

/// Some that are not retained, some that are, possibly long ones, and those of wills.
fn topics(random: &mut Random) -> Vec<Topic> {
    let name_bytes: usize = *random.pick(&[8, 8, 500, 4_000, 12_000]);
    let retained = (*random.pick(&[1, 6, 20, 60])).min(RETAINED_BYTES_MAX / 2 / name_bytes);
    let names = (0..retained).map(|number| format!("r/{number}/{}", "l".repeat(name_bytes)));
    let (clears, expires) = (*random.pick(&[0, 0, 100, 900]), *random.pick(&[0, 0, 50, 1_000]));
    let plain = ["t/0/x", "t/1/x", "t/0/y"].map(|name| Topic {
        name: name.to_owned(),
        is_retained: false,
        qos: None,
        clears_per_mille: 0,
        expires_per_mille: 50,
    });
    let qos = *random.pick(&QOS);
    let of_retained = |(name, is_pure): (String, bool)| Topic {
        name,
        is_retained: true,
        qos: Some(qos),
        clears_per_mille: if is_pure { 0 } else { clears },
        expires_per_mille: if is_pure { 0 } else { expires },
    };
    // Of some topics it is always known what they have to have.
    let retained: Vec<Topic> = names.map(|name| (name, random.chance(300))).map(of_retained).collect();
    let wills = [("w/0", false), ("r/w", true)].map(|(name, is_retained)| Topic {
        name: name.to_owned(),
        is_retained,
        qos: is_retained.then_some(Qos::AtLeastOnce),
        clears_per_mille: 0,
        expires_per_mille: 0,
    });
    plain.into_iter().chain(retained).chain(wills).collect()
}
