//! Messages of shared subscriptions, whose member disconnects.

use std::time::Duration;

use topic::{TopicFilter, TopicFilterBuf};
use wire::{Qos, Version};

use super::super::super::packet::Seen;
use super::super::super::past::Moment;
use super::super::super::script::Said;
use super::{connect, judge, publish, seen};

/// The recorded server sends a message to a member that has just left, and then to another one. A message for two groups
/// arrives twice.
#[test]
fn a_message_for_a_member_that_has_left_arrives_once_in_each_group() {
    for (groups, early, differences) in [(1, 0, 0), (1, 1, 0), (2, 0, 0), (2, 1, 0), (2, 2, 0), (3, 2, 1)] {
        let mut judge = judge();
        for (connection, name) in [(1, "first"), (2, "second")] {
            connect(&mut judge, connection, name, Version::V3_1_1);
            for group in 0..groups {
                let filter = format!("$share/{group}/t");
                let filter = TopicFilterBuf::from(TopicFilter::new(&filter).expect("a filter"));
                judge.said(connection, &Said::Subscribe(9, vec![filter]));
            }
            for packet in [&b"\x20\x02\0\0"[..], b"\x90\x03\0\x09\x01"] {
                judge.expect(connection, seen(packet));
                judge.receive(connection, seen(packet));
            }
        }
        let message = |packet_id| seen(&publish(packet_id, (Qos::AtLeastOnce, b'a'), false));
        judge.client_ends(1);
        // At most two messages arrive.
        let arrivals = groups.min(2);
        (0..early).for_each(|id| judge.receive(2, message(id + 1)));
        judge.expect(1, message(1));
        judge.expect(1, Seen::end());
        judge.receive(1, Seen::end());
        (early..arrivals).for_each(|id| judge.receive(2, message(id + 1)));
        (0..groups).for_each(|id| judge.expect(2, message(id + 1)));
        judge.advance(Moment { step: 9, time: Duration::from_secs(9) });
        let report = judge.finish();
        assert_eq!(report.differences(), differences, "{groups} groups: {}", report.text());
    }
}
