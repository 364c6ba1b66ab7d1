//! Random schedules of clients, disk and crashes. The seed of one that fails is printed; with `LEDGER_SEED` set to it,
//! everything that happens is.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use base::{Dispatch, Interest, Key, Message, Place, Ticket};
use index::Subscriptions;
use ledger::{Ledger, Lsn, QueueFull, Record, Settings};
use protocol::{Cause, Command, Deliver, Delivered, Reply};
use wire::{PacketId, Qos, ReasonCode};

use crate::stage::{Ask, Client, QOS_1, QOS_2, Stage, message_of, packet_id, text};

/// Numbers that look random, the same ones for a seed (SplitMix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("small")
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// The events that can happen in a schedule.
#[derive(Debug, Clone)]
struct Weather {
    /// Sessions last for ever, queues are never full and nothing expires: what was acknowledged must arrive.
    is_calm: bool,
    settings: Settings,
}

/// A client, as long as it lives: over its connections, and over the restarts of the server.
#[derive(Debug, Default)]
struct Peer {
    client: Option<Client>,
    /// It was told to go, and has not gone.
    is_evicted: bool,
    /// Messages of QoS 2 that it has had and that are not released.
    open: BTreeSet<PacketId>,
    /// Everything of QoS 2 that it was given by its session.
    given: BTreeSet<String>,
    /// Messages that it has received and not answered.
    unanswered: Vec<Deliver>,
    /// PUBLISH packets without an answer.
    published: BTreeMap<u16, Arc<Message>>,
    /// PUBREL packets without an answer.
    releasing: BTreeSet<u16>,
    next_id: u16,
}

impl Peer {
    /// A client forgets its session when it asks for a new one.
    fn forget(&mut self) {
        self.open.clear();
        self.given.clear();
        self.published.clear();
        self.releasing.clear();
    }

    /// A client forgets its session when a session ends that was to end with its connection.
    fn disconnect(&mut self) -> Option<Client> {
        let client = self.client.take()?;
        if client.expiry_secs == 0 {
            self.forget();
        }
        Some(client)
    }
}

/// A message that the server has answered for, and a queue that it must have gone to.
type Promise = (String, String);

struct World {
    stage: Stage,
    dice: Dice,
    weather: Weather,
    peers: BTreeMap<&'static str, Peer>,
    /// Connections in progress, with the names of their peers.
    waiting: Vec<(&'static str, Client)>,
    /// The state after each group of records.
    states: BTreeMap<Lsn, String>,
    durable: Lsn,
    /// Subscriptions of lasting sessions; in calm weather only.
    subscriptions: BTreeMap<(&'static str, &'static str), Qos>,
    expected: BTreeMap<String, BTreeSet<String>>,
    promises: BTreeSet<Promise>,
    kept: BTreeSet<Promise>,
    messages: usize,
    /// Records up to there are gone.
    cut: Lsn,
    cleaning: Option<Cleaning>,
}

/// The oldest records are being copied, as far as they are still true.
struct Cleaning {
    upto: Lsn,
    old: VecDeque<Record<'static>>,
    /// The last copy, when all are made.
    copied: Option<Lsn>,
}

const LASTING: [&str; 4] = ["lasting-1", "lasting-2", "lasting-3", "lasting-4"];
const CLEAN: [&str; 2] = ["clean-1", "clean-2"];
const PLAIN: [&str; 3] = ["a/#", "a/b", "+/b"];
/// On topics of their own: a member may have a message twice, for itself and for its group.
const SHARED: [&str; 2] = ["$share/g/s/#", "$share/h/t/x"];
const TOPICS: [&str; 4] = ["a/b", "a/c", "s/x", "t/x"];

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let is_calm = dice.one_in(2);
        let queue_full = dice.pick(&[
            QueueFull::EndSession,
            QueueFull::Refuse,
            QueueFull::DropOldest,
            QueueFull::DropNewest,
        ]);
        let messages = if is_calm { 1_000_000 } else { 6 };
        let settings = Settings {
            queue_messages_max: messages,
            queue_full,
            brake_messages: 3,
            sessions_max: if is_calm { 100 } else { 3 },
            queued_bytes_in_memory: dice.pick(&[0, 400, usize::MAX]),
            dispatch: dice.pick(&[&Dispatch::RoundRobin, &Dispatch::KeyOrdered(Key::Publisher)]).clone(),
            ..Settings::default()
        };
        let peers = LASTING.iter().chain(&CLEAN).map(|name| (*name, Peer::default())).collect();
        Self {
            stage: Stage::with(settings.clone()).slow(),
            dice,
            weather: Weather { is_calm, settings },
            peers,
            waiting: Vec::new(),
            states: BTreeMap::from([(Lsn(0), Stage::new().ledger.durable_state())]),
            durable: Lsn(0),
            subscriptions: BTreeMap::new(),
            expected: BTreeMap::new(),
            promises: BTreeSet::new(),
            kept: BTreeSet::new(),
            messages: 0,
            cut: Lsn(0),
            cleaning: None,
        }
    }

    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            self.step();
            self.note_state();
            self.listen();
        }
        self.stage.sink.no_space = false;
        self.crash();
        self.stage.check_account();
    }

    fn note_state(&mut self) {
        let state = self.stage.state();
        self.states.insert(self.stage.last(), state);
    }

    fn step(&mut self) {
        let name = self.dice.pick(&[LASTING[0], LASTING[1], LASTING[2], LASTING[3], CLEAN[0], CLEAN[1]]);
        let is_connected = self.peers[name].client.is_some();
        match self.dice.below(29) {
            0 | 1 => self.connect(name),
            2 if is_connected => self.leave(name),
            3 | 4 if is_connected => self.subscribe(name),
            5 if is_connected && self.dice.one_in(3) => self.unsubscribe(name),
            6..=11 if is_connected => self.publish(name),
            12..=15 if is_connected => self.answer(name),
            16 if is_connected => self.release(name),
            17 | 18 => self.stage.ledger.work(self.stage.now, &mut self.stage.sink),
            19 | 20 => self.sync(),
            21 => self.pass(),
            22 if self.dice.one_in(4) => self.stage.sink.no_space = !self.stage.sink.no_space,
            23 if self.dice.one_in(8) => self.crash(),
            24..=26 => self.clean(),
            27 | 28 => self.stage.read(),
            _ => {}
        }
    }

    /// Goes on with copying old records, and forgets them when the copies are durable.
    fn clean(&mut self) {
        let Some(cleaning) = &mut self.cleaning else { return self.begin_cleaning() };
        match cleaning.copied {
            None => {
                let mut some: VecDeque<_> =
                    (0..=self.dice.below(9)).map_while(|_| cleaning.old.pop_front()).collect();
                let _ = self.stage.ledger.copy_some(&mut some, &mut self.stage.sink);
                some.into_iter().rev().for_each(|record| cleaning.old.push_front(record));
                cleaning.copied = cleaning.old.is_empty().then(|| self.stage.last());
            }
            Some(copied) if copied <= self.durable => {
                self.cut = cleaning.upto;
                self.cleaning = None;
                self.stage.sink.groups.retain(|(lsn, _)| *lsn > self.cut);
                let replayed = self.replay(self.stage.last()).0;
                assert_eq!(self.stage.state_of(&replayed), self.stage.state(), "cut off at {:?}", self.cut);
            }
            Some(_) => {}
        }
    }

    fn begin_cleaning(&mut self) {
        let groups = self.stage.sink.groups.len();
        if groups > 0 {
            let segment = self.dice.pick(&[1 + groups / 4, groups]).min(1 + self.dice.below(groups));
            let old = self.stage.sink.groups.iter().take(segment);
            let upto = old.clone().next_back().map_or(self.cut, |(lsn, _)| *lsn);
            let old = old.flat_map(|(_, group)| group.iter().cloned()).collect();
            self.cleaning = Some(Cleaning { upto, old, copied: None });
        }
    }

    /// Rebuilds a ledger from the records up to there.
    fn replay(&self, last: Lsn) -> (Ledger, Arc<Subscriptions>) {
        let index = Arc::new(Subscriptions::new([3, 4]));
        let settings = Settings { seed: 9, ..self.weather.settings.clone() };
        let mut log = self.stage.sink.log(last);
        (Ledger::recover_from(settings, Arc::clone(&index), &mut log, self.stage.now), index)
    }

    fn pass(&mut self) {
        let ms = self.dice.pick(&[1, 100, 1_000, 4_000]);
        self.stage.now.monotonic_ms += ms;
        self.stage.now.unix_ms += ms;
        self.stage.ledger.work(self.stage.now, &mut self.stage.sink);
    }

    fn sync(&mut self) {
        let (from, upto) = (self.durable.0, self.stage.last().0);
        let span = usize::try_from(upto - from).expect("small") + 1;
        self.durable = Lsn(from + self.dice.below(span) as u64);
        self.stage.progress(self.durable, self.durable, false);
    }

    fn connect(&mut self, name: &'static str) {
        let is_lasting = LASTING.contains(&name);
        let mut ask = Ask::lasting(if is_lasting { u32::MAX } else { 0 }).window(self.dice.pick(&[1, 2, 10]));
        ask.shard = self.dice.below(3);
        if !self.weather.is_calm && is_lasting {
            ask.expiry_secs = self.dice.pick(&[0, 3, 3, u32::MAX]);
            ask.clean_start = self.dice.one_in(4);
        }
        if self.dice.one_in(2) {
            ask = ask.will("a/b", self.dice.pick(&[0, 2, 9]));
        }
        // A session that is to end with this connection may be gone before its client has heard of it.
        if ask.clean_start || ask.expiry_secs == 0 {
            self.peers.get_mut(name).expect("a peer").forget();
        }
        let client = self.stage.claim(name, &ask);
        self.waiting.push((name, client));
    }

    fn leave(&mut self, name: &'static str) {
        let Some(client) = self.peers.get_mut(name).and_then(Peer::disconnect) else { return };
        let cause = match self.peers[name].is_evicted {
            true => Cause::TakenOver,
            false => self.dice.pick(&[Cause::Normal, Cause::WithWill]),
        };
        self.stage.leave(&client, cause);
    }

    fn subscribe(&mut self, name: &'static str) {
        let filter = if self.dice.one_in(3) { self.dice.pick(&SHARED) } else { self.dice.pick(&PLAIN) };
        let Some(client) = self.peers[name].client.clone() else { return };
        if client.subscriber.queue.is_none() && !filter.starts_with("$share") {
            return;
        }
        // A refused SUBSCRIBE changes nothing here: a shard would have to restore the old options.
        if self.stage.sink.no_space && self.subscriptions.contains_key(&(name, filter)) {
            return;
        }
        let qos = self.dice.pick(&[QOS_1, QOS_2]);
        self.stage.subscribe(&client, filter, Interest::new(qos));
        let is_refused = self
            .stage
            .sink
            .replies
            .iter()
            .any(|(_, reply)| matches!(reply, Reply::Recorded { reason, .. } if reason.is_error()));
        if self.stage.sink.no_space || is_refused {
            if client.subscriber.queue.is_some() {
                self.stage.forget(&client, filter);
            }
        } else if LASTING.contains(&name) {
            self.subscriptions.insert((name, filter), qos);
        }
    }

    fn unsubscribe(&mut self, name: &'static str) {
        let filter = if self.dice.one_in(3) { self.dice.pick(&SHARED) } else { self.dice.pick(&PLAIN) };
        let Some(client) = self.peers[name].client.clone() else { return };
        self.stage.unsubscribe(&client, filter);
        self.subscriptions.remove(&(name, filter));
        if filter.starts_with("$share") {
            // Messages that wait for a group that may be gone are not expected any more.
            self.promises.retain(|(_, queue)| queue != filter);
            for queues in self.expected.values_mut() {
                queues.remove(filter);
            }
        }
    }

    fn publish(&mut self, name: &'static str) {
        let Some(client) = self.peers[name].client.clone() else { return };
        let qos = self.dice.pick(&[Qos::AtMostOnce, QOS_1, QOS_2]);
        let retain = self.dice.one_in(6) && qos > Qos::AtMostOnce;
        let expiry_secs = (!self.weather.is_calm && self.dice.one_in(4)).then_some(2);
        self.messages += 1;
        let payload = format!("m{}", self.messages);
        let topic = self.dice.pick(&TOPICS);
        let message = message_of(name, topic, payload.as_bytes(), qos, retain, expiry_secs);
        let peer = self.peers.get_mut(name).expect("a peer");
        peer.next_id += 1;
        let id = peer.next_id;
        if qos > Qos::AtMostOnce {
            peer.published.insert(id, Arc::clone(&message));
            self.expect(&message);
        }
        self.stage.publish(&client, id, &message);
    }

    /// Notes which queues a message should go to.
    fn expect(&mut self, message: &Message) {
        let queues = self.subscriptions.keys().filter(|(_, filter)| {
            let filter = topic::TopicFilter::new(filter).expect("a filter");
            filter.matches(message.topic())
        });
        let queue = |&(name, filter): &(&str, &str)| {
            if filter.starts_with("$share") { filter.to_owned() } else { name.to_owned() }
        };
        let queues: BTreeSet<String> = queues.map(queue).collect();
        // Of one that is sent again it is not known which time counted.
        let before = self.expected.get(&text(message)).unwrap_or(&queues);
        let queues = queues.intersection(before).cloned().collect();
        self.expected.insert(text(message), queues);
    }

    /// Says something about one of the messages it has.
    fn answer(&mut self, name: &'static str) {
        let peer = self.peers.get_mut(name).expect("a peer");
        let Some(client) = peer.client.clone().filter(|_| !peer.unanswered.is_empty()) else { return };
        let position = self.dice.below(peer.unanswered.len());
        let deliver = peer.unanswered.remove(position);
        let payload = text(&deliver.message);
        match (deliver.what, deliver.qos) {
            (Delivered::Session { packet_id, .. }, QOS_2) => self.stage.received(&client, packet_id),
            (Delivered::Group { group, entry }, QOS_2) => {
                let connection = client.place.connection;
                self.stage.handle(client.place.shard, Command::Sent { group, entry, connection });
                self.stage.acknowledge(&client, deliver.what, ReasonCode::Success);
            }
            _ => self.stage.acknowledge(&client, deliver.what, ReasonCode::Success),
        }
        self.keep(name, payload);
    }

    fn keep(&mut self, name: &str, payload: String) {
        for shared in SHARED {
            self.kept.insert((payload.clone(), shared.to_owned()));
        }
        self.kept.insert((payload, name.to_owned()));
    }

    fn release(&mut self, name: &'static str) {
        let peer = self.peers.get_mut(name).expect("a peer");
        let Some(client) = peer.client.clone().filter(|client| client.subscriber.queue.is_some()) else {
            return;
        };
        if let Some(id) = peer.releasing.first().copied() {
            self.stage.released(&client, packet_id(id));
        }
    }

    /// Clients hear what they are told.
    fn listen(&mut self) {
        for (shard, reply) in std::mem::take(&mut self.stage.sink.replies) {
            if self.stage.is_verbose {
                eprintln!("  {shard:?} {reply:?}");
            }
            match reply {
                Reply::Evict { connection } => self.evicted(Place { shard, connection }),
                Reply::Refused { connection, .. } => {
                    let place = Place { shard, connection };
                    self.waiting.retain(|(_, client)| client.place != place);
                }
                Reply::Ended { connection, .. } => {
                    if let Some(name) = self.name_of(Place { shard, connection }) {
                        self.leave(name);
                    }
                }
                Reply::Claimed(claimed) => {
                    let place = Place { shard, connection: claimed.connection };
                    let position = self.waiting.iter().position(|(_, client)| client.place == place);
                    let Some((name, mut client)) = position.map(|position| self.waiting.remove(position))
                    else {
                        continue;
                    };
                    client.subscriber = claimed.subscriber;
                    self.claimed(name, &client, claimed.session_present);
                }
                Reply::Deliver(deliver) => {
                    if let Some(name) = self.name_of(Place { shard, connection: deliver.connection }) {
                        self.delivered(name, deliver);
                    }
                }
                Reply::Release { connection, packet_id } => {
                    if let Some(name) = self.name_of(Place { shard, connection }) {
                        self.pubrel(name, packet_id);
                    }
                }
                Reply::Stored { connection, ticket, reason } => {
                    if let Some(name) = self.name_of(Place { shard, connection }) {
                        self.stored(name, ticket, reason);
                    }
                }
                _ => {}
            }
        }
    }

    fn name_of(&self, place: Place) -> Option<&'static str> {
        let is_there = |peer: &Peer| peer.client.as_ref().is_some_and(|client| client.place == place);
        self.peers.iter().find(|(_, peer)| is_there(peer)).map(|(name, _)| *name)
    }

    fn evicted(&mut self, place: Place) {
        if let Some(name) = self.name_of(place) {
            let peer = self.peers.get_mut(name).expect("a peer");
            peer.is_evicted = true;
            self.leave(name);
        } else if let Some(position) = self.waiting.iter().position(|(_, client)| client.place == place) {
            let (_, client) = self.waiting.remove(position);
            self.stage.leave(&client, Cause::TakenOver);
        }
    }

    fn claimed(&mut self, name: &'static str, client: &Client, session_present: bool) {
        let peer = self.peers.get_mut(name).expect("a peer");
        assert!(peer.client.is_none(), "{name} has one connection");
        peer.is_evicted = false;
        peer.unanswered.clear();
        if !session_present {
            assert!(!self.weather.is_calm || self.subscriptions.keys().all(|(other, _)| *other != name));
            peer.forget();
            self.subscriptions.retain(|(other, _), _| *other != name);
        }
        peer.client = Some(client.clone());
        // Messages without an answer are sent again.
        for (id, message) in peer.published.clone() {
            self.expect(&message);
            self.stage.publish(client, id, &message);
        }
    }

    fn delivered(&mut self, name: &'static str, deliver: Deliver) {
        let peer = self.peers.get_mut(name).expect("a peer");
        if let (QOS_2, Delivered::Session { packet_id, .. }) = (deliver.qos, deliver.what)
            && peer.open.insert(packet_id)
        {
            let payload = text(&deliver.message);
            let is_new = payload == "will" || peer.given.insert(payload.clone());
            assert!(is_new, "{name} was given {payload} twice");
        }
        peer.unanswered.push(deliver);
    }

    fn pubrel(&mut self, name: &'static str, packet_id: PacketId) {
        let peer = self.peers.get_mut(name).expect("a peer");
        peer.open.remove(&packet_id);
        let Some(client) = peer.client.clone() else { return };
        let what = Delivered::Session { queue: client.queue(), packet_id };
        self.stage.acknowledge(&client, what, ReasonCode::Success);
    }

    fn stored(&mut self, name: &'static str, ticket: Ticket, reason: ReasonCode) {
        let peer = self.peers.get_mut(name).expect("a peer");
        match ticket {
            Ticket::PubRel(packet_id) if !reason.is_error() => self.pubrel(name, packet_id),
            Ticket::PubRel(_) => {}
            Ticket::PubComp(packet_id) => {
                peer.releasing.remove(&packet_id.value());
            }
            Ticket::PubAck(packet_id) | Ticket::PubRec(packet_id) => {
                let Some(message) = peer.published.remove(&packet_id.value()) else { return };
                if matches!(ticket, Ticket::PubRec(_)) && !reason.is_error() {
                    peer.releasing.insert(packet_id.value());
                }
                let queues = self.expected.remove(&text(&message)).unwrap_or_default();
                if !reason.is_error() {
                    self.promises.extend(queues.into_iter().map(|queue| (text(&message), queue)));
                }
            }
        }
    }

    /// The process ends, with what was not durable or without; a new one begins from what was.
    fn crash(&mut self) {
        let kept: Vec<Lsn> = self.states.range(self.durable..).map(|(lsn, _)| *lsn).collect();
        let last = self.dice.pick(&kept);
        let expected = self.states[&last].clone();
        let (ledger, index) = self.replay(last);
        self.cleaning = None;
        if self.stage.is_verbose {
            eprintln!("crash at {last:?} of {:?}\n{expected}", self.stage.last());
        }
        assert_eq!(self.stage.state_of(&ledger), expected, "replayed up to {last:?}");
        self.stage.restart(ledger, index, last);
        self.stage.check_account();
        if self.weather.is_calm {
            self.check_promises();
        }
        self.durable = last;
        self.states.retain(|lsn, _| *lsn <= last);
        self.waiting.clear();
        for peer in self.peers.values_mut() {
            peer.disconnect();
            peer.is_evicted = false;
        }
        self.subscriptions_after_restart();
        self.note_state();
    }

    /// Forgets subscriptions that were not recorded.
    fn subscriptions_after_restart(&mut self) {
        let state = self.stage.state();
        let sections = sections(&state);
        self.subscriptions.retain(|(name, filter), _| {
            let section = sections.get(*name).map(String::as_str).unwrap_or_default();
            section.contains(&format!("subscription {filter} "))
        });
    }

    /// Everything that was acknowledged to its publisher is with a subscriber, or in a queue, or on its way.
    fn check_promises(&self) {
        let state = self.stage.state();
        let sections = sections(&state);
        for (payload, queue) in self.promises.difference(&self.kept) {
            let bytes = format!("{:?}", payload.as_bytes());
            let is_there = |name: &str| sections.get(name).is_some_and(|section| section.contains(&bytes));
            let is_shared = queue.starts_with("$share");
            let is_somewhere = is_there(queue) || (is_shared && LASTING.iter().any(|name| is_there(name)));
            assert!(is_somewhere, "{payload} for {queue} was acknowledged and is lost:\n{state}");
        }
    }
}

/// Returns the sections of the state, by client identifier or filter.
fn sections(state: &str) -> BTreeMap<String, String> {
    let mut sections: BTreeMap<String, String> = BTreeMap::new();
    let mut name = String::new();
    for line in state.lines() {
        if let Some(rest) = line.strip_prefix("session ").or_else(|| line.strip_prefix("group ")) {
            name = rest.split(' ').nth(1).expect("a name").to_owned();
        }
        sections.entry(name.clone()).or_default().push_str(&format!("{line}\n"));
    }
    sections
}

fn schedules(seeds: impl Iterator<Item = u64>, is_verbose: bool) {
    for seed in seeds {
        let mut world = World::new(seed);
        world.stage.is_verbose = is_verbose;
        let run = std::panic::AssertUnwindSafe(|| world.run(400));
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

/// Under every schedule: replaying the durable records gives the state the ledger was in; nothing that was
/// acknowledged is lost; nothing of QoS 2 is given to one client twice; every message is accounted for.
#[test]
fn records_make_the_same_ledger_again() {
    match std::env::var("LEDGER_SEED") {
        Ok(seed) => schedules(std::iter::once(seed.parse().expect("a number")), true),
        Err(_) => schedules(0..250, false),
    }
}
