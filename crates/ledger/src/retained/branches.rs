//! The topics with retained messages as a tree.

use std::ops::Bound;
use std::sync::Arc;

use base::{Message, Now};

use super::{Retained, behind, key_of_text, successor};

/// Bytes of topics from which an answer has no further level: each look-up compares and copies them.
const BYTES_PER_ANSWER: usize = 64 * 1024;

/// A level of the tree.
#[derive(Debug, Clone)]
pub struct Branch {
    /// Name of the level.
    pub name: String,
    /// The retained message of the topic that ends with this level.
    pub message: Option<Arc<Message>>,
    /// Whether topics with further levels have retained messages.
    pub has_more_levels: bool,
}

impl Retained {
    /// The levels that follow the levels `under`, or the first levels of all topics, in the order of their bytes. Begins behind the
    /// level `after`, and looks at most at `count` levels. Returns also the level behind which the next answer begins, if more
    /// follow. The cost is up to three look-ups for each level. A level whose only message has expired is left out.
    #[must_use]
    pub fn branches(
        &self,
        under: Option<&str>,
        after: Option<&str>,
        count: usize,
        now: Now,
    ) -> (Vec<Branch>, Option<String>) {
        let prefix: Box<[u8]> = under.map_or_else(Box::default, |under| successor(&key_of_text(under)));
        let of = |name: &[u8]| -> Box<[u8]> { [&*prefix, name].concat().into() };
        let mut from = after.map_or_else(|| prefix.clone(), |after| behind(&of(after.as_bytes())));
        let (mut found, mut last, mut bytes) = (Vec::new(), None, 0);
        for _ in 0..count {
            if bytes >= BYTES_PER_ANSWER {
                break;
            }
            let Some(name) = self.next_level(&prefix, &from) else { return (found, None) };
            let key = of(name.as_bytes());
            bytes += key.len();
            let value = self.values.get(&key).filter(|value| !value.message.is_expired(now));
            let below = successor(&key);
            let message = value.map(|value| Arc::clone(&value.message));
            let has_more_levels = self.first_from(&below).is_some_and(|next| next.starts_with(&below));
            last = Some(name.clone());
            if message.is_some() || has_more_levels {
                found.push(Branch { name, message, has_more_levels });
            }
            from = behind(&key);
        }
        (found, last.filter(|_| self.next_level(&prefix, &from).is_some()))
    }

    fn first_from(&self, from: &[u8]) -> Option<&[u8]> {
        let behind = (Bound::Included(from), Bound::Unbounded);
        self.values.range::<[u8], _>(behind).next().map(|(key, _)| &**key)
    }

    /// The level behind `prefix` of the first topic from `from` on.
    fn next_level(&self, prefix: &[u8], from: &[u8]) -> Option<String> {
        let rest = self.first_from(from)?.strip_prefix(prefix)?;
        let level = rest.split(|byte| *byte == 0).next().expect("a split has a first part");
        // Topics are UTF-8, and no character contains the byte at which they are split.
        Some(String::from_utf8_lossy(level).into_owned())
    }
}
