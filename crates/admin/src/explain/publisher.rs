//! The part of an explanation about the publisher: its topic, its rights and its connection.

use auth::{Action, Permit};
use topic::TopicName;

use super::rights::may;
use super::{Explanation, Outcome, Situation};

/// Follows the message until the broker looks for subscribers.
///
/// # Errors
/// The message ends before that.
pub(super) fn publish(
    mut so_far: Explanation,
    of: &Situation<'_>,
    topic: TopicName<'_>,
) -> Result<Explanation, Explanation> {
    let (name, text) = (of.publisher.client_id, of.topic);
    if let Some(ban) = of.publisher.ban {
        let text = format!("{name} is banned ({ban}): it cannot connect, and publishes nothing");
        return Err(so_far.not_delivered("publisher_banned", text));
    }
    if let Some(limits) = of.publisher.limits {
        if of.qos > limits.qos_max {
            let text = format!(
                "the listener of {name} allows at most QoS {}: a message of QoS {} ends the connection",
                limits.qos_max as u8, of.qos as u8
            );
            return Err(so_far.not_delivered("qos_not_supported", text));
        }
        if !limits.retain_available {
            so_far.steps.push(format!(
                "the listener of {name} has no retained messages: a message with RETAIN ends the connection"
            ));
        }
    }
    let first = topic.first_level();
    if first == "$SYS" {
        let text = "topics below $SYS are the broker's: messages of clients to them are dropped";
        return Err(so_far.not_delivered("reserved_topic", text));
    }
    if first == "$share" {
        let text = "$share begins filters of shared subscriptions, and no topic: the message is refused";
        return Err(so_far.not_delivered("reserved_topic", text));
    }
    let (levels, levels_max) = (topic.level_count(), of.broker.topic_levels_max);
    if levels > levels_max {
        let text =
            format!("the topic has {levels} levels, and `topic_levels` allows {levels_max}: it is refused");
        return Err(so_far.not_delivered("too_many_levels", text));
    }
    let so_far = authorize(so_far, of, topic)?;
    if of.broker.realms.controls(topic) {
        let text = format!("{text} is for commands of dynamic security: the broker itself takes the message");
        return Err(so_far.not_delivered("control_topic", text));
    }
    Ok(so_far)
}

/// Checks the rights of the publisher.
fn authorize(
    mut so_far: Explanation,
    of: &Situation<'_>,
    topic: TopicName<'_>,
) -> Result<Explanation, Explanation> {
    let (name, realms) = (of.publisher.client_id, of.broker.realms);
    let Some(principal) = of.publisher.principal else {
        so_far.steps.push(match of.broker.has_rules {
            true => format!(
                "{name} is not connected and has no session: the broker cannot know its user and its rights"
            ),
            false => format!("{name} is not connected, and may publish: there are no rules"),
        });
        return Ok(so_far);
    };
    match may(realms, principal, (name, topic), Action::Publish) {
        Ok(text) => so_far.steps.push(text),
        Err(text) => return Err(so_far.not_delivered("publish_not_authorized", text)),
    }
    let permit = match of.broker.has_rules {
        true => realms.permit(principal, name, topic),
        false => Permit::ALL,
    };
    if !permit.allows(of.qos, false) {
        let qos_max = permit.qos_max().map_or(0, |qos| qos as u8);
        let text = format!(
            "the rules allow {name} at most QoS {qos_max} there: a message of QoS {} is refused",
            of.qos as u8
        );
        return Err(so_far.not_delivered("publish_qos_not_authorized", text));
    }
    if !permit.allows(of.qos, true) {
        so_far.steps.push(format!("the rules allow {name} no RETAIN there: such a message is refused"));
    }
    Ok(so_far)
}

/// Limits an outcome to what is known about the publisher.
pub(super) fn limit(ended: Explanation, of: &Situation<'_>) -> Explanation {
    let name = of.publisher.client_id;
    if matches!(ended.outcome, Outcome::NotDelivered | Outcome::Unknown) {
        return ended;
    }
    if of.publisher.principal.is_none() && of.broker.has_rules {
        let text = format!("this holds only if {name} may publish to {}, which is not known", of.topic);
        return ended.end(Outcome::Unknown, "publisher_not_connected", text);
    }
    if of.publisher.is_blocked && ended.outcome == Outcome::Delivered {
        let text = format!("{name} is not read now, because one of its receivers has no room: messages wait");
        return ended.end(Outcome::Waits, "publisher_blocked", text);
    }
    ended
}
