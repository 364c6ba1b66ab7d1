//! Files as Mosquitto reads them, against its manual and against expectation.

mod machine;

use machine::machine;
use mosquitto::{Kind, Refusal, Start, Translated};
use proptest::prelude::*;

fn with(files: &[(&str, &str)], start: &Start) -> Result<Translated, Refusal> {
    mosquitto::translate("m.conf".as_ref(), start, &machine(files))
}

fn good(file: &str) -> Translated {
    with(&[("m.conf", file)], &Start::default()).unwrap_or_else(|refused| panic!("{file}\n{refused}"))
}

fn bad(file: &str) -> String {
    match with(&[("m.conf", file)], &Start::default()) {
        Ok(translated) => panic!("{file} is\n{}", translated.toml),
        Err(refused) => refused.to_string(),
    }
}

/// The values of a key, in the order of the file.
fn values(translated: &Translated, key: &str) -> Vec<String> {
    let begin = format!("{key} = ");
    let lines = translated.toml.lines().filter_map(|line| line.strip_prefix(&begin));
    lines.map(|line| line.split(" # ").next().unwrap_or_default().replace('"', "")).collect()
}

fn addresses(file: &str) -> Vec<String> {
    values(&good(file), "address")
}

#[test]
fn without_a_listener_only_this_machine_connects_and_anonymously() {
    for file in ["", "# nothing\n", "persistence false\n"] {
        assert_eq!(addresses(file), ["127.0.0.1:1883", "[::1]:1883"]);
        assert_eq!(values(&good(file), "allow_anonymous"), ["true", "true"]);
    }
    assert_eq!(values(&good("allow_anonymous false\n"), "allow_anonymous"), ["false", "false"]);
    let mut small = machine(&[("m.conf", "")]);
    small.has_ipv6 = false;
    let translated = mosquitto::translate("m.conf".as_ref(), &Start::default(), &small).unwrap();
    assert_eq!(values(&translated, "address"), ["127.0.0.1:1883"]);
}

#[test]
fn the_port_of_the_command_line_counts_without_a_listener_only() {
    let start = Start { port: Some(1884), is_verbose: true };
    let translated = with(&[("m.conf", "log_type none\n")], &start).unwrap();
    assert_eq!(values(&translated, "address"), ["127.0.0.1:1884", "[::1]:1884"]);
    assert_eq!(values(&translated, "level"), ["trace"]);
    let translated = with(&[("m.conf", "listener 1885\n")], &start).unwrap();
    assert_eq!(values(&translated, "address"), ["[::]:1885"]);
    assert!(translated.remarks.iter().any(|remark| remark.text.contains("`-p 1884` has no effect")));
}

#[test]
fn options_of_a_listener_are_thrown_away_without_one_unless_they_restrict_somebody() {
    let translated = good("certfile c\nkeyfile k\nprotocol websockets\n");
    assert!(values(&translated, "tls_certificate").is_empty());
    assert_eq!(values(&translated, "protocol"), ["mqtt", "mqtt"]);
    assert_eq!(translated.remarks.len(), 3);
    for restriction in ["require_certificate true", "max_qos 1", "use_identity_as_username 1", "crlfile x"] {
        assert!(bad(restriction).contains("add or move a `listener` line"), "{restriction}");
    }
}

#[test]
fn with_a_listener_anonymous_clients_are_refused_unless_the_file_says_otherwise() {
    for file in ["listener 1\n", "port 1\n", "bind_address 127.0.0.1\n"] {
        assert_eq!(values(&good(file), "allow_anonymous"), ["false"], "{file}");
    }
    let file = "listener 1\nlistener_allow_anonymous true\nlistener 2\nallow_anonymous false\n";
    assert_eq!(values(&good(file), "allow_anonymous"), ["true", "false"]);
}

#[test]
fn global_options_stay_global_in_the_middle_of_a_listener() {
    let translated = good("listener 1\nallow_anonymous true\nsys_interval 5\nlistener 2\n");
    assert_eq!(values(&translated, "allow_anonymous"), ["true", "true"]);
}

#[test]
fn options_belong_to_the_listener_above() {
    let translated = good("listener 1\nmax_qos 1\nlistener 2\nprotocol websockets\nmax_qos 0\n");
    assert_eq!(values(&translated, "max_qos"), ["1", "0"]);
    assert_eq!(values(&translated, "protocol"), ["mqtt", "websocket"]);
}

#[test]
fn options_above_the_first_listener_open_port_1883_as_well() {
    let opens = ["certfile c\nkeyfile k", "max_connections 5", "max_qos 1", "socket_domain ipv4"];
    for options in opens {
        let translated = good(&format!("{options}\nlistener 1884 127.0.0.1\n"));
        let addresses = values(&translated, "address");
        assert!(addresses.len() == 2 && addresses[0].ends_with(":1883"), "{options}: {addresses:?}");
        assert!(translated.remarks.iter().any(|remark| remark.text.contains("opens port 1883 as well")));
    }
    for options in ["max_connections -1", "max_qos 2", "protocol mqtt", "allow_anonymous true"] {
        assert_eq!(addresses(&format!("{options}\nlistener 1884 127.0.0.1\n")), ["127.0.0.1:1884"]);
    }
}

#[test]
fn a_port_behind_a_listener_leaves_open_what_the_next_option_is_about() {
    let reason = bad("listener 8883\nport 1883\ncertfile c\nkeyfile k\n");
    assert!(reason.contains("belongs to that listener in Mosquitto 2.0, and to the port in 2.1"), "{reason}");
    assert_eq!(addresses("listener 8883\nport 1883\n"), ["[::]:1883", "[::]:8883"]);
    assert_eq!(values(&good("port 1883\nmax_qos 1\nlistener 2\n"), "max_qos"), ["1"]);
}

#[test]
fn a_host_name_means_every_address_that_it_has() {
    assert_eq!(addresses("listener 1 two.example\n"), ["192.0.2.1:1", "[2001:db8::1]:1"]);
    assert_eq!(addresses("listener 1 two.example\nsocket_domain ipv4\n"), ["192.0.2.1:1"]);
    assert_eq!(addresses("listener 1 unknown.example\n"), ["unknown.example:1"]);
    assert_eq!(addresses("listener 1 #comment\n"), ["[::]:1"]);
    assert_eq!(addresses("listener 1 *\nsocket_domain ipv4\n"), ["0.0.0.0:1"]);
    assert_eq!(addresses("listener 1 127.0.0.1 more words\n"), ["127.0.0.1:1"]);
}

#[test]
fn security_options_of_a_listener_are_not_inherited() {
    let file = "per_listener_settings true\nlistener 1\npassword_file a\nallow_anonymous true\nlistener 2\n";
    let translated = good(file);
    assert_eq!(values(&translated, "password_file"), ["a"]);
    assert_eq!(values(&translated, "allow_anonymous"), ["true", "false"]);
    assert!(!translated.toml.contains("[auth]"));
}

#[test]
fn a_plugin_belongs_to_the_listener_above_it_at_each_of_its_addresses() {
    let plugin = "plugin /x/mosquitto_dynamic_security.so\nplugin_opt_config_file d\n";
    let translated = good(&format!(
        "per_listener_settings true\nlistener 1\nlistener 2 two.example\n{plugin}listener 3\n"
    ));
    let toml = translated.toml;
    let tables: Vec<&str> = toml.split("[[listener]]").skip(1).collect();
    let has: Vec<bool> = tables.iter().map(|table| table.contains("dynamic_security_file = \"d\"")).collect();
    assert_eq!(has, [false, true, true, false], "{toml}");
    assert!(!toml.contains("[auth]"));
    assert!(
        good(&format!("listener 1\n{plugin}listener 2\n")).toml.contains("[auth]\ndynamic_security_file")
    );
}

#[test]
fn a_listener_that_admits_nobody_leaves_the_others_as_they_are() {
    let tls = "certfile c\nkeyfile k\nuse_identity_as_username true\n";
    let file = format!("allow_anonymous true\npassword_file p\nlistener 1\nlistener 2\n{tls}");
    let translated = good(&file);
    assert_eq!(values(&translated, "allow_anonymous"), ["true", "false"]);
    assert_eq!(values(&translated, "password_file"), ["p", "off"]);
    let file =
        format!("per_listener_settings true\nlistener 2\n{tls}allow_anonymous true\npassword_file p\n");
    let translated = good(&file);
    assert_eq!(values(&translated, "allow_anonymous"), ["false"]);
    assert_eq!(values(&translated, "password_file"), ["off"]);
    let plugin = "plugin /x/mosquitto_dynamic_security.so\nplugin_opt_config_file d\n";
    assert!(bad(&format!("{file}{plugin}")).contains("nobody can connect"));
}

#[test]
fn per_listener_settings_stands_above_the_options_that_it_is_about() {
    assert!(bad("allow_anonymous true\nper_listener_settings true\n").contains("must stand above"));
    assert!(
        bad("per_listener_settings true\nper_listener_settings false\n").contains("is true further above")
    );
    good("allow_anonymous true\nper_listener_settings false\n");
}

#[test]
fn security_options_that_no_listener_has_are_not_lost_in_silence() {
    let begin = "per_listener_settings true\n";
    assert!(bad(&format!("{begin}acl_file a\nlistener 1\n")).contains("so that the restriction is not lost"));
    let translated = good(&format!("{begin}allow_anonymous true\nlistener 1\n"));
    assert_eq!(values(&translated, "allow_anonymous"), ["false"]);
    assert!(translated.remarks[0].text.contains("belongs to none"));
    // The password file opens the default listener, as in Mosquitto 2.0.
    let translated = good(&format!("{begin}password_file p\nacl_file a\nlistener 1\n"));
    assert_eq!(values(&translated, "address"), ["[::]:1883", "[::]:1"]);
    assert_eq!(values(&translated, "acl_file"), ["a"]);
}

#[test]
fn unknown_words_are_errors_with_their_lines() {
    let reason = bad("listener 1\n\nallow_anonymus true\n");
    assert!(
        reason.starts_with("error: m.conf:3: there is no directive `allow_anonymus`; did you mean"),
        "{reason}"
    );
    assert!(reason.contains("`allow_anonymous`?"));
    assert!(bad("store_clean_interval 10\n").contains("has removed"));
    assert!(bad(" # a comment\n").contains("first character of its line"));
    assert!(bad("\tlistener 1\n").contains("has a tab"));
    assert!(bad("\t\n").contains("tab"));
    assert!(bad("Listener 1\n").contains("no directive"));
    assert!(bad("allow_anonymous = true\n").contains("has no `=`"));
    assert!(bad("listener=1883\n").contains("a line has no `=`: write `listener`, a blank"));
}

#[test]
fn all_errors_are_reported_in_the_order_of_their_lines() {
    let reason = bad("psk_file x\nbogus\npersistence yes\n");
    let lines: Vec<&str> = reason.lines().filter(|line| line.starts_with("error")).collect();
    assert_eq!(lines.len(), 3, "{reason}");
    for (line, number) in lines.iter().zip(1..) {
        assert!(line.starts_with(&format!("error: m.conf:{number}: ")), "{line}");
    }
}

#[test]
fn bytes_that_mosquitto_stumbles_over_are_errors() {
    assert!(bad("\u{feff}# a comment\n").contains("byte order mark"));
    assert!(bad("listener 1\nuser a\0\nacl_file a\n").starts_with("error: m.conf:2: there is a NUL byte"));
    good("listener 1\r\nmax_qos 1\r\n");
    good("listener 1");
}

#[test]
fn a_text_that_comes_again_is_an_error_or_the_last_one_counts() {
    let reason = bad("persistence_location /a\npersistence_location /b\n");
    assert!(reason.contains("is there twice: also in m.conf:1"), "{reason}");
    let translated = good("user a\nuser b\nlistener 1\nmount_point a/\nmount_point b/\n");
    assert_eq!(values(&translated, "user"), ["b"]);
    assert_eq!(values(&translated, "mount_point"), ["b/"]);
    assert!(translated.remarks.iter().any(|remark| remark.text == "the line m.conf:2 counts instead"));
    // One for each listener is not twice.
    good("listener 1\ntls_version tlsv1.2\nlistener 2\ntls_version tlsv1.2\n");
}

#[test]
fn included_files_begin_without_a_listener_and_leave_that_of_the_main_file() {
    let files = [
        ("m.conf", "listener 1\ninclude_dir conf.d\nmax_qos 1\n"),
        ("conf.d/b.conf", "listener 2\n"),
        ("conf.d/a.conf", "sys_interval 5\n"),
        ("conf.d/.x.conf", "sys_interval 6\n"),
        ("conf.d/.conf", "bogus\n"),
        ("conf.d/a.conf.dpkg", "bogus\n"),
        ("conf.d/a.CONF", "bogus\n"),
    ];
    let translated = with(&files, &Start::default()).unwrap();
    assert_eq!(values(&translated, "address"), ["[::]:1", "[::]:2"]);
    assert_eq!(values(&translated, "interval"), ["5 s"]);
    assert!(translated.toml.find("max_qos = 1").unwrap() < translated.toml.find("[::]:2").unwrap());
}

/// Mosquitto looks for a directory or a plugin with these blanks in its name, and does not start.
#[test]
fn blanks_around_the_names_of_directories_and_plugins_are_cut() {
    let main = "plugin \t/x/mosquitto_acl_file.so \nplugin_opt_acl_file \ta \ninclude_dir  conf.d \n";
    let files = [("m.conf", main), ("conf.d/a.conf", "listener 1\n")];
    let translated = with(&files, &Start::default()).unwrap();
    assert_eq!(values(&translated, "address"), ["[::]:1"]);
    assert_eq!(values(&translated, "acl_file"), ["a"]);
}

#[test]
fn a_file_with_a_certificate_alone_is_about_port_1883() {
    let files =
        [("m.conf", "listener 8883\ninclude_dir conf.d\n"), ("conf.d/tls.conf", "certfile c\nkeyfile k\n")];
    let translated = with(&files, &Start::default()).unwrap();
    assert_eq!(values(&translated, "address"), ["[::]:1883", "[::]:8883"]);
    let text = translated.toml;
    assert!(text.find("tls_certificate").unwrap() < text.find("[::]:8883").unwrap());
}

#[test]
fn texts_are_counted_over_all_files_and_errors_name_the_included_one() {
    let files = [
        ("m.conf", "persistence_location /a\ninclude_dir conf.d\n"),
        ("conf.d/a.conf", "\npersistence_location /b\n"),
    ];
    let reason = with(&files, &Start::default()).unwrap_err().to_string();
    assert!(reason.starts_with("error: conf.d/a.conf:2: `persistence_location` is there twice"), "{reason}");
    let files = [("m.conf", "include_dir conf.d\n"), ("conf.d/a.conf", "include_dir x\n")];
    let reason = with(&files, &Start::default()).unwrap_err().to_string();
    assert!(
        reason.starts_with("error: conf.d/a.conf:1: `include_dir` is for the main file only"),
        "{reason}"
    );
    assert!(bad("include_dir missing\n").contains("cannot read the directory missing"));
}

#[test]
fn log_destinations_and_kinds_add_up_and_none_beats_all() {
    let to = |file| values(&good(file), "to");
    assert_eq!(to("log_dest stdout\nlog_dest stderr\nlog_dest stdout\n"), ["[stdout, stderr]"]);
    assert_eq!(to("log_dest file  a b\n"), ["[./a b]"]);
    assert_eq!(to("log_dest stdout\nlog_dest none\nlog_dest stderr\n"), ["[off]"]);
    assert!(bad("log_dest file a\nlog_dest file b\n").contains("one `log_dest file`"));
    let level = |file| values(&good(file), "level");
    assert_eq!(level("log_type subscribe\nlog_type error\n"), ["debug"]);
    assert_eq!(level("log_type all\nlog_type none\n"), ["off"]);
    assert!(level("").is_empty());
}

#[test]
fn a_bridge_needs_its_own_file() {
    let files = [
        ("m.conf", "connection b\naddress h\ntopic #\ninclude_dir conf.d\n"),
        ("conf.d/a.conf", "notifications false\n"),
    ];
    let reason = with(&files, &Start::default()).unwrap_err().to_string();
    assert!(reason.contains("no `connection` line above it in this file"), "{reason}");
    let translated =
        good("connection b\naddress h:1883\ntopic # both 2 \"\" remote/\nlistener 1\nmax_qos 1\n");
    assert!(translated.remarks.iter().any(|remark| remark.kind == Kind::NotYet));
    assert_eq!(values(&translated, "max_qos"), ["1"]);
}

#[test]
fn mistakes_in_a_bridge_are_errors() {
    let begin = "connection b\naddress h:1883 [::1]:1884 # two\n";
    let of = |line: &str| format!("{begin}topic # out 2 # all\n{line}\n");
    for line in [
        "topic a/# BOTH 1 \"\" remote/",
        "topic \"a b\" both 0",
        "topic a",
        "start_type once",
        "bridge_protocol_version mqttv50",
        "username u\nremote_password p",
    ] {
        good(&of(line));
    }
    let rows = [
        ("topic a inout", "`out`, `in` or `both`"),
        ("topic a # out", "`out`, `in` or `both`"),
        ("topic a in 3", "from 0 to 2"),
        ("topic a in 0 x/# y/", "no wildcards: `x/#`"),
        ("topic a in 0 x/ +/", "no wildcards: `+/`"),
        ("start_type manual", "one of automatic, lazy, once"),
        ("bridge_protocol_version mqttv5", "one of mqttv31"),
        ("bridge_reload_type later", "one of lazy, immediate"),
        ("username a\nremote_username b", "the old name of `remote_username`"),
        ("local_clientid x\nconnection c\naddress h\ntopic #\nlocal_clientid x", "the same `local_clientid`"),
        ("connection c\ntopic #\naddress h:mqtt", "no port from 1 to 65535"),
        ("connection c\ntopic #\naddress h:0", "no port from 1 to 65535"),
    ];
    for (line, reason) in rows {
        assert!(bad(&of(line)).contains(reason), "{line}: {}", bad(&of(line)));
    }
}

#[test]
fn names_are_quoted_for_toml() {
    let translated = good("acl_file /a \"b\"\\c\npassword_file /tab\there\n");
    assert!(translated.toml.contains(r#"acl_file = "/a \"b\"\\c""#), "{}", translated.toml);
    assert!(translated.toml.contains("\\u0009"), "{}", translated.toml);
}

#[test]
fn defaults_are_mosquittos() {
    let translated = good("");
    let rows = [
        ("data_dir", "off"),
        ("user", "mosquitto"),
        ("receive_maximum", "20"),
        ("inflight_messages", "20"),
        ("inflight_messages_3", "20"),
        ("queue_messages", "1000"),
        ("queue_full", "drop-newest"),
        ("topic_alias_maximum", "10"),
        ("topic_alias_maximum_out", "10"),
    ];
    for (key, value) in rows {
        assert_eq!(values(&translated, key), [value], "{key}");
    }
}

#[test]
fn each_line_of_our_file_knows_its_origin() {
    let translated = good("listener 1\nmax_qos 1\npersistence true\n");
    let lines: Vec<&str> = translated.toml.lines().collect();
    assert_eq!(lines.len(), translated.origins.len());
    let number = lines.iter().position(|line| line.starts_with("max_qos")).unwrap();
    assert_eq!(translated.origins[number].as_ref().unwrap().place.line, 2);
}

proptest! {
    #[test]
    fn nothing_makes_the_reader_panic(file in "(?s)(listener|port|plugin|auth_opt_a|topic|connection|max_qos|log_dest|user|\n| |\t|[0-9]|.){0,60}") {
        let _ = with(&[("m.conf", &file)], &Start::default());
    }
}
