//! Limits of clients, sessions and messages.

use crate::model::{Block, Given, Model};
use crate::output::{Output, Table, Toml};

const MIB: u64 = 1 << 20;
/// Maximum length of a packet if the file has no limit. Mosquitto 2.0 has none, and 2.1 has 2,000,000 bytes.
const PACKET_BYTES: u64 = 16 * MIB;
/// The same with a journal. Its files are four times as long, and a new journal has three or four of them.
const PACKET_BYTES_STORED: u64 = 4 * MIB;
/// Maximum length of a packet with a journal, whatever the file says.
const PACKET_BYTES_JOURNAL: u64 = 64 * MIB;
/// The longest packet of MQTT, as the key allows it.
const PACKET_BYTES_MAX: u64 = 256 * MIB;
/// Room for a topic and properties beside a payload.
const BESIDE_PAYLOAD: u64 = 128 << 10;
/// "No limit", as the keys of queues allow it.
const QUEUE_MAX: u64 = 100_000_000;

pub(super) fn translate(model: &Model, output: &mut Output) {
    let global = &model.global;
    packets(global, super::storage::is_kept(model), output);
    if let Some(given) = global.last("memory_limit") {
        memory(given, output);
    }
    keep_alive(global, output);
    aliases(model, output);
    inflight(global, output);
    queues(global, output);
    clients(global, output);
    expiry(global, output);
}

fn positive(given: &Given) -> u64 {
    u64::try_from(given.number()).unwrap_or(0)
}

fn packets(global: &Block, is_kept: bool, output: &mut Output) {
    let most = if is_kept { PACKET_BYTES_JOURNAL } else { PACKET_BYTES_MAX };
    let payload = global.last("message_size_limit").filter(|given| given.number() > 0);
    if let Some(given) = global.last("message_size_limit").filter(|given| given.number() == 0) {
        output.ignore(given, "the size of packets is limited instead, by `packet_bytes`");
    }
    let packet = global.last("max_packet_size");
    let of_payload = payload.map(|given| positive(given) + BESIDE_PAYLOAD);
    let asked = [packet.map(positive), of_payload].into_iter().flatten().min();
    let lines: Vec<&Given> = packet.into_iter().chain(payload).collect();
    let unasked = if is_kept { PACKET_BYTES_STORED } else { PACKET_BYTES };
    let bytes = asked.unwrap_or(unasked).clamp(1024, most);
    output.set(Table::Limits, "packet_bytes", bytes, &lines);
    if let Some(given) = payload {
        output.change(given, "a longer message is refused with its packet, and not acknowledged and dropped");
    }
    if let Some(given) = packet
        && asked != Some(bytes)
    {
        output.change(given, format!("a packet has from 1024 to {most} bytes here"));
    }
}

fn memory(given: &Given, output: &mut Output) {
    match positive(given) {
        0 => output.ignore(given, "memory always has a limit: half of the machine's by default"),
        bytes => {
            output.set(Table::Limits, "memory_budget_bytes", bytes.max(16 * MIB), &[given]);
            let text = "near the limit, which is at least 16 MiB, new clients and messages are refused";
            output.change(given, text);
        }
    }
}

fn keep_alive(global: &Block, output: &mut Output) {
    let Some(given) = global.last("max_keepalive") else { return };
    match positive(given) {
        0 => output.set(Table::Limits, "keep_alive", "off", &[given]),
        secs => {
            output.set(Table::Limits, "keep_alive", format!("{secs} s"), &[given]);
            output.change(given, "clients before MQTT 5.0 that ask for more are held to it, and not refused");
        }
    }
}

/// The limits on topic aliases, which Mosquitto has for each listener.
fn aliases(model: &Model, output: &mut Output) {
    let names = [
        ("max_topic_alias", "topic_alias_maximum", u64::from(u16::MAX)),
        ("max_topic_alias_broker", "topic_alias_maximum_out", 64),
    ];
    for (name, key, most) in names {
        let blocks = model.listeners.iter().map(|listener| &listener.block);
        let blocks = blocks.chain([&model.default_listener.block]);
        let given: Vec<&Given> = blocks.filter_map(|block| block.last(name)).collect();
        let asked = given.iter().map(|given| positive(given)).max().unwrap_or(10);
        output.set(Table::Limits, key, asked.min(most), &given);
        for line in &given {
            if positive(line) != asked.min(most) || model.listeners.len() > 1 {
                output.change(line, format!("the limit of all listeners is {}", asked.min(most)));
            }
        }
    }
}

fn inflight(global: &Block, output: &mut Output) {
    let given = global.last("max_inflight_messages");
    let lines: Vec<&Given> = given.into_iter().collect();
    // 0 is no limit. More than half of all packet identifiers cannot be under way.
    let asked = match given.map_or(20, positive) {
        0 => u64::from(u16::MAX),
        number => number,
    };
    output.set(Table::Sessions, "receive_maximum", asked, &lines);
    output.set(Table::Sessions, "inflight_messages", asked.min(32_767), &lines);
    output.set(Table::Sessions, "inflight_messages_3", asked.min(32_767), &lines);
    if let Some(given) = given.filter(|_| asked > 32_767) {
        output.change(given, "at most 32767 messages are under way to a client");
    }
    if let Some(given) = global.last("max_inflight_bytes") {
        output.ignore(
            given,
            "the messages under way are limited by their number, and by the memory of all clients",
        );
    }
}

fn queues(global: &Block, output: &mut Output) {
    let given = global.last("max_queued_messages");
    let lines: Vec<&Given> = given.into_iter().collect();
    let messages = match given.map(positive) {
        None => 1_000,
        Some(0) => QUEUE_MAX,
        Some(number) => number.min(QUEUE_MAX),
    };
    output.set(Table::Sessions, "queue_messages", messages, &lines);
    output.set(Table::Sessions, "queue_full", "drop-newest", &[]);
    match global.last("max_queued_bytes") {
        Some(given) if positive(given) > 0 => {
            let bytes = positive(given).max(64 << 10);
            output.set(Table::Sessions, "queue_bytes", bytes, &[given]);
            if bytes != positive(given) {
                output.change(given, "a queue has at least 65536 bytes");
            }
        }
        Some(given) => {
            output.ignore(given, "a queue has at most 256 MiB, unless `sessions.queue_bytes` says more");
        }
        None => {}
    }
    if let Some(given) = global.last("queue_qos0_messages") {
        if given.flag() {
            output.change(
                given,
                "messages of QoS 0 are not queued for absent clients: subscribe and publish with QoS 1",
            );
        } else {
            output.ignore(given, "that is the default");
        }
    }
}

/// Numbers of all clients. Numbers up to 0 are no limit.
fn clients(global: &Block, output: &mut Output) {
    let names = [
        ("global_max_connections", Table::Limits, "connections"),
        ("global_max_clients", Table::Sessions, "lasting_max"),
    ];
    for (name, table, key) in names {
        match global.last(name) {
            Some(given) if given.number() > 0 => {
                output.set(table, key, positive(given), &[given]);
                if key == "lasting_max" {
                    output.change(given, "the limit is for sessions whose clients are not connected");
                }
            }
            Some(given) => output.ignore(given, "a limit follows from the machine"),
            None => {}
        }
    }
}

fn expiry(global: &Block, output: &mut Output) {
    let Some(given) = global.last("persistent_client_expiration") else { return };
    match expiry_secs(given.text()) {
        Some(secs) => {
            let key: Toml = format!("{secs} s").into();
            output.set(Table::Sessions, "expiry_max", key, &[given]);
        }
        None => output.refuse(given, "a time is a number above 0 and a unit: `s`, `h`, `d`, `w`, `m` or `y`"),
    }
}

/// Reads `14d` or `2m`. A month has 30 days, and a year has 365.
fn expiry_secs(text: &str) -> Option<u64> {
    let text = crate::value::trimmed(text);
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let unit = match unit {
        "s" => 1,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        "m" => 30 * 86_400,
        "y" => 365 * 86_400,
        _ => return None,
    };
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = number.parse().ok().filter(|number| is_number && *number > 0)?;
    Some(number.checked_mul(unit)?.min(u64::from(u32::MAX) - 1))
}
