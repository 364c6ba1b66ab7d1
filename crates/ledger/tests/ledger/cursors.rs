//! Retained messages for sessions that last.

use ledger::{Command, CursorId, Reply, Settings};
use wire::ReasonCode;

use crate::stage::{Ask, QOS_1, Stage, at_qos, count, payloads, retained};

/// What is retained comes at the pace at which the client takes it: it fills no queue.
#[test]
fn a_cursor_waits_for_the_queue_that_it_brings_to() {
    let mut stage = Stage::with(Settings { queue_messages_max: 2_100, ..Settings::default() });
    for number in 0..5_000 {
        stage.emit(&retained(&format!("t/{number:04}"), number.to_string().as_bytes(), QOS_1));
    }
    let client = stage.client("c", &Ask::lasting(60));
    stage.subscribe(&client, "t/#", at_qos(QOS_1));
    let (shard, connection, id) = (client.place.shard, client.place.connection, CursorId(1));
    stage.handle(shard, Command::Retained { connection, id, filter: "t/#".into() });
    stage.handle(shard, Command::Credit { connection, id, queue: Some(client.queue()) });
    let mut found = Vec::new();
    let mut is_done = false;
    while !is_done || count(&stage.gauges().queued) + count(&stage.gauges().in_flight) > 0 {
        for (_, reply) in stage.replies() {
            match reply {
                Reply::Retained { messages, done, .. } => {
                    is_done = done;
                    let interest = at_qos(QOS_1);
                    stage.handle(shard, Command::Queue { origin: client.origin(), messages, interest });
                    stage.handle(shard, Command::Credit { connection, id, queue: Some(client.queue()) });
                }
                Reply::Deliver(deliver) => {
                    assert!(deliver.retain);
                    found.extend(payloads(std::slice::from_ref(&deliver)));
                    stage.acknowledge(&client, deliver.what, ReasonCode::Success);
                }
                _ => {}
            }
        }
    }
    assert_eq!(found, (0..5_000).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!(count(&stage.gauges().sessions), 1, "its queue was never full");
    stage.check_account();
}
