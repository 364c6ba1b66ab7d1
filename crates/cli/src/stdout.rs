//! Standard output, written by a thread of its own.
//!
//! A write blocks when the reader of a pipe stops reading. The program goes on meanwhile: it obeys signals and time limits,
//! and keeps its connection alive.

use std::io::{self, BufWriter, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::thread;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Maximum number of bytes that wait to be written. One larger message is possible.
const BYTES_MAX: u32 = 1 << 20;

/// Size of the buffer in front of standard output.
const BUFFER_BYTES: usize = 64 << 10;

/// The thread that writes, and the bytes that wait for it.
#[derive(Debug)]
pub(crate) struct Output {
    chunks: mpsc::Sender<Chunk>,
    room: Arc<Semaphore>,
    state: Arc<State>,
    /// Lines that were left out because too many bytes were waiting.
    left_out: AtomicU64,
}

struct Chunk {
    print: Print,
    /// Share of [`BYTES_MAX`], which is free again after the write.
    _share: OwnedSemaphorePermit,
}

/// Prints one chunk to the standard output.
type Print = Box<dyn FnOnce(&mut dyn Write) -> io::Result<()> + Send>;

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
                let mut to = BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock());
                if let Err(error) = (chunk.print)(&mut to).and_then(|()| to.flush()) {
                    // The bytes in the buffer cannot be written either.
                    drop(to.into_parts());
                    *failed.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    failed.has_failed.notify_waiters();
                    return;
                }
            }
        });
        let room = Arc::new(Semaphore::new(BYTES_MAX as usize));
        Self { chunks, room, state, left_out: AtomicU64::new(0) }
    }

    /// Waits for room for this many bytes.
    pub(crate) async fn share(&self, bytes: usize) -> io::Result<OwnedSemaphorePermit> {
        tokio::select! {
            share = Arc::clone(&self.room).acquire_many_owned(permits(bytes)) => share.map_err(io::Error::other),
            error = self.failed() => Err(error),
        }
    }

    /// Queues a chunk, which the thread prints. `share` is free again when it is written.
    pub(crate) fn print(
        &self,
        share: OwnedSemaphorePermit,
        print: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let chunk = Chunk { print: Box::new(print), _share: share };
        self.chunks.send(chunk).map_err(|_| self.error().unwrap_or_else(|| io::ErrorKind::BrokenPipe.into()))
    }

    /// Queues a line, or leaves it out if too many bytes wait. The next line tells how many were left out.
    pub(crate) fn write_line(&self, line: &str) {
        let left_out = self.left_out.swap(0, Ordering::Relaxed);
        let note = if left_out > 0 { format!("{left_out} lines are left out here\n") } else { String::new() };
        let bytes = format!("{note}{line}\n").into_bytes();
        match Arc::clone(&self.room).try_acquire_many_owned(permits(bytes.len())) {
            // A failed write is reported when the next message is printed.
            Ok(share) => drop(self.print(share, move |to| to.write_all(&bytes))),
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

    /// The error of the write that failed, if one did.
    fn error(&self) -> Option<io::Error> {
        let error = self.state.error.lock().unwrap_or_else(PoisonError::into_inner);
        error.as_ref().map(|error| io::Error::new(error.kind(), error.to_string()))
    }
}

/// Number of permits for these bytes.
fn permits(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX).min(BYTES_MAX)
}
