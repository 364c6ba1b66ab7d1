//! Windows, and the choice of what is counted.

use base::ShardId;

use super::*;

const CONNECTION: ConnectionId = ConnectionId { slot: 0, generation: 0 };

fn counts(census: &Census, list: CensusList) -> Vec<(Box<str>, u64)> {
    let first = census.answer(list).ranking.first(9);
    first.into_iter().map(|ranked| (ranked.name, ranked.count)).collect()
}

fn listed(names: &[(&str, u64)]) -> Vec<(Box<str>, u64)> {
    names.iter().map(|(name, count)| ((*name).into(), *count)).collect()
}

#[test]
fn an_answer_covers_this_minute_and_the_one_before() {
    let mut census = Census::default();
    let covered = |census: &Census| census.answer(CensusList::Topics).covered_ms;
    census.begin_turn(600_500);
    census.add(CensusList::Topics, "a", 1, 1);
    census.begin_turn(659_999);
    assert_eq!((counts(&census, CensusList::Topics), covered(&census)), (listed(&[("a", 1)]), 59_499));
    census.begin_turn(660_000);
    census.add(CensusList::Topics, "a", 1, 1);
    assert_eq!((counts(&census, CensusList::Topics), covered(&census)), (listed(&[("a", 2)]), 59_500));
    census.begin_turn(720_001);
    assert_eq!((counts(&census, CensusList::Topics), covered(&census)), (listed(&[("a", 1)]), 60_001));
    // Nothing is left of minutes that nobody has looked at.
    census.begin_turn(840_000);
    assert_eq!((counts(&census, CensusList::Topics), covered(&census)), (listed(&[]), 60_000));
}

#[test]
fn all_is_counted_at_a_low_rate_and_estimated_at_a_high_one() {
    let mut sampler = Sampler::default();
    for _ in 0..3 {
        let mut estimate = 0;
        let mut chosen = 0;
        sampler.begin_second();
        for event in 0..1_000_000 {
            let weight = sampler.weight();
            if weight > 0 {
                sampler.count(1);
                (estimate, chosen) = (estimate + weight, chosen + 1);
            }
            if event == 999 {
                assert_eq!((estimate, chosen), (1_000, 1_000));
            }
        }
        assert!((950_000..1_050_000).contains(&estimate), "{estimate}");
        assert!((15_000..18_500).contains(&chosen), "{chosen}");
    }
}

#[test]
fn the_choice_has_no_rhythm() {
    // Of 64 connections that are read in turn, each is counted for about its part.
    let mut sampler = Sampler::default();
    let mut of = [0_u64; 64];
    for event in 0..640_000 {
        of[event % 64] += u64::from(sampler.weight() > 0);
    }
    assert!(of.iter().all(|count| (90..230).contains(count)), "{of:?}");
}

#[test]
fn clients_that_come_and_addresses_that_are_refused_are_counted() {
    let mut census = Census::default();
    census.begin_turn(1);
    let connected = Notice::Connected { client_id: "frog", version: Version::V5, keep_alive_secs: 60 };
    let reason = wire::ReasonCode::NotAuthorized;
    let refused = Notice::Refused { client_id: "toad", reason, why: "an unknown user" };
    let at = |port: u16| Peer::Inet(([192, 0, 2, 7], port).into());
    census.decided(&at(1), &connected);
    census.decided(&at(2), &connected);
    census.decided(&at(3), &refused);
    census.decided(&at(4), &refused);
    census.decided(&at(4), &refused);
    assert_eq!(counts(&census, CensusList::Connects), listed(&[("frog", 2)]));
    assert_eq!(counts(&census, CensusList::Refusals), listed(&[("192.0.2.7", 3)]));
}

#[test]
fn a_topic_counts_for_itself_and_for_its_first_two_branches() {
    let mut census = Census::default();
    let run =
        |topic: &str, count, bytes| Run { topic: topic.to_owned().into(), count, bytes, ..Run::default() };
    census.add_topic(1, &run("a/b/c/d", 3, 60));
    census.add_topic(64, &run("a/x", 1, 10));
    census.add_topic(1, &run("plain", 1, 10));
    let topics = [("a/x", 64), ("a/b/c/d", 3), ("plain", 1)];
    assert_eq!(counts(&census, CensusList::Topics), listed(&topics));
    assert_eq!(counts(&census, CensusList::Branches), listed(&[("a/#", 67), ("a/b/#", 3)]));
}

#[test]
fn a_turn_remembers_a_bounded_number_of_writes() {
    let mut census = Census::default();
    census.begin_turn(1);
    let mut second = |writes: usize| {
        (0..writes).for_each(|_| census.wrote(CONNECTION, 100));
        census.written.len()
    };
    // At a low rate no connection of a turn is left out.
    assert_eq!(second(1_000), 1_000);
    assert_eq!(second(100_000), WRITES_PER_TURN);
    let index = Arc::new(index::Subscriptions::new([1, 2]));
    let now = base::Now { monotonic_ms: 1, unix_ms: 1 };
    let brain = Shard::new(ShardId::new(0), Arc::default(), index, Arc::default(), None, now);
    census.end_turn(&brain);
    assert!(census.written.is_empty(), "their client is gone");
}
