//! Types that threads share. `tests/threads` replaces these types by models.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
