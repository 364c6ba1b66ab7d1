//! The content of Mosquitto's database, as records of a journal.

use std::borrow::Cow;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use base::{Content as MessageContent, Identifiers, Interest, Message, Now};
use ledger::{Granted, Incarnation, MessageId, Queued, Record, WillFate, WillRecord};
use mosquitto::database::{self, Database, Progress};
use topic::{TopicFilter, TopicName};
use wire::{MessageProperties, PacketId, Qos};

/// Everything that is written, and counts of it.
pub(super) struct Content {
    pub(super) records: Vec<Record<'static>>,
    pub(super) longest_message_bytes: usize,
    pub(super) tally: Tally,
}

/// Numbers of things that are written, and that are left out.
#[derive(Default)]
pub(super) struct Tally {
    sessions: usize,
    subscriptions: usize,
    queued: usize,
    retained: usize,
    handed_over: usize,
    incoming: usize,
    wills: usize,
    other_wills: usize,
    expired_messages: usize,
    expired_sessions: usize,
    of_qos_0: usize,
    shared: usize,
}

impl Content {
    /// Makes the records.
    ///
    /// # Errors
    /// The database has a topic or a property that MQTT does not allow.
    pub(super) fn of(database: &Database, now: Now) -> Result<Self, String> {
        let mut importing = Importing { database, now, records: Vec::new(), tally: Tally::default() };
        let sessions = importing.sessions()?;
        importing.subscriptions(&sessions)?;
        let mut places = Places::of(database);
        importing.queues(&sessions, &mut places)?;
        let longest_message_bytes = importing.messages(&places)?;
        importing.exchanges(&sessions, &places);
        Ok(Self { records: importing.records, longest_message_bytes, tally: importing.tally })
    }
}

/// The places of each message: queues, and the retained value of its topic.
struct Places<'a> {
    queues: BTreeMap<u64, BTreeMap<Incarnation, Granted>>,
    retained: BTreeMap<&'a str, u64>,
}

impl<'a> Places<'a> {
    fn of(database: &'a Database) -> Self {
        let topic = |number: &u64| database.messages.get(number).map(|of| (of.topic.as_str(), *number));
        let retained = database.retained.iter().filter_map(topic);
        let retained = retained.filter(|(topic, _)| !topic.starts_with("$SYS/")).collect();
        Self { queues: BTreeMap::new(), retained }
    }

    /// Puts a message into a queue. Copies of one message become one, with all subscription identifiers.
    fn add(&mut self, message: u64, queue: Incarnation, granted: Granted) {
        match self.queues.entry(message).or_default().entry(queue) {
            Entry::Occupied(mut entry) => {
                let other = entry.get_mut();
                other.qos = other.qos.max(granted.qos);
                other.identifiers.extend(granted.identifiers);
            }
            Entry::Vacant(entry) => {
                entry.insert(granted);
            }
        }
    }

    /// Makes a published message the retained value of its topic.
    fn retain(&mut self, number: u64, of: &'a database::Message) {
        if of.payload.is_empty() {
            self.retained.remove(of.topic.as_str());
        } else {
            self.retained.insert(&of.topic, number);
        }
    }
}

type Sessions<'a> = BTreeMap<&'a str, Incarnation>;

struct Importing<'a> {
    database: &'a Database,
    now: Now,
    records: Vec<Record<'static>>,
    tally: Tally,
}

impl<'a> Importing<'a> {
    fn is_past(&self, expires_unix_secs: Option<u64>) -> bool {
        expires_unix_secs.is_some_and(|expires| expires.saturating_mul(1_000) <= self.now.unix_ms)
    }

    fn sessions(&mut self) -> Result<Sessions<'a>, String> {
        let mut wills: BTreeMap<_, _> =
            self.database.wills.iter().map(|will| (will.client_id.as_str(), will)).collect();
        let mut incarnations = BTreeMap::new();
        for of in &self.database.sessions {
            if self.is_past(of.expires_unix_secs) || of.expiry_secs == 0 {
                self.tally.expired_sessions += 1;
                continue;
            }
            let session = Incarnation(incarnations.len() as u64 + 1);
            if incarnations.insert(of.client_id.as_str(), session).is_some() {
                continue;
            }
            // Both intervals began when the client left.
            let left = |until: u64, secs: u32| until.saturating_sub(u64::from(secs)).saturating_mul(1_000);
            let will: Option<&database::Will> = wills.remove(of.client_id.as_str());
            let due = will.and_then(|will| Some(left(will.due_unix_secs?, will.delay_secs)));
            let left = of.expires_unix_secs.map(|expires| left(expires, of.expiry_secs)).or(due);
            let unix_ms = left.unwrap_or(self.now.unix_ms).min(self.now.unix_ms);
            let expiry_secs = of.expiry_secs;
            self.records.push(Record::Session { session, client_id: Cow::Owned(of.client_id.clone()) });
            // The rules of this user decide what the session may receive, and the identifier belongs to the user if names are
            // proved here. The place of the name is not in the database.
            let user = of.user.clone().map(Cow::Owned);
            let acts =
                |user| Record::Principal { session, user: Some(user), is_proved: true, rules: "".into() };
            let will = self.will(session, of, will)?;
            self.records.extend(user.map(acts));
            self.records.push(Record::Left { session, expiry_secs, unix_ms, will });
            self.tally.sessions += 1;
        }
        self.tally.other_wills = wills.len();
        Ok(incarnations)
    }

    /// Writes the will of a session, whose delay began when the client left. A will has a number behind those of all messages.
    fn will(
        &mut self,
        session: Incarnation,
        of: &database::Session,
        will: Option<&database::Will>,
    ) -> Result<WillFate, String> {
        let Some(will) = will else { return Ok(WillFate::Dropped) };
        let last = self.database.messages.keys().next_back().copied().unwrap_or(0);
        self.tally.wills += 1;
        let id = MessageId(last + self.tally.wills as u64);
        let body = Arc::new(message(&will.message, will.message.retain, self.now)?);
        let record = WillRecord { id, message: Cow::Owned(body), delay_secs: will.delay_secs };
        let (expiry_secs, rules) = (of.expiry_secs, Cow::Borrowed(""));
        self.records.push(Record::Connected { session, expiry_secs, will: Some(record) });
        if let Some(user) = of.user.clone().map(Cow::Owned) {
            self.records.push(Record::WillPrincipal { will: id, user: Some(user), rules, claims: None });
        }
        Ok(WillFate::Waits)
    }

    fn subscriptions(&mut self, sessions: &Sessions<'_>) -> Result<(), String> {
        for of in &self.database.subscriptions {
            let Some(session) = sessions.get(of.client_id.as_str()).copied() else { continue };
            if filter(of)?.shared().is_some() {
                self.tally.shared += 1;
                continue;
            }
            let filter = Cow::Owned(of.filter.clone());
            self.records.push(Record::Subscribed { session, filter, interest: interest(of) });
            self.tally.subscriptions += 1;
        }
        Ok(())
    }

    /// Finds the place of every message that waits for a session.
    fn queues(&mut self, sessions: &Sessions<'_>, places: &mut Places<'a>) -> Result<(), String> {
        for of in &self.database.queued {
            let Some(session) = sessions.get(of.client_id.as_str()).copied() else { continue };
            match of.progress {
                Progress::HandedOver(_) => self.tally.handed_over += 1,
                Progress::Incoming(_) => self.release(of, sessions, places)?,
                Progress::Waits | Progress::Sent(_) if of.qos == 0 => self.tally.of_qos_0 += 1,
                Progress::Waits | Progress::Sent(_) => {
                    let identifiers = of.identifiers.iter().copied().filter_map(NonZeroU32::new).collect();
                    places.add(
                        of.message,
                        session,
                        Granted { qos: qos(of.qos), retain: of.retain, identifiers },
                    );
                }
            }
        }
        Ok(())
    }

    /// Publishes a message whose publisher has not released it. Mosquitto waits for the PUBREL, and Pondhawk does not.
    fn release(
        &mut self,
        of: &database::Queued,
        sessions: &Sessions<'_>,
        places: &mut Places<'a>,
    ) -> Result<(), String> {
        let message = &self.database.messages[&of.message];
        let topic = topic(message)?;
        self.tally.incoming += 1;
        if message.retain {
            places.retain(of.message, message);
        }
        for subscription in &self.database.subscriptions {
            let Some(session) = sessions.get(subscription.client_id.as_str()).copied() else { continue };
            let interest = interest(subscription);
            let is_own = interest.no_local() && subscription.client_id == of.client_id;
            let granted_qos = interest.qos().min(qos(message.qos));
            let filter = filter(subscription)?;
            let is_other = is_own || filter.shared().is_some() || !filter.matches(topic);
            if granted_qos == Qos::AtMostOnce || is_other {
                continue;
            }
            let retain = message.retain && interest.retain_as_published();
            let identifiers: Identifiers = interest.identifier().into_iter().collect();
            places.add(of.message, session, Granted { qos: granted_qos, retain, identifiers });
        }
        Ok(())
    }

    /// Writes every message with its places. Returns the length of the longest one.
    fn messages(&mut self, places: &Places<'_>) -> Result<usize, String> {
        let retained: BTreeSet<u64> = places.retained.values().copied().collect();
        let mut longest_bytes = 0;
        for (number, of) in &self.database.messages {
            let is_retained = retained.contains(number);
            let granted = places.queues.get(number).into_iter().flatten();
            let queued = |(queue, granted): (&Incarnation, &Granted)| Queued {
                queue: *queue,
                granted: granted.clone(),
            };
            let queues: Vec<Queued> = granted.map(queued).collect();
            if queues.is_empty() && !is_retained {
                continue;
            }
            if self.is_past(of.expires_unix_secs) {
                self.tally.expired_messages += queues.len() + usize::from(is_retained);
                continue;
            }
            let body = message(of, is_retained, self.now)?;
            longest_bytes = longest_bytes.max(body.size_bytes());
            self.tally.queued += queues.len();
            self.tally.retained += usize::from(is_retained);
            let (message, body, queues) =
                (MessageId(*number), Cow::Owned(Arc::new(body)), Cow::Owned(queues));
            self.records.push(Record::Enqueue { message, body, queues, is_retained });
        }
        Ok(longest_bytes)
    }

    /// Writes the exchanges that had begun. They go on with the next connection, under the same packet identifiers.
    fn exchanges(&mut self, sessions: &Sessions<'_>, places: &Places<'_>) {
        let mut sent = BTreeSet::new();
        for of in &self.database.queued {
            let Some(session) = sessions.get(of.client_id.as_str()).copied() else { continue };
            let (Progress::Sent(packet_id) | Progress::HandedOver(packet_id) | Progress::Incoming(packet_id)) =
                of.progress
            else {
                continue;
            };
            let Some(packet_id) = PacketId::new(packet_id) else { continue };
            match of.progress {
                Progress::HandedOver(_) => self.records.push(Record::Received { session, packet_id }),
                Progress::Incoming(_) => self.records.push(Record::Opened { session, packet_id }),
                // Of several copies, the first goes on.
                _ if places.queues.contains_key(&of.message) && sent.insert((session, of.message)) => {
                    let message = MessageId(of.message);
                    self.records.push(Record::Sent { session, message, packet_id });
                }
                _ => {}
            }
        }
    }
}

impl Tally {
    pub(super) fn report(&self, file: &Path, to: &Path) -> String {
        let mut text =
            format!("{} has everything of {}:\n", wire::Shown(to.display()), wire::Shown(file.display()));
        let rows = [
            (self.sessions, "sessions"),
            (self.subscriptions, "subscriptions"),
            (self.queued, "messages that wait for sessions"),
            (self.retained, "retained messages"),
        ];
        let further = [
            (self.wills, "wills that wait"),
            (self.handed_over, "messages of QoS 2 that their clients have, and whose exchanges go on"),
            (self.incoming, "messages of QoS 2 published, which their publishers had not released"),
            (self.expired_sessions, "sessions left out, because they have expired"),
            (self.expired_messages, "messages left out, because they have expired"),
            (self.of_qos_0, "messages of QoS 0 left out, which are not queued here"),
            (self.other_wills, "wills left out, whose clients have no session"),
            (self.shared, "shared subscriptions left out; their clients have to subscribe again"),
        ];
        let further = further.into_iter().filter(|(count, _)| *count > 0);
        for (count, what) in rows.into_iter().chain(further) {
            let _ = writeln!(text, "  {what}: {count}");
        }
        text.push_str("Mosquitto's file is as it was, and gets nothing that happens from now on.\n");
        text
    }
}

fn qos(level: u8) -> Qos {
    match level {
        0 => Qos::AtMostOnce,
        1 => Qos::AtLeastOnce,
        _ => Qos::ExactlyOnce,
    }
}

fn interest(of: &database::Subscription) -> Interest {
    Interest::new(qos(of.qos))
        .with_no_local(of.options & 0x04 != 0)
        .with_retain_as_published(of.options & 0x08 != 0)
        .with_identifier(NonZeroU32::new(of.identifier))
}

fn filter(of: &database::Subscription) -> Result<TopicFilter<'_>, String> {
    TopicFilter::new(&of.filter).map_err(|error| format!("the filter {:?}: {error}", of.filter))
}

fn topic(of: &database::Message) -> Result<TopicName<'_>, String> {
    TopicName::new(&of.topic).map_err(|error| format!("the topic {:?}: {error}", of.topic))
}

fn message(of: &database::Message, retain: bool, now: Now) -> Result<Message, String> {
    let topic = topic(of)?;
    let mut properties = MessageProperties::from_bytes(&of.properties)
        .map_err(|violation| format!("the properties of a message to {:?}: {}", of.topic, violation.text))?;
    properties.message_expiry_interval_secs = of.expires_unix_secs.map(|expires| {
        let left_ms = expires.saturating_mul(1_000).saturating_sub(now.unix_ms);
        u32::try_from(left_ms.div_ceil(1_000)).unwrap_or(u32::MAX)
    });
    let publisher = (!of.publisher.is_empty()).then(|| Arc::from(of.publisher.as_str()));
    let content =
        MessageContent { topic, properties: &properties, payload: &of.payload, qos: qos(of.qos), retain };
    Ok(Message::of_content(&content, publisher, now))
}
