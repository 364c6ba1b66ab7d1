//! Throws packets at a running broker: good ones, changed ones and damaged ones, in sequences that make sense most of the
//! time, over many short connections. Meanwhile two innocent clients talk to each other.
//!
//! All is well if they notice nothing, the broker lives and logs no panic and no error, every answer is a packet of the
//! version, every connection ends, and descriptors and memory go back.
//!
//! Half of the time, the connections use TLS. Some of their clients damage records of TLS too.
//!
//! usage: `fuzz-tcp [--tls] [--seconds N] [--seed N] [--connection N]`. The seed is printed; with it, and the number of a
//! connection that is printed with a failure, the same packets are sent again: TLS has random numbers of its own. With
//! `--tls`, all connections use TLS.
#![forbid(unsafe_code)]

mod field;
mod link;
mod mutation;
mod packets;
mod peer;
mod secure;

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pondhawk_tests::{Broker, Innocents, Options, until};

use crate::peer::Peer;
use crate::secure::Authority;
use pondhawk_tests::Random;

/// Small bounds, so that they are reached; and what peers leave behind is gone soon.
const SETTINGS: &str = "[limits]\nretained_bytes = \"1 MiB\"\npacket_bytes = \"64 KiB\"\ntopic_levels = 100\n\
    [sessions]\nexpiry_max = \"1 s\"\nqueue_messages = 100\nreceive_maximum = 8\n[log]\nlevel = \"warn\"\n\
    [sys]\ninterval = \"1 s\"\n";

/// Number of connections at a time.
const PEERS: u64 = 8;

/// Memory of allocators and of retained messages.
const MEMORY_SLACK_BYTES: usize = 64 << 20;

struct Run {
    seconds: u64,
    seed: u64,
    /// Only this one, again and again.
    connection: Option<u64>,
    /// All connections use TLS.
    is_tls_only: bool,
}

/// One part of a run, with a broker of its own.
struct Play {
    shards: u16,
    is_tls: bool,
    seconds: u64,
}

fn main() -> ExitCode {
    let run = match Run::parse(std::env::args().skip(1)) {
        Ok(run) => run,
        Err(message) => {
            eprintln!("{message}\nusage: fuzz-tcp [--tls] [--seconds N] [--seed N] [--connection N]");
            return ExitCode::from(2);
        }
    };
    println!("seed {}", run.seed);
    let plays = run.plays();
    let outcomes: Vec<_> = plays.iter().map(|play| run.play(play)).collect();
    for (play, outcome) in plays.iter().zip(&outcomes) {
        let over = if play.is_tls { "TLS" } else { "TCP" };
        let tls = if run.is_tls_only { " --tls" } else { "" };
        match outcome {
            Ok(connections) => println!("{connections} connections over {over}, {} shards", play.shards),
            Err(message) => {
                println!(
                    "error over {over}: {message}\nagain with: cargo xtask fuzz tcp{tls} --seed {}",
                    run.seed
                );
            }
        }
    }
    if outcomes.iter().all(Result::is_ok) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Run {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        // Another one each time: what nobody has seen yet is what is looked for.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        let mut run = Self { seconds: 60, seed: now, connection: None, is_tls_only: false };
        while let Some(argument) = arguments.next() {
            if argument == "--tls" {
                run.is_tls_only = true;
                continue;
            }
            let number = arguments.next().and_then(|number| number.parse().ok());
            let number: u64 = number.ok_or_else(|| format!("{argument} needs a whole number"))?;
            match argument.as_str() {
                "--seconds" => run.seconds = number,
                "--seed" => run.seed = number,
                "--connection" => run.connection = Some(number),
                _ => return Err(format!("there is no option {argument}")),
            }
        }
        Ok(run)
    }

    /// The parts of the run, with the same time for each.
    fn plays(&self) -> Vec<Play> {
        let links: &[bool] = if self.is_tls_only { &[true] } else { &[false, true] };
        let seconds = self.seconds / (2 * links.len() as u64);
        let of_link = |is_tls: &bool| [1, 4].map(|shards| Play { shards, is_tls: *is_tls, seconds });
        links.iter().flat_map(of_link).collect()
    }

    /// Runs one part. Returns the number of connections.
    fn play(&self, play: &Play) -> Result<u64, String> {
        let authority = if play.is_tls { Some(Authority::new()?) } else { None };
        let listener = authority
            .as_ref()
            .map(|authority| format!("[[listener]]\naddress = \"127.0.0.1:0\"\n{}", authority.listener()));
        let settings = format!("{SETTINGS}{}", listener.unwrap_or_default());
        let broker = Broker::start(&Options { shards: play.shards, settings, ..Options::default() });
        let mut innocents = Innocents::connect(&broker, "one");
        innocents.notice_nothing_of(|| ());
        let (sockets, bytes) = (broker.open_sockets(), broker.resident_bytes());
        let connections = self.throw(play, authority.as_ref(), &broker, &mut innocents)?;
        until("the peers' sockets are closed", || (broker.open_sockets() == sockets).then_some(()));
        if let Some(before) = bytes {
            until("the peers' memory is given back", || {
                (broker.resident_bytes()? < before + MEMORY_SLACK_BYTES).then_some(())
            });
        }
        innocents.notice_nothing_of(|| ());
        drop(innocents);
        let complaints = [broker.log_lines("panicked"), broker.log_lines("ERROR")].concat();
        if let Some(line) = complaints.first() {
            return Err(format!("the broker logged: {line}"));
        }
        if broker.stop().success() {
            Ok(connections)
        } else {
            Err("the broker did not stop in order".to_owned())
        }
    }

    /// Peers until the time is over, or one of them has seen something wrong.
    fn throw(
        &self,
        play: &Play,
        authority: Option<&Authority>,
        broker: &Broker,
        innocents: &mut Innocents,
    ) -> Result<u64, String> {
        let end = Instant::now() + Duration::from_secs(play.seconds);
        let (next, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let failure = Mutex::new(None);
        let address = if play.is_tls { broker.address_of("tls") } else { broker.address() };
        thread::scope(|scope| {
            for _ in 0..PEERS {
                scope.spawn(|| {
                    while Instant::now() < end && !is_over.load(Ordering::Relaxed) {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let connection = self.connection.unwrap_or(number);
                        if let Err(message) = Peer::run(address, authority, Random::of(self.seed, connection))
                        {
                            is_over.store(true, Ordering::Relaxed);
                            let message = format!("connection {connection}: {message}");
                            failure.lock().expect("nobody panics with it").get_or_insert(message);
                        }
                    }
                });
            }
            while Instant::now() < end && !is_over.load(Ordering::Relaxed) {
                innocents.notice_nothing_of(|| ());
            }
        });
        match failure.into_inner().expect("nobody panics with it") {
            Some(message) => Err(format!("{message}\n{}", broker.log())),
            None => Ok(next.into_inner()),
        }
    }
}
