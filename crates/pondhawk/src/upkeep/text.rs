//! Prints the contents of a data directory, for people.

use std::fmt;

use super::inspect::{Group, Inspection, Oldest, Queue, SegmentFile, Session};

/// Number of bytes with a unit, as in the configuration.
pub(super) struct Size(pub(super) u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match units.into_iter().find(|(unit, _)| self.0 >= *unit) {
            None => write!(f, "{} B", self.0),
            Some((unit, name)) if self.0.is_multiple_of(unit) => write!(f, "{} {name}", self.0 / unit),
            Some((unit, name)) => write!(f, "{:.1} {name}", self.0 as f64 / unit as f64),
        }
    }
}

/// A count with its noun, whose plural ends in -s.
pub(super) struct Count(pub(super) u64, pub(super) &'static str);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}{}", self.0, self.1, if self.0 == 1 { "" } else { "s" })
    }
}

/// A time span in milliseconds, printed in its largest unit.
struct In(u64);

impl fmt::Display for In {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secs = self.0.div_ceil(1_000);
        let units = [(86_400, "d"), (3_600, "h"), (60, "min")];
        match units.into_iter().find(|(unit, _)| secs >= *unit) {
            None => write!(f, "{secs} s"),
            Some((unit, name)) => write!(f, "{} {name}", secs / unit),
        }
    }
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.segments.iter().map(|segment| segment.bytes).sum();
        writeln!(
            f,
            "{}: {}, {}, in {} of files",
            self.directory,
            Count(self.records, "record"),
            Size(self.record_bytes),
            Size(bytes)
        )?;
        if self.discarded_frames > 0 {
            writeln!(f, "  given up by a repair: {}", Count(self.discarded_frames, "frame"))?;
        }
        if self.is_torn {
            writeln!(f, "  a write was under way when they ended; the next start cuts it off")?;
        }
        self.segments.iter().try_for_each(|segment| write_segment(f, segment))?;
        writeln!(f, "\nsessions: {}", self.sessions.len())?;
        self.sessions.iter().try_for_each(|session| write_session(f, session, self.unix_ms))?;
        writeln!(f, "\ngroups: {}", self.groups.len())?;
        self.groups.iter().try_for_each(|group| write_group(f, group))?;
        writeln!(
            f,
            "\nretained: {}, {}",
            Count(self.retained.messages as u64, "message"),
            Size(self.retained.bytes as u64)
        )?;
        writeln!(f, "wills: {} pending, {} due", self.wills.pending, self.wills.due)
    }
}

fn write_segment(f: &mut fmt::Formatter<'_>, segment: &SegmentFile) -> fmt::Result {
    let SegmentFile { file, bytes, frames, record_bytes } = segment;
    write!(f, "  {file}  {}", Size(*bytes))?;
    match frames {
        0 => writeln!(f, "  spare"),
        _ => {
            let percent = record_bytes * 100 / (*bytes).max(1);
            writeln!(f, "  {} in {}, {percent} % full", Size(*record_bytes), Count(*frames, "frame"))
        }
    }
}

fn write_session(f: &mut fmt::Formatter<'_>, session: &Session, now_unix_ms: u64) -> fmt::Result {
    write!(f, "  {:?}  ", session.client_id)?;
    match (session.connected, session.expires_unix_ms) {
        (true, _) => f.write_str("connected")?,
        (false, None) => f.write_str("away, kept for ever")?,
        (false, Some(expires)) if expires <= now_unix_ms => f.write_str("away, expired")?,
        (false, Some(expires)) => write!(f, "away, expires in {}", In(expires - now_unix_ms))?,
    }
    write_queue(f, &session.queue)?;
    if session.in_flight > 0 {
        write!(f, ", {} in flight", session.in_flight)?;
    }
    if session.unreleased > 0 {
        write!(f, ", {} not released", session.unreleased)?;
    }
    writeln!(f)?;
    write_oldest(f, session.queue.oldest.as_ref())?;
    for subscription in &session.subscriptions {
        write!(f, "    subscribed {:?} QoS {}", subscription.filter, subscription.qos)?;
        f.write_str(if subscription.no_local { ", No Local" } else { "" })?;
        f.write_str(if subscription.retain_as_published { ", Retain As Published" } else { "" })?;
        if let Some(identifier) = subscription.identifier {
            write!(f, ", identifier {identifier}")?;
        }
        writeln!(f)?;
    }
    match &session.will {
        None => Ok(()),
        Some(will) => {
            let (topic, bytes) = (&will.topic, Size(will.payload_bytes as u64));
            writeln!(f, "    will {topic:?} {bytes}, delay {} s", will.delay_secs)
        }
    }
}

fn write_group(f: &mut fmt::Formatter<'_>, group: &Group) -> fmt::Result {
    write!(f, "  {:?}  {}", group.filter, Count(group.members as u64, "member"))?;
    write_queue(f, &group.queue)?;
    writeln!(f)?;
    write_oldest(f, group.queue.oldest.as_ref())
}

fn write_queue(f: &mut fmt::Formatter<'_>, queue: &Queue) -> fmt::Result {
    write!(f, ", {} queued", queue.messages)?;
    if queue.messages > 0 { write!(f, " ({})", Size(queue.bytes as u64)) } else { Ok(()) }
}

fn write_oldest(f: &mut fmt::Formatter<'_>, oldest: Option<&Oldest>) -> fmt::Result {
    let Some(oldest) = oldest else { return Ok(()) };
    write!(f, "    oldest {:?} {}", oldest.topic, Size(oldest.payload_bytes as u64))?;
    if let Some(publisher) = &oldest.publisher {
        write!(f, " from {publisher:?}")?;
    }
    writeln!(f, ", message {}", oldest.message)
}
