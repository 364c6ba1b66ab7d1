//! Messages that come and go cost no memory of their own, once a session has seen as many at a time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use base::{Now, Ticket};
use pondhawk_session::{Accepted, Request, Session, Settings};
use wire::{
    Connect, Delivery, Packet, PacketId, PubAck, PubAckReason, PubComp, PubRec, PubRel, PubRelReason,
    Publish, Qos, ReasonCode, Utf8, Version,
};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, counted.
struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged; counting touches a thread-local cell that needs
// neither memory nor a destructor.
#[allow(unsafe_code, reason = "an allocator cannot be written without")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        unsafe { System.dealloc(old, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const NOW: Now = Now { monotonic_ms: 0, unix_ms: 0 };
/// Number of messages in flight.
const WINDOW: u16 = 100;
const ROUNDS: usize = 100;

struct Link {
    session: Session,
    settings: Settings,
    out: Vec<u8>,
}

impl Link {
    fn new() -> Self {
        let mut link = Self {
            session: Session::new(NOW),
            settings: Settings::default(),
            out: Vec::with_capacity(1 << 16),
        };
        link.take(Connect::new(Version::V5, Utf8::new("me").expect("a string")));
        let accepted = Accepted { client_id: "me", session_present: false, unreleased: &[] };
        assert!(link.session.accept(&accepted, &link.settings, &mut link.out));
        link
    }

    fn take<'p>(&mut self, packet: impl Into<Packet<'p>>) -> Request<'p> {
        self.session.handle_packet(&packet.into(), &self.settings, NOW).expect("in order")
    }

    fn complete(&mut self, ticket: Ticket) {
        self.session.complete(ticket, ReasonCode::Success, &mut self.out);
    }

    /// A window full of messages from the client, and one to it.
    fn exchange(&mut self, qos: Qos) {
        self.out.clear();
        for packet_id in (1..=WINDOW).filter_map(PacketId::new) {
            self.publish(qos, packet_id);
        }
        let mut under_way = [PacketId::MIN; WINDOW as usize];
        for place in &mut under_way {
            *place = self.session.begin(qos).and_then(Delivery::packet_id).expect("a place");
        }
        for packet_id in under_way {
            self.acknowledge(qos, packet_id);
        }
        assert_eq!((self.session.in_flight(), self.session.unanswered()), (0, 0));
    }

    fn publish(&mut self, qos: Qos, packet_id: PacketId) {
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
            self.take(PubAck::new(packet_id, PubAckReason::Success));
            return;
        }
        self.take(PubRec::new(packet_id, PubAckReason::Success));
        self.complete(Ticket::PubRel(packet_id));
        self.take(PubComp::new(packet_id, PubRelReason::Success));
    }
}

#[test]
fn messages_of_qos_1_and_2_cost_no_memory_of_their_own() {
    for qos in [Qos::AtLeastOnce, Qos::ExactlyOnce] {
        let mut link = Link::new();
        // Until the tables have the size that they keep.
        for _ in 0..10 {
            link.exchange(qos);
        }
        let before = ALLOCATIONS.get();
        for _ in 0..ROUNDS {
            link.exchange(qos);
        }
        assert_eq!(ALLOCATIONS.get() - before, 0, "{qos:?}");
    }
}
