//! Who receives, in a session that lasts.

use std::collections::{BTreeMap, BTreeSet};

use super::history::{Knowledge, Step};
use super::message::Message;

#[derive(Debug, Clone)]
pub(crate) enum SubscriberStep {
    /// CONNACK.
    Connected,
    Asked {
        filter: String,
        is_wanted: bool,
    },
    /// SUBACK or UNSUBACK.
    Granted {
        filter: String,
    },
    Delivered(Delivery),
    Answered(Delivery),
    /// PUBREL.
    Released(u16),
}

/// A PUBLISH as it arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub(crate) message: Message,
    pub(crate) qos: u8,
    pub(crate) packet_id: u16,
}

/// What a subscriber knows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Subscribing {
    pub(crate) has_session: bool,
    pub(crate) filters: BTreeMap<String, Filter>,
    /// Those that it owns since it has received them, because it has said that it has, or at QoS 2 will not take them twice.
    pub(crate) owned: BTreeSet<Message>,
    /// Those received at QoS 2.
    pub(crate) exactly_once: BTreeSet<Message>,
    /// At QoS 2, and not released yet.
    pub(crate) unreleased: BTreeMap<u16, Message>,
    /// What should not have come.
    pub(crate) faults: Vec<Fault>,
}

/// How it stands with a subscription.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Filter {
    pub(crate) is_wanted: bool,
    /// The broker has acknowledged that it is so.
    pub(crate) is_certain: bool,
}

/// What should not have come.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// At QoS 2, once more.
    Twice(Message),
    /// At QoS 2 under a packet identifier that stands for another message still: a client takes it for that one.
    Confused { is: Message, was: Message },
}

impl Step for SubscriberStep {
    fn is_sent(&self) -> bool {
        matches!(self, Self::Asked { .. } | Self::Answered(_))
    }
}

impl Knowledge for Subscribing {
    type Step = SubscriberStep;

    fn learn(&mut self, step: &SubscriberStep) {
        match step {
            SubscriberStep::Connected => self.has_session = true,
            SubscriberStep::Asked { filter, is_wanted } => {
                let asked = Filter { is_wanted: *is_wanted, is_certain: false };
                self.filters.insert(filter.clone(), asked);
            }
            SubscriberStep::Granted { filter } => {
                if let Some(filter) = self.filters.get_mut(filter) {
                    filter.is_certain = true;
                }
            }
            SubscriberStep::Delivered(delivery) if delivery.qos == 2 => self.receive(delivery),
            SubscriberStep::Delivered(_) => {}
            SubscriberStep::Answered(delivery) => {
                self.owned.insert(delivery.message);
            }
            SubscriberStep::Released(packet_id) => {
                self.unreleased.remove(packet_id);
            }
        }
    }
}

impl Subscribing {
    /// Whether this is a message that it has not seen; at QoS 2 as a client of the standard knows that.
    fn receive(&mut self, delivery: &Delivery) {
        let message = delivery.message;
        match self.unreleased.insert(delivery.packet_id, message) {
            Some(was) if was == message => {}
            Some(was) => self.faults.push(Fault::Confused { is: message, was }),
            None => {
                self.owned.insert(message);
                if !self.exactly_once.insert(message) {
                    self.faults.push(Fault::Twice(message));
                }
            }
        }
    }
}
