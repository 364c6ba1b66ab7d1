//! Asks the broker for the subscriptions of each client, after a comparison has failed.
//!
//! UNSUBACK of MQTT 5 says for each filter whether a subscription existed. A client of an older version cannot know.
//! If its session is a lasting one, a new connection of MQTT 5 continues the session.

use pondhawk_tests::conversation;
use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{Broker, RawClient, Version};

use crate::acts;
use crate::session::Presence;
use crate::walker::Walker;

const UNSUBACK: u8 = 0xB0;
/// A packet identifier that no client uses for its own packets.
const PACKET_ID: u16 = u16::MAX;

/// Ends all subscriptions of a client. Returns a line for each one that only the client or only the broker knows.
pub(crate) fn differences(broker: &Broker, walker: &mut Walker) -> Vec<String> {
    let client_id = walker.client_id.clone();
    let tell = |what: String| vec![format!("{client_id}: {what}")];
    let filters: Vec<String> = acts::all_filters(walker.number).into_iter().collect();
    let answer = if let Some(line) = walker.line.as_mut().filter(|_| walker.version.is_5()) {
        unsubscribe(&mut line.raw, &filters)
    } else if walker.session.presence == Presence::Present && walker.session.lasts {
        let lasting = [0x11, 0, 0, 0x8C, 0xA0];
        let connect = Connect {
            clean_start: false,
            properties: &lasting,
            ..Connect::new(Version::V5, &walker.client_id)
        };
        let (client, connack) = broker.greet(&connect);
        if !conversation::session_present(&connack) {
            return tell("only the client knows the session".to_owned());
        }
        unsubscribe(&mut client.into_raw(), &filters)
    } else if walker.line.is_some() {
        return tell("cannot be asked".to_owned());
    } else {
        return Vec::new();
    };
    let Some(codes) = answer else { return tell("no answer".to_owned()) };
    let known: Vec<&str> = walker.session.filters().map(|(filter, _)| filter).collect();
    let compared = filters.iter().zip(codes).filter_map(|(filter, code)| {
        match (known.contains(&filter.as_str()), code == 0) {
            (true, false) => Some(format!("{client_id}: only the client knows {filter}")),
            (false, true) => Some(format!("{client_id}: only the broker knows {filter}")),
            _ => None,
        }
    });
    compared.collect()
}

/// Returns the reason codes of the UNSUBACK; `None` if the broker closes the connection instead.
fn unsubscribe(line: &mut RawClient, filters: &[String]) -> Option<Vec<u8>> {
    let rest: Vec<u8> = filters.iter().flat_map(|filter| packet::string(filter)).collect();
    line.send(&conversation::request(Version::V5, 0xA2, PACKET_ID, &[], &rest));
    loop {
        let packet = line.next_packet()?;
        if packet[0] == UNSUBACK {
            return Some(packet[packet.len() - filters.len()..].to_vec());
        }
    }
}
