//! Tests of valid configuration files and their results, and of the messages about invalid files.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::time::Duration;

use config::{
    Config, Environment, Files, Flags, LogFormat, LogLevel, Machine, Report, Sources, UnixIdentity,
};
use proptest::prelude::*;

const FIRST_USER: &str = "a program";

fn machine() -> Machine {
    Machine { cores: 4, memory_bytes: 8 << 30, open_files: 20_064, state_dir: "/home/p/state".into() }
}

fn parse(text: &str) -> Result<Config, Report> {
    Config::parse(&Sources::of("pond.toml", text), &Flags::default(), &machine())
}

fn with_flags(text: &str, flags: &Flags) -> Result<Config, Report> {
    Config::parse(&Sources::of("pond.toml", text), flags, &machine())
}

fn titles(text: &str) -> Vec<String> {
    parse(text).unwrap_err().problems().iter().map(|problem| problem.title().to_owned()).collect()
}

fn addresses(config: &Config) -> Vec<String> {
    config.listeners.iter().map(|listener| listener.address.to_string()).collect()
}

#[test]
fn without_a_file_the_broker_listens_on_loopback_and_is_bounded_by_the_machine() {
    let config = Config::parse(&Sources::default(), &Flags::default(), &machine()).unwrap();
    assert_eq!(addresses(&config), ["127.0.0.1:1883"]);
    assert!(config.loopback_by_default);
    assert_eq!(config.shards, 4);
    assert_eq!(config.limits.connections, 20_000);
    assert_eq!(config.limits.memory_budget_bytes, 4 << 30);
    assert_eq!(config.limits.retained_bytes, 2 << 30);
    assert_eq!(config.limits.waiting_bytes, 1 << 30);
    assert_eq!(config.limits.keep_alive, None);
    assert_eq!(config.sys.interval, Some(Duration::from_secs(10)));
    assert_eq!(config, parse("").unwrap());
}

#[test]
fn every_key_can_be_set() {
    let config = parse(
        r#"
        shards = 2
        data_dir = "/var/lib/pond"
        [[listener]]
        address = "[::1]:1884"
        [[listener]]
        address = "0.0.0.0:0"
        allow_anonymous = true
        [limits]
        packet_bytes = "1.5 MiB"
        connect_packet_bytes = 0x4000
        connect_timeout = "1500 ms"
        keep_alive = "1 h"
        connections = 1_000
        client_id_bytes = 65_535
        topic_levels = 8
        subscriptions_per_client = 5
        topic_alias_maximum = 0
        output_buffer_bytes = "64KiB"
        memory_budget_bytes = "1 GiB"
        retained_bytes = "auto"
        waiting_bytes = "8 MiB"
        will_bytes = 0
        [log]
        level = "trace"
        format = "json"
        [sys]
        interval = "off"
        "#,
    )
    .unwrap();
    assert_eq!(addresses(&config), ["[::1]:1884", "0.0.0.0:0"]);
    assert!(!config.loopback_by_default);
    assert_eq!((config.shards, config.data_dir.as_deref()), (2, Some("/var/lib/pond".as_ref())));
    let limits = &config.limits;
    assert_eq!((limits.packet_bytes, limits.connect_packet_bytes), (3 << 19, 16_384));
    assert_eq!(limits.connect_timeout, Duration::from_millis(1_500));
    assert_eq!(limits.keep_alive, Some(Duration::from_secs(3_600)));
    assert_eq!((limits.connections, limits.client_id_bytes, limits.topic_levels), (1_000, 65_535, 8));
    assert_eq!((limits.subscriptions_per_client, limits.topic_alias_maximum), (5, 0));
    assert_eq!((limits.output_buffer_bytes, limits.will_bytes), (64 << 10, 0));
    assert_eq!((limits.retained_bytes, limits.waiting_bytes), (512 << 20, 8 << 20));
    assert_eq!((config.log.level, config.log.format), (LogLevel::Trace, LogFormat::Json));
    assert_eq!(config.sys.interval, None);
    assert_eq!(config, parse(&config.to_toml()).unwrap(), "what is printed means the same");
}

#[test]
fn the_defaults_written_out_mean_the_defaults() {
    let config = parse("").unwrap();
    let written = parse(&config.to_toml()).unwrap();
    assert_eq!(written, Config { loopback_by_default: false, ..config });
}

#[test]
fn an_error_points_at_its_line_and_says_what_is_expected() {
    let report = parse("shards = 2\n\n[limits]\nconnect_timeout = 10\n").unwrap_err();
    assert_eq!(report.line_and_column(&report.problems()[0]), Some((4, 19)));
    assert_eq!(
        report.to_string(),
        "\
error: `limits.connect_timeout` needs a unit
 --> pond.toml:4:19
  |
4 | connect_timeout = 10
  |                   ^^ expected a duration with its unit, such as \"10 s\", \"250 ms\" or \"1.5 h\", from 100 ms to 1 h"
    );
}

#[test]
fn every_error_of_a_file_is_reported_in_its_order() {
    let text = r#"
        shards = 0
        shard = 2
        [limits]
        packet_bytes = "2 MB"
        packet_bytes = "2 MiB"
        topic_level = 3
        keep_alive = true
        connections = -1
        [[listener]]
        allow_anonymous = "of"
        [log]
        level = "loud"
        format = = 3
        [lmits]
    "#;
    let report = parse(text).unwrap_err();
    let lines: Vec<usize> =
        report.problems().iter().map(|problem| report.line_and_column(problem).unwrap().0).collect();
    assert_eq!(lines, [2, 3, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15], "{report}");
}

#[test]
fn a_value_out_of_bounds_is_told_its_bounds() {
    let report = parse("shards = 65").unwrap_err().to_string();
    assert!(report.contains("expected a whole number, from 1 to 64, or \"auto\""), "{report}");
    assert_eq!(titles("[limits]\npacket_bytes = \"300 MiB\""), ["`limits.packet_bytes` is out of bounds"]);
    assert_eq!(titles("[limits]\npacket_bytes = 99999999999"), ["`limits.packet_bytes` is too large"]);
    assert_eq!(titles("[limits]\nkeep_alive = \"0 s\""), ["`limits.keep_alive` is out of bounds"]);
}

#[test]
fn an_unknown_key_is_an_error_that_names_the_nearest() {
    let report = parse("[limits]\nmax_packet_size = 1").unwrap_err().to_string();
    assert!(report.contains("there is no key `max_packet_size` in `limits`"), "{report}");
    assert!(report.contains("did you mean `packet_bytes`?"), "{report}");
    let report = parse("topic_levels = 1").unwrap_err().to_string();
    assert!(report.contains("did you mean `topic_levels` in [limits]?"), "{report}");
    let report = parse("[listen]\naddress = \"127.0.0.1:1\"").unwrap_err().to_string();
    assert!(report.contains("did you mean `listener`?"), "{report}");
}

#[test]
fn a_table_written_with_the_wrong_brackets_is_told_the_right_ones() {
    let report = parse("[listener]\naddress = \"127.0.0.1:1\"").unwrap_err().to_string();
    assert!(report.contains("write [[listener]], with double brackets"), "{report}");
    let report = parse("limits = 3").unwrap_err().to_string();
    assert!(report.contains("write [limits]"), "{report}");
    let report = parse("[[log]]").unwrap_err().to_string();
    assert!(report.contains("write [log]"), "{report}");
}

#[test]
fn an_address_that_others_reach_must_be_asked_for() {
    let open = "[[listener]]\naddress = \"0.0.0.0:1883\"\n";
    let config = parse(open).unwrap();
    let [listener] = &config.listeners[..] else { panic!("one listener") };
    assert_eq!((listener.address.to_string(), listener.allow_anonymous), ("127.0.0.1:1883".to_owned(), true));
    assert!(config.notices(FIRST_USER)[0].starts_with("0.0.0.0:1883 is not open to other machines"));
    assert!(parse(&format!("{open}allow_anonymous = true")).is_ok());
    let config = parse(&format!("allow_anonymous = true\n{open}")).unwrap();
    assert_eq!(
        config.notices(FIRST_USER),
        [
            "everybody who reaches 0.0.0.0:1883 may publish and subscribe",
            "what is acknowledged is in /home/p/state"
        ]
    );
    let config = parse(&format!("allow_anonymous = true\n{open}allow_anonymous = false")).unwrap();
    assert!(!config.listeners[0].allow_anonymous);
    assert!(with_flags(open, &Flags { allow_anonymous: true, ..Flags::default() }).is_ok());
}

#[test]
fn a_listener_without_users_is_on_loopback_instead_unless_another_is() {
    let addresses = |text: &str| -> Vec<String> {
        let listeners = parse(text).unwrap().listeners;
        listeners.iter().map(|listener| listener.address.to_string()).collect()
    };
    let listener = |address: &str| format!("[[listener]]\naddress = \"{address}\"\n");
    let all = ["0.0.0.0:1", "[::]:1", "192.0.2.1:2", "pond.example:3", "0.0.0.0:0"].map(listener).concat();
    assert_eq!(addresses(&all), ["127.0.0.1:1", "[::1]:1", "127.0.0.1:2", "127.0.0.1:3", "127.0.0.1:0"]);
    let both = ["0.0.0.0:1", "127.0.0.1:1", "192.0.2.1:1"].map(listener).concat();
    assert_eq!(addresses(&both), ["127.0.0.1:1"]);
    let users = "password_file = \"users\"\n";
    for with_users in
        [format!("{}{users}", listener("0.0.0.0:1")), format!("[auth]\n{users}{}", listener("0.0.0.0:1"))]
    {
        let config = parse(&with_users).unwrap();
        assert_eq!(config.listeners[0].address.to_string(), "0.0.0.0:1");
        assert!(!config.listeners[0].allow_anonymous && config.not_open.is_empty(), "{with_users}");
    }
    let without = format!("[auth]\n{users}{}password_file = \"off\"\n", listener("0.0.0.0:1"));
    assert_eq!(addresses(&without), ["127.0.0.1:1"]);
    assert!(!parse(&format!("[auth]\n{users}")).unwrap().listeners[0].allow_anonymous);
}

#[test]
fn a_listener_that_nobody_can_use_has_a_notice() {
    let listener = "[[listener]]\naddress = \"127.0.0.1:1\"\nallow_anonymous = false\n";
    let is_told = |text: &str| {
        let notices = parse(text).unwrap().notices(FIRST_USER);
        notices.iter().any(|notice| notice.starts_with("nobody can connect to 127.0.0.1:1"))
    };
    assert!(is_told("allow_anonymous = false") && is_told(listener));
    assert!(!is_told("") && !is_told(&format!("{listener}password_file = \"users\"\n")));
}

#[test]
fn a_listener_has_an_address_of_its_own() {
    let twice = "[[listener]]\naddress = \"127.0.0.1:1\"\n[[listener]]\naddress = \"127.0.0.1:1\"";
    assert_eq!(titles(twice), ["there are two listeners on 127.0.0.1:1"]);
    assert_eq!(titles("[[listener]]"), ["`listener.address` is missing"]);
}

#[test]
fn a_quic_listener_has_a_certificate_and_nothing_of_tcp() {
    let listener = |keys: &str| format!("[[listener]]\naddress = \"quic://127.0.0.1:14567\"\n{keys}");
    assert_eq!(
        titles(&listener("")),
        ["quic://127.0.0.1:14567 has no certificate, and QUIC is always encrypted"]
    );
    let server = "tls_certificate = \"a\"\ntls_key = \"b\"\n";
    let config = parse(&listener(&format!(
        "{server}quic_handshakes = 5\nquic_buffer_bytes = \"32 KiB\"\nquic_streams = 3\n"
    )));
    let config = config.unwrap();
    assert!(config.listeners[0].address.is_quic());
    let listener_read = &config.listeners[0];
    let limits = (listener_read.quic_handshakes, listener_read.quic_buffer_bytes, listener_read.quic_streams);
    assert_eq!(limits, (5, 32 * 1024, 3));
    // The same port of TCP is another one.
    let both = format!("[[listener]]\naddress = \"127.0.0.1:14567\"\n{}", listener(server));
    assert_eq!(parse(&both).unwrap().listeners.len(), 2);
    for (key, title) in [
        ("protocol = \"websocket\"", "there is no WebSocket inside of QUIC"),
        ("websocket_path = \"/mqtt\"", "there is no WebSocket inside of QUIC"),
        ("websocket_origins = \"https://a\"", "there is no WebSocket inside of QUIC"),
        ("proxy_from = \"10.0.0.1\"", "load balancers send no PROXY header in QUIC"),
        ("tls_optional = true", "QUIC is always encrypted"),
        ("ipv6_only = false", "the address is not of IPv6"),
    ] {
        assert_eq!(titles(&listener(&format!("{server}{key}"))), [title], "{key}");
    }
}

#[test]
fn keys_about_tls_that_do_not_fit_together_are_refused() {
    let listener = |keys: &str| format!("[[listener]]\naddress = \"127.0.0.1:1\"\n{keys}");
    let server = "tls_certificate = \"a\"\ntls_key = \"b\"\n";
    let rows = [
        ("tls_certificate = \"a\"", "there are 1 certificates and 0 private keys"),
        ("tls_key = [\"a\", \"b\"]", "there are 0 certificates and 2 private keys"),
        ("tls_optional = true", "there is no TLS on this listener"),
        ("tls_client_certificate = \"required\"\ntls_client_ca = \"c\"", "client certificates need TLS"),
    ];
    let with_server = [
        ("tls_client_certificate = \"optional\"", "nothing says which client certificates to accept"),
        ("tls_client_ca = \"c\"", "clients are not asked for certificates"),
        ("tls_client_crl = \"c\"", "clients are not asked for certificates"),
        (
            "tls_client_certificate = \"required\"\ntls_client_ca = \"c\"\ntls_optional = true",
            "clients without TLS could connect without a certificate",
        ),
        ("proxy_from = []", "`listener.proxy_from` is an empty list"),
        ("websocket_origins = []", "`listener.websocket_origins` is an empty list"),
        (
            "websocket_origins = \"app.example\"",
            "`listener.websocket_origins` is no origin: it has a scheme and a host, and perhaps a port, and nothing else",
        ),
        ("websocket_path = \"mqtt\"", "`listener.websocket_path` does not begin with a slash"),
        ("proxy_from = \"10.0.0.0/33\"", "`listener.proxy_from` is no network"),
    ];
    for (keys, title) in rows {
        assert_eq!(titles(&listener(keys)), [title], "{keys}");
    }
    for (keys, title) in with_server {
        assert_eq!(titles(&listener(&format!("{server}{keys}"))), [title], "{keys}");
    }
    let fits = "tls_client_certificate = \"required\"\ntls_client_ca = \"c\"\ntls_client_crl = \"d\"";
    assert!(with_flags(&listener(&format!("{server}{fits}")), &Flags::default()).is_ok());
}

#[test]
fn keys_about_interfaces_and_mount_points_are_checked() {
    let unix = "address = \"unix:@pond\"";
    let passed = "address = \"systemd:pond\"\nallow_anonymous = true";
    let (v4, v6) = ("address = \"127.0.0.1:1\"", "address = \"[::1]:1\"");
    let no_name = "`listener.interface` is no name of a network interface";
    let no_mount = "`listener.mount_point` begins with `$`, or has wildcards, or more than 256 bytes";
    let no_choice = "the broker chooses the interface of a host and a port only";
    for (address, key, title) in [
        (v4, "interface = \"\"", no_name),
        (v4, "interface = \"eth0/1\"", no_name),
        (v4, "interface = \"0123456789abcdef\"", no_name),
        (unix, "interface = \"eth0\"", no_choice),
        (passed, "interface = \"eth0\"", no_choice),
        (v4, "mount_point = \"house\"", "`listener.mount_point` does not end with a slash"),
        (v4, "mount_point = \"$SYS/\"", no_mount),
        (v4, "mount_point = \"a/+/\"", no_mount),
        (v4, "mount_point = \"#/\"", no_mount),
        (unix, "ipv6_only = false", "the address is not of IPv6"),
        (v4, "ipv6_only = false", "the address is not of IPv6"),
    ] {
        assert_eq!(titles(&format!("[[listener]]\n{address}\n{key}")), [title], "{address} {key}");
    }
    let both = format!("[[listener]]\n{v6}\ninterface = \"0123456789abcde\"\nipv6_only = false");
    let config = parse(&both).unwrap();
    assert!(!config.listeners[0].ipv6_only);
    assert_eq!(config.listeners[0].interface.as_deref(), Some("0123456789abcde"));
}

#[test]
fn there_are_at_most_255_listeners() {
    let listeners = |count| "[[listener]]\naddress = \"127.0.0.1:0\"\n".repeat(count);
    assert_eq!(parse(&listeners(255)).unwrap().listeners.len(), 255);
    assert_eq!(titles(&listeners(257)), ["there are more than 255 listeners"]);
}

#[test]
fn keys_about_sockets_of_this_machine_are_checked() {
    let listener = |keys: &str| format!("[[listener]]\naddress = \"unix:/run/pond.sock\"\n{keys}");
    let mode = "`listener.unix_mode` is not a mode from 0000 to 0777";
    let owner = "`listener.unix_owner` has something else than user and group ids";
    for (keys, title) in [
        ("unix_mode = \"0680\"", mode),
        ("unix_mode = \"1777\"", mode),
        ("unix_mode = \"+660\"", mode),
        ("unix_owner = \":\"", "`listener.unix_owner` names nobody"),
        ("unix_owner = \"frog\"", owner),
        ("unix_owner = \":+5\"", owner),
        ("unix_owner = \"4294967295\"", owner),
        ("proxy_from = \"10.0.0.0/8\"", "a socket of this machine has no network to connect from"),
        ("unix_identity = \"root\"", "`listener.unix_identity` cannot be `root`"),
    ] {
        assert_eq!(titles(&listener(keys)), [title], "{keys}");
    }
    let certificate = "tls_certificate = \"a\"\ntls_key = \"b\"\ntls_client_ca = \"c\"\n\
                       tls_client_certificate = \"required\"\nclient_certificate_identity = \"cn\"\n";
    let both = titles(&listener(&format!("{certificate}unix_identity = \"user\"")));
    assert_eq!(both, ["the client's certificate says who the user is already"]);
    for address in ["127.0.0.1:1", "[::1]:1", "localhost:1"] {
        let title = titles(&format!("[[listener]]\naddress = \"{address}\"\nunix_identity = \"user\""));
        assert_eq!(title, ["the system knows the processes at a Unix socket only"], "{address}");
    }
    for address in ["unix:/run/pond.sock", "unix:@pond", "systemd:pond"] {
        let config = parse(&format!("[[listener]]\naddress = \"{address}\"\nunix_identity = \"user\""));
        let listener = &config.unwrap().listeners[0];
        assert!(listener.unix_identity == UnixIdentity::User && !listener.allow_anonymous, "{address}");
    }
    let config = parse(&listener("unix_mode = \"0600\"\nunix_owner = \":1000\"")).unwrap();
    let listener = &config.listeners[0];
    assert_eq!((listener.unix_mode, listener.unix_owner.and_then(|owner| owner.group)), (0o600, Some(1000)));
}

#[test]
fn the_flags_override_the_file() {
    let file =
        "data_dir = \"/a\"\nshards = 3\n[[listener]]\naddress = \"127.0.0.2:1\"\n[log]\nlevel = \"warn\"";
    let flags = Flags { port: Some(5), data_dir: Some("/b".into()), verbose: 2, ..Flags::default() };
    let config = with_flags(file, &flags).unwrap();
    assert_eq!(addresses(&config), ["127.0.0.2:5"]);
    assert_eq!(config.data_dir.as_deref(), Some("/b".as_ref()));
    assert_eq!((config.shards, config.log.level), (3, LogLevel::Debug));

    let listen = vec!["127.0.0.1:7".parse().unwrap(), "[::1]:7".parse().unwrap()];
    let config = with_flags(file, &Flags { listen: listen.clone(), ..Flags::default() }).unwrap();
    assert_eq!(addresses(&config), ["127.0.0.1:7", "[::1]:7"]);
    assert!(with_flags(file, &Flags { listen, port: Some(1), ..Flags::default() }).is_err());
}

#[test]
fn flags_alone_stay_on_loopback_unless_they_ask_for_more() {
    let config =
        Config::parse(&Sources::default(), &Flags { port: Some(0), ..Flags::default() }, &machine()).unwrap();
    assert_eq!(addresses(&config), ["127.0.0.1:0"]);
    assert!(config.loopback_by_default);

    let mut flags = Flags { listen: vec!["0.0.0.0:1883".parse().unwrap()], ..Flags::default() };
    let config = Config::parse(&Sources::default(), &flags, &machine()).unwrap();
    assert_eq!((addresses(&config), config.not_open.len()), (vec!["127.0.0.1:1883".to_owned()], 1));
    assert!(with_flags("allow_anonymous = true", &flags).is_ok());
    flags.allow_anonymous = true;
    assert!(Config::parse(&Sources::default(), &flags, &machine()).is_ok());
}

#[test]
fn a_machine_at_either_end_gives_defaults_within_bounds() {
    for (cores, memory_bytes, open_files) in [(1, 1, 1), (u16::MAX, u64::MAX, u64::MAX)] {
        let machine = Machine { cores, memory_bytes, open_files, state_dir: "/s".into() };
        let config = Config::parse(&Sources::default(), &Flags::default(), &machine).unwrap();
        let text = config.to_toml();
        let written = Config::parse(&Sources::of("", &text), &Flags::default(), &machine);
        assert!(written.is_ok(), "{}", written.unwrap_err());
    }
}

#[test]
fn no_file_makes_the_parser_panic() {
    for text in [
        "[",
        "[[",
        "=",
        "a=\"",
        "\u{0}",
        "[limits]\nkeep_alive = \"é\"",
        "limits.log.sys = [[[[[[",
        "é = 1\n[é]",
    ] {
        let report = parse(text).unwrap_err();
        assert!(!report.render(true).is_empty());
    }
    let deep = format!("shards = {}", "[".repeat(100_000));
    assert!(parse(&deep).is_err());
}

/// Tokens of configuration files, and similar texts.
fn token() -> impl Strategy<Value = String> {
    let tokens = [
        "[limits]",
        "[[listener]]",
        "[",
        "]",
        "=",
        "\n",
        "\r\n",
        "\"",
        "'",
        "\"\"\"",
        "#",
        "{",
        "}",
        ",",
        ".",
        " ",
        "\u{feff}",
        "shards",
        "include",
        "\"*\"",
        "address",
        "packet_bytes",
        "keep_alive",
        "log",
        "allow_anonymous",
        "1",
        "-1",
        "1e9",
        "0x",
        "true",
        "é",
        "\"127.0.0.1:1\"",
        "\"2 MiB\"",
        "\"auto\"",
        "\"off\"",
        "1979-05-27",
        "\\u00",
        "\0",
        "\t",
        "\u{1f98e}",
    ];
    prop_oneof![
        proptest::sample::select(tokens.to_vec()).prop_map(str::to_owned),
        any::<char>().prop_map(String::from)
    ]
}

/// A place where every file is the same.
struct OneFile(String);

impl Files for OneFile {
    fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
        Ok(self.0.clone().into_bytes())
    }

    fn list(&self, _: &Path) -> io::Result<Vec<OsString>> {
        Ok(vec!["a".into(), "b".into()])
    }
}

proptest! {
    #[test]
    fn any_file_is_parsed_or_reported_in_full(tokens in prop::collection::vec(token(), 0..40)) {
        let text = tokens.concat();
        if let Err(report) = parse(&text) {
            prop_assert!(!report.problems().is_empty());
            prop_assert!(!report.render(true).is_empty());
            for problem in report.problems() {
                report.line_and_column(problem);
            }
        }
        let main = "include = \"é.toml\"\nshards = 1\n[limits]\nkeep_alive = \"1 s\"\n[[listener]]\naddress = \"[::1]:1\"\n";
        let main = Some(("pond.toml", main));
        let sources = Sources::gather(main, Path::new(""), &Environment::new(), &OneFile(text));
        if let Err(report) = Config::parse(&sources, &Flags::default(), &machine()) {
            prop_assert!(!report.render(true).is_empty());
            for problem in report.problems() {
                report.line_and_column(problem);
            }
        }
    }
}
