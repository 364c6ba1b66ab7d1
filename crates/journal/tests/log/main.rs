//! The log on a simulated disk: groups of bytes that say of themselves which they are.

mod damage;
mod failures;
mod harm;
mod hostile;
mod lengths;
mod power_cuts;
mod pressure;
mod repair;
mod scene;
mod space;
