//! The length of records when they are written down.

use base::{Claims, Message};

use crate::record::{Granted, Record};

/// A number of 64 bits, a packet identifier, a number of seconds, a length, and a kind or a flag, each at most.
const NUMBER: usize = 10;
const PACKET_ID: usize = 3;
const SECS: usize = 5;
const LENGTH: usize = 5;
const BYTE: usize = 1;

impl Record<'_> {
    /// An upper bound of what the record takes when it is written down, in bytes. Groups of records whose number a peer
    /// can choose are cut by it into groups that fit into a frame.
    #[must_use]
    pub fn bytes_most(&self) -> usize {
        let fields = match self {
            Self::Session { client_id, .. } => NUMBER + text(client_id),
            Self::Connected { will, .. } => {
                let will = will.as_ref().map_or(0, |will| NUMBER + SECS + body(&will.message));
                NUMBER + SECS + BYTE + will
            }
            Self::Principal { user, rules, .. } => {
                NUMBER + BYTE + user.as_ref().map_or(0, |user| text(user)) + BYTE + text(rules)
            }
            Self::Owner { user, rules, users, mount, prefix, claims, .. } => {
                let user = user.as_ref().map_or(0, |user| text(user));
                let tenant = text(users) + text(mount) + text(prefix);
                NUMBER + BYTE + user + BYTE + text(rules) + tenant + rights(claims.as_deref())
            }
            Self::WillPrincipal { user, rules, claims, .. } => {
                let user = user.as_ref().map_or(0, |user| text(user));
                NUMBER + BYTE + user + text(rules) + rights(claims.as_deref())
            }
            Self::Left { .. } => NUMBER + SECS + NUMBER + BYTE,
            Self::Ended { .. } => NUMBER + BYTE,
            Self::Subscribed { filter, .. } => NUMBER + text(filter) + BYTE + LENGTH,
            Self::Unsubscribed { filter, .. } | Self::CursorDone { filter, .. } => NUMBER + text(filter),
            Self::Group { filter, .. } => NUMBER + text(filter),
            Self::Cursor { filter, .. } => NUMBER + text(filter) + NUMBER,
            Self::CursorMoved { filter, from, .. } => NUMBER + text(filter) + LENGTH + from.len(),
            Self::Enqueue { body: message, queues, .. } => {
                let queues = queues.iter().map(|queued| NUMBER + granted(&queued.granted));
                NUMBER + BYTE + body(message) + LENGTH + queues.sum::<usize>()
            }
            Self::Cleared { topic } => text(topic),
            Self::Moved { granted: of, .. } => 3 * NUMBER + PACKET_ID + granted(of),
            Self::Sent { .. } => 2 * NUMBER + PACKET_ID,
            Self::Removed { .. } => 2 * NUMBER,
            Self::Opened { .. } | Self::Closed { .. } | Self::Received { .. } | Self::Finished { .. } => {
                NUMBER + PACKET_ID
            }
            Self::ReceivedKept { .. } => 2 * NUMBER + PACKET_ID,
            Self::WillKept { message, .. } => NUMBER + body(message),
            Self::GroupEnded { .. } | Self::WillDue { .. } | Self::WillDone { .. } => NUMBER,
        };
        BYTE + fields
    }
}

/// The form, two counts, and each group and rule behind its length. A rule has one byte more.
fn rights(claims: Option<&Claims>) -> usize {
    let Some(claims) = claims else { return BYTE };
    let groups: usize = claims.groups().iter().map(|group| text(group)).sum();
    let rules: usize = claims.rules().into_iter().flatten().map(|rule| text(&rule.filter) + BYTE).sum();
    BYTE + LENGTH + groups + LENGTH + rules
}

fn text(text: &str) -> usize {
    LENGTH + text.len()
}

fn granted(granted: &Granted) -> usize {
    BYTE + LENGTH + granted.identifiers.len() * LENGTH
}

/// Maximum length of a message in a record. The memory of a message is more than its topic, properties and payload.
fn body(message: &Message) -> usize {
    BYTE + message.publisher().map_or(0, text) + NUMBER + 3 * LENGTH + message.size_bytes()
}
