//! The `pondhawk` binary.
fn main() {}
