//! Groups, and messages that wait for a session or a group.

use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{Broker, Client, Options, Version, data_dir, until};
use serde_json::{Value, json};

use crate::admin::Server;

const GROUP: &str = "/api/v1/groups/%24share%2Fworkers%2Fjobs%2F%23";

/// A client whose session lasts, with a subscription of QoS 1.
fn lasting(broker: &Broker, client_id: &str, filter: &str) -> Client {
    let connect = Connect { clean_start: false, ..Connect::new(Version::V3_1_1, client_id) };
    let mut client = broker.client_with(&connect);
    client.send(&packet::subscribe_with(Version::V3_1_1, 1, filter, 1));
    client.expect(&packet::suback(Version::V3_1_1, 1, 1));
    client
}

fn publish(server: &Server, topic: &str, payload: &str) {
    let body = json!({ "topic": topic, "payload": payload, "qos": 1 });
    assert_eq!(server.publish(&body).status, 200);
}

/// Two sessions that are away: `newt`, and the only member of the group `workers`. Messages wait for both.
pub(super) fn leave_messages(broker: &Broker, server: &Server) {
    drop((lasting(broker, "newt", "newt/#"), lasting(broker, "worker", "$share/workers/jobs/#")));
    until("both are away", || {
        let is_away = |client: &str| server.value(&format!("/api/v1/clients/{client}"))["connected"] == false;
        (is_away("newt") && is_away("worker")).then_some(())
    });
    publish(server, "newt/é", "<i>for the newt</i>");
    for number in 1..=3 {
        publish(server, ["jobs/even", "jobs/odd"][number % 2], &format!("job {number}"));
    }
    until("all messages wait", || {
        (server.value(GROUP)["queued_messages"] == 3
            && server.value("/api/v1/clients/newt")["queued_messages"] == 1)
            .then_some(())
    });
}

fn payloads(list: &Value) -> Vec<&str> {
    let messages = list["messages"].as_array().expect("a list");
    messages.iter().map(|message| message["payload"].as_str().unwrap_or_default()).collect()
}

#[test]
fn an_operator_looks_at_queues_and_discards_messages_for_good() {
    let directory = data_dir();
    let start = || {
        let settings =
            "[limits]\nqueued_bytes_in_memory = 0\n[admin]\naddress = \"127.0.0.1:0\"\n".to_owned();
        let data_dir = Some(directory.path().to_owned());
        let broker = Broker::start(&Options { shards: 2, settings, data_dir, ..Options::default() });
        let server = Server::of(&broker);
        (broker, server)
    };
    let (broker, server) = start();
    leave_messages(&broker, &server);
    let list = server.value("/api/v1/groups?match=work");
    assert_eq!(list["cursor"], Value::Null);
    let group = &list["groups"][0];
    assert_eq!(
        (&group["filter"], &group["group"], &group["dispatch"], &group["members"], &group["connected"]),
        (&json!("$share/workers/jobs/#"), &json!("workers"), &json!("round-robin"), &json!(1), &json!(0))
    );
    assert_eq!(server.value("/api/v1/groups?match=frog")["groups"], json!([]));
    let members = server.value(&format!("{GROUP}/members"));
    assert_eq!(members["members"][0]["client_id"], "worker");
    let queue = server.value("/api/v1/clients/newt/queue");
    let newt = &queue["messages"][0];
    assert_eq!((&newt["topic"], &newt["qos"], &newt["bytes"]), (&json!("newt/é"), &json!(1), &json!(19)));
    let first = server.value(&format!("{GROUP}/queue?limit=2"));
    assert_eq!(payloads(&first), ["job 1", "job 2"]);
    let cursor = first["cursor"].as_str().expect("there is another one");
    assert_eq!(payloads(&server.value(&format!("{GROUP}/queue?cursor={cursor}"))), ["job 3"]);
    let discard = |path: &str| server.send("DELETE", path, "", "");
    let newt = "/api/v1/clients/newt/queue";
    for wrong in
        ["", "?topic=jobs/odd", "?all=false", "?all=true&filter=a", "?filter=a&filter=b", "?cursor=0-9"]
    {
        let (of_client, of_group) =
            (discard(&format!("{newt}{wrong}")), discard(&format!("{GROUP}/queue{wrong}")));
        assert_eq!((of_client.status, of_group.status), (400, 400), "{wrong}");
    }
    assert_eq!(server.send("GET", &format!("{newt}?filter=a"), "", "").status, 400, "a list has no filter");
    let answered = discard(&format!("{GROUP}/queue?filter=jobs/odd"));
    assert_eq!((answered.status, answered.body.as_str()), (200, "{\"cursor\":null,\"discarded\":2}\n"));
    broker.wait_for_log("action=DiscardGroupQueue on=\"$share/workers/jobs/# jobs/odd\" role=\"admin\"");
    assert_eq!(payloads(&server.value(&format!("{GROUP}/queue"))), ["job 2"]);
    let answered = discard(&format!("{newt}?all=true"));
    assert_eq!((answered.status, answered.body.as_str()), (200, "{\"cursor\":null,\"discarded\":1}\n"));
    for (path, status) in [
        ("/api/v1/clients/nobody/queue?all=true", 404),
        ("/api/v1/groups/jobs%2F%23/queue?all=true", 404),
        ("/api/v1/clients/newt/queue?filter=a/%23/b", 400),
        ("/api/v1/clients/newt/queue?filter=%24share/g/a", 400),
        ("/api/v1/clients/newt/queue?all=true&cursor=1", 400),
    ] {
        assert_eq!(discard(path).status, status, "{path}");
    }
    assert_eq!(server.value("/api/v1/counters")["discarded/by_operator"], 3);
    broker.stop();
    let (broker, server) = start();
    assert_eq!(server.value("/api/v1/clients/newt/queue")["messages"], json!([]));
    let connect = Connect { clean_start: false, ..Connect::new(Version::V3_1_1, "worker") };
    let (mut worker, _) = broker.greet(&connect);
    assert!(worker.read_packet().ends_with(b"job 2"));
}

#[test]
fn queues_and_groups_are_there_on_the_command_line() {
    let settings = "[admin]\naddress = \"127.0.0.1:0\"\n".to_owned();
    let broker = Broker::start(&Options { settings, ..Options::default() });
    let server = Server::of(&broker);
    leave_messages(&broker, &server);
    let (_, groups) = server.run(&["ctl", "groups"]);
    assert!(groups.contains("$share/workers/jobs/#  round-robin  1"), "{groups}");
    let (_, queue) = server.run(&["ctl", "queue", "--group", "$share/workers/jobs/#"]);
    assert_eq!(queue.lines().count(), 4, "{queue}");
    assert!(server.run(&["ctl", "members", "$share/workers/jobs/#"]).1.contains("worker"));
    let (is_done, text) = server.run(&["ctl", "discard", "newt"]);
    assert!(!is_done && text.contains("--filter"), "nothing is discarded by mistake: {text}");
    let of_group = ["ctl", "discard", "--group", "$share/workers/jobs/#", "--filter", "jobs/odd"];
    assert_eq!(server.run(&of_group), (true, "discarded  2\n".to_owned()));
    assert_eq!(server.run(&["ctl", "discard", "newt", "--all"]), (true, "discarded  1\n".to_owned()));
    assert_eq!(server.run(&["ctl", "queue", "newt"]).1.lines().count(), 1);
}
