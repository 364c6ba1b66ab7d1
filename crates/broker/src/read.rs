//! Bytes of a client: the packets in them are carried out one by one.
//!
//! Acknowledgements of the client that follow each other make room in its window together: messages that wait behind it are sent
//! once, before a packet of another kind is carried out. Acknowledgements to the client leave in one piece, at the latest at the
//! end of the read: any other answer, to whatever client, and the end of any connection come behind them.

use base::{ConnectionId, Now};
use session::Request;
use wire::{Decoded, DisconnectReason, Packet, Violation, brief_acknowledgement, decode};

use crate::effects::Outside;
use crate::ending::{By, Ending};
use crate::{Effects, Shard};

/// Maximum number of steps for one read. A read may bring 32,768 PINGREQ packets, and others wait meanwhile.
const STEPS_PER_READ: u64 = 2_048;
/// Steps that a CONNECT counts as, beside its own: with its login, its session and its end it costs far more than a
/// short packet. A turn of 8,192 steps takes in 64 of them, so that a storm of logins does not delay others.
const STEPS_OF_CONNECT: u64 = 127;

/// The result of a look at the next packet.
pub(crate) enum Step {
    /// This number of bytes was processed.
    Consumed(usize),
    /// The rest has to wait: for more bytes, or for an answer of the ledger.
    Wait,
    /// The connection is over; nothing more is processed.
    Ended,
}

/// The read under way.
#[derive(Debug, Default)]
pub(crate) struct CurrentRead {
    /// The connection that is read.
    of: Option<ConnectionId>,
    /// Acknowledgements to the connection that have not left.
    pub(crate) answers: Vec<u8>,
    /// Waiting messages were not sent since the last acknowledgement of the connection.
    pub(crate) has_acknowledged: bool,
}

impl CurrentRead {
    pub(crate) fn is_of(&self, id: ConnectionId) -> bool {
        self.of == Some(id)
    }
}

impl Shard {
    /// Bytes were read: first those that were not consumed before. Returns how many are done with.
    pub fn received(&mut self, id: ConnectionId, bytes: &[u8], now: Now, to: &mut impl Effects) -> usize {
        let to = &mut Outside::new(now, to);
        self.current_read.of = Some(id);
        let done = self.read(id, bytes, to);
        self.refill(id, to);
        self.send_answers_of_read(to);
        self.current_read.of = None;
        done
    }

    /// Sends messages that wait behind the window, if the client has acknowledged others in this read. That comes before the
    /// answers: a large message is sent to a client for which nothing else waits, also while the process is full.
    fn refill(&mut self, id: ConnectionId, to: &mut Outside<'_, impl Effects>) {
        if std::mem::take(&mut self.current_read.has_acknowledged) {
            self.pull(id, to);
            self.continue_walks(id, to);
        }
    }

    /// Sends the acknowledgements so far: before any other answer, and before the end of a connection.
    pub(crate) fn send_answers_of_read(&mut self, to: &mut Outside<'_, impl Effects>) {
        let Some(id) = self.current_read.of.filter(|_| !self.current_read.answers.is_empty()) else { return };
        to.send(id, &self.current_read.answers);
        self.count_untaken(id, self.current_read.answers.len(), to);
        self.current_read.answers.clear();
    }

    /// Carries out packet by packet. Returns how many bytes are done with.
    fn read(&mut self, id: ConnectionId, bytes: &[u8], to: &mut Outside<'_, impl Effects>) -> usize {
        let (mut done, mut is_cut) = (0, false);
        let steps_max = self.steps + STEPS_PER_READ;
        while done < bytes.len() {
            if self.steps >= steps_max {
                let Some(client) = self.clients.get(id) else { return bytes.len() };
                is_cut = !client.waits();
                if is_cut && client.blocked.is_none() {
                    // The rest comes in turn with other connections. A client that is blocked goes on when that ends.
                    to.resume(id);
                }
                break;
            }
            self.steps += 1;
            match self.step(id, &bytes[done..], to) {
                Step::Consumed(count) => done += count,
                Step::Wait => break,
                Step::Ended => return bytes.len(),
            }
        }
        // The rest of a read that was cut is no beginning of a packet that its client does not send to the end.
        let beginning_bytes = if is_cut { 0 } else { bytes.len() - done };
        if !self.note_beginning(id, beginning_bytes, done > 0, to) {
            return bytes.len();
        }
        done
    }

    fn step(&mut self, id: ConnectionId, bytes: &[u8], to: &mut Outside<'_, impl Effects>) -> Step {
        let now = to.now;
        let Some(client) = self.clients.get_mut(id) else { return Step::Ended };
        if client.waits() {
            return Step::Wait;
        }
        if client.is_early(bytes, now) {
            self.hold_back(id, to);
            return Step::Wait;
        }
        if client.is_in
            && let Some((packet_type, packet_id)) = brief_acknowledgement(bytes)
        {
            self.counters.packets_received.add(1);
            let request = client.session.handle_acknowledgement(packet_type, packet_id, now);
            return self.carry_out_or_end(id, &request, (bytes, 4), to);
        }
        let limits = client.session.limits(&self.settings);
        // Looked at where they are, packet and request: they are large, and nearly all of them are a PUBLISH.
        let decoded = decode(bytes, client.session.version(), &limits);
        let (packet, len) = match &decoded {
            Ok(Decoded::Packet { packet, len }) => (packet, *len),
            Ok(Decoded::Need { .. }) => return Step::Wait,
            Err(violation) => {
                self.violated(id, violation, to);
                return Step::Ended;
            }
        };
        self.counters.packets_received.add(1);
        if matches!(packet, Packet::Connect(_)) {
            self.counters.connects.add(1);
            self.steps += STEPS_OF_CONNECT;
        }
        if client.mount.is_some() {
            return self.step_mounted(id, packet, &bytes[..len], to);
        }
        let request = client.session.handle_packet(packet, &self.settings, now);
        self.carry_out_or_end(id, &request, (bytes, len), to)
    }

    /// Takes in one packet.
    pub(crate) fn handle(
        &mut self,
        id: ConnectionId,
        packet: &Packet<'_>,
        bytes: &[u8],
        to: &mut Outside<'_, impl Effects>,
    ) -> Step {
        let Some(client) = self.clients.get_mut(id) else { return Step::Ended };
        let request = client.session.handle_packet(packet, &self.settings, to.now);
        self.carry_out_or_end(id, &request, (bytes, bytes.len()), to)
    }

    fn carry_out_or_end(
        &mut self,
        id: ConnectionId,
        request: &Result<Request<'_>, Violation>,
        packet: (&[u8], usize),
        to: &mut Outside<'_, impl Effects>,
    ) -> Step {
        match request {
            Ok(request) => self.carry_out(id, request, packet, to),
            Err(violation) => {
                self.violated(id, violation, to);
                Step::Ended
            }
        }
    }

    /// Does what a packet asks for. `bytes` begins with that packet, which is `len` long.
    fn carry_out(
        &mut self,
        id: ConnectionId,
        request: &Request<'_>,
        (bytes, len): (&[u8], usize),
        to: &mut Outside<'_, impl Effects>,
    ) -> Step {
        // Acknowledgements that follow each other make room together, and a client that leaves takes nothing more.
        let is_to_refill = !matches!(
            request,
            Request::None
                | Request::Acknowledged { .. }
                | Request::Received { .. }
                | Request::Released { .. }
                | Request::Disconnect { .. }
        );
        if is_to_refill {
            self.refill(id, to);
        }
        match request {
            Request::None => {}
            Request::Authenticate(step) => {
                self.authenticate(id, step, to);
                if self.clients.get(id).is_none() {
                    return Step::Ended;
                }
            }
            Request::Publish(publish) => {
                return Step::Consumed(self.publish(id, publish, (bytes, len), to));
            }
            Request::Connect(connect) => {
                self.connect(id, connect, to);
                if self.clients.get(id).is_none() {
                    return Step::Ended;
                }
            }
            Request::Subscribe(subscribe) => self.subscribe(id, subscribe, to),
            Request::Unsubscribe(unsubscribe) => self.unsubscribe(id, unsubscribe, to),
            Request::Answer(packet) => self.send(id, packet, to),
            Request::Acknowledged { packet_id, reason } => {
                self.acknowledged(id, *packet_id, *reason, to);
            }
            Request::Received { packet_id } => self.received_by_client(id, *packet_id, to),
            Request::Released { packet_id } => self.released_by_client(id, *packet_id, to),
            Request::Disconnect { reason, session_expiry_interval_secs } => {
                if let Some(client) = self.clients.get_mut(id) {
                    let aside = client.make_aside();
                    // The limit is that of CONNECT, as CONNACK has told it.
                    let most = aside.expiry_secs_max.unwrap_or(u32::MAX);
                    aside.expiry_secs = session_expiry_interval_secs.map(|secs| secs.min(most));
                }
                let cause = match reason {
                    DisconnectReason::NormalDisconnection => protocol::Cause::Normal,
                    _ => protocol::Cause::WithWill,
                };
                let why = "the client disconnected";
                self.end(id, Ending { reason: reason.reason(), why, cause, by: By::Peer }, to);
                to.close(id);
                return Step::Ended;
            }
        }
        Step::Consumed(len)
    }
}
