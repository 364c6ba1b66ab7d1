//! Threads that compute for milliseconds, beside threads that serve clients.
//!
//! Such a thread has a low priority ([`slice::give_way`](crate::slice::give_way)), and gives the processor back when it has
//! had it for 0.2 ms. The low priority is not enough, because Linux rarely interrupts a thread between two ticks of its clock, which
//! are up to 10 ms apart. A shard that has just used more than its share, and that a message wakes, would wait for the next
//! tick while a password is checked.
//!
//! Libraries that compute cannot be asked to pause. A timer sends a signal to the thread instead, and the handler of the
//! signal calls `sched_yield`. Then the handler starts the timer again: a timer that went on by itself would send the next
//! signal while the thread waits for the processor, and the thread would give it back at once, for ever.

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) use linux::Courtesy;
#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
pub(crate) use others::Courtesy;

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod linux {
    use std::cell::Cell;
    use std::marker::PhantomData;
    use std::sync::OnceLock;
    use std::sync::atomic::{Ordering, compiler_fence};
    use std::{mem, ptr};

    /// Time after which a thread that computes gives the processor back.
    const INTERVAL_NS: i64 = 200_000;

    thread_local! {
        /// The timer that the handler starts again; `None` while this thread does not compute.
        static RUNNING: Cell<Option<Timer>> = const { Cell::new(None) };
    }

    /// The timer of one thread that computes. It stays on its thread.
    pub(crate) struct Courtesy {
        /// `None` if the system has no timers left. The thread then has its low priority only.
        timer: Option<Timer>,
        stays: PhantomData<*const ()>,
    }

    /// A timer of the kernel that sends signals to one thread. [`Courtesy`] owns it.
    #[derive(Clone, Copy)]
    struct Timer(libc::c_int);

    impl Courtesy {
        /// A timer for this thread, which is stopped.
        pub(crate) fn begin() -> Self {
            Self { timer: has_handler().then(Timer::new).flatten(), stays: PhantomData }
        }

        /// Computes, and gives the processor back again and again meanwhile.
        pub(crate) fn compute<T>(&self, computation: impl FnOnce() -> T) -> T {
            let Some(timer) = &self.timer else { return computation() };
            RUNNING.set(Some(*timer));
            timer.set(INTERVAL_NS);
            // The handler reads the value between these lines: the compiler must not set it earlier or later.
            compiler_fence(Ordering::SeqCst);
            let outcome = computation();
            compiler_fence(Ordering::SeqCst);
            RUNNING.set(None);
            timer.set(0);
            outcome
        }
    }

    /// The signal of the timers: the second that applications may use. Some debuggers use the first.
    fn signal() -> libc::c_int {
        libc::SIGRTMIN() + 1
    }

    /// Whether the signal has its handler, which the first call installs. Without it the signal would end the process.
    #[allow(unsafe_code, reason = "a handler of a signal has no safe interface")]
    fn has_handler() -> bool {
        extern "C" fn give_processor_back(_: libc::c_int) {
            #[cfg(test)]
            tests::SIGNALS.set(tests::SIGNALS.get() + 1);
            // SAFETY: the call has no arguments, may be used in handlers, and never fails on Linux, so that `errno` stays.
            unsafe { libc::sched_yield() };
            // A value of this thread that needs neither a start nor an end: to read it is safe in a handler.
            if let Some(timer) = RUNNING.get() {
                timer.set(INTERVAL_NS);
            }
        }
        static IS_INSTALLED: OnceLock<bool> = OnceLock::new();
        *IS_INSTALLED.get_or_init(|| {
            // SAFETY: all fields of this structure may be zero.
            let mut action: libc::sigaction = unsafe { mem::zeroed() };
            action.sa_sigaction = give_processor_back as extern "C" fn(libc::c_int) as libc::sighandler_t;
            // A call that waits when the last signal arrives goes on.
            action.sa_flags = libc::SA_RESTART;
            // SAFETY: the action is complete, and nobody asks for the one before.
            unsafe { libc::sigaction(signal(), &raw const action, ptr::null_mut()) == 0 }
        })
    }

    impl Timer {
        /// A timer for this thread, which does not run yet.
        #[allow(unsafe_code, reason = "timers have no safe interface")]
        fn new() -> Option<Self> {
            // SAFETY: all fields of this structure may be zero.
            let mut event: libc::sigevent = unsafe { mem::zeroed() };
            event.sigev_signo = signal();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            // SAFETY: the call has no arguments and always succeeds.
            event.sigev_notify_thread_id = unsafe { libc::gettid() };
            let mut timer: libc::c_int = 0;
            // SAFETY: the system reads `event` and writes a number of 32 bits to `timer`.
            let created = unsafe {
                libc::syscall(libc::SYS_timer_create, libc::CLOCK_MONOTONIC, &raw const event, &raw mut timer)
            };
            (created == 0).then_some(Self(timer))
        }

        /// Sends one signal after this time; none if it is zero. The call may be used in handlers, and does not fail as long as
        /// the timer exists.
        #[allow(unsafe_code, reason = "timers have no safe interface")]
        fn set(self, after_ns: i64) {
            let [it_interval, it_value] = [0, after_ns].map(|tv_nsec| libc::timespec { tv_sec: 0, tv_nsec });
            let times = libc::itimerspec { it_interval, it_value };
            let no_flags: libc::c_int = 0;
            let before: *mut libc::itimerspec = ptr::null_mut();
            // SAFETY: the system reads `times`. The timer exists until its owner is dropped.
            unsafe { libc::syscall(libc::SYS_timer_settime, self.0, no_flags, &raw const times, before) };
        }
    }

    #[cfg(test)]
    impl Timer {
        /// Time to the next signal in nanoseconds; zero if there will be none.
        #[allow(unsafe_code, reason = "timers have no safe interface")]
        fn remaining_ns(self) -> i64 {
            let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            let mut times = libc::itimerspec { it_interval: none, it_value: none };
            // SAFETY: the system writes to `times`. The timer exists until its owner is dropped.
            unsafe { libc::syscall(libc::SYS_timer_gettime, self.0, &raw mut times) };
            times.it_value.tv_nsec
        }
    }

    impl Drop for Courtesy {
        #[allow(unsafe_code, reason = "timers have no safe interface")]
        fn drop(&mut self) {
            // A computation may have panicked.
            RUNNING.set(None);
            if let Some(Timer(timer)) = self.timer {
                // SAFETY: the timer exists, and nobody uses its number afterwards.
                unsafe { libc::syscall(libc::SYS_timer_delete, timer) };
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use std::cell::Cell;
        use std::thread;
        use std::time::{Duration, Instant};

        use super::*;

        thread_local! {
            /// How often the handler has run on this thread.
            pub(super) static SIGNALS: Cell<u64> = const { Cell::new(0) };
        }

        /// Whether this thread gets two signals more while it computes. A minute is enough on any machine.
        fn is_interrupted() -> bool {
            let (before, until) = (SIGNALS.get(), Instant::now() + Duration::from_secs(60));
            while SIGNALS.get() < before + 2 && Instant::now() < until {
                std::hint::spin_loop();
            }
            SIGNALS.get() >= before + 2
        }

        #[test]
        fn a_thread_gives_the_processor_back_while_it_computes() {
            let thread = thread::spawn(|| {
                let courtesy = Courtesy::begin();
                let timer = courtesy.timer.as_ref().expect("a timer");
                for _ in 0..2 {
                    courtesy.compute(|| {
                        assert!(is_interrupted());
                        assert_ne!(timer.remaining_ns(), 0);
                    });
                    assert_eq!(timer.remaining_ns(), 0, "it has stopped");
                }
            });
            thread.join().expect("it does not panic");
        }
    }
}

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
mod others {
    /// Other systems have no such timers.
    pub(crate) struct Courtesy;

    impl Courtesy {
        pub(crate) fn begin() -> Self {
            Self
        }

        pub(crate) fn compute<T>(&self, computation: impl FnOnce() -> T) -> T {
            computation()
        }
    }
}
