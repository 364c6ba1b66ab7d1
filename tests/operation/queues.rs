//! Groups, and messages that wait for a session or a group.

use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{Broker, Client, Options, Version, conversation, data_dir, until};
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

/// A broker with the sessions `newt` and `worker` of [`leave_messages`], and with the empty ones `newt-2` and `worker-2`, the
/// member of the group `crew`.
fn renamed(settings: &str) -> (Broker, Server, tempfile::TempDir) {
    let directory = data_dir();
    let (broker, server) = start(&directory, settings);
    leave_messages(&broker, &server);
    drop((lasting(&broker, "newt-2", "newt-2/#"), lasting(&broker, "worker-2", "$share/crew/jobs-2/#")));
    until("both are away", || {
        let is_away = |client: &str| server.value(&format!("/api/v1/clients/{client}"))["connected"] == false;
        (is_away("newt-2") && is_away("worker-2")).then_some(())
    });
    (broker, server, directory)
}

fn start(directory: &tempfile::TempDir, settings: &str) -> (Broker, Server) {
    let settings = format!("{settings}[admin]\naddress = \"127.0.0.1:0\"\n");
    let data_dir = Some(directory.path().to_owned());
    let broker = Broker::start(&Options { shards: 2, settings, data_dir, ..Options::default() });
    let server = Server::of(&broker);
    (broker, server)
}

fn move_from(server: &Server, queue: &str, body: &Value) -> (u16, Value) {
    let headers = "Content-Type: application/json\r\n";
    let answer = server.send("POST", &format!("{queue}/move"), headers, &body.to_string());
    (answer.status, serde_json::from_str(&answer.body).expect("JSON"))
}

/// The messages of a queue, by their payloads.
fn waiting(server: &Server, queue: &str) -> Vec<String> {
    payloads(&server.value(queue)).into_iter().map(str::to_owned).collect()
}

#[test]
fn an_operator_moves_messages_between_sessions_and_groups() {
    let (broker, server, directory) = renamed("[limits]\nqueued_bytes_in_memory = 0\n");
    let (newt, newt_2) = ("/api/v1/clients/newt/queue", "/api/v1/clients/newt-2/queue");
    let (workers, crew) = (&*format!("{GROUP}/queue"), "/api/v1/groups/%24share%2Fcrew%2Fjobs-2%2F%23/queue");
    let (to_crew, to_newt_2) = ("$share/crew/jobs-2/#", "newt-2");
    let some = json!({ "to_group": to_crew, "filter": "jobs/odd" });
    assert_eq!(move_from(&server, workers, &some), (200, json!({ "moved": 2, "cursor": null })));
    broker.wait_for_log(&format!(
        "action=MoveGroupQueue on=\"$share/workers/jobs/# to_group={to_crew} filter=jobs/odd\" role=\"admin\""
    ));
    assert_eq!(
        (waiting(&server, workers), waiting(&server, crew)),
        (texts(&["job 2"]), texts(&["job 1", "job 3"]))
    );
    // From a group to a session, from there to another one, and to a group.
    assert_eq!(move_from(&server, workers, &json!({ "to_client": "newt", "all": true })).1["moved"], 1);
    assert_eq!(move_from(&server, newt, &json!({ "to_client": to_newt_2, "all": true })).1["moved"], 2);
    assert_eq!(waiting(&server, newt_2), texts(&["<i>for the newt</i>", "job 2"]));
    assert_eq!(move_from(&server, newt_2, &json!({ "to_group": to_crew, "filter": "jobs/#" })).1["moved"], 1);
    assert_eq!(waiting(&server, crew), texts(&["job 1", "job 3", "job 2"]));
    for (body, status) in [
        (json!({ "to_client": "newt-2", "all": true }), 400),
        (json!({ "to_client": "nobody", "all": true }), 404),
        (json!({ "to_group": "$share/nobody/x", "all": true }), 404),
        (json!({ "to_group": to_crew }), 400),
        (json!({ "all": true }), 400),
        (json!({ "to_group": to_crew, "all": true, "filter": "a" }), 400),
        (json!({ "to_group": to_crew, "filter": "a/#/b" }), 400),
        (json!({ "to_group": to_crew, "all": true, "cursor": "7" }), 400),
        (json!({ "to_group": to_crew, "all": true, "cursor": 7 }), 400),
    ] {
        assert_eq!(move_from(&server, newt_2, &body).0, status, "{body}");
    }
    let of_nobody =
        move_from(&server, "/api/v1/clients/nobody/queue", &json!({ "to_client": "newt", "all": true }));
    assert_eq!(of_nobody.0, 404);
    let counters = server.value("/api/v1/counters");
    assert_eq!((&counters["moved/by_operator"], &counters["account/queues/queued"]), (&json!(6), &json!(4)));
    broker.stop();
    let (broker, server) = start(&directory, "");
    assert_eq!(waiting(&server, newt_2), texts(&["<i>for the newt</i>"]));
    let connect = Connect { clean_start: false, ..Connect::new(Version::V3_1_1, "worker-2") };
    let (mut worker, _) = broker.greet(&connect);
    for job in ["job 1", "job 3", "job 2"] {
        assert!(worker.read_packet().ends_with(job.as_bytes()), "{job}");
    }
}

fn texts(all: &[&str]) -> Vec<String> {
    all.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn a_client_that_is_connected_gets_moved_messages_at_once_and_a_full_queue_gets_no_more() {
    let (broker, server, _directory) = renamed("[sessions]\nqueue_messages = 4\n");
    let connect = Connect { clean_start: false, ..Connect::new(Version::V3_1_1, "newt-2") };
    let (mut newt_2, _) = broker.greet(&connect);
    let workers = format!("{GROUP}/queue");
    let (status, moved) =
        move_from(&server, &workers, &json!({ "to_client": "newt-2", "filter": "jobs/even" }));
    assert_eq!((status, &moved["moved"]), (200, &json!(1)));
    assert!(newt_2.read_packet().ends_with(b"job 2"));
    let newt = "/api/v1/clients/newt/queue";
    for number in 2..=4 {
        publish(&server, "newt/1", &format!("newt {number}"));
    }
    until("they wait", || (waiting(&server, newt).len() == 4).then_some(()));
    let order = json!({ "to_group": "$share/workers/jobs/#", "all": true });
    let (status, stopped) = move_from(&server, newt, &order);
    assert_eq!((status, &stopped["moved"]), (409, &json!(2)), "{stopped}");
    let why = "2 messages were moved, and then the queue of $share/workers/jobs/# was full";
    assert_eq!(stopped["error"]["message"], why);
    assert_eq!(waiting(&server, newt), texts(&["newt 3", "newt 4"]));
    let (is_done, text) =
        server.run(&["ctl", "move", "newt", "--to-group", "$share/workers/jobs/#", "--filter", "newt/#"]);
    assert!(!is_done && text.contains("0 messages were moved, and then the queue"), "{text}");
    // The rest goes on at the cursor.
    assert_eq!(server.send("DELETE", &format!("{workers}?all=true"), "", "").status, 200);
    let mut rest = order;
    rest["cursor"] = stopped["cursor"].clone();
    assert_eq!(move_from(&server, newt, &rest), (200, json!({ "moved": 2, "cursor": null })));
    assert_eq!(waiting(&server, &workers), texts(&["newt 3", "newt 4"]));
}

#[test]
fn messages_move_on_the_command_line() {
    let (_broker, server, _directory) = renamed("");
    let (is_done, text) = server.run(&["ctl", "move", "newt", "--to-client", "newt-2"]);
    assert!(!is_done && text.contains("--filter"), "nothing moves by mistake: {text}");
    let (is_done, text) = server.run(&["ctl", "move", "newt", "--all"]);
    assert!(!is_done && text.contains("--to-client"), "{text}");
    assert_eq!(
        server.run(&["ctl", "move", "newt", "--to-client", "newt-2", "--all"]),
        (true, "moved  1\n".to_owned())
    );
    let of_group = ["ctl", "move", "--group", "$share/workers/jobs/#", "--to-group", "$share/crew/jobs-2/#"];
    let odd = [&of_group[..], &["--filter", "jobs/odd", "--json"]].concat();
    assert_eq!(server.run(&odd), (true, "{\"moved\":2}\n".to_owned()));
    assert_eq!(server.run(&["ctl", "queue", "newt-2"]).1.lines().count(), 2);
}

/// The broker is killed again and again while messages go to and fro, some windows at a time.
#[test]
fn a_kill_in_the_middle_of_moving_loses_and_doubles_nothing() {
    const MESSAGES: u16 = 400;
    let (directory, names) = (data_dir(), ["old", "new"]);
    let settings = "[limits]\nqueued_bytes_in_memory = 0\n";
    let (mut broker, mut server) = start(&directory, settings);
    names.into_iter().for_each(|name| drop(lasting(&broker, name, &format!("{name}/#"))));
    let mut publisher = broker.client(Version::V3_1_1, "publisher");
    let expected: Vec<String> = (1..=MESSAGES).map(|number| format!("{number:03}")).collect();
    for (number, payload) in (1..).zip(&expected) {
        publisher.send(&conversation::publish(
            Version::V3_1_1,
            0x32,
            number,
            "old/a",
            &[],
            payload.as_bytes(),
        ));
    }
    for [high, low] in (1..=MESSAGES).map(u16::to_be_bytes) {
        publisher.expect(&[0x40, 0x02, high, low]);
    }
    drop(publisher);
    for round in 0..6 {
        let (from, to) = (names[round % 2], names[(round + 1) % 2]);
        let order = json!({ "to_client": to, "all": true }).to_string();
        let path = format!("/api/v1/clients/{from}/queue/move");
        let _unread = server.send_unread("POST", &path, "Content-Type: application/json\r\n", &order);
        until("some have moved", || {
            server.value("/api/v1/counters")["moved/by_operator"].as_u64().filter(|moved| *moved > 0)
        });
        // Its process gets SIGKILL.
        drop(broker);
        (broker, server) = start(&directory, settings);
        let queue = |name: &str| waiting(&server, &format!("/api/v1/clients/{name}/queue?limit=1000"));
        let mut all = names.map(queue).concat();
        all.sort_unstable();
        assert_eq!(all, expected, "round {round}");
    }
}
