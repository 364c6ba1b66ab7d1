//! A server in little more than 100 lines, made of `wire`, `topic` and `session` alone.
//!
//! The server supports all versions and wildcards. Publishers may use every QoS, and subscribers receive QoS 0. The
//! server stores nothing, has no time limits, and blocks on a client that does not read.
//!
//! cargo run -p pondhawk-client --example toy_server -- 127.0.0.1:1883

use std::collections::BTreeMap;
use std::io::{Read, Result, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use base::{Message, Now, Ticket};
use session::{Accepted, Request, Session, Settings};
use topic::TopicFilterBuf;
use wire::{AckProperties, Decoded, OneOrMore, ReasonCode, SubAck, SubAckReason, UnsubAck, UnsubAckReason};
use wire::{Violation, decode};

const NOW: Now = Now { monotonic_ms: 0, unix_ms: 0 };

struct Peer {
    stream: TcpStream,
    session: Session,
    filters: Vec<TopicFilterBuf>,
    output: Vec<u8>,
}

fn main() -> Result<()> {
    let listener = TcpListener::bind(std::env::args().nth(1).unwrap_or("127.0.0.1:1883".into()))?;
    println!("listening on {}", listener.local_addr()?);
    let peers = Arc::new(Mutex::new(BTreeMap::new()));
    for (number, stream) in listener.incoming().flatten().enumerate() {
        let peers = Arc::clone(&peers);
        std::thread::spawn(move || serve(number, stream, &peers));
    }
    Ok(())
}

fn serve(number: usize, mut stream: TcpStream, all: &Mutex<BTreeMap<usize, Peer>>) -> Result<()> {
    // Lasting sessions, retained messages and groups would need storage, which this server does not have.
    let mut settings =
        Settings { session_expiry_secs_max: 0, retain_available: false, ..Settings::default() };
    settings.shared_subscriptions_available = false;
    let (session, filters, output) = (Session::new(NOW), Vec::new(), Vec::new());
    let peer = Peer { stream: stream.try_clone()?, session, filters, output };
    all.lock().unwrap_or_else(PoisonError::into_inner).insert(number, peer);
    let (mut input, mut bytes) = (Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut bytes).unwrap_or(0);
        input.extend_from_slice(&bytes[..count]);
        let mut peers = all.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = receive(number, &mut input, &mut peers, &settings);
        if let (Err(violation), Some(peer)) = (&outcome, peers.get_mut(&number)) {
            peer.session.answer(violation, &mut peer.output);
        }
        for peer in peers.values_mut() {
            // A broken connection shows up in the next read of its own thread.
            let _ = peer.stream.write_all(&std::mem::take(&mut peer.output));
        }
        if count == 0 || outcome != Ok(true) {
            return peers.remove(&number).map_or(Ok(()), |peer| peer.stream.shutdown(Shutdown::Both));
        }
    }
}

/// Handles the complete packets in `input`, and returns whether the connection goes on.
fn receive(
    number: usize,
    input: &mut Vec<u8>,
    peers: &mut BTreeMap<usize, Peer>,
    settings: &Settings,
) -> std::result::Result<bool, Violation> {
    let (mut at, properties) = (0, AckProperties::EMPTY);
    while let Some(Peer { session, filters, output, .. }) = peers.get_mut(&number)
        && let Decoded::Packet { packet, len } =
            decode(&input[at..], session.version(), &session.limits(settings))?
    {
        at += len;
        match session.handle_packet(&packet, settings, NOW)? {
            Request::Connect(_) => {
                let accepted =
                    Accepted { client_id: &format!("{number}"), session_present: false, unreleased: &[] };
                session.accept(&accepted, settings, output);
            }
            Request::Publish(incoming) => {
                let message = Message::new(incoming.topic(), &incoming.packet, None, NOW);
                if let Some(ticket) = incoming.ticket() {
                    session.complete(ticket, ReasonCode::Success, output);
                }
                peers.values_mut().for_each(|peer| peer.deliver(&message));
            }
            Request::Released { packet_id } => {
                session.complete(Ticket::PubComp(packet_id), ReasonCode::Success, output);
            }
            Request::Subscribe(packet) => {
                let mut reasons = Vec::new();
                for filter in packet.subscriptions.iter().map(|asked| asked.filter()) {
                    filters.extend(filter.map(TopicFilterBuf::from));
                    reasons
                        .push(filter.map_or(SubAckReason::UnspecifiedError, |_| SubAckReason::GrantedQos0));
                }
                let Some(reasons) = OneOrMore::new(&reasons) else { continue };
                session.write(&SubAck { packet_id: packet.packet_id, properties, reasons }.into(), output);
            }
            Request::Unsubscribe(packet) => {
                filters.retain(|filter| packet.filters.iter().all(|gone| gone != Ok(filter.filter())));
                let reasons = vec![UnsubAckReason::Success; packet.filters.iter().count()];
                let (packet_id, reasons) = (packet.packet_id, OneOrMore::new(&reasons));
                session.write(&UnsubAck { packet_id, properties, reasons }.into(), output);
            }
            Request::Answer(packet) => drop(session.write(&packet, output)),
            Request::Disconnect { .. } => return Ok(false),
            _ => {}
        }
    }
    input.drain(..at);
    Ok(true)
}

impl Peer {
    fn deliver(&mut self, message: &Message) {
        if self.filters.iter().any(|filter| filter.filter().matches(message.topic())) {
            self.session.write(&message.publish(NOW).into(), &mut self.output);
        }
    }
}
