//! Users whom servers elsewhere know: an HTTP service in Python, and OpenLDAP's directory.

mod directory;
mod odd;

use std::fs;
use std::path::{Path, PathBuf};

use pondhawk_tests::packet::Connect;
use pondhawk_tests::{Broker, Client, Options, Program, Version, pondhawk, python, until};
use tempfile::TempDir;

use crate::{Place, publish, users};
use directory::Directory;

/// The service, until the test ends.
struct BackEnd {
    folder: TempDir,
    url: String,
    _server: Program,
}

impl BackEnd {
    fn start() -> Self {
        Self::start_with("http", &[])
    }

    /// The same with the files of a certificate and its key.
    fn start_with(scheme: &str, certificate: &[PathBuf]) -> Self {
        let folder = TempDir::new().expect("there is a place for temporary files");
        let mut server = python();
        server.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("access/services/back_end.py"));
        server.arg(folder.path().join("log")).args(certificate);
        let server = Program::start(server);
        let line = server.wait_for("port ");
        let port = line.trim().strip_prefix("port ").expect("the port").to_owned();
        Self { folder, url: format!("{scheme}://127.0.0.1:{port}"), _server: server }
    }

    /// The questions since the start, each as a line of JSON.
    fn questions(&self) -> Vec<serde_json::Value> {
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        log.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }

    fn broker(&self, path: &str, keys: &str) -> Broker {
        start(&format!("[http_auth]\nurl = \"{}{path}\"\n{keys}", self.url))
    }
}

fn start(settings: &str) -> Broker {
    let settings = format!("{settings}\n[sys]\ninterval = \"1s\"\n");
    Broker::start(&Options { shards: 2, settings, ..Options::default() })
}

/// Reason code of the CONNACK that a client gets.
fn login(broker: &Broker, version: Version, (user, password): (&str, &str)) -> u8 {
    let mut client = broker.connect();
    // A client identifier belongs to the user of the last connection, which may not have ended yet.
    let client_id = format!("of {user}");
    client.send(&Connect::new(version, &client_id).of(user, password).bytes());
    let answer = client.read_packet();
    assert_eq!(answer[0], 0x20, "{answer:02x?}");
    answer[3]
}

/// The answers to a password that is right, to one that is wrong, and to a name that nobody knows.
fn logins(broker: &Broker) -> [u8; 3] {
    [("frog", "croak"), ("frog", "hop"), ("eft", "croak")]
        .map(|login_of| login(broker, Version::V5, login_of))
}

const EXPECTED: [u8; 3] = [0, 0x86, 0x86];

#[test]
fn back_ends_of_other_brokers_decide_here_too() {
    let back_end = BackEnd::start();
    for (path, keys, method) in [
        ("/emqx", "", "POST"),
        ("/emqx", "question = \"form\"", "POST"),
        ("/emqx", "question = \"query\"", "GET"),
        ("/go-auth/json", "", "POST"),
        ("/go-auth/json", "question = \"form\"", "POST"),
        ("/go-auth/status", "answer = \"status\"", "POST"),
        ("/go-auth/text", "answer = \"text\"\nquestion = \"form\"", "POST"),
    ] {
        let before = back_end.questions().len();
        let broker = back_end.broker(path, keys);
        assert_eq!(logins(&broker), EXPECTED, "{path} {keys}");
        // Nothing of a name or of a password changes the question.
        let special =
            [("tödö & co", "hop=1&x"), ("tödö & co", "hop=1"), ("frog\",\"username\":\"ann", "croak")];
        assert_eq!(special.map(|user| login(&broker, Version::V5, user)), EXPECTED, "{path} {keys}");
        assert_eq!(login(&broker, Version::V3_1_1, ("frog", "croak")), 0);
        assert_eq!(login(&broker, Version::V3_1_1, ("frog", "hop")), 4);
        let questions = back_end.questions();
        assert_eq!(questions.len(), before + 8);
        // The longest password of which each byte becomes three in a URL.
        let long = "%".repeat(60_000);
        assert_eq!(login(&broker, Version::V5, ("frog", &long)), 0x86);
        let first = &questions[before];
        assert_eq!((first["method"].as_str(), first["path"].as_str()), (Some(method), Some(path)));
        let question = serde_json::json!({"username": "frog", "password": "croak", "clientid": "of frog"});
        assert_eq!(first["question"], question);
        assert!(broker.stop().success());
    }
}

#[test]
fn a_service_that_does_not_answer_as_it_should_lets_nobody_in() {
    let back_end = BackEnd::start();
    let paths = ["/hang", "/slow", "/huge", "/redirect", "/lie", "/broken"];
    for (path, form) in paths.into_iter().flat_map(|path| [(path, "json"), (path, "query")]) {
        let broker = back_end.broker(path, &format!("timeout = \"500ms\"\nquestion = {form:?}"));
        assert_eq!(login(&broker, Version::V5, ("frog", "croak")), 0x88, "{path}");
        assert_eq!(login(&broker, Version::V3_1_1, ("frog", "croak")), 3, "{path}");
        // One line, however many failures there are.
        broker.wait_for_log("does not answer as it should");
        assert_eq!(broker.log_lines("does not answer as it should").len(), 1, "{path}");
        assert!(broker.log_lines("croak").is_empty(), "passwords stay out of the log");
        assert!(broker.stop().success());
    }
    // A wrong path is no refusal of a user, and locks nobody out.
    let broker = back_end.broker("/none", "");
    assert_eq!(logins(&broker), [0x88; 3]);
}

#[test]
fn users_of_files_are_not_asked_about_and_do_not_wait() {
    let back_end = BackEnd::start();
    let place = Place::new("topic readwrite #\n");
    place.write("users", &users(&["ann"]));
    let keys = format!("[http_auth]\nurl = \"{}/hang\"\ntimeout = \"30s\"\n", back_end.url);
    let broker = place.broker(&keys);
    // As many clients as there are threads that ask, and more.
    let waiting: Vec<_> = (0..20)
        .map(|number| {
            let mut client = broker.connect();
            client.send(&Connect::new(Version::V5, &format!("w{number}")).of("frog", "croak").bytes());
            client
        })
        .collect();
    until("the service is asked", || (back_end.questions().len() >= 8).then_some(()));
    assert_eq!(["ann", "croak"].map(|password| login(&broker, Version::V5, ("ann", password))), [0, 0x86]);
    assert_eq!(back_end.questions().len(), 8, "`user_questions` bounds the questions");
    assert!(back_end.questions().iter().all(|asked| asked["question"]["username"] == "frog"));
    drop(waiting);
    assert!(broker.stop().success());
}

#[test]
fn an_answer_is_remembered_and_ends_as_it_says() {
    let back_end = BackEnd::start();
    let folder = TempDir::new().expect("there is a place for temporary files");
    let secret: PathBuf = folder.path().join("secret");
    fs::write(&secret, "Bearer of good news\n").expect("a new file");
    let keys = format!("remember = \"1h\"\nauthorization_file = {secret:?}");
    let broker = back_end.broker("/emqx", &keys);
    assert_eq!([(); 3].map(|()| login(&broker, Version::V5, ("frog", "croak"))), [0; 3]);
    let questions = back_end.questions();
    assert_eq!(questions.len(), 1);
    assert_eq!(questions[0]["authorization"], "Bearer of good news");
    assert_eq!([(); 2].map(|()| login(&broker, Version::V5, ("frog", "hop"))), [0x86; 2]);
    assert_eq!(back_end.questions().len(), 3, "a refusal is not remembered");
    let mut short = Client::connect(broker.address(), &Connect::new(Version::V5, "s1").of("short", "life"));
    short.expect_disconnect(0x87);
    until("the end is in the log", || broker.log_lines("its token has expired, or its login").pop());
    assert!(broker.log_lines("good news").is_empty());
}

#[test]
fn another_service_ends_the_connections_that_the_former_has_let_in() {
    let back_end = BackEnd::start();
    let folder = TempDir::new().expect("there is a place for temporary files");
    let config = folder.path().join("pondhawk.toml");
    let write = |path: &str| {
        let listener = "[[listener]]\naddress = \"127.0.0.1:0\"\n";
        fs::write(&config, format!("[http_auth]\nurl = \"{}{path}\"\n{listener}", back_end.url))
            .expect("a file");
    };
    write("/emqx");
    let broker = Broker::start(&Options { file: Some(config.clone()), ..Options::default() });
    let mut client = Client::connect(broker.address(), &Connect::new(Version::V5, "f1").of("frog", "croak"));
    client.subscribe("pond/#");
    write("/go-auth/json");
    broker.hang_up();
    client.expect_disconnect(0x87);
    assert_eq!(login(&broker, Version::V5, ("frog", "croak")), 0);
    assert!(broker.stop().success());
}

/// Keys that find the entries of users in a directory.
const NAMED: &str = "user_dn = \"uid={user},ou=people,dc=pond\"";

fn searched(password_file: &Path) -> String {
    format!(
        "search_base = \"ou=people,dc=pond\"\nsearch_filter = \"(|(uid={{user}})(mail={{user}}))\"\n\
         search_dn = \"cn=broker,dc=pond\"\nsearch_password_file = {password_file:?}"
    )
}

#[test]
fn users_of_a_directory_log_in_with_their_passwords() {
    let directory = Directory::start("");
    let folder = TempDir::new().expect("there is a place for temporary files");
    let password = folder.path().join("password");
    fs::write(&password, "lookup\n").expect("a new file");
    for (keys, by_mail) in [(NAMED.to_owned(), 0x86), (searched(&password), 0)] {
        let broker = start(&format!("[ldap]\nurl = {:?}\n{keys}", directory.url));
        assert_eq!(logins(&broker), EXPECTED, "{keys}");
        for (user, password, expected) in [
            ("toad, the second", "hop", 0),
            ("newt", "swim", 0),
            ("NEWT", "swim", 0),
            ("frog@pond.example", "croak", by_mail),
            // Directories ignore blanks at the ends, and take some letters for others: such a name has guesses of its own.
            ("frog ", "croak", 0x86),
            ("\u{ff46}rog", "croak", 0x86),
            // Two entries have it.
            ("twins@pond.example", "hop", 0x86),
            // Names that would be another entry, or another filter.
            ("newt,ou=people,dc=pond", "swim", 0x86),
            ("*", "croak", 0x86),
            ("f*", "croak", 0x86),
            ("frog)(uid=newt", "swim", 0x86),
            ("frog)(!(uid=x)", "croak", 0x86),
            ("", "croak", 0x87),
            // A bind without a password is a stranger's, and directories let strangers in.
            ("frog", "", 0x86),
        ] {
            assert_eq!(login(&broker, Version::V5, (user, password)), expected, "{keys}: {user:?}");
        }
        assert!(broker.stop().success());
    }
}

/// A user has one name here, whatever the client has called it.
#[test]
fn a_directory_says_what_the_name_of_a_user_is() {
    let directory = Directory::start("");
    let folder = TempDir::new().expect("there is a place for temporary files");
    let [password, rules] = ["password", "rules"].map(|name| folder.path().join(name));
    fs::write(&password, "lookup\n").expect("a new file");
    fs::write(&rules, "pattern readwrite pond/%u\n").expect("a new file");
    for (keys, names) in [
        (NAMED.to_owned(), &["frog", "FROG"][..]),
        (searched(&password), &["frog", "Frog", "frog@pond.example"]),
    ] {
        let broker =
            start(&format!("[auth]\nacl_file = {rules:?}\n[ldap]\nurl = {:?}\n{keys}", directory.url));
        for (number, name) in names.iter().enumerate() {
            let client_id = number.to_string();
            let connect = Connect::new(Version::V5, &client_id).of(name, "croak");
            let mut client = Client::connect(broker.address(), &connect);
            assert_eq!(
                ["pond/frog", "pond/FROG"].map(|topic| publish(&mut client, topic, b"")),
                [0x10, 0x87],
                "{name}"
            );
        }
        assert!(broker.stop().success());
    }
}

#[test]
fn a_directory_knows_users_whom_a_service_does_not() {
    let (back_end, directory) = (BackEnd::start(), Directory::start(""));
    let ldap = format!("[ldap]\nurl = {:?}\n{NAMED}", directory.url);
    let broker = back_end.broker("/emqx?realm=pond", &ldap);
    let logins = [("frog", "croak"), ("frog", "hop"), ("newt", "swim"), ("newt", "hop"), ("eft", "croak")];
    assert_eq!(logins.map(|user| login(&broker, Version::V5, user)), [0, 0x86, 0, 0x86, 0x86]);
}

#[test]
fn a_directory_that_is_gone_is_asked_again_when_it_is_back() {
    let directory = Directory::start("");
    let broker = start(&format!("[ldap]\nurl = {:?}\ntimeout = \"1s\"\n{NAMED}", directory.url));
    let mut stays = Client::connect(broker.address(), &Connect::new(Version::V5, "s1").of("frog", "croak"));
    let stopped = directory.kill();
    assert_eq!(logins(&broker), [0x88; 3]);
    broker.wait_for_log("does not answer as it should");
    stays.subscribe("pond/#");
    stays.publish("pond/depth", b"3");
    stays.expect_message("pond/depth", b"3");
    let _directory = stopped.start();
    assert_eq!(logins(&broker), EXPECTED);
    assert_eq!(broker.log_lines("does not answer as it should").len(), 1, "three failures in a row");
    assert!(broker.stop().success());
}

/// A folder with the certificate of a server for this host, its key, and the certificate of the authority.
fn certificates(host: &str) -> TempDir {
    let folder = TempDir::new().expect("there is a place for temporary files");
    let made = std::process::Command::new(pondhawk())
        .args(["certs", "init"])
        .arg(folder.path())
        .args(["--host", host])
        .output()
        .expect("it can be run");
    assert!(made.status.success(), "{made:?}");
    folder
}

#[test]
fn a_service_is_trusted_by_its_certificate() {
    for (host, expected) in [("127.0.0.1", EXPECTED), ("other.example", [0x88; 3])] {
        let folder = certificates(host);
        let file = |name: &str| folder.path().join(name);
        let back_end = BackEnd::start_with("https", &[file("server.pem"), file("server.key")]);
        let trusting = back_end.broker("/emqx", &format!("ca_file = {:?}", file("ca.pem")));
        assert_eq!(logins(&trusting), expected, "{host}");
        assert_eq!(
            logins(&back_end.broker("/emqx", "")),
            [0x88; 3],
            "the system trusts nobody who has signed it"
        );
        let questions = if expected == EXPECTED { 3 } else { 0 };
        assert_eq!(back_end.questions().len(), questions, "no password goes to a stranger");
    }
}

#[test]
fn a_directory_is_trusted_by_its_certificate() {
    let folder = certificates("127.0.0.1");
    let file = |name: &str| folder.path().join(name);
    let tls = format!(
        "TLSCertificateFile {:?}\nTLSCertificateKeyFile {:?}\n",
        file("server.pem"),
        file("server.key")
    );
    let directory = Directory::start(&tls);
    let broker =
        |ca: &str| start(&format!("[ldap]\nurl = {:?}\nstart_tls = true\n{ca}{NAMED}", directory.url));
    let trusting = broker(&format!("ca_file = {:?}\n", file("ca.pem")));
    assert_eq!(logins(&trusting), EXPECTED);
    assert_eq!(logins(&broker("")), [0x88; 3], "nobody has signed the certificate whom the system trusts");
}
