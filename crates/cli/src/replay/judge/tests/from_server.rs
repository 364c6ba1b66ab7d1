//! Messages of the server, in sessions whose connections end within exchanges by hand or at random.
//!
//! All messages have one of two contents: a counterpart that is lost would shift the later ones.

use std::collections::VecDeque;
use std::time::Duration;

use wire::{Qos, Version};

use super::super::super::past::Moment;
use super::model::{AT_LEAST_ONCE, AtEnd, Chance, EXACTLY_ONCE, Play, Recorder, Server};
use super::{Message, judge};

/// A recording whose first connection ends after this number of packets that follow PUBLISH. The server has read the last
/// answer of the client, or not. Equal messages follow on the next connection.
fn cut_after(version: Version, qos: Qos, packets: usize, reads: usize) -> Recorder {
    let mut recorder = Recorder::new(version);
    recorder.publish((qos, b'a'));
    for packet in 0..packets {
        assert!(if packet % 2 == 0 { recorder.answer() } else { recorder.read() });
    }
    recorder.end(reads);
    recorder.open();
    recorder.complete();
    for _ in 0..3 {
        recorder.publish((qos, b'a'));
        recorder.complete();
    }
    recorder
}

const SHORT: Duration = Duration::from_millis(1);

#[test]
fn a_message_of_the_server_is_resumed_at_each_stage_ahead_and_behind() {
    let stages = (0..=3).map(|packets| (EXACTLY_ONCE, packets));
    for (qos, packets) in stages.chain([(AT_LEAST_ONCE, 0), (AT_LEAST_ONCE, 1)]) {
        for (recorded, replayed) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            for (receives, version) in
                [(false, Version::V3_1_1), (true, Version::V3_1_1), (true, Version::V3_1)]
            {
                let chance = AtEnd { reads: replayed, receives };
                let case = format!(
                    "{version:?}, {qos:?}, {packets} packets after PUBLISH; the last answer was read {recorded} times in the recording, \
                     and {replayed} times in the replay, whose client receives at the end: {receives}"
                );
                // Without the packet that the recording has, the replay waits in vain once.
                let is_lost = !receives && packets % 2 == 0;
                let mut played = Play::of(cut_after(version, qos, packets, recorded), chance, SHORT);
                played.gave_up = played.gave_up.saturating_sub(u32::from(is_lost));
                played.assert_clean(&case);
            }
        }
    }
}

#[test]
fn a_message_that_arrives_before_the_end_of_a_connection_may_be_recorded_behind_it() {
    for qos in [AT_LEAST_ONCE, EXACTLY_ONCE] {
        let mut recorder = Recorder::new(Version::V3_1_1);
        recorder.complete();
        recorder.publish_late((qos, b'a'));
        recorder.end(0);
        recorder.open();
        recorder.complete();
        recorder.publish((qos, b'a'));
        recorder.complete();
        let played = Play::of(recorder, AtEnd { reads: 0, receives: true }, SHORT);
        played.assert_clean(&format!("{qos:?}"));
    }
}

#[test]
fn an_answer_that_the_recorded_client_sent_before_a_late_message_is_sent_when_the_message_arrives() {
    let mut recorder = Recorder::new(Version::V3_1_1);
    recorder.publish((EXACTLY_ONCE, b'a'));
    recorder.complete();
    let mut late = None;
    let mut play = Play {
        judge: judge(),
        server: Server::new(Version::V3_1_1, Some(101)),
        connection: 0,
        to_client: VecDeque::new(),
        to_server: VecDeque::new(),
        chance: AtEnd { reads: 0, receives: true },
        moment: Moment { step: 0, time: Duration::ZERO },
        pause: SHORT,
        gave_up: 0,
    };
    for event in recorder.events {
        play.step(event);
        if let Some(at) = play.to_client.iter().position(|packet| packet[0] == 0x34) {
            late = play.to_client.remove(at);
        }
    }
    play.to_client.extend(late);
    while play.progress() {}
    assert!(play.server.open.is_empty());
    assert_eq!(play.judge.finish().differences(), 0);
}

/// Numbers that depend on the seed only (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u32) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let below = (mixed ^ (mixed >> 31)) % u64::from(limit);
        usize::try_from(below).expect("it is below 32 bits")
    }

    fn message(&mut self) -> Message {
        ([AT_LEAST_ONCE, EXACTLY_ONCE][self.below(2)], b"ab"[self.below(2)])
    }
}

impl Chance for Random {
    fn arrivals(&mut self) -> usize {
        self.below(4)
    }

    fn reads_at_end(&mut self) -> usize {
        self.below(6)
    }

    fn receives_at_end(&mut self) -> bool {
        self.below(2) == 0
    }
}

fn random_recording(version: Version, random: &mut Random) -> Recorder {
    let mut recorder = Recorder::new(version);
    for _ in 0..12 {
        for _ in 0..random.below(24) {
            match random.below(8) {
                0..3 => recorder.publish(random.message()),
                3..6 => drop(recorder.answer()),
                _ => drop(recorder.read()),
            }
        }
        if random.below(3) == 0 {
            recorder.publish_late(random.message());
        }
        recorder.end(random.below(6));
        for _ in 0..random.below(3) {
            recorder.publish(random.message());
        }
        recorder.open();
    }
    recorder.complete();
    recorder
}

#[test]
fn connections_that_end_at_random_leave_no_exchange_open_and_no_difference() {
    for seed in 0..100 {
        let version = [Version::V3_1, Version::V3_1_1][(seed / 2 % 2) as usize];
        let recorder = random_recording(version, &mut Random(seed));
        // Longer pauses let the judge acknowledge messages that were not recorded in time.
        let pause = [SHORT, Duration::from_millis(300)][(seed % 2) as usize];
        let mut played = Play::of(recorder, Random(seed + 1_000_000), pause);
        // Packets that are lost at the end of a connection are waited for.
        played.gave_up = 0;
        played.assert_clean(&format!("seed {seed}"));
    }
}

#[test]
fn a_message_that_a_resumed_session_has_lost_is_missing() {
    for qos in [AT_LEAST_ONCE, EXACTLY_ONCE] {
        let server = Server { is_faulty: true, ..Server::new(Version::V3_1_1, Some(101)) };
        let played = Play::with(
            server,
            cut_after(Version::V3_1_1, qos, 0, 0),
            AtEnd { reads: 0, receives: true },
            SHORT,
        );
        assert_eq!(played.report.differences(), 1, "{qos:?}: {}", played.report.text());
        assert_eq!(played.open, 0);
    }
}
