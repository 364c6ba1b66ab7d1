//! The order of PUBREL packets, which is the order in which PUBREC packets came (MQTT 5.0, 4.6), after crashes too.

use std::collections::VecDeque;
use std::sync::Arc;

use index::Subscriptions;
use ledger::{Ledger, Record, Settings};
use protocol::{Cause, Delivered, Reply};
use wire::{PacketId, ReasonCode};

use crate::stage::{Ask, Client, QOS_2, Stage, at_qos, id_of, message};

/// Numbers that look random, and are the same in each run.
struct Draws(u64);

impl Draws {
    /// A number below `bound`.
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % bound
    }
}

/// The client comes back. Returns the identifiers of the PUBREL packets that it gets, in their order.
fn comes_back(stage: &mut Stage) -> (Client, Vec<PacketId>) {
    let client = stage.client("subscriber", &Ask::lasting(60).window(1_000));
    let releases = stage.sink.replies.iter().filter_map(|(_, reply)| match reply {
        Reply::Release { packet_id, .. } => Some(*packet_id),
        _ => None,
    });
    let releases = releases.collect();
    (client, releases)
}

/// Cleans a part of the log, as far as the process comes before a crash.
fn clean(stage: &mut Stage, draws: &mut Draws) {
    let before = stage.sink.groups.len();
    let cut = draws.below(before + 1);
    let old = stage.sink.groups[..cut].iter().flat_map(|(_, group)| group.iter().cloned());
    let mut old: VecDeque<Record<'static>> = old.collect();
    while stage.ledger.copy_some(&mut old, &mut stage.sink) {}
    assert!(old.is_empty(), "nothing stands in the way");
    if draws.below(3) == 0 {
        let copied = stage.sink.groups.len() - before;
        stage.sink.groups.truncate(before + draws.below(copied + 1));
        crash(stage);
    } else {
        stage.sink.groups.drain(..cut);
        if draws.below(3) == 0 {
            crash(stage);
        }
    }
}

fn crash(stage: &mut Stage) {
    let index = Arc::new(Subscriptions::new([1, 2]));
    let last = stage.sink.groups.last().expect("there are records").0;
    let records = stage.sink.groups.iter().flat_map(|(_, group)| group.iter().cloned());
    let ledger = Ledger::recover(Settings::default(), Arc::clone(&index), records, stage.now);
    stage.restart(ledger, index, last);
    stage.work();
}

/// The client answers some messages with PUBREC, in an order of its own, and some PUBREL packets with PUBCOMP.
fn answer(stage: &mut Stage, client: &Client, draws: &mut Draws, expected: &mut Vec<PacketId>) {
    (0..draws.below(5)).for_each(|_| stage.emit(&message("a", b"x", QOS_2)));
    let mut sent: Vec<PacketId> = stage.delivered(client).iter().map(id_of).collect();
    for _ in 0..draws.below(sent.len() + 1) {
        let id = sent.remove(draws.below(sent.len()));
        stage.received(client, id);
        expected.push(id);
    }
    for _ in 0..draws.below(expected.len() / 2 + 1) {
        let packet_id = expected.remove(draws.below(expected.len()));
        let what = Delivered::Session { queue: client.queue(), packet_id };
        stage.acknowledge(client, what, ReasonCode::Success);
    }
}

#[test]
fn exchanges_go_on_in_the_order_of_pubrec_wherever_the_log_is_cleaned_and_cut() {
    for seed in 0..60 {
        let mut draws = Draws(seed);
        let mut stage = Stage::new();
        let client = stage.client("subscriber", &Ask::lasting(60));
        stage.subscribe(&client, "a", at_qos(QOS_2));
        stage.leave(&client, Cause::WithWill);
        let mut expected = Vec::new();
        for round in 0..30 {
            let (client, releases) = comes_back(&mut stage);
            assert_eq!(releases, expected, "round {round} of seed {seed}");
            answer(&mut stage, &client, &mut draws, &mut expected);
            stage.leave(&client, Cause::WithWill);
            stage.replies();
            clean(&mut stage, &mut draws);
        }
    }
}
