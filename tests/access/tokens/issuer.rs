//! Tokens whose keys are behind a URL.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::*;

/// An issuer that publishes its keys, until the test ends.
struct Issuer {
    url: String,
    answer: Arc<Mutex<Answer>>,
}

#[derive(Clone)]
enum Answer {
    /// This text, with this status.
    Text(&'static str, String),
    /// Nothing, while the connection stays open.
    Silence,
}

impl Issuer {
    fn new(answer: Answer) -> Self {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/jwks.json", server.local_addr().expect("an address"));
        let answer = Arc::new(Mutex::new(answer));
        let answers = Arc::clone(&answer);
        thread::spawn(move || {
            for client in server.incoming() {
                let answer = answers.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let client = client.expect("a client");
                thread::spawn(move || serve(client, &answer));
            }
        });
        Self { url, answer }
    }

    fn of_keys(keys: &[String]) -> Self {
        Self::new(Answer::Text("200 OK", jwks(keys)))
    }

    fn answers(&self, answer: Answer) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = answer;
    }

    /// A broker that lets anonymous clients in too, and fetches the keys this often.
    fn broker(&self, interval: &str) -> Broker {
        let listener = "[[listener]]\naddress = \"127.0.0.1:0\"\nallow_anonymous = true\n";
        start(&format!("[jwt]\nkeys_url = {:?}\nrefresh_interval = {interval:?}\n{listener}", self.url))
    }
}

fn jwks(keys: &[String]) -> String {
    format!(r#"{{"keys":[{}]}}"#, keys.join(","))
}

/// Answers a request. The broker may be gone already.
fn serve(mut client: TcpStream, answer: &Answer) {
    let mut lines = BufReader::new(client.try_clone().expect("a copy")).lines();
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    match answer {
        Answer::Text(status, text) => {
            let length = text.len();
            drop(write!(
                client,
                "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{text}"
            ));
            drop(client.shutdown(Shutdown::Write));
        }
        Answer::Silence => drop(client.read(&mut [0])),
    }
}

/// Signs with two keys of P-256, by the names that the JWKS gives them.
struct Keys {
    signer: Signer,
    old: String,
    new: String,
}

impl Keys {
    fn new() -> Self {
        let signer = Signer::new();
        signer.make("next", "-algorithm EC -pkeyopt ec_paramgen_curve:P-256");
        let (old, new) = (signer.jwk("ES256", "2026-10"), signer.jwk("next", "2026-11"));
        Self { signer, old, new }
    }

    fn sign(&self, name: &str, kid: &str, user: &str) -> String {
        self.signer.signed_by(name, "ES256", &format!(r#","kid":"{kid}""#), &claims(user, 600))
    }
}

fn is_in(broker: &Broker, connect: &Connect<'_>) -> Option<()> {
    let mut client = broker.connect();
    client.send(&connect.bytes());
    packet::is_accepted(&client.read_packet()).then_some(())
}

/// Nothing but a token with an unknown key is a reason to fetch keys before an hour is over.
#[test]
fn an_unknown_key_is_a_reason_to_fetch_keys() {
    let keys = Keys::new();
    let issuer = Issuer::of_keys(std::slice::from_ref(&keys.old));
    let broker = issuer.broker("1h");
    let (of_old, of_new) = (keys.sign("ES256", "2026-10", "frog"), keys.sign("next", "2026-11", "toad"));
    let (by_old, by_new) =
        (with_token(Version::V5, "f", "frog", &of_old), with_token(Version::V3_1_1, "t", "toad", &of_new));
    let mut frog = broker.client_with(&by_old);
    issuer.answers(Answer::Text("200 OK", jwks(&[keys.old.clone(), keys.new.clone()])));
    assert_eq!(refusal(&broker, &by_new), 4, "its key is unknown");
    until("the new key is known", || is_in(&broker, &by_new));
    assert!(matches!(publish(&mut frog, "pond", b""), 0 | 0x10), "both keys are good");
}

#[test]
fn keys_are_fetched_again_and_stay_when_there_is_no_answer() {
    let keys = Keys::new();
    let issuer = Issuer::of_keys(std::slice::from_ref(&keys.old));
    let broker = issuer.broker("5s");
    let (of_old, of_new) = (keys.sign("ES256", "2026-10", "frog"), keys.sign("next", "2026-11", "toad"));
    let (by_old, by_new) =
        (with_token(Version::V5, "f", "frog", &of_old), with_token(Version::V3_1_1, "t", "toad", &of_new));
    let mut frog = broker.client_with(&by_old);
    issuer.answers(Answer::Text("302 Found\r\nLocation: /other", jwks(&[])));
    broker.wait_for_log("the status is 302");
    broker.client_with(&Connect { client_id: "g", ..by_old }).leave();
    assert!(matches!(publish(&mut frog, "pond", b""), 0 | 0x10), "the keys have stayed");
    issuer.answers(Answer::Text("200 OK", jwks(std::slice::from_ref(&keys.new))));
    frog.expect_disconnect(0x87);
    assert_eq!(refusal(&broker, &by_old), 0x86, "the old key is gone");
    assert_eq!(is_in(&broker, &by_new), Some(()));
}

/// A client without a token notices nothing, and one with a token may come back later.
#[test]
fn without_keys_tokens_are_refused_and_nothing_else_is() {
    let signer = Signer::new();
    let token = signer.sign("ES256", &claims("frog", 600));
    let many = vec![signer.jwk("ES256", "a"); 10_000];
    let secret = format!(r#"{{"kty":"oct","k":"{}"}}"#, base64(SECRET.as_bytes()));
    let rows = [
        (Answer::Silence, "timeout"),
        (Answer::Text("200 OK", jwks(&many)), "limit"),
        (Answer::Text("200 OK", jwks(&many[..101])), "more than 100 keys"),
        (Answer::Text("200 OK", jwks(&[secret])), "no key that can be used"),
        (Answer::Text("200 OK", "<html>".to_owned()), "no JWKS"),
        (Answer::Text("500 Oops", jwks(&many[..1])), "status is 500"),
        (Answer::Text("301 Moved\r\nLocation: https://127.0.0.1/", String::new()), "status is 301"),
    ];
    let started = rows.map(|(answer, why)| {
        let issuer = Issuer::new(answer);
        (issuer.broker("5s"), issuer, why)
    });
    for (broker, _issuer, why) in started {
        let line = broker.wait_for_log("no keys to check tokens were fetched");
        assert!(line.contains(why), "{line}");
        assert_eq!(refusal(&broker, &with_token(Version::V5, "f", "frog", &token)), 0x88);
        assert_eq!(refusal(&broker, &with_token(Version::V3_1_1, "f", "frog", &token)), 3);
        let mut watcher = broker.client(Version::V5, "anonymous");
        watcher.subscribe("$SYS/broker/refused/token/no_keys");
        wait_for(&mut watcher, "2");
        drop(broker);
    }
    // The issuer comes back.
    let issuer = Issuer::new(Answer::Text("503 Busy", String::new()));
    let broker = issuer.broker("1h");
    assert_eq!(refusal(&broker, &with_token(Version::V5, "f", "frog", &token)), 0x88);
    issuer.answers(Answer::Text("200 OK", jwks(&[signer.jwk("ES256", "a")])));
    until("there are keys", || is_in(&broker, &with_token(Version::V5, "f", "frog", &token)));
}
