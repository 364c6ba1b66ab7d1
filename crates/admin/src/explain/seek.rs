//! Finds the filters that match a topic among very many filters in the order of their bytes, without looking at all.

use topic::TopicName;

const SHARE: &str = "$share/";

/// The filter behind which the next filters that can match `topic` begin, if all filters up to `last` are known. `None` if
/// no filter behind `last` can match.
///
/// The cost is one pass over the levels of both texts. The result is never before `last`, so that each piece of filters
/// goes on.
pub(crate) fn next_behind(last: &str, topic: TopicName<'_>) -> Option<String> {
    let plain = next_plain(last, topic);
    let shared = next_shared(last, topic);
    let next = match (plain, shared) {
        (Some(plain), Some(shared)) => plain.min(shared),
        (plain, shared) => plain.or(shared)?,
    };
    Some(behind_which(&next).max(last.to_owned()))
}

/// The first text behind `last` with which a filter that matches can begin, or that is one. Shared filters are left out.
fn next_plain(last: &str, topic: TopicName<'_>) -> Option<String> {
    let levels: Vec<&str> = topic.as_str().split('/').collect();
    let may_begin_with_wildcard = !topic.is_reserved();
    // The lengths of the beginnings of `last` that are beginnings of filters that match, by their levels.
    let mut begun = vec![0];
    for (depth, level) in levels.iter().enumerate() {
        let at = begun[depth];
        let Some((own, _)) = last[at..].split_once('/') else { break };
        let is_wildcard = own == "+" && (depth > 0 || may_begin_with_wildcard);
        if own != *level && !is_wildcard {
            break;
        }
        begun.push(at + own.len() + 1);
    }
    begun.iter().enumerate().rev().find_map(|(depth, at)| {
        let (beginning, rest) = last.split_at(*at);
        let has_wildcards = depth > 0 || may_begin_with_wildcard;
        let names = levels.get(depth).copied().into_iter();
        let plus = has_wildcards && depth < levels.len();
        let ends = names.chain(plus.then_some("+"));
        let further = ends.clone().map(|level| format!("{level}/"));
        let last_ones = ends.filter(|_| depth + 1 == levels.len()).map(str::to_owned);
        let all = has_wildcards.then(|| "#".to_owned());
        let next = further.chain(last_ones).chain(all).filter(|next| **next > *rest).min()?;
        Some(format!("{beginning}{next}"))
    })
}

/// The same for shared filters.
fn next_shared(last: &str, topic: TopicName<'_>) -> Option<String> {
    let Some(own) = last.strip_prefix(SHARE) else { return (last < SHARE).then(|| SHARE.to_owned()) };
    let (group, filter) = own.split_once('/').unwrap_or((own, ""));
    Some(match next_plain(filter, topic) {
        Some(next) => format!("{SHARE}{group}/{next}"),
        // The first text behind all that begin with the group and a slash.
        None => format!("{SHARE}{group}0"),
    })
}

/// A text before `next` with hardly any text between both.
fn behind_which(next: &str) -> String {
    let mut characters = next.chars();
    let before = characters.next_back().and_then(|last| ('\0'..last).next_back());
    let mut text = characters.as_str().to_owned();
    text.extend(before.into_iter().flat_map(|before| [before, char::MAX]));
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ops::Bound;

    use topic::TopicFilter;

    use super::*;

    /// Filters of one piece.
    const PIECE: usize = 4;

    /// The filters that match, and the number of pieces that were read.
    fn sought(all: &BTreeSet<String>, topic: TopicName<'_>) -> (Vec<String>, usize) {
        let (mut found, mut pieces) = (BTreeSet::new(), 0);
        let mut behind = Some(String::new());
        while let Some(after) = behind {
            pieces += 1;
            let mut rest = all.range::<str, _>((Bound::Excluded(&*after), Bound::Unbounded));
            let piece: Vec<&String> = rest.by_ref().take(PIECE).collect();
            found
                .extend(piece.iter().filter(|filter| matches(filter, topic)).map(|filter| (*filter).clone()));
            let has_more = rest.next().is_some();
            behind = piece.last().filter(|_| has_more).and_then(|last| next_behind(last, topic));
        }
        (found.into_iter().collect(), pieces)
    }

    fn matches(filter: &str, topic: TopicName<'_>) -> bool {
        TopicFilter::new(filter).is_ok_and(|filter| filter.matches(topic))
    }

    /// All filters of up to three of these levels, plain and shared.
    fn filters() -> BTreeSet<String> {
        let levels = ["", "!", "$a", "+", "0", "a", "a!", "b", "\u{10ffff}"];
        let mut texts: Vec<String> = levels.map(str::to_owned).to_vec();
        for depth in 1..3 {
            let longer = texts.iter().filter(|text| text.matches('/').count() + 1 == depth);
            let longer = longer.flat_map(|text| levels.map(|level| format!("{text}/{level}")));
            texts.extend(longer.collect::<Vec<_>>());
        }
        texts.extend(texts.clone().iter().map(|text| format!("{text}/#")));
        texts.push("#".to_owned());
        let shared = ["a", "a!", "a0", "\u{10ffff}"].map(|group| {
            texts.iter().step_by(3).map(|text| format!("$share/{group}/{text}")).collect::<Vec<_>>()
        });
        let all = texts.into_iter().chain(shared.into_iter().flatten());
        all.filter(|filter| TopicFilter::new(filter).is_ok()).collect()
    }

    #[test]
    fn all_filters_that_match_are_found_among_all_kinds_of_others() {
        let all = filters();
        for name in ["a", "a/b", "a/", "/", "/a/b", "$a", "$a/b", "a!/b/0", "a/b/0/a", "\u{10ffff}", "z/z"] {
            let topic = TopicName::new(name).expect("a name");
            let expected: Vec<String> = all.iter().filter(|filter| matches(filter, topic)).cloned().collect();
            let (found, pieces) = sought(&all, topic);
            assert_eq!(found, expected, "{name}");
            assert!(pieces < all.len() / PIECE, "{name}: {pieces} pieces");
        }
    }

    #[test]
    fn few_pieces_of_very_many_filters_are_read() {
        let of = |number: u32| format!("house/{number}/light");
        let mut all: BTreeSet<String> = (0..100_000).map(of).collect();
        all.extend((0..1_000).map(|number| format!("house/77777.{number}/light")));
        all.extend(["#", "+/+/light", "house/77777/#", "zoo/+"].map(str::to_owned));
        let (found, pieces) = sought(&all, TopicName::new("house/77777/light").expect("a name"));
        assert_eq!(found, ["#", "+/+/light", "house/77777/#", "house/77777/light"]);
        assert!(pieces <= 10, "{pieces} pieces");
    }
}
