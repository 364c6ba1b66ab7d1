//! The state that would survive a restart, as text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};

use base::{Principal, Realm};

use crate::Ledger;
use crate::lines::group::Group;
use crate::lines::session::{Lasting, Session};
use crate::queue::Queue;
use crate::queue::entry::Entry;
use crate::queue::in_flight::State;
use crate::record::{Granted, MessageId};
use crate::retained::is_of_server;

impl Ledger {
    /// Returns everything of the ledger that is in its records, in an order of its own: two ledgers with the same text
    /// go on in the same way after a restart. Connections are left out, and everything that a restart ends. A message
    /// that is on disk alone is named by its address.
    #[must_use]
    pub fn durable_state(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_state(&mut text);
        text
    }

    fn write_state(&self, text: &mut String) -> fmt::Result {
        let lasting = self.lines.sessions().filter_map(|(session, queue)| {
            let lasting = session.lasting.as_ref()?;
            Some((lasting.incarnation, (session, lasting, queue)))
        });
        let sessions: BTreeMap<_, _> = lasting.collect();
        let filters: BTreeSet<&str> = sessions
            .values()
            .flat_map(|(session, ..)| session.subscriptions.keys().map(|filter| &**filter))
            .collect();
        for (session, lasting, queue) in sessions.into_values() {
            let rules = self.rules(session.subscriber.principal().realm);
            write_session(text, (session, lasting, queue), &rules)?;
        }
        // A group that only has members who end with their connections ends with a restart.
        let lasting = self.lines.groups().filter(|(group, _)| filters.contains(&*group.subscriber.client_id));
        let groups: BTreeMap<_, _> =
            lasting.map(|(group, queue)| (group.incarnation, (group, queue))).collect();
        for (group, queue) in groups.into_values() {
            write_group(text, group, queue)?;
        }
        for message in self.retained.iter().filter(|message| !is_of_server(message)) {
            let (topic, qos) = (message.topic().as_str(), message.qos());
            writeln!(text, "retained {topic} {qos} {:?}", message.payload())?;
        }
        for (will, principal) in &self.sessions.wills.recorded {
            let Principal { user, realm, claims, .. } = &**principal;
            let rules = self.rules(*realm);
            writeln!(text, "will {will:?} for {user:?} {rules} {claims:?}")?;
        }
        let due: BTreeSet<MessageId> = self.sessions.wills.recorded.keys().copied().collect();
        writeln!(text, "wills due {due:?}")
    }

    /// The realm whose rules hold. The number of a realm that is not there means nothing to another process.
    fn rules(&self, realm: Realm) -> String {
        let unknown = self.sessions.unknown_rules.unknown(realm);
        unknown.map_or_else(|| format!("{realm:?}"), |name| format!("unknown {name:?}"))
    }
}

fn write_session(
    text: &mut String,
    (session, lasting, queue): (&Session, &Lasting, &Queue),
    rules: &str,
) -> fmt::Result {
    let (subscriber, incarnation) = (&session.subscriber, Some(lasting.incarnation));
    let Lasting { expiry_secs, unreleased, .. } = lasting;
    writeln!(text, "session {incarnation:?} {} expiry {expiry_secs}", subscriber.client_id)?;
    let principal = subscriber.principal();
    let Principal { user, is_proved, tenant, claims, .. } = &*principal;
    writeln!(text, "  for {user:?} {is_proved} {rules} {claims:?}")?;
    writeln!(text, "  of {tenant:?}")?;
    if let Some(will) = &lasting.will {
        writeln!(text, "  will {:?} delay {}", will.id, will.delay_secs)?;
    }
    for (filter, interest) in &session.subscriptions {
        writeln!(text, "  subscription {filter} {interest:?}")?;
    }
    for (filter, cursor) in &lasting.cursors {
        writeln!(text, "  cursor {filter} behind {:?} up to {:?}", cursor.from, cursor.last)?;
    }
    writeln!(text, "  unreleased {unreleased:?}")?;
    let (mut sent, mut released) = (BTreeMap::new(), Vec::new());
    for exchange in session.in_flight.in_order() {
        match &exchange.state {
            // When QoS 2 leaves, which waits for its record, is not recorded.
            // One message may come twice, from the session's own queue and out of a group.
            State::Own(id, entry) if entry.is_recorded() => {
                sent.insert((*id, exchange.packet_id), entry);
            }
            State::Released => released.push(exchange.packet_id),
            State::Own(..) | State::Shared { .. } | State::Taken { .. } => {}
        }
    }
    writeln!(text, "  released {released:?}")?;
    for ((id, packet_id), entry) in sent {
        write!(text, "  {packet_id} sent")?;
        write_entry(text, id, entry)?;
    }
    queue.iter().try_for_each(|(id, entry)| write_entry(text, id, entry))
}

fn write_group(text: &mut String, group: &Group, queue: &Queue) -> fmt::Result {
    writeln!(text, "group {:?} {}", group.incarnation, group.subscriber.client_id)?;
    // A member has its messages with options of its own. The records of the group do not know them.
    let granted =
        |entry: &Entry| entry.message().map_or_else(|| entry.granted(), |body| Granted::of_group(body));
    let held = group.held.iter().filter_map(|(id, held)| Some((*id, held.entry.as_ref()?)));
    let held = held.map(|(id, entry)| (id, (entry, granted(entry))));
    let returned = group.returned.iter().map(|(id, entry)| (*id, entry));
    let waiting = returned.chain(queue.iter()).map(|(id, entry)| (id, (entry, entry.granted())));
    let recorded = held.chain(waiting).filter(|(_, (entry, _))| entry.is_recorded());
    let entries: BTreeMap<MessageId, (&Entry, Granted)> = recorded.collect();
    let mut write = |(id, (entry, granted)): (MessageId, (&Entry, Granted))| {
        writeln!(text, "  {id:?} {} {granted:?}", body(entry))
    };
    entries.into_iter().try_for_each(&mut write)
}

fn write_entry(text: &mut String, id: MessageId, entry: &Entry) -> fmt::Result {
    writeln!(text, "  {id:?} {} {:?}", body(entry), entry.granted())
}

fn body(entry: &Entry) -> String {
    match entry.message() {
        Some(message) => format!("{} {:?}", message.topic().as_str(), message.payload()),
        None => entry.address().map_or_else(String::new, |address| format!("at {}", address.at)),
    }
}
