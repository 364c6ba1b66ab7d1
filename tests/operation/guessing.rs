//! Many wrong tokens from one address.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use pondhawk_tests::{Broker, DEADLINE, Innocents, Options, until};

use crate::admin::Server;

/// Wrong tokens in all.
const WRONG: usize = 10_000;

/// Wrong tokens on their way at the same time: fewer than the admin server has connections.
const AT_A_TIME: usize = 40;

/// Lines that the log may have in the meantime. A line for each wrong token would be far more.
const LINES_MAX: usize = WRONG / 10;

/// A request with a wrong token that is sent, and whose answer is not read yet.
fn guess(server: &Server, number: usize) -> TcpStream {
    let address = server.url().trim_start_matches("http://").to_owned();
    let mut stream = TcpStream::connect(&address).expect("it listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("a duration");
    let request = format!(
        "GET /api/v1/status HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer wrong-{number:026}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("it reads");
    stream
}

/// The status of the answer. The server closes the connection behind it.
fn status(mut stream: TcpStream) -> u16 {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers, and closes");
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default()
}

/// The answers to wrong tokens are read after a right one was served, and nobody else notices them.
#[test]
fn ten_thousand_wrong_tokens_delay_no_right_one_and_no_client() {
    let settings = "[admin]\naddress = \"127.0.0.1:0\"\n".to_owned();
    let broker = Broker::start(&Options { shards: 2, settings, ..Options::default() });
    let server = Server::of(&broker);
    let mut innocents = Innocents::connect(&broker, "served");
    let lines = broker.log_length();
    let (mut unauthorized, mut too_many) = (0, 0);
    for first in (0..WRONG).step_by(AT_A_TIME) {
        let guesses: Vec<TcpStream> =
            (first..first + AT_A_TIME).map(|number| guess(&server, number)).collect();
        let right = innocents.notice_nothing_of(|| server.get("/api/v1/status"));
        assert_eq!(right.status, 200, "{}", right.body);
        for guess in guesses {
            match status(guess) {
                401 => unauthorized += 1,
                429 => too_many += 1,
                other => panic!("status {other}"),
            }
        }
    }
    assert_eq!(unauthorized + too_many, WRONG);
    // Twenty of them in each ten seconds count as mistakes. This is far from the limit on the slowest machine.
    assert!(too_many > WRONG / 2, "{unauthorized} were not too many");
    assert!(broker.log_length() - lines < LINES_MAX, "{} lines of log", broker.log_length() - lines);
    let counted = |reason: &str| server.value("/api/v1/counters")[format!("admin/refused/{reason}")].clone();
    until("all are counted", || {
        (counted("token") == unauthorized && counted("guessing") == too_many).then_some(())
    });
    assert_eq!(counted("connections"), 0, "no connection had to go");
}
