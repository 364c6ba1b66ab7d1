//! Gathers the facts for an explanation.

use std::sync::Arc;

use auth::{Realms, Suspect};
use base::{Interest, Level, Principal};
use wire::Qos;

use super::{clients, unix_secs};
use crate::answer::{Answer, Failure};
use crate::explain::{Receiver, Situation, explain};
use crate::server::{Asked, Shared};

/// Maximum number of questions about the subscriptions of a client: more than 10,000 subscriptions are not all read.
const PIECES_MAX: usize = 40;

/// The facts about a subscriber, with all that a [`Receiver`] borrows.
struct Gathered {
    principal: Arc<Principal>,
    level: Option<Level>,
    waiting: usize,
    subscriptions: Vec<(Box<str>, Option<Interest>)>,
    has_all: bool,
}

pub(crate) async fn answer(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let given = |name: &str| {
        let value = asked.parameter(name).filter(|value| !value.is_empty());
        value.ok_or_else(|| Failure::bad(format!("the parameter {name} is missing")))
    };
    let (publisher, topic, subscriber) = (given("publisher")?, given("topic")?, given("subscriber")?);
    let qos = match asked.parameter("qos").unwrap_or("0") {
        "0" => Qos::AtMostOnce,
        "1" => Qos::AtLeastOnce,
        "2" => Qos::ExactlyOnce,
        _ => return Err(Failure::bad("qos is 0, 1 or 2")),
    };
    let publisher_principal = match clients::look(shared, publisher).await? {
        Some(found) => Some(found.principal),
        None => None,
    };
    let gathered = gather(shared, subscriber).await?;
    let publisher_ban = ban(shared, publisher, publisher_principal.as_deref());
    let subscriber_ban = ban(shared, subscriber, gathered.as_ref().map(|gathered| &*gathered.principal));
    let (realms, queue) = (shared.operator.guard().current(), shared.control.in_force().queue);
    let receiver = gathered.as_ref().map(|gathered| Receiver {
        principal: &gathered.principal,
        level: gathered.level,
        subscriptions: &gathered.subscriptions,
        has_all: gathered.has_all,
        waiting: (gathered.waiting, messages_max(&realms, &gathered.principal, queue.messages_max)),
        queue_full: queue.when_full,
    });
    let publisher_principal = publisher_principal.as_deref();
    let situation = Situation {
        publisher,
        publisher_principal,
        topic,
        qos,
        subscriber,
        publisher_ban: publisher_ban.as_deref(),
        subscriber_ban: subscriber_ban.as_deref(),
        receiver,
        realms: &realms,
    };
    Ok(Answer::json(&explain(&situation).value()))
}

/// The most messages that wait for a session of a user: by its roles, and by the configuration.
fn messages_max(realms: &Realms, principal: &Principal, of_all: usize) -> usize {
    let of_roles = realms.queue_limits(principal).messages_max;
    of_roles.and_then(|most| usize::try_from(most).ok()).map_or(of_all, |most| most.min(of_all))
}

/// The ban that keeps a client out, in words. The address of a client that is not connected is not known.
fn ban(shared: &Shared, client_id: &str, principal: Option<&Principal>) -> Option<String> {
    let guard = shared.operator.guard();
    if !guard.has_bans() {
        return None;
    }
    let user = principal.and_then(|principal| principal.user.as_deref());
    let bans = guard.bans();
    let (whom, terms) = bans.find(&Suspect { client_id, user, address: None }, unix_secs())?;
    let reason = if terms.reason.is_empty() { String::new() } else { format!(": {}", terms.reason) };
    let kind = whom.kind().replace('_', " ");
    Some(format!("{kind} {whom}{reason}"))
}

async fn gather(shared: &Shared, client_id: &str) -> Result<Option<Gathered>, Failure> {
    let Some(found) = clients::look(shared, client_id).await? else { return Ok(None) };
    let (mut subscriptions, mut has_all) = (Vec::new(), false);
    for _ in 0..PIECES_MAX {
        let after: Box<str> =
            subscriptions.last().map_or_else(Box::default, |(filter, _): &(Box<str>, _)| filter.clone());
        let (piece, has_more) = clients::read_subscriptions(shared, client_id, &after).await?;
        subscriptions.extend(piece);
        has_all = !has_more;
        if has_all {
            break;
        }
    }
    let clients::Look { principal, level, waiting } = found;
    Ok(Some(Gathered { principal, level, waiting, subscriptions, has_all }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use auth::{Access, Holder, Limits, QueueLimits, RolesBuilder};

    #[test]
    fn the_lower_bound_of_roles_and_configuration_is_explained() {
        let mut builder = RolesBuilder::default();
        let role = builder.role("small");
        builder.limit(
            role,
            Limits { queue: QueueLimits { messages_max: Some(3), bytes_max: None }, ..Limits::default() },
        );
        builder.give(Holder::User("ann"), role);
        let access = Access::new(None, None).with_roles(builder.build().expect("no rules"));
        let realms = Realms::new(vec![("".into(), Arc::new(access))]);
        let of = |user: &str| Principal { user: Some(user.into()), ..Principal::default() };
        assert_eq!(messages_max(&realms, &of("ann"), 100), 3);
        assert_eq!(messages_max(&realms, &of("ann"), 2), 2);
        assert_eq!(messages_max(&realms, &of("bob"), 100), 100);
    }
}
