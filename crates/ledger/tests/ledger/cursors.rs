//! Retained messages for sessions that last.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::Interest;
use index::Subscriptions;
use ledger::{Ledger, Record, Settings};
use protocol::{Cause, Command, CursorId, Delivered, Numbered, Reply};
use wire::{Qos, ReasonCode};

use crate::stage::{
    Ask, Client, QOS_0, QOS_1, QOS_2, Stage, at_qos, count, id_of, message, payloads, retained, text,
};

/// Retained messages are sent at the pace of the client: they never fill its queue.
#[test]
fn a_cursor_waits_for_the_queue_that_it_brings_to() {
    let mut stage = Stage::with(Settings { queue_messages_max: 2_100, ..Settings::default() });
    for number in 0..5_000 {
        stage.emit(&retained(&format!("t/{number:04}"), number.to_string().as_bytes(), QOS_1));
    }
    let client = stage.client("c", &Ask::lasting(60));
    stage.subscribe_to(&client, "t/#", at_qos(QOS_1), vec!["t/#".into()]);
    let (shard, connection, id) = (client.place.shard, client.place.connection, CursorId(1));
    stage.handle(
        shard,
        Command::Retained { connection, id, filter: "t/#".into(), queue: Some(client.queue()) },
    );
    stage.handle(shard, Command::Credit { connection, id });
    let mut found = Vec::new();
    let mut is_done = false;
    while !is_done || count(&stage.gauges().queued) + count(&stage.gauges().in_flight) > 0 {
        for (_, reply) in stage.replies() {
            match reply {
                Reply::Retained { messages, done, .. } => {
                    assert!(messages.is_empty(), "they are in the queue");
                    is_done = done;
                    stage.handle(shard, Command::Credit { connection, id });
                }
                Reply::Deliver(deliver) => {
                    assert!(deliver.retain);
                    found.extend(payloads(std::slice::from_ref(&deliver)));
                    stage.acknowledge(&client, deliver.what, ReasonCode::Success);
                }
                _ => {}
            }
        }
    }
    assert_eq!(found, (0..5_000).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!(count(&stage.gauges().sessions), 1, "its queue was never full");
    stage.check_account();
}

#[test]
fn the_cursors_of_a_connection_that_is_gone_are_closed_bit_by_bit() {
    const CURSORS: u32 = 20_000;
    let mut stage = Stage::new();
    stage.emit(&retained("t", b"1", QOS_1));
    let client = stage.client("c", &Ask::clean());
    let (shard, connection) = (client.place.shard, client.place.connection);
    for id in (1..=CURSORS).map(CursorId) {
        stage.handle(shard, Command::Retained { connection, id, filter: "t".into(), queue: None });
    }
    let opened = stage.replies().iter().filter(|(_, reply)| is_open(reply)).count();
    assert_eq!(opened, CURSORS as usize);
    stage.leave(&client, Cause::Normal);
    let mut turns = 0;
    while stage.ledger.has_work() {
        stage.ledger.work(stage.now, &mut stage.sink);
        turns += 1;
    }
    assert!(turns >= CURSORS / 1_000, "{turns} turns");
}

fn is_open(reply: &Reply) -> bool {
    matches!(reply, Reply::Begun { is_over: false, .. })
}

#[test]
fn a_cursor_that_finds_nothing_is_over_when_it_is_opened() {
    let mut stage = Stage::new();
    for topic in ["s", "t/1", "t/1/2", "u/1"] {
        stage.emit(&retained(topic, b"1", QOS_1));
    }
    let client = stage.client("c", &Ask::clean());
    let (shard, connection) = (client.place.shard, client.place.connection);
    let mut open = |number, filter: &str| {
        let id = CursorId(number);
        stage.handle(shard, Command::Retained { connection, id, filter: filter.into(), queue: None });
        let begun = stage.replies().iter().any(|(_, reply)| is_open(reply));
        stage.handle(shard, Command::Credit { connection, id });
        let found = stage.replies().into_iter().map(|(_, reply)| match reply {
            Reply::Retained { messages, .. } => messages.len(),
            _ => 0,
        });
        (begun, found.sum::<usize>())
    };
    for (number, filter) in (1..).zip(["t", "t/2", "t/1/3", "v", "v/#", "r"]) {
        assert_eq!(open(number, filter), (false, 0), "{filter}");
    }
    for (number, (filter, count)) in (10..).zip([("t/1", 1), ("t/#", 2), ("+/1", 2), ("#", 4), ("s", 1)]) {
        assert_eq!(open(number, filter), (true, count), "{filter}");
    }
}

/// A shard delivers all that it is told in one turn.
#[test]
fn steps_of_cursors_stop_when_the_shards_have_no_room_for_more() {
    let mut stage = Stage::new();
    stage.emit(&retained("t", b"1", QOS_0));
    for number in 0..4 {
        let client = stage.client(&format!("c{number}"), &Ask::clean());
        let (shard, connection, id) = (client.place.shard, client.place.connection, CursorId(1));
        stage.handle(shard, Command::Retained { connection, id, filter: "t".into(), queue: None });
        stage.handle(shard, Command::Credit { connection, id });
    }
    for _ in 0..2 {
        stage.sink.replies.clear();
        (stage.sink.has_no_room, stage.sink.no_room_after) = (false, Some(2));
        stage.ledger.work(stage.now, &mut stage.sink);
        let is_step = |(_, reply): &&(_, Reply)| matches!(reply, Reply::Retained { .. });
        assert_eq!(stage.sink.replies.iter().filter(is_step).count(), 2);
    }
    assert!(!stage.ledger.has_work());
}

/// Numbers that look random, the same ones for a seed (SplitMix64).
struct Dice(u64);

impl Dice {
    fn one_in(&mut self, count: u64) -> bool {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)).is_multiple_of(count)
    }
}

/// A client that wants everything that is retained, with its shard; its connection may end at any time.
struct Reader {
    stage: Stage,
    client: Client,
    interest: Interest,
    cursors: u32,
    /// Messages that the client was sent, each once.
    seen: BTreeSet<String>,
    /// Messages that the client was sent again although they had been sent at QoS 0.
    repeated: usize,
    has_crashed: bool,
    is_done: bool,
}

const ALL: &str = "t/#";

/// A cursor's steps are short.
fn settings() -> Settings {
    Settings { queue_messages_max: 60, ..Settings::default() }
}

impl Reader {
    fn new(mut stage: Stage, interest: Interest) -> Self {
        let client = stage.client("reader", &Ask::lasting(u32::MAX).window(20));
        let (seen, cursors) = (BTreeSet::new(), 0);
        let mut reader =
            Self { stage, client, interest, cursors, seen, repeated: 0, has_crashed: false, is_done: false };
        reader.ask();
        reader
    }

    /// A SUBSCRIBE with Retain Handling 0.
    fn ask(&mut self) {
        self.stage.subscribe_to(&self.client, ALL, self.interest, vec![ALL.into()]);
        self.open();
    }

    fn open(&mut self) {
        self.cursors += 1;
        self.is_done = false;
        let (connection, id) = (self.client.place.connection, CursorId(self.cursors));
        let queue = Some(self.client.queue());
        self.stage
            .handle(self.client.place.shard, Command::Retained { connection, id, filter: ALL.into(), queue });
    }

    fn credit(&mut self) {
        let (connection, id) = (self.client.place.connection, CursorId(self.cursors));
        self.stage.handle(self.client.place.shard, Command::Credit { connection, id });
    }

    /// The connection ends, perhaps with the process, and the client comes back.
    fn cut(&mut self, with_process: bool) {
        if with_process {
            self.has_crashed = true;
            let records: Vec<Record<'static>> =
                self.stage.sink.groups.iter().flat_map(|(_, group)| group.iter().cloned()).collect();
            let (index, last) = (Arc::new(Subscriptions::new([3, 4])), self.stage.last());
            let ledger = Ledger::recover(settings(), Arc::clone(&index), records, self.stage.now);
            assert_eq!(ledger.durable_state(), self.stage.ledger.durable_state());
            self.stage.restart(ledger, index, last);
        } else {
            self.stage.leave(&self.client.clone(), Cause::WithWill);
        }
        self.stage.sink.replies.clear();
        let (client, claimed) = self.stage.connect("reader", &Ask::lasting(u32::MAX).window(20));
        assert!(claimed.session_present);
        self.client = client;
        self.is_done = claimed.unfinished.is_empty();
        if !self.is_done {
            self.open();
        }
    }

    /// Everything that is under way happens, but for what a cut prevents.
    fn run(&mut self, dice: &mut Dice, one_in: u64) {
        loop {
            let replies = self.stage.replies();
            if replies.is_empty() {
                return;
            }
            for (_, reply) in replies {
                if dice.one_in(one_in) {
                    let with_process = dice.one_in(3);
                    self.cut(with_process);
                    break;
                }
                self.hear(reply);
            }
        }
    }

    fn hear(&mut self, reply: Reply) {
        match reply {
            Reply::Begun { is_over: true, .. } => self.is_done = true,
            Reply::Begun { .. } => self.credit(),
            Reply::Retained { id, messages, done, .. } => self.step(id, messages, done),
            Reply::Deliver(deliver) => {
                let is_new = self.seen.insert(text(&deliver.message));
                assert!(is_new || deliver.dup, "{} comes again", text(&deliver.message));
                if deliver.qos == QOS_2 {
                    self.stage.received(&self.client, id_of(&deliver));
                }
                self.stage.acknowledge(&self.client, deliver.what, ReasonCode::Success);
            }
            Reply::Release { packet_id, .. } => {
                let what = Delivered::Session { queue: self.client.queue(), packet_id };
                self.stage.acknowledge(&self.client, what, ReasonCode::Success);
            }
            _ => {}
        }
    }

    fn step(&mut self, id: CursorId, messages: Vec<Numbered>, done: bool) {
        if !messages.is_empty() {
            let connection = self.client.place.connection;
            self.stage.handle(self.client.place.shard, Command::Took { connection, id });
        }
        for Numbered { message, .. } in messages {
            assert_eq!(message.qos().min(self.interest.qos()), QOS_0, "others are in the queue");
            self.repeated += usize::from(!self.seen.insert(text(&message)));
        }
        self.is_done = done;
        if !done {
            self.credit();
        }
    }
}

fn store(stage: &mut Stage, count: usize, qos: impl Fn(usize) -> Qos) {
    for number in 0..count {
        stage.emit(&retained(
            &format!("t/{}/{number:05}", number % 7),
            format!("m{number}").as_bytes(),
            qos(number),
        ));
    }
}

/// • Wherever the connection is cut, and the process with it: everything comes, and nothing twice.
#[test]
fn a_cursor_goes_on_after_a_reconnect() {
    const MESSAGES: usize = 400;
    for seed in 0..24 {
        let mut stage = Stage::with(settings());
        let qos = [QOS_0, QOS_1, QOS_2];
        store(&mut stage, MESSAGES, |number| qos[(number + seed) % 3]);
        let mut dice = Dice(seed as u64);
        let mut reader = Reader::new(stage, at_qos(qos[seed % 4 % 3]));
        reader.run(&mut dice, [20, 50, 300][seed % 3]);
        while !reader.is_done {
            reader.run(&mut dice, 1_000_000);
        }
        assert_eq!(reader.seen.len(), MESSAGES, "seed {seed}");
        assert!(reader.repeated == 0 || reader.has_crashed, "seed {seed}: {} repeated", reader.repeated);
        assert!(!reader.stage.ledger.durable_state().contains("cursor"), "it has ended");
        reader.stage.check_account();
    }
}

/// A message published while the client is away arrives once: from the queue, or, at QoS 0, as a retained message.
#[test]
fn retained_messages_that_change_while_the_client_is_away_arrive_once() {
    for qos in [QOS_0, QOS_1] {
        let mut stage = Stage::new();
        store(&mut stage, 3_000, |_| qos);
        let mut reader = Reader::new(stage, at_qos(QOS_2));
        for _ in 0..2 {
            for (_, reply) in reader.stage.replies() {
                reader.hear(reply);
            }
        }
        let client = reader.client.clone();
        reader.stage.leave(&client, Cause::WithWill);
        reader.stage.emit(&retained("t/6/02995", b"changed", qos));
        reader.cut(false);
        reader.run(&mut Dice(1), u64::MAX);
        assert!(reader.seen.contains("changed") && !reader.seen.contains("m2995"));
        assert_eq!(reader.seen.len(), 3_000);
    }
}

/// The messages that a step found for the queue wait until the shard has received the rest of the step.
#[test]
fn a_value_that_is_replaced_meanwhile_does_not_come_behind_its_successor() {
    let mut stage = Stage::new();
    stage.emit(&retained("t/0", b"once", QOS_0));
    stage.emit(&retained("t/1", b"old", QOS_1));
    let mut reader = Reader::new(stage, at_qos(QOS_1));
    let replies = reader.stage.replies();
    replies.into_iter().for_each(|(_, reply)| reader.hear(reply));
    let [(_, step)] = <[_; 1]>::try_from(reader.stage.replies()).expect("one step");
    assert_eq!(payloads(&reader.stage.delivered(&reader.client)), [""; 0], "it waits for the shard");
    reader.stage.emit(&retained("t/1", b"new", QOS_1));
    reader.hear(step);
    reader.run(&mut Dice(1), u64::MAX);
    assert_eq!(reader.seen, BTreeSet::from(["once".to_owned(), "new".to_owned()]));
    assert!(reader.is_done);
}

/// Retain Handling 2 leaves the cursor of the subscription before it alone: what was found for it comes at its QoS.
#[test]
fn a_subscription_that_changes_meanwhile_does_not_change_what_was_found() {
    let mut stage = Stage::new();
    stage.emit(&retained("t/0", b"once", QOS_0));
    stage.emit(&retained("t/1", b"more", QOS_1));
    let mut reader = Reader::new(stage, at_qos(QOS_1));
    let replies = reader.stage.replies();
    replies.into_iter().for_each(|(_, reply)| reader.hear(reply));
    let [(_, step)] = <[_; 1]>::try_from(reader.stage.replies()).expect("one step");
    reader.stage.subscribe(&reader.client, ALL, at_qos(QOS_0));
    reader.hear(step);
    let [deliver] = <[_; 1]>::try_from(reader.stage.delivered(&reader.client)).expect("one message");
    assert_eq!((text(&deliver.message).as_str(), deliver.qos), ("more", QOS_1));
}

/// [ABUSE W-09]: a repeated SUBSCRIBE with Retain Handling 0 replaces the stream that runs.
#[test]
fn asking_again_replaces_the_cursor() {
    let mut stage = Stage::new();
    store(&mut stage, 3_000, |_| QOS_1);
    let mut reader = Reader::new(stage, at_qos(QOS_1));
    for (_, reply) in reader.stage.replies() {
        reader.hear(reply);
    }
    reader.seen.clear();
    let records = reader.stage.sink.groups.len();
    reader.ask();
    assert!(reader.stage.sink.groups.len() > records, "it begins again, on the record");
    reader.run(&mut Dice(1), u64::MAX);
    assert_eq!(reader.seen.len(), 3_000);
    reader.ask();
    let client = reader.client.clone();
    reader.stage.unsubscribe(&client, ALL);
    assert!(!reader.stage.ledger.durable_state().contains("cursor"));
}

/// While there is no space the cursor waits, and repeats nothing; then it goes on by itself.
#[test]
fn a_cursor_waits_for_space() {
    let mut stage = Stage::new();
    let qos = [QOS_0, QOS_1];
    store(&mut stage, 600, |number| qos[number % 2]);
    let mut reader = Reader::new(stage, at_qos(QOS_1));
    reader.stage.sink.no_space = true;
    reader.run(&mut Dice(1), u64::MAX);
    assert!(reader.seen.len() < 600 && !reader.stage.ledger.has_work(), "nothing spins");
    for _ in 0..3 {
        reader.stage.pass_secs(1);
        reader.run(&mut Dice(1), u64::MAX);
    }
    reader.stage.sink.no_space = false;
    reader.stage.pass_secs(1);
    reader.run(&mut Dice(1), u64::MAX);
    assert_eq!((reader.seen.len(), reader.repeated), (600, 0));
}

/// The end of a session has no message that could be read again.
#[test]
fn a_value_that_ends_its_session_has_no_address() {
    let settings = Settings { queue_messages_max: 3, queued_bytes_in_memory: 0, ..Settings::default() };
    let mut stage = Stage::with(settings);
    let client = stage.client("full", &Ask::lasting(60).window(1));
    stage.subscribe(&client, "a", at_qos(QOS_1));
    stage.emit(&retained("r", b"value", QOS_1));
    stage.subscribe_to(&client, "r", at_qos(QOS_1), vec!["r".into()]);
    let (shard, connection, id) = (client.place.shard, client.place.connection, CursorId(1));
    let queue = Some(client.queue());
    stage.handle(shard, Command::Retained { connection, id, filter: "r".into(), queue });
    stage.emit(&message("a", b"x", QOS_1));
    stage.work();
    // Nothing waits when the step is asked for.
    stage.handle(shard, Command::Credit { connection, id });
    (0..3).for_each(|_| stage.emit(&message("a", b"x", QOS_1)));
    stage.sink.is_message_asked_for = true;
    stage.work();
    assert_eq!(stage.ended(&client), [ReasonCode::QuotaExceeded]);
}
