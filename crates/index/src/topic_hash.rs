//! One topic name, hashed once for all filters that could match it.

use crate::hash::LevelHash;

/// Topics of up to so many levels need no allocation.
const INLINE_LEVELS: usize = 16;

/// The levels of a topic name with the sums that hashes of filters are made of.
#[derive(Debug)]
pub(crate) struct TopicHash {
    inline: [LevelSums; INLINE_LEVELS],
    spilled: Vec<LevelSums>,
    count: usize,
    is_hidden: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct LevelSums {
    /// The hash of the name up to and with this level.
    through: u64,
    /// What is added to the hash where a `+` stands instead of this level.
    plus_instead: u64,
}

impl TopicHash {
    pub(crate) fn new(topic: &str, hash: &LevelHash) -> Self {
        let mut levels = Self {
            inline: Default::default(),
            spilled: Vec::new(),
            count: 0,
            is_hidden: topic.starts_with('$'),
        };
        let mut through = 0_u64;
        for (position, name) in topic.split('/').enumerate() {
            let own = hash.level(position, name);
            through = through.wrapping_add(own);
            levels.push(LevelSums { through, plus_instead: hash.level(position, "+").wrapping_sub(own) });
        }
        levels
    }

    fn push(&mut self, level: LevelSums) {
        match self.inline.get_mut(self.count) {
            Some(free) => *free = level,
            None => {
                if self.spilled.is_empty() {
                    self.spilled.extend_from_slice(&self.inline);
                }
                self.spilled.push(level);
            }
        }
        self.count += 1;
    }

    fn sums(&self) -> &[LevelSums] {
        if self.spilled.is_empty() { &self.inline[..self.count] } else { &self.spilled }
    }

    /// How many levels the name has, at least 1.
    pub(crate) fn levels(&self) -> usize {
        self.count
    }

    /// Whether it begins with `$`, which no filter that begins with a wildcard matches [MQTT-4.7.2-1].
    pub(crate) fn is_hidden(&self) -> bool {
        self.is_hidden
    }

    /// The hash of the first `levels` levels.
    pub(crate) fn prefix(&self, levels: usize) -> u64 {
        levels.checked_sub(1).map_or(0, |last| self.sums()[last].through)
    }

    /// The change to the hash if `+` stands at these positions, all of which the name has.
    pub(crate) fn with_pluses(&self, positions: &[u16]) -> u64 {
        let sums = self.sums();
        positions.iter().fold(0, |sum, position| sum.wrapping_add(sums[usize::from(*position)].plus_instead))
    }
}
