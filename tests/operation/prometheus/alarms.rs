//! Each alert fires when its condition is true at a running broker.

use std::collections::BTreeSet;

use auth::{PasswordFile, PasswordHash, Scheme};
use pondhawk_tests::conversation::{self, lasting};
use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{Broker, Client, Options, RawClient, Version, until};

use super::harness::{Folder, Prometheus, shipped};
use crate::admin::Server;

/// Cases of `promtool test rules`, for conditions that no test can create at a broker in time.
pub(super) const CASES: &str = include_str!("cases.yml");

/// More events than the window of the rules has seconds: a rate above 1 for the alerts that need it.
const MANY: usize = 25;

/// Open files of the broker that has too few.
const OPEN_FILES_MAX: u16 = 48;

/// Four brokers: for most alerts, with little space, with few descriptors, and without any fault.
struct Scene {
    folder: Folder,
    most: Broker,
    little: Broker,
    few: Option<Broker>,
    fine: Broker,
}

/// The last queue of a session overflows at its third message.
fn sessions(queue_full: &str) -> String {
    format!("[sessions]\nqueue_messages = 2\nqueue_full = {queue_full:?}\n")
}

impl Scene {
    fn new() -> Self {
        let folder = Folder::new();
        let limits = "[limits]\nsubscriptions_per_client = 1\n";
        let settings = folder.full_settings(&format!("{limits}{}", sessions("drop-oldest")));
        let file = Some(folder.write("pondhawk.toml", &format!("shards = 1\n{settings}")).into());
        let most = Broker::start(&Options { file, ..Options::default() });
        let start = |settings: &str, open_files_max| {
            let settings = format!("{}{settings}", folder.admin());
            Broker::start(&Options { settings, open_files_max, ..Options::default() })
        };
        let space = "[limits]\nmemory_budget_bytes = \"16 MiB\"\npacket_bytes = \"16 KiB\"\nretained_bytes = \"1 GiB\"\n\
                     [journal]\nsegment_bytes_min = \"64 KiB\"\ndisk_bytes = \"4 MiB\"\n";
        let little = start(&format!("{space}{}", sessions("refuse")), None);
        let users = folder.write("users", &users());
        let files = format!("[limits]\nconnections = 1000\n[auth]\npassword_file = {users:?}\n");
        let listener = "[[listener]]\naddress = \"127.0.0.1:0\"\nallow_anonymous = true\n";
        let few = start(&format!("{files}{}{listener}", sessions("end-session")), Some(OPEN_FILES_MAX));
        let fine = start("", None);
        Self { folder, most, little, few: Some(few), fine }
    }

    fn few(&self) -> &Broker {
        self.few.as_ref().expect("it runs until the end")
    }

    fn servers(&self) -> [Server; 4] {
        [&self.most, &self.little, self.few(), &self.fine].map(|broker| self.folder.server(broker))
    }
}

/// A password file with one user.
fn users() -> String {
    let mut file = PasswordFile::default();
    let hash = PasswordHash::new(Scheme::MOSQUITTO, b"secret", b"twelve bytes").expect("a salt");
    file.set("ann", &hash).expect("a name");
    file.to_string()
}

/// Sends so many messages of QoS 1 to a session whose client is away, and returns the last reason code of PUBACK.
fn to_the_absent(broker: &Broker, messages: usize) {
    let mut away = broker.client_with(&lasting(Version::V5, "away"));
    away.send(&packet::subscribe_with(Version::V5, 1, "away", 1));
    away.read_packet();
    away.leave();
    let mut publisher = broker.client(Version::V5, "publisher");
    for _ in 0..messages {
        publisher.send(&conversation::publish(Version::V5, 0x32, 1, "away", &[], b"croak"));
        publisher.read_packet();
    }
}

/// Fills the journal, and then the memory, with retained messages.
fn fill(broker: &Broker) {
    let mut publisher = broker.client(Version::V5, "filler");
    for number in 0..1_000_u16 {
        let topic = format!("full/{number}");
        let message = conversation::publish(Version::V5, 0x33, 1, &topic, &[], &[7; 4 << 10]);
        publisher.send(&message);
        publisher.read_packet();
    }
    for number in 0..1_000 {
        publisher.retain(&format!("memory/{number}"), &[7; 15 << 10]);
    }
    publisher.expect_only_pong();
}

/// A client that refuses large packets gets one.
fn drop_a_message(scene: &Scene) {
    let small = Connect { properties: b"\x27\0\0\0\x40", ..Connect::new(Version::V5, "small") };
    let mut small = scene.most.client_with(&small);
    small.subscribe("large");
    let mut publisher = scene.most.client(Version::V5, "publisher");
    publisher.publish("large", &[7; 500]);
    publisher.expect_only_pong();
    small.expect_only_pong();
}

/// A listener for one connection gets several.
fn exceed_connections(scene: &Scene) {
    let [_, narrow, ..] = crate::addresses::<4>(&scene.most);
    let mut crowd: Vec<RawClient> = (0..3).map(|_| RawClient::connect(narrow)).collect();
    crowd[2].expect_closed();
}

/// More connections than the broker has descriptors for.
fn exceed_descriptors(scene: &Scene) {
    let crowd: Vec<RawClient> = (0..OPEN_FILES_MAX).map(|_| scene.few().connect()).collect();
    scene.few().wait_for_log("accepting pauses");
    drop(crowd);
}

fn exceed_subscriptions(scene: &Scene) {
    let mut frog = scene.most.client(Version::V5, "frog");
    for filter in ["a", "b"] {
        frog.send(&packet::subscribe(Version::V5, 1, filter));
        frog.read_packet();
    }
}

fn log_in(broker: &Broker) {
    let mut client = broker.connect();
    client.send(&Connect::new(Version::V5, "ann").of("ann", "wrong").bytes());
    client.read_to_end();
}

fn guess_tokens(scene: &Scene) {
    let url = scene.folder.server(&scene.most).url();
    let server = Server::with(url.trim_start_matches("http://"), "wrong-0123456789abcdef");
    (0..MANY).for_each(|_| drop(server.get("/api/v1/status")));
}

/// The configuration has a mistake, and is read again.
fn break_the_configuration(scene: &Scene) {
    scene.folder.write("pondhawk.toml", "nonsense = 1\n");
    scene.most.hang_up();
}

/// There is a directory in the place of the file with records of changes.
fn fail_to_record(scene: &Scene) {
    std::fs::create_dir(scene.folder.path("audit")).expect("it is ours");
    let headers = "Content-Type: application/json\r\n";
    let server = scene.folder.server(&scene.most);
    let answer = server.send("PUT", "/api/v1/log-level", headers, "{\"level\": \"info\"}");
    assert_eq!(answer.status, 200, "{}", answer.body);
}

fn take_over(scene: &Scene) {
    let clients: Vec<Client> = (0..MANY).map(|_| scene.most.client(Version::V5, "twin")).collect();
    drop(clients);
}

/// Packets that no client may send, each on a connection of its own.
fn send_nonsense(scene: &Scene) {
    for _ in 0..MANY {
        let mut frog = scene.most.client(Version::V5, "frog");
        frog.send(b"\xff\xff\xff\xff\xff");
        frog.read_to_end();
    }
}

/// An alert, and the way to its condition. It may be made true several times.
type Case = (&'static str, fn(&Scene));

/// The alerts whose conditions are true or can be made true.
const ALARMS: &[Case] = &[
    ("PondhawkAcmeFails", |_| ()),
    ("PondhawkCertificateExpires", |_| ()),
    ("PondhawkExporterFails", |_| ()),
    ("PondhawkMessagesDropped", drop_a_message),
    ("PondhawkQueueOverflows", |scene| to_the_absent(&scene.most, 5)),
    // Without space, the queue of a session could take nothing.
    ("PondhawkQueueRefuses", |scene| to_the_absent(&scene.little, 5)),
    ("PondhawkSessionsEnded", |scene| to_the_absent(scene.few(), 5)),
    ("PondhawkConnectionsRefused", exceed_connections),
    ("PondhawkDescriptorsExhausted", exceed_descriptors),
    ("PondhawkLimitReached", exceed_subscriptions),
    ("PondhawkWrongPasswords", |scene| (0..MANY).for_each(|_| log_in(scene.few()))),
    ("PondhawkLoginsUnchecked", |scene| log_in(&scene.most)),
    ("PondhawkAdminGuessing", guess_tokens),
    ("PondhawkAuditFails", fail_to_record),
    ("PondhawkTakeovers", take_over),
    ("PondhawkBadPackets", send_nonsense),
    ("PondhawkFileRefused", break_the_configuration),
];

/// The alerts of a broker without space.
const SPACE: [&str; 4] =
    ["PondhawkJournalNearlyFull", "PondhawkJournalNoSpace", "PondhawkMemoryShort", "PondhawkNotReady"];

/// The shipped rules, without the times that a test cannot wait for.
fn hurried(rules: &str) -> String {
    let line = |line: &str| match line.trim_start().starts_with("for: ") {
        true => line.split("for: ").next().unwrap_or_default().to_owned() + "for: 0s\n",
        false => line.replace("[5m]", "[20s]") + "\n",
    };
    rules.lines().map(line).collect()
}

/// The alerts that have fired since the start of Prometheus, for a broker or for all.
fn fired(prometheus: &Prometheus, matchers: &str) -> BTreeSet<String> {
    let query = format!("last_over_time(ALERTS{{alertstate=\"firing\"{matchers}}}[10m])");
    let name = |series: &serde_json::Value| series["metric"]["alertname"].as_str().map(str::to_owned);
    prometheus.query(&query).iter().filter_map(name).collect()
}

#[test]
fn each_alert_fires_when_its_condition_is_true() {
    let mut scene = Scene::new();
    let rules = std::fs::read_to_string(shipped("prometheus/pondhawk.rules.yml")).expect("it is there");
    let file = scene.folder.write("hurried.yml", &hurried(&rules));
    let servers = scene.servers();
    let prometheus = Prometheus::start(&scene.folder, &servers, Some(&file));
    prometheus.wait_for_all(servers.len());
    let mut waiting: Vec<&Case> = ALARMS.iter().collect();
    until("all alerts fire", || {
        // A rate may need the events again if some came before others were forgotten.
        waiting.iter().for_each(|(_, create)| create(&scene));
        prometheus.wait_for_rules();
        let fired = fired(&prometheus, "");
        waiting.retain(|(name, _)| !fired.contains(*name));
        waiting.is_empty().then_some(()).or_else(|| {
            eprintln!("not yet: {:?}", waiting.iter().map(|(name, _)| name).collect::<Vec<_>>());
            None
        })
    });
    fill(&scene.little);
    until("the alerts of a broker without space fire", || {
        prometheus.wait_for_rules();
        let fired = fired(&prometheus, "");
        let missing: Vec<_> = SPACE.iter().filter(|name| !fired.contains(**name)).collect();
        eprintln!("not yet: {missing:?}");
        missing.is_empty().then_some(())
    });
    scene.few.take().expect("it runs").stop();
    let [of_few, of_fine] =
        [2, 3].map(|at| format!(", instance={:?}", servers[at].url().trim_start_matches("http://")));
    until("the alert of a broker that is gone fires", || {
        fired(&prometheus, &of_few).contains("PondhawkDown").then_some(())
    });
    let mut of_fine = fired(&prometheus, &of_fine);
    // A busy machine may answer a scrape too late.
    of_fine.remove("PondhawkDown");
    assert_eq!(of_fine, BTreeSet::new(), "the fourth broker has no fault");
    // A new rule without a case here or for promtool would never have been seen to fire.
    let names = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let shown = fired(&prometheus, "");
    let unseen: Vec<&str> = names.filter(|name| !shown.contains(*name) && !CASES.contains(name)).collect();
    assert_eq!(unseen, [""; 0]);
}
