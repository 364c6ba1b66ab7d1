//! A subscriber with a lasting session.

use std::collections::{BTreeMap, BTreeSet};

use super::history::{Knowledge, Step};
use super::message::Message;

#[derive(Debug, Clone)]
pub(crate) enum SubscriberStep {
    /// CONNACK of success has arrived.
    Connected,
    Asked {
        filter: String,
        is_wanted: bool,
    },
    /// SUBACK or UNSUBACK of success has arrived.
    Granted {
        filter: String,
    },
    Delivered(Delivery),
    Answered(Delivery),
    /// PUBREL with this packet identifier has arrived.
    Released(u16),
}

/// A PUBLISH as it arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub(crate) message: Message,
    pub(crate) qos: u8,
    pub(crate) packet_id: u16,
}

/// The knowledge of a subscriber.
#[derive(Debug, Clone, Default)]
pub(crate) struct Subscribing {
    pub(crate) has_session: bool,
    pub(crate) filters: BTreeMap<String, Filter>,
    /// Messages that the subscriber owns: acknowledged ones, and messages of QoS 2 that it would not accept again.
    pub(crate) owned: BTreeSet<Message>,
    /// Messages that the subscriber received at QoS 2.
    pub(crate) exactly_once: BTreeSet<Message>,
    /// Messages at QoS 2 whose PUBREL has not arrived, by packet identifier.
    pub(crate) unreleased: BTreeMap<u16, Message>,
    /// Messages that must not have arrived.
    pub(crate) faults: Vec<Fault>,
}

/// State of a subscription.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Filter {
    pub(crate) is_wanted: bool,
    /// The broker has acknowledged this state.
    pub(crate) is_certain: bool,
}

/// A message that must not have arrived.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// The message arrived again at QoS 2.
    Twice(Message),
    /// The message arrived at QoS 2 with the packet identifier of an unreleased message. A client confuses the two.
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
    /// Records a message at QoS 2, by the rules for a client in the standard. Records a fault if the message is not
    /// new.
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
