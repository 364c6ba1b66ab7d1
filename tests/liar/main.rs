//! A server that lies: a broker behind a proxy that mistreats what subscribers receive. It shows that a shoot-out notices.
//!
//! `liar FAULT PORT BROKER…` starts the broker, in whose command BROKER_PORT stands for a port, and listens on
//! 127.0.0.1:PORT.

use std::env;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use pondhawk_tests::free_port;

/// One message in so many is mistreated.
const INTERVAL: u64 = 1_000;

/// Delay of a message.
const DELAY: Duration = Duration::from_millis(100);

/// Length and period of a stall, in milliseconds.
const STALL_MS: u128 = 200;
const STALL_PERIOD_MS: u128 = 1_000;

/// Control packet type of PUBLISH (MQTT 5.0, 2.1.2).
const PUBLISH: u8 = 3;

/// The lie of a server.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    /// Nothing is mistreated.
    Honest,
    Drop,
    Repeat,
    /// The message comes after the next one.
    Swap,
    Delay,
    /// Nothing is forwarded for a while, in each second.
    Stall,
}

/// State that all connections share.
struct Shared {
    fault: Fault,
    messages: AtomicU64,
    began: Instant,
}

fn main() {
    let words: Vec<String> = env::args().skip(1).collect();
    let [fault, port, program, arguments @ ..] = &words[..] else { panic!("liar FAULT PORT BROKER…") };
    let fault = match fault.as_str() {
        "honest" => Fault::Honest,
        "drop" => Fault::Drop,
        "repeat" => Fault::Repeat,
        "swap" => Fault::Swap,
        "delay" => Fault::Delay,
        "stall" => Fault::Stall,
        other => panic!("there is no fault {other}"),
    };
    let broker_port = free_port();
    let _broker = start(program, arguments, broker_port);
    let port: u16 = port.parse().expect("a port");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("the port is free");
    let shared = Arc::new(Shared { fault, messages: AtomicU64::new(0), began: Instant::now() });
    for client in listener.incoming().flatten() {
        let Ok(broker) = TcpStream::connect((Ipv4Addr::LOCALHOST, broker_port)) else { continue };
        let shared = Arc::clone(&shared);
        thread::spawn(move || serve(&client, &broker, &shared));
    }
}

/// Starts the broker, which ends with this process, and waits until it accepts connections.
fn start(program: &str, arguments: &[String], port: u16) -> Child {
    let arguments = arguments.iter().map(|argument| argument.replace("BROKER_PORT", &port.to_string()));
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", "--", program]).args(arguments);
    let broker = command.spawn().expect("the broker starts");
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        thread::sleep(Duration::from_millis(5));
    }
    broker
}

fn serve(client: &TcpStream, broker: &TcpStream, shared: &Shared) {
    let _ = (client.set_nodelay(true), broker.set_nodelay(true));
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut from, mut to) = (client, broker);
            let _ = io::copy(&mut from, &mut to);
            let _ = broker.shutdown(Shutdown::Write);
        });
        let _ = forward(broker, client, shared);
        let _ = client.shutdown(Shutdown::Both);
    });
}

/// Forwards the packets of the broker, and mistreats some.
fn forward(mut broker: &TcpStream, mut client: &TcpStream, shared: &Shared) -> io::Result<()> {
    let (mut received, mut held) = (Vec::new(), Vec::new());
    let mut buffer = vec![0; 64 << 10];
    loop {
        let len = broker.read(&mut buffer)?;
        if len == 0 {
            return client.write_all(&held);
        }
        received.extend(&buffer[..len]);
        let mut out = Vec::new();
        while let Some(len) = packet_len(&received) {
            let packet: Vec<u8> = received.drain(..len).collect();
            let is_message = packet[0] >> 4 == PUBLISH;
            let is_chosen = is_message && (shared.messages.fetch_add(1, Relaxed) + 1) % INTERVAL == 0;
            match shared.fault {
                Fault::Drop if is_chosen => {}
                Fault::Swap if is_chosen && held.is_empty() => held = packet,
                Fault::Repeat if is_chosen => out.extend([&packet[..], &packet].concat()),
                Fault::Delay if is_chosen => {
                    client.write_all(&out)?;
                    thread::sleep(DELAY);
                    out = packet;
                }
                _ => {
                    out.extend(packet);
                    if is_message {
                        out.append(&mut held);
                    }
                }
            }
        }
        if shared.fault == Fault::Stall {
            let elapsed = shared.began.elapsed().as_millis() % STALL_PERIOD_MS;
            let left = STALL_MS.saturating_sub(elapsed);
            thread::sleep(Duration::from_millis(u64::try_from(left).unwrap_or_default()));
        }
        client.write_all(&out)?;
    }
}

/// Length of the first packet, if all of it is there.
fn packet_len(bytes: &[u8]) -> Option<usize> {
    let mut len = 0;
    for (place, byte) in bytes.iter().skip(1).take(4).enumerate() {
        len |= usize::from(byte & 0x7F) << (7 * place);
        if byte & 0x80 == 0 {
            let len = len + place + 2;
            return (bytes.len() >= len).then_some(len);
        }
    }
    None
}
