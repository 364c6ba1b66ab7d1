//! The random actions of a client.

use std::collections::BTreeSet;

use pondhawk_tests::conversation;
use pondhawk_tests::{Broker, Random, packet};

use crate::line::{Pace, Publishing, Request};
use crate::walker::{Arrival, Walker};

/// A client with this many subscriptions ends some instead of adding others.
const SUBSCRIPTIONS_MAX: usize = 10;
/// Maximum number of unacknowledged PUBLISH packets of a client.
const UNACKNOWLEDGED_MAX: usize = 8;
/// Length of the pieces in bytes that are sent to a client that does not read.
const FLOOD_PIECE_BYTES: usize = 60_000;
const FLOOD_PIECES: usize = 60;

/// Returns a filter that matches some of the crowd's topics.
fn any_filter(random: &mut Random) -> String {
    let (a, b) = (random.below(4), random.below(6));
    let plain = plain_filter(random.below(12), a, b);
    if random.one_in(4) { format!("$share/g{}/{plain}", random.below(3)) } else { plain }
}

fn plain_filter(kind: usize, a: usize, b: usize) -> String {
    match kind {
        0..5 => format!("soak/{a}/{b}"),
        5 => format!("soak/+/{b}"),
        6 => format!("soak/{a}/+"),
        7 => format!("soak/{a}/#"),
        8 => format!("+/{a}/{b}"),
        9 => format!("soak/{a}/{b}/deep/er/{}/+", if a < 2 { "+" } else { "deeper" }),
        10 => "soak/#".to_owned(),
        _ => "#".to_owned(),
    }
}

/// Returns all filters to which the client with this number can subscribe.
pub(crate) fn all_filters(number: usize) -> BTreeSet<String> {
    let mut plain = BTreeSet::new();
    for (a, b) in (0..4).flat_map(|a| (0..6).map(move |b| (a, b))) {
        plain.extend((0..12).map(|kind| plain_filter(kind, a, b)));
        plain.insert(deep_topic(a, b));
    }
    let shared = plain.iter().flat_map(|plain| (0..3).map(move |group| format!("$share/g{group}/{plain}")));
    let mut all: BTreeSet<String> = shared.collect();
    all.extend(plain);
    all.insert(format!("flood/{number}"));
    all
}

fn deep_topic(a: usize, b: usize) -> String {
    format!("soak/{a}/{b}/deep/er/deeper/end")
}

/// Returns a topic of the crowd.
pub(crate) fn any_topic(random: &mut Random) -> String {
    let (a, b) = (random.below(4), random.below(6));
    if random.one_in(8) { deep_topic(a, b) } else { format!("soak/{a}/{b}") }
}

impl Walker {
    /// Carries out one random action, or none.
    pub(crate) fn act(&mut self, broker: &Broker) {
        let Some(line) = &self.line else { return self.act_away(broker) };
        if !line.rest.is_empty() {
            return self.act_within_packet();
        }
        if !line.is_free() {
            return self.act_unfree(broker);
        }
        match self.random.below(40) {
            0..7 => self.subscribe_any(),
            7..11 => self.unsubscribe_any(),
            11..24 => self.publish_any(),
            24..27 => self.retain_any(),
            27..29 => self.leave_any(),
            29 => self.cut(),
            30 => self.arrive_any(broker),
            31 => self.begin_packet(),
            32 => self.set_pace(Pace::Slow),
            33 => self.set_pace(Pace::Swift),
            34 => self.stop_reading(),
            35 => self.cut_behind_requests(),
            _ => self.ping(),
        }
    }

    fn act_away(&mut self, broker: &Broker) {
        match self.random.below(10) {
            0..3 => self.arrive_any(broker),
            3 => self.visit(broker),
            _ => {}
        }
    }

    /// Acts while the client waits for CONNACK, for the end of the connection, or for room to send.
    fn act_unfree(&mut self, broker: &Broker) {
        match self.random.below(40) {
            0 => self.cut(),
            1 => self.arrive_any(broker),
            _ => {}
        }
    }

    fn act_within_packet(&mut self) {
        match self.random.below(4) {
            0 => self.cut(),
            1 => {}
            _ => self.line.iter_mut().for_each(|line| line.finish_packet()),
        }
    }

    fn arrive_any(&mut self, broker: &Broker) {
        let random = &mut self.random;
        let lasts = random.one_in(2);
        // Before MQTT 5 one flag stands for both.
        let is_clean = if self.version.is_5() { random.one_in(3) } else { !lasts };
        let is_brief = self.version.is_5() && lasts && random.one_in(4);
        let has_will = random.one_in(3);
        self.connect(broker, Arrival { is_clean, lasts, is_brief, has_will });
    }

    /// Sends a short session in one segment: CONNECT, SUBSCRIBE, sometimes UNSUBSCRIBE, a message and DISCONNECT.
    fn visit(&mut self, broker: &Broker) {
        let lasts = self.version.is_5() && self.random.one_in(3);
        let mut bytes = self.arrive(broker, Arrival { is_clean: true, lasts, ..Arrival::default() });
        let filter = any_filter(&mut self.random);
        if self.random.one_in(3) {
            bytes.extend(self.subscribing(vec![filter.clone()], false));
        } else {
            bytes.extend(self.subscribing(vec![filter.clone()], false));
            bytes.extend(self.unsubscribing(vec![filter]));
        }
        bytes.extend(packet::publish(self.version, &any_topic(&mut self.random), b"passing by"));
        bytes.extend(packet::disconnect(self.version, 0));
        let line = self.line.as_mut().expect("it has just arrived");
        line.is_leaving = true;
        line.send(&bytes);
    }

    fn subscribe_any(&mut self) {
        if self.session.subscriptions.len() >= SUBSCRIPTIONS_MAX {
            return self.unsubscribe_any();
        }
        let count = 1 + self.random.below(3);
        let mut filters: Vec<String> = (0..count).map(|_| any_filter(&mut self.random)).collect();
        filters.sort();
        filters.dedup();
        let bytes = self.subscribing(filters, true);
        self.send(&bytes);
    }

    fn unsubscribe_any(&mut self) {
        let mut filters: Vec<String> = self.session.subscriptions.keys().cloned().collect();
        let count = 1 + self.random.below(2);
        while filters.len() > count {
            filters.remove(self.random.below(filters.len()));
        }
        if filters.is_empty() || self.random.one_in(8) {
            filters.push(format!("never/{}", self.random.below(4)));
        }
        self.unsubscribe(filters);
    }

    /// Sends an UNSUBSCRIBE from these filters.
    pub(crate) fn unsubscribe(&mut self, filters: Vec<String>) {
        let bytes = self.unsubscribing(filters);
        self.send(&bytes);
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        if let Some(line) = &mut self.line {
            line.send(bytes);
        }
    }

    /// Encodes a SUBSCRIBE, and records the request. Shared subscriptions must not have No Local.
    pub(crate) fn subscribing(&mut self, filters: Vec<String>, is_fancy: bool) -> Vec<u8> {
        let Some(line) = &mut self.line else { return Vec::new() };
        let packet_id = line.next_packet_id();
        let is_5 = self.version.is_5();
        let random = &mut self.random;
        let is_shared = filters.iter().any(|filter| filter.starts_with("$share/"));
        // The granted QoS of a group's members decides whether messages wait for the group.
        let qos = if is_shared { 1 + random.byte() % 2 } else { random.byte() % 3 };
        let mut options = qos;
        if is_5 && is_fancy && !is_shared {
            options |= (random.byte() & 1) << 2 | (random.byte() & 1) << 3 | (random.byte() % 3) << 4;
        }
        let identifier = [0x0B, 1 + random.byte() % 100];
        let properties: &[u8] = if is_5 && is_fancy && random.one_in(3) { &identifier } else { &[] };
        let rest: Vec<u8> = filters.iter().flat_map(|filter| conversation::filter(filter, options)).collect();
        let filters = filters.into_iter().map(|filter| {
            // An answer to an earlier request is not the last word while a later one is under way.
            let is_pending = line.is_asked(&filter);
            let was_there = self.session.ask(&filter).filter(|_| !is_pending);
            (filter, was_there)
        });
        let filters: Vec<_> = filters.collect();
        let entry = format!("sends SUBSCRIBE {packet_id}: {filters:?}");
        line.requests.push_back(Request { packet_id, filters, qos: Some(qos) });
        self.note(entry);
        conversation::request(self.version, 0x82, packet_id, properties, &rest)
    }

    fn unsubscribing(&mut self, filters: Vec<String>) -> Vec<u8> {
        let Some(line) = &mut self.line else { return Vec::new() };
        let packet_id = line.next_packet_id();
        let rest: Vec<u8> = filters.iter().flat_map(|filter| packet::string(filter)).collect();
        let filters = filters.into_iter().map(|filter| {
            // An answer to an earlier request is not the last word while a later one is under way.
            let is_pending = line.is_asked(&filter);
            let was_there = self.session.ask(&filter).filter(|_| !is_pending);
            (filter, was_there)
        });
        let filters: Vec<_> = filters.collect();
        let entry = format!("sends UNSUBSCRIBE {packet_id}: {filters:?}");
        line.requests.push_back(Request { packet_id, filters, qos: None });
        self.note(entry);
        conversation::request(self.version, 0xA2, packet_id, &[], &rest)
    }

    fn publish_any(&mut self) {
        let topic = any_topic(&mut self.random);
        let length = match self.random.below(20) {
            0 => self.random.below(20_000),
            _ => 10 + self.random.below(200),
        };
        let qos = self.random.byte() % 3;
        let bytes = self.publishing(qos, &topic, None, &vec![b'p'; length]);
        self.send(&bytes);
    }

    /// Sets or clears a retained value. Values that expire are not recorded, because they must vanish by
    /// themselves.
    fn retain_any(&mut self) {
        let number = self.number;
        let place = self.random.below(3);
        let length = if self.random.one_in(3) { 0 } else { 20 + self.random.below(2_000) };
        let qos = self.random.byte() % 3;
        if self.version.is_5() && self.random.one_in(3) {
            let expiry = [0x02, 0, 0, 0, 1 + self.random.byte() % 2];
            let topic = format!("brief/{number}/{place}");
            let first = 0x31;
            let bytes = conversation::publish(self.version, first, 0, &topic, &expiry, &vec![b'r'; length]);
            return self.send(&bytes);
        }
        let topic = format!("keep/{number}/{place}");
        let Some(line) = &self.line else { return };
        let is_pending = |publishing: &Publishing| {
            publishing.retained.as_ref().is_some_and(|(pending, _)| *pending == topic)
        };
        if line.publishing.values().any(is_pending) {
            return;
        }
        self.retained.insert(topic.clone(), None);
        let bytes = self.publishing(qos, &topic, Some(length), &vec![b'r'; length]);
        self.send(&bytes);
    }

    /// Encodes a PUBLISH, and records it if it needs an acknowledgement. Returns nothing if too many messages are
    /// unacknowledged.
    pub(crate) fn publishing(
        &mut self,
        qos: u8,
        topic: &str,
        retained: Option<usize>,
        payload: &[u8],
    ) -> Vec<u8> {
        let Some(line) = &mut self.line else { return Vec::new() };
        if qos > 0 && line.publishing.len() >= UNACKNOWLEDGED_MAX {
            return Vec::new();
        }
        let packet_id = line.next_packet_id();
        if qos > 0 {
            let retained = retained.map(|length| (topic.to_owned(), length));
            line.publishing.insert(packet_id, Publishing { qos, retained });
        }
        let (mut properties, mut written) = (Vec::new(), topic);
        if self.version.is_5() && retained.is_none() {
            if self.random.one_in(6) {
                properties.extend([0x02, 0, 0, 0, 1 + self.random.byte() % 3]);
            }
            if self.random.one_in(6) {
                properties.extend(packet::user_property("walker", "soak"));
            }
            if self.random.one_in(4) {
                let alias = 1 + u16::from(self.random.byte() % 4);
                properties.push(0x23);
                properties.extend(alias.to_be_bytes());
                if line.aliases.insert(alias, topic.to_owned()).is_some_and(|known| known == topic) {
                    written = "";
                }
            }
        }
        let first = 0x30 | qos << 1 | u8::from(retained.is_some());
        conversation::publish(self.version, first, packet_id, written, &properties, payload)
    }

    /// Leaves with DISCONNECT, alone or in one segment with requests that the broker must carry out first.
    ///
    /// The requests do not make the broker send retained messages.
    pub(crate) fn leave_any(&mut self) {
        let mut bytes = Vec::new();
        match self.random.below(4) {
            0 => {
                let filters: Vec<String> = self.session.subscriptions.keys().take(2).cloned().collect();
                if !filters.is_empty() {
                    bytes = self.unsubscribing(filters);
                }
            }
            1 => {
                let topic = any_topic(&mut self.random);
                let filter = if self.random.one_in(3) { format!("$share/g0/{topic}") } else { topic };
                bytes = self.subscribing(vec![filter], true);
            }
            _ => {}
        }
        let ends_session = self.version.is_5() && self.random.one_in(4);
        self.leave(bytes, ends_session);
    }

    /// Sends DISCONNECT after these bytes, in one segment.
    pub(crate) fn leave(&mut self, mut bytes: Vec<u8>, ends_session: bool) {
        let Some(line) = &mut self.line else { return };
        if ends_session {
            bytes.extend([0xE0, 0x07, 0x00, 0x05, 0x11, 0, 0, 0, 0]);
            line.lasts = false;
        } else {
            bytes.extend(packet::disconnect(self.version, 0));
        }
        line.send(&bytes);
        line.is_leaving = true;
        line.pace = Pace::Swift;
    }

    fn cut_behind_requests(&mut self) {
        let filter = any_filter(&mut self.random);
        let bytes = self.subscribing(vec![filter], true);
        self.send(&bytes);
        self.cut();
    }

    /// Sends the beginning of a packet. The rest follows later, or never.
    fn begin_packet(&mut self) {
        let topic = any_topic(&mut self.random);
        let qos = self.random.byte() % 2;
        let length = 100 + self.random.below(30_000);
        let packet = self.publishing(qos, &topic, None, &vec![b'b'; length]);
        let begun = 1 + self.random.below(packet.len().saturating_sub(2));
        if let Some(line) = &mut self.line {
            line.begin(&packet, begun);
        }
    }

    fn set_pace(&mut self, pace: Pace) {
        self.line.iter_mut().for_each(|line| line.pace = pace);
    }

    fn stop_reading(&mut self) {
        let turns = 20 + u32::from(self.random.byte());
        if self.random.one_in(4) {
            let bytes = self.subscribing(vec![format!("flood/{}", self.number)], false);
            self.send(&bytes);
        }
        self.set_pace(Pace::Stuck(turns));
    }

    /// Whether the client is connected and does not read, and can therefore be flooded.
    pub(crate) fn is_stuck(&self) -> bool {
        self.line.as_ref().is_some_and(|line| line.is_in() && !line.is_reading())
    }

    /// Publishes more bytes to a client that does not read than its connection can buffer.
    pub(crate) fn flood(&mut self, victim: usize) {
        let Some(line) = self.line.as_mut().filter(|line| line.is_free()) else { return };
        let topic = format!("flood/{victim}");
        let piece = packet::publish(self.version, &topic, &vec![b'f'; FLOOD_PIECE_BYTES]);
        line.send(&piece.repeat(FLOOD_PIECES));
    }

    fn ping(&mut self) {
        self.send(&[0xC0, 0x00]);
    }
}

#[cfg(test)]
mod tests {
    use pondhawk_tests::{Options, until};

    use super::*;

    #[test]
    fn a_filter_with_a_request_under_way_is_uncertain_whatever_was_answered_before() {
        let broker = Broker::start(&Options::default());
        let mut walker = Walker::new(2, Random::of(1, 1));
        walker.connect(&broker, Arrival::default());
        until("the client is connected", || {
            walker.hear();
            walker.is_in().then_some(())
        });
        let filter = || vec!["a".to_owned()];
        let subscribe = walker.subscribing(filter(), false);
        walker.unsubscribing(filter());
        let suback = [0x90, 0x04, subscribe[2], subscribe[3], 0x00, 0x00];
        walker.hear_packet(&suback);
        walker.unsubscribing(filter());
        let line = walker.line.as_ref().expect("it is connected");
        assert_eq!(line.requests.back().expect("just sent").filters, [("a".to_owned(), None)]);
        assert_eq!(walker.findings, [""; 0]);
    }

    #[test]
    fn all_filters_include_the_random_ones() {
        let mut random = Random::of(1, 1);
        let all = all_filters(1);
        for _ in 0..20_000 {
            let filter = any_filter(&mut random);
            assert!(all.contains(&filter), "{filter}");
            assert!(all.contains(&any_topic(&mut random)));
        }
        assert!(all.len() < 500, "{}", all.len());
    }
}
