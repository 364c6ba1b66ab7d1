//! Types of which the inboxes of threads are made. `tests/threads` replaces these types by models.

pub(crate) use std::sync::atomic::{AtomicBool, Ordering};
pub(crate) use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
pub(crate) use std::thread::Thread;

pub(crate) use mio::Waker;
