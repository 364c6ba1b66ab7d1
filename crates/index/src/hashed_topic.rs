//! One topic name, hashed once for all filters that could match it.

use crate::hash::LevelHash;
use topic::TopicName;

/// Number of levels up to which a topic needs no allocation.
const INLINE_LEVELS: usize = 8;

/// A topic name with the parts of the hashes of all matching filters.
#[derive(Debug)]
pub(crate) struct HashedTopic<'a> {
    name: TopicName<'a>,
    inline: [Level; INLINE_LEVELS],
    spilled: Vec<Level>,
    count: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Level {
    /// The hash of the name up to and including this level.
    through: u64,
    /// Difference of the hash when `+` replaces this level.
    plus_instead: u64,
    /// Start and end of the level in the text.
    start: u32,
    end: u32,
}

impl<'a> HashedTopic<'a> {
    pub(crate) fn new(name: TopicName<'a>, hash: &LevelHash) -> Self {
        let mut topic = Self { name, inline: Default::default(), spilled: Vec::new(), count: 0 };
        let (mut through, mut start) = (0_u64, 0);
        for text in name.levels() {
            let own = hash.level(topic.count, text);
            through = through.wrapping_add(own);
            let plus_instead = hash.plus(topic.count).wrapping_sub(own);
            let end = start + u32::try_from(text.len()).expect("a topic name has at most 65,535 bytes");
            topic.push(Level { through, plus_instead, start, end });
            start = end + 1;
        }
        topic
    }

    fn push(&mut self, level: Level) {
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

    fn levels(&self) -> &[Level] {
        if self.spilled.is_empty() { &self.inline[..self.count] } else { &self.spilled }
    }

    pub(crate) fn name(&self) -> TopicName<'a> {
        self.name
    }

    /// Number of levels of the name, at least 1.
    pub(crate) fn level_count(&self) -> usize {
        self.count
    }

    /// The hash of the whole name.
    pub(crate) fn hash(&self) -> u64 {
        self.prefix_hash(self.count)
    }

    /// The hash of the first `count` levels.
    pub(crate) fn prefix_hash(&self, count: usize) -> u64 {
        count.checked_sub(1).map_or(0, |last| self.levels()[last].through)
    }

    /// The text of the first `count` levels.
    pub(crate) fn prefix_text(&self, count: usize) -> &'a [u8] {
        let end = count.checked_sub(1).map_or(0, |last| self.levels()[last].end);
        &self.name.as_str().as_bytes()[..end as usize]
    }

    /// Start and end of the text of a level.
    pub(crate) fn level(&self, position: usize) -> (usize, usize) {
        let level = &self.levels()[position];
        (level.start as usize, level.end as usize)
    }

    /// Difference of the hash when `+` replaces the levels at all of these positions, which the name must have.
    pub(crate) fn with_pluses(&self, positions: &[u16]) -> u64 {
        let levels = self.levels();
        positions
            .iter()
            .fold(0, |sum, position| sum.wrapping_add(levels[usize::from(*position)].plus_instead))
    }
}
