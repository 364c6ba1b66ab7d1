//! `mosquitto.sqlite3`, the database of Mosquitto's SQLite plugin.
//!
//! ```text
//! clients         sessions                 base_msgs     messages           wills          wills that wait
//! subscriptions   of sessions              client_msgs   queues             version_info   version of these tables
//! retains         topics and messages
//! ```
//!
//! Columns of the type `STRING` hold numbers where a text looks like one: SQLite has no such type. They are read as texts, as
//! Mosquitto reads them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use mosquitto::database::{Database, Message, Progress, Queued, Session, Subscription, Will};
use rusqlite::types::FromSql;
use rusqlite::{Connection, OpenFlags, Row};

use super::properties;

/// The bytes at the beginning of every database of SQLite.
const MAGIC: &[u8] = b"SQLite format 3\0";
/// Endings of files that have changes beside the database, until Mosquitto stops.
const CHANGES: [&str; 2] = ["-wal", "-journal"];
/// Ending of the directory with a copy of a database that Mosquitto has not closed.
const COPY: &str = "copying";

/// Whether a file is a database of SQLite.
pub(super) fn is_one(file: &[u8]) -> bool {
    file.starts_with(MAGIC)
}

/// Whether a file has all the pages that its header names. SQLite reads what is missing of the last one as zeros.
fn has_all_pages(file: &[u8]) -> bool {
    let Some(header) = file.get(..32) else { return false };
    // The longest page has 65,536 bytes, and stands there as 1.
    let page_bytes = match usize::from(u16::from_be_bytes([header[16], header[17]])) {
        1 => 1 << 16,
        bytes => bytes,
    };
    let pages = u32::from_be_bytes([header[28], header[29], header[30], header[31]]);
    let pages = usize::try_from(pages).unwrap_or(usize::MAX);
    file.len() >= pages.saturating_mul(page_bytes).max(1)
}

/// Reads a whole database. Nothing changes, also beside the file.
///
/// # Errors
/// The database is torn, or is not Mosquitto's.
pub(super) fn read(file: &Path, bytes: Vec<u8>) -> Result<Database, String> {
    let changes: Vec<PathBuf> = CHANGES.iter().map(|ending| with_ending(file, ending)).collect();
    let is_open = |path: &&PathBuf| fs::metadata(path).is_ok_and(|found| found.len() > 0);
    let open: Vec<&PathBuf> = changes.iter().filter(is_open).collect();
    if open.is_empty() {
        if !has_all_pages(&bytes) {
            return Err("the database of SQLite is cut off".to_owned());
        }
        drop(bytes);
        return Ok(Database { was_stopped: true, ..read_closed(file)? });
    }
    let copy = Copied::make(file, &open).map_err(|error| format!("it cannot be copied: {error}"))?;
    read_with(&connect(&copy.file(file), OpenFlags::SQLITE_OPEN_READ_WRITE)?).map_err(in_words)
}

/// A database without changes beside it. SQLite takes it as it is, and makes no files.
fn read_closed(file: &Path) -> Result<Database, String> {
    let path = fs::canonicalize(file).map_err(|error| error.to_string())?;
    let path = path.to_str().ok_or("the name of the file is no text")?;
    let escaped = path.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    read_with(&connect(Path::new(&format!("file:{escaped}?immutable=1")), flags)?).map_err(in_words)
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, String> {
    Connection::open_with_flags(path, flags).map_err(|error| error.to_string())
}

/// A copy of a database with its changes. SQLite works them in when it opens the copy.
struct Copied(PathBuf);

impl Copied {
    fn make(file: &Path, changes: &[&PathBuf]) -> io::Result<Self> {
        let directory = with_ending(file, &format!(".{COPY}"));
        fs::create_dir(&directory)?;
        let copied = Self(directory);
        for from in [&file.to_owned()].into_iter().chain(changes.iter().copied()) {
            fs::copy(from, copied.file(from))?;
        }
        Ok(copied)
    }

    fn file(&self, original: &Path) -> PathBuf {
        self.0.join(original.file_name().unwrap_or_default())
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn with_ending(file: &Path, ending: &str) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(ending);
    file.with_file_name(name)
}

/// The reason why a database cannot be read.
enum Problem {
    Sqlite(rusqlite::Error),
    Content(String),
}

impl From<rusqlite::Error> for Problem {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

fn in_words(problem: Problem) -> String {
    match problem {
        Problem::Sqlite(error) => format!("the database of SQLite cannot be read: {error}"),
        Problem::Content(text) => text,
    }
}

fn read_with(connection: &Connection) -> Result<Database, Problem> {
    check(connection)?;
    let mut database = Database::default();
    each(
        connection,
        "SELECT store_id, expiry_time, CAST(topic AS TEXT), payload, CAST(source_id AS TEXT), qos, retain, \
         CAST(properties AS TEXT) FROM base_msgs",
        |row| {
            let message = message(row, 1)?;
            database.messages.insert(natural(row, 0)?, message);
            Ok(())
        },
    )?;
    each(
        connection,
        "SELECT client_id, username, session_expiry_interval, session_expiry_time FROM clients",
        |row| {
            database.sessions.push(session(row)?);
            Ok(())
        },
    )?;
    let clients: BTreeSet<String> = database.sessions.iter().map(|of| of.client_id.clone()).collect();
    each(
        connection,
        "SELECT client_id, topic, subscription_options, subscription_identifier FROM subscriptions",
        |row| {
            let (client_id, options) = (text(row, 0)?, natural::<u8>(row, 2)?);
            let (filter, identifier) = (text(row, 1)?, optional(row, 3)?.unwrap_or(0));
            let subscription = Subscription { client_id, filter, qos: options & 3, options, identifier };
            database.subscriptions.extend(Some(subscription).filter(|of| clients.contains(&of.client_id)));
            Ok(())
        },
    )?;
    each(
        connection,
        "SELECT client_id, store_id, direction, state, mid, qos, retain, subscription_identifier FROM client_msgs \
         ORDER BY rowid",
        |row| {
            let queued = queued(row)?;
            // Mosquitto leaves these out too.
            let is_whole =
                clients.contains(&queued.client_id) && database.messages.contains_key(&queued.message);
            database.queued.extend(Some(queued).filter(|_| is_whole));
            Ok(())
        },
    )?;
    each(connection, "SELECT store_id FROM retains", |row| {
        let number = Some(natural(row, 0)?);
        database.retained.extend(number.filter(|number| database.messages.contains_key(number)));
        Ok(())
    })?;
    wills(connection, &mut database)?;
    Ok(database)
}

/// Finds out whether the database is whole, and Mosquitto's.
fn check(connection: &Connection) -> Result<(), Problem> {
    let content = |text: String| Err(Problem::Content(text));
    let found: String = connection.query_row("PRAGMA integrity_check(1)", (), |row| row.get(0))?;
    if found != "ok" {
        return content(format!("the database is damaged: {found}"));
    }
    let of_component = "SELECT major, minor FROM version_info WHERE component = 'database_schema'";
    let version = connection.query_row(of_component, (), |row| Ok((row.get(0)?, row.get(1)?)));
    match version {
        Ok((1_i64, 0 | 1_i64)) => Ok(()),
        Ok((major, minor)) => {
            content(format!("the database has version {major}.{minor}, and only 1.0 and 1.1 can be read"))
        }
        Err(_) => content("this database of SQLite is not Mosquitto's".to_owned()),
    }
}

/// Wills came with version 1.1.
fn wills(connection: &Connection, database: &mut Database) -> Result<(), Problem> {
    let of_table = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'wills'";
    if connection.query_row(of_table, (), |row| row.get::<_, i64>(0))? == 0 {
        return Ok(());
    }
    each(
        connection,
        "SELECT w.client_id, NULL, CAST(w.topic AS TEXT), w.payload, w.client_id, w.qos, w.retain, \
         CAST(w.properties AS TEXT), c.will_delay_interval, c.will_delay_time FROM wills w LEFT JOIN clients c ON \
         c.client_id = w.client_id",
        |row| {
            let delay_secs = optional(row, 8)?.unwrap_or(0);
            let due_unix_secs = optional(row, 9)?.filter(|secs| *secs > 0);
            let (client_id, message) = (text(row, 0)?, message(row, 1)?);
            database.wills.push(Will { client_id, message, delay_secs, due_unix_secs });
            Ok(())
        },
    )
}

/// Calls a function with each row of an answer.
fn each(
    connection: &Connection,
    query: &str,
    mut take: impl FnMut(&Row<'_>) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let mut statement = connection.prepare(query)?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        take(row)?;
    }
    Ok(())
}

/// The message in the columns from this one on.
fn message(row: &Row<'_>, from: usize) -> Result<Message, Problem> {
    let topic = text(row, from + 1)?;
    let payload: Option<Vec<u8>> = column(row, from + 2)?;
    let properties: Option<String> = column(row, from + 6)?;
    let properties = properties.map(|text| properties::encode(&text)).transpose();
    let properties =
        properties.map_err(|error| Problem::Content(format!("the message to {topic:?}: {error}")))?;
    Ok(Message {
        payload: payload.unwrap_or_default(),
        qos: natural(row, from + 4)?,
        retain: natural::<u8>(row, from + 5)? != 0,
        publisher: column::<Option<String>>(row, from + 3)?.unwrap_or_default(),
        expires_unix_secs: optional(row, from)?.filter(|secs| *secs > 0),
        properties: properties.unwrap_or_default(),
        topic,
    })
}

fn session(row: &Row<'_>) -> Result<Session, Problem> {
    let user: Option<String> = column(row, 1)?;
    // For ever is -1, because the column has signed numbers.
    let expiry_secs = column::<Option<i64>>(row, 2)?.unwrap_or(0);
    let expiry_secs = if expiry_secs < 0 { u32::MAX } else { u32::try_from(expiry_secs).unwrap_or(u32::MAX) };
    let expires: Option<u64> = optional(row, 3)?;
    Ok(Session {
        client_id: text(row, 0)?,
        user: user.filter(|user| !user.is_empty()),
        expiry_secs,
        expires_unix_secs: expires.filter(|secs| *secs > 0 && expiry_secs != u32::MAX),
    })
}

fn queued(row: &Row<'_>) -> Result<Queued, Problem> {
    let (direction, state, packet_id) = (natural(row, 2)?, natural(row, 3)?, natural(row, 4)?);
    let identifier: Option<u32> = optional(row, 7)?;
    Ok(Queued {
        client_id: text(row, 0)?,
        message: natural(row, 1)?,
        qos: natural(row, 5)?,
        retain: natural::<u8>(row, 6)? != 0,
        identifiers: identifier.filter(|identifier| *identifier > 0).into_iter().collect(),
        progress: Progress::of(direction, state, packet_id),
    })
}

fn column<T: FromSql>(row: &Row<'_>, at: usize) -> Result<T, Problem> {
    Ok(row.get(at)?)
}

fn text(row: &Row<'_>, at: usize) -> Result<String, Problem> {
    column(row, at)
}

fn natural<T: TryFrom<i64>>(row: &Row<'_>, at: usize) -> Result<T, Problem> {
    optional(row, at)?.ok_or_else(|| Problem::Content(format!("{} is missing", name(row, at))))
}

fn optional<T: TryFrom<i64>>(row: &Row<'_>, at: usize) -> Result<Option<T>, Problem> {
    let Some(number) = column::<Option<i64>>(row, at)? else { return Ok(None) };
    let found = T::try_from(number).map(Some);
    found.map_err(|_| Problem::Content(format!("{} is {number}, which cannot be", name(row, at))))
}

fn name(row: &Row<'_>, at: usize) -> String {
    row.as_ref().column_name(at).unwrap_or("a column").to_owned()
}
