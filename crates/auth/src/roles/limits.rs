//! Limits of a role for the connections and sessions of its clients.

use super::TopicPrefix;
use crate::client::Client;

/// A pattern for client identifiers. `*` stands for any text, and `%u` for the user name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdPattern(Vec<Box<str>>);

impl IdPattern {
    /// The pattern of a text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.split('*').map(Into::into).collect())
    }

    /// Whether the identifier of a client is as the pattern says. A name is text, also if there is a `*` in it. A client without a
    /// name matches no pattern with `%u`.
    #[must_use]
    pub fn matches(&self, client: Client<'_>) -> bool {
        let user = client.user.filter(|user| !user.is_empty());
        let fill = |piece: &str| match user {
            Some(user) => Some(piece.replace("%u", user)),
            None if piece.contains("%u") => None,
            None => Some(piece.to_owned()),
        };
        let pieces: Option<Vec<String>> = self.0.iter().map(|piece| fill(piece)).collect();
        pieces.is_some_and(|pieces| is_like(&pieces, client.client_id))
    }
}

/// Whether a text is made of these pieces, with any text between two of them. The cost is that of one search for each piece.
fn is_like(pieces: &[String], text: &str) -> bool {
    let [first, middle @ .., last] = pieces else { return pieces.iter().any(|piece| *piece == text) };
    let Some(text) = text.strip_prefix(&**first).and_then(|text| text.strip_suffix(&**last)) else {
        return false;
    };
    let behind = |text: &'_ str, piece: &String| Some(text.find(&**piece)? + piece.len());
    middle.iter().try_fold(text, |text, piece| text.get(behind(text, piece)?..)).is_some()
}

/// The limits of all roles of a client. Where several roles have a limit, the client has the highest one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    /// The patterns for client identifiers, of which one has to match. `None` if any identifier is permitted.
    pub client_ids: Option<Vec<IdPattern>>,
    /// The most connections at a time of a user. `None` without a limit. Clients without a name have none.
    pub connections_max: Option<u32>,
    /// The most messages that a connection publishes in each second. `None` without a limit.
    pub messages_per_sec_max: Option<u32>,
    /// The same in bytes of PUBLISH packets.
    pub bytes_per_sec_max: Option<u64>,
    /// How long a session is kept after its connection at most, in seconds. `None` without a limit.
    pub expiry_secs_max: Option<u32>,
    /// The limits for queues. Those of the configuration hold beside them.
    pub queue: QueueLimits,
    /// The topics that the client can reach.
    pub reach: Reach,
}

/// The topics that a client can reach by its roles, whatever rules say about them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Reach {
    /// All topics, by their whole names.
    #[default]
    Whole,
    /// Those below a prefix, by names without it.
    Below(TopicPrefix),
    /// None: roles with different prefixes, which only groups of a token can bring together.
    Conflict,
}

impl Reach {
    /// Adds the reach of another role. One without a prefix changes nothing.
    fn merge(&mut self, other: &Self) {
        match (&*self, other) {
            (_, Self::Whole) => {}
            (Self::Whole, other) => *self = other.clone(),
            (own, other) if own == other => {}
            _ => *self = Self::Conflict,
        }
    }
}

/// The limits of roles for the queues of their clients.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueLimits {
    /// The most messages that wait for a session. `None` without a limit.
    pub messages_max: Option<u32>,
    /// The same in bytes.
    pub bytes_max: Option<u64>,
}

impl QueueLimits {
    /// The limits of more roles: the highest ones.
    pub(super) fn merged(self, other: Self) -> Self {
        Self {
            messages_max: self.messages_max.max(other.messages_max),
            bytes_max: self.bytes_max.max(other.bytes_max),
        }
    }
}

impl Limits {
    /// Whether a client may have its client identifier.
    #[must_use]
    pub fn permit_client_id(&self, client: Client<'_>) -> bool {
        self.client_ids.as_ref().is_none_or(|patterns| patterns.iter().any(|pattern| pattern.matches(client)))
    }

    /// Adds the limits of another role.
    pub(super) fn merge(&mut self, other: &Self) {
        if let Some(more) = &other.client_ids {
            self.client_ids.get_or_insert_default().extend(more.iter().cloned());
        }
        self.connections_max = self.connections_max.max(other.connections_max);
        self.messages_per_sec_max = self.messages_per_sec_max.max(other.messages_per_sec_max);
        self.bytes_per_sec_max = self.bytes_per_sec_max.max(other.bytes_per_sec_max);
        self.expiry_secs_max = self.expiry_secs_max.max(other.expiry_secs_max);
        self.queue = self.queue.merged(other.queue);
        self.reach.merge(&other.reach);
    }

    /// The topic prefix of a user of these roles, if there is one.
    ///
    /// # Errors
    /// The user cannot have the prefix that its roles ask for.
    pub fn topic_prefix_of(&self, user: Option<&str>) -> Result<Option<Box<str>>, NoTopicPrefix> {
        match &self.reach {
            Reach::Whole => Ok(None),
            Reach::Below(prefix) => prefix.of_user(user).map(Some),
            Reach::Conflict => Err(NoTopicPrefix::Conflict),
        }
    }
}

/// The reason why a user cannot have the topic prefix of its roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoTopicPrefix {
    /// The prefix has the user name, and there is none.
    Anonymous,
    /// The user name is no part of a level of topics.
    Name,
    /// The prefix is too long with the user name.
    TooLong,
    /// Roles have different prefixes.
    Conflict,
}

impl NoTopicPrefix {
    /// The reason, as a sentence about the client.
    #[must_use]
    pub fn why(self) -> &'static str {
        match self {
            Self::Anonymous => "it has no user name, which the topic prefix of its roles asks for",
            Self::Name => "its user name fits in no topic, and the topic prefix of its roles asks for it",
            Self::TooLong => "the topic prefix of its roles is too long with its user name",
            Self::Conflict => "the groups of its token bring together roles with different topic prefixes",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_matched_as_a_whole() {
        let ann = |pattern: &str, client_id| {
            IdPattern::new(pattern).matches(Client { user: Some("ann"), client_id, claims: None })
        };
        assert!(ann("%u", "ann") && ann("%u-*", "ann-1") && ann("*", "") && ann("a*b*c", "a-b-b-c"));
        assert!(ann("a*a", "aa") && ann("**", "x") && ann("*x*", "axb") && ann("x*%u*", "x-ann"));
        assert!(!ann("%u", "anna") && !ann("%u-*", "ann") && !ann("a*a", "a") && !ann("a*b*c", "a-c"));
        assert!(!ann("ab*ba", "aba") && !ann("", "a") && !ann("*x*", "ab") && !ann("a*b*b", "ab"));
    }

    #[test]
    fn a_name_in_a_pattern_is_text() {
        let of = |user, client_id| IdPattern::new("%u-*").matches(Client { user, client_id, claims: None });
        assert!(of(Some("*"), "*-1") && !of(Some("*"), "ann-1"));
        assert!(of(Some("%u"), "%u-1") && !of(Some(""), "-1") && !of(None, "-1") && !of(None, "%u-1"));
    }

    #[test]
    fn the_highest_limit_of_all_roles_counts() {
        let below = |text| Reach::Below(TopicPrefix::new(text).expect("a prefix"));
        let patterns = |text| Some(vec![IdPattern::new(text)]);
        let one = Limits {
            client_ids: patterns("a"),
            connections_max: Some(3),
            messages_per_sec_max: Some(7),
            bytes_per_sec_max: None,
            expiry_secs_max: Some(5),
            queue: QueueLimits { messages_max: Some(3), bytes_max: Some(2) },
            reach: Reach::Whole,
        };
        let other = Limits {
            client_ids: patterns("b"),
            connections_max: None,
            messages_per_sec_max: Some(6),
            bytes_per_sec_max: Some(8),
            expiry_secs_max: Some(9),
            queue: QueueLimits { messages_max: Some(4), bytes_max: None },
            reach: below("a/"),
        };
        let mut all = Limits::default();
        [&one, &Limits::default(), &other].into_iter().for_each(|limits| all.merge(limits));
        let client = |client_id| Client { user: None, client_id, claims: None };
        assert!(all.permit_client_id(client("a")) && all.permit_client_id(client("b")));
        assert!(!all.permit_client_id(client("c")) && Limits::default().permit_client_id(client("c")));
        assert_eq!((all.connections_max, all.expiry_secs_max), (Some(3), Some(9)));
        assert_eq!((all.messages_per_sec_max, all.bytes_per_sec_max), (Some(7), Some(8)));
        assert_eq!(all.queue, QueueLimits { messages_max: Some(4), bytes_max: Some(2) });
        assert_eq!(all.topic_prefix_of(None), Ok(Some("a/".into())));
        all.merge(&all.clone());
        assert_eq!(all.topic_prefix_of(None), Ok(Some("a/".into())));
        all.merge(&Limits { reach: below("b/"), ..Limits::default() });
        for reach in [Reach::Whole, below("a/"), Reach::Conflict] {
            all.merge(&Limits { reach, ..Limits::default() });
            assert_eq!(all.topic_prefix_of(None), Err(NoTopicPrefix::Conflict));
        }
    }
}
