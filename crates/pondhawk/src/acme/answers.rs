//! Answers to the questions of an authority over HTTP (HTTP-01, RFC 8555 section 8.3).
//!
//! A thread has a socket of its own for them. Outside of an order it closes each connection at once. During an order it reads
//! one request from each connection, and answers it.

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum number of connections at a time. For another one, the oldest is closed.
const CONNECTIONS_MAX: usize = 256;
/// Maximum number of connections that are accepted between two looks at those that are open.
const ACCEPTS_MAX: usize = 64;
/// Maximum length of a request, in bytes.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Maximum time of a request.
const DEADLINE: Duration = Duration::from_secs(10);
/// Time between two looks at the connections during an order.
const LOOK: Duration = Duration::from_millis(10);
/// Pause after the system has refused a connection.
const PAUSE: Duration = Duration::from_millis(200);

const PATH: &str = "/.well-known/acme-challenge/";

/// The answers of the order that is under way, by their tokens.
#[derive(Debug, Default)]
pub(super) struct Answers(Mutex<Option<HashMap<String, String>>>);

impl Answers {
    /// Begins to give these answers, or ends it.
    pub(super) fn give(&self, answers: Option<HashMap<String, String>>) {
        *self.lock() = answers;
    }

    fn lock(&self) -> MutexGuard<'_, Option<HashMap<String, String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an order is under way.
    pub(super) fn are_asked_for(&self) -> bool {
        self.lock().is_some()
    }

    /// The response to a request.
    fn respond(&self, request: &[u8]) -> Vec<u8> {
        let answer = token(request).and_then(|token| self.lock().as_ref()?.get(token).cloned());
        let (status, body) = match answer {
            Some(answer) => ("200 OK", answer),
            None => (
                "404 Not Found",
                "There is nothing here but answers to a certificate authority.\n".to_owned(),
            ),
        };
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/octet-stream\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        (head + &body).into_bytes()
    }

    /// Serves connections, for ever.
    pub(super) fn serve(&self, socket: &TcpListener) {
        loop {
            let first = socket.set_nonblocking(false).and_then(|()| socket.accept());
            match first {
                Ok((first, _)) if self.are_asked_for() => self.serve_order(socket, first),
                Ok(_) => {}
                Err(_) => thread::sleep(PAUSE),
            }
        }
    }

    /// Serves connections until the order is over.
    fn serve_order(&self, socket: &TcpListener, first: TcpStream) {
        if socket.set_nonblocking(true).is_err() {
            return;
        }
        let mut open = Vec::new();
        let mut next = Some(first);
        while self.are_asked_for() {
            // At most this many at a time: those that are open have their turn under a flood too.
            for _ in 0..ACCEPTS_MAX {
                let accepted = next.take().or_else(|| socket.accept().ok().map(|(stream, _)| stream));
                let Some(stream) = accepted else { break };
                if open.len() == CONNECTIONS_MAX {
                    drop(open.remove(0));
                }
                open.extend(Asking::new(stream));
            }
            open.retain_mut(|asking: &mut Asking| asking.go_on(self));
            thread::sleep(LOOK);
        }
    }
}

/// The token in a request for an answer.
fn token(request: &[u8]) -> Option<&str> {
    let line = request.split(|byte| *byte == b'\r').next()?;
    let path = std::str::from_utf8(line).ok()?.strip_prefix("GET ")?.strip_suffix(" HTTP/1.1")?;
    path.strip_prefix(PATH)
}

/// A connection whose request has not come whole.
struct Asking {
    stream: TcpStream,
    request: Vec<u8>,
    until: Instant,
}

impl Asking {
    fn new(stream: TcpStream) -> Option<Self> {
        stream.set_nonblocking(true).ok()?;
        Some(Self { stream, request: Vec::new(), until: Instant::now() + DEADLINE })
    }

    /// Reads what has come. Returns whether the connection goes on.
    fn go_on(&mut self, answers: &Answers) -> bool {
        let mut buffer = [0; 1_024];
        match self.stream.read(&mut buffer) {
            Ok(0) => return false,
            Ok(count) => self.request.extend_from_slice(&buffer[..count]),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => return false,
        }
        if self.request.windows(4).any(|end| end == b"\r\n\r\n") {
            // An answer has some hundred bytes, for which a new connection has room.
            drop(self.stream.write(&answers.respond(&self.request)));
            drop(self.stream.shutdown(Shutdown::Write));
            return false;
        }
        self.request.len() <= REQUEST_BYTES_MAX && Instant::now() < self.until
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn ask(address: std::net::SocketAddr, pieces: &[&[u8]]) -> String {
        let mut stream = TcpStream::connect(address).expect("somebody listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("it can be set");
        // A server that has read enough closes the connection.
        pieces.iter().for_each(|piece| drop(stream.write_all(piece)));
        let mut response = Vec::new();
        drop(stream.read_to_end(&mut response));
        String::from_utf8_lossy(&response).into_owned()
    }

    #[test]
    fn an_order_has_answers_and_nothing_else_has() {
        let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = socket.local_addr().expect("an address");
        let answers = Arc::new(Answers::default());
        let serving = Arc::clone(&answers);
        thread::spawn(move || serving.serve(&socket));
        let request = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n").into_bytes();
        let good = request(&format!("{PATH}abc"));
        assert_eq!(ask(address, &[&good]), "", "there is no order");
        answers.give(Some(HashMap::from([("abc".to_owned(), "abc.key".to_owned())])));
        // More than there is room for, and none of them asks for anything.
        let silent: Vec<_> = (0..CONNECTIONS_MAX + 5)
            .map(|_| TcpStream::connect(address).expect("somebody listens"))
            .collect();
        assert!(ask(address, &[&good]).ends_with("\r\n\r\nabc.key"));
        assert!(ask(address, &good.chunks(3).collect::<Vec<_>>()).ends_with("\r\n\r\nabc.key"));
        drop(silent);
        for path in ["/", PATH, "/.well-known/acme-challenge/abd", "/.well-known/acme-challenge/abc/", "/abc"]
        {
            assert!(ask(address, &[&request(path)]).starts_with("HTTP/1.1 404 "), "{path}");
        }
        assert!(ask(address, &[b"\xff\r\n\r\n"]).starts_with("HTTP/1.1 404 "));
        assert_eq!(ask(address, &[&vec![b'x'; REQUEST_BYTES_MAX * 2]]), "", "too long");
        answers.give(None);
        assert!(!ask(address, &[&good]).contains("abc.key"), "the order is over");
    }
}
