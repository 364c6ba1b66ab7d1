//! The content of `mosquitto.db` in the tables of Mosquitto's SQLite plugin, as Mosquitto's own converter writes them.

use std::path::Path;

use mosquitto::database::{Database, Message, Progress};
use rusqlite::{Connection, ToSql};
use serde_json::{Value, json};
use wire::{MessageProperties, PayloadFormat};

/// The tables of version 1.1, with the types that the plugin gives their columns.
const TABLES: &str = "
    CREATE TABLE base_msgs (store_id INT64 PRIMARY KEY, expiry_time INT64, topic STRING NOT NULL, payload BLOB,
        source_id STRING, source_username STRING, payloadlen INTEGER, source_mid INTEGER, source_port INTEGER,
        qos INTEGER, retain INTEGER, properties STRING);
    CREATE TABLE retains (topic STRING PRIMARY KEY, store_id INT64);
    CREATE TABLE clients (client_id TEXT PRIMARY KEY, username TEXT, connection_time INT64, will_delay_time INT64,
        session_expiry_time INT64, listener_port INT, max_packet_size INT, max_qos INT, retain_available INT,
        session_expiry_interval INT, will_delay_interval INT);
    CREATE TABLE subscriptions (client_id TEXT NOT NULL, topic TEXT NOT NULL, subscription_options INTEGER,
        subscription_identifier INTEGER, PRIMARY KEY (client_id, topic));
    CREATE TABLE client_msgs (client_id TEXT NOT NULL, cmsg_id INT64, store_id INT64, dup INTEGER,
        direction INTEGER, mid INTEGER, qos INTEGER, retain INTEGER, state INTEGER, subscription_identifier INTEGER);
    CREATE TABLE wills (client_id TEXT PRIMARY KEY, payload BLOB, topic STRING NOT NULL, payloadlen INTEGER,
        qos INTEGER, retain INTEGER, properties STRING);
    CREATE TABLE version_info (component TEXT NOT NULL, major INTEGER NOT NULL, minor INTEGER NOT NULL,
        patch INTEGER NOT NULL);
    INSERT INTO version_info VALUES ('database_schema', 1, 1, 0);
";

/// A new database of the plugin, which is open.
pub(crate) fn create(file: &Path) -> Connection {
    let connection = Connection::open(file).expect("a temporary file can be written");
    connection.pragma_update(None, "journal_mode", "WAL").expect("as the plugin does");
    connection.execute_batch(TABLES).expect("the tables are new");
    connection
}

/// Executes a statement with these values.
pub(crate) fn put(connection: &Connection, statement: &str, values: &[&dyn ToSql]) {
    connection.execute(statement, values).unwrap_or_else(|error| panic!("{statement}: {error}"));
}

/// Writes the content of `mosquitto.db`.
pub(crate) fn convert(from: &[u8], file: &Path) -> Connection {
    let database = Database::read(from).expect("Mosquitto has written it");
    let connection = create(file);
    connection.execute_batch("BEGIN").expect("it is new");
    for (number, message) in &database.messages {
        let Message { topic, payload, qos, retain, publisher, expires_unix_secs, properties } = message;
        put(
            &connection,
            "INSERT INTO base_msgs VALUES (?, ?, ?, ?, ?, NULL, ?, 0, 0, ?, ?, ?)",
            &[
                number,
                &expires_unix_secs.unwrap_or(0),
                topic,
                &Some(payload).filter(|payload| !payload.is_empty()),
                publisher,
                &payload.len(),
                qos,
                retain,
                &json_of(properties),
            ],
        );
    }
    for number in &database.retained {
        put(&connection, "INSERT INTO retains VALUES (?, ?)", &[&database.messages[number].topic, number]);
    }
    for of in &database.sessions {
        // The plugin writes a signed number.
        let expiry_secs = of.expiry_secs.cast_signed();
        put(
            &connection,
            "INSERT INTO clients VALUES (?, ?, 0, 0, ?, 1883, 0, 2, 1, ?, 0)",
            &[&of.client_id, &of.user, &of.expires_unix_secs.unwrap_or(0), &expiry_secs],
        );
    }
    for of in &database.subscriptions {
        put(
            &connection,
            "INSERT INTO subscriptions VALUES (?, ?, ?, ?)",
            &[&of.client_id, &of.filter, &(of.options | of.qos), &of.identifier],
        );
    }
    for of in &database.queued {
        // Incoming: waits for PUBREL. Outgoing: queued; waits for PUBACK or PUBREC; waits for PUBCOMP.
        let (direction, state, packet_id) = match of.progress {
            Progress::Incoming(packet_id) => (0, 7, packet_id),
            Progress::Waits => (1, 11, 0),
            Progress::Sent(packet_id) => (1, if of.qos == 1 { 3 } else { 5 }, packet_id),
            Progress::HandedOver(packet_id) => (1, 9, packet_id),
        };
        put(
            &connection,
            "INSERT INTO client_msgs VALUES (?, 0, ?, 0, ?, ?, ?, ?, ?, ?)",
            &[
                &of.client_id,
                &of.message,
                &direction,
                &packet_id,
                &of.qos,
                &of.retain,
                &state,
                &of.identifiers.first().copied().unwrap_or(0),
            ],
        );
    }
    connection.execute_batch("COMMIT").expect("it has begun");
    connection
}

/// The properties of a message as the plugin writes them. `None` without any.
fn json_of(properties: &[u8]) -> Option<String> {
    let found = MessageProperties::from_bytes(properties).expect("Mosquitto has checked them");
    let is_text = found.payload_format.map(|format| u8::from(format == PayloadFormat::Utf8));
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let one = |identifier: &str, value: Value| json!({ "identifier": identifier, "value": value });
    let single = [
        is_text.map(|number| one("payload-format-indicator", json!(number))),
        found.content_type.map(|text| one("content-type", json!(text.as_str()))),
        found.response_topic.map(|topic| one("response-topic", json!(topic.0.as_str()))),
        found.correlation_data.map(|data| one("correlation-data", json!(hex(data.as_bytes())))),
    ];
    let pairs = found.user_properties.iter().map(|pair| {
        json!({ "identifier": "user-property", "name": pair.name.as_str(), "value": pair.value.as_str() })
    });
    let all: Vec<Value> = single.into_iter().flatten().chain(pairs).collect();
    (!all.is_empty()).then(|| Value::from(all).to_string())
}
