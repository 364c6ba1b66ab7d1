//! The API, fuzzed by its own description.

use pondhawk_tests::{Broker, Options, Version, data_dir};

use crate::admin::Server;

/// Requests for each operation, in which texts and numbers have every value that the description permits, and others.
const REQUESTS: &str = "15";

/// Draining with `exit` ends the broker, and has tests of its own.
#[test]
fn no_request_that_the_description_allows_or_forbids_is_a_failure_of_the_server() {
    let directory = data_dir();
    let settings = "[admin]\naddress = \"127.0.0.1:0\"\n".to_owned();
    let data_dir = Some(directory.path().to_owned());
    let broker = Broker::start(&Options { shards: 2, settings, data_dir, ..Options::default() });
    let server = Server::of(&broker);
    let mut frog = broker.client(Version::V5, "frog");
    frog.subscribe("#");
    let mut fuzzer = pondhawk_tests::schemathesis();
    // It writes its findings into the current directory.
    fuzzer.current_dir(directory.path());
    fuzzer.args(["run", &format!("{}/api/v1/openapi.json", server.url()), "--no-color", "--seed", "1"]);
    fuzzer.args(["--header", &format!("Authorization: Bearer {}", server.token())]);
    fuzzer.args(["--checks", "not_a_server_error,status_code_conformance,content_type_conformance"]);
    fuzzer.args([
        "--exclude-operation-id",
        "Drain",
        "--phases",
        "coverage,fuzzing",
        "--max-examples",
        REQUESTS,
    ]);
    let output = fuzzer.output().expect("it can be run");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("generated") && told.contains("passed"), "{told}");
    assert_eq!(server.send("GET", "/healthz", "", "").status, 200);
}
