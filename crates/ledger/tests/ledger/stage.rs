//! A ledger with shards and a disk that are the test's: nothing is durable before the test says so.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::{
    Budget, Claims, ConnectionId, Interest, Message, Now, Place, Principal, QueueId, ShardId, Subscriber,
    Tenant, Ticket,
};
use index::{Change, Subscriptions, Target, Targets};
use ledger::{
    Address, Addressed, Effects, Fetched, Found, Ledger, Lsn, Progress, Record, Refusal, Settings, Wanted,
};
use protocol::{
    Cause, Claim, Claimed, Command, Deliver, Delivered, Durability, Gauges, Left, Origin, Publish, Reply,
    Will,
};
use topic::{TopicFilter, TopicName};
use wire::{Delivery, MessageProperties, PacketId, Qos, ReasonCode};

use crate::log::Log;

pub(crate) const QOS_0: Qos = Qos::AtMostOnce;
pub(crate) const QOS_1: Qos = Qos::AtLeastOnce;
pub(crate) const QOS_2: Qos = Qos::ExactlyOnce;

/// The records, as far as they have come.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    pub(crate) groups: Vec<(Lsn, Vec<Record<'static>>)>,
    pub(crate) replies: Vec<(ShardId, Reply)>,
    /// Groups are refused, unless every record in them frees space.
    pub(crate) no_space: bool,
    /// The longest group that is taken, if it is not that of long segments.
    pub(crate) short_group_bytes: Option<usize>,
    /// Number of groups after which there is no space any more.
    pub(crate) no_space_after: Option<usize>,
    pub(crate) is_poisoned: bool,
    pub(crate) has_no_room: bool,
    /// Number of posted replies after which the shards have no room any more.
    pub(crate) no_room_after: Option<usize>,
    /// Only groups that begin with a message may be asked for their address.
    pub(crate) is_message_asked_for: bool,
    /// There is not even space for what frees space.
    pub(crate) lacks_space: bool,
    /// Number of copies after which there is no space for copies.
    pub(crate) copies_left: Option<usize>,
    /// Requests for messages to be read again.
    pub(crate) wanted: Vec<Wanted>,
    /// Groups whose messages cannot be read again.
    pub(crate) damaged: Vec<Lsn>,
    last: Lsn,
}

/// The longest group that a journal with 2 MiB segments takes is not much longer.
const GROUP_BYTES_MAX: usize = 1_500_000;

impl Effects for Sink {
    fn post(&mut self, to: ShardId, reply: Reply) {
        self.replies.push((to, reply));
        self.no_room_after = self.no_room_after.map(|left| left - 1).filter(|left| {
            self.has_no_room |= *left == 0;
            !self.has_no_room
        });
    }

    fn commit(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal> {
        assert!(!group.is_empty(), "a group has records");
        if self.is_poisoned {
            return Err(Refusal::Poisoned);
        }
        let bytes: usize = group.iter().map(Record::bytes_most).sum();
        assert!(bytes <= self.group_bytes_max(), "a group of {bytes} bytes fits into no frame");
        if self.no_space && !group.iter().all(Record::frees_space) {
            return Err(Refusal::NoSpace);
        }
        self.no_space_after = self.no_space_after.map(|left| left - 1).filter(|left| {
            self.no_space |= *left == 0;
            !self.no_space
        });
        self.write(group)
    }

    fn group_bytes_max(&self) -> usize {
        self.short_group_bytes.unwrap_or(GROUP_BYTES_MAX)
    }

    fn copy(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal> {
        if self.is_poisoned {
            return Err(Refusal::Poisoned);
        }
        if let Some(left) = &mut self.copies_left {
            *left = left.checked_sub(1).ok_or(Refusal::NoSpace)?;
        }
        self.write(group)
    }

    fn has_room(&self) -> bool {
        !self.has_no_room
    }

    fn lacks_space(&self) -> bool {
        self.lacks_space
    }

    fn address(&mut self) -> Option<Address> {
        let first = &self.groups.last()?.1[0];
        let is_message = matches!(first, Record::Enqueue { .. });
        assert!(is_message || !self.is_message_asked_for, "{first:?} has no address");
        address_of(self.last, first)
    }

    fn fetch(&mut self, wanted: Wanted) {
        self.wanted.push(wanted);
    }
}

impl Sink {
    fn write(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal> {
        self.last = Lsn(self.last.0 + 1);
        self.groups.push((self.last, group.iter().cloned().map(Record::into_owned).collect()));
        Ok(self.last)
    }

    /// Returns the record at the address of a message.
    fn read(&self, wanted: Wanted) -> Fetched {
        let group = self.groups.iter().find(|(lsn, _)| lsn.0 == wanted.address.at.get());
        let found = match group.map(|(_, group)| &group[0]) {
            _ if self.damaged.contains(&Lsn(wanted.address.at.get())) => Found::Damaged,
            Some(Record::Enqueue { body, .. }) => {
                Found::Message(Message::from_parts(&body.parts()).expect("the same parts"))
            }
            _ => Found::Moved,
        };
        Fetched { wanted, found }
    }

    /// The records up to there, each with its address.
    pub(crate) fn records(&self, last: Lsn) -> Vec<Addressed<'static>> {
        let groups = self.groups.iter().filter(|(lsn, _)| *lsn <= last);
        let addressed = |(lsn, group): &(Lsn, Vec<Record<'static>>)| {
            let lsn = *lsn;
            let first = group.iter().take(1).cloned();
            let first = first.map(move |record| Addressed { address: address_of(lsn, &record), record });
            first.chain(group.iter().skip(1).cloned().map(Addressed::from)).collect::<Vec<_>>()
        };
        groups.flat_map(addressed).collect()
    }

    /// The same, where messages come without their bodies if these are not wanted.
    pub(crate) fn log(&self, last: Lsn) -> Log {
        Log(self.records(last).into_iter())
    }

    /// Replaces the addresses of messages on disk with the messages.
    fn resolve(&self, state: &str) -> String {
        let mut lines = Vec::new();
        for line in state.lines() {
            let mut line = line.to_owned();
            if let Some((before, rest)) = line.split_once(" at ") {
                let (at, behind) = rest.split_once(' ').unwrap_or((rest, ""));
                let group = self.groups.iter().find(|(lsn, _)| Ok(lsn.0) == at.parse());
                let Some(Record::Enqueue { body, .. }) = group.map(|(_, group)| &group[0]) else {
                    panic!("nothing to read at {at}: {line}")
                };
                let space = if behind.is_empty() { "" } else { " " };
                line = format!("{before} {} {:?}{space}{behind}", body.topic().as_str(), body.payload());
            }
            lines.push(line + "\n");
        }
        lines.concat()
    }
}

/// Returns the address of a message, if the record contains one.
fn address_of(lsn: Lsn, record: &Record<'_>) -> Option<Address> {
    let at = NonZeroU64::new(lsn.0)?;
    matches!(record, Record::Enqueue { .. }).then_some(Address { at, bytes: 1, checksum: 0 })
}

/// Everything in one thread.
pub(crate) struct Stage {
    pub(crate) ledger: Ledger,
    pub(crate) index: Arc<Subscriptions>,
    pub(crate) sink: Sink,
    pub(crate) now: Now,
    /// Commits are durable at once.
    pub(crate) is_fast: bool,
    /// The pieces that shards were told bit by bit, which they confirm at once unless they are slow.
    pub(crate) restored: Vec<(ConnectionId, Vec<Box<str>>)>,
    pub(crate) unfinished: Vec<(ConnectionId, Vec<Box<str>>, bool)>,
    pub(crate) confirms: bool,
    /// Each command is printed.
    pub(crate) is_verbose: bool,
    next_slot: u32,
}

/// One connection, as its shard knows it.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) place: Place,
    pub(crate) claimant: Arc<Subscriber>,
    /// It as others see it, once it has its identifier.
    pub(crate) subscriber: Arc<Subscriber>,
    /// Session Expiry Interval of its CONNECT, in seconds.
    pub(crate) expiry_secs: u32,
    /// Whether it speaks MQTT 5.0.
    pub(crate) hears_refusals: bool,
}

/// Properties of a CONNECT packet.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) clean_start: bool,
    pub(crate) expiry_secs: u32,
    pub(crate) window: u16,
    pub(crate) packet_bytes_max: u32,
    pub(crate) will: Option<Will>,
    pub(crate) shard: usize,
    pub(crate) durability: Durability,
    /// The user, who has proved the name.
    pub(crate) user: Option<&'static str>,
    /// The group that the user's token names.
    pub(crate) group: Option<&'static str>,
    /// The mount point and the topic prefix of the user.
    pub(crate) topics: [&'static str; 2],
}

impl Ask {
    /// A session that is kept for this number of seconds, if there is none already.
    pub(crate) fn lasting(expiry_secs: u32) -> Self {
        Self {
            clean_start: false,
            expiry_secs,
            window: 100,
            packet_bytes_max: u32::MAX,
            will: None,
            shard: 0,
            durability: Durability::Fsync,
            user: None,
            group: None,
            topics: [""; 2],
        }
    }

    /// A session that ends with its connection.
    pub(crate) fn clean() -> Self {
        Self { clean_start: true, ..Self::lasting(0) }
    }

    pub(crate) fn clean_start(self) -> Self {
        Self { clean_start: true, ..self }
    }

    pub(crate) fn durability(self, durability: Durability) -> Self {
        Self { durability, ..self }
    }

    pub(crate) fn window(self, window: u16) -> Self {
        Self { window, ..self }
    }

    pub(crate) fn packet_bytes_max(self, packet_bytes_max: u32) -> Self {
        Self { packet_bytes_max, ..self }
    }

    pub(crate) fn shard(self, shard: usize) -> Self {
        Self { shard, ..self }
    }

    /// A client of this user.
    pub(crate) fn of(self, user: &'static str) -> Self {
        Self { user: Some(user), ..self }
    }

    pub(crate) fn will(self, topic: &str, delay_secs: u32) -> Self {
        let will = Will { message: message(topic, b"will", QOS_1), delay_secs };
        Self { will: Some(will), ..self }
    }
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with(Settings::default())
    }

    pub(crate) fn with(settings: Settings) -> Self {
        let index = Arc::new(Subscriptions::new([1, 2]));
        let now = Now { monotonic_ms: 1_000, unix_ms: 1_700_000_000_000 };
        let ledger = Ledger::new(Settings { seed: 7, ..settings }, Arc::clone(&index));
        let (sink, restored, unfinished) = (Sink::default(), Vec::new(), Vec::new());
        let (is_fast, confirms, is_verbose, next_slot) = (true, true, false, 0);
        Self { ledger, index, sink, now, is_fast, restored, unfinished, confirms, is_verbose, next_slot }
    }

    /// The same in a process with this budget of memory.
    pub(crate) fn with_budget(settings: Settings, budget: &Arc<Budget>) -> Self {
        let mut stage = Self::with(settings.clone());
        let ledger = Ledger::new(Settings { seed: 7, ..settings }, Arc::clone(&stage.index));
        stage.ledger = ledger.with_budget(Arc::clone(budget));
        stage
    }

    /// A disk that takes what it is given and is never done before [`sync`](Self::sync).
    pub(crate) fn slow(mut self) -> Self {
        self.is_fast = false;
        self
    }

    pub(crate) fn handle(&mut self, from: ShardId, command: Command) {
        if self.is_verbose {
            eprintln!("{from:?} {command:?}");
        }
        self.ledger.handle(from, command, self.now, &mut self.sink);
        self.settle();
    }

    /// Lets the ledger do what it has put off, until it has nothing to do at this time.
    pub(crate) fn work(&mut self) {
        self.ledger.work(self.now, &mut self.sink);
        self.settle();
        self.confirm();
        while !self.sink.wanted.is_empty() || (self.ledger.has_work() && !self.sink.has_no_room) {
            self.read();
            self.ledger.work(self.now, &mut self.sink);
            self.settle();
            self.confirm();
        }
    }

    /// Shards take in what they are told bit by bit, and say so.
    pub(crate) fn confirm(&mut self) {
        if !self.confirms {
            return;
        }
        let is_piece =
            |(_, reply): &mut (_, Reply)| matches!(reply, Reply::Restore { .. } | Reply::Unfinished { .. });
        let pieces: Vec<_> = self.sink.replies.extract_if(.., is_piece).collect();
        for (shard, reply) in pieces {
            let connection = connection_of(&reply).expect("it is for one connection");
            match reply {
                Reply::Restore { filters, .. } => self.restored.push((connection, filters)),
                Reply::Unfinished { subscriptions, is_last, .. } => {
                    let filters = subscriptions.into_iter().map(|(filter, _)| filter).collect();
                    self.unfinished.push((connection, filters, is_last));
                }
                _ => unreachable!("no other reply is a piece"),
            }
            self.handle(shard, Command::Restored { connection });
        }
    }

    /// Reads everything that is wanted.
    pub(crate) fn read(&mut self) {
        for wanted in std::mem::take(&mut self.sink.wanted) {
            let fetched = self.sink.read(wanted);
            self.ledger.fetched(fetched, &mut self.sink);
        }
    }

    /// Returns the state after a restart.
    pub(crate) fn state(&self) -> String {
        self.state_of(&self.ledger)
    }

    pub(crate) fn state_of(&self, ledger: &Ledger) -> String {
        self.sink.resolve(&ledger.durable_state())
    }

    /// Makes all records durable.
    pub(crate) fn sync(&mut self) {
        let last = self.sink.last;
        self.progress(last, last, false);
    }

    /// Reports the progress of the disk.
    pub(crate) fn progress(&mut self, written: Lsn, durable: Lsn, has_failed: bool) {
        self.ledger.progress(Progress { written, durable, has_failed }, self.now, &mut self.sink);
    }

    pub(crate) fn last(&self) -> Lsn {
        self.sink.last
    }

    fn settle(&mut self) {
        if self.is_fast {
            self.sync();
        }
    }

    /// Time passes, on both clocks.
    pub(crate) fn pass_secs(&mut self, secs: u64) {
        self.now.monotonic_ms += secs * 1_000;
        self.now.unix_ms += secs * 1_000;
        self.work();
    }

    pub(crate) fn gauges(&self) -> Arc<Gauges> {
        self.ledger.gauges()
    }

    /// Everything that was said since the last time.
    pub(crate) fn replies(&mut self) -> Vec<(ShardId, Reply)> {
        self.work();
        std::mem::take(&mut self.sink.replies)
    }

    /// A CONNECT, without waiting for an answer.
    pub(crate) fn claim(&mut self, client_id: &str, ask: &Ask) -> Client {
        self.next_slot += 1;
        let shard = ShardId::new(ask.shard);
        let connection = ConnectionId { slot: self.next_slot, generation: 1 };
        let principal = match ask.user {
            Some(user) => {
                let claims = |group: &str| Claims::new(vec![group.into()], None).map(Arc::new);
                let [mount, prefix] = ask.topics;
                Arc::new(Principal {
                    user: Some(user.into()),
                    is_proved: true,
                    tenant: Some(Arc::new(Tenant::new("users", mount, prefix))),
                    claims: ask.group.and_then(claims),
                    ..Principal::default()
                })
            }
            None => Principal::anonymous(),
        };
        let subscriber = Subscriber::new(client_id.into(), shard, connection).with_principal(principal);
        let subscriber = Arc::new(subscriber);
        let claim = Claim {
            subscriber: Arc::clone(&subscriber),
            connection,
            clean_start: ask.clean_start,
            expiry_secs: ask.expiry_secs,
            window: ask.window,
            packet_bytes_max: ask.packet_bytes_max,
            will: ask.will.clone(),
            durability: ask.durability,
        };
        self.handle(shard, Command::Claim(Box::new(claim)));
        let place = Place { shard, connection };
        Client {
            place,
            claimant: Arc::clone(&subscriber),
            subscriber,
            expiry_secs: ask.expiry_secs,
            hears_refusals: true,
        }
    }

    /// The answer to a CONNECT, if it has come; other replies stay.
    pub(crate) fn claimed(&mut self, client: &mut Client) -> Option<Claimed> {
        let is_it = |(shard, reply): &(ShardId, Reply)| {
            let connection = client.place.connection;
            *shard == client.place.shard
                && matches!(reply, Reply::Claimed(claimed) if claimed.connection == connection)
        };
        let position = self.sink.replies.iter().position(is_it)?;
        let (_, Reply::Claimed(claimed)) = self.sink.replies.remove(position) else { return None };
        client.subscriber = Arc::clone(&claimed.subscriber);
        Some(*claimed)
    }

    /// A CONNECT that is answered at once.
    pub(crate) fn connect(&mut self, client_id: &str, ask: &Ask) -> (Client, Claimed) {
        let mut client = self.claim(client_id, ask);
        loop {
            if let Some(claimed) = self.claimed(&mut client) {
                return (client, claimed);
            }
            assert!(self.ledger.has_work(), "the identifier is free");
            self.ledger.work(self.now, &mut self.sink);
            self.settle();
            self.confirm();
        }
    }

    pub(crate) fn client(&mut self, client_id: &str, ask: &Ask) -> Client {
        self.connect(client_id, ask).0
    }

    /// The connection is over.
    pub(crate) fn leave(&mut self, client: &Client, cause: Cause) {
        self.leave_with(client, cause, None);
    }

    pub(crate) fn leave_with(&mut self, client: &Client, cause: Cause, expiry_secs: Option<u32>) {
        let subscriber = Arc::clone(&client.claimant);
        let left = Left { subscriber, connection: client.place.connection, cause, expiry_secs };
        self.handle(client.place.shard, Command::Left(left));
    }

    /// A SUBSCRIBE, as a shard carries it out, to what is published from now on.
    pub(crate) fn subscribe(&mut self, client: &Client, filter: &str, interest: Interest) {
        self.subscribe_to(client, filter, interest, Vec::new());
    }

    /// The same, and what is retained is to be brought for these filters.
    pub(crate) fn subscribe_to(
        &mut self,
        client: &Client,
        filter: &str,
        interest: Interest,
        retained: Vec<Box<str>>,
    ) {
        let parsed = TopicFilter::new(filter).expect("a filter");
        if parsed.shared().is_none() {
            let change =
                Change::Subscribe { filter: parsed, subscriber: &client.subscriber, options: interest };
            self.index.apply([change], &mut Vec::new());
        }
        if parsed.shared().is_some() || client.subscriber.queue.is_some() {
            let subscriptions = vec![(filter.into(), interest)];
            let command = Command::Subscribe {
                subscriber: Arc::clone(&client.subscriber),
                connection: client.place.connection,
                packet_id: packet_id(77),
                subscriptions,
                retained,
            };
            self.handle(client.place.shard, command);
        }
    }

    pub(crate) fn unsubscribe(&mut self, client: &Client, filter: &str) {
        let parsed = TopicFilter::new(filter).expect("a filter");
        if parsed.shared().is_none() {
            let change = Change::Unsubscribe { filter: parsed, subscriber: &client.subscriber };
            self.index.apply([change], &mut Vec::new());
        }
        let command = Command::Unsubscribe {
            subscriber: Arc::clone(&client.subscriber),
            connection: client.place.connection,
            packet_id: packet_id(78),
            filters: vec![filter.into()],
        };
        self.handle(client.place.shard, command);
    }

    /// A subscription was refused: its shard takes it out of the index.
    pub(crate) fn forget(&mut self, client: &Client, filter: &str) {
        let filter = TopicFilter::new(filter).expect("a filter");
        if filter.shared().is_none() {
            let change = Change::Unsubscribe { filter, subscriber: &client.subscriber };
            self.index.apply([change], &mut Vec::new());
        }
    }

    /// A process ends, with everything that was recorded later than that, and another begins.
    pub(crate) fn restart(&mut self, ledger: Ledger, index: Arc<Subscriptions>, last: Lsn) {
        self.ledger = ledger;
        self.index = index;
        self.sink.groups.retain(|(lsn, _)| *lsn <= last);
        self.sink.replies.clear();
        self.sink.wanted.clear();
        self.sink.last = last;
    }

    /// A PUBLISH on the ledger's way, with a ticket as its QoS asks for it.
    pub(crate) fn publish(&mut self, client: &Client, id: u16, message: &Arc<Message>) {
        let ticket = match message.qos() {
            Qos::AtMostOnce => None,
            Qos::AtLeastOnce => Some(Ticket::PubAck(packet_id(id))),
            Qos::ExactlyOnce => Some(Ticket::PubRec(packet_id(id))),
        };
        let publish = Publish {
            connection: Some(client.place.connection),
            publisher: client.subscriber.queue,
            ticket,
            hears_refusals: client.hears_refusals,
            message: Arc::clone(message),
            route: None,
        };
        self.handle(client.place.shard, Command::Publish(publish));
    }

    /// A message of the server's own.
    pub(crate) fn emit(&mut self, message: &Arc<Message>) {
        let message = Arc::clone(message);
        self.handle(ShardId::new(0), Command::Publish(Publish::of_server(message)));
    }

    pub(crate) fn acknowledge(&mut self, client: &Client, what: Delivered, reason: ReasonCode) {
        let connection = client.place.connection;
        self.handle(client.place.shard, Command::Acknowledged { what, connection, reason });
    }

    pub(crate) fn received(&mut self, client: &Client, id: PacketId) {
        let origin = client.origin();
        self.handle(client.place.shard, Command::Received { origin, packet_id: id });
    }

    pub(crate) fn released(&mut self, client: &Client, id: PacketId) {
        let origin = client.origin();
        self.handle(client.place.shard, Command::Released { origin, packet_id: id });
    }

    /// Everything that was said since the last time and is a delivery to this connection.
    pub(crate) fn delivered(&mut self, client: &Client) -> Vec<Deliver> {
        self.take(client, |reply| match reply {
            Reply::Deliver(deliver) => Ok((deliver.connection, deliver)),
            other => Err(other),
        })
    }

    /// Answers to packets of this connection that were said since the last time.
    pub(crate) fn stored(&mut self, client: &Client) -> Vec<(Ticket, ReasonCode)> {
        self.take(client, |reply| match reply {
            Reply::Stored { connection, ticket, reason } => Ok((connection, (ticket, reason))),
            other => Err(other),
        })
    }

    pub(crate) fn recorded(&mut self, client: &Client) -> Vec<ReasonCode> {
        self.take(client, |reply| match reply {
            Reply::Recorded { connection, reason, .. } => Ok((connection, reason)),
            other => Err(other),
        })
    }

    /// Returns the reasons with which this connection was ended or refused.
    pub(crate) fn ended(&mut self, client: &Client) -> Vec<ReasonCode> {
        self.take(client, |reply| match reply {
            Reply::Ended { connection, reason } | Reply::Refused { connection, reason } => {
                Ok((connection, reason))
            }
            other => Err(other),
        })
    }

    /// Payloads that this connection got straight.
    pub(crate) fn live(&mut self, client: &Client) -> Vec<String> {
        self.work();
        let is_it = |target: &Target| target.connection == client.place.connection;
        let mut found = Vec::new();
        for (shard, reply) in &self.sink.replies {
            if let Reply::Live { message, targets, .. } = reply
                && *shard == client.place.shard
            {
                let targets =
                    targets.iter().filter(|target| is_it(target) && !target.is_queued(message.qos()));
                found.extend(targets.map(|_| text(message)));
            }
        }
        found
    }

    fn take<T>(
        &mut self,
        client: &Client,
        select: impl Fn(Reply) -> Result<(ConnectionId, T), Reply>,
    ) -> Vec<T> {
        self.work();
        let is_for_client = |(shard, reply): &(ShardId, Reply)| {
            *shard == client.place.shard && connection_of(reply) == Some(client.place.connection)
        };
        let all = std::mem::take(&mut self.sink.replies).into_iter();
        let (own, mut rest): (Vec<_>, Vec<_>) = all.partition(is_for_client);
        let mut taken = Vec::new();
        for (shard, reply) in own {
            match select(reply) {
                Ok((_, it)) => taken.push(it),
                Err(reply) => rest.push((shard, reply)),
            }
        }
        self.sink.replies = rest;
        taken
    }

    /// Every message that went to a queue is somewhere.
    pub(crate) fn check_account(&self) {
        let gauges = self.gauges();
        let of = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        let sum = of(&gauges.acknowledged)
            + of(&gauges.refused_by_client)
            + of(&gauges.in_flight)
            + of(&gauges.queued)
            + of(&gauges.expired)
            + of(&gauges.too_large)
            + of(&gauges.dropped_oldest)
            + of(&gauges.dropped_newest)
            + of(&gauges.discarded);
        assert_eq!(of(&gauges.routed), sum, "{gauges:#?}");
    }

    /// Whom a topic reaches now.
    pub(crate) fn targets(&self, topic: &str) -> Targets {
        Targets::look_up(&self.index, TopicName::new(topic).expect("a topic"), None)
    }
}

impl Client {
    pub(crate) fn queue(&self) -> QueueId {
        self.subscriber.queue.expect("a session that lasts")
    }

    pub(crate) fn origin(&self) -> Origin {
        Origin { queue: self.queue(), connection: self.place.connection }
    }
}

/// Whom a reply is for.
fn connection_of(reply: &Reply) -> Option<ConnectionId> {
    match reply {
        Reply::Evict { connection }
        | Reply::Refused { connection, .. }
        | Reply::Recorded { connection, .. }
        | Reply::Decided { connection }
        | Reply::Stored { connection, .. }
        | Reply::Release { connection, .. }
        | Reply::Ended { connection, .. }
        | Reply::Begun { connection, .. }
        | Reply::Restore { connection, .. }
        | Reply::Unfinished { connection, .. }
        | Reply::Retained { connection, .. } => Some(*connection),
        Reply::Claimed(claimed) => Some(claimed.connection),
        Reply::Deliver(deliver) => Some(deliver.connection),
        Reply::Live { .. } => None,
    }
}

pub(crate) fn packet_id(id: u16) -> PacketId {
    PacketId::new(id).expect("not 0")
}

pub(crate) fn message(topic: &str, payload: &[u8], qos: Qos) -> Arc<Message> {
    message_with(topic, payload, qos, false, None)
}

pub(crate) fn retained(topic: &str, payload: &[u8], qos: Qos) -> Arc<Message> {
    message_with(topic, payload, qos, true, None)
}

pub(crate) fn message_with(
    topic: &str,
    payload: &[u8],
    qos: Qos,
    retain: bool,
    expiry_secs: Option<u32>,
) -> Arc<Message> {
    message_of("publisher", topic, payload, qos, retain, expiry_secs)
}

pub(crate) fn message_of(
    publisher: &str,
    topic: &str,
    payload: &[u8],
    qos: Qos,
    retain: bool,
    expiry_secs: Option<u32>,
) -> Arc<Message> {
    let topic = TopicName::new(topic).expect("a topic");
    let packet_id = PacketId::MIN;
    let delivery = match qos {
        Qos::AtMostOnce => Delivery::AtMostOnce,
        Qos::AtLeastOnce => Delivery::AtLeastOnce { packet_id, dup: false },
        Qos::ExactlyOnce => Delivery::ExactlyOnce { packet_id, dup: false },
    };
    let properties =
        MessageProperties { message_expiry_interval_secs: expiry_secs, ..MessageProperties::default() };
    let publish = wire::Publish { retain, properties, delivery, ..wire::Publish::new(topic, payload) };
    let now = Now { monotonic_ms: 1_000, unix_ms: 1_700_000_000_000 };
    Arc::new(Message::new(topic, &publish, Some(publisher.into()), now))
}

pub(crate) fn text(message: &Message) -> String {
    String::from_utf8_lossy(message.payload()).into_owned()
}

/// Payload, QoS, packet identifier and DUP of each.
pub(crate) fn shapes(delivered: &[Deliver]) -> Vec<(String, u8, bool)> {
    delivered.iter().map(|deliver| (text(&deliver.message), deliver.qos.level(), deliver.dup)).collect()
}

pub(crate) fn payloads(delivered: &[Deliver]) -> Vec<String> {
    delivered.iter().map(|deliver| text(&deliver.message)).collect()
}

/// The identifier of a delivery to a session that lasts.
pub(crate) fn id_of(deliver: &Deliver) -> PacketId {
    match deliver.what {
        Delivered::Session { packet_id, .. } => packet_id,
        Delivered::Group { .. } => panic!("a session that lasts has packet identifiers of the ledger"),
    }
}

pub(crate) fn count(counter: &AtomicUsize) -> usize {
    counter.load(Ordering::Relaxed)
}

pub(crate) fn at_qos(qos: Qos) -> Interest {
    Interest::new(qos)
}
