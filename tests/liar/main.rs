//! A server that lies: a broker behind a proxy that mistreats what subscribers receive. It shows that a shoot-out notices.
//!
//! `liar FAULT PORT BROKER…` starts the broker, in whose command BROKER_PORT stands for a port, and listens on
//! 127.0.0.1:PORT. `liar FAULT PORT to PORT…` is a load balancer in front of brokers that listen on these ports.

use std::env;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use pondhawk_tests::{Program, free_port};

/// One message in so many is mistreated.
const INTERVAL: u64 = 1_000;

/// Delay of a message that is chosen for it.
const DELAY: Duration = Duration::from_millis(100);

/// Length and period of a stall, in milliseconds.
const STALL_MS: u128 = 200;
const STALL_PERIOD_MS: u128 = 1_000;

/// Control packet type of PUBLISH (MQTT 5.0, 2.1.2).
const PUBLISH: u8 = 3;

/// First byte of PUBACK.
const PUBACK: u8 = 0x40;

/// The lie of a server.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    /// All messages are forwarded as they come.
    Honest,
    Drop,
    Repeat,
    /// The message comes after the next one.
    Swap,
    Delay,
    /// Nothing is forwarded for a while, in each second.
    Stall,
    /// The connection ends instead of a message.
    Cut,
    /// A message of QoS 1 is acknowledged to its publisher, and the broker never gets it.
    Forget,
}

/// State that all connections share.
struct Shared {
    fault: Fault,
    messages: AtomicU64,
    began: Instant,
}

impl Shared {
    /// Whether this message is one to mistreat.
    fn is_chosen(&self) -> bool {
        (self.messages.fetch_add(1, Relaxed) + 1).is_multiple_of(INTERVAL)
    }
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
        "cut" => Fault::Cut,
        "forget" => Fault::Forget,
        other => panic!("there is no fault {other}"),
    };
    let (broker_ports, _broker) = if program == "to" {
        (arguments.iter().map(|port| port.parse().expect("a port")).collect(), None)
    } else {
        let port = free_port();
        (vec![port], Some(start(program, arguments, port)))
    };
    let port: u16 = port.parse().expect("a port");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("the port is free");
    let shared = Arc::new(Shared { fault, messages: AtomicU64::new(0), began: Instant::now() });
    for (client, broker_port) in listener.incoming().flatten().zip(broker_ports.iter().cycle()) {
        let Ok(broker) = TcpStream::connect((Ipv4Addr::LOCALHOST, *broker_port)) else { continue };
        let shared = Arc::clone(&shared);
        thread::spawn(move || serve(&client, &broker, &shared));
    }
}

/// Starts the broker, which ends with this process, and waits until it listens.
fn start(program: &str, arguments: &[String], port: u16) -> Program {
    let arguments = arguments.iter().map(|argument| argument.replace("BROKER_PORT", &port.to_string()));
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", "--", program]).args(arguments);
    let broker = Program::start(command);
    broker.wait_for(&format!("listening on 127.0.0.1:{port}"));
    broker
}

fn serve(client: &TcpStream, broker: &TcpStream, shared: &Shared) {
    let _ = (client.set_nodelay(true), broker.set_nodelay(true));
    let (stays, gone) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let _ = accept(client, broker, shared);
            let _ = broker.shutdown(Shutdown::Write);
            // Nobody waits for a client that has gone.
            drop(stays);
        });
        let _ = forward(broker, client, &gone, shared);
        let _ = client.shutdown(Shutdown::Both);
    });
}

/// Forwards the packets of a client, and forgets some.
fn accept(mut client: &TcpStream, mut broker: &TcpStream, shared: &Shared) -> io::Result<()> {
    if shared.fault != Fault::Forget {
        return io::copy(&mut client, &mut broker).map(drop);
    }
    let mut received = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let len = client.read(&mut buffer)?;
        if len == 0 {
            return Ok(());
        }
        received.extend(&buffer[..len]);
        while let Some(len) = packet_len(&received) {
            let packet: Vec<u8> = received.drain(..len).collect();
            match packet_id(&packet) {
                Some([high, low]) if shared.is_chosen() => client.write_all(&[PUBACK, 2, high, low])?,
                _ => broker.write_all(&packet)?,
            }
        }
    }
}

/// The packet identifier of a PUBLISH of QoS 1.
fn packet_id(packet: &[u8]) -> Option<[u8; 2]> {
    let is_wanted = packet[0] >> 4 == PUBLISH && packet[0] & 0b0110 == 0b0010;
    // Behind the type and the remaining length.
    let body = packet.get(1..)?.iter().position(|byte| byte & 0x80 == 0).map(|last| &packet[last + 2..])?;
    let topic_len = usize::from(u16::from_be_bytes(*body.first_chunk()?));
    let id = body.get(2 + topic_len..)?.first_chunk()?;
    is_wanted.then_some(*id)
}

/// Forwards the packets of the broker, and mistreats some. A delay ends when the client has gone.
fn forward(
    mut broker: &TcpStream,
    mut client: &TcpStream,
    gone: &Receiver<()>,
    shared: &Shared,
) -> io::Result<()> {
    let (mut received, mut held) = (Vec::new(), Vec::new());
    let mut swap_is_due = false;
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
            let is_chosen = is_message && shared.is_chosen();
            swap_is_due |= is_chosen;
            // The last message has none behind it with which it could change places.
            let is_followed = packet_len(&received).is_some() && received[0] >> 4 == PUBLISH;
            match shared.fault {
                Fault::Drop if is_chosen => {}
                Fault::Cut if is_chosen => return client.write_all(&out),
                Fault::Swap if swap_is_due && is_message && is_followed && held.is_empty() => {
                    held = packet;
                    swap_is_due = false;
                }
                Fault::Repeat if is_chosen => out.extend([&packet[..], &packet].concat()),
                Fault::Delay if is_chosen => {
                    client.write_all(&out)?;
                    let _ = gone.recv_timeout(DELAY);
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
            let _ = gone.recv_timeout(Duration::from_millis(u64::try_from(left).unwrap_or_default()));
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
