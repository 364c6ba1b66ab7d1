//! A hundred connections that are cut under load, one after the other, at random: what is published with QoS 1 arrives,
//! what is published with QoS 2 arrives once, and both in the order of their publisher.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::{
    Client, Fault, Messages, Outgoing, Packet, PacketId, Qos, Role, TopicFilter, TopicName, Version,
};
use pondhawk_tests::DEADLINE;
use tokio::time::timeout;

use crate::place::{Place, Server, deliver, hear, text};
use crate::relay::Relay;

/// Number of connections that each client loses.
const CUTS: usize = 100;

/// Number of a publisher's messages in flight: a resumed connection begins with all of them.
const UNACKNOWLEDGED_MAX: usize = 30;

/// Longer than it takes on a busy machine.
const PATIENCE: Duration = DEADLINE.saturating_mul(3);

/// The last message of a publisher to a topic: behind this, how many there were.
const END: &str = "end ";

const PUBLISHERS: [&str; 2] = ["newt", "toad"];
const SUBSCRIBER: &str = "frog";

/// Length of a backlog that is enough for that, with each QoS.
const BACKLOG: u32 = 2_500;

#[tokio::test]
async fn pondhawk_loses_and_repeats_nothing_while_everybody_is_cut_off() {
    let [server, _] = Server::each();
    in_each_version(&server, storm_everywhere).await;
}

#[tokio::test]
async fn pondhawk_loses_and_repeats_nothing_while_one_end_is_cut_off() {
    let [server, _] = Server::each();
    in_each_version(&server, storm_before_and_behind).await;
}

/// Each message once or at least once; its order is Mosquitto's own affair.
#[tokio::test]
async fn through_mosquitto_nothing_is_lost_or_repeated_while_everybody_is_cut_off() {
    let server = Server::mosquitto("max_queued_messages 0\n");
    in_each_version(&server, storm_everywhere).await;
}

/// All at a time: each waits more than it computes.
async fn in_each_version(server: &Server, course: impl AsyncFn(Place<'_>)) {
    let in_version = async |version| {
        let place = Place { server, version, qos: Qos::ExactlyOnce };
        timeout(PATIENCE, course(place)).await.unwrap_or_else(|_| panic!("it takes too long: {place:?}"));
    };
    tokio::join!(in_version(Version::V3_1), in_version(Version::V3_1_1), in_version(Version::V5));
}

/// Two publishers and a subscriber, each cut off again and again at the same time.
async fn storm_everywhere(place: Place<'_>) {
    let [frog, newt, toad] = End::connect_all(&place).await;
    let mut streams = frog.subscribe(&place).await;
    let all = [&frog.relay, &newt.relay, &toad.relay];
    all.into_iter().for_each(|relay| relay.storm(CUTS));
    let is_over = |_| all.iter().all(|relay| relay.is_calm());
    let (newts, toads, heard) =
        tokio::join!(newt.publish(&place, is_over), toad.publish(&place, is_over), streams.record());
    heard.check(&place, [newts, toads], &frog.seen);
    End::leave_all([frog, newt, toad]).await;
    streams.expect_end().await;
}

/// First the publishers are cut off while the subscriber listens, then the subscriber while it gets what has been
/// published in the meantime.
async fn storm_before_and_behind(place: Place<'_>) {
    let [frog, newt, toad] = End::connect_all(&place).await;
    let mut streams = frog.subscribe(&place).await;
    [&newt.relay, &toad.relay].into_iter().for_each(|relay| relay.storm(CUTS));
    let is_over = |_| newt.relay.is_calm() && toad.relay.is_calm();
    let (newts, toads, heard) =
        tokio::join!(newt.publish(&place, is_over), toad.publish(&place, is_over), streams.record());
    heard.check(&place, [newts, toads], &frog.seen);
    frog.client.disconnect().await.expect("nothing of its own is under way");
    streams.expect_end().await;

    let is_enough = |count| count == BACKLOG;
    let (newts, toads) = tokio::join!(newt.publish(&place, is_enough), toad.publish(&place, is_enough));
    let frog = End::connect(&place, SUBSCRIBER, 3).await;
    frog.relay.storm(CUTS);
    let mut streams = frog.subscribe(&place).await;
    streams.record().await.check(&place, [newts, toads], &frog.seen);
    assert!(frog.relay.is_calm(), "there was not enough to be heard for a storm");
    End::leave_all([frog, newt, toad]).await;
    streams.expect_end().await;
}

/// A client and its way to the server.
struct End {
    name: &'static str,
    client: Client,
    relay: Relay,
    seen: Arc<Mutex<Seen>>,
}

/// Messages of QoS 2 that the server has sent, by packet identifier; those that it has released; and those that it has
/// sent again after that. The last must not happen [MQTT-4.3.3-6], and Mosquitto 2.0.11 does it: no client can
/// recognise them.
#[derive(Default)]
struct Seen {
    sent: BTreeMap<PacketId, Vec<u8>>,
    released: BTreeSet<Vec<u8>>,
    again: BTreeSet<Vec<u8>>,
}

impl Seen {
    fn see(&mut self, sender: Role, packet: &Packet<'_>) {
        match packet {
            Packet::Publish(publish)
                if sender == Role::Server && publish.delivery.qos() == Qos::ExactlyOnce =>
            {
                let topic = publish.topic.name().map(TopicName::as_str).unwrap_or_default();
                let what = [topic.as_bytes(), publish.payload].concat();
                if self.released.contains(&what) {
                    self.again.insert(what.clone());
                }
                self.sent.extend(publish.delivery.packet_id().map(|id| (id, what)));
            }
            Packet::PubRel(release) if sender == Role::Server => {
                self.released.extend(self.sent.get(&release.packet_id).cloned());
            }
            _ => {}
        }
    }

    fn has_again(&self, topic: &str, number: u32) -> bool {
        self.again.contains(&[topic.as_bytes(), number.to_string().as_bytes()].concat())
    }
}

impl End {
    async fn connect(place: &Place<'_>, name: &'static str, seed: u64) -> Self {
        let relay = Relay::start(place.server.address(), seed).await;
        let options = place.lasting(&format!("{name} {}", place.version));
        let options = options.reconnect(Duration::from_millis(10), Duration::from_millis(10));
        let seen = Arc::<Mutex<Seen>>::default();
        let watched = Arc::clone(&seen);
        let see = move |sender, packet: &Packet<'_>| watched.lock().expect("no panic").see(sender, packet);
        let client = Client::connect_tcp(relay.address(), options.trace(see)).await.expect("it is accepted");
        Self { name, client, relay, seen }
    }

    /// The subscriber comes first.
    async fn connect_all(place: &Place<'_>) -> [Self; 3] {
        let [newt, toad] = PUBLISHERS;
        [
            Self::connect(place, SUBSCRIBER, 0).await,
            Self::connect(place, newt, 1).await,
            Self::connect(place, toad, 2).await,
        ]
    }

    async fn leave_all(ends: [Self; 3]) {
        for end in ends {
            end.client.disconnect().await.expect("everything is acknowledged");
        }
    }

    async fn subscribe(&self, place: &Place<'_>) -> Streams {
        let mut streams = Vec::new();
        for qos in [Qos::ExactlyOnce, Qos::AtLeastOnce] {
            let filter = topic(place, "+", qos);
            let filter = TopicFilter::try_from(filter.as_str()).expect("a filter");
            streams.push(self.subscribe_to(filter, qos).await);
        }
        let [once, at_least_once] = streams.try_into().expect("two");
        Streams { once, at_least_once }
    }

    /// A request is lost with its connection: it is asked for again.
    async fn subscribe_to(&self, filter: TopicFilter<'_>, qos: Qos) -> Messages {
        loop {
            match self.client.subscribe(filter, qos).await {
                Ok(messages) => return messages,
                Err(error) => assert_eq!(error.fault(), Fault::Network, "{error}"),
            }
        }
    }

    /// Publishes a number, and then the next one, with both QoS, until that is enough of them. Returns how many there
    /// were.
    async fn publish(&self, place: &Place<'_>, is_enough: impl Fn(u32) -> bool) -> (&'static str, u32) {
        let topics = [Qos::AtLeastOnce, Qos::ExactlyOnce].map(|qos| (topic(place, self.name, qos), qos));
        let mut under_way = VecDeque::new();
        let mut count = 0_u32;
        while !is_enough(count) {
            let payload = count.to_string();
            for topic in &topics {
                let acknowledgement = self.client.publish(&message(topic, payload.as_bytes())).await;
                under_way.push_back(acknowledgement.expect("it is queued"));
            }
            while under_way.len() >= UNACKNOWLEDGED_MAX
                && let Some(acknowledgement) = under_way.pop_front()
            {
                acknowledgement.await.expect("it is taken, now or later");
            }
            count += 1;
        }
        let end = format!("{END}{count}");
        for topic in &topics {
            deliver(&self.client, &message(topic, end.as_bytes())).await;
        }
        for acknowledgement in under_way {
            acknowledgement.await.expect("it is taken");
        }
        (self.name, count)
    }
}

fn topic(place: &Place<'_>, publisher: &str, qos: Qos) -> String {
    format!("storm/{}/{publisher}/{}", place.version, qos.level())
}

fn message<'m>((topic, qos): &'m (String, Qos), payload: &'m [u8]) -> Outgoing<'m> {
    Outgoing::new(TopicName::try_from(topic.as_str()).expect("a name"), payload).qos(*qos)
}

/// Messages that the subscriber has of every publisher, by QoS.
struct Streams {
    once: Messages,
    at_least_once: Messages,
}

/// The numbers of each publisher, as they came.
type Numbers = BTreeMap<&'static str, Vec<u32>>;

struct Heard {
    once: Numbers,
    at_least_once: Numbers,
}

impl Streams {
    /// Until every publisher has ended.
    async fn record(&mut self) -> Heard {
        let (once, at_least_once) = tokio::join!(record(&mut self.once), record(&mut self.at_least_once));
        Heard { once, at_least_once }
    }

    async fn expect_end(&mut self) {
        assert!(self.once.next().await.is_none(), "nothing comes behind the last one");
    }
}

impl Heard {
    fn check(&self, place: &Place<'_>, counts: [(&'static str, u32); 2], seen: &Mutex<Seen>) {
        println!("{place:?}: {counts:?}");
        for (publisher, count) in counts {
            let (mut once, mut first) = (self.once[publisher].clone(), self.at_least_once[publisher].clone());
            if matches!(place.server, Server::Mosquitto(_)) {
                [&mut once, &mut first].into_iter().for_each(|numbers| numbers.sort_unstable());
                let (topic, seen) =
                    (topic(place, publisher, Qos::ExactlyOnce), seen.lock().expect("no panic"));
                once.dedup_by(|a, b| a == b && seen.has_again(&topic, *a));
            }
            first = without_repetitions(&first);
            for (qos, numbers) in [(2, &once), (1, &first)] {
                assert_eq!(wrong(numbers, count), [0; 0], "QoS {qos}, {publisher}, {place:?}");
            }
        }
    }
}

/// Until everything is there that a publisher says there is: Mosquitto may say it before the rest.
async fn record(messages: &mut Messages) -> Numbers {
    let mut record = Numbers::from(PUBLISHERS.map(|name| (name, Vec::new())));
    let mut missing = BTreeMap::from(PUBLISHERS.map(|name| (name, Missing::default())));
    while !missing.values().all(Missing::is_nothing) {
        let message = hear(messages).await;
        let topic = message.topic().as_str();
        let publisher = PUBLISHERS.into_iter().find(|name| topic.contains(name)).expect("one of them");
        let missing = missing.entry(publisher).or_default();
        let payload = text(message.payload());
        if let Some(count) = payload.strip_prefix(END) {
            missing.count = Some(count.parse().expect("a number"));
        } else {
            let number = payload.parse().expect("a number");
            missing.heard.insert(number);
            record.entry(publisher).or_default().push(number);
        }
    }
    record
}

/// Messages of a publisher that have not arrived.
#[derive(Default)]
struct Missing {
    heard: BTreeSet<u32>,
    count: Option<usize>,
}

impl Missing {
    fn is_nothing(&self) -> bool {
        self.count.is_some_and(|count| self.heard.len() >= count)
    }
}

/// Messages that are missing or misplaced: every number should occur once and in order.
fn wrong(numbers: &[u32], count: u32) -> Vec<u32> {
    let missing = (0..count).filter(|number| !numbers.contains(number));
    let misplaced = numbers.windows(2).filter(|pair| pair[1] != pair[0] + 1).map(|pair| pair[1]);
    missing.chain(misplaced).collect()
}

/// With QoS 1 what has come may come again, with what came behind it.
fn without_repetitions(numbers: &[u32]) -> Vec<u32> {
    let mut first: Vec<u32> = Vec::new();
    for number in numbers {
        if first.last().is_none_or(|last| number > last) {
            first.push(*number);
        }
    }
    first
}
