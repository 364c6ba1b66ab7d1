//! The messages between the coordinator and its agents: a line of JSON each, of bounded length.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::super::workload::Amount;
use super::token::Nonce;
use crate::error::{Error, Result};
use crate::load::Outcome;
use crate::message::RunId;
use crate::sequence::Tally;

/// The version of these messages. Both sides must have the same.
pub(super) const PROTOCOL: u32 = 1;

/// Maximum length of a line, in bytes. The latencies of a run have at most about 30,000 different values.
const LINE_MAX: usize = 4 << 20;

/// Time between two looks at whether the other side is still wanted.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Time limit for a line to be sent.
const SEND_PATIENCE: Duration = Duration::from_secs(5);

/// A message of the coordinator.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum Order {
    Hello {
        protocol: u32,
        nonce: Nonce,
    },
    /// The coordinator has the token, and this is the load.
    Run {
        proof: Vec<u8>,
        job: Box<Job>,
    },
    /// What time is it?
    Ask,
    /// All agents start at this time of the agent's clock.
    Start {
        at_nanos: u64,
    },
    /// All agents have come to their end: connections may be closed.
    Finish,
}

/// A message of an agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum Report {
    /// The agent has the token, and this number of threads.
    Hello {
        protocol: u32,
        nonce: Nonce,
        proof: Vec<u8>,
        threads: usize,
        version: String,
    },
    /// All clients are set up.
    Ready,
    Clock {
        nanos: u64,
    },
    /// Everything has arrived, or nothing comes any more.
    Done,
    Result(Box<Share>),
    /// The run has failed: because of the server, or of the agent itself.
    Failed {
        why: String,
        is_of_server: bool,
    },
}

/// The part of an agent in a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Job {
    /// The words behind `pondhawk bench`.
    pub(super) bench: String,
    pub(super) size: usize,
    pub(super) amount: Amount,
    pub(super) run: RunId,
    /// The number of the agent's first thread among all threads of all agents.
    pub(super) first: usize,
    /// Number of all threads.
    pub(super) threads: usize,
    /// The server, or its replicas.
    pub(super) addresses: Vec<SocketAddr>,
}

/// The account of an agent.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Share {
    pub(super) messages: u64,
    pub(super) lost: u64,
    pub(super) duplicated: u64,
    pub(super) out_of_order: u64,
    pub(super) unexpected: u64,
    /// Latencies in nanoseconds, each with the number of messages that had it.
    pub(super) latencies: Option<Vec<(u64, u64)>>,
    /// The time of the agent's clock when its threads started.
    pub(super) started_nanos: u64,
    /// From there to the last arrival.
    pub(super) elapsed_nanos: u64,
    pub(super) busy: f64,
}

impl Share {
    pub(super) fn new(outcome: &Outcome) -> Self {
        let Tally { lost, duplicated, out_of_order, unexpected } = outcome.tally;
        let values = |histogram: &hdrhistogram::Histogram<u64>| {
            let value = |value: hdrhistogram::iterators::IterationValue<u64>| {
                (value.value_iterated_to(), value.count_at_value())
            };
            histogram.iter_recorded().map(value).collect()
        };
        Self {
            messages: outcome.messages,
            lost,
            duplicated,
            out_of_order,
            unexpected,
            latencies: outcome.latency.as_ref().map(values),
            ..Self::default()
        }
    }

    pub(super) fn outcome(&self) -> Outcome {
        let Self { lost, duplicated, out_of_order, unexpected, .. } = *self;
        let histogram = |values: &Vec<(u64, u64)>| {
            let mut histogram = crate::load::latencies();
            values.iter().for_each(|(value, count)| histogram.saturating_record_n(*value, *count));
            histogram
        };
        Outcome {
            messages: self.messages,
            tally: Tally { lost, duplicated, out_of_order, unexpected },
            latency: self.latencies.as_ref().map(histogram),
            ..Outcome::default()
        }
    }
}

/// A connection to the other side.
#[derive(Debug)]
pub(super) struct Talk {
    stream: TcpStream,
    /// Bytes of lines that nobody has asked for.
    received: Vec<u8>,
}

/// The end of a conversation.
#[derive(Debug)]
pub(super) enum Ended {
    /// The other side has gone, is silent, or says what does not belong here: in words that follow its name.
    There(String),
    /// The caller wants no more.
    Here(Error),
}

impl Talk {
    /// A conversation over this connection.
    ///
    /// # Errors
    /// If the system refuses time limits.
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LOOK_INTERVAL))?;
        stream.set_write_timeout(Some(SEND_PATIENCE))?;
        Ok(Self { stream, received: Vec::new() })
    }

    /// Sends a message.
    ///
    /// # Errors
    /// If the other side has gone, or does not read.
    pub(super) fn send(&mut self, message: &impl Serialize) -> std::result::Result<(), Ended> {
        let mut line =
            serde_json::to_vec(message).expect("every key is a text, and every value can be written");
        line.push(b'\n');
        self.stream.write_all(&line).map_err(|error| Ended::There(format!("does not listen: {error}")))
    }

    /// Waits for the next message, and calls `look` now and then.
    ///
    /// # Errors
    /// What `look` returns; or if the other side has gone, says nothing for `patience`, or no message of this kind.
    pub(super) fn receive<T: DeserializeOwned>(
        &mut self,
        patience: Duration,
        mut look: impl FnMut() -> Result<()>,
    ) -> std::result::Result<T, Ended> {
        let began = Instant::now();
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                return serde_json::from_slice(&line)
                    .map_err(|error| Ended::There(format!("says something else than expected: {error}")));
            }
            look().map_err(Ended::Here)?;
            if began.elapsed() >= patience {
                return Err(Ended::There(format!("has said nothing for {patience:?}")));
            }
            self.read()?;
        }
    }

    /// Reads at most until the next look is due.
    fn read(&mut self) -> std::result::Result<(), Ended> {
        let mut buffer = [0; 64 << 10];
        match self.stream.read(&mut buffer) {
            Ok(0) => Err(Ended::There("has gone".to_owned())),
            Ok(len) if self.received.len() + len > LINE_MAX => {
                Err(Ended::There(format!("sends a line of more than {LINE_MAX} bytes")))
            }
            Ok(len) => {
                self.received.extend_from_slice(&buffer[..len]);
                Ok(())
            }
            Err(error) if is_no_news(&error) => Ok(()),
            Err(error) => Err(Ended::There(format!("is no longer connected: {error}"))),
        }
    }

    /// Whether the other side has gone, as far as is known without waiting.
    pub(super) fn has_gone(&self) -> bool {
        let peeked = self.stream.set_nonblocking(true).and_then(|()| self.stream.peek(&mut [0]));
        let blocks = self.stream.set_nonblocking(false);
        blocks.is_err() || peeked.is_ok_and(|len| len == 0)
    }
}

/// Whether nothing has come until now.
fn is_no_news(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn pair() -> (Talk, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Talk::new(listener.accept().unwrap().0).unwrap(), there)
    }

    fn why(ended: Ended) -> String {
        match ended {
            Ended::There(why) => why,
            Ended::Here(error) => panic!("{error}"),
        }
    }

    #[test]
    fn lines_come_in_pieces_and_several_at_a_time() {
        let (mut talk, mut there) = pair();
        there.write_all(b"{\"kind\":\"as").unwrap();
        there.write_all(b"k\"}\n{\"kind\":\"finish\"}\n").unwrap();
        assert!(matches!(talk.receive(PATIENCE, || Ok(())), Ok(Order::Ask)));
        assert!(matches!(talk.receive(PATIENCE, || Ok(())), Ok(Order::Finish)));
        assert!(!talk.has_gone());
        there.write_all(b"{\"kind\":\"dance\"}\n").unwrap();
        let error = talk.receive::<Order>(PATIENCE, || Ok(())).unwrap_err();
        assert!(why(error).contains("dance"));
        drop(there);
        assert!(why(talk.receive::<Order>(PATIENCE, || Ok(())).unwrap_err()).contains("has gone"));
        assert!(talk.has_gone());
    }

    #[test]
    fn a_line_without_an_end_is_refused_and_silence_ends() {
        let (mut talk, mut there) = pair();
        let writer = thread::spawn(move || {
            // Fails when the other side has closed the connection.
            let _ = there.write_all(&vec![b'x'; 2 * LINE_MAX]);
        });
        let error = talk.receive::<Order>(PATIENCE, || Ok(())).unwrap_err();
        assert!(why(error).contains("more than 4194304 bytes"));
        assert!(talk.received.len() <= LINE_MAX);
        drop(talk);
        writer.join().unwrap();
        let (mut talk, _there) = pair();
        assert!(why(talk.receive::<Order>(Duration::ZERO, || Ok(())).unwrap_err()).contains("said nothing"));
        let stopped = talk.receive::<Order>(PATIENCE, || Err(Error::Interrupted { signal: 2 }));
        assert!(matches!(stopped, Err(Ended::Here(Error::Interrupted { signal: 2 }))));
    }

    #[test]
    fn the_account_of_an_agent_arrives_whole() {
        let mut latency = crate::load::latencies();
        [1, 1_000, 999_999, 999_999, 80_000_000_000]
            .iter()
            .for_each(|value| latency.saturating_record(*value));
        let tally = Tally { lost: 1, duplicated: 2, out_of_order: 3, unexpected: 4 };
        let outcome = Outcome { messages: 5, tally, latency: Some(latency), ..Outcome::default() };
        let line = serde_json::to_string(&Share::new(&outcome)).unwrap();
        let arrived = serde_json::from_str::<Share>(&line).unwrap().outcome();
        assert_eq!((arrived.messages, arrived.tally), (5, tally));
        assert_eq!(arrived.latency, outcome.latency);
    }
}
