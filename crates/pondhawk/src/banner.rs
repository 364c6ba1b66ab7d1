//! The text that the broker prints when it has started.

use std::fmt::Write;
use std::net::SocketAddr;

use config::Config;

/// Returns the banner, for standard error.
///
/// The banner has the version, and a line for each listener, which programs may wait for. A notice explains a
/// default restriction to the loopback address. Another one names the directory of the data that survives a
/// restart. `bound` are the listeners' addresses with their actual ports.
pub(crate) fn text(config: &Config, bound: &[SocketAddr]) -> String {
    let mut text = format!("pondhawk {}\n", env!("CARGO_PKG_VERSION"));
    for address in bound {
        let _ = writeln!(text, "listening on {address} (tcp)");
    }
    if config.loopback_by_default {
        text.push_str(
            "only this machine can connect, because no listener is configured (see pondhawk --help)\n",
        );
    }
    for notice in config.notices() {
        let _ = writeln!(text, "{notice}");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use config::{Flags, Machine};

    use super::*;

    const MACHINE: Machine =
        Machine { cores: 1, memory_bytes: 1 << 30, open_files: 1_024, state_dir: PathBuf::new() };

    #[test]
    fn every_listener_has_a_line_that_programs_can_wait_for() {
        let config = Config::parse(None, &Flags::default(), &MACHINE).unwrap();
        let banner = text(&config, &["127.0.0.1:40001".parse().unwrap(), "[::1]:40002".parse().unwrap()]);
        assert!(banner.lines().any(|line| line == "listening on 127.0.0.1:40001 (tcp)"), "{banner}");
        assert!(banner.lines().any(|line| line == "listening on [::1]:40002 (tcp)"), "{banner}");
        assert!(
            banner.contains("only this machine can connect, because no listener is configured"),
            "{banner}"
        );
        let flags = Flags { in_memory: true, ..Flags::default() };
        let banner = text(&Config::parse(None, &flags, &MACHINE).unwrap(), &[]);
        assert!(banner.contains("a restart keeps nothing"), "{banner}");
    }

    #[test]
    fn an_open_listener_is_told_to_be_open() {
        let listen = vec!["0.0.0.0:1883".parse().unwrap()];
        let flags = Flags { listen, allow_anonymous: true, ..Flags::default() };
        let config = Config::parse(None, &flags, &MACHINE).unwrap();
        let banner = text(&config, &["0.0.0.0:1883".parse().unwrap()]);
        assert!(banner.contains("everybody who reaches 0.0.0.0:1883 may publish and subscribe"), "{banner}");
        assert!(!banner.contains("only this machine"), "{banner}");
    }
}
