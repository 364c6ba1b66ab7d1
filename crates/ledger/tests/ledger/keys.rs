//! Shared subscriptions in which messages with one key keep their order.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Dispatch, Key, Message};
use ledger::{Ledger, QueueFull, Record, Settings};
use protocol::{Cause, Command, Deliver, Delivered};
use wire::{Qos, ReasonCode};

use crate::stage::{
    Ask, Client, QOS_0, QOS_1, QOS_2, Stage, at_qos, count, id_of, message_of, payloads, text,
};

const SHARED: &str = "$share/g/a";

fn settings() -> Settings {
    Settings { dispatch: Dispatch::KeyOrdered(Key::Publisher), ..Settings::default() }
}

fn member(stage: &mut Stage, name: &str, ask: &Ask) -> Client {
    let client = stage.client(name, ask);
    stage.subscribe(&client, SHARED, at_qos(QOS_2));
    client
}

fn of(key: &str, number: u32, qos: Qos) -> Arc<Message> {
    message_of(key, "a", format!("{key}{number}").as_bytes(), qos, false, None)
}

fn emit(stage: &mut Stage, key: &str, numbers: std::ops::RangeInclusive<u32>, qos: Qos) {
    numbers.for_each(|number| stage.emit(&of(key, number, qos)));
}

fn acknowledge_all(stage: &mut Stage, client: &Client, delivered: &[Deliver]) {
    delivered.iter().for_each(|deliver| stage.acknowledge(client, deliver.what, ReasonCode::Success));
}

/// The first of some publishers whose messages this member gets.
fn key_of(stage: &mut Stage, client: &Client) -> String {
    let keys = (0..1_000).map(|number| format!("key{number}-"));
    for key in keys {
        emit(stage, &key, 0..=0, QOS_0);
        let is_its = stage.live(client).contains(&format!("{key}0"));
        stage.replies();
        if is_its {
            return key;
        }
    }
    panic!("nobody's messages go there")
}

#[test]
fn a_publisher_has_one_member_at_every_qos() {
    let mut stage = Stage::with(settings());
    let members: Vec<Client> =
        [("lasting", Ask::lasting(60)), ("clean", Ask::clean()), ("other", Ask::lasting(60).shard(1))]
            .iter()
            .map(|(name, ask)| member(&mut stage, name, ask))
            .collect();
    for member in &members {
        let key = key_of(&mut stage, member);
        for qos in [QOS_1, QOS_2] {
            emit(&mut stage, &key, 1..=5, qos);
            let delivered = stage.delivered(member);
            assert_eq!(
                payloads(&delivered),
                (1..=5).map(|number| format!("{key}{number}")).collect::<Vec<_>>()
            );
        }
    }
    stage.check_account();
}

#[test]
fn messages_that_expire_at_once_go_to_a_connected_member_only() {
    let mut stage = Stage::with(settings());
    let member = member(&mut stage, "member", &Ask::lasting(60));
    stage.emit(&message_of("key", "a", b"now", QOS_1, false, Some(0)));
    assert_eq!(payloads(&stage.delivered(&member)), ["now"]);
    stage.leave(&member, Cause::Normal);
    stage.emit(&message_of("key", "a", b"too late", QOS_1, false, Some(0)));
    let (member, _) = stage.connect("member", &Ask::lasting(60));
    assert!(!payloads(&stage.delivered(&member)).contains(&"too late".to_owned()));
    stage.check_account();
}

#[test]
fn a_chosen_property_may_be_the_key() {
    let dispatch = Dispatch::KeyOrdered(Key::Property("order".into()));
    let mut stage = Stage::with(Settings { dispatch, ..Settings::default() });
    let members = [1, 2].map(|number| member(&mut stage, &format!("m{number}"), &Ask::lasting(60)));
    let with = |value: &str, publisher: &str| {
        let pair = [wire::UserProperty {
            name: wire::Utf8::new("order").expect("a string"),
            value: wire::Utf8::new(value).expect("a string"),
        }];
        let properties = wire::MessageProperties {
            user_properties: wire::UserProperties::from(&pair[..]),
            ..wire::MessageProperties::default()
        };
        let delivery = wire::Delivery::AtLeastOnce { packet_id: wire::PacketId::MIN, dup: false };
        let topic = topic::topic!("a");
        let publish = wire::Publish { properties, delivery, ..wire::Publish::new(topic, b"") };
        Arc::new(Message::new(topic, &publish, Some(publisher.into()), stage.now))
    };
    let messages: Vec<_> =
        (0..40).map(|number| with(&(number % 2).to_string(), &number.to_string())).collect();
    messages.iter().for_each(|message| stage.emit(message));
    for member in &members {
        let delivered = stage.delivered(member);
        assert!([0, 20, 40].contains(&delivered.len()), "{} are no whole number of keys", delivered.len());
    }
}

/// • What a member has not acknowledged goes before everything newer of its key, to another.
#[test]
fn messages_that_a_member_leaves_behind_precede_newer_messages_of_their_key() {
    for ask in [Ask::lasting(60), Ask::clean()] {
        let mut stage = Stage::with(settings());
        let first = member(&mut stage, "first", &ask.window(3));
        emit(&mut stage, "k", 1..=5, QOS_1);
        assert_eq!(payloads(&stage.delivered(&first)), ["k1", "k2", "k3"]);
        let second = member(&mut stage, "second", &Ask::lasting(60));
        emit(&mut stage, "k", 6..=6, QOS_1);
        assert!(stage.delivered(&second).is_empty(), "the first has some of it");
        stage.leave(&first, Cause::WithWill);
        let expected: Vec<_> = (1..=6).map(|number| format!("k{number}")).collect();
        assert_eq!(payloads(&stage.delivered(&second)), expected);
        stage.check_account();
    }
}

/// A key goes to who joined when its former holder has acknowledged what it has, and not before.
#[test]
fn a_key_moves_to_a_new_member_when_nothing_of_it_is_under_way() {
    for qos in [QOS_1, QOS_2] {
        let mut stage = Stage::with(settings());
        let (old, new) = (member(&mut stage, "old", &Ask::lasting(60)), "new");
        let newcomer = member(&mut stage, new, &Ask::lasting(60));
        let key = key_of(&mut stage, &newcomer);
        stage.leave_with(&newcomer, Cause::Normal, Some(0));
        emit(&mut stage, &key, 1..=2, qos);
        let held = stage.delivered(&old);
        assert_eq!(held.len(), 2);
        let newcomer = member(&mut stage, new, &Ask::lasting(60));
        emit(&mut stage, &key, 3..=4, qos);
        for deliver in &held {
            assert!(stage.delivered(&newcomer).is_empty() && stage.delivered(&old).is_empty());
            if qos == QOS_2 {
                stage.received(&old, id_of(deliver));
                assert!(stage.delivered(&newcomer).is_empty(), "the old one may not have it yet");
            }
            stage.acknowledge(&old, deliver.what, ReasonCode::Success);
        }
        assert_eq!(payloads(&stage.delivered(&newcomer)), [format!("{key}3"), format!("{key}4")]);
        stage.check_account();
    }
}

/// [MQTT-4.8.2-4]: QoS 2 stays with its holder, and nobody waits for one that is not there.
#[test]
fn newer_messages_of_a_key_do_not_wait_for_a_holder_that_is_away() {
    let mut stage = Stage::with(settings());
    let holder = member(&mut stage, "holder", &Ask::lasting(60));
    emit(&mut stage, "k", 1..=1, QOS_2);
    assert_eq!(stage.delivered(&holder).len(), 1);
    let other = member(&mut stage, "other", &Ask::lasting(60));
    stage.leave(&holder, Cause::WithWill);
    emit(&mut stage, "k", 2..=2, QOS_2);
    assert_eq!(payloads(&stage.delivered(&other)), ["k2"]);
    let holder = stage.client("holder", &Ask::lasting(60));
    let again = stage.delivered(&holder);
    assert!(payloads(&again) == ["k1"] && again[0].dup);
    stage.received(&holder, id_of(&again[0]));
    stage.acknowledge(&holder, again[0].what, ReasonCode::Success);
    stage.check_account();
}

/// Its keys wait for a member with a full window; the others go on, and nothing spins.
#[test]
fn a_full_window_holds_up_its_own_keys_only() {
    let mut stage = Stage::with(settings());
    let slow = member(&mut stage, "slow", &Ask::lasting(60).window(1));
    let quick = member(&mut stage, "quick", &Ask::lasting(60).window(60_000));
    let (its, others) = (key_of(&mut stage, &slow), key_of(&mut stage, &quick));
    emit(&mut stage, &its, 1..=500, QOS_1);
    let held = stage.delivered(&slow);
    for number in 1..=2_000 {
        emit(&mut stage, &others, number..=number, QOS_1);
        let delivered = stage.delivered(&quick);
        assert_eq!(payloads(&delivered), [format!("{others}{number}")]);
        acknowledge_all(&mut stage, &quick, &delivered);
        assert!(!stage.ledger.has_work());
    }
    assert_eq!(payloads(&held), [format!("{its}1")]);
    acknowledge_all(&mut stage, &slow, &held);
    assert_eq!(payloads(&stage.delivered(&slow)), [format!("{its}2")]);
    stage.check_account();
}

#[test]
fn the_oldest_may_be_dropped_and_expire_out_of_their_lanes() {
    let settings = Settings { queue_messages_max: 3, queue_full: QueueFull::DropOldest, ..settings() };
    let mut stage = Stage::with(settings);
    let away = member(&mut stage, "away", &Ask::lasting(60));
    stage.leave(&away, Cause::Normal);
    emit(&mut stage, "k", 1..=4, QOS_1);
    let brief = |number| message_of("k", "a", format!("k{number}").as_bytes(), QOS_1, false, Some(1));
    stage.emit(&brief(5));
    emit(&mut stage, "k", 6..=6, QOS_1);
    stage.pass_secs(3);
    let back = stage.client("away", &Ask::lasting(60));
    assert_eq!(payloads(&stage.delivered(&back)), ["k4", "k6"]);
    stage.check_account();
}

#[test]
fn keys_keep_their_order_over_a_restart() {
    let mut stage = Stage::with(settings());
    let first = member(&mut stage, "first", &Ask::lasting(60).window(2));
    emit(&mut stage, "k", 1..=4, QOS_1);
    assert_eq!(stage.delivered(&first).len(), 2);
    let records: Vec<Record<'static>> = stage.sink.groups.drain(..).flat_map(|(_, group)| group).collect();
    let (index, last) = (Arc::new(index::Subscriptions::new([3, 4])), stage.last());
    let ledger = Ledger::recover(settings(), Arc::clone(&index), records, stage.now);
    stage.restart(ledger, index, last);
    let first = stage.client("first", &Ask::lasting(60));
    emit(&mut stage, "k", 5..=5, QOS_1);
    assert_eq!(payloads(&stage.delivered(&first)), ["k1", "k2", "k3", "k4", "k5"]);
}

/// Numbers that look random, the same ones for a seed (SplitMix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % bound as u64).expect("small")
    }
}

/// A group of four whose members come and go.
struct Crew {
    stage: Stage,
    dice: Dice,
    /// Each with what it has and has not acknowledged.
    members: [Option<(Client, Vec<Deliver>)>; 4],
    published: BTreeMap<usize, u32>,
    /// The last of each key that was acknowledged: all before it were.
    acknowledged: BTreeMap<usize, u32>,
}

const KEYS: usize = 12;

impl Crew {
    fn step(&mut self) {
        let who = self.dice.below(4);
        match self.dice.below(10) {
            0 if self.members[who].is_none() => self.come(who),
            0 if self.dice.below(3) == 0 => self.go(who),
            1..=4 => {
                let key = self.dice.below(KEYS);
                let number = self.published.entry(key).or_default();
                *number += 1;
                self.stage.emit(&of(&format!("{key}-"), *number, QOS_1));
            }
            5..=8 => self.acknowledge(who),
            _ => {}
        }
        self.hear();
    }

    fn come(&mut self, who: usize) {
        let ask = if who.is_multiple_of(2) { Ask::lasting(u32::MAX) } else { Ask::clean() };
        let ask = ask.window(1 + u16::try_from(self.dice.below(5)).expect("small"));
        let client = member(&mut self.stage, &format!("m{who}"), &ask);
        self.members[who] = Some((client, Vec::new()));
    }

    fn go(&mut self, who: usize) {
        if self.members.iter().flatten().count() > 1
            && let Some((client, _)) = self.members[who].take()
        {
            self.stage.leave(&client, Cause::WithWill);
        }
    }

    fn acknowledge(&mut self, who: usize) {
        let Some((client, held)) = &mut self.members[who] else { return };
        if held.is_empty() {
            return;
        }
        let deliver = held.remove(0);
        let (key, number) = parts(&deliver);
        assert_eq!(self.acknowledged.insert(key, number).unwrap_or_default() + 1, number);
        let (client, what) = (client.clone(), deliver.what);
        self.stage.acknowledge(&client, what, ReasonCode::Success);
    }

    /// Checks deliveries: each message is the next of its key after the acknowledged ones and those that the same
    /// member has.
    fn hear(&mut self) {
        for who in 0..4 {
            let Some((client, _)) = &self.members[who] else { continue };
            let client = client.clone();
            for deliver in self.stage.delivered(&client) {
                let (key, number) = parts(&deliver);
                for (other, member) in self.members.iter().enumerate() {
                    let held = member.iter().flat_map(|(_, held)| held);
                    let before = held.filter(|held| parts(held).0 == key).count();
                    assert!(other == who || before == 0, "key {key} is with m{other} and with m{who}");
                    let done = self.acknowledged.get(&key).copied().unwrap_or_default();
                    let expected = done + 1 + u32::try_from(before).expect("small");
                    assert!(other != who || number == expected, "{key}-{number} in place of {expected}");
                }
                if let Some((_, held)) = &mut self.members[who] {
                    held.push(deliver);
                }
            }
        }
    }
}

fn parts(deliver: &Deliver) -> (usize, u32) {
    let text = text(&deliver.message);
    let (key, number) = text.split_once('-').expect("a key and a number");
    (key.parse().expect("a key"), number.parse().expect("a number"))
}

/// However members come and go: each key is in order, with one member at a time, and the last member gets all that is
/// left.
#[test]
fn keys_are_in_order_however_members_come_and_go() {
    for seed in 0..60 {
        let members = [const { None }; 4];
        let (published, acknowledged) = (BTreeMap::new(), BTreeMap::new());
        let mut crew =
            Crew { stage: Stage::with(settings()), dice: Dice(seed), members, published, acknowledged };
        crew.come(0);
        (0..400).for_each(|_| crew.step());
        if crew.members[0].is_none() {
            crew.come(0);
        }
        (1..4).for_each(|who| crew.go(who));
        crew.hear();
        while crew.members[0].as_ref().is_some_and(|(_, held)| !held.is_empty()) {
            crew.acknowledge(0);
            crew.hear();
        }
        assert_eq!(crew.acknowledged, crew.published, "seed {seed}");
        assert_eq!(count(&crew.stage.gauges().queued), 0);
        crew.stage.check_account();
    }
}

/// Of a clean member: QoS 2 that it has written keeps the order of its key until it is over.
#[test]
fn a_clean_member_has_a_key_until_its_exchange_is_over() {
    let mut stage = Stage::with(settings());
    let clean = member(&mut stage, "clean", &Ask::clean());
    let other = member(&mut stage, "other", &Ask::clean());
    let key = key_of(&mut stage, &other);
    stage.leave(&other, Cause::WithWill);
    emit(&mut stage, &key, 1..=1, QOS_2);
    let delivered = stage.delivered(&clean);
    let what @ Delivered::Group { group, entry } = delivered[0].what else { panic!("it has no session") };
    let connection = clean.place.connection;
    stage.handle(clean.place.shard, Command::Sent { group, entry, connection });
    let other = member(&mut stage, "other", &Ask::clean());
    emit(&mut stage, &key, 2..=2, QOS_2);
    assert!(stage.delivered(&other).is_empty());
    stage.acknowledge(&clean, what, ReasonCode::Success);
    assert_eq!(payloads(&stage.delivered(&other)), [format!("{key}2")]);
    stage.check_account();
}

/// Publishers are not held back for a member that acknowledges nothing, however well the others do.
#[test]
fn nobody_waits_long_for_a_member_that_is_stuck() {
    let mut stage = Stage::with(Settings { brake_messages: 3, ..settings() });
    let stuck = member(&mut stage, "stuck", &Ask::lasting(60).window(1));
    let quick = member(&mut stage, "quick", &Ask::lasting(60));
    let (its, others) = (key_of(&mut stage, &stuck), key_of(&mut stage, &quick));
    let publisher = stage.client("publisher", &Ask::clean());
    for number in 1..=20 {
        stage.publish(&publisher, number, &of(&its, u32::from(number), QOS_1));
    }
    assert!(stage.stored(&publisher).len() < 20, "it may only be slow");
    for second in 0..7 {
        stage.pass_secs(1);
        stage.publish(&publisher, 100 + second, &of(&others, u32::from(second), QOS_1));
        let delivered = stage.delivered(&quick);
        acknowledge_all(&mut stage, &quick, &delivered);
    }
    stage.stored(&publisher);
    stage.publish(&publisher, 200, &of(&others, 8, QOS_1));
    assert_eq!(stage.stored(&publisher).len(), 1);
    stage.check_account();
}

/// A queue that fills for one member ends that one alone. The others get its messages, and have time to take them.
#[test]
fn a_member_that_is_stuck_ends_no_other() {
    for ask in [Ask::lasting(60), Ask::clean()] {
        let mut stage = Stage::with(Settings { queue_messages_max: 20, ..settings() });
        let stuck = member(&mut stage, "stuck", &ask.window(1));
        let quick = member(&mut stage, "quick", &Ask::lasting(60).window(1_000));
        let clean = member(&mut stage, "clean", &Ask::clean().window(1_000));
        let (its, others) = (key_of(&mut stage, &stuck), key_of(&mut stage, &quick));
        for number in 1..=40 {
            emit(&mut stage, &its, number..=number, QOS_1);
            emit(&mut stage, &others, number..=number, QOS_1);
            let delivered = stage.delivered(&quick);
            acknowledge_all(&mut stage, &quick, &delivered);
            let delivered = stage.delivered(&clean);
            acknowledge_all(&mut stage, &clean, &delivered);
        }
        assert_eq!(stage.ended(&stuck), [ReasonCode::QuotaExceeded]);
        assert_eq!((stage.ended(&quick), stage.ended(&clean)), (vec![], vec![]));
        let lasting = usize::from(stuck.subscriber.queue.is_some());
        assert_eq!(count(&stage.gauges().ended_by_full_queue), lasting);
        assert_eq!((count(&stage.gauges().acknowledged), count(&stage.gauges().queued)), (80, 0));
        stage.leave(&stuck, Cause::WithWill);
        stage.check_account();
        // Everything that has happened is recorded.
        let records: Vec<Record<'static>> =
            stage.sink.groups.iter().flat_map(|(_, group)| group.clone()).collect();
        let index = Arc::new(index::Subscriptions::new([3, 4]));
        let again = Ledger::recover(settings(), index, records, stage.now);
        assert_eq!(stage.state_of(&again), stage.state());
    }
}

/// If the others take nothing either, the queue does not grow for ever: then the group is ended, as one without keys.
#[test]
fn a_group_in_which_all_are_stuck_is_bounded() {
    let mut stage = Stage::with(Settings { queue_messages_max: 20, ..settings() });
    let members: Vec<Client> =
        (0..6).map(|number| member(&mut stage, &format!("m{number}"), &Ask::lasting(60).window(1))).collect();
    for number in 1..=200 {
        stage.emit(&of(&format!("key{number}-"), 1, QOS_1));
        stage.work();
        assert!(count(&stage.gauges().queued) <= 50 + members.len());
    }
    assert_eq!((count(&stage.gauges().sessions), count(&stage.gauges().groups)), (0, 0));
    stage.check_account();
}

/// A group with two lasting members whose bound is 20 messages. One member was stuck and is ended; more than the bound
/// waits for the other.
fn with_an_heir() -> Stage {
    let mut stage = Stage::with(Settings { queue_messages_max: 20, ..settings() });
    let stuck = member(&mut stage, "stuck", &Ask::lasting(60).window(1));
    let heir = member(&mut stage, "heir", &Ask::lasting(60).window(1));
    let (its, others) = (key_of(&mut stage, &stuck), key_of(&mut stage, &heir));
    for number in 1..=20 {
        emit(&mut stage, &its, number..=number, QOS_1);
        stage.work();
    }
    emit(&mut stage, &others, 1..=10, QOS_1);
    stage.work();
    assert_eq!((stage.ended(&stuck), stage.ended(&heir)), (vec![ReasonCode::QuotaExceeded], vec![]));
    assert!(count(&stage.gauges().queued) > 20);
    stage
}

fn restart(stage: &mut Stage) {
    let settings = Settings { queue_messages_max: 20, ..settings() };
    let (index, last) = (Arc::new(index::Subscriptions::new([3, 4])), stage.last());
    let ledger = Ledger::recover(settings, Arc::clone(&index), stage.sink.records(last), stage.now);
    stage.restart(ledger, index, last);
}

/// The members of a group whose stuck member was ended have time to take what waits, also after a restart.
#[test]
fn a_restart_ends_no_group_that_has_inherited_more_than_its_bound() {
    let mut stage = with_an_heir();
    let waiting = count(&stage.gauges().queued) + count(&stage.gauges().in_flight);
    restart(&mut stage);
    stage.emit(&of("key", 1, QOS_1));
    assert_eq!((count(&stage.gauges().sessions), count(&stage.gauges().groups)), (1, 1));
    let heir = stage.client("heir", &Ask::lasting(60));
    assert_eq!(stage.delivered(&heir).len(), waiting + 1);
    stage.check_account();
}

/// However often the process restarts while nobody takes anything.
#[test]
fn restarts_do_not_let_a_group_grow_without_bound() {
    let mut stage = with_an_heir();
    let mut queued_max = 0;
    for number in 0..10 {
        restart(&mut stage);
        for message in 1..=15 {
            stage.emit(&of(&format!("key{number}-"), message, QOS_1));
            queued_max = queued_max.max(count(&stage.gauges().queued));
        }
        // The members are ended one after the other.
        stage.work();
    }
    assert_eq!(count(&stage.gauges().sessions), 0, "its bound is reached, and the policy applies");
    // With the messages that come before the next turn.
    assert!((50..=70 + 15).contains(&queued_max), "{queued_max} messages");
}

/// Lanes without an owner are nobody's fault: the group waits until it is known who fills it.
#[test]
fn a_full_group_is_not_ended_while_its_lanes_have_no_owners() {
    let mut stage = Stage::with(Settings { queue_messages_max: 20, ..settings() });
    let first = member(&mut stage, "first", &Ask::lasting(60).window(1));
    stage.leave(&first, Cause::WithWill);
    emit(&mut stage, "k", 1..=20, QOS_1);
    stage.work();
    // They use up the claims of a turn elsewhere.
    for number in 0..10 {
        let client = stage.client(&format!("m{number}"), &Ask::lasting(60).window(1));
        stage.subscribe(&client, "$share/other/b", at_qos(QOS_1));
    }
    let first = stage.client("first", &Ask::lasting(60).window(1));
    stage.emit(&of("k", 21, QOS_1));
    assert_eq!((stage.ended(&first), count(&stage.gauges().groups)), (vec![], 2));
    // Then the member that has the lane is the one that fills the queue.
    stage.emit(&of("k", 22, QOS_1));
    assert_eq!(stage.ended(&first), [ReasonCode::QuotaExceeded]);
}
