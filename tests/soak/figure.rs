//! The figures of a broker at a quiet point, and their expected values.

use std::fmt;

use pondhawk_tests::Broker;

use crate::crowd::Holdings;
use crate::filter;
use crate::watcher::{Descriptors, Watcher};

/// Number of this program's clients that are always connected: the watcher with its subscription, and the warden.
pub(crate) const STAFF: u64 = 2;
const WATCHED: &str = "$SYS/#";

/// A number with its permitted range.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) least: u64,
    pub(crate) most: u64,
    pub(crate) is: Option<u64>,
}

impl Figure {
    pub(crate) fn is_good(&self) -> bool {
        self.is.is_some_and(|is| (self.least..=self.most).contains(&is))
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, least, most, is } = self;
        let is = is.map_or("nothing".to_owned(), |is| is.to_string());
        if least == most {
            write!(f, "{name}: {is} in place of {least}")
        } else {
            write!(f, "{name}: {is} in place of {least} to {most}")
        }
    }
}

/// The state of a broker with no clients but the staff, and without sessions and retained values.
#[derive(Debug, Clone)]
pub(crate) struct Empty {
    pub(crate) descriptors: Descriptors,
    /// Memory by purpose, in bytes.
    pub(crate) memory: Vec<(String, u64)>,
    /// Number of topics of the broker's own figures. Some topics appear later.
    pub(crate) topics: usize,
}

/// The expected state at a quiet point.
pub(crate) struct Expected<'a> {
    pub(crate) holdings: &'a Holdings,
    /// Number of messages that wait in queues.
    pub(crate) queued: u64,
    pub(crate) empty: &'a Empty,
    /// Whether dispatch is key-ordered, for which a group needs more memory.
    pub(crate) is_key_ordered: bool,
    /// Whether no clients and no stored state are left. The account must then be the same as at first.
    pub(crate) is_disbanded: bool,
}

/// Permitted difference of an empty account in bytes, because values under `$SYS` change their lengths.
const SYS_BYTES: u64 = 4_096;

impl Expected<'_> {
    /// Returns all figures with their expected and actual values.
    pub(crate) fn figures(&self, watcher: &Watcher, broker: &Broker, data_dir: &str) -> Vec<Figure> {
        let mut figures = self.counts(watcher);
        figures.extend(self.descriptors(Descriptors::of(broker, data_dir)));
        figures.extend(self.memory(watcher));
        figures.extend(identities(watcher));
        figures
    }

    fn counts(&self, watcher: &Watcher) -> Vec<Figure> {
        let all = self.holdings;
        let connected = all.connected as u64 + STAFF;
        let away = (all.sessions - all.sessions_connected) as u64;
        let own = usize::from(!all.filters.contains(WATCHED));
        let shapes: std::collections::BTreeSet<String> =
            all.filters.iter().map(String::as_str).chain([WATCHED]).filter_map(filter::shape).collect();
        let retained = all.retained as u64 + watcher.topics() as u64;
        let wanted = [
            ("clients/connected", connected),
            ("clients/active", connected),
            ("clients/total", connected + away),
            ("clients/disconnected", away),
            ("sessions/count", all.sessions as u64),
            ("sessions/connected", all.sessions_connected as u64),
            ("subscriptions/count", all.subscriptions as u64 + 1),
            ("subscriptions/filters", (all.filters.len() + own) as u64),
            ("subscriptions/shapes", shapes.len() as u64),
            ("shared_subscriptions/count", all.groups.len() as u64),
            ("retained messages/count", retained),
            ("wills/pending", all.wills_pending as u64),
            ("account/in_flight", 0),
            ("account/waiting", 0),
            ("account/queues/in_flight", 0),
            ("account/queues/queued", self.queued),
            ("messages/stored", retained + self.queued),
            ("journal/failed", 0),
            ("journal/damaged", 0),
        ];
        let exact = |(name, value): (&str, u64)| Figure {
            name: name.to_owned(),
            least: value,
            most: value,
            is: watcher.number(name),
        };
        wanted.map(exact).to_vec()
    }

    fn descriptors(&self, now: Descriptors) -> Vec<Figure> {
        let Descriptors { sockets, others, .. } = self.empty.descriptors;
        let exact =
            |name: &str, value, is| Figure { name: name.to_owned(), least: value, most: value, is: Some(is) };
        vec![
            exact("descriptors: sockets", sockets + self.holdings.connected as u64, now.sockets),
            exact("descriptors: others", others, now.others),
            exact("descriptors: removed files", 0, now.deleted),
        ]
    }

    /// The account of memory.
    ///
    /// The bytes of connections are exact, and nothing is on its way. For stored state, the lower bound is the
    /// number of bytes that clients know. The upper bound is a multiple of that, with an allowance for each item.
    fn memory(&self, watcher: &Watcher) -> Vec<Figure> {
        let all = self.holdings;
        let number = |count: usize| count as u64;
        let connected = number(all.connected);
        let per_connection = self.empty_bytes("connections") / STAFF;
        let kept = number(all.retained) + self.queued + number(all.wills_pending);
        let new_topics = number(watcher.topics().saturating_sub(self.empty.topics));
        let of_lanes = if self.is_key_ordered { 32 * 1_024 } else { 0 };
        let bounds = [
            ("connections", per_connection * connected, 0),
            ("partial_packets", 0, 0),
            ("outputs", 0, 0),
            ("mail", 0, 64 * 1_024),
            ("messages", number(all.retained_bytes), kept * 512),
            ("places", kept * 32, kept * 224),
            (
                "sessions",
                (number(all.sessions) + connected) * 256,
                (number(all.sessions) + connected) * 2_048 + number(all.groups.len()) * (2_048 + of_lanes),
            ),
            (
                "subscriptions",
                number(all.filter_bytes),
                number(all.filter_bytes) * 7 + number(all.accounted) * 1_024,
            ),
            ("routes", 0, (connected + STAFF) * 16 * 1_024),
            ("inbound", 0, connected * 1_024),
        ];
        bounds
            .iter()
            .map(|(purpose, held, more)| {
                let empty = self.empty_bytes(purpose);
                let (held, more) = if self.is_disbanded { (0, 0) } else { (*held, *more) };
                let of_topics = if matches!(*purpose, "messages" | "places") { new_topics * 256 } else { 0 };
                let least = (empty + held).saturating_sub(slack(purpose));
                let most = empty + held + more + slack(purpose) + of_topics;
                let name = format!("memory/{purpose}");
                let is = watcher.number(&name);
                Figure { name, least, most, is }
            })
            .collect()
    }

    fn empty_bytes(&self, purpose: &str) -> u64 {
        self.empty.memory.iter().find(|(name, _)| name == purpose).map_or(0, |(_, bytes)| *bytes)
    }
}

/// Permitted change between two moments in bytes, because the broker publishes its own figures.
fn slack(purpose: &str) -> u64 {
    match purpose {
        "messages" => SYS_BYTES,
        // The messages with these figures are on their way from one thread to another.
        "mail" => 64 * 1_024,
        "outputs" => 16 * 1_024,
        "routes" => 2_048,
        "places" => 1_024,
        _ => 0,
    }
}

/// Checks that each routed copy is accounted for in exactly one place.
fn identities(watcher: &Watcher) -> Vec<Figure> {
    const SHARDS: &[&str] = &[
        "account/sent",
        "account/acknowledged",
        "account/in_flight",
        "account/waiting",
        "discarded/session",
        "dropped/absent",
        "dropped/queue_full",
        "dropped/slow",
        "dropped/budget",
        "dropped/too_large",
        "dropped/expired",
        "dropped/not_authorized",
    ];
    const LEDGER: &[&str] = &[
        "account/queues/acknowledged",
        "account/queues/refused_by_client",
        "account/queues/in_flight",
        "account/queues/queued",
        "account/queues/expired",
        "account/queues/too_large",
        "account/queues/dropped_oldest",
        "account/queues/dropped_newest",
        "account/queues/discarded",
    ];
    let identity = |name: &str, routed: &str, parts: &[&str]| {
        let sum = parts.iter().map(|part| watcher.number(part)).try_fold(0, |sum, part| Some(sum + part?));
        let routed = watcher.number(routed).unwrap_or(0);
        Figure { name: name.to_owned(), least: routed, most: routed, is: sum }
    };
    vec![
        identity("sum of account/…", "account/routed", SHARDS),
        identity("sum of account/queues/…", "account/queues/routed", LEDGER),
    ]
}
