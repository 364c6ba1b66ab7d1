//! A proxy that plants faults in the packets of a broker.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Each fault is planted in one packet of this number.
const INTERVAL: u64 = 50;

/// Types of packets (MQTT 5.0, section 2.1.2).
const PUBLISH: u8 = 3;
const SUBACK: u8 = 9;

/// The fault of a proxy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fault {
    /// Every packet is forwarded as it is.
    None,
    /// A message is left out.
    Drop,
    /// A message comes twice.
    Repeat,
    /// Two messages of a burst change places.
    Swap,
    /// A byte of a payload changes.
    Payload,
    /// Each SUBACK grants QoS 0.
    Reason,
}

/// The first part of the payloads of a burst, whose messages are sent without waiting for each other.
pub(crate) const BURST: &[u8] = b"burst";
/// The payload of the last message of a burst.
pub(crate) const LAST: &[u8] = b"burst ends";

/// Starts a proxy in front of a broker, and returns its address. It ends with the test.
pub(crate) fn proxy(to: SocketAddr, fault: Fault) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let count = Arc::new(AtomicU64::new(0));
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let broker = TcpStream::connect(to).expect("the broker listens");
            let _ = (client.set_nodelay(true), broker.set_nodelay(true));
            let [to_client, to_broker] =
                [&client, &broker].map(|stream| stream.try_clone().expect("it can be shared"));
            thread::spawn(move || {
                let (mut from, mut to) = (&client, &to_broker);
                let _ = io::copy(&mut from, &mut to);
                let _ = to_broker.shutdown(Shutdown::Write);
            });
            let count = Arc::clone(&count);
            thread::spawn(move || {
                let _ = forward(&broker, &to_client, fault, &count);
                let _ = to_client.shutdown(Shutdown::Write);
            });
        }
    });
    address
}

fn forward(
    mut broker: &TcpStream,
    mut client: &TcpStream,
    fault: Fault,
    count: &AtomicU64,
) -> io::Result<()> {
    let (mut received, mut held) = (Vec::new(), Vec::new());
    let mut buffer = vec![0; 64 << 10];
    loop {
        let len = broker.read(&mut buffer)?;
        if len == 0 {
            return Ok(());
        }
        received.extend(&buffer[..len]);
        let mut out = Vec::new();
        while let Some(len) = packet_length(&received) {
            let mut packet: Vec<u8> = received.drain(..len).collect();
            let is_message = packet[0] >> 4 == PUBLISH;
            let is_chosen =
                is_message && (count.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(INTERVAL);
            let may_wait = packet.windows(BURST.len()).any(|part| part == BURST) && !packet.ends_with(LAST);
            match fault {
                Fault::Drop if is_chosen => continue,
                Fault::Repeat if is_chosen => out.extend(&packet),
                Fault::Swap if is_message && may_wait && held.is_empty() && packet.last() == Some(&b'7') => {
                    held = packet;
                    continue;
                }
                Fault::Payload if is_chosen => *packet.last_mut().expect("it has a payload") ^= 1,
                Fault::Reason if packet[0] >> 4 == SUBACK => *packet.last_mut().expect("it has a code") = 0,
                _ => {}
            }
            out.extend(packet);
            if is_message {
                out.append(&mut held);
            }
        }
        client.write_all(&out)?;
    }
}

/// Length of the first packet, if all of it has arrived.
fn packet_length(bytes: &[u8]) -> Option<usize> {
    let digits = bytes.iter().skip(1).take(4).position(|byte| byte & 0x80 == 0)? + 1;
    let value = |at: usize| usize::from(bytes[at] & 0x7F) << (7 * (at - 1));
    let length = 1 + digits + (1..=digits).map(value).sum::<usize>();
    (bytes.len() >= length).then_some(length)
}
