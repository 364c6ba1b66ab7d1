//! The sections of `docs/BENCHMARKS.md`, each a command.

/// A section of the page.
pub(super) struct Section {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// Description of the measurement, and how to read the figures.
    pub(super) text: &'static str,
    /// Arguments after `pondhawk bench`, or a whole command if it begins with [`CLIENTS`] or [`CODECS`].
    pub(super) arguments: &'static str,
    /// Arguments for a short run, which only checks that the command works.
    pub(super) in_short: &'static str,
    /// Content of the broker's configuration file, if it has one.
    pub(super) configuration: Option<&'static str>,
    pub(super) peers: &'static [Peer],
}

#[derive(PartialEq)]
pub(super) enum Peer {
    Mosquitto,
    Relay,
}

/// Name of the program that measures client libraries, with this broker as their server.
pub(super) const CLIENTS: &str = "client-speed";

/// Name of the program that measures codecs.
pub(super) const CODECS: &str = "codec-speed";

/// The sections in the order of the page.
pub(super) const SECTIONS: &[Section] = &[
    Section {
        name: "loadtest",
        title: "loadtest",
        text: "Half the connections publish as fast as they can, each to one subscriber; each write to the socket carries \
            64 messages.",
        arguments: "loadtest --conns 100,500,1000 --messages 2000 --repeat 3",
        in_short: "loadtest --conns 20 --messages 200",
        configuration: None,
        peers: &[Peer::Mosquitto, Peer::Relay],
    },
    Section {
        name: "loadtest-single",
        title: "loadtest, every message a write of its own",
        text: "Nearly all of the cost is that of system calls.",
        arguments: "loadtest --conns 100,500,1000 --messages 300 --per-write 1 --repeat 3",
        in_short: "loadtest --conns 20 --messages 50 --per-write 1",
        configuration: None,
        peers: &[Peer::Mosquitto, Peer::Relay],
    },
    Section {
        name: "loadtest-qos1",
        title: "loadtest at QoS 1",
        text: "Each publisher has at most 100 messages unacknowledged. All sessions end with their connections.",
        arguments: "loadtest --conns 500 --messages 4000 --qos 1 --window 100 --repeat 3",
        in_short: "loadtest --conns 20 --messages 200 --qos 1 --window 100",
        configuration: None,
        peers: &[Peer::Mosquitto],
    },
    Section {
        name: "loadtest-qos2",
        title: "loadtest at QoS 2",
        text: "The same at QoS 2, where each message takes four packets between publisher and server, and four \
            between server and subscriber.",
        arguments: "loadtest --conns 500 --messages 2000 --qos 2 --window 100 --repeat 3",
        in_short: "loadtest --conns 20 --messages 200 --qos 2 --window 100",
        configuration: None,
        peers: &[Peer::Mosquitto],
    },
    Section {
        name: "pingtest",
        title: "pingtest",
        text: "Pairs of clients exchange requests and replies, one at a time. In 400p20w there are 400 pairs, and 20 \
            wildcard subscribers receive the messages of the first pair. A broker can be faster than the relay, because \
            it sends fewer and larger writes to these subscribers.",
        arguments: "pingtest --sizes 400p20w,200p200w,100p400w --messages 150 --repeat 3",
        in_short: "pingtest --sizes 10p5w --messages 20",
        configuration: None,
        peers: &[Peer::Mosquitto, Peer::Relay],
    },
    Section {
        name: "loadtest-tls",
        title: "loadtest over TLS",
        text: "The relay decrypts and encrypts with the same library as the broker, and knows no protocol inside: the \
            cost of TLS alone.",
        arguments: "loadtest --conns 100,500 --messages 2000 --repeat 3 --over tls",
        in_short: "loadtest --conns 20 --messages 200 --over tls",
        configuration: Some(TLS),
        peers: &[Peer::Mosquitto, Peer::Relay],
    },
    Section {
        name: "loadtest-ws",
        title: "loadtest over WebSocket",
        text: "Each write of a client is one frame, with a mask of its own.",
        arguments: "loadtest --conns 100,500 --messages 2000 --repeat 3 --over ws",
        in_short: "loadtest --conns 20 --messages 200 --over ws",
        configuration: None,
        peers: &[Peer::Mosquitto, Peer::Relay],
    },
    Section {
        name: "loadtest-wss",
        title: "loadtest over WebSocket over TLS",
        text: "The same inside of TLS.",
        arguments: "loadtest --conns 100,500 --messages 2000 --repeat 3 --over wss",
        in_short: "loadtest --conns 20 --messages 200 --over wss",
        configuration: Some(TLS),
        peers: &[Peer::Mosquitto, Peer::Relay],
    },
    Section {
        name: "handshakes",
        title: "TLS handshakes",
        text: "Clients connect, make a handshake, send CONNECT, and leave when they have their CONNACK. In the second \
            column, each client resumes the session of another.",
        arguments: "handshakes --count 5000 --repeat 3",
        in_short: "handshakes --count 50",
        configuration: Some(TLS),
        peers: &[Peer::Mosquitto, Peer::Relay],
    },
    Section {
        name: "handshakes-beside",
        title: "TLS handshakes beside other clients",
        text: "Five hundred handshakes per second, and the latency of other clients meanwhile.",
        arguments: "handshakes --count 2500 --rate 500 --repeat 5",
        in_short: "handshakes --count 50 --rate 500 --duration 0.2",
        configuration: Some(TLS),
        peers: &[Peer::Mosquitto],
    },
    Section {
        name: "idle-tls",
        title: "Idle connections over TLS",
        text: "Memory of the server, with client identifiers of 23 characters. Memory per connection does not include pages of the program's file.",
        arguments: "idle 8000 --over tls",
        in_short: "idle 50 --over tls",
        configuration: Some(TLS),
        peers: &[Peer::Mosquitto],
    },
    Section {
        name: "idle-ws",
        title: "Idle connections over WebSocket",
        text: "The same over WebSocket.",
        arguments: "idle 8000 --over ws",
        in_short: "idle 50 --over ws",
        configuration: None,
        peers: &[Peer::Mosquitto],
    },
    Section {
        name: "idle",
        title: "Idle connections",
        text: "Memory of the server, with client identifiers of 23 characters. Memory per connection does not include pages of the program's file.",
        arguments: "idle 8000",
        in_short: "idle 50",
        configuration: None,
        peers: &[Peer::Mosquitto],
    },
    Section {
        name: "idle-subscribed",
        title: "Idle connections with one subscription each",
        text: "The same, after one SUBSCRIBE.",
        arguments: "idle 8000 --subscribe",
        in_short: "idle 50 --subscribe",
        configuration: None,
        peers: &[Peer::Mosquitto],
    },
    Section {
        name: "ledger",
        title: "The ledger alone",
        text: "On one core, in one process, without sockets and without a disk: publish, deliver and acknowledge at \
            QoS 1, and the memory of a message that waits. The ledger runs in the event loop of the broker, whose \
            letters are part of the figures.",
        arguments: "ledger",
        in_short: "ledger --messages 20000 --queued 10000",
        configuration: None,
        peers: &[],
    },
    Section {
        name: "durable",
        title: "The ledger on its journal",
        text: "In one process, without sockets, on a real disk: how fast messages at QoS 1 become durable, compared \
            with the same bytes appended to one file and synced (the yardstick). All figures include the work of the \
            ledger, which is most of the work in large commits.",
        arguments: "durable",
        in_short: "durable --seconds 0.2 --per-commit 64 --payload 100",
        configuration: None,
        peers: &[],
    },
    Section {
        name: "durable-journal",
        title: "The journal alone",
        text: "The same with records that are made already: what the journal makes of a disk.",
        arguments: "durable --without-ledger",
        in_short: "durable --without-ledger --seconds 0.2 --per-commit 64 --payload 100",
        configuration: None,
        peers: &[],
    },
    Section {
        name: "durable-longest",
        title: "The longest commit",
        text: "The ledger on its journal for ten minutes, beside the longest write and sync of the yardstick.",
        arguments: "durable --per-commit 64 --payload 100 --fanout 1 --seconds 600",
        in_short: "durable --seconds 0.2 --per-commit 16 --payload 100 --fanout 1",
        configuration: None,
        peers: &[],
    },
    Section {
        name: "recovery",
        title: "Recovery",
        text: "A start of the broker with many queued messages, and their delivery.",
        arguments: "recovery",
        in_short: "recovery --messages 5000 --sessions 100",
        configuration: None,
        peers: &[],
    },
    Section {
        name: "offline-sessions",
        title: "Messages for sessions that are away",
        text: "Messages are published at QoS 1, and then fetched by clients that come back: nothing may be missing. \
            Mosquitto keeps the messages in memory only; Pondhawk acknowledges them after a sync.",
        arguments: "offline-sessions --duration 15",
        in_short: "offline-sessions --sessions 40 --publishers 8 --duration 0.2 --window 20",
        configuration: None,
        peers: &[Peer::Mosquitto],
    },
    Section {
        name: "retained-flood",
        title: "retained-flood",
        text: "A new subscriber asks for a million retained messages, while other clients continue.",
        arguments: "retained-flood --duration 2 --repeat 5",
        in_short: "retained-flood --messages 2000 --duration 0.2",
        configuration: None,
        peers: &[Peer::Mosquitto, Peer::Relay],
    },
    Section {
        name: "slow-consumer",
        title: "slow-consumer",
        text: "Pairs at QoS 0, alone and beside two subscribers to everything: one stops reading, and the other \
            reads 1 KiB/s.",
        arguments: "slow-consumer --conns 100 --messages 6000 --per-write 1 --repeat 5",
        in_short: "slow-consumer --conns 10 --messages 200",
        configuration: None,
        peers: &[Peer::Mosquitto],
    },
    Section {
        name: "slow-consumer-qos1",
        title: "slow-consumer at QoS 1",
        text: "The same at QoS 1.",
        arguments: "slow-consumer --conns 100 --messages 6000 --per-write 1 --qos 1 --repeat 5",
        in_short: "slow-consumer --conns 10 --messages 200 --qos 1",
        configuration: None,
        peers: &[Peer::Mosquitto],
    },
    Section {
        name: "shared-queue",
        title: "shared-queue",
        text: "A shared group of four members. Three of them acknowledge nothing, and lose their connections with \
            the messages that they have received.",
        arguments: "shared-queue --duration 2 --repeat 5",
        in_short: "shared-queue --messages 2000 --duration 0.2",
        configuration: None,
        peers: &[Peer::Mosquitto],
    },
    Section {
        name: "shared-queue-keys",
        title: "shared-queue in the order of keys",
        text: "The same with a server that keeps the messages of each publisher in order, also when the member that \
            had received them is lost.",
        arguments: "shared-queue --dispatch key-ordered --duration 2 --repeat 5",
        in_short: "shared-queue --dispatch key-ordered --messages 2000 --duration 0.2",
        configuration: Some("[shared]\ndispatch = \"key-ordered\"\n"),
        peers: &[],
    },
    Section {
        name: "storm",
        title: "storm",
        text: "Five thousand clients lose their connections and reconnect at once, while other clients continue.",
        arguments: "storm --duration 2 --repeat 5",
        in_short: "storm --clients 50 --duration 0.2",
        configuration: None,
        peers: &[Peer::Mosquitto],
    },
    Section {
        name: "hostile",
        title: "hostile",
        text: "Attacks, each on a freshly started server, and their effect on other clients; the figures are those \
            of the client that suffers most. These clients publish at QoS 0 and 1, publish messages of 256 KiB that \
            no attacker receives, store retained messages, and connect, on schedule. A server fails if they lose \
            half of their throughput, or if their 99th percentile is above 5 ms and above three times its value \
            before the attack. It also fails if a client is refused 30 seconds after the attack, or if memory or \
            disk are then not as before. These clients log in with a password. With `--with-mosquitto`, each attack meets \
            Mosquitto, too; some attacks then take minutes.",
        arguments: "hostile --user innocent --password pond --repeat 3",
        in_short: "hostile --user innocent --password pond --short --duration 0.4",
        configuration: Some(HOSTILE),
        peers: &[],
    },
    Section {
        name: "clients",
        title: "Client libraries",
        text: "The cost of a message for the process that publishes it and for the process that receives it, in \
            messages per second of CPU time (user and system). Each process has one connection, and at most 100 \
            messages are unacknowledged. The libraries are measured in turn, with Pondhawk as the broker. They do \
            different work: pondhawk-client and paho route each message to its subscription, and rumqttc returns all \
            messages from its event loop. In addition, pondhawk-client validates topics and copies each message, so \
            that a stored message does not keep a whole read buffer in memory. `cargo xtask bench clients` builds the \
            program in `target/release`, with the libraries, and runs it.",
        arguments: "client-speed --messages 200000 --repeat 3",
        in_short: "client-speed --messages 2000 --repeat 1",
        configuration: None,
        peers: &[],
    },
    Section {
        name: "codec",
        title: "Codecs",
        text: "The time and the allocations to create a packet of plain values, to write it into a buffer, to read it from \
            bytes, and to do all three in a row, on one core. The codecs in Rust are measured in turn, and those in Go by \
            a program of their own. Each figure is the median of many batches of 256 packets. Pondhawk and the codecs in \
            Go refer to the strings of the application, Pondhawk checks them, and the other codecs in Rust copy them. \
            Payloads that a library keeps by reference are not copied. ntex-mqtt keeps a payload of 1024 bytes by \
            reference when it writes, too. AUTH is missing in rumqttc, and MQTT 3.1.1 in paho.golang. Newer versions of \
            ntex-mqtt need a newer Rust. `cargo xtask bench codec` builds the programs in `target/codec/release`, and \
            runs them.",
        arguments: "codec-speed",
        in_short: "codec-speed --short",
        configuration: None,
        peers: &[],
    },
    Section {
        name: "pipeline",
        title: "Pipelines",
        text: "A program subscribes, filters messages by a regular expression, writes the others in upper case, and \
            publishes these. Each of the three stages has as many workers as the table says. A message is acknowledged \
            after its copy, and at most 100 messages are not acknowledged. The program with pondhawk-client is \
            `crates/client/examples/pipeline.rs`, and that with paho.golang is `crates/bench/peers/pipeline`, where \
            acknowledgements leave every millisecond. Half of the messages match, and all have QoS 1. The rate counts all \
            messages. Processor time and memory are those of the program alone. The broker, the program and the generator \
            share the processors.",
        arguments: "client-speed pipeline --messages 50000 --repeat 5",
        in_short: "client-speed pipeline --messages 500 --repeat 1",
        configuration: None,
        peers: &[],
    },
];

/// A listener for TLS on the port and with the certificate that the load test chooses.
const TLS: &str = "[[listener]]\naddress = \"127.0.0.1:${PORT}\"\ntls_certificate = \"${CERTIFICATE}\"\n\
    tls_key = \"${KEY}\"\n";

/// Limits that an attack reaches within seconds.
const HOSTILE: &str = "allow_anonymous = true\n\n[limits]\nmemory_budget_bytes = \"256 MiB\"\n\n[journal]\ndisk_bytes = \"256 MiB\"\n\n\
    [auth]\npassword_file = \"users\"\n";

/// The password file of configurations that have one: `innocent`, with the password `pond`.
pub(super) const USERS: &str =
    "innocent:$argon2id$v=19$m=19456,t=2,p=1$It8nsZTKY5H9gxee$N5oEGWbhWwlQAq9uXTRrU3zz+8MqkLFRfiuN6TS/bCw\n";
