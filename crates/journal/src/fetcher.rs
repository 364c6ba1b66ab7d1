//! Messages read back, one record at a time, from wherever they stand.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use ledger::{Fetched, Found, Record, Wanted};

use crate::plan::place;
use crate::segment::name;
use crate::{Damage, Fault, Log};
use record::Decoder;

/// Number of bytes that are read at once when records stand side by side.
const WINDOW_BYTES: usize = 64 << 10;
/// Maximum gap between records that are read together, in bytes.
const GAP_BYTES: u64 = 4 << 10;
/// Maximum number of records that are answered together.
const ANSWERS_AT_A_TIME: usize = 256;

/// Reads records of which it is known where they stand.
pub(crate) struct Fetcher {
    log: Arc<Log>,
    decoder: Decoder,
    window: Vec<u8>,
}

/// Requests to a fetcher on a thread of its own, and its answers.
#[derive(Default)]
pub(crate) struct Desk {
    orders: Mutex<Orders>,
    called: Condvar,
}

#[derive(Default)]
struct Orders {
    wanted: Vec<Wanted>,
    fetched: VecDeque<Fetched>,
    is_closed: bool,
}

impl Fetcher {
    pub(crate) fn new(log: Arc<Log>) -> Self {
        Self { log, decoder: Decoder::default(), window: Vec::new() }
    }

    /// Reads what is wanted, in the order in which it stands on the disk.
    pub(crate) fn fetch(&mut self, mut wanted: Vec<Wanted>, mut answer: impl FnMut(Fetched)) {
        wanted.sort_unstable_by_key(|wanted| wanted.address.at);
        let mut rest = wanted.into_iter().peekable();
        while let Some(first) = rest.next() {
            let begins_at = first.address.at.get();
            let mut together = vec![first];
            let mut ends_at = end(&together[0]);
            while let Some(next) = rest.next_if(|next| {
                let is_near = next.address.at.get() <= ends_at + GAP_BYTES;
                is_near && end(next) <= begins_at + WINDOW_BYTES as u64
            }) {
                ends_at = ends_at.max(end(&next));
                together.push(next);
            }
            let read = self.read(begins_at, ends_at);
            for wanted in together {
                let found = match &read {
                    Ok(()) => self.find(&wanted, begins_at),
                    Err(_) => self.read_alone(&wanted),
                };
                answer(Fetched { wanted, found });
            }
        }
    }

    /// Its neighbours may be what cannot be read.
    fn read_alone(&mut self, wanted: &Wanted) -> Found {
        let begins_at = wanted.address.at.get();
        match self.read(begins_at, end(wanted)) {
            Ok(()) => self.find(wanted, begins_at),
            Err(error) => self.fail(wanted, &error),
        }
    }

    /// Reads from one address to another, in one segment, into the window.
    fn read(&mut self, begins_at: u64, ends_at: u64) -> Result<(), String> {
        self.window.clear();
        self.window.shrink_to(WINDOW_BYTES);
        let (number, offset) = place(begins_at);
        let segment = self.log.plan().segment(number);
        let Some(segment) = segment else { return Ok(()) };
        let bytes = usize::try_from(ends_at - begins_at).unwrap_or(usize::MAX);
        self.window.resize(bytes, 0);
        let read = segment.file.read_at(u64::from(offset), &mut self.window);
        self.window.truncate(*read.as_ref().unwrap_or(&0));
        read.map(drop).map_err(|error| error.to_string())
    }

    fn find(&mut self, wanted: &Wanted, begins_at: u64) -> Found {
        let from = usize::try_from(wanted.address.at.get() - begins_at).unwrap_or(usize::MAX);
        let bytes = self.window.get(from..).and_then(|rest| rest.get(..wanted.address.bytes as usize));
        let is_same = |bytes: &&[u8]| crc32c::crc32c(bytes) == wanted.address.checksum;
        let Some(bytes) = bytes.filter(is_same) else {
            return self.fail(wanted, "the checksum is wrong");
        };
        let body = match self.decoder.first_record(bytes) {
            Some(Record::Enqueue { body, .. }) => Arc::into_inner(body.into_owned()),
            _ => None,
        };
        let Some(body) = body else { return self.fail(wanted, "it is not a message") };
        self.log.counters.fetched.fetch_add(1, Ordering::Relaxed);
        Found::Message(body)
    }

    /// Returns the result for a record that is not there. Its segment may have been given another number meanwhile.
    fn fail(&self, wanted: &Wanted, what: &str) -> Found {
        let (number, offset) = place(wanted.address.at.get());
        if self.log.plan().segment(number).is_none() {
            return Found::Moved;
        }
        let what = format!("a message cannot be read again: {what}");
        self.log.give_up_cleaning(Damage::at(name(number), u64::from(offset), Fault::Record(what)));
        Found::Damaged
    }
}

impl Desk {
    pub(crate) fn ask(&self, wanted: &mut Vec<Wanted>) {
        self.orders().wanted.append(wanted);
        self.called.notify_one();
    }

    /// Takes what was answered.
    pub(crate) fn collect(&self, into: &mut VecDeque<Fetched>) {
        into.append(&mut self.orders().fetched);
    }

    pub(crate) fn close(&self) {
        self.orders().is_closed = true;
        self.called.notify_one();
    }

    /// Serves until it is closed; `wake` says that there are answers.
    pub(crate) fn serve(&self, mut fetcher: Fetcher, wake: &dyn Fn()) {
        let mut answers = VecDeque::new();
        while let Some(wanted) = self.next() {
            fetcher.fetch(wanted, |fetched| {
                answers.push_back(fetched);
                if answers.len() >= ANSWERS_AT_A_TIME {
                    self.answer(&mut answers, wake);
                }
            });
            self.answer(&mut answers, wake);
        }
    }

    /// Waits for orders; none when it is closed.
    fn next(&self) -> Option<Vec<Wanted>> {
        let is_idle = |orders: &mut Orders| orders.wanted.is_empty() && !orders.is_closed;
        let mut orders =
            self.called.wait_while(self.orders(), is_idle).unwrap_or_else(PoisonError::into_inner);
        (!orders.is_closed).then(|| std::mem::take(&mut orders.wanted))
    }

    fn answer(&self, answers: &mut VecDeque<Fetched>, wake: &dyn Fn()) {
        self.orders().fetched.append(answers);
        wake();
    }

    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn end(wanted: &Wanted) -> u64 {
    wanted.address.at.get() + u64::from(wanted.address.bytes)
}
