//! `pondhawk serve`: the broker.

use std::io;

use config::Config;

/// Runs the broker until it is told to stop.
///
/// # Errors
/// When an address cannot be listened on.
pub(crate) fn serve(config: &Config) -> io::Result<()> {
    eprint!("{}", crate::banner::text(config, &[]));
    Err(io::Error::new(io::ErrorKind::Unsupported, "serving is not built yet"))
}
