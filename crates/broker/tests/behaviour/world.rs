//! Shards and a ledger without sockets and threads: what they ask of the world is carried out at once, or when
//! a test says so.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use auth::{Bans, Check, Checked, Guard, Realms, Unchecked, Whom, Wish, Wished, Workspace};
use base::{
    Budget, CertificateName, Charge, ConnectionId, Now, Purpose, ShardId, SpanMark, SpanSettings, Subscriber,
};
use broker::{Admission, Cause, Counters, Effects, Flush, Mail, Notice, Parties, Room, Run, Shard, Totals};
use index::{Subscriptions, Target};
use ledger::{Ledger, Lsn, Progress, Record, Refusal};
use protocol::{Command, Durability, Reply};
use session::Settings;
use topic::{TopicFilter, TopicName};
use wire::{
    Binary, Connect, Decoded, Limits, MessageProperties, OneOrMore, Packet, PacketId, Publish, Qos, Role,
    Subscribe, SubscribeProperties, Subscription, SubscriptionOptions, Utf8, Version, Will, decode,
};

/// Users that are counted one by one.
pub(crate) const COUNTED_USERS_MAX: usize = 3;
/// Above this many bytes a connection is over its mark.
pub(crate) const HIGH_WATER_BYTES: usize = 1_000;

pub(crate) fn settings() -> Settings {
    Settings {
        packet_bytes_max: 100_000,
        connect_packet_bytes_max: 10_000,
        topic_levels_max: 8,
        client_id_bytes_max: 100,
        will_bytes_max: 1_000,
        subscriptions_max: 3,
        topic_alias_max: 2,
        ..Settings::default()
    }
}

pub(crate) struct World {
    pub(crate) shards: Vec<Shard>,
    pub(crate) outside: Vec<Outside>,
    pub(crate) counters: Vec<Arc<Counters>>,
    pub(crate) parties: Arc<Parties>,
    pub(crate) index: Arc<Subscriptions>,
    guard: Arc<Guard>,
    ledger: Ledger,
    progress: Progress,
    /// The most records that were committed as one group.
    pub(crate) records_max: usize,
    pub(crate) disk: Disk,
    pub(crate) budget: Arc<Budget>,
    pub(crate) now: Now,
}

/// A client, as the test sees it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Peer {
    pub(crate) shard: usize,
    pub(crate) id: ConnectionId,
    pub(crate) version: Version,
}

#[derive(Default)]
pub(crate) struct Outside {
    pub(crate) peers: BTreeMap<ConnectionId, Socket>,
    mail: VecDeque<(usize, Letter)>,
    pub(crate) commands: VecDeque<Command>,
    random: u128,
    pub(crate) notices: Vec<String>,
    /// The whole process is full: what may be refused is.
    pub(crate) full: bool,
    /// Too much waits in outputs, but there is memory.
    pub(crate) has_memory: bool,
    /// Too much is under way to the ledger, or to other shards.
    pub(crate) ledger_is_over: bool,
    pub(crate) mail_is_over: bool,
    /// Maximum number of commands that wait, for the same.
    pub(crate) commands_max: Option<usize>,
    /// Connections that are read again, in their order.
    pub(crate) resumed: Vec<ConnectionId>,
    /// Passwords that wait to be checked.
    pub(crate) checks: VecDeque<(ConnectionId, Check)>,
    /// The wishes to know their outcomes, also of those that have come.
    pub(crate) wishes: Vec<Wished>,
    /// Too many passwords wait, and no other is taken.
    pub(crate) is_verifier_busy: bool,
    /// The user name in every certificate.
    pub(crate) certificate: Option<String>,
    /// The user of every process; `None` if no peer is a process.
    pub(crate) process_user: Option<u32>,
    /// The channel binding of every connection.
    pub(crate) binding: Option<[u8; 32]>,
}

#[derive(Default)]
pub(crate) struct Socket {
    /// Bytes that were sent and not read by the test.
    pub(crate) sent: Vec<u8>,
    /// How often something was sent.
    pub(crate) pieces: usize,
    unparsed: Vec<u8>,
    pub(crate) paused: bool,
    pub(crate) closed: bool,
    /// The client takes nothing: what is sent waits.
    pub(crate) stuck: bool,
    over: bool,
    /// Something has arrived that was not read.
    pub(crate) has_unread: bool,
    taken: u64,
    /// The charge for the beginning of a packet.
    partial: Option<Charge>,
}

enum Letter {
    Forward {
        bytes: Vec<u8>,
        count: u32,
        payload_bytes: u64,
        version: Version,
        qos: Qos,
        targets: Arc<[Target]>,
    },
    Publisher(Arc<str>),
    Marked(Arc<SpanMark>),
    Resume(Arc<Subscriber>),
}

impl Effects for Outside {
    fn send(&mut self, to: ConnectionId, bytes: &[u8]) {
        let full = std::mem::take(&mut self.full);
        self.publish(to, bytes, Flush::Direct);
        self.full = full;
    }

    fn publish(&mut self, to: ConnectionId, bytes: &[u8], _: Flush) -> Room {
        if self.full {
            return Room::Full;
        }
        let Some(socket) = self.peers.get_mut(&to).filter(|socket| !socket.closed) else { return Room::Open };
        socket.sent.extend_from_slice(bytes);
        socket.pieces += 1;
        socket.over |= socket.stuck && socket.sent.len() > HIGH_WATER_BYTES;
        if socket.over { Room::Over } else { Room::Open }
    }

    fn publish_shared(&mut self, to: ConnectionId, head: &[u8], payload: &Arc<[u8]>, flush: Flush) -> Room {
        self.publish(to, &[head, payload].concat(), flush)
    }

    fn room(&self, connection: ConnectionId, _: usize) -> Room {
        match self.peers.get(&connection) {
            _ if self.full => Room::Full,
            Some(socket) if socket.over => Room::Over,
            _ => Room::Open,
        }
    }

    fn room_for_stored(&self, connection: ConnectionId, bytes: usize) -> Room {
        match self.room(connection, bytes) {
            Room::Full if self.has_memory && self.waiting_bytes(connection) == 0 => Room::Open,
            room => room,
        }
    }

    fn has_unread(&mut self, connection: ConnectionId) -> bool {
        self.peers.get(&connection).is_some_and(|socket| socket.has_unread)
    }

    fn taken_bytes(&self, of: ConnectionId) -> u64 {
        self.peers.get(&of).map_or(0, |socket| socket.taken)
    }

    fn waiting_bytes(&self, of: ConnectionId) -> usize {
        self.peers.get(&of).filter(|socket| socket.stuck).map_or(0, |socket| socket.sent.len())
    }

    fn mail(&mut self, to: ShardId, mail: Mail<'_>) -> Room {
        let letter = match mail {
            Mail::Forward(Run { bytes, count, payload_bytes, version, qos }, targets) => {
                Letter::Forward { bytes: bytes.to_vec(), count, payload_bytes, version, qos, targets }
            }
            Mail::Publisher(publisher) => Letter::Publisher(publisher),
            Mail::Marked(mark) => Letter::Marked(mark),
            Mail::Resume(subscriber) => Letter::Resume(subscriber),
        };
        self.mail.push_back((to.number(), letter));
        Room::Open
    }

    fn mail_room(&mut self, _: ShardId) -> Room {
        if self.mail_is_over { Room::Over } else { Room::Open }
    }

    fn command(&mut self, command: Command) -> Room {
        self.commands.push_back(command);
        Room::Open
    }

    fn command_room(&mut self) -> Room {
        let is_over = self.commands_max.is_some_and(|most| self.commands.len() >= most);
        if self.ledger_is_over || is_over { Room::Over } else { Room::Open }
    }

    fn pause(&mut self, connection: ConnectionId) {
        self.peers.entry(connection).or_default().paused = true;
    }

    fn resume(&mut self, connection: ConnectionId) {
        self.resumed.push(connection);
        self.peers.entry(connection).or_default().paused = false;
    }

    fn close(&mut self, connection: ConnectionId) {
        let socket = self.peers.entry(connection).or_default();
        (socket.closed, socket.partial) = (true, None);
    }

    fn verify(&mut self, connection: ConnectionId, check: Check) -> Result<Wish, Unchecked> {
        if self.is_verifier_busy {
            return Err(Unchecked::Busy);
        }
        let wish = Wish::default();
        self.wishes.push(wish.watch());
        self.checks.push_back((connection, check));
        Ok(wish)
    }

    fn process_user(&self, _: ConnectionId) -> Option<u32> {
        self.process_user
    }

    fn certificate_name(&mut self, _: ConnectionId, _: CertificateName) -> Option<String> {
        self.certificate.clone()
    }

    fn channel_binding(&mut self, _: ConnectionId) -> Option<[u8; 32]> {
        self.binding
    }

    fn random(&mut self) -> u128 {
        self.random += 1;
        self.random
    }

    fn notice(&mut self, _: ConnectionId, notice: Notice<'_>) {
        self.notices.push(format!("{notice:?}"));
    }
}

/// The disk to which records are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Disk {
    /// Records are durable as soon as they are written.
    #[default]
    Fast,
    /// Everything is taken, and nothing is durable.
    Slow,
    /// There is no space but for records that free some.
    Full,
    Failed,
}

#[derive(Default)]
struct Posted {
    replies: Vec<(ShardId, Reply)>,
    progress: Progress,
    records_max: usize,
    disk: Disk,
}

impl Posted {
    fn progress(&mut self) -> Progress {
        match self.disk {
            Disk::Fast | Disk::Full => self.progress.durable = self.progress.written,
            Disk::Slow => {}
            Disk::Failed => self.progress.has_failed = true,
        }
        self.progress
    }
}

impl ledger::Effects for Posted {
    fn post(&mut self, to: ShardId, reply: Reply) {
        self.replies.push((to, reply));
    }

    fn commit(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal> {
        match self.disk {
            Disk::Failed => return Err(Refusal::Poisoned),
            Disk::Full if !group.iter().all(Record::frees_space) => return Err(Refusal::NoSpace),
            _ => {}
        }
        self.progress.written.0 += 1;
        self.records_max = self.records_max.max(group.len());
        Ok(self.progress.written)
    }

    fn copy(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal> {
        self.commit(group)
    }
}

impl World {
    pub(crate) fn new(shards: usize) -> Self {
        Self::with(shards, settings())
    }

    pub(crate) fn with(shards: usize, settings: Settings) -> Self {
        Self::with_budget(shards, settings, Budget::default())
    }

    /// A ledger with other settings.
    pub(crate) fn with_ledger(shards: usize, ledger: ledger::Settings) -> Self {
        let mut world = Self::new(shards);
        let ledger = Ledger::new(ledger::Settings { seed: 3, ..ledger }, Arc::clone(&world.index));
        world.ledger = ledger.with_budget(Arc::clone(&world.budget));
        world
    }

    /// Makes a process with this budget of memory.
    pub(crate) fn with_budget(shards: usize, settings: Settings, budget: Budget) -> Self {
        let budget = Arc::new(budget);
        let now = Now { monotonic_ms: 5_000, unix_ms: 1_700_000_000_000 };
        let index = Arc::new(Subscriptions::new([1, 2]));
        let guard = Arc::new(Guard::default());
        let ledger_settings = ledger::Settings {
            seed: 3,
            shared_subscriptions_max: 100_000,
            guard: Arc::clone(&guard),
            ..ledger::Settings::default()
        };
        let ledger = Ledger::new(ledger_settings, Arc::clone(&index)).with_budget(Arc::clone(&budget));
        let settings = Arc::new(settings);
        let counters: Vec<Arc<Counters>> = (0..shards).map(|_| Arc::default()).collect();
        let parties = Arc::new(Parties::new(COUNTED_USERS_MAX));
        let shard = |number: usize| {
            let (settings, index) = (Arc::clone(&settings), Arc::clone(&index));
            Shard::new(ShardId::new(number), settings, index, Arc::clone(&counters[number]), None, now)
                .with_budget(Arc::clone(&budget))
                .with_guard(Arc::clone(&guard))
                .with_parties(Arc::clone(&parties))
        };
        let shards = (0..shards).map(shard).collect::<Vec<_>>();
        let outside = shards.iter().map(|_| Outside::default()).collect();
        Self {
            shards,
            outside,
            counters,
            parties,
            index,
            guard,
            ledger,
            progress: Progress::default(),
            records_max: 0,
            disk: Disk::Fast,
            budget,
            now,
        }
    }

    /// Records spans on all shards.
    pub(crate) fn record_spans(&mut self, settings: &SpanSettings) {
        let all = self.shards.drain(..).map(|shard| shard.with_spans(settings.clone())).collect();
        self.shards = all;
    }

    /// A connection on which nothing has been sent.
    pub(crate) fn accept(&mut self, shard: usize, version: Version) -> Peer {
        self.accept_with(shard, version, Durability::Fsync.into())
    }

    /// The same on a listener with these rules.
    pub(crate) fn accept_with(&mut self, shard: usize, version: Version, admission: Admission) -> Peer {
        let slot = u32::try_from(self.outside[shard].peers.len()).expect("few connections");
        let id = ConnectionId { slot, generation: 7 };
        self.outside[shard].peers.insert(id, Socket::default());
        self.shards[shard].accepted(id, admission, self.now);
        Peer { shard, id, version }
    }

    /// A client that has connected.
    pub(crate) fn connect(&mut self, shard: usize, version: Version, client_id: &str) -> Peer {
        let peer = self.accept(shard, version);
        self.send(peer, &Connect::new(version, utf8(client_id)).into());
        let [answer] = &self.packets(peer)[..] else { panic!("one CONNACK") };
        assert!(answer.starts_with("CONNACK Success"), "{answer}");
        peer
    }

    pub(crate) fn send(&mut self, peer: Peer, packet: &Packet<'_>) {
        self.feed(peer, &bytes(packet, peer.version));
    }

    pub(crate) fn subscribe(&mut self, peer: Peer, filter: &str) -> Vec<String> {
        self.subscribe_with(peer, filter, SubscriptionOptions::default(), SubscribeProperties::default())
    }

    pub(crate) fn subscribe_with(
        &mut self,
        peer: Peer,
        filter: &str,
        options: SubscriptionOptions,
        properties: SubscribeProperties<'_>,
    ) -> Vec<String> {
        let filter = TopicFilter::new(filter).expect("a filter");
        let subscription = Subscription::new(filter, options).expect("a subscription");
        let subscriptions = OneOrMore::one(&subscription);
        self.send(peer, &Subscribe { packet_id: PacketId::MIN, properties, subscriptions }.into());
        self.packets(peer)
    }

    pub(crate) fn unsubscribe(&mut self, peer: Peer, filter: &str) -> Vec<String> {
        let filter = TopicFilter::new(filter).expect("a filter");
        let requested = wire::RequestedFilter::Ok(filter);
        let filters = OneOrMore::one(&requested);
        let properties = wire::UnsubscribeProperties::default();
        self.send(peer, &wire::Unsubscribe { packet_id: PacketId::MIN, properties, filters }.into());
        self.packets(peer)
    }

    /// Other users and rules are in use from now on.
    pub(crate) fn replace_realms(&self, realms: Realms) {
        self.guard.replace(realms);
        self.index.touch_all();
    }

    /// Clients of this kind are banned without end.
    pub(crate) fn ban(&self, kind: &str, value: &str) {
        let mut bans = Bans::default();
        let whom = Whom::parse(kind, value).expect("it names clients");
        bans.insert(whom, auth::Terms { until_unix_secs: None, reason: "".into() });
        self.guard.replace_bans(bans);
    }

    /// The passwords that wait are checked; or the outcome is this one.
    pub(crate) fn verify(&mut self, shard: usize, outcome: Option<&Checked>) {
        while let Some((id, check)) = self.outside[shard].checks.pop_front() {
            let run = || check.run_in(&mut Workspace::default(), self.now.unix_ms / 1_000);
            let checked = outcome.cloned().unwrap_or_else(run);
            self.shards[shard].verified(id, checked, self.now, &mut self.outside[shard]);
        }
        self.settle();
    }

    /// How many subscriptions there are.
    pub(crate) fn subscriptions(&self) -> usize {
        self.index.len()
    }

    /// Returns the levels and counters of the ledger.
    pub(crate) fn ledger(&self) -> Arc<protocol::Gauges> {
        self.ledger.gauges()
    }

    /// The sum of a counter over all shards.
    pub(crate) fn total(&self, read: impl Fn(&Counters) -> u64) -> u64 {
        self.counters.iter().map(|counters| read(counters)).sum()
    }

    /// Every copy of every message is accounted for, by the shards and by the ledger.
    pub(crate) fn assert_account(&self) {
        let sum = self.total(|c| {
            let parts = [
                &c.sent_once,
                &c.acknowledged,
                &c.in_flight,
                &c.waiting,
                &c.discarded_session,
                &c.dropped_absent,
                &c.dropped_queue_full,
                &c.dropped_slow,
                &c.dropped_budget,
                &c.dropped_too_large,
                &c.dropped_expired,
                &c.dropped_denied,
            ];
            parts.into_iter().map(|part| part.value()).sum()
        });
        assert_eq!(self.total(|c| c.routed.value()), sum, "routed, and what became of it");
        let (routed, sum) = crate::qos::ledger_account(&self.ledger.gauges());
        assert_eq!(routed, sum, "routed by the ledger, and what became of it");
    }

    /// The counts of all listeners and users add up to those of the shards.
    fn assert_parties(&self) {
        let totals = Totals::of(self.counters.iter().map(|counters| &**counters));
        for (name, sum, total) in self.parties.sum().compare(&totals) {
            assert_eq!(sum, total, "{name}");
        }
    }

    pub(crate) fn publish(&mut self, peer: Peer, topic: &str, payload: &str) {
        self.send(peer, &Publish::new(name(topic), payload.as_bytes()).into());
    }

    pub(crate) fn publish_retained(&mut self, peer: Peer, topic: &str, payload: &str) {
        let publish = Publish { retain: true, ..Publish::new(name(topic), payload.as_bytes()) };
        self.send(peer, &publish.into());
    }

    pub(crate) fn publish_at_least_once(&mut self, peer: Peer, topic: &str) {
        let delivery = wire::Delivery::AtLeastOnce { packet_id: PacketId::MIN, dup: false };
        self.send(peer, &Publish { delivery, ..Publish::new(name(topic), b"x") }.into());
    }

    /// Bytes arrive, and everything that follows from them happens.
    pub(crate) fn feed(&mut self, peer: Peer, bytes: &[u8]) {
        self.feed_only(peer, bytes);
        self.settle();
    }

    /// Bytes arrive, and the turn ends; mail and commands stay where they are.
    pub(crate) fn feed_only(&mut self, peer: Peer, bytes: &[u8]) {
        let outside = &mut self.outside[peer.shard];
        outside.peers.entry(peer.id).or_default().unparsed.extend_from_slice(bytes);
        self.read(peer.shard, peer.id);
        self.shards[peer.shard].end_turn(self.now, &mut self.outside[peer.shard]);
    }

    /// Bytes arrive, and the turn goes on.
    pub(crate) fn read_now(&mut self, peer: Peer, bytes: &[u8]) {
        let outside = &mut self.outside[peer.shard];
        outside.peers.entry(peer.id).or_default().unparsed.extend_from_slice(bytes);
        self.read(peer.shard, peer.id);
    }

    pub(crate) fn end_turn(&mut self, shard: usize) {
        self.shards[shard].end_turn(self.now, &mut self.outside[shard]);
    }

    /// Whether a turn has something to do even if nothing happens.
    pub(crate) fn has_work(&self) -> bool {
        let waits = self.outside.iter().any(|outside| !outside.commands.is_empty());
        waits || self.ledger.has_work() || self.shards.iter().any(Shard::has_work)
    }

    /// The ledger says that another connection has the client identifier.
    pub(crate) fn evict(&mut self, peer: Peer) {
        let reply = Reply::Evict { connection: peer.id };
        self.shards[peer.shard].reply(reply, self.now, &mut self.outside[peer.shard]);
    }

    /// Reads once what has arrived, if that may be read.
    pub(crate) fn read(&mut self, shard: usize, id: ConnectionId) {
        let outside = &mut self.outside[shard];
        let socket = outside.peers.entry(id).or_default();
        if socket.paused || socket.closed || socket.unparsed.is_empty() {
            return;
        }
        if !self.shards[shard].may_read(id, self.now, outside) {
            return;
        }
        let bytes = std::mem::take(&mut outside.peers.entry(id).or_default().unparsed);
        let consumed = self.shards[shard].received(id, &bytes, self.now, outside);
        let socket = outside.peers.entry(id).or_default();
        socket.unparsed = [&bytes[consumed..], &socket.unparsed].concat();
        let kept = socket.unparsed.len();
        let is_kept = kept > 0 && !socket.closed;
        socket.partial = is_kept.then(|| self.budget.charge(Purpose::Partials, kept));
    }

    /// Carries mail and commands until nobody has anything to say.
    pub(crate) fn settle(&mut self) {
        while self.carry_mail() | self.carry_commands() | self.read_again() {}
        self.assert_parties();
    }

    pub(crate) fn carry_mail(&mut self) -> bool {
        let mut carried = false;
        for from in 0..self.outside.len() {
            while let Some((to, letter)) = self.outside[from].mail.pop_front() {
                carried = true;
                let (shard, outside) = (&mut self.shards[to], &mut self.outside[to]);
                match letter {
                    Letter::Forward { bytes, count, payload_bytes, version, qos, targets } => {
                        let run = Run { bytes: &bytes, count, payload_bytes, version, qos };
                        shard.mail(Mail::Forward(run, targets), self.now, outside);
                    }
                    Letter::Publisher(publisher) => {
                        shard.mail(Mail::Publisher(publisher), self.now, outside);
                    }
                    Letter::Marked(mark) => shard.mail(Mail::Marked(mark), self.now, outside),
                    Letter::Resume(subscriber) => shard.mail(Mail::Resume(subscriber), self.now, outside),
                }
            }
        }
        carried
    }

    pub(crate) fn carry_commands(&mut self) -> bool {
        let mut posted = Posted { progress: self.progress, disk: self.disk, ..Posted::default() };
        let mut carried = false;
        for shard in 0..self.shards.len() {
            carried |= self.carry_commands_of(shard, &mut posted);
        }
        self.ledger.work(self.now, &mut posted);
        let progress = posted.progress();
        self.ledger.progress(progress, self.now, &mut posted);
        self.progress = posted.progress;
        self.records_max = self.records_max.max(posted.records_max);
        carried |= !posted.replies.is_empty() || self.ledger.has_work();
        self.deliver(posted);
        carried
    }

    /// The ledger handles the next command of a shard, and its replies arrive.
    pub(crate) fn carry_command(&mut self, shard: usize) {
        let mut posted = Posted { progress: self.progress, disk: self.disk, ..Posted::default() };
        let command = self.outside[shard].commands.pop_front().expect("a command");
        self.ledger.handle(ShardId::new(shard), command, self.now, &mut posted);
        let progress = posted.progress();
        self.ledger.progress(progress, self.now, &mut posted);
        self.progress = posted.progress;
        self.deliver(posted);
    }

    /// The ledger works, and something happens before its replies arrive.
    pub(crate) fn carry_commands_and(&mut self, between: impl FnOnce(&mut Self)) {
        let mut posted = Posted { progress: self.progress, disk: self.disk, ..Posted::default() };
        for shard in 0..self.shards.len() {
            self.carry_commands_of(shard, &mut posted);
        }
        self.ledger.work(self.now, &mut posted);
        let progress = posted.progress();
        self.ledger.progress(progress, self.now, &mut posted);
        self.progress = posted.progress;
        self.records_max = self.records_max.max(posted.records_max);
        between(self);
        self.deliver(posted);
    }

    fn carry_commands_of(&mut self, shard: usize, posted: &mut Posted) -> bool {
        let mut carried = false;
        while let Some(command) = self.outside[shard].commands.pop_front() {
            carried = true;
            self.ledger.handle(ShardId::new(shard), command, self.now, posted);
        }
        carried
    }

    fn deliver(&mut self, posted: Posted) {
        for (to, reply) in posted.replies {
            let shard = to.number();
            self.shards[shard].reply(reply, self.now, &mut self.outside[shard]);
        }
        (0..self.shards.len()).for_each(|shard| self.end_turn(shard));
    }

    /// Connections that were paused go on with what had come meanwhile.
    pub(crate) fn read_again(&mut self) -> bool {
        let mut has_read = false;
        for shard in 0..self.shards.len() {
            let waits = |(id, s): (&ConnectionId, &Socket)| {
                (!s.unparsed.is_empty()).then_some((*id, s.unparsed.len()))
            };
            let waiting: Vec<_> = self.outside[shard].peers.iter().filter_map(waits).collect();
            for (id, before) in waiting {
                self.read(shard, id);
                has_read |= self.outside[shard].peers[&id].unparsed.len() != before;
            }
            self.shards[shard].end_turn(self.now, &mut self.outside[shard]);
            has_read |= self.shards[shard].has_work();
        }
        has_read
    }

    /// Returns the packets that a client has received since the last look, as a trace prints them.
    pub(crate) fn packets(&mut self, peer: Peer) -> Vec<String> {
        let sent = std::mem::take(&mut self.socket(peer).sent);
        trace(&sent, peer.version)
    }

    pub(crate) fn socket(&mut self, peer: Peer) -> &mut Socket {
        self.outside[peer.shard].peers.get_mut(&peer.id).expect("it was accepted")
    }

    /// A client that took nothing takes everything.
    pub(crate) fn drain(&mut self, peer: Peer) -> Vec<String> {
        let socket = self.socket(peer);
        socket.taken += socket.sent.len() as u64;
        socket.over = false;
        let packets = self.packets(peer);
        self.shards[peer.shard].drained(peer.id, self.now, &mut self.outside[peer.shard]);
        self.settle();
        packets
    }

    /// A client that is stuck takes so little that as much waits as before.
    pub(crate) fn take_some(&mut self, peer: Peer, bytes: u64) {
        self.socket(peer).taken += bytes;
    }

    pub(crate) fn hang_up(&mut self, peer: Peer) {
        self.close(peer);
        self.settle();
    }

    /// The connection ends; what follows from that waits.
    pub(crate) fn close(&mut self, peer: Peer) {
        let socket = self.socket(peer);
        (socket.closed, socket.partial) = (true, None);
        self.shards[peer.shard].closed(peer.id, &Cause::EndOfStream, self.now, &mut self.outside[peer.shard]);
    }

    /// How many commands wait for the ledger.
    pub(crate) fn commands(&self, shard: usize) -> usize {
        self.outside[shard].commands.len()
    }

    /// The same, and the turn ends; commands stay where they are.
    pub(crate) fn close_only(&mut self, peer: Peer) {
        let socket = self.socket(peer);
        (socket.closed, socket.partial) = (true, None);
        self.shards[peer.shard].closed(peer.id, &Cause::EndOfStream, self.now, &mut self.outside[peer.shard]);
        self.end_turn(peer.shard);
    }

    /// The process is stopped: time passes, and no shard looks at the clock until the end.
    pub(crate) fn stop(&mut self, ms: u64) {
        self.now.monotonic_ms += ms;
        self.now.unix_ms += ms;
        for shard in 0..self.shards.len() {
            self.shards[shard].handle_timeout(self.now, &mut self.outside[shard]);
            self.end_turn(shard);
        }
        self.settle();
    }

    pub(crate) fn wait(&mut self, ms: u64) {
        let until = self.now.monotonic_ms + ms;
        while self.now.monotonic_ms < until {
            let step = 50.min(until - self.now.monotonic_ms);
            self.now.monotonic_ms += step;
            self.now.unix_ms += step;
            for shard in 0..self.shards.len() {
                self.shards[shard].handle_timeout(self.now, &mut self.outside[shard]);
                self.shards[shard].end_turn(self.now, &mut self.outside[shard]);
            }
            self.settle();
        }
    }
}

pub(crate) fn trace(mut bytes: &[u8], version: Version) -> Vec<String> {
    let limits = Limits { sender: Some(Role::Server), ..Limits::default() };
    let mut packets = Vec::new();
    while !bytes.is_empty() {
        match decode(bytes, Some(version), &limits) {
            Ok(Decoded::Packet { packet, len }) => {
                packets.push(packet.to_string());
                bytes = &bytes[len..];
            }
            other => panic!("the broker sends whole packets: {other:?}"),
        }
    }
    packets
}

pub(crate) fn bytes(packet: &Packet<'_>, version: Version) -> Vec<u8> {
    let mut bytes = Vec::new();
    packet.encode(version, &mut bytes).expect("a packet of this version");
    bytes
}

pub(crate) fn name(topic: &str) -> TopicName<'_> {
    TopicName::new(topic).expect("a topic")
}

/// A will at QoS 0 without delay.
pub(crate) fn will(payload: &[u8]) -> Will<'_> {
    Will {
        topic: name("will"),
        payload: Binary::new(payload).expect("short"),
        qos: Qos::AtMostOnce,
        retain: false,
        delay_interval_secs: None,
        properties: MessageProperties::default(),
    }
}

pub(crate) fn utf8(text: &str) -> Utf8<'_> {
    Utf8::new(text).expect("a string")
}
