//! How lookups, changes and memory grow with the number of subscriptions: `cargo bench -p pondhawk-index`.
//!
//! Subscriptions are those of a plant: a site, a hall, a line, a device, what it measures, and sometimes a channel. 70 %
//! name a topic, 20 % have one or two `+`, 10 % end in `#`; nearly all stay with one device, and there are more devices
//! the more subscriptions there are. Everything is drawn with a fixed seed.

mod counting_allocator;
mod plant;

use base::Identity;
use counting_allocator::{CountingAllocator, Tally};
use index::{Change, Index};
use plant::{Plant, Random};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};
use topic::{TopicFilterBuf, TopicNameBuf};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

type Plain = Index<Arc<u64>, u32>;
type Subscription = (TopicFilterBuf, Arc<u64>);

/// As many changes as a busy turn of a broker might bring.
const BATCH: usize = 64;
const LOOKUPS: usize = 200_000;

fn main() {
    println!("Growth: 70 % exact, 20 % with +, 10 % with #; topics of 3 to 6 levels, drawn at random\n");
    header(&[
        "subscriptions",
        "filters",
        "shapes",
        "bytes each",
        "lookup ns",
        "matches",
        "lookup without match ns",
        "subscribe ns",
        "unsubscribe ns",
        "slowest 64 subscribes µs",
        "slowest 64 unsubscribes µs",
    ]);
    for subscriptions in [1_000, 10_000, 100_000, 1_000_000] {
        growth(subscriptions);
    }
    println!("\nMany subscribers of one filter\n");
    header(&["subscribers", "bytes each", "lookup ns each", "subscribe ns", "unsubscribe ns"]);
    for subscribers in [100, 1_000, 10_000, 100_000] {
        one_filter(subscribers);
    }
    println!("\nHostile filters: every mix of + and names\n");
    header(&["levels", "filters", "shapes", "lookup µs", "matches", "lookup without match µs"]);
    for (levels, filters) in [(5, 1_000), (8, 10_000), (100, 1_000), (100, 10_000), (100, 100_000)] {
        hostile(levels, filters);
    }
}

fn header(columns: &[&str]) {
    println!("| {} |", columns.join(" | "));
    println!("|{}", "--:|".repeat(columns.len()));
}

fn growth(subscriptions: usize) {
    let plant = Plant::with_devices(subscriptions / 10);
    let mut random = Random::new(1);
    let wanted: Vec<Subscription> =
        (0..subscriptions).map(|number| (plant.filter(&mut random), Arc::new(number as u64))).collect();
    let topics: Vec<TopicNameBuf> = (0..LOOKUPS).map(|_| plant.topic(&mut random)).collect();
    let foreign: Vec<TopicNameBuf> =
        topics.iter().map(|topic| plant::name(&topic.name().as_str().replace("device", "engine"))).collect();

    let before = Tally::now();
    let index = Plain::new([3, 4]);
    let subscribed = subscribe(&index, &wanted);
    let held = Tally::now().bytes_held - before.bytes_held;
    assert!(held.abs_diff(index.bytes() as u64) <= held / 50, "{held} held, {} told", index.bytes());

    let (len, filters, shapes) = (index.len(), index.filters(), index.shapes());
    let (matched_ns, matches) = lookups(&index, &topics);
    let (missed_ns, _) = lookups(&index, &foreign);
    let unsubscribed = unsubscribe(&index, &wanted);
    println!(
        "| {len} | {filters} | {shapes} | {:.0} | {matched_ns:.0} | {matches:.1} | {missed_ns:.0} | {:.0} | {:.0} | {:.0} | {:.0} |",
        held as f64 / len as f64,
        subscribed.ns_each,
        unsubscribed.ns_each,
        subscribed.longest.as_secs_f64() * 1e6,
        unsubscribed.longest.as_secs_f64() * 1e6,
    );
    assert_eq!((index.len(), index.filters(), index.shapes()), (0, 0, 0));
}

fn one_filter(count: usize) {
    let mut subscribers: Vec<Subscription> =
        (0..count).map(|number| (plant::filter("plant/+/alarm"), Arc::new(number as u64))).collect();
    let index = Plain::new([3, 4]);
    let before = Tally::now();
    let subscribed = subscribe(&index, &subscribers);
    let held = Tally::now().bytes_held - before.bytes_held;
    let (ns, _) = lookups(&index, &vec![plant::name("plant/7/alarm"); 1_000_000 / count]);
    Random::new(2).shuffle(&mut subscribers);
    let unsubscribed = unsubscribe(&index, &subscribers);
    println!(
        "| {count} | {:.0} | {:.1} | {:.0} | {:.0} |",
        held as f64 / count as f64,
        ns / count as f64,
        subscribed.ns_each,
        unsubscribed.ns_each
    );
}

fn hostile(levels: usize, count: usize) {
    let mut random = Random::new(5);
    let filters: Vec<Subscription> = (0..count)
        .map(|number| (plant::mixed_filter(levels, &mut random), Arc::new(number as u64)))
        .collect();
    let index = Plain::new([3, 4]);
    subscribe(&index, &filters);
    let levels_of = |first| (first..levels).map(plant::level_name).collect::<Vec<_>>().join("/");
    let lookups_of = |topic: String| lookups(&index, &vec![plant::name(&topic); 1_000_000 / count]);
    let (ns, matches) = lookups_of(levels_of(0));
    // Of the same depth, but no name is where a filter wants it.
    let (missed_ns, missed) = lookups_of(format!("{}/0", levels_of(1)));
    println!(
        "| {levels} | {} | {} | {:.1} | {matches:.0} | {:.1} |",
        index.filters(),
        index.shapes(),
        ns / 1e3,
        missed_ns / 1e3
    );
    assert!(missed <= matches);
}

/// Nanoseconds per lookup, and matches per lookup.
fn lookups(index: &Plain, topics: &[TopicNameBuf]) -> (f64, f64) {
    let (mut matches, mut sum) = (0_u64, 0_u64);
    let begin = Instant::now();
    for topic in topics {
        index.for_each_match(topic.name(), |subscriber, options| {
            matches += 1;
            sum = sum.wrapping_add(subscriber.identity() ^ u64::from(*options));
        });
    }
    let took = begin.elapsed();
    black_box(sum);
    (took.as_nanos() as f64 / topics.len() as f64, matches as f64 / topics.len() as f64)
}

struct Changed {
    ns_each: f64,
    longest: Duration,
}

fn subscribe(index: &Plain, wanted: &[Subscription]) -> Changed {
    change(index, wanted, |(filter, subscriber)| Change::Subscribe {
        filter: filter.filter(),
        subscriber,
        options: 1,
    })
}

fn unsubscribe(index: &Plain, unwanted: &[Subscription]) -> Changed {
    change(index, unwanted, |(filter, subscriber)| Change::Unsubscribe {
        filter: filter.filter(),
        subscriber,
    })
}

fn change<'a>(
    index: &Plain,
    all: &'a [Subscription],
    change: impl Fn(&'a Subscription) -> Change<'a, Arc<u64>, u32>,
) -> Changed {
    let mut applied = Vec::with_capacity(BATCH);
    let (mut total, mut longest) = (Duration::ZERO, Duration::ZERO);
    for batch in all.chunks(BATCH) {
        applied.clear();
        let begin = Instant::now();
        index.apply(batch.iter().map(&change), &mut applied);
        let took = begin.elapsed();
        total += took;
        longest = longest.max(took);
    }
    Changed { ns_each: total.as_nanos() as f64 / all.len() as f64, longest }
}
