//! Counts what the thread that measures allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static TALLY: Cell<Tally> = const { Cell::new(Tally { allocations: 0, bytes_held: 0 }) };
}

/// Allocations of this thread since it began. A growth in place counts as one allocation of the added bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    /// Calls that asked for memory.
    pub(crate) allocations: u64,
    /// Bytes not given back yet.
    pub(crate) bytes_held: u64,
}

impl Tally {
    /// Returns the tally up to now.
    pub(crate) fn now() -> Self {
        TALLY.get()
    }

    fn note(bytes_added: usize, bytes_freed: usize) {
        let mut tally = TALLY.get();
        if bytes_added > 0 {
            tally.allocations += 1;
        }
        tally.bytes_held = tally.bytes_held.wrapping_add(bytes_added as u64).wrapping_sub(bytes_freed as u64);
        TALLY.set(tally);
    }
}

/// The system's allocator, counted.
pub(crate) struct CountingAllocator;

// SAFETY: every call is passed on to the system's allocator unchanged; counting touches a thread-local cell that needs
// neither memory nor a destructor.
#[allow(unsafe_code, reason = "an allocator cannot be written without")]
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Tally::note(layout.size(), 0);
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Tally::note(layout.size(), 0);
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Tally::note(size.saturating_sub(layout.size()), layout.size().saturating_sub(size));
        unsafe { System.realloc(old, layout, size) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        Tally::note(0, layout.size());
        unsafe { System.dealloc(old, layout) }
    }
}
