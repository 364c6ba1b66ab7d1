//! The health check of containers: `pondhawk ctl ready`.

use std::process::Command;

use pondhawk_tests::{Broker, Options};

use crate::admin::Server;

/// A token in a file that the health check does not know.
const TOKEN: &str = "a-token-of-0123456789-characters";

/// Runs the command as the image does: its environment names the server, and nothing names a token.
fn ready(address: &str, words: &[&str]) -> (Option<i32>, String) {
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(pondhawk_tests::pondhawk());
    command.args(["ctl", "ready"]).args(words).env("PONDHAWK_ADMIN_ADDRESS", address);
    let output = command.current_dir(directory.path()).output().expect("it can be run");
    (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn a_health_check_needs_no_token_and_fails_if_something_is_missing() {
    let directory = tempfile::tempdir().expect("a directory");
    let tokens = directory.path().join("tokens");
    std::fs::write(&tokens, TOKEN).expect("it is ours");
    let settings = format!("[admin]\naddress = \"127.0.0.1:0\"\nadmin_token_file = {tokens:?}\n");
    let broker = Broker::start(&Options { settings, ..Options::default() });
    let address = &*Server::address_of(&broker);

    assert_eq!(ready(address, &[]), (Some(0), "ready\n".to_owned()));
    // Other machines reach such an address, and so a broker needs a token file for it. The check does not.
    let any = address.replace("127.0.0.1", "0.0.0.0");
    assert_eq!(ready(&any, &[]), (Some(0), "ready\n".to_owned()));
    let (code, json) = ready("127.0.0.1:1", &["--json", "--admin", address]);
    assert!(code == Some(0) && json.contains("\"ready\":true"), "{json}");

    let server = Server::with(address, TOKEN);
    assert!(server.run(&["ctl", "drain", "--seconds", "3600"]).0);
    let (code, said) = ready(address, &[]);
    assert_eq!(
        (code, said.as_str()),
        (Some(1), "not ready: the broker is being drained: new clients are refused\n")
    );

    let address = address.to_owned();
    broker.stop();
    let (code, said) = ready(&address, &[]);
    assert!(code == Some(1) && said.contains("no answer from the admin server"), "{said}");
}
