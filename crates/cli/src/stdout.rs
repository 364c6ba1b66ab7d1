//! Standard output, written by a thread of its own.
//!
//! A write blocks when the reader of a pipe stops reading. The program goes on meanwhile: it obeys signals and time limits,
//! and keeps its connection alive.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::thread;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Maximum number of bytes that wait to be written. One larger message is possible.
const BYTES_MAX: u32 = 1 << 20;

/// The thread that writes, and the bytes that wait for it.
#[derive(Debug)]
pub(crate) struct Output {
    chunks: mpsc::Sender<Chunk>,
    room: Arc<Semaphore>,
    state: Arc<State>,
    /// Lines that were left out because too many bytes were waiting.
    left_out: AtomicU64,
}

#[derive(Debug)]
struct Chunk {
    bytes: Vec<u8>,
    /// Share of [`BYTES_MAX`], which is free again after the write.
    _share: Option<OwnedSemaphorePermit>,
}

/// State that the thread shares with the program.
#[derive(Debug, Default)]
struct State {
    error: Mutex<Option<io::Error>>,
    has_failed: Notify,
}

/// The output of this process. The first call starts the thread.
pub(crate) fn output() -> &'static Output {
    static OUTPUT: OnceLock<Output> = OnceLock::new();
    OUTPUT.get_or_init(Output::start)
}

impl Output {
    fn start() -> Self {
        let (chunks, waiting) = mpsc::channel::<Chunk>();
        let state = Arc::new(State::default());
        let failed = Arc::clone(&state);
        thread::spawn(move || {
            for chunk in waiting {
                let mut to = io::stdout().lock();
                if let Err(error) = to.write_all(&chunk.bytes).and_then(|()| to.flush()) {
                    *failed.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    failed.has_failed.notify_waiters();
                    return;
                }
            }
        });
        let room = Arc::new(Semaphore::new(BYTES_MAX as usize));
        Self { chunks, room, state, left_out: AtomicU64::new(0) }
    }

    /// Queues bytes, and waits for room if too many wait. Dropping the future during the wait queues nothing.
    pub(crate) async fn write(&self, bytes: &mut Vec<u8>) -> io::Result<()> {
        let share = tokio::select! {
            share = Arc::clone(&self.room).acquire_many_owned(share(bytes)) => share.ok(),
            error = self.failed() => return Err(error),
        };
        self.queue(Chunk { bytes: std::mem::take(bytes), _share: share })
    }

    /// Queues a line, or leaves it out if too many bytes wait. The next line tells how many were left out.
    pub(crate) fn write_line(&self, line: &str) {
        let left_out = self.left_out.swap(0, Ordering::Relaxed);
        let note = if left_out > 0 { format!("{left_out} lines are left out here\n") } else { String::new() };
        let bytes = format!("{note}{line}\n").into_bytes();
        match Arc::clone(&self.room).try_acquire_many_owned(share(&bytes)) {
            // A failed write is reported when the next message is printed.
            Ok(share) => drop(self.queue(Chunk { bytes, _share: Some(share) })),
            Err(_) => {
                self.left_out.fetch_add(left_out + 1, Ordering::Relaxed);
            }
        }
    }

    /// Waits until all bytes are written.
    pub(crate) async fn finish(&self) -> io::Result<()> {
        tokio::select! {
            _ = self.room.acquire_many(BYTES_MAX) => self.error().map_or(Ok(()), Err),
            error = self.failed() => Err(error),
        }
    }

    /// Waits for a write that fails, such as one to a closed pipe.
    pub(crate) async fn failed(&self) -> io::Error {
        loop {
            let mut has_failed = std::pin::pin!(self.state.has_failed.notified());
            has_failed.as_mut().enable();
            if let Some(error) = self.error() {
                return error;
            }
            has_failed.await;
        }
    }

    fn queue(&self, chunk: Chunk) -> io::Result<()> {
        self.chunks.send(chunk).map_err(|_| self.error().unwrap_or_else(|| io::ErrorKind::BrokenPipe.into()))
    }

    /// The error of the write that failed, if one did.
    fn error(&self) -> Option<io::Error> {
        let error = self.state.error.lock().unwrap_or_else(PoisonError::into_inner);
        error.as_ref().map(|error| io::Error::new(error.kind(), error.to_string()))
    }
}

/// Number of permits for these bytes.
fn share(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX).min(BYTES_MAX)
}
