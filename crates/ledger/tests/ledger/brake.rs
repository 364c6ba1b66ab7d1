//! How long publishers wait for a reader whose queue grows: long enough for one that keeps up, never without end.

use std::collections::VecDeque;

use base::{Dispatch, Level};
use ledger::Settings;
use protocol::{Delivered, Reply};
use wire::ReasonCode;

use crate::stage::{Ask, Client, QOS_0, QOS_1, QOS_2, Stage, at_qos, count, id_of, message};

const STEP_MS: u64 = 10;
/// Messages per second of a publisher that waits for nothing.
const FREE_PER_SEC: u64 = 1_000;
/// A queue is over its mark when more messages wait.
const BRAKE_MESSAGES: usize = 20;

/// Readers, and one publisher that has one message of QoS 1 under way at a time.
struct Race {
    stage: Stage,
    readers: Vec<Reader>,
    publisher: Client,
    waits: bool,
    published: u64,
    /// Number of steps at whose ends PUBACK had not come.
    steps_waited: u64,
}

/// A member of a queue that acknowledges at its own pace.
struct Reader {
    client: Client,
    per_sec: u64,
    owed: u64,
    held: VecDeque<Delivered>,
}

impl Race {
    /// Readers that last, each with its filter and how many messages it acknowledges in a second.
    fn new(readers: &[(&str, u64)], dispatch: Dispatch) -> Self {
        let mut stage = Stage::with(Settings {
            brake_messages: BRAKE_MESSAGES,
            queue_messages_max: 1_000_000,
            dispatch,
            ..Settings::default()
        });
        let readers = readers.iter().zip(0..).map(|((filter, per_sec), number)| {
            let client = stage.client(&format!("reader {number}"), &Ask::lasting(60).window(10));
            stage.subscribe(&client, filter, at_qos(QOS_1));
            Reader { client, per_sec: *per_sec, owed: 0, held: VecDeque::new() }
        });
        let readers = readers.collect();
        let publisher = stage.client("publisher", &Ask::clean());
        Self { stage, readers, publisher, waits: false, published: 0, steps_waited: 0 }
    }

    /// Somebody who takes everything at once gets what is published too.
    fn beside_a_fast_one(mut self) -> Self {
        let fast = self.stage.client("fast", &Ask::clean());
        self.stage.subscribe(&fast, "a", at_qos(QOS_1));
        self
    }

    fn run_secs(&mut self, secs: u64) {
        for _ in 0..secs * 1_000 / STEP_MS {
            self.step();
        }
    }

    fn step(&mut self) {
        // Nobody else looks at what was said.
        self.stage
            .sink
            .replies
            .retain(|(_, reply)| matches!(reply, Reply::Deliver(_) | Reply::Stored { .. }));
        self.stage.now.monotonic_ms += STEP_MS;
        self.stage.now.unix_ms += STEP_MS;
        for reader in &mut self.readers {
            reader.step(&mut self.stage);
        }
        self.hear();
        for _ in 0..FREE_PER_SEC * STEP_MS / 1_000 {
            if self.waits {
                break;
            }
            self.stage.publish(&self.publisher, 1, &message("a", b"x", QOS_1));
            self.published += 1;
            self.waits = true;
            self.hear();
        }
        self.steps_waited += u64::from(self.waits);
    }

    fn hear(&mut self) {
        self.waits &= self.stage.stored(&self.publisher).is_empty();
    }

    fn waited_ms(&self) -> u64 {
        self.steps_waited * STEP_MS
    }

    fn queued(&self) -> usize {
        count(&self.stage.gauges().queued)
    }
}

impl Reader {
    fn step(&mut self, stage: &mut Stage) {
        self.held.extend(stage.delivered(&self.client).into_iter().map(|deliver| deliver.what));
        self.owed = (self.owed + self.per_sec * STEP_MS).min(1_000 * STEP_MS.max(self.per_sec));
        while self.owed >= 1_000
            && let Some(what) = self.held.pop_front()
        {
            self.owed -= 1_000;
            stage.acknowledge(&self.client, what, ReasonCode::Success);
            self.held.extend(stage.delivered(&self.client).into_iter().map(|deliver| deliver.what));
        }
    }
}

fn by_publisher() -> Dispatch {
    Dispatch::KeyOrdered(base::Key::Publisher)
}

/// Nobody waits for what the server publishes itself: the time for which publishers wait begins with the first that does.
#[test]
fn the_patience_of_publishers_begins_when_the_first_one_waits() {
    let mut race = Race::new(&[("a", 1)], Dispatch::RoundRobin);
    (0..200).for_each(|_| race.stage.emit(&message("a", b"x", QOS_1)));
    for _ in 0..10_000 / STEP_MS {
        race.stage.now.monotonic_ms += STEP_MS;
        race.readers[0].step(&mut race.stage);
    }
    race.stage.publish(&race.publisher, 1, &message("a", b"x", QOS_1));
    assert!(race.stage.stored(&race.publisher).is_empty(), "PUBACK is withheld");
}

/// One message a second is progress, and no reason to hold others for ever. The last that is held may add its second.
#[test]
fn a_reader_that_acknowledges_slowly_costs_others_one_second() {
    for (filter, dispatch) in
        [("a", Dispatch::RoundRobin), ("$share/g/a", Dispatch::RoundRobin), ("$share/g/a", by_publisher())]
    {
        let mut race = Race::new(&[(filter, 1)], dispatch).beside_a_fast_one();
        race.run_secs(12);
        assert!(race.waited_ms() <= 2_000, "{filter}: {} ms of 12 s", race.waited_ms());
        assert!(race.published > 10_000, "{filter}: {}", race.published);
        race.stage.check_account();
    }
}

/// If the publisher has no faster subscriber, the longer limit of five seconds applies.
#[test]
fn a_reader_that_acknowledges_slowly_costs_its_publisher_five_seconds() {
    for (filter, dispatch) in
        [("a", Dispatch::RoundRobin), ("$share/g/a", Dispatch::RoundRobin), ("$share/g/a", by_publisher())]
    {
        let mut race = Race::new(&[(filter, 1)], dispatch);
        race.run_secs(15);
        assert!(race.waited_ms() >= 4_500, "{filter}: it is waited for: {} ms", race.waited_ms());
        assert!(race.waited_ms() <= 6_000, "{filter}: {} ms of 15 s", race.waited_ms());
    }
}

/// However many of them there are, they are waited for at the same time.
#[test]
fn many_slow_readers_cost_no_more_than_one() {
    let mut race = Race::new(&[("a", 1); 20], Dispatch::RoundRobin).beside_a_fast_one();
    race.run_secs(20);
    assert!(race.waited_ms() <= 2_000, "{} ms of 20 s", race.waited_ms());
}

/// One that does nothing while it is waited for, and everything when it is not, is slow all the same.
#[test]
fn a_reader_that_is_fast_while_nobody_waits_is_slow() {
    let mut race = Race::new(&[("a", 1)], Dispatch::RoundRobin).beside_a_fast_one();
    for _ in 0..20_000 / STEP_MS {
        race.readers[0].per_sec = if race.waits { 1 } else { FREE_PER_SEC };
        race.step();
    }
    assert!(race.waited_ms() <= 4_000, "{} ms of 20 s", race.waited_ms());
}

/// A reader that acknowledges everything shortly before it would be given up, again and again.
fn take_all_each(race: &mut Race, reader: usize, step: u64, every_ms: u64) {
    let is_time = (step * STEP_MS + 50 * reader as u64) % every_ms < STEP_MS;
    race.readers[reader].per_sec = if is_time { 100 * FREE_PER_SEC } else { 0 };
    race.readers[reader].owed *= u64::from(is_time);
}

#[test]
fn a_reader_that_is_slow_and_fast_by_turns_costs_one_second_in_ten() {
    for (filter, dispatch) in
        [("a", Dispatch::RoundRobin), ("$share/g/a", Dispatch::RoundRobin), ("$share/g/a", by_publisher())]
    {
        let mut race = Race::new(&[(filter, 0)], dispatch).beside_a_fast_one();
        for step in 0..30_000 / STEP_MS {
            take_all_each(&mut race, 0, step, 990);
            race.step();
        }
        assert!(race.waited_ms() <= 6_000, "{filter}: {} ms of 30 s", race.waited_ms());
        assert!(race.published > 20_000, "{filter}: {}", race.published);
        race.stage.check_account();
    }
}

/// They take everything one after the other, so that there is always one to be waited for.
#[test]
fn many_readers_that_are_slow_by_turns_leave_a_publisher_half_of_its_time() {
    for every_ms in [990, 200] {
        let mut race = Race::new(&[("a", 0); 20], Dispatch::RoundRobin).beside_a_fast_one();
        for step in 0..30_000 / STEP_MS {
            (0..20).for_each(|reader| take_all_each(&mut race, reader, step, every_ms));
            race.step();
        }
        assert!(race.waited_ms() <= 16_500, "{every_ms}: {} ms of 30 s", race.waited_ms());
        assert!(race.published > 13_000, "{every_ms}: {}", race.published);
        race.stage.check_account();
    }
}

/// If nobody else has room, the pace of such a reader is that of its publisher.
#[test]
fn a_reader_that_is_alone_may_be_slow_and_fast_by_turns() {
    let mut race = Race::new(&[("a", 0)], Dispatch::RoundRobin);
    for step in 0..30_000 / STEP_MS {
        take_all_each(&mut race, 0, step, 990);
        race.step();
        assert!(race.queued() <= 2 * BRAKE_MESSAGES, "{} wait", race.queued());
    }
}

#[test]
fn a_reader_that_takes_more_than_half_of_what_others_take_is_waited_for() {
    for filter in ["a", "$share/g/a"] {
        let readers = [(filter, FREE_PER_SEC * 3 / 5)];
        let mut race = Race::new(&readers, Dispatch::RoundRobin).beside_a_fast_one();
        for second in 0..30 {
            race.run_secs(1);
            let queued = race.queued();
            assert!(queued < 20 * BRAKE_MESSAGES, "{filter}: {queued} wait after {second} s");
        }
    }
}

/// It is waited for as far as its publisher keeps half of its time.
#[test]
fn a_reader_that_takes_a_third_of_what_others_take_costs_half() {
    for filter in ["a", "$share/g/a"] {
        let readers = [(filter, FREE_PER_SEC / 3)];
        let mut race = Race::new(&readers, Dispatch::RoundRobin).beside_a_fast_one();
        race.run_secs(30);
        assert!((10_000..=16_500).contains(&race.waited_ms()), "{filter}: {} ms of 30 s", race.waited_ms());
    }
}

/// Nobody gets what is published any sooner: they set the pace together.
#[test]
fn readers_that_are_slow_together_are_waited_for() {
    let readers = [("a", FREE_PER_SEC / 10); 3];
    let mut race = Race::new(&readers, Dispatch::RoundRobin);
    for second in 0..30 {
        race.run_secs(1);
        let queued = race.queued();
        assert!(queued < readers.len() * 3 * BRAKE_MESSAGES, "{queued} wait after {second} s");
    }
}

#[test]
fn the_only_reader_is_waited_for_while_it_takes_a_marks_worth_in_five_seconds() {
    let mut race = Race::new(&[("a", 6)], Dispatch::RoundRobin);
    race.run_secs(30);
    assert!(race.queued() < 3 * BRAKE_MESSAGES, "{} wait", race.queued());
}

/// While the process was stopped, nobody could acknowledge anything. It is stopped again before the reader has taken a mark's
/// worth.
/// At QoS 0, what a member of a group has got is its progress: it acknowledges nothing.
#[test]
fn a_member_at_qos_0_that_takes_a_third_of_what_others_take_is_waited_for() {
    for dispatch in [Dispatch::RoundRobin, by_publisher()] {
        let mut race = Race::new(&[], dispatch).beside_a_fast_one();
        let member = race.stage.client("member", &Ask::lasting(60));
        race.stage.subscribe(&member, "$share/g/a", at_qos(QOS_0));
        for _ in 0..300 {
            member.subscriber.gauge.set(Level::Open);
            (0..2).for_each(|_| race.step());
            member.subscriber.gauge.set(Level::Over);
            (0..4).for_each(|_| race.step());
        }
        let queued = race.queued();
        assert!(queued < 1_000, "{queued} wait of {}", race.published);
    }
}

#[test]
fn an_absence_of_the_process_is_not_the_slowness_of_a_reader() {
    let mut race = Race::new(&[("a", 6)], Dispatch::RoundRobin);
    race.run_secs(10);
    for _ in 0..5 {
        race.stage.now.monotonic_ms += 60_000;
        race.stage.now.unix_ms += 60_000;
        race.run_secs(2);
        assert!(race.queued() < 3 * BRAKE_MESSAGES, "{} wait", race.queued());
    }
}

/// The journal is the first to be heard after the absence. The clock of readers does not go back when a command comes.
#[test]
fn an_absence_that_ends_with_news_of_the_disk_is_noticed() {
    let mut stage = Stage::with(Settings { brake_messages: 3, ..Settings::default() });
    let reader = stage.client("reader", &Ask::lasting(60).window(1));
    stage.subscribe(&reader, "a", at_qos(QOS_1));
    let publishers = ["first", "second", "third"].map(|name| stage.client(name, &Ask::clean()));
    let mut stage = stage.slow();
    for id in 1..=5 {
        stage.publish(&publishers[0], id, &message("a", b"x", QOS_1));
    }
    stage.sync();
    let first = stage.stored(&publishers[0]).len();
    assert!(first < 5, "the last ones are withheld");
    stage.publish(&publishers[1], 1, &message("a", b"x", QOS_1));
    stage.now.monotonic_ms += 60_000;
    stage.now.unix_ms += 60_000;
    stage.sync();
    stage.publish(&publishers[2], 1, &message("a", b"x", QOS_1));
    stage.sync();
    assert_eq!(stage.stored(&publishers[2]).len(), 0, "the reader was not given up");
}

/// One message may be longer than the bytes of the mark.
#[test]
fn nobody_waits_because_of_a_few_messages_however_long_they_are() {
    let payload = vec![7; 300 << 10];
    for filter in ["a", "$share/g/a"] {
        let mut stage = Stage::new();
        let reader = stage.client("reader", &Ask::lasting(60).window(10));
        stage.subscribe(&reader, filter, at_qos(QOS_1));
        let publisher = stage.client("publisher", &Ask::clean());
        let mut answers = 0;
        for id in 1..=20 {
            stage.publish(&publisher, id, &message("a", &payload, QOS_1));
            answers += stage.stored(&publisher).len();
        }
        assert_eq!(answers, 5, "{filter}: a few may wait");
    }
}

/// A reader that was given up is trusted again when it has taken what waited, and not before.
#[test]
fn nobody_waits_for_a_slow_reader_again_before_it_has_drained() {
    let mut race = Race::new(&[("a", 1)], Dispatch::RoundRobin).beside_a_fast_one();
    race.run_secs(5);
    let waited = race.waited_ms();
    // It takes half of what comes, and stays behind.
    race.readers[0].per_sec = FREE_PER_SEC / 2;
    race.run_secs(10);
    assert_eq!(race.waited_ms(), waited, "it has not drained");
    race.readers[0].per_sec = 20 * FREE_PER_SEC;
    race.run_secs(5);
    assert_eq!(race.queued(), 0);
    race.readers[0].per_sec = FREE_PER_SEC / 2;
    race.run_secs(5);
    assert!(race.waited_ms() > waited, "it has drained, and is waited for");
}

/// PUBREC is not the end of an exchange: no place in the window is free before PUBCOMP.
#[test]
fn a_reader_that_says_pubrec_alone_is_not_waited_for() {
    let mut stage = Stage::with(Settings { brake_messages: 3, ..Settings::default() });
    let reader = stage.client("reader", &Ask::lasting(60).window(10));
    stage.subscribe(&reader, "a", at_qos(QOS_2));
    let publisher = stage.client("publisher", &Ask::clean());
    let mut answers = 0;
    for _ in 0..20 {
        stage.publish(&publisher, 1, &message("a", b"x", QOS_2));
    }
    for _ in 0..8 {
        answers = stage.stored(&publisher).len();
        let first = stage.delivered(&reader).into_iter().next();
        first.into_iter().for_each(|deliver| stage.received(&reader, id_of(&deliver)));
        stage.pass_secs(1);
    }
    assert_eq!(answers, 0, "they have come before");
    stage.publish(&publisher, 2, &message("a", b"x", QOS_2));
    assert_eq!(stage.stored(&publisher).len(), 1, "nobody waits any more");
}
