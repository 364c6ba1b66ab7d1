//! Memory that was freed and that the allocator keeps is given back to the system.
//!
//! An allocator keeps what is freed for the next time. glibc's keeps all of it, but for what lies at the end of a heap:
//! after a burst a server would stay as large as it ever was. A thread compares once a second what is resident with what
//! is on the [`Budget`]. The difference is what the process takes for itself, and what the allocator keeps. When the
//! difference has grown, the thread asks the allocator to give back what it can.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fs, io};

use base::Budget;

/// Time between two looks.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The difference has to grow by so much, in bytes: giving back costs page faults when the memory is wanted again.
const GROWTH_BYTES: usize = 16 << 20;
/// Looks between two times that something is given back.
const LOOKS_BETWEEN: u32 = 5;
/// After this number of looks, a smaller growth is enough: a few page faults in half a minute cost nothing.
const PATIENT_LOOKS: u32 = 30;
/// The smaller growth, in bytes.
const PATIENT_GROWTH_BYTES: usize = 4 << 20;
/// A smaller part of the difference is no growth: the allocator looks at all its free memory, which may be much.
const GROWTH_PART: usize = 16;

/// The thread; it ends when this is dropped.
pub(crate) struct Trimmer {
    /// Nothing is ever sent.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Trimmer {
    /// Starts the thread, where the system says what is resident and the allocator can give memory back.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(crate) fn start(budget: Arc<Budget>) -> io::Result<Self> {
        let (end, ended) = channel();
        let run = move || run(&budget, &ended);
        let thread = thread::Builder::new().name("memory".to_owned()).spawn(run)?;
        Ok(Self { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Trimmer {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

fn run(budget: &Budget, ended: &Receiver<()>) {
    let mut gap = Gap::default();
    while ended.recv_timeout(LOOK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
        let unexplained = || resident_bytes().map(|resident| resident.saturating_sub(budget.used_bytes()));
        let Some(bytes) = unexplained() else { return };
        if gap.look(bytes) {
            give_back();
            gap.note_given_back(unexplained().unwrap_or(bytes));
        }
    }
}

/// The difference between what is resident and what is on the account.
#[derive(Debug, Default)]
struct Gap {
    /// The least that it was since something was given back; nothing before the first look.
    least_bytes: Option<usize>,
    looks: u32,
}

impl Gap {
    /// Whether so many bytes are enough to give some back.
    fn look(&mut self, bytes: usize) -> bool {
        let least = self.least_bytes.map_or(bytes, |least| least.min(bytes));
        self.least_bytes = Some(least);
        self.looks = self.looks.saturating_add(1);
        let grown = bytes - least;
        let patient_bytes = PATIENT_GROWTH_BYTES.max(least / GROWTH_PART);
        self.looks >= LOOKS_BETWEEN && grown >= GROWTH_BYTES
            || self.looks >= PATIENT_LOOKS && grown >= patient_bytes
    }

    /// So much is left afterwards: it is used, and not asked for again.
    fn note_given_back(&mut self, bytes: usize) {
        *self = Self { least_bytes: Some(bytes), looks: 0 };
    }
}

/// Resident memory of this process, in bytes; nothing where there is no `/proc`.
fn resident_bytes() -> Option<usize> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code, reason = "glibc has no safe interface for giving memory back")]
fn give_back() {
    // SAFETY: malloc_trim(3) may be called at any time by any thread; 0 is how much stays at the end of the heap.
    unsafe { libc::malloc_trim(0) };
}

/// Other allocators give back by themselves, or cannot be asked.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn give_back() {}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn memory_is_given_back_when_much_more_is_resident_than_is_explained() {
        let mut gap = Gap::default();
        for bytes in [20 * MIB, 10 * MIB, 25 * MIB, 25 * MIB, 25 * MIB] {
            assert!(!gap.look(bytes), "it has not grown by enough");
        }
        assert!(gap.look(26 * MIB));
    }

    #[test]
    fn memory_that_cannot_be_given_back_is_not_asked_for_again() {
        let mut gap = Gap::default();
        gap.look(10 * MIB);
        gap.note_given_back(90 * MIB);
        assert!((0..100).all(|_| !gap.look(90 * MIB)));
        gap.note_given_back(90 * MIB);
        assert!((1..LOOKS_BETWEEN).all(|_| !gap.look(106 * MIB)));
        assert!(gap.look(106 * MIB));
    }

    #[test]
    fn little_memory_is_given_back_after_half_a_minute() {
        let mut gap = Gap::default();
        gap.note_given_back(10 * MIB);
        assert!((1..PATIENT_LOOKS).all(|_| !gap.look(14 * MIB)));
        assert!(gap.look(14 * MIB));
        // Less is not worth it, and of much memory neither is that.
        for (bytes, grown) in [(10 * MIB, 14 * MIB - 1), (160 * MIB, 170 * MIB - 1)] {
            gap.note_given_back(bytes);
            assert!((0..100).all(|_| !gap.look(grown)));
            assert!(gap.look(grown + 1));
        }
    }

    #[test]
    fn it_is_not_asked_for_more_than_once_in_a_few_looks() {
        let mut gap = Gap::default();
        gap.note_given_back(0);
        let asked = (1..=LOOKS_BETWEEN).filter(|_| gap.look(GROWTH_BYTES));
        assert_eq!(asked.count(), 1);
    }

    /// The test measures a process of its own: the other tests of this process allocate and free memory meanwhile.
    #[test]
    fn freed_memory_is_given_back() {
        const ALONE: &str = "PONDHAWK_TEST_ALONE";
        if std::env::var_os(ALONE).is_none() {
            let program = std::env::current_exe().expect("the path of this program");
            let name = "trim::tests::freed_memory_is_given_back";
            let run = Command::new(program).args(["--exact", name]).env(ALONE, "1").output();
            let run = run.expect("this program can be started");
            let text = String::from_utf8_lossy(&run.stdout);
            return assert!(run.status.success() && text.contains("1 passed"), "{text}");
        }
        // Small pieces, of which every hundredth stays: nothing of it lies at the end of a heap.
        let mut pieces: Vec<_> = (0..100_000).map(|_| Some(vec![1_u8; 1_000])).collect();
        for (at, piece) in pieces.iter_mut().enumerate() {
            if at % 100 != 0 {
                *piece = None;
            }
        }
        let Some(before) = resident_bytes() else { return };
        give_back();
        if cfg!(all(target_os = "linux", target_env = "gnu")) {
            let after = resident_bytes().expect("it was told before");
            assert!(after + 40 * MIB < before, "{before} bytes, and {after} afterwards");
        }
        drop(pieces);
    }
}
