//! `pondhawk journal inspect DIR`: prints the state with which a broker would start.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use base::{Message, Now};
use index::Subscriptions;
use journal::{Directory, Storage};
use ledger::{GroupCensus, Ledger, MessageId, QueueCensus, SessionCensus, Settings};
use serde::Serialize;

use super::failure::Failure;
use super::has_journal;
use super::reading::{Read, Reading};

/// Contents of a data directory, in the form of the JSON output.
#[derive(Debug, Serialize)]
pub(super) struct Inspection {
    pub(super) directory: String,
    /// Time of the inspection, in milliseconds since 1970.
    pub(super) unix_ms: u64,
    pub(super) segments: Vec<SegmentFile>,
    pub(super) records: u64,
    pub(super) record_bytes: u64,
    /// Number of frames that a repair has discarded.
    pub(super) discarded_frames: u64,
    /// The last write was interrupted.
    pub(super) is_torn: bool,
    pub(super) sessions: Vec<Session>,
    pub(super) groups: Vec<Group>,
    pub(super) retained: Retained,
    pub(super) wills: Wills,
}

#[derive(Debug, Serialize)]
pub(super) struct SegmentFile {
    pub(super) file: String,
    pub(super) bytes: u64,
    /// Number of frames; 0 for a spare segment.
    pub(super) frames: u64,
    pub(super) record_bytes: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Session {
    pub(super) client_id: String,
    /// The client was connected when the records ended.
    pub(super) connected: bool,
    /// Session Expiry Interval; `None` if the session does not expire.
    pub(super) expiry_secs: Option<u32>,
    /// Time of expiry in milliseconds since 1970, while the client is not connected.
    pub(super) expires_unix_ms: Option<u64>,
    pub(super) subscriptions: Vec<Subscription>,
    pub(super) queue: Queue,
    pub(super) in_flight: usize,
    /// Number of QoS 2 packet identifiers that the client has not released.
    pub(super) unreleased: usize,
    pub(super) will: Option<Will>,
}

#[derive(Debug, Serialize)]
pub(super) struct Subscription {
    pub(super) filter: String,
    pub(super) qos: u8,
    pub(super) no_local: bool,
    pub(super) retain_as_published: bool,
    pub(super) identifier: Option<u32>,
}

#[derive(Debug, Serialize)]
pub(super) struct Group {
    pub(super) filter: String,
    pub(super) members: usize,
    pub(super) queue: Queue,
}

#[derive(Debug, Serialize)]
pub(super) struct Queue {
    pub(super) messages: usize,
    pub(super) bytes: usize,
    pub(super) oldest: Option<Oldest>,
}

/// The oldest message of a queue.
#[derive(Debug, Serialize)]
pub(super) struct Oldest {
    pub(super) message: u64,
    pub(super) topic: String,
    pub(super) payload_bytes: usize,
    pub(super) publisher: Option<String>,
    pub(super) expires_unix_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(super) struct Will {
    pub(super) topic: String,
    pub(super) payload_bytes: usize,
    pub(super) delay_secs: u32,
}

#[derive(Debug, Serialize)]
pub(super) struct Retained {
    pub(super) messages: usize,
    pub(super) bytes: usize,
}

/// Numbers of wills, by state.
#[derive(Debug, Serialize)]
pub(super) struct Wills {
    /// Wills of clients that were connected when the records ended, or whose Will Delay Interval is not over.
    pub(super) pending: usize,
    /// Wills that are published when a broker starts.
    pub(super) due: usize,
}

impl Inspection {
    /// Reads the whole directory without changing anything.
    pub(super) fn of(dir: &Path) -> Result<Self, Failure> {
        has_journal(dir)?;
        let storage = Directory::open_to_read(dir);
        let storage = storage.map_err(|error| Failure::Directory { dir: dir.to_owned(), error })?;
        let storage: Arc<dyn Storage> = Arc::new(storage);
        let unix_ms = unix_ms();
        let mut reading = Reading::begin(Arc::clone(&storage), dir)?;
        // Bounds that are lower here must not hide recorded messages or the oldest message of a queue. Both clocks
        // are the same, so that monotonic times are also wall-clock times.
        let settings = Settings {
            retained_bytes_max: usize::MAX,
            queued_bytes_in_memory: usize::MAX,
            recovered_bytes_in_memory: usize::MAX,
            ..Settings::default()
        };
        let index = Arc::new(Subscriptions::new([0, 0]));
        let now = Now { monotonic_ms: unix_ms, unix_ms };
        let census = Ledger::recover(settings, index, reading.by_ref(), now).census();
        let read = reading.finish()?;
        let sessions: Vec<_> = census.sessions.iter().map(Session::of).collect();
        Ok(Self {
            directory: dir.display().to_string(),
            unix_ms,
            segments: segments(&*storage, &read),
            records: read.records,
            record_bytes: read.report.bytes,
            discarded_frames: read.report.discarded,
            is_torn: read.report.is_torn,
            groups: census.groups.iter().map(Group::of).collect(),
            retained: Retained { messages: census.retained_messages, bytes: census.retained_bytes },
            wills: Wills {
                pending: sessions.iter().filter(|session| session.will.is_some()).count(),
                due: census.wills_due.len(),
            },
            sessions,
        })
    }

    pub(super) fn to_json(&self) -> String {
        let mut json = serde_json::to_string_pretty(self).expect("numbers, texts and lists of them");
        json.push('\n');
        json
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// All segments of the log, including those without records.
fn segments(storage: &dyn Storage, read: &Read) -> Vec<SegmentFile> {
    let mut names = storage.list().unwrap_or_default();
    names.retain(|name| journal::is_segment(name));
    names.sort_unstable();
    let segment = |file: String| {
        let bytes = storage.open(&file, false).and_then(|file| file.bytes()).unwrap_or_default();
        let fill = read.fill.get(&file).copied().unwrap_or_default();
        SegmentFile { file, bytes, frames: fill.frames, record_bytes: fill.record_bytes }
    };
    names.into_iter().map(segment).collect()
}

impl Session {
    fn of(census: &SessionCensus) -> Self {
        let subscription = |(filter, interest): &(Box<str>, base::Interest)| Subscription {
            filter: filter.to_string(),
            qos: interest.qos().level(),
            no_local: interest.no_local(),
            retain_as_published: interest.retain_as_published(),
            identifier: interest.identifier().map(std::num::NonZeroU32::get),
        };
        let will = |(message, delay_secs): &(Arc<Message>, u32)| Will {
            topic: message.topic().as_str().to_owned(),
            payload_bytes: message.payload().len(),
            delay_secs: *delay_secs,
        };
        Self {
            client_id: census.client_id.to_string(),
            connected: census.is_connected,
            expiry_secs: (census.expiry_secs != u32::MAX).then_some(census.expiry_secs),
            expires_unix_ms: census.expires_ms,
            subscriptions: census.subscriptions.iter().map(subscription).collect(),
            queue: Queue::of(&census.queue),
            in_flight: census.in_flight,
            unreleased: census.unreleased,
            will: census.will.as_ref().map(will),
        }
    }
}

impl Group {
    fn of(census: &GroupCensus) -> Self {
        Self { filter: census.filter.to_string(), members: census.members, queue: Queue::of(&census.queue) }
    }
}

impl Queue {
    fn of(census: &QueueCensus) -> Self {
        let oldest = |(MessageId(message), body): &(MessageId, Arc<Message>)| Oldest {
            message: *message,
            topic: body.topic().as_str().to_owned(),
            payload_bytes: body.payload().len(),
            publisher: body.publisher().map(str::to_owned),
            expires_unix_ms: body.expires_unix_ms(),
        };
        Self { messages: census.messages, bytes: census.bytes, oldest: census.oldest.as_ref().map(oldest) }
    }
}
