//! A record on one line, for people who read the work of a ledger: bytes and queues are counted, not listed.

use std::fmt;

use crate::record::{Granted, Queued, Record, WillFate, WillRecord};

/// A list of queues is shown up to here.
const QUEUES_SHOWN: usize = 4;

impl fmt::Debug for Record<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session { session, client_id } => write!(f, "Session {} of {client_id:?}", session.0),
            Self::Connected { session, expiry_secs, will } => {
                write!(f, "Connected {} kept {expiry_secs} s", session.0)?;
                will.as_ref().map_or(Ok(()), |will| write!(f, ", {will:?}"))
            }
            Self::Principal { session, user, is_proved, rules } => {
                let proof = if *is_proved { "proved" } else { "not proved" };
                write!(f, "Principal of {}: {user:?}, {proof}, rules {rules:?}", session.0)
            }
            Self::Owner { session, user, is_proved, rules, users, mount, prefix, claims } => {
                let proof = if *is_proved { "proved" } else { "not proved" };
                let tenant = format!("of {users:?} behind {mount:?} and {prefix:?}");
                write!(f, "Owner of {}: {user:?} {tenant}, {proof}, rules {rules:?}", session.0)?;
                claims.as_ref().map_or(Ok(()), |claims| write!(f, ", {claims:?}"))
            }
            Self::WillPrincipal { will, user, rules, claims } => {
                write!(f, "WillPrincipal of {}: {user:?}, rules {rules:?}", will.0)?;
                claims.as_ref().map_or(Ok(()), |claims| write!(f, ", {claims:?}"))
            }
            Self::Left { session, expiry_secs, unix_ms, will } => {
                write!(f, "Left {} kept {expiry_secs} s from {unix_ms} ms, {}", session.0, fate(*will))
            }
            Self::Ended { session, will } => write!(f, "Ended {}, {}", session.0, fate(*will)),
            Self::Subscribed { session, filter, interest } => {
                write!(f, "Subscribed {} to {filter:?} q{}", session.0, interest.qos().level())?;
                f.write_str(if interest.no_local() { " no-local" } else { "" })?;
                f.write_str(if interest.retain_as_published() { " retain-as-published" } else { "" })?;
                interest.identifier().map_or(Ok(()), |identifier| write!(f, " id{identifier}"))
            }
            Self::Unsubscribed { session, filter } => write!(f, "Unsubscribed {} from {filter:?}", session.0),
            Self::Group { group, filter } => write!(f, "Group {} of {filter:?}", group.0),
            Self::GroupEnded { group } => write!(f, "GroupEnded {}", group.0),
            Self::Cleared { topic } => write!(f, "Cleared {topic:?}"),
            Self::WillDue { session } => write!(f, "WillDue of {}", session.0),
            Self::WillKept { will, message } => write!(f, "WillKept {} {message:?}", will.0),
            Self::WillDone { will } => write!(f, "WillDone {}", will.0),
            Self::Cursor { session, filter, last } => {
                write!(f, "Cursor of {} for {filter:?} up to {}", session.0, last.0)
            }
            Self::CursorMoved { session, filter, from } => {
                write!(f, "CursorMoved of {} for {filter:?} to \"{}\"", session.0, from.escape_ascii())
            }
            Self::CursorDone { session, filter } => write!(f, "CursorDone of {} for {filter:?}", session.0),
            Self::Enqueue { message, body, queues, is_retained } => {
                write!(f, "Enqueue {} {body:?}{}", message.0, if *is_retained { " retained" } else { "" })?;
                trace_queues(queues, f)
            }
            Self::Opened { session, packet_id } => write!(f, "Opened {packet_id} by {}", session.0),
            Self::Closed { session, packet_id } => write!(f, "Closed {packet_id} by {}", session.0),
            Self::Sent { session, message, packet_id } => {
                write!(f, "Sent {} to {} as {packet_id}", message.0, session.0)
            }
            Self::Moved { group, session, message, packet_id, granted } => {
                write!(f, "Moved {} from {} to {} as {packet_id}", message.0, group.0, session.0)?;
                write!(f, " {granted:?}")
            }
            Self::Received { session, packet_id } => write!(f, "Received {packet_id} by {}", session.0),
            Self::ReceivedKept { session, packet_id, place } => {
                write!(f, "ReceivedKept {packet_id} by {} at {place}", session.0)
            }
            Self::Finished { session, packet_id } => write!(f, "Finished {packet_id} with {}", session.0),
            Self::Removed { queue, message } => write!(f, "Removed {} from {}", message.0, queue.0),
        }
    }
}

fn trace_queues(queues: &[Queued], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for queued in queues.iter().take(QUEUES_SHOWN) {
        write!(f, " → {} {:?}", queued.queue.0, queued.granted)?;
    }
    match queues.len().checked_sub(QUEUES_SHOWN) {
        None | Some(0) => Ok(()),
        Some(more) => write!(f, " and {more} more"),
    }
}

fn fate(will: WillFate) -> &'static str {
    match will {
        WillFate::Dropped => "will dropped",
        WillFate::Waits => "will waits",
        WillFate::Due => "will due",
    }
}

impl fmt::Debug for WillRecord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "will {} {:?} after {} s", self.id.0, self.message, self.delay_secs)
    }
}

impl fmt::Debug for Granted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "q{}{}", self.qos.level(), if self.retain { " retain" } else { "" })?;
        self.identifiers.iter().try_for_each(|identifier| write!(f, " id{identifier}"))
    }
}
