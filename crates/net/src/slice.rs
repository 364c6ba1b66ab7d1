//! The share of a processor that threads ask for: a short time slice for those that serve clients, and less time for those that
//! compute.
//!
//! On a machine with one core, a message that must be stored passes from its shard to the ledger, to the journal and back.
//! Each of these threads waits until the thread before it has used its slice: 0.7 to 2.8 ms by default, which depends on the
//! number of cores. Clients that wait for others then wait for four slices. Since Linux 6.12 a thread may ask for another
//! slice. Threads with cores of their own do not notice a difference.

/// The time slice of shards and of the ledger, in nanoseconds. Turns rarely take longer than this.
const SLICE_NS: u64 = 200_000;

/// Asks the system for a short time slice for this thread, and for threads that this thread starts. Systems without such a
/// setting, and older versions of Linux, ignore the request. A scheduling policy that somebody has chosen stays.
#[cfg(target_os = "linux")]
pub(crate) fn shorten() {
    change(|attributes| attributes.sched_runtime = SLICE_NS);
}

/// Niceness that is added for a thread that computes, that asks servers about users, or that answers operators. Beside a thread that
/// serves clients, it then gets about a tenth of a processor, and all of a processor that nobody else needs.
#[cfg(target_os = "linux")]
const COMPUTING_NICENESS: i32 = 10;

/// Asks the system for less time for this thread than others have, as long as others need it.
#[cfg(target_os = "linux")]
pub fn give_way() {
    change(|attributes| attributes.sched_nice = (attributes.sched_nice + COMPUTING_NICENESS).min(19));
}

/// Changes the attributes of this thread.
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "these system calls have no safe interface")]
fn change(change: impl FnOnce(&mut libc::sched_attr)) {
    let size = size_of::<libc::sched_attr>();
    let this_thread: libc::pid_t = 0;
    let no_flags: libc::c_uint = 0;
    let mut attributes = libc::sched_attr {
        size: u32::try_from(size).expect("the structure has 48 bytes"),
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the system writes at most `size` bytes to `attributes`, which has that size.
    let is_read =
        unsafe { libc::syscall(libc::SYS_sched_getattr, this_thread, &raw mut attributes, size, no_flags) };
    if is_read != 0 || attributes.sched_policy != libc::SCHED_OTHER.cast_unsigned() {
        return;
    }
    change(&mut attributes);
    // SAFETY: the system reads `attributes`, whose first field is its size.
    unsafe { libc::syscall(libc::SYS_sched_setattr, this_thread, &raw const attributes, no_flags) };
}

/// Other systems have no such setting.
#[cfg(not(target_os = "linux"))]
pub(crate) fn shorten() {}

/// Other systems have no such setting.
#[cfg(not(target_os = "linux"))]
pub fn give_way() {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::{fs, thread};

    use super::*;

    /// The time slice and the niceness of this thread, where the system shows the slice.
    fn slice_and_niceness() -> Option<(u64, i64)> {
        let text = fs::read_to_string("/proc/thread-self/sched").ok()?;
        let slice = text.lines().find(|line| line.starts_with("se.slice"))?.rsplit(':').next()?;
        let state = fs::read_to_string("/proc/thread-self/stat").ok()?;
        // The name of the thread, in parentheses, is the second field. Niceness is field 19.
        let niceness = state.rsplit(')').next()?.split_whitespace().nth(16)?;
        Some((slice.trim().parse().ok()?, niceness.parse().ok()?))
    }

    #[test]
    fn the_slice_is_short_afterwards_and_the_niceness_stays() {
        let thread = thread::spawn(|| {
            let before = slice_and_niceness();
            shorten();
            (before, slice_and_niceness())
        });
        let (before, after) = thread.join().expect("it does not panic");
        let expected = before.map(|(_, niceness)| (SLICE_NS, niceness));
        assert_eq!(after, expected);
    }

    #[test]
    fn a_thread_that_computes_gives_way() {
        let thread = thread::spawn(|| {
            shorten();
            let before = slice_and_niceness();
            give_way();
            (before, slice_and_niceness())
        });
        let (before, after) = thread.join().expect("it does not panic");
        let nicer = |niceness: i64| (niceness + i64::from(COMPUTING_NICENESS)).min(19);
        assert_eq!(after, before.map(|(slice_ns, niceness)| (slice_ns, nicer(niceness))));
    }
}
