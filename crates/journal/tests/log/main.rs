//! The log on a simulated disk: groups of bytes that say of themselves which they are.

mod power_cuts;
mod scene;
mod space;
