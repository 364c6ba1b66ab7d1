//! Limits on the cost of a bounded log. While few records are live, no message is refused for long. The log is never
//! longer than its limit, and not much longer than necessary when nothing happens.

use journal::{SEGMENTS_BEYOND_LIMIT, Settings};

use crate::broker::Space;

/// Maximum time for which records may be refused, in milliseconds, if everybody had enough turns meanwhile.
const REFUSED_MS: u64 = 5_000;
/// Number of rounds in which everybody must have had a turn before a refusal is a failure.
const REFUSED_TURNS: u64 = 20;
/// Minimum limit, in segments of the shortest length.
const SEGMENTS_MIN: u64 = 8;
/// Minimum limit of a log of which half may be live, in segments of the shortest length.
const SEGMENTS_OF_HALF: u64 = 32;
/// Bytes in the directory beside segments.
const OTHER_BYTES: u64 = 4_096;

/// The judge of the space.
#[derive(Debug, Default)]
pub(crate) struct SpaceJudge {
    limit_bytes: u64,
    /// With less there is no promise: the segment that is written to and two spare ones are most of the log.
    is_fair: bool,
    /// With more that is live there is no promise either.
    live_bytes_most: u64,
    /// Maximum bytes of the directory: more than the limit if an operator has lowered it.
    allowed_bytes: u64,
    /// When somebody was refused for the first time since something was taken.
    refused: Option<Refused>,
    before: Space,
    /// Number of rounds in which everybody had a turn.
    turns: u64,
}

#[derive(Debug, Clone, Copy)]
struct Refused {
    at_ms: u64,
    turns: u64,
}

impl SpaceJudge {
    /// A process begins, possibly with other settings, on a directory of this size.
    pub(crate) fn begin(&mut self, settings: &Settings, begun_bytes: u64) {
        let limit_bytes = settings.disk_bytes_max;
        let is_fair = limit_bytes >= SEGMENTS_MIN * u64::from(settings.segment_bytes_min);
        let is_long = limit_bytes >= SEGMENTS_OF_HALF * u64::from(settings.segment_bytes_min);
        let live_bytes_most = if is_long { limit_bytes / 2 } else { limit_bytes / 3 };
        // It does not grow with each restart.
        let allowed_bytes = match limit_bytes == self.limit_bytes {
            true => self.allowed_bytes,
            false => limit_bytes.max(begun_bytes),
        };
        *self = Self { limit_bytes, is_fair, live_bytes_most, allowed_bytes, ..Self::default() };
    }

    /// Everybody has had a turn, and the disk had the time that it takes.
    pub(crate) fn had_turns(&mut self) {
        self.turns += 1;
    }

    /// Checks the size of the directory. If copies of the oldest segment, or records that free space, find no space,
    /// there may be some more segments for a while. Without them there would never be space again.
    ///
    /// # Errors
    /// More than it may.
    pub(crate) fn takes(&self, bytes: u64, largest_bytes: u64) -> Result<(), String> {
        let Self { limit_bytes, allowed_bytes, .. } = *self;
        if bytes <= allowed_bytes + SEGMENTS_BEYOND_LIMIT * largest_bytes + OTHER_BYTES {
            return Ok(());
        }
        Err(format!("the log takes {bytes} bytes of {limit_bytes}, where {allowed_bytes} are allowed"))
    }

    /// The ledger has had a turn. `is_hindered`: the disk is slow, full, or fails.
    ///
    /// # Errors
    /// Somebody is refused for too long although there is little that is live.
    pub(crate) fn look(&mut self, space: Space, is_hindered: bool, now_ms: u64) -> Result<(), String> {
        let Self { before, turns, limit_bytes, .. } = *self;
        self.before = space;
        let is_hindered = is_hindered || self.may_refuse(space);
        if is_hindered || space.taken > before.taken {
            self.refused = None;
        }
        if is_hindered || space.refused <= before.refused {
            return Ok(());
        }
        let Refused { at_ms, turns: at_turn } = *self.refused.get_or_insert(Refused { at_ms: now_ms, turns });
        if now_ms - at_ms <= REFUSED_MS || turns - at_turn <= REFUSED_TURNS {
            return Ok(());
        }
        Err(format!(
            "for {} ms everything is refused, although the limit is {limit_bytes} bytes: {}",
            now_ms - at_ms,
            words(space)
        ))
    }

    /// Whether messages may be refused until clients receive stored messages: too much of the limit is live, or the
    /// limit is too low.
    pub(crate) fn may_refuse(&self, space: Space) -> bool {
        !self.is_fair || space.live_bytes > self.live_bytes_most
    }

    /// Nothing has happened for a long time.
    ///
    /// # Errors
    /// The log is longer than it should be.
    pub(crate) fn settle(&self, space: Space, largest_bytes: u64, used_bytes: u64) -> Result<(), String> {
        let Space { live_bytes, log_bytes, .. } = space;
        if self.may_refuse(space) {
            return Ok(());
        }
        // A quarter may be over by now, and large messages leave up to half of each segment unused.
        let worth_bytes = 2 * (live_bytes + live_bytes / 4) + 3 * largest_bytes;
        if log_bytes > worth_bytes {
            return Err(format!(
                "the log is left longer than what is live is worth, which is {worth_bytes} bytes: {}",
                words(space)
            ));
        }
        if used_bytes > self.limit_bytes + OTHER_BYTES {
            return Err(format!(
                "the directory takes {used_bytes} bytes of {}, and is left so: {}",
                self.limit_bytes,
                words(space)
            ));
        }
        Ok(())
    }
}

fn words(space: Space) -> String {
    let Space { live_bytes, log_bytes, segments, spares, taken, refused } = space;
    format!(
        "{live_bytes} bytes live, {log_bytes} in {segments} segments, {spares} spare ones; {taken} messages taken, {refused} refused"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT_BYTES: u64 = 1_000_000;
    const HAPPY: Space =
        Space { live_bytes: 100_000, log_bytes: 500_000, segments: 5, spares: 2, taken: 1, refused: 0 };

    /// Makes the judge of a process with a limit, whose directory had this size before.
    fn judge(begun_bytes: u64) -> SpaceJudge {
        let mut judge = SpaceJudge::default();
        let settings =
            Settings { disk_bytes_max: LIMIT_BYTES, segment_bytes_min: 64 << 10, ..Settings::default() };
        judge.begin(&settings, begun_bytes);
        judge
    }

    #[test]
    fn no_restart_adds_to_what_is_allowed() {
        let mut judge = judge(0);
        let settings =
            Settings { disk_bytes_max: LIMIT_BYTES, segment_bytes_min: 64 << 10, ..Settings::default() };
        judge.begin(&settings, LIMIT_BYTES + (64 << 10));
        assert!(judge.takes(LIMIT_BYTES + (256 << 10), 64 << 10).is_err());
    }

    /// Returns the judgement about a second refusal, this number of milliseconds and turns after the first.
    fn second(space: Space, is_hindered: bool, ms: u64, turns: u64) -> Result<(), String> {
        let mut judge = judge(0);
        assert_eq!(judge.look(Space { refused: 1, ..space }, is_hindered, 7), Ok(()));
        (0..turns).for_each(|_| judge.had_turns());
        judge.look(Space { refused: 2, ..space }, is_hindered, 7 + ms)
    }

    #[test]
    fn nobody_is_refused_for_long_where_little_is_live() {
        let (ms, turns) = (REFUSED_MS + 1, REFUSED_TURNS + 1);
        assert!(second(HAPPY, false, ms, turns).is_err());
        assert!(second(HAPPY, false, ms, 3).is_ok(), "nobody had the time to make room");
        assert!(second(HAPPY, false, 100, turns).is_ok(), "not for long");
        assert!(second(HAPPY, true, ms, turns).is_ok(), "the disk is full");
        let live_bytes = LIMIT_BYTES / 3 + 1;
        assert!(second(Space { live_bytes, ..HAPPY }, false, ms, turns).is_ok(), "there is no room");
    }

    /// Half of a limit of many segments may be live, a third of one of few segments; with fewer than eight segments
    /// nothing is promised.
    #[test]
    fn refusals_are_excused_by_what_is_live_beside_the_limit() {
        let may_refuse = |segments: u64, live_percent: u64| {
            let mut judge = SpaceJudge::default();
            let disk_bytes_max = segments * (64 << 10);
            let settings = Settings { disk_bytes_max, segment_bytes_min: 64 << 10, ..Settings::default() };
            judge.begin(&settings, 0);
            judge.may_refuse(Space { live_bytes: disk_bytes_max / 100 * live_percent, ..HAPPY })
        };
        assert_eq!(
            [(32, 49), (32, 52), (31, 33), (31, 35), (8, 33), (7, 1)]
                .map(|(segments, percent)| may_refuse(segments, percent)),
            [false, true, false, true, false, true]
        );
    }

    #[test]
    fn an_accepted_message_ends_a_refusal() {
        let mut judge = judge(0);
        for round in 0..10 {
            let space = Space { refused: round, taken: round, ..HAPPY };
            assert_eq!(judge.look(space, false, round * 2 * REFUSED_MS), Ok(()));
            (0..2 * REFUSED_TURNS).for_each(|_| judge.had_turns());
        }
    }

    #[test]
    fn the_log_is_not_longer_than_it_may_be_unless_it_was() {
        let takes = |begun_bytes, bytes| judge(begun_bytes).takes(bytes, 64 << 10).is_ok();
        assert!(takes(0, LIMIT_BYTES + (192 << 10)) && !takes(0, LIMIT_BYTES + (256 << 10)));
        assert!(takes(2_000_000, 2_192_000) && !takes(2_000_000, 2_264_000));
    }

    #[test]
    fn in_the_end_the_log_is_what_it_is_worth_and_below_its_limit() {
        let segment_bytes = 100_000;
        let settle = |log_bytes, used_bytes| {
            judge(3_000_000).settle(Space { log_bytes, ..HAPPY }, segment_bytes, used_bytes).is_ok()
        };
        assert!(settle(550_000, 700_000));
        assert!(!settle(600_000, 700_000), "it has not shrunk");
        assert!(!settle(550_000, 1_100_000), "the limit was lowered");
    }
}
