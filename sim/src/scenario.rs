//! Parameters of a run, drawn from its seed before it begins.

use base::{Dispatch, Key};
use ledger::QueueFull;
use protocol::Durability::{self, Fsync, Os};
use topic::{TopicFilter, TopicName};
use turn::Bounds;
use wire::{Qos, Version};

use crate::pressure::Pressure;
use crate::random::Random;

/// One run: the broker's settings, its clients, and how hostile the world is.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) shards: usize,
    /// A process may have another number of shards than the one before.
    pub(crate) changes_shards: bool,
    pub(crate) session: session::Settings,
    pub(crate) ledger: ledger::Settings,
    pub(crate) journal: journal::Settings,
    /// And other settings of its journal.
    pub(crate) changes_journal: bool,
    /// The file system can reserve space.
    pub(crate) disk_reserves: bool,
    pub(crate) bounds: Bounds,
    /// The system does not run a thread for a while, now and then.
    pub(crate) holds_threads: bool,
    /// Out of a thousand messages to a topic that has a retained value: it is not to be retained.
    pub(crate) plain_per_mille: usize,
    /// Maximum memory that clients may make a process hold, in bytes.
    pub(crate) memory_bytes_max: usize,
    /// Maximum bytes in the socket of a connection that its client has not read.
    pub(crate) socket_bytes: usize,
    pub(crate) clients: Vec<Profile>,
    pub(crate) topics: Vec<Topic>,
    pub(crate) filters: Vec<Filter>,
    /// Number of steps before all faults end.
    pub(crate) steps: u64,
    pub(crate) weather: Weather,
    /// Length of the largest payload.
    pub(crate) payload_bytes_max: usize,
    /// Maximum bytes that a client reads at a time.
    pub(crate) reads_bytes_max: usize,
    /// The space on the disk is what matters.
    pub(crate) pressure: Option<Pressure>,
    /// Before the end all clients go for longer than any message is kept that expires.
    pub(crate) is_left_alone: bool,
    /// In runs with reloads, the number of the rules that clients have.
    pub(crate) rules: Option<usize>,
}

/// The subject of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Everything but the space: the log has all that it wants, or suddenly none.
    #[default]
    Ordinary,
    /// A log with a bound.
    Disk,
    /// Little memory, and threads that do not run for a while.
    Memory,
    /// Threads that do not run for a while, and topics of which some messages are retained and others are not.
    Held,
    /// Many clients that get the same messages, which are large: payloads are shared, and outputs are written in parts.
    Wide,
    /// An operator changes the configuration of running brokers, and some of its files have mistakes.
    Reload,
    /// An operator discards messages that wait in queues.
    Discard,
    /// An operator moves messages that wait from one queue to another.
    Move,
}

impl Kind {
    /// All of them, with their names.
    pub(crate) const ALL: [(&str, Self); 8] = [
        ("ordinary", Self::Ordinary),
        ("disk", Self::Disk),
        ("memory", Self::Memory),
        ("held", Self::Held),
        ("wide", Self::Wide),
        ("reload", Self::Reload),
        ("discard", Self::Discard),
        ("move", Self::Move),
    ];

    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }
}

/// How often things go wrong, and how the steps are spread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weather {
    /// Out of a thousand acts of a client with a connection.
    pub(crate) cuts_per_mille: usize,
    /// The same, of acts that stall its connection.
    pub(crate) stalls_per_mille: usize,
    /// The weights of a step for a shard, the ledger, a client, the disk, the clock.
    pub(crate) weights: [u32; 5],
    /// Out of a thousand steps of the disk: it is full for a while.
    pub(crate) full_per_mille: usize,
    /// Out of a million steps: the process is gone.
    pub(crate) crashes_per_million: usize,
    /// Out of a thousand crashes: the power is lost.
    pub(crate) power_cuts_per_mille: usize,
    /// Out of a thousand crashes: a bit of what is left changes, in a copy.
    pub(crate) decays_per_mille: usize,
    /// Out of a million steps: one of the next writes or syncs fails; the process ends some time later.
    pub(crate) failures_per_million: usize,
    /// Out of a thousand commits: the next one has to wait for the disk.
    pub(crate) slow_per_mille: usize,
    /// Out of a thousand steps of the clock: the wall clock jumps.
    pub(crate) jumps_per_mille: usize,
    /// Out of a thousand steps of the clock: a long time passes.
    pub(crate) leaps_per_mille: usize,
}

/// A client, as long as the run lasts.
#[derive(Debug, Clone)]
pub(crate) struct Profile {
    pub(crate) client_id: String,
    pub(crate) version: Version,
    /// 0: its sessions end with their connections.
    pub(crate) expiry_secs: u32,
    pub(crate) receive_max: Option<u16>,
    pub(crate) packet_bytes_max: Option<u32>,
    pub(crate) topic_alias_max: u16,
    pub(crate) keep_alive_secs: u16,
    pub(crate) inflight_max: u16,
    /// The weights of what it does when it has its turn: read, publish, subscribe, unsubscribe, acknowledge.
    pub(crate) weights: [u32; 5],
    pub(crate) will: Option<WillPlan>,
    /// Durability of the listener that it connects to.
    pub(crate) durability: Durability,
    /// Begins anew, out of a thousand connections of a client whose session lasts.
    pub(crate) fresh_per_mille: usize,
}

/// The will of a client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WillPlan {
    pub(crate) topic: usize,
    pub(crate) qos: Qos,
    pub(crate) retain: bool,
    pub(crate) delay_secs: u32,
}

/// A topic that is published to.
#[derive(Debug, Clone)]
pub(crate) struct Topic {
    pub(crate) name: String,
    /// Everything that is published to it is retained.
    pub(crate) is_retained: bool,
    /// Everything is published to it with this.
    pub(crate) qos: Option<Qos>,
    /// Out of a thousand messages to a topic that is retained: its value is cleared.
    pub(crate) clears_per_mille: usize,
    /// Out of a thousand messages of MQTT 5: it expires.
    pub(crate) expires_per_mille: usize,
}

/// A filter that is subscribed to.
#[derive(Debug, Clone)]
pub(crate) struct Filter {
    pub(crate) text: String,
    pub(crate) is_shared: bool,
    /// Whether it matches each topic.
    pub(crate) matches: Vec<bool>,
}

impl Profile {
    /// A client that takes everything at once.
    pub(crate) fn of_audit(number: usize) -> Self {
        Self {
            client_id: format!("c{number}"),
            version: Version::V5,
            expiry_secs: 0,
            receive_max: None,
            packet_bytes_max: None,
            topic_alias_max: 0,
            keep_alive_secs: 0,
            inflight_max: 1,
            weights: [1, 0, 0, 0, 1],
            will: None,
            durability: Durability::None,
            fresh_per_mille: 0,
        }
    }
}

/// The most shards that any process has.
pub(crate) const SHARDS_MAX: usize = 4;
pub(crate) const QOS: [Qos; 3] = [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce];
/// Memory of a group with keys, for its lanes, in bytes.
const GROUP_BYTES: usize = 45_000;
const FILTERS: [&str; 14] = [
    "t/#",
    "t/+/x",
    "t/0/x",
    "t/1/x",
    "+/0/#",
    "#",
    "r/#",
    "r/0",
    "r/+",
    "w/#",
    "$share/g/t/#",
    "$share/g/t/0/+",
    "$share/h/t/1/x",
    "$share/h/#",
];

impl Scenario {
    pub(crate) fn draw(kind: Kind, random: &mut Random) -> Self {
        match kind {
            Kind::Ordinary | Kind::Memory | Kind::Held | Kind::Reload | Kind::Discard | Kind::Move => {
                let topics = topics(random);
                Self::about(topics, random)
            }
            Kind::Disk => Self::draw_pressure(random),
            Kind::Wide => {
                let topics = topics(random);
                let mut scenario = Self::about(topics, random);
                scenario.widen(random);
                scenario
            }
        }
    }

    /// More clients than a turn writes to at once, large payloads, and outputs that hold many of them.
    fn widen(&mut self, random: &mut Random) {
        let lasting_per_mille = *random.pick(&[0, 0, 300]);
        let weakest = self.clients.iter().map(|profile| profile.durability).min().unwrap_or_default();
        for number in self.clients.len()..random.between(12, 40) {
            let mut profile = profile(number, lasting_per_mille, false, &self.topics, random);
            match (profile.version, self.ledger.queue_full) {
                (Version::V3_1, QueueFull::EndSession) => profile.expiry_secs = 0,
                (Version::V3_1 | Version::V3_1_1, QueueFull::Refuse) => profile.weights[1] = 0,
                _ => {}
            }
            // Few publish, and all subscribe.
            profile.weights[1] = profile.weights[1].min(1);
            profile.weights[2] = 2;
            profile.durability = if random.chance(500) { weakest } else { profile.durability };
            self.clients.push(profile);
        }
        self.steps = self.steps.min(10_000);
        self.payload_bytes_max = *random.pick(&[5_000, 12_000, 24_000]);
        self.reads_bytes_max = *random.pick(&[3_000, 1 << 17]);
        self.socket_bytes = *random.pick(&[10_000, 1 << 17]);
        self.session.waiting_bytes_max = 1 << 28;
        self.bounds = Bounds {
            mail: *random.pick(&[50_000, 1 << 20]),
            commands: 1 << 20,
            answers: 1 << 20,
            unasked: 1 << 18,
            output: *random.pick(&[10_000, 1 << 18, 1 << 20]),
            outputs: *random.pick(&[1 << 20, 1 << 24]),
            allowance: 4 << 10,
            ..Bounds::default()
        };
    }

    /// Everything else, when it is known what is published to.
    pub(crate) fn about(topics: Vec<Topic>, random: &mut Random) -> Self {
        let filters = filters(&topics, random);
        let clients = random.between(2, 7);
        let wills = random.chance(500);
        let lasting_per_mille = *random.pick(&[0, 300, 600, 1_000]);
        let ledger = ledger_settings(random);
        let weakest = *random.pick(&[Fsync, Fsync, Fsync, Fsync, Os, Durability::None]);
        let profiles = (0..clients).map(|number| {
            let mut profile = profile(number, lasting_per_mille, wills, &topics, random);
            match (profile.version, ledger.queue_full) {
                // It would not be told that its session is gone.
                (Version::V3_1, QueueFull::EndSession) => profile.expiry_secs = 0,
                // It would be disconnected, come back and publish the same again, for ever if its own queue is full.
                (Version::V3_1 | Version::V3_1_1, QueueFull::Refuse) => profile.weights[1] = 0,
                _ => {}
            }
            profile
        });
        let clients: Vec<Profile> = profiles.collect();
        let mut scenario = Self {
            shards: shards(random),
            changes_shards: random.chance(500),
            session: session_settings(random),
            ledger: ledger.clone(),
            journal: journal::Settings::default(),
            changes_journal: random.chance(300),
            disk_reserves: random.chance(800),
            bounds: bounds(random),
            holds_threads: false,
            plain_per_mille: 0,
            memory_bytes_max: usize::MAX,
            socket_bytes: *random.pick(&[30, 300, 10_000]),
            clients,
            topics,
            filters,
            steps: *random.pick(&[1_000, 3_000, 3_000, 10_000, 30_000]),
            weather: weather(random),
            // A message that fits into no queue is refused for ever.
            payload_bytes_max: *random.pick(if ledger.queue_bytes_max < 10_000 {
                &[8, 60, 300]
            } else {
                &[8, 8, 60, 300, 2_000]
            }),
            reads_bytes_max: 3_000,
            pressure: None,
            is_left_alone: false,
            rules: None,
        };
        scenario.choose_durability(weakest, random);
        scenario.journal = journal_settings(scenario.durability(), random);
        scenario
    }

    /// Many groups, some of which are refused, and many messages that expire in them; for some seeds, so that the others
    /// stay what they are.
    pub(crate) fn crowd(&mut self, seed: u64) {
        if seed % 8 != 5 {
            return;
        }
        let choice = usize::try_from(seed / 8 % 1_000).expect("small");
        self.ledger.shared_subscriptions_max = 1 + choice % 4;
        self.ledger.groups_per_filter_max = 2 + choice % 3;
        self.topics.iter_mut().for_each(|topic| topic.expires_per_mille = 500);
        self.is_left_alone = true;
        let audits = self.filters.pop();
        let more = (0..12).map(|number| format!("$share/n{number}/{}", ["t/#", "t/0/+"][number % 2]));
        let more: Vec<Filter> = more.map(|text| filter(&text, &self.topics)).collect();
        self.filters.extend(more.into_iter().chain(audits));
    }

    /// Sessions and groups that are small in all runs are large for a ledger that does little at a time: it tells their
    /// shards, and ends them, bit by bit. For some seeds, so that the others stay what they are.
    pub(crate) fn slice(&mut self, kind: Kind, seed: u64) {
        match kind {
            Kind::Memory => self.starve(seed),
            Kind::Held => {
                self.holds_threads = true;
                self.plain_per_mille = [0, 300, 700][usize::try_from(seed % 3).expect("small")];
                match seed % 8 {
                    2 => self.slow_ledger(seed),
                    6 => self.fill_groups(seed),
                    _ => {}
                }
            }
            Kind::Reload => {
                self.holds_threads = seed.is_multiple_of(3);
                if seed.is_multiple_of(5) {
                    self.payload_bytes_max = self.payload_bytes_max.max(6_000);
                }
            }
            Kind::Ordinary | Kind::Disk | Kind::Wide | Kind::Discard | Kind::Move => {}
        }
        if seed % 4 != 3 {
            return;
        }
        self.ledger.units.at_once = usize::try_from(seed / 4 % 3).expect("small");
        self.ledger.units.at_a_time = if (seed / 12).is_multiple_of(2) { 2 } else { 7 };
    }

    /// A ledger that runs seldom, and a few clients that come back on other shards all the time and go on with the same topic:
    /// they act on one letter of the ledger before the next one is posted.
    fn slow_ledger(&mut self, seed: u64) {
        (self.shards, self.changes_shards) = (SHARDS_MAX, false);
        self.steps = 20_000;
        self.plain_per_mille = 700;
        self.weather.weights = [60, 2, 40, 8, 2];
        self.weather.cuts_per_mille = 15;
        let wills = self.topics.split_off(self.topics.len() - 2);
        self.topics.retain(|topic| topic.name == "r/0");
        self.topics[0].qos = Some(QOS[usize::from(seed / 8 % 2 == 1)]);
        self.topics.extend(wills);
        self.filters = ["#", "r/0", "r/#"].into_iter().map(|text| filter(text, &self.topics)).collect();
        self.clients.truncate(4);
        for profile in &mut self.clients {
            // A client whose session lasts would stay on its shard.
            profile.expiry_secs = 0;
            profile.will = None;
            profile.weights = [10, 10, 1, 0, 4];
        }
    }

    /// Groups that are full again and again, and lasting and other members that change their subscriptions all the time.
    fn fill_groups(&mut self, seed: u64) {
        self.ledger.queue_full = QueueFull::EndSession;
        self.ledger.queue_messages_max = 2 + usize::try_from(seed / 8 % 3).expect("small");
        self.filters = ["$share/g/t/#", "r/#"].into_iter().map(|text| filter(text, &self.topics)).collect();
        for (number, profile) in self.clients.iter_mut().enumerate() {
            // A client of MQTT 3.1 would not be told that its session is gone.
            let lasts = number % 2 == 0 && profile.version != Version::V3_1;
            profile.expiry_secs = if lasts { u32::MAX } else { 0 };
            let [reads, publishes, _, _, acknowledges] = profile.weights;
            profile.weights = [reads, publishes.max(2), 3, 2, acknowledges.min(2)];
            profile.durability = Fsync;
        }
        self.journal.durability = Fsync;
        self.weather.crashes_per_million = self.weather.crashes_per_million.max(2_000);
    }

    /// Clients may make the process hold little memory.
    fn starve(&mut self, seed: u64) {
        self.holds_threads = true;
        self.payload_bytes_max = self.payload_bytes_max.max(6_000);
        self.memory_bytes_max = self.little_memory(seed);
    }

    /// A limit of memory that clients reach, in bytes.
    pub(crate) fn little_memory(&self, seed: u64) -> usize {
        let limits = [200_000, 300_000, 600_000];
        let groups = self.filters.iter().filter(|filter| filter.is_shared).count();
        let of_group = if self.ledger.dispatch == Dispatch::RoundRobin { 1_100 } else { GROUP_BYTES };
        limits[usize::try_from(seed % 3).expect("small")] + groups * of_group
    }

    /// A crash may not lose more than what a listener allows: so crashes are no worse than the weakest one.
    fn choose_durability(&mut self, weakest: Durability, random: &mut Random) {
        for profile in self.clients.iter_mut().filter(|_| random.chance(500)) {
            profile.durability = weakest;
        }
        self.weather.allow(weakest);
    }

    /// The most that any of its listeners waits for.
    pub(crate) fn durability(&self) -> Durability {
        self.clients.iter().map(|profile| profile.durability).max().unwrap_or_default()
    }

    /// An operator may change some settings between two processes.
    pub(crate) fn change_settings(&mut self, random: &mut Random) {
        if self.changes_shards {
            self.shards = shards(random);
        }
        if self.pressure.is_some() {
            self.change_bounds(random);
        } else if self.changes_journal {
            self.journal = journal_settings(self.durability(), random);
        }
    }

    /// Whether the journal may fail though the disk does not, for want of space.
    pub(crate) fn excuses_failure(&self) -> bool {
        self.weather.full_per_mille > 0
    }

    /// Whether sessions end because a queue is full.
    pub(crate) fn ends_sessions(&self) -> bool {
        self.ledger.queue_full == QueueFull::EndSession
            && (self.pressure.is_some() || is_small_queue(&self.ledger))
    }
}

impl Weather {
    /// Nothing that may lose what the weakest of all listeners has promised.
    pub(crate) fn allow(&mut self, weakest: Durability) {
        if weakest < Fsync {
            self.power_cuts_per_mille = 0;
        }
        if weakest < Os {
            (self.crashes_per_million, self.failures_per_million, self.full_per_mille) = (0, 0, 0);
        }
    }
}

fn is_small_queue(settings: &ledger::Settings) -> bool {
    settings.queue_messages_max < 1_000 || settings.queue_bytes_max < 1 << 20
}

fn topics(random: &mut Random) -> Vec<Topic> {
    let uniform = random.chance(700);
    let plain = ["t/0/x", "t/1/x", "t/0/y"].map(|name| (name, false));
    let retained = ["r/0", "r/1"].map(|name| (name, true));
    let topic = |(name, is_retained): (&str, bool)| Topic {
        name: name.to_owned(),
        is_retained,
        qos: (is_retained && uniform).then(|| *random.pick(&QOS)),
        clears_per_mille: 100,
        expires_per_mille: 50,
    };
    let wills = [("w/0", false), ("r/w", true)];
    plain.into_iter().chain(retained).chain(wills).map(topic).collect()
}

/// All filters, or some: few filters overlap more.
fn filters(topics: &[Topic], random: &mut Random) -> Vec<Filter> {
    let keep = *random.pick(&[300, 700, 1_000]);
    let mut texts: Vec<&str> = FILTERS.into_iter().filter(|_| random.chance(keep)).collect();
    if !random.chance(500) {
        texts.retain(|text| !text.starts_with("$share"));
    }
    if texts.is_empty() {
        texts.push("t/#");
    }
    // The last one is that of the audits.
    texts.retain(|text| *text != "r/#");
    texts.into_iter().chain(["r/#"]).map(|text| filter(text, topics)).collect()
}

fn filter(text: &str, topics: &[Topic]) -> Filter {
    let filter = TopicFilter::new(text).expect("the filters above are valid");
    let name = |topic: &Topic| filter.matches(TopicName::new(&topic.name).expect("the topics are valid"));
    Filter {
        text: text.to_owned(),
        is_shared: filter.shared().is_some(),
        matches: topics.iter().map(name).collect(),
    }
}

fn profile(
    number: usize,
    lasting_per_mille: usize,
    wills: bool,
    topics: &[Topic],
    random: &mut Random,
) -> Profile {
    let version = *random.pick(&[Version::V3_1, Version::V3_1_1, Version::V5, Version::V5, Version::V5]);
    let lasts = random.chance(lasting_per_mille);
    let expiry_secs = match version {
        _ if !lasts => 0,
        Version::V5 => *random.pick(&[3, 60, 3_600, u32::MAX]),
        Version::V3_1 | Version::V3_1_1 => u32::MAX,
    };
    let reading = *random.pick(&[10, 10, 10, 2]);
    let publishing = *random.pick(&[0, 1, 4, 8]);
    let acknowledging = *random.pick(&[0, 2, 6, 6, 6]);
    Profile {
        client_id: format!("c{number}"),
        version,
        expiry_secs,
        receive_max: random.chance(600).then(|| *random.pick(&[1, 2, 5, 100])),
        packet_bytes_max: random.chance(100).then_some(150),
        topic_alias_max: if random.chance(300) { 2 } else { 0 },
        keep_alive_secs: if random.chance(250) { *random.pick(&[1, 10, 60]) } else { 0 },
        inflight_max: *random.pick(&[1, 3, 10]),
        weights: [reading, publishing, 1, u32::from(random.chance(600)), acknowledging],
        will: (wills && random.chance(600)).then(|| will(version, topics, random)),
        durability: Fsync,
        fresh_per_mille: *random.pick(&[0, 50, 200]),
    }
}

fn will(version: Version, topics: &[Topic], random: &mut Random) -> WillPlan {
    let topic = topics.len() - 1 - random.below(2);
    WillPlan {
        topic,
        qos: topics[topic].qos.unwrap_or(*random.pick(&QOS)),
        retain: topics[topic].is_retained,
        delay_secs: if version.is_5() { *random.pick(&[0, 0, 1, 30]) } else { 0 },
    }
}

fn session_settings(random: &mut Random) -> session::Settings {
    session::Settings {
        packet_bytes_max: 100_000,
        topic_alias_max: 3,
        topic_alias_out_max: 3,
        receive_max: *random.pick(&[1, 3, 20]),
        inflight_max: *random.pick(&[1, 4, 1_000]),
        inflight_max_3: *random.pick(&[1, 4, 100]),
        waiting_messages_max: *random.pick(&[3, 100, 100_000]),
        waiting_bytes_max: *random.pick(&[2_000, 1 << 20, 1 << 28]),
        ..session::Settings::default()
    }
}

fn ledger_settings(random: &mut Random) -> ledger::Settings {
    use QueueFull::{DropNewest, DropOldest, EndSession, Refuse};
    let mut settings = ledger::Settings {
        queue_messages_max: *random.pick(&[5, 100_000, 100_000, 100_000]),
        queue_bytes_max: *random.pick(&[2_000, 1 << 28, 1 << 28, 1 << 28]),
        queue_full: *random.pick(&[EndSession, EndSession, Refuse, DropOldest, DropNewest]),
        brake_messages: *random.pick(&[1, 10, 1_000]),
        brake_bytes: *random.pick(&[500, 1 << 18]),
        seed: random.next(),
        ..ledger::Settings::default()
    };
    if settings.seed.is_multiple_of(2) {
        settings.dispatch = Dispatch::KeyOrdered(Key::Publisher);
    }
    settings.queued_bytes_in_memory = match settings.seed / 2 % 3 {
        0 => 0,
        1 => 1_000,
        _ => usize::MAX,
    };
    settings
}

/// The number of shards of a process.
fn shards(random: &mut Random) -> usize {
    *random.pick(&[1, 1, 2, 2, 3, SHARDS_MAX, SHARDS_MAX])
}

/// Segments as small as they can be, so that many are filled, cleaned and used again.
fn journal_settings(durability: Durability, random: &mut Random) -> journal::Settings {
    let segment_bytes_min = *random.pick(&[64 << 10, 64 << 10, 128 << 10]);
    journal::Settings {
        segment_bytes_min,
        segment_bytes_max: segment_bytes_min * *random.pick(&[1, 2, 4]),
        disk_bytes_max: u64::MAX,
        free_bytes_min: *random.pick(&[0, 0, 50_000]),
        durability,
    }
}

fn bounds(random: &mut Random) -> Bounds {
    let read = *random.pick(&[20, 500, 1 << 16]);
    Bounds {
        mail: *random.pick(&[100, 1_000, 1 << 20]),
        commands: *random.pick(&[500, 5_000, 1 << 20]),
        answers: *random.pick(&[2_000, 1 << 16]),
        unasked: *random.pick(&[500, 1 << 14]),
        letters: *random.pick(&[1, 1_000, 1 << 20]),
        output: *random.pick(&[100, 1_000, 1 << 18]),
        outputs: *random.pick(&[2_000, 1 << 24, 1 << 24]),
        allowance: 200,
        read,
        read_on: 4 * read,
        carry: *random.pick(&[0, 10, 1 << 12]),
    }
}

fn weather(random: &mut Random) -> Weather {
    let is_fair = random.chance(200);
    let durable = random.chance(700);
    let mut often = |rates: &[usize]| if is_fair { 0 } else { *random.pick(rates) };
    let cuts_per_mille = often(&[0, 2, 10, 30]);
    let stalls_per_mille = often(&[0, 0, 5]);
    let leaps_per_mille = often(&[0, 0, 10, 50]);
    let jumps_per_mille = often(&[0, 0, 0, 5]);
    let weights = [30, 15, *random.pick(&[15, 30, 60]), *random.pick(&[1, 8, 20]), *random.pick(&[1, 5])];
    let mut rarely = |rates: &[usize]| if is_fair || !durable { 0 } else { *random.pick(rates) };
    Weather {
        cuts_per_mille,
        stalls_per_mille,
        weights,
        full_per_mille: rarely(&[0, 0, 0, 20]),
        crashes_per_million: rarely(&[0, 200, 1_000, 3_000]),
        power_cuts_per_mille: rarely(&[0, 500, 1_000]),
        decays_per_mille: rarely(&[0, 300]),
        failures_per_million: rarely(&[0, 0, 200, 1_000]),
        slow_per_mille: rarely(&[0, 0, 10, 100]),
        jumps_per_mille,
        leaps_per_mille,
    }
}
