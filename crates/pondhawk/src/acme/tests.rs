//! Authorities that are broken, or that mean harm.

use std::cell::Cell;
use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use std::thread;

use super::*;

/// The answers of a server to requests, by their paths. A request for another path gets no answer.
type Script = HashMap<&'static str, Vec<u8>>;

/// A response with a number for the next request.
fn response(head: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {head}\r\nReplay-Nonce: abc\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

fn json(body: &str) -> Vec<u8> {
    response("200 OK\r\nContent-Type: application/json", body)
}

fn problem(status: &str, body: &str) -> Vec<u8> {
    response(&format!("{status}\r\nContent-Type: application/problem+json"), body)
}

/// An authority that gives a certificate that nobody can use.
fn script(url: &str) -> Script {
    let order = |status: &str| {
        format!(
            r#"{{"status": "{status}", "authorizations": ["{url}/question"], "finalize": "{url}/finalize",
                "certificate": "{url}/certificate"}}"#
        )
    };
    let directory = format!(
        r#"{{"newNonce": "{url}/nonce", "newAccount": "{url}/account", "newOrder": "{url}/new", "revokeCert": "{url}/x",
            "keyChange": "{url}/x", "renewalInfo": "{url}/window"}}"#
    );
    let challenge =
        format!(r#"{{"type": "tls-alpn-01", "url": "{url}/ready", "token": "t", "status": "pending"}}"#);
    let question = format!(
        r#"{{"identifier": {{"type": "dns", "value": "a.example"}}, "status": "pending", "challenges": [{challenge}]}}"#
    );
    let made = |path: &str| format!("201 Created\r\nLocation: {url}{path}\r\nContent-Type: application/json");
    HashMap::from([
        ("/directory", json(&directory)),
        ("/nonce", json("")),
        ("/account", response(&made("/account/1"), "{}")),
        ("/new", response(&made("/order"), &order("pending"))),
        ("/question", json(&question)),
        ("/ready", json(&challenge)),
        ("/order", json(&order("ready"))),
        ("/finalize", json(&order("valid"))),
        ("/certificate", response("200 OK", "-----BEGIN NOTHING-----")),
    ])
}

/// Reads a request. Returns its path.
fn read_request(client: &mut TcpStream) -> Option<String> {
    let (mut request, mut buffer) = (Vec::new(), [0; 4_096]);
    loop {
        let count = client.read(&mut buffer).ok().filter(|count| *count > 0)?;
        request.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&request);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
        });
        if body.len() >= length.unwrap_or(0) {
            return head.split(' ').nth(1).map(str::to_owned);
        }
    }
}

/// The outcome of an order at an authority whose script was changed.
fn outcome(change: impl FnOnce(&mut Script, &str)) -> Failure {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", server.local_addr().expect("an address"));
    let mut script = script(&url);
    change(&mut script, &url);
    // The thread ends with the tests.
    thread::spawn(move || {
        let mut silent = Vec::new();
        for mut client in server.incoming().flatten() {
            let path = read_request(&mut client).unwrap_or_default();
            match script.get(&*path) {
                // A client that has read enough closes the connection.
                Some(answer) => drop(client.write_all(answer)),
                None => silent.push(client),
            }
        }
    });
    let number = NUMBER.fetch_add(1, Relaxed);
    let directory = std::env::temp_dir().join(format!("pondhawk-authority-{}-{number}", std::process::id()));
    let settings = config::Acme {
        domains: vec!["a.example".to_owned()],
        terms_of_service_agreed: true,
        contact: Vec::new(),
        directory_url: format!("{url}/directory"),
        ca_file: None,
        http_address: None,
        profile: None,
    };
    let wanted = Wanted { settings, directory: directory.clone(), file: directory.join("certificate.pem") };
    let (answers, looks) = (Answers::default(), Cell::new(0));
    let pause = |_| {
        looks.set(looks.get() + 1);
        looks.get() < 5
    };
    let desk = Desk { listeners: &[], over_http: &answers, pause: &pause };
    let refused = order::obtain(&wanted, &desk).expect_err("there is no certificate");
    assert!(!answers.are_asked_for() && !PathBuf::from(&wanted.file).exists());
    drop(std::fs::remove_dir_all(&directory));
    refused
}

fn refused(change: impl FnOnce(&mut Script, &str), why: &str) {
    let failure = outcome(change);
    assert!(failure.why.contains(why), "{why}: {failure:?}");
    assert!(failure.why.chars().count() < 500, "{failure:?}");
    assert!(failure.why.chars().all(|letter| !letter.is_control()), "{failure:?}");
}

#[test]
fn an_answer_is_whole_and_bounded() {
    refused(|_, _| {}, "cannot be used");
    for path in
        ["/directory", "/nonce", "/account", "/new", "/question", "/order", "/finalize", "/certificate"]
    {
        let put = |answer: Vec<u8>| move |script: &mut Script, _: &str| drop(script.insert(path, answer));
        let moved = response("302 Found\r\nLocation: http://127.0.0.1:1/", "{}");
        refused(put(moved), "redirects are not followed");
        refused(put(response("502 Bad Gateway", "<html>")), "the status is 502");
        if path != "/nonce" {
            // The answer to HEAD has no body.
            // The same answer with blanks behind it.
            let blanks = |script: &mut Script, _: &str| {
                let text = String::from_utf8(script[path].clone()).expect("text");
                let (head, body) = text.split_once("\r\n\r\n").expect("a body");
                let head = head.replace("HTTP/1.1 ", "").replace("Content-Length: ", "X: ");
                script.insert(path, response(&head, &(body.to_owned() + &" ".repeat(300 << 10))));
            };
            refused(blanks, "larger than");
            refused(put(json(&"[".repeat(100_000))), "");
        }
        refused(put(b"SSH-2.0-pond\r\n".to_vec()), "");
        refused(put(Vec::new()), "");
        let head = format!("200 OK\r\nX: {}", "x".repeat(64 << 10));
        refused(put(response(&head, "{}")), "");
    }
    refused(|script, _| drop(script.insert("/nonce", b"HTTP/1.1 200 OK\r\n\r\n".to_vec())), "no nonce");
    let garbage =
        |script: &mut Script, _: &str| drop(script.insert("/directory", json("{\"newNonce\": \"{}\"}")));
    refused(garbage, "no URL");
}

#[test]
fn a_server_that_says_nothing_is_not_waited_for() {
    for path in ["/directory", "/order"] {
        let from = Instant::now();
        refused(|script, _| drop(script.remove(path)), "timeout");
        assert!(from.elapsed() < Duration::from_secs(20), "{path}: {:?}", from.elapsed());
    }
}

#[test]
fn an_order_has_an_end() {
    let pending = |status: &'static str| {
        move |script: &mut Script, url: &str| {
            let order = format!(
                r#"{{"status": "{status}", "authorizations": ["{url}/question"], "finalize": "{url}/finalize"}}"#
            );
            script.insert("/finalize", json(&order));
            script.insert("/order", json(&order));
        }
    };
    refused(pending("pending"), "given up");
    refused(pending("processing"), "given up");
    let without_end = |script: &mut Script, url: &str| {
        let questions = vec![format!("\"{url}/question\""); 2_000].join(", ");
        let order = format!(
            r#"{{"status": "pending", "authorizations": [{questions}], "finalize": "{url}/finalize"}}"#
        );
        let head = format!("201 Created\r\nLocation: {url}/order");
        script.insert("/new", response(&head, &order));
    };
    refused(without_end, "1000 requests");
}

#[test]
fn questions_are_about_our_names_and_in_our_way() {
    let replaced = |from: &'static str, to: &'static str| {
        move |script: &mut Script, _: &str| {
            let text = String::from_utf8(script["/question"].clone()).expect("text").replace(from, to);
            let (_, body) = text.split_once("\r\n\r\n").expect("a body");
            script.insert("/question", json(body));
        }
    };
    refused(replaced("a.example", "b.example\\u001b[31m"), "no name of ours");
    refused(replaced("tls-alpn-01", "http-01"), "in the way of this broker");
}

#[test]
fn the_reason_of_the_authority_is_told() {
    let detail = format!("\\u001b[31mno\\n{}", "x".repeat(10_000));
    let body = format!(r#"{{"type": "urn:ietf:params:acme:error:rateLimited", "detail": "{detail}"}}"#);
    let limited = problem("429 Too Many Requests\r\nRetry-After: 7200", &body);
    let failure = outcome(|script, _| drop(script.insert("/new", limited)));
    assert_eq!(failure.retry_after, Some(Duration::from_secs(7_200)));
    assert!(failure.why.starts_with("the authority refuses: ") && failure.why.chars().count() < 500);
    assert!(failure.why.chars().all(|letter| !letter.is_control()), "{failure:?}");
    let unknown = problem(
        "400 Bad Request\r\nRetry-After: 18446744073709551615",
        r#"{"type": "urn:ietf:params:acme:error:accountDoesNotExist", "detail": "who?"}"#,
    );
    // The broker makes another account, and then gives up.
    refused(|script, _| drop(script.insert("/new", unknown)), "who? (accountDoesNotExist)");
    let invalid = |script: &mut Script, url: &str| {
        let order = format!(
            r#"{{"status": "invalid", "authorizations": ["{url}/question"], "finalize": "{url}/finalize"}}"#
        );
        script.insert("/order", json(&order));
    };
    refused(invalid, "the authority has refused the order");
}
