//! `pondhawk import FILE`: makes a data directory of Mosquitto's database.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{SystemTime, UNIX_EPOCH};

use base::{Content, Identifiers, Interest, Message, Now};
use journal::Directory;
use ledger::{Granted, Incarnation, Keeper, MessageId, Queued, Record, Room, WillFate};
use mosquitto::database::{self, Database, Progress};
use topic::{TopicFilter, TopicName};
use wire::{MessageProperties, Qos};

use crate::FileLayer;
use crate::no_links::Entry;

/// The directory that is made beside the database.
const DIRECTORY: &str = "pondhawk";
/// Ending of the directory until it is complete.
const UNFINISHED: &str = "importing";
/// Records that are written together.
const GROUP_RECORDS: usize = 64;

/// Makes a data directory of a database, and returns a report.
///
/// Without `to`, the directory is `pondhawk` beside the database, where a configuration of Mosquitto looks for it.
///
/// # Errors
/// The database cannot be used, or the directory exists already. Nothing has changed then.
pub(crate) fn import(
    file: &Path,
    to: Option<&Path>,
    is_snapshot_fine: bool,
    layer: FileLayer,
) -> io::Result<String> {
    let explain = |error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", file.display()));
    let bytes = fs::read(file).map_err(|error| explain(&error))?;
    let database = Database::read(&bytes).map_err(|error| explain(&error))?;
    if !database.was_stopped && !is_snapshot_fine {
        let why = "Mosquitto has not written it at its end: stop Mosquitto first, or take what the file has with --snapshot";
        return Err(explain(&why));
    }
    let to = to.map_or_else(|| file.with_file_name(DIRECTORY), Path::to_owned);
    if to.exists() {
        let why = format!("{} exists already, and nothing is added to it; move it away", to.display());
        return Err(explain(&why));
    }
    let now = now();
    let mut import = Import::of(&database, now).map_err(|error| explain(&error))?;
    let unfinished = with_ending(&to);
    // Whatever is there, another import or somebody else has made it.
    if unfinished.symlink_metadata().is_ok() {
        let why = format!("{} is left of another import; delete it, and import again", unfinished.display());
        return Err(explain(&why));
    }
    let written = write(&mut import, &unfinished, layer).and_then(|()| {
        give_to_owner_of(file, &unfinished)?;
        fs::rename(&unfinished, &to)
    });
    if let Err(error) = written {
        let _ = fs::remove_dir_all(&unfinished);
        return Err(io::Error::new(error.kind(), format!("cannot write {}: {error}", to.display())));
    }
    Ok(import.report(file, &to))
}

fn with_ending(to: &Path) -> PathBuf {
    let mut name = to.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(UNFINISHED);
    to.with_file_name(name)
}

fn now() -> Now {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let unix_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    Now { monotonic_ms: unix_ms, unix_ms }
}

/// Whoever may read the database may read the directory too.
fn give_to_owner_of(file: &Path, directory: &Path) -> io::Result<()> {
    let owner = fs::metadata(file)?;
    let mine = fs::metadata(directory)?;
    if (owner.uid(), owner.gid()) == (mine.uid(), mine.gid()) || mine.uid() != 0 {
        return Ok(());
    }
    Entry::walk(directory, None)?.give(owner.uid(), owner.gid())
}

/// Everything that is written, and counts of the rest.
struct Import {
    records: Vec<Record<'static>>,
    longest_message_bytes: usize,
    sessions: usize,
    subscriptions: usize,
    queued: usize,
    retained: usize,
    expired_messages: usize,
    expired_sessions: usize,
    handed_over: usize,
    incoming: usize,
    of_qos_0: usize,
}

impl Import {
    fn of(database: &Database, now: Now) -> Result<Self, String> {
        let mut import = Self {
            records: Vec::new(),
            longest_message_bytes: 0,
            sessions: 0,
            subscriptions: 0,
            queued: 0,
            retained: 0,
            expired_messages: 0,
            expired_sessions: 0,
            handed_over: 0,
            incoming: 0,
            of_qos_0: 0,
        };
        let sessions = import.sessions(database, now);
        import.subscriptions(database, &sessions)?;
        import.messages(database, &sessions, now)?;
        Ok(import)
    }

    fn sessions<'a>(&mut self, database: &'a Database, now: Now) -> BTreeMap<&'a str, Incarnation> {
        let mut incarnations = BTreeMap::new();
        for of in &database.sessions {
            let is_over =
                of.expires_unix_secs.is_some_and(|expires| expires.saturating_mul(1_000) <= now.unix_ms);
            if is_over || of.expiry_secs == 0 {
                self.expired_sessions += 1;
                continue;
            }
            let session = Incarnation(incarnations.len() as u64 + 1);
            if incarnations.insert(of.client_id.as_str(), session).is_some() {
                continue;
            }
            // The interval began when the client left.
            let left = of.expires_unix_secs.map(|expires| {
                expires.saturating_mul(1_000).saturating_sub(u64::from(of.expiry_secs) * 1_000)
            });
            let unix_ms = left.unwrap_or(now.unix_ms).min(now.unix_ms);
            let (expiry_secs, will) = (of.expiry_secs, WillFate::Dropped);
            self.records.push(Record::Session { session, client_id: Cow::Owned(of.client_id.clone()) });
            // The rules of this user decide what the session may receive, and the identifier belongs to the user if names are
            // proved here. The place of the name is not in the database.
            let user = of.user.clone().map(Cow::Owned);
            let acts =
                |user| Record::Principal { session, user: Some(user), is_proved: true, rules: "".into() };
            self.records.extend(user.map(acts));
            self.records.push(Record::Left { session, expiry_secs, unix_ms, will });
            self.sessions += 1;
        }
        incarnations
    }

    fn subscriptions(
        &mut self,
        database: &Database,
        sessions: &BTreeMap<&str, Incarnation>,
    ) -> Result<(), String> {
        for of in &database.subscriptions {
            let Some(session) = sessions.get(of.client_id.as_str()).copied() else { continue };
            TopicFilter::new(&of.filter).map_err(|error| format!("the filter {:?}: {error}", of.filter))?;
            let interest = Interest::new(qos(of.qos))
                .with_no_local(of.options & 0x04 != 0)
                .with_retain_as_published(of.options & 0x08 != 0)
                .with_identifier(std::num::NonZeroU32::new(of.identifier));
            self.records.push(Record::Subscribed {
                session,
                filter: Cow::Owned(of.filter.clone()),
                interest,
            });
            self.subscriptions += 1;
        }
        Ok(())
    }

    fn messages(
        &mut self,
        database: &Database,
        sessions: &BTreeMap<&str, Incarnation>,
        now: Now,
    ) -> Result<(), String> {
        let retained: BTreeSet<u64> = database.retained.iter().copied().collect();
        let mut queues: BTreeMap<u64, Vec<Queued>> = BTreeMap::new();
        for of in &database.queued {
            match (of.progress, sessions.get(of.client_id.as_str())) {
                (_, None) => {}
                (Progress::HandedOver, _) => self.handed_over += 1,
                (Progress::Incoming, _) => self.incoming += 1,
                (Progress::Waits, _) if of.qos == 0 => self.of_qos_0 += 1,
                (Progress::Waits, Some(queue)) => {
                    let granted =
                        Granted { qos: qos(of.qos), retain: of.retain, identifiers: Identifiers::new() };
                    queues.entry(of.message).or_default().push(Queued { queue: *queue, granted });
                }
            }
        }
        for (number, of) in &database.messages {
            let is_retained = retained.contains(number) && !of.topic.starts_with('$');
            let queues = queues.remove(number).unwrap_or_default();
            if queues.is_empty() && !is_retained {
                continue;
            }
            if of.expires_unix_secs.is_some_and(|expires| expires.saturating_mul(1_000) <= now.unix_ms) {
                self.expired_messages += queues.len() + usize::from(is_retained);
                continue;
            }
            let body = message(of, is_retained, now)?;
            self.longest_message_bytes = self.longest_message_bytes.max(body.size_bytes());
            self.queued += queues.len();
            self.retained += usize::from(is_retained);
            let (message, body, queues) =
                (MessageId(*number), Cow::Owned(Arc::new(body)), Cow::Owned(queues));
            self.records.push(Record::Enqueue { message, body, queues, is_retained });
        }
        Ok(())
    }

    fn report(&self, file: &Path, to: &Path) -> String {
        let mut text = format!("{} has everything of {}:\n", to.display(), file.display());
        let rows = [
            (self.sessions, "sessions"),
            (self.subscriptions, "subscriptions"),
            (self.queued, "messages that wait for sessions"),
            (self.retained, "retained messages"),
        ];
        let left_out = [
            (self.expired_sessions, "sessions left out, because they have expired"),
            (self.expired_messages, "messages left out, because they have expired"),
            (self.of_qos_0, "messages of QoS 0 left out, which are not queued here"),
            (self.handed_over, "messages of QoS 2 left out, because their clients have them"),
            (self.incoming, "messages of QoS 2 left out, which their publishers have not released"),
        ];
        let left_out = left_out.into_iter().filter(|(count, _)| *count > 0);
        for (count, what) in rows.into_iter().chain(left_out) {
            let _ = writeln!(text, "  {count} {what}");
        }
        text.push_str("Mosquitto's file is as it was. Do not start Mosquitto with it again.\n");
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

fn message(of: &database::Message, retain: bool, now: Now) -> Result<Message, String> {
    let topic = TopicName::new(&of.topic).map_err(|error| format!("the topic {:?}: {error}", of.topic))?;
    let mut properties = MessageProperties::from_bytes(&of.properties)
        .map_err(|violation| format!("the properties of a message to {:?}: {}", of.topic, violation.text))?;
    properties.message_expiry_interval_secs = of.expires_unix_secs.map(|expires| {
        let left_ms = expires.saturating_mul(1_000).saturating_sub(now.unix_ms);
        u32::try_from(left_ms.div_ceil(1_000)).unwrap_or(u32::MAX)
    });
    let publisher = (!of.publisher.is_empty()).then(|| Arc::from(of.publisher.as_str()));
    let content = Content { topic, properties: &properties, payload: &of.payload, qos: qos(of.qos), retain };
    Ok(Message::of_content(&content, publisher, now))
}

/// Writes all records into a new journal, and waits until they are on stable storage.
fn write(import: &mut Import, directory: &Path, layer: FileLayer) -> io::Result<()> {
    let storage = Directory::open(directory).map_err(|error| io::Error::other(format!("{error:?}")))?;
    let needed = u32::try_from(import.longest_message_bytes.saturating_mul(4)).unwrap_or(1 << 30);
    let segment_bytes_min = needed.checked_next_power_of_two().unwrap_or(1 << 30).clamp(8 << 20, 1 << 30);
    let settings = journal::Settings {
        segment_bytes_min,
        segment_bytes_max: segment_bytes_min.max(64 << 20),
        ..journal::Settings::default()
    };
    let in_words = |error: journal::OpenError| io::Error::other(error.to_string());
    let (waking, woken) = mpsc::channel();
    let wake: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
        let _ = waking.send(());
    });
    let mut opening = journal::open(layer(storage), settings).map_err(in_words)?;
    if opening.records().next().is_some() {
        return Err(io::Error::other("there are records already"));
    }
    let (mut journal, _) = opening.start(&wake).map_err(in_words)?;
    let mut last = ledger::Lsn::default();
    for group in import.records.chunks(GROUP_RECORDS).flat_map(split) {
        while journal.room() != Room::Enough {
            wait(&journal, &woken)?;
        }
        last = journal.commit(group).map_err(|refusal| io::Error::other(format!("{refusal:?}")))?;
        journal.end_turn();
    }
    while journal.progress().durable < last {
        wait(&journal, &woken)?;
    }
    Ok(())
}

/// Records with large messages go alone, because a group has a longest length.
fn split<'a>(group: &'a [Record<'static>]) -> Vec<&'a [Record<'static>]> {
    let is_large =
        |record: &Record<'_>| matches!(record, Record::Enqueue { body, .. } if body.size_bytes() > 64 << 10);
    if group.iter().any(is_large) { group.chunks(1).collect() } else { vec![group] }
}

fn wait(journal: &dyn Keeper, woken: &mpsc::Receiver<()>) -> io::Result<()> {
    if journal.progress().has_failed {
        return Err(io::Error::other("the disk has failed"));
    }
    woken.recv().map_err(|_| io::Error::other("the journal has ended"))
}
