//! The part of an explanation about a shared subscription: which member gets the message.

use base::Interest;
use wire::Qos;

use super::receiver::{effect_of, send};
use super::{Explanation, Memory, Outcome, Queue, Receiver, Situation};

/// The facts about a group that shares a subscription.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    /// Its filter, with `$share/GROUP/`.
    pub(crate) filter: Box<str>,
    /// Number of its members.
    pub(crate) members: usize,
    /// Number of its members that are connected.
    pub(crate) connected: usize,
    pub(crate) choice: Choice,
    /// The queue of the group, for messages of QoS 1 and 2.
    pub(crate) queue: Queue,
}

/// The choice of a member for a message.
#[derive(Debug, Clone)]
pub(crate) enum Choice {
    /// The members take turns.
    InTurn,
    /// The message goes to the owner of the publisher's key. `None` if the owner is not known.
    ByPublisher(Option<Box<str>>),
    /// The message goes to the owner of the value that this User Property has.
    ByProperty(Box<str>),
}

/// Explains the outcome for a subscriber whose matching subscriptions are all shared: that of the group which is best for
/// the subscriber.
pub(super) fn share(
    mut so_far: Explanation,
    of: &Situation<'_>,
    receiver: &Receiver<'_>,
    shared: &[&(Box<str>, Option<Interest>)],
) -> Explanation {
    let of_group = |(filter, interest): &&(Box<str>, Option<Interest>)| {
        let group = receiver.groups.iter().find(|group| group.filter == *filter)?;
        Some(through(group, of, receiver, *interest))
    };
    let rank = |ended: &Explanation| match ended.outcome {
        Outcome::Delivered => 0,
        Outcome::Waits => 1,
        Outcome::ToGroup => 2,
        Outcome::NotDelivered | Outcome::Unknown => 3,
    };
    let Some(best) = shared.iter().filter_map(of_group).min_by_key(rank) else {
        let text = "the matching subscription is shared: each message goes to one member of the group";
        return so_far.end(Outcome::ToGroup, "shared", text);
    };
    so_far.steps.extend(best.steps);
    Explanation { outcome: best.outcome, reason: best.reason, ..so_far }
}

/// Follows the message through one group.
fn through(
    group: &Group,
    of: &Situation<'_>,
    receiver: &Receiver<'_>,
    interest: Option<Interest>,
) -> Explanation {
    let Group { filter, members, connected, .. } = group;
    let (name, is_stored) = (of.subscriber, of.qos != Qos::AtMostOnce);
    let text = format!("the group {filter} has {members} members, of which {connected} are connected");
    let so_far = Explanation { outcome: Outcome::Unknown, reason: "", steps: vec![text], nearly: Vec::new() };
    if is_stored && let Some(full) = group.queue.full() {
        let (outcome, effect) = effect_of(of.broker.queue_full);
        return so_far.end(outcome, "group_queue_full", format!("for the group, {full}: {effect}"));
    }
    if *connected == 0 {
        if !is_stored {
            let text = "no member is connected, and a message of QoS 0 does not wait";
            return so_far.not_delivered("group_offline_qos_0", text);
        }
        if of.broker.memory >= Memory::ShortToKeep {
            let text = "memory is short, and the message has to wait: it is refused, and nobody gets it";
            return so_far.not_delivered("memory_short", text);
        }
        let text = "no member is connected: the message waits, and goes to the first that connects";
        return so_far.end(Outcome::Waits, "group_offline", text);
    }
    let Some(connection) = receiver.connection else {
        let text = format!("{name} is not connected: the message goes to a member that is connected");
        return so_far.not_delivered("to_other_member", text);
    };
    let chosen = match &group.choice {
        _ if *connected == 1 => Some((name, "the only member that is connected".to_owned())),
        Choice::ByPublisher(Some(owner)) => {
            let key = of.publisher.client_id;
            Some((&**owner, format!("the member that gets all messages of {key} to the group")))
        }
        _ => None,
    };
    let Some((member, why)) = chosen else {
        return so_far.end(Outcome::ToGroup, "shared", choice_in_words(group));
    };
    if member != name {
        return so_far.not_delivered("to_other_member", format!("{member} is {why}"));
    }
    let mut so_far = so_far;
    so_far.steps.push(format!("{name} is {why}"));
    let qos = interest.map_or(of.qos, |interest| interest.qos().min(of.qos));
    send(so_far, of, (receiver, connection), qos)
}

/// The choice of a member that the facts do not decide.
fn choice_in_words(group: &Group) -> String {
    match &group.choice {
        Choice::InTurn => {
            "the members that are connected take turns: each message goes to one of them, with room if possible"
                .to_owned()
        }
        Choice::ByPublisher(_) => {
            "the messages of one publisher go to one member; the group is too large to say which".to_owned()
        }
        Choice::ByProperty(property) => {
            format!("the messages with one value of the User Property {property} go to one member")
        }
    }
}
