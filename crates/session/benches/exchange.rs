//! Cost of a message of QoS 1 or 2 in a server's session, beside reading, routing and writing it: `cargo bench -p
//! pondhawk-session`.

use std::hint::black_box;
use std::time::Instant;

use base::{Now, Ticket};
use pondhawk_session::{Accepted, Session, Settings};
use wire::{
    Connect, Delivery, Packet, PacketId, PubAck, PubAckReason, PubComp, PubRec, PubRel, PubRelReason,
    Publish, Qos, ReasonCode, Utf8, Version,
};

const NOW: Now = Now { monotonic_ms: 0, unix_ms: 0 };
const WINDOW: u16 = 100;
const ROUNDS: u32 = 100_000;

struct Link {
    session: Session,
    settings: Settings,
    out: Vec<u8>,
}

impl Link {
    fn new() -> Self {
        let mut link = Self { session: Session::new(NOW), settings: Settings::default(), out: Vec::new() };
        link.take(Connect::new(Version::V5, Utf8::new("me").expect("a string")));
        let accepted = Accepted { client_id: "me", session_present: false, unreleased: &[] };
        assert!(link.session.accept(&accepted, &link.settings, &mut link.out));
        link
    }

    fn take<'p>(&mut self, packet: impl Into<Packet<'p>>) {
        let packet = packet.into();
        black_box(&packet);
        let request = self.session.handle_packet(&packet, &self.settings, NOW);
        assert!(black_box(&request).is_ok(), "in order");
    }

    fn complete(&mut self, ticket: Ticket) {
        self.session.complete(ticket, ReasonCode::Success, &mut self.out);
    }

    fn receive(&mut self, qos: Qos, packet_id: PacketId) {
        let (delivery, ticket) = match qos {
            Qos::ExactlyOnce => (Delivery::ExactlyOnce { packet_id, dup: false }, Ticket::PubRec(packet_id)),
            _ => (Delivery::AtLeastOnce { packet_id, dup: false }, Ticket::PubAck(packet_id)),
        };
        self.take(Publish { delivery, ..Publish::new(topic::topic!("a/b"), b"hey") });
        self.complete(ticket);
        if qos == Qos::ExactlyOnce {
            self.take(PubRel::new(packet_id, PubRelReason::Success));
            self.complete(Ticket::PubComp(packet_id));
        }
    }

    fn acknowledge(&mut self, qos: Qos, packet_id: PacketId) {
        if qos == Qos::AtLeastOnce {
            return self.take(PubAck::new(packet_id, PubAckReason::Success));
        }
        self.take(PubRec::new(packet_id, PubAckReason::Success));
        self.complete(Ticket::PubRel(packet_id));
        self.take(PubComp::new(packet_id, PubRelReason::Success));
    }
}

/// Returns the nanoseconds per message.
fn measure(mut window: impl FnMut()) -> f64 {
    window();
    let begin = Instant::now();
    for _ in 0..ROUNDS {
        window();
    }
    begin.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS) / f64::from(WINDOW)
}

fn main() {
    println!("a window of {WINDOW}, ns per message");
    for qos in [Qos::AtLeastOnce, Qos::ExactlyOnce] {
        let mut link = Link::new();
        let received = measure(|| {
            link.out.clear();
            for packet_id in (1..=WINDOW).filter_map(PacketId::new) {
                link.receive(qos, packet_id);
            }
        });
        let mut link = Link::new();
        let mut under_way = Vec::new();
        let sent = measure(|| {
            link.out.clear();
            let begun = (0..WINDOW).filter_map(|_| link.session.begin(qos)?.packet_id());
            under_way.extend(begun);
            for packet_id in under_way.drain(..) {
                link.acknowledge(qos, packet_id);
            }
        });
        println!("{qos}: received {received:.1}, sent {sent:.1}");
    }
}
