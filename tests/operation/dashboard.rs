//! The dashboard, in a real browser.

use std::path::Path;

use pondhawk_tests::packet::Connect;
use pondhawk_tests::{Version, until};
use serde_json::json;

use crate::admin::{Server, broker};

/// The number of views that are looked at, in their states.
const LOOKS: usize = 81;

/// The page and its script come without a token, and have nothing of the broker in them.
#[test]
fn the_dashboard_comes_without_a_token_and_asks_for_one() {
    let (broker, server) = broker("");
    let stranger = server.with_token("");
    for (path, kind) in [
        ("/", "text/html"),
        ("/app.js", "text/javascript"),
        ("/views/page.js", "text/javascript"),
        ("/style.css", "text/css"),
    ] {
        let answer = stranger.get(path);
        assert_eq!(answer.status, 200, "{path}");
        assert!(answer.head.contains(&format!("content-type: {kind}")), "{}", answer.head);
        assert!(answer.head.contains("script-src 'self';"), "{}", answer.head);
        assert_eq!(answer.head.matches("content-security-policy").count(), 1, "{}", answer.head);
        let sockets = answer.head.contains(&format!("connect-src 'self' ws://{};", broker.address()));
        assert!(
            if path == "/" { sockets } else { answer.head.contains("connect-src 'self';") },
            "{}",
            answer.head
        );
        assert!(
            !answer.body.contains("http://") && !answer.body.contains("https://"),
            "{path} works offline"
        );
    }
    assert_eq!(stranger.get("/views/..%2fapp.js").status, 404);
}

/// An operator who logs in with a password.
const OPERATOR: &str = "users = { zoe = \"viewer\" }\n";

/// A second listener with users and rules. Everybody may do everything at the first.
fn users_and_rules(files: &std::path::Path) -> String {
    let write = |name: &str, text: &str| {
        let path = files.join(name);
        std::fs::write(&path, text).expect("it is ours");
        path
    };
    let dynamic = json!({
        "clients": [{ "username": "anna", "textname": "<b>Anna</b>", "roles": [{ "rolename": "reader" }] }],
        "roles": [
            { "rolename": "reader", "acls": [{ "acltype": "subscribePattern", "topic": "pond/#", "allow": true }] },
            { "rolename": "writer" },
        ],
    });
    let dynamic = write("dynamic", &dynamic.to_string());
    let (passwords, rules) = (files.join("users"), write("acl", "topic read <i>pond</i>/#\n"));
    crate::operators::set_passwords(&passwords, &[("zoe", "z: \u{e9}")]);
    let listener = "[[listener]]\naddress = \"127.0.0.1:0\"\n";
    format!(
        "[auth]\ndynamic_security_file = {dynamic:?}\npassword_file = {passwords:?}\nacl_file = {rules:?}\n{listener}\
         allow_anonymous = true\ndynamic_security_file = \"off\"\npassword_file = \"off\"\nacl_file = \"off\"\n{listener}"
    )
}

/// Every view, in a wide and in a narrow window, with data and with an error, and texts of clients that look like markup.
/// `PONDHAWK_PICTURES` names a directory for a picture of each.
#[test]
fn every_view_of_the_dashboard_shows_its_data_in_a_browser() {
    let files = tempfile::tempdir().expect("a directory");
    let (broker, [server, operator, viewer]) =
        Server::with_roles_and(2, (&users_and_rules(files.path()), OPERATOR), files.path());
    let mut frog = broker.client(Version::V5, "frog/1");
    frog.subscribe("pond/#");
    let body = json!({ "topic": "pond/x", "payload": "<b>croak</b>", "retain": true });
    assert_eq!(server.publish(&body).status, 200);
    until("it is retained", || (server.get("/api/v1/retained/pond%2Fx").status == 200).then_some(()));
    // Browsers take such a name out of paths.
    let _dots = broker.client(Version::V5, "..");
    let _hostile = broker.client(Version::V5, "<img src=x onerror=document.title='gone'>");
    crate::queues::leave_messages(&broker, &server);
    let url = server.url() + "/";
    let tokens = [&server, &operator, &viewer].map(Server::token).join(",");
    let pictures = std::env::var("PONDHAWK_PICTURES");
    let arguments = [Some(&url), Some(&tokens), pictures.as_ref().ok()];
    let output = run_in_browser("look.mjs", &arguments.into_iter().flatten().collect::<Vec<_>>());
    assert_eq!(output.lines().count(), LOOKS);
}

/// Runs a script with a directory for its browser and these arguments. Returns what it prints.
fn run_in_browser(script: &str, arguments: &[&String]) -> String {
    let mut node = pondhawk_tests::node();
    let profile = tempfile::tempdir().expect("a directory");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("operation/dashboard");
    node.args(["--experimental-websocket".as_ref(), folder.join(script).as_os_str()]);
    // The browser leaves folders behind.
    node.env("TMPDIR", profile.path()).arg(profile.path()).args(arguments);
    let output = node.output().expect("Node.js is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// From the login to a change that is not wanted at first, without a mouse.
#[test]
fn the_dashboard_is_used_with_the_keyboard_alone() {
    let (broker, server) = broker("");
    let session = [0x11, 0, 0, 0, 100];
    let mut frog = broker.client_with(&Connect { properties: &session, ..Connect::new(Version::V5, "frog") });
    let (url, token) = (server.url() + "/", server.token().to_owned());
    let output = run_in_browser("keys.mjs", &[&url, &token, &"frog".to_owned()]);
    assert_eq!(output.lines().count(), 9, "{output}");
    frog.expect_disconnect(0x98);
}

/// Each answer of the API is about a part of all clients. The script has them, and needs no broker.
#[test]
fn the_dashboard_lists_and_searches_a_hundred_thousand_clients() {
    let output = run_in_browser("many.mjs", &[]);
    assert_eq!(output.lines().count(), 5, "{output}");
}
