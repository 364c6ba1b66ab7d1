//! Secrets are in no output: of no command, in no log, and in no answer of the admin server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{Broker, Client, Options, RawClient, Version, pondhawk};
use tempfile::TempDir;

use crate::admin::Server;

/// A part of every secret that a test has made up.
const MARK: &str = "hush9";

/// Files, and the secrets that are in them.
struct Place {
    directory: TempDir,
    secrets: Vec<String>,
}

impl Place {
    fn new() -> Self {
        let directory = TempDir::new().expect("there is a place for temporary files");
        Self { directory, secrets: vec![MARK.to_owned()] }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("the path is text").to_owned()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a temporary file can be written");
    }

    /// Runs the binary in the directory, and checks its output. Returns whether it succeeded, and the output.
    fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> (bool, String) {
        let mut program = Command::new(pondhawk());
        program
            .args(arguments)
            .current_dir(self.directory.path())
            .env_clear()
            .envs(variables.iter().copied());
        let output = program.output().expect("the binary can be run");
        let text =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        self.check(&text, &arguments.join(" "));
        (output.status.success(), text)
    }

    /// Checks that no secret is in a text.
    fn check(&self, text: &str, place: &str) {
        for secret in &self.secrets {
            assert!(!text.contains(secret.as_str()), "{place}: {secret} is in the output:\n{text}");
        }
    }

    /// Makes a file with a secret, and remembers its longer words.
    fn keep(&mut self, name: &str) {
        let text = fs::read_to_string(self.path(name)).expect("the file is there");
        let words = text.split(|character: char| character.is_whitespace() || "$:\"{},".contains(character));
        let long = words.filter(|word| word.len() >= 20 && !word.starts_with('-'));
        self.secrets.extend(long.map(str::to_owned));
    }
}

/// Files of ours with a mistake, as the main file. Some have a secret where none belongs.
const MALFORMED: [&str; 16] = [
    "[auth]\npassword = \"hush9\"\n",
    "[auth]\npassword = \"hush9\n",
    "[auth]\npassword: hush9\n",
    "[auth]\npassword \"hush9\"\n",
    "auth = { user = \"ann\", password = \"hush9\" }\n",
    "[auth\npassword_file = \"/nowhere\" # it has hush9\n",
    "[auth]\nhush9-hush9-hush9\n",
    "[[listener]]\naddress = \"mqtts://ann:hush9@pond.example:8883\"\n",
    "[[listener]]\naddress = \"127.0.0.1:0\"\nwebsocket_origins = \"https://ann:hush9@pond.example\"\n",
    "[[listener]]\naddress = \"127.0.0.1:0\"\ntls_key = \"\"\"\n-----BEGIN PRIVATE KEY-----\nhush9hush9\n\"\"\"\n",
    "[[listener]]\naddress = \"127.0.0.1:0\"\ntls_key = \"${SECRET}\"\ntls_certificate = \"${PEM}\"\n",
    "[[listener]]\naddress = \"${SECRET}\"\n",
    "[[listener]]\naddress = \"127.0.0.1:0\"\nprotocol = \"${SECRET}\"\n",
    "[limits]\nkeep_alive = \"5 ${SECRET}\"\nconnections = \"${SECRET}\"\n",
    "[log]\nto = [\"stderr\", \"${SECRET}\"]\n",
    "[bridge]\nurl = \"mqtt://ann:hush9@pond.example\"\ntoken = \"hush9\"\n",
];

#[test]
fn a_file_with_a_mistake_is_refused_without_its_secrets() {
    let place = Place::new();
    let variables = [("SECRET", "hush9"), ("PEM", "-----BEGIN PRIVATE KEY-----\nhush9\n")];
    for text in MALFORMED {
        place.write("pond.toml", text);
        for command in [&["check", "pond.toml"][..], &["config", "show", "pond.toml"], &["-c", "pond.toml"]] {
            let (is_good, said) = place.run(command, &variables);
            assert!(!is_good && said.contains("error"), "{text}: {said}");
        }
        place.run(&["ctl", "status", "-c", "pond.toml"], &variables);
    }
}

#[test]
fn a_variable_with_a_mistake_is_refused_without_its_value() {
    let place = Place::new();
    let names =
        ["LOG_LEVEL", "LOG_TO", "LIMITS_KEEP_ALIVE", "ADMIN_ADDRESS", "SHARDS", "SHARED_KEY", "ADMIN_HOSTS"];
    for name in names {
        let variable = format!("PONDHAWK_{name}");
        for command in [&["config", "show"][..], &["--in-memory"]] {
            let (is_good, said) = place.run(command, &[(&variable, "1 hush9?")]);
            assert!(!is_good && said.contains(&variable), "{said}");
        }
    }
    // Variables of the clients, and those that set nothing.
    let variables = [("PONDHAWK_PASSWORD", "hush9"), ("PONDHAWK_TOKEN", "hush9"), ("PASSWORD", "hush9")];
    assert!(place.run(&["config", "show"], &variables).0);
    place.write("pond.toml", "");
    let (is_good, said) = place.run(&["check", "pond.toml"], &variables);
    assert!(is_good && said.contains("PONDHAWK_TOKEN sets no key"), "{said}");
}

/// Files that the configuration names, with a mistake, or of another kind than the key says.
#[test]
fn a_named_file_with_a_mistake_is_refused_without_its_secrets() {
    let place = Place::new();
    let rows = [
        ("password_file", "ann:hush9\n"),
        ("password_file", "ann:$7$101$hush9$hush9\n"),
        ("acl_file", "user ann\ntopic readwrite a\nhush9 hush9\n"),
        ("acl_file", "ann:$6$hush9$hush9\n"),
        ("rules_file", "ann:$7$101$hush9$hush9\n"),
        ("rules_file", "[auth]\npassword = \"hush9\"\n"),
        ("rules_file", "[roles.a]\npublish = [\"hush9+\"]\nmax_qos = \"hush9\"\nkey = \"\"\"\nhush9\"\"\"\n"),
        ("dynamic_security_file", "{\"clients\":\"hush9\"}"),
        ("dynamic_security_file", "{\"password\":\"hush9\""),
        ("dynamic_security_file", "hush9"),
        ("key_file", "hush9"),
        ("key_file", "hush9 hush9 hush9 hush9 hush9 hush9\nhush9\n"),
        ("key_file", "{\"kty\":\"oct\",\"k\":\"hush9\"}"),
        ("key_file", "{\"keys\":[{\"hush9\":\"hush9\"}]}"),
        ("key_file", "{hush9"),
        ("key_file", "-----BEGIN PRIVATE KEY-----\nhush9A==\n-----END PRIVATE KEY-----\n"),
        ("key_file", "-----BEGIN PUBLIC KEY-----\nhush9\n"),
    ];
    for (key, text) in rows {
        place.write("named", text);
        let table = if key == "key_file" { "jwt" } else { "auth" };
        place.write(
            "pond.toml",
            &format!("[{table}]\n{key} = \"named\"\n[[listener]]\naddress = \"127.0.0.1:0\"\n"),
        );
        for command in [&["check", "pond.toml"][..], &["-c", "pond.toml", "--in-memory"]] {
            let (is_good, said) = place.run(command, &[]);
            assert!(!is_good && said.contains("named"), "{key}: {said}");
        }
    }
    // Mosquitto accepts such a client, who can never prove a password.
    place.write("named", "{\"clients\":[{\"username\":\"ann\",\"password\":\"hush9\",\"salt\":\"hush9\"}]}");
    place.write("pond.toml", "[auth]\ndynamic_security_file = \"named\"\n");
    place.run(&["check", "pond.toml"], &[]);
    place.write("named", "hush9 hush9-hush9-hush9\n");
    for keys in [
        "[admin]\naddress = \"127.0.0.1:0\"\nadmin_token_file = \"named\"\n",
        "[[listener]]\naddress = \"127.0.0.1:0\"\ntls_certificate = \"named\"\ntls_key = \"named\"\n",
    ] {
        place.write("pond.toml", keys);
        let (is_good, said) = place.run(&["-c", "pond.toml", "--in-memory"], &[]);
        assert!(!is_good && said.contains("named"), "{said}");
    }
    place.write("named", "hush9\u{e9} hush9-hush9-hush9\n");
    let (is_good, said) = place.run(&["ctl", "status", "--token-file", "named"], &[]);
    assert!(!is_good && said.contains("named"), "{said}");
}

/// The clients, with a password on the command line and in the environment. Nobody listens on the port.
#[test]
fn clients_tell_no_password_in_their_messages() {
    let place = Place::new();
    let rows = [
        "sub -L mqtt://ann:hush9@127.0.0.1:1/pond",
        "sub -d -L mqtt://ann:hush9@127.0.0.1:1/pond",
        "sub -L mqtt://ann:hush9@127.0.0.1:x/pond",
        "sub -L http://ann:hush9@127.0.0.1/pond",
        "pub -L mqtt://ann:hush9@127.0.0.1:1/ -m text",
        "sub -d -t pond -h 127.0.0.1 -p 1 -u ann -P hush9",
        "sub -t pond --proxy http://ann:hush9@127.0.0.1:1",
        "sub -t pond --proxy socks5h://ann:hush9@127.0.0.1:99999",
        "probe mqtt://ann:hush9@127.0.0.1:1",
        "probe ftp://ann:hush9@127.0.0.1:1",
        "sub -t pond -h 127.0.0.1 -p 1 --no-such-flag",
    ];
    for row in rows {
        let words: Vec<&str> = row.split(' ').collect();
        let (is_good, said) =
            place.run(&words, &[("PONDHAWK_USERNAME", "ann"), ("PONDHAWK_PASSWORD", "hush9")]);
        assert!(!is_good && !said.is_empty(), "{row}: {said}");
    }
}

/// Files of Mosquitto. Bridges have passwords, and a misspelt line may have one.
#[test]
fn a_file_of_mosquitto_is_translated_and_refused_without_its_secrets() {
    let place = Place::new();
    let rows = [
        "listener 1883\nconnection far\naddress pond.example\ntopic # out\nremote_username ann\nremote_password hush9\n",
        "connection far\naddress pond.example\ntopic # out\npassword hush9\nbridge_psk hush9\nbridge_identity a\n",
        "connection far\naddress pond.example\ntopic # out\nlocal_password hush9\n",
        "listener 1883\nremote_pasword hush9\n",
        "listener 1883\npassword hush9\n",
        "listener 1883\nauth_opt_backend_password hush9\n",
        "listener 1883\nplugin /a.so\nplugin_opt_password hush9\n",
        "listener 1883 mqtt://ann:hush9@pond.example\n",
    ];
    for text in rows {
        place.write("mosquitto.conf", text);
        for command in [
            &["check", "mosquitto.conf"][..],
            &["config", "show", "mosquitto.conf"],
            &["-c", "mosquitto.conf"],
        ] {
            let mut command = command.to_vec();
            if command[0] == "-c" {
                // A file that is accepted would start a broker, which another test does.
                if place.run(&["check", "mosquitto.conf"], &[]).0 {
                    continue;
                }
                command.push("--in-memory");
            }
            place.run(&command, &[]);
        }
    }
}

/// A broker with every kind of secret, which says as much as it can.
fn broker(place: &mut Place) -> Broker {
    let [users, tokens, certificates, dynamic] =
        ["users", "tokens", "certificates", "dynamic.json"].map(|name| place.text(name));
    assert!(place.run(&["passwd", "-b", "-c", &users, "ann", "right-password"], &[]).0);
    place.write("tokens", "hush9-admin-token-of-a-test\n");
    assert!(place.run(&["certs", "init", &certificates, "--host", "localhost"], &[]).0);
    let hash = "aHVzaDkgaHVzaDkgaHVzaDkgaHVzaDkgaHVzaDkgaHVzaDkgaHVzaDkgaHVzaDkgaHVzaDkgaHVzaDkgaHVzaA==";
    place.write(
        "dynamic.json",
        &format!(
            "{{\"clients\":[{{\"username\":\"bob\",\"password\":\"{hash}\",\"salt\":\"c2FsdHNhbHRzYWx0c2FsdHNhbHQ=\",\
             \"iterations\":101}}],\"groups\":[],\"roles\":[]}}"
        ),
    );
    for name in ["users", "tokens", "certificates/server.key", "dynamic.json"] {
        place.keep(name);
    }
    place.secrets.push("right-password".to_owned());
    let file = place.path("pond.toml");
    place.write("pond.toml", &configuration(&[&users, &tokens, &certificates, &dynamic], "info"));
    // The tests of this binary run at the same time, and share the environment: only the broker gets more.
    Broker::start(&Options { file: Some(file), arguments: vec!["-vv".to_owned()], ..Options::default() })
}

fn configuration([users, tokens, certificates, dynamic]: &[&str; 4], level: &str) -> String {
    format!(
        "[auth]\npassword_file = {users:?}\n[[listener]]\naddress = \"127.0.0.1:0\"\n\
         [[listener]]\naddress = \"127.0.0.2:0\"\ndynamic_security_file = {dynamic:?}\n\
         [[listener]]\naddress = \"localhost:0\"\ntls_certificate = \"{certificates}/server.pem\"\n\
         tls_key = \"{certificates}/server.key\"\n\
         [admin]\naddress = \"127.0.0.1:0\"\nadmin_token_file = {tokens:?}\n\
         [log]\nlevel = {level:?}\n[sys]\ninterval = \"1 s\"\n"
    )
}

/// Replaces a file, asks for a reload, and waits for a line of the log.
fn reload(broker: &Broker, file: &Path, text: &str, said: &str, count: usize) {
    fs::write(file, text).expect("the file is ours");
    broker.hang_up();
    pondhawk_tests::until(said, || (broker.log_lines(said).len() >= count).then_some(()));
}

#[test]
fn a_running_broker_tells_no_secret() {
    let mut place = Place::new();
    let broker = broker(&mut place);
    let connect = |password: &'static [u8]| Connect {
        user: Some("ann"),
        password: Some(password),
        ..Connect::new(Version::V5, "c")
    };
    let mut wrong = RawClient::connect(broker.address());
    wrong.send(&connect(b"hush9-wrong").bytes());
    assert!(!packet::is_accepted(&wrong.read_packet()));
    let mut client = Client::connect(broker.address(), &connect(b"right-password"));
    client.subscribe("$SYS/#");
    let mut figures = String::new();
    while !figures.contains("config/reloads") {
        figures += &String::from_utf8_lossy(&client.read_packet());
    }
    place.check(&figures, "$SYS");
    let names = ["users", "tokens", "certificates", "dynamic.json"].map(|name| place.text(name));
    let names = names.each_ref().map(String::as_str);
    let file = place.path("pond.toml");
    reload(&broker, &file, &configuration(&names, "debug"), "the configuration was read again", 1);
    reload(&broker, &file, "password = \"hush9\"\n[auth]\ntoken \"hush9\"\n", "stays as it was", 1);
    let users = fs::read_to_string(place.path("users")).expect("the file is there");
    place.write("users", &format!("{users}bob:hush9\n"));
    reload(&broker, &file, &configuration(&names, "debug"), "stays as it was", 2);
    place.write("users", &users);
    place.write("dynamic.json", "{\"clients\":\"hush9\"}");
    reload(&broker, &file, &configuration(&names, "debug"), "stays as it was", 3);
    let address = Server::address_of(&broker);
    for command in [&["status"][..], &["clients"], &["client", "c"], &["subscriptions", "c"], &["retained"]] {
        let server = ["--admin", &address, "--token-file", names[1], "--json"];
        let (is_good, said) = place.run(&[&["ctl"], command, &server].concat(), &[]);
        assert!(is_good, "{said}");
    }
    let server = Server::with(&address, "hush9-admin-token-of-a-test");
    for path in ["configuration", "listeners", "clients", "clients/c", "nowhere"] {
        let answer = server.send("GET", &format!("/api/v1/{path}"), "", "");
        place.check(&answer.text(), path);
        assert_eq!(answer.status == 200, path != "nowhere", "{path}");
    }
    place.check(&server.send("GET", "/metrics", "", "").text(), "metrics");
    let refused =
        Server::with(&address, "hush9-wrong-token-of-a-test").send("GET", "/api/v1/configuration", "", "");
    assert_eq!(refused.status, 401);
    place.check(&refused.text(), "a wrong token");
    place.check(&broker.log(), "the log");
    broker.terminate();
}
