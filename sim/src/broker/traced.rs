//! A trace of an operator beside a run, and a judge of its records: they are whole packets, in the order of the connection.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use auth::Whom;
use base::{ConnectionId, Now, ShardId};
use capture::{Reading, Told};
use topic::TopicFilter;
use turn::{Note, Trace, TraceEvent, TraceRecord, TraceSubject};
use wire::{Role, Version};

use super::outside::Socket;
use crate::scenario::Scenario;

/// A trace that never ends for a lack of room, and one that soon does.
const BYTES_MAX: [usize; 2] = [1 << 40, 64 << 10];

/// The records of a trace, as far as they were read.
pub(super) struct Traced {
    trace: Arc<Trace>,
    records: Receiver<TraceRecord>,
    connections: HashMap<(ShardId, ConnectionId), Followed>,
}

/// Both directions of a connection.
struct Followed {
    version: Option<Version>,
    client: Reading,
    server: Reading,
}

impl Traced {
    /// Begins a trace in two of three processes: of one client, or of all topics. The run is the same as without it.
    pub(super) fn begin(scenario: &Scenario, now: Now) -> Option<Self> {
        let client = || Some(Whom::ClientId(scenario.clients.first()?.client_id.as_str().into()));
        // No random number is taken: the others would be others.
        let choice = scenario.clients.len() + scenario.topics.len() + scenario.filters.len();
        let choice = (choice as u64 + now.monotonic_ms) % 6;
        let subject = match choice {
            0 | 1 => TraceSubject::Clients(client()?),
            2 | 3 => TraceSubject::Topic { filter: TopicFilter::new("#").ok()?.into(), except: None },
            _ => return None,
        };
        let bytes_max = BYTES_MAX[usize::from(choice % 2 == 1)];
        // An account of its own: that of the run is checked to the byte.
        let (trace, records) = Trace::new(1, subject, bytes_max, &Arc::default());
        Some(Self { trace: Arc::new(trace), records, connections: HashMap::new() })
    }

    pub(super) fn note(&self) -> Note<Socket> {
        Note::Trace(Arc::clone(&self.trace))
    }

    /// Reads all records that have come.
    ///
    /// # Errors
    /// Bytes are no packets, or belong to no connection.
    pub(super) fn read(&mut self) -> Result<(), String> {
        let records: Vec<TraceRecord> = self.records.try_iter().collect();
        records.into_iter().try_for_each(|record| self.take(record))
    }

    fn take(&mut self, TraceRecord { shard, connection, event, .. }: TraceRecord) -> Result<(), String> {
        let key = (shard, connection);
        match event {
            TraceEvent::Begun { version, .. } => {
                let (client, server) = (Reading::of(Role::Client), Reading::of(Role::Server));
                let followed = Followed { version, client, server };
                if self.connections.insert(key, followed).is_some() {
                    return Err(format!("a trace begins twice with {connection:?} of {shard:?}"));
                }
            }
            TraceEvent::Bytes(sender, bytes) => {
                let followed = self.connections.get_mut(&key);
                let Followed { version, client, server } = followed
                    .ok_or_else(|| format!("a trace has bytes of {connection:?}, and no beginning"))?;
                let reading = if sender == Role::Client { client } else { server };
                let mut unread = None;
                reading.take(&bytes, version, |told| {
                    // A long packet is passed over.
                    if let Told::Unread(why) = told
                        && !why.contains("too long")
                    {
                        unread = Some(why);
                    }
                });
                if let Some(why) = unread {
                    return Err(format!(
                        "a trace of {connection:?} has bytes of {sender:?} that are no packet: {why}"
                    ));
                }
            }
            TraceEvent::Closed => drop(self.connections.remove(&key)),
            TraceEvent::Named(_) | TraceEvent::Decision(_) => {}
        }
        Ok(())
    }
}
