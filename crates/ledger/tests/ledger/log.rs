//! Records as a journal reads them.

use ledger::{Addressed, Away, Record, Recovered, Source};

/// Records on a disk, read from the first to the last.
pub(crate) struct Log(pub(crate) std::vec::IntoIter<Addressed<'static>>);

impl Source<'static> for Log {
    fn next_record(&mut self, wants_bodies: bool) -> Option<Recovered<'static>> {
        let Addressed { record, address } = self.0.next()?;
        match (&record, address) {
            (Record::Enqueue { message, body, queues, is_retained: false }, Some(address))
                if !wants_bodies =>
            {
                let (queue, others) = queues.split_first().expect("it waits somewhere");
                let away = Away {
                    message: *message,
                    queue: queue.clone(),
                    others: others.to_vec(),
                    size_bytes: body.size_bytes(),
                    expires_unix_ms: body.expires_unix_ms(),
                };
                Some(Recovered::Away(away, address))
            }
            _ => Some(Recovered::Whole(Addressed { record, address })),
        }
    }
}
