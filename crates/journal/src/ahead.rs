//! The frames of a log, read where they are used or on a thread of their own.

use std::sync::mpsc::{Receiver, SendError, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};

use crate::{OpenError, Recovery};

/// Bytes of the frames that go from one thread to the other at a time, and one more frame.
const BATCH_BYTES: usize = 256 << 10;

/// Maximum number of such batches that wait to be used.
const BATCHES_AHEAD: usize = 4;

/// Some frames' records, one frame behind the other.
#[derive(Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    frames: Vec<Frame>,
}

/// The address of its first record, and where it ends in the batch.
#[derive(Clone, Copy)]
struct Frame {
    at: u64,
    end: usize,
}

impl Batch {
    /// The frame with this number in it: the address of its first record, and the records.
    #[inline]
    pub(crate) fn frame(&self, number: usize) -> Option<(u64, &[u8])> {
        let Frame { at, end } = *self.frames.get(number)?;
        let begin = number.checked_sub(1).map_or(0, |before| self.frames[before].end);
        Some((at, &self.bytes[begin..end]))
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.frames.clear();
    }

    /// Reads one more. False at the end.
    fn read(&mut self, recovery: &mut Recovery) -> Result<bool, OpenError> {
        let Some((at, records)) = recovery.next_frame_at()? else { return Ok(false) };
        self.bytes.extend_from_slice(records);
        self.frames.push(Frame { at, end: self.bytes.len() });
        Ok(true)
    }
}

/// Source of the frames.
pub(crate) enum Frames {
    /// The frames are read when they are requested.
    Here(Recovery),
    /// A thread, some of them ahead.
    Ahead(Ahead),
}

pub(crate) struct Ahead {
    batches: Receiver<Result<Batch, OpenError>>,
    /// Batches go back to be filled again: to free the memory of another thread takes long.
    used: Sender<Batch>,
    /// None once it has been waited for.
    reader: Option<JoinHandle<Recovery>>,
}

impl Ahead {
    /// Waits for the thread, which reads no more than is under way, and then gives back what it has read with.
    fn stop(&mut self) -> Option<thread::Result<Recovery>> {
        // In the place of the one that it sends to.
        self.batches = channel().1;
        self.reader.take().map(JoinHandle::join)
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Frames {
    /// On a thread of their own from now on.
    pub(crate) fn ahead(self) -> std::io::Result<Self> {
        let Self::Here(recovery) = self else { return Ok(self) };
        let (sender, batches) = sync_channel(BATCHES_AHEAD);
        let (used, returned) = channel();
        let reader = thread::Builder::new().name("recovery".to_owned());
        let reader = reader.spawn(move || read_all(recovery, &sender, &returned))?;
        Ok(Self::Ahead(Ahead { batches, used, reader: Some(reader) }))
    }

    /// The next ones, in the place of those that were put to use. False at the end.
    pub(crate) fn next(&mut self, batch: &mut Batch) -> Result<bool, OpenError> {
        match self {
            Self::Here(recovery) => {
                batch.clear();
                batch.read(recovery)
            }
            Self::Ahead(ahead) => {
                let Ok(next) = ahead.batches.recv() else {
                    batch.clear();
                    // All was read, or the thread has panicked.
                    *self = Self::Here(recovery_of(ahead));
                    return Ok(false);
                };
                // At the end nobody fills it again.
                let _ = ahead.used.send(std::mem::replace(batch, next?));
                Ok(true)
            }
        }
    }

    /// Ends reading, and returns the recovery.
    pub(crate) fn end(self) -> Recovery {
        match self {
            Self::Here(recovery) => recovery,
            Self::Ahead(mut ahead) => recovery_of(&mut ahead),
        }
    }
}

fn recovery_of(ahead: &mut Ahead) -> Recovery {
    let ended = ahead.stop().expect("it is waited for once, and then in no one's hands");
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn read_all(
    mut recovery: Recovery,
    batches: &SyncSender<Result<Batch, OpenError>>,
    returned: &Receiver<Batch>,
) -> Recovery {
    // A receiver that is gone needs no more frames.
    let _ = read_until_end(&mut recovery, batches, returned);
    recovery
}

fn read_until_end(
    recovery: &mut Recovery,
    batches: &SyncSender<Result<Batch, OpenError>>,
    returned: &Receiver<Batch>,
) -> Result<(), SendError<Result<Batch, OpenError>>> {
    loop {
        // One that has held a long frame is not kept.
        let returned = returned.try_recv().ok().filter(|batch| batch.bytes.capacity() <= 2 * BATCH_BYTES);
        let mut batch = returned.unwrap_or_default();
        batch.clear();
        let read = loop {
            let read = batch.read(recovery);
            if !matches!(read, Ok(true)) || batch.bytes.len() >= BATCH_BYTES {
                break read;
            }
        };
        batches.send(Ok(batch))?;
        match read {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) => return batches.send(Err(error)),
        }
    }
}
