//! The text that the broker prints when it has started.

use std::fmt::Write;

use config::{Config, Listener, Protocol};

/// Returns the banner, for standard error.
///
/// The banner has the version, and a line for each listener, which programs may wait for. A notice explains a
/// default restriction to the loopback address. Another one names the directory of the data that survives a
/// restart. `bound` are the listeners' addresses with their actual ports, and `first_user` is for
/// [`Config::notices`].
pub(crate) fn text(config: &Config, bound: &[String], first_user: &str) -> String {
    let mut text = format!("pondhawk {}\n", env!("CARGO_PKG_VERSION"));
    for (listener, address) in config.listeners.iter().zip(bound) {
        let _ = writeln!(text, "listening on {address} ({})", kind(listener, address));
    }
    if config.loopback_by_default {
        text.push_str(
            "only this machine can connect, because no listener is configured (see pondhawk --help)\n",
        );
    }
    for notice in config.notices(first_user) {
        let _ = writeln!(text, "{notice}");
    }
    text
}

/// The transports and protocols of a listener, in a few words.
pub(crate) fn kind(listener: &Listener, address: &str) -> String {
    let is_unix = address.starts_with("unix");
    let transport = match (listener.tls_certificate.is_empty(), listener.tls_optional) {
        _ if listener.address.is_quic() => "quic",
        (true, _) if is_unix => "unix",
        (false, true) if is_unix => "unix, tls optional",
        (true, _) => "tcp",
        (false, false) => "tls",
        (false, true) => "tcp or tls",
    };
    let protocol = match listener.protocol {
        Protocol::Auto => "",
        Protocol::Mqtt => ", no websocket",
        Protocol::WebSocket => ", websocket only",
    };
    let proxy = if listener.proxy_from.is_empty() { "" } else { ", load balancers only" };
    format!("{transport}{protocol}{proxy}")
}

/// The path for WebSockets of a listener at a place in a network. A listener for load balancers only is none.
pub(crate) fn websocket_path(listener: &Listener, address: &str) -> Option<String> {
    let is_elsewhere =
        address.starts_with("unix") || listener.address.is_quic() || !listener.proxy_from.is_empty();
    let accepts = !is_elsewhere && listener.protocol != Protocol::Mqtt;
    accepts.then(|| listener.websocket_path.clone().unwrap_or_else(|| "/".to_owned()))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use config::{Flags, Machine, Sources};

    use super::*;

    const MACHINE: Machine =
        Machine { cores: 1, memory_bytes: 1 << 30, open_files: 1_024, state_dir: PathBuf::new() };

    #[test]
    fn every_listener_has_a_line_that_programs_can_wait_for() {
        let config = Config::parse(&Sources::default(), &Flags::default(), &MACHINE).unwrap();
        let banner = text(&config, &["127.0.0.1:40001".to_owned()], "");
        assert!(banner.lines().any(|line| line == "listening on 127.0.0.1:40001 (tcp)"), "{banner}");
        assert!(
            banner.contains("only this machine can connect, because no listener is configured"),
            "{banner}"
        );
        let file = "[[listener]]\naddress = \"127.0.0.1:0\"\ntls_certificate = \"a\"\ntls_key = \"b\"\n\
                    tls_optional = true\n[[listener]]\naddress = \"[::1]:0\"\nprotocol = \"websocket\"\n\
                    proxy_from = \"10.0.0.0/8\"\n\
                    [[listener]]\naddress = \"quic://127.0.0.1:0\"\ntls_certificate = \"a\"\ntls_key = \"b\"\n";
        let file = Sources::of("pond.toml", file);
        let config = Config::parse(&file, &Flags::default(), &MACHINE).unwrap();
        let banner = text(
            &config,
            &["127.0.0.1:40001", "[::1]:40002", "quic://127.0.0.1:40003"].map(str::to_owned),
            "",
        );
        for line in [
            "listening on 127.0.0.1:40001 (tcp or tls)",
            "listening on [::1]:40002 (tcp, websocket only, load balancers only)",
            "listening on quic://127.0.0.1:40003 (quic)",
        ] {
            assert!(banner.lines().any(|found| found == line), "{banner}");
        }
        let flags = Flags { in_memory: true, ..Flags::default() };
        let banner = text(&Config::parse(&Sources::default(), &flags, &MACHINE).unwrap(), &[], "");
        assert!(banner.contains("a restart keeps nothing"), "{banner}");
    }

    #[test]
    fn an_open_listener_is_told_to_be_open() {
        let listen = vec!["0.0.0.0:1883".parse().unwrap()];
        let flags = Flags { listen, allow_anonymous: true, ..Flags::default() };
        let config = Config::parse(&Sources::default(), &flags, &MACHINE).unwrap();
        let banner = text(&config, &["0.0.0.0:1883".to_owned()], "");
        assert!(banner.contains("everybody who reaches 0.0.0.0:1883 may publish and subscribe"), "{banner}");
        assert!(!banner.contains("only this machine"), "{banner}");
    }
}
