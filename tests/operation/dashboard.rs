//! The dashboard, in a real browser.

use pondhawk_tests::{Version, until};
use serde_json::json;

use crate::admin::{Server, broker};

/// The number of views that are looked at, in their states.
const LOOKS: usize = 70;

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

/// Every view, in a wide and in a narrow window, with data and with an error, and texts of clients that look like markup.
/// `PONDHAWK_PICTURES` names a directory for a picture of each.
#[test]
fn every_view_of_the_dashboard_shows_its_data_in_a_browser() {
    let files = tempfile::tempdir().expect("a directory");
    let (broker, [server, operator, viewer]) = Server::with_roles(2, "", files.path());
    let mut frog = broker.client(Version::V5, "frog/1");
    frog.subscribe("pond/#");
    let body = json!({ "topic": "pond/x", "payload": "<b>croak</b>", "retain": true });
    assert_eq!(server.publish(&body).status, 200);
    until("it is retained", || (server.get("/api/v1/retained/pond%2Fx").status == 200).then_some(()));
    // Browsers take such a name out of paths.
    let _dots = broker.client(Version::V5, "..");
    let _hostile = broker.client(Version::V5, "<img src=x onerror=document.title='gone'>");
    crate::queues::leave_messages(&broker, &server);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/operation/dashboard/look.mjs");
    let mut node = pondhawk_tests::node();
    let profile = tempfile::tempdir().expect("a directory");
    node.args(["--experimental-websocket", script]).arg(profile.path());
    node.arg(server.url() + "/").arg([&server, &operator, &viewer].map(Server::token).join(","));
    node.args(std::env::var_os("PONDHAWK_PICTURES"));
    let output = node.output().expect("Node.js is there");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), LOOKS);
}
