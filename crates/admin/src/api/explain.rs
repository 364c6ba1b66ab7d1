//! Gathers the facts for an explanation.

use auth::{QueueLimits, Suspect};
use base::{Dispatch, Interest, Key, Member, Principal};
use ledger::OperatorAnswer;
use topic::TopicName;
use wire::{MessageProperties, Qos};

use super::clients::Look;
use super::{clients, outcomes, unix_secs};
use crate::answer::{Answer, Failure};
use crate::asked::Asked;
use crate::asking;
use crate::explain::seek::next_behind;
use crate::explain::{
    Broker, Choice, Connection, Group, Memory, Publisher, Queue, Receiver, Situation, explain, matches,
};
use crate::server::Shared;

/// Up to this number of subscriptions, all are read: the answer then names all filters that nearly match.
const ALL_READ_MAX: usize = 10_000;
/// Maximum number of questions about the subscriptions of a client. A topic of five levels matches at most 94 filters.
const PIECES_MAX: usize = 128;
/// Maximum number of groups about which an explanation says more than that they share.
const GROUPS_MAX: usize = 8;
/// Maximum number of questions about the members of a group.
const MEMBER_PIECES_MAX: usize = 8;

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
    let of_publisher = clients::look(shared, publisher).await?;
    let of_subscriber = clients::look(shared, subscriber).await?;
    let publisher_principal = of_publisher.as_ref().and_then(principal);
    let subscriber_principal = of_subscriber.as_ref().and_then(principal);
    let publisher_ban = ban(shared, publisher, publisher_principal);
    let subscriber_ban = ban(shared, subscriber, subscriber_principal);
    let in_force = shared.control.in_force();
    let guard = shared.operator.guard();
    // The rules are read after the number that says whether there are some, as shards do.
    let (has_rules, realms) = (guard.has_rules(), guard.current());
    let gathered = match &of_subscriber {
        Some(found) => Some(gather(shared, subscriber, found, (publisher, topic)).await?),
        None => None,
    };
    let last_messages = outcomes::on_path(shared, subscriber, (publisher, topic)).await?;
    let parts = of_subscriber.as_ref().zip(subscriber_principal).zip(gathered.as_ref());
    let receiver = parts.map(|((found, principal), gathered)| {
        let limits = realms.queue_limits(principal);
        receiver(found, principal, gathered, queue(found, limits, in_force.queue))
    });
    let connected = of_publisher.as_ref().and_then(|found| found.client.as_ref());
    let situation = Situation {
        publisher: Publisher {
            client_id: publisher,
            principal: publisher_principal,
            ban: publisher_ban.as_deref(),
            limits: connected.map(|client| client.limits),
            is_blocked: connected.is_some_and(|client| client.is_blocked),
        },
        topic,
        qos,
        subscriber,
        subscriber_ban: subscriber_ban.as_deref(),
        receiver,
        broker: Broker {
            realms: &realms,
            has_rules,
            topic_levels_max: in_force.topic_levels_max,
            queue_full: in_force.queue.when_full,
            memory: memory(shared),
        },
    };
    let mut explained = explain(&situation).value();
    explained["last_messages"] = last_messages;
    Ok(Answer::json(&explained))
}

fn principal(found: &Look) -> Option<&Principal> {
    let of_client = found.client.as_ref().map(|client| &*client.principal);
    of_client.or_else(|| found.session.as_ref().map(|session| &*session.principal))
}

fn receiver<'a>(
    found: &Look,
    principal: &'a Principal,
    gathered: &'a Gathered,
    queue: Queue,
) -> Receiver<'a> {
    let client = found.client.as_ref();
    let queued = found.session.as_ref().map_or(0, |session| session.queued_messages);
    Receiver {
        principal,
        connection: client.map(|client| Connection {
            level: client.level,
            limits: client.limits,
            in_flight: client.in_flight,
        }),
        is_lasting: found.session.is_some(),
        subscriptions: &gathered.subscriptions,
        has_all: gathered.has_all,
        subscription_count: subscription_count(found),
        groups: &gathered.groups,
        queue,
        waiting: queued + client.map_or(0, |client| client.waiting_messages),
    }
}

fn subscription_count(found: &Look) -> usize {
    let of_client = found.client.as_ref().map_or(0, |client| client.subscriptions);
    let of_session = found.session.as_ref().map_or(0, |session| session.subscriptions);
    of_client.max(of_session)
}

/// The queue of a session, with the lower bounds of its roles and of the configuration. The queue of a session that ends
/// with its connection is behind its window.
fn queue(found: &Look, of_roles: QueueLimits, of_all: crate::control::Queue) -> Queue {
    let (messages, bytes) = match (&found.session, &found.client) {
        (Some(session), _) => (session.queued_messages, session.queued_bytes),
        (None, Some(client)) => (client.waiting_messages, client.waiting_bytes),
        (None, None) => (0, 0),
    };
    let messages_max = of_roles.messages_max.and_then(|most| usize::try_from(most).ok());
    let bytes_max = of_roles.bytes_max.and_then(|most| usize::try_from(most).ok());
    Queue {
        messages,
        messages_max: messages_max.map_or(of_all.messages_max, |most| most.min(of_all.messages_max)),
        bytes,
        bytes_max: bytes_max.map_or(of_all.bytes_max, |most| most.min(of_all.bytes_max)),
    }
}

fn memory(shared: &Shared) -> Memory {
    let operator = &shared.operator;
    if operator.is_memory_full() {
        Memory::Full
    } else if operator.is_memory_short() {
        Memory::Short
    } else if operator.is_memory_short_to_keep() {
        Memory::ShortToKeep
    } else {
        Memory::Enough
    }
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

/// The subscriptions of a client, as far as an explanation needs them.
struct Gathered {
    subscriptions: Vec<(Box<str>, Option<Interest>)>,
    has_all: bool,
    groups: Vec<Group>,
}

async fn gather(
    shared: &Shared,
    client_id: &str,
    found: &Look,
    (publisher, topic): (&str, &str),
) -> Result<Gathered, Failure> {
    let (mut subscriptions, mut has_all) = (Vec::new(), false);
    let Ok(topic) = TopicName::new(topic) else {
        return Ok(Gathered { subscriptions, has_all, groups: Vec::new() });
    };
    let is_long = subscription_count(found) > ALL_READ_MAX;
    let mut after = String::new();
    for _ in 0..PIECES_MAX {
        let (piece, has_more) = clients::read_subscriptions(shared, client_id, &after).await?;
        let last = piece.last().map(|(filter, _)| filter.to_string()).filter(|_| has_more);
        subscriptions.extend(piece);
        let next = if is_long { last.and_then(|last| next_behind(&last, topic)) } else { last };
        let Some(next) = next else {
            has_all = true;
            break;
        };
        after = next;
    }
    // A seek that goes back a little reads some filters twice.
    subscriptions.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    subscriptions.dedup_by(|(one, _), (other, _)| one == other);
    let shares = subscriptions.iter().filter(|(filter, _)| filter.starts_with("$share/"));
    let matching = shares.filter(|(filter, _)| matches(filter, topic)).take(GROUPS_MAX);
    let mut groups = Vec::new();
    for (filter, _) in matching {
        groups.extend(group(shared, filter, publisher).await?);
    }
    Ok(Gathered { subscriptions, has_all, groups })
}

/// The facts about a group. `None` if it has just ended.
async fn group(shared: &Shared, filter: &str, publisher: &str) -> Result<Option<Group>, Failure> {
    let question = ledger::Question::Group { filter: filter.into() };
    let OperatorAnswer::Group(found) = asking::ledger(&shared.operator, question).await? else {
        unreachable!("it answers its question")
    };
    let Some(found) = found else { return Ok(None) };
    let choice = match &found.dispatch {
        Dispatch::RoundRobin => Choice::InTurn,
        Dispatch::KeyOrdered(Key::Property(name)) => Choice::ByProperty((**name).into()),
        Dispatch::KeyOrdered(Key::Publisher) => {
            let members = members(shared, filter).await?;
            Choice::ByPublisher(members.and_then(|members| owner(&found.dispatch, &members, publisher)))
        }
    };
    let of_all = shared.control.in_force().queue;
    Ok(Some(Group {
        filter: filter.into(),
        members: found.members,
        connected: found.connected,
        choice,
        queue: Queue {
            messages: found.queued_messages + found.returned,
            messages_max: of_all.messages_max,
            bytes: found.queued_bytes,
            bytes_max: of_all.bytes_max,
        },
    }))
}

/// The members of a group. `None` if they are too many.
async fn members(shared: &Shared, filter: &str) -> Result<Option<Vec<Member>>, Failure> {
    let (mut all, mut from) = (Vec::new(), 0);
    for _ in 0..MEMBER_PIECES_MAX {
        let question = ledger::Question::Members { filter: filter.into(), from };
        let OperatorAnswer::Members(found) = asking::ledger(&shared.operator, question).await? else {
            unreachable!("it answers its question")
        };
        let Some((piece, next)) = found else { return Ok(None) };
        all.extend(piece);
        let Some(next) = next else { return Ok(Some(all)) };
        from = next;
    }
    Ok(None)
}

/// The member that owns the key of a publisher: the connected one with the strongest claim.
fn owner(dispatch: &Dispatch, members: &[Member], publisher: &str) -> Option<Box<str>> {
    let lane = dispatch.lane(Some(publisher), MessageProperties::default)?;
    let connected = members.iter().filter(|member| member.subscriber.place().is_some());
    let strongest = connected.max_by_key(|member| lane.claim_of(&member.subscriber.client_id))?;
    Some((*strongest.subscriber.client_id).into())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use auth::{Access, Holder, Limits, Realms, RolesBuilder};
    use base::{ConnectionId, Place, QueueId, ShardId, Subscriber};
    use ledger::SessionFacts;

    use super::*;

    fn look(queued_messages: usize, queued_bytes: usize) -> Look {
        let session = SessionFacts {
            slot: 0,
            client_id: "frog".into(),
            principal: Principal::anonymous(),
            is_connected: false,
            expiry_secs: 60,
            expires_in_ms: None,
            left_unix_ms: None,
            subscriptions: 1,
            queued_messages,
            queued_bytes,
            in_flight: 0,
            has_will: false,
        };
        Look { client: None, session: Some(session) }
    }

    #[test]
    fn the_lower_bounds_of_roles_and_configuration_are_explained() {
        let mut builder = RolesBuilder::default();
        for (user, limits) in [
            ("ann", QueueLimits { messages_max: Some(3), bytes_max: None }),
            ("eve", QueueLimits { messages_max: None, bytes_max: Some(64) }),
        ] {
            let role = builder.role(user);
            builder.limit(role, Limits { queue: limits, ..Limits::default() });
            builder.give(Holder::User(user), role);
        }
        let access = Access::new(None, None).with_roles(builder.build().expect("no rules"));
        let realms = Realms::new(vec![("".into(), Arc::new(access))]);
        let of = |user: &str, messages_max: usize, bytes_max: usize| {
            let principal = Principal { user: Some(user.into()), ..Principal::default() };
            let of_all = crate::control::Queue { messages_max, bytes_max, when_full: "refuse" };
            let queue = queue(&look(2, 20), realms.queue_limits(&principal), of_all);
            assert_eq!((queue.messages, queue.bytes), (2, 20));
            (queue.messages_max, queue.bytes_max)
        };
        assert_eq!(of("ann", 100, 1_000), (3, 1_000));
        assert_eq!(of("ann", 2, 1_000), (2, 1_000));
        assert_eq!(of("eve", 100, 1_000), (100, 64));
        assert_eq!(of("eve", 100, 32), (100, 32));
        assert_eq!(of("bob", 100, 1_000), (100, 1_000));
    }

    /// The group itself decides in the same way: `base::Members`.
    #[test]
    fn the_owner_of_a_key_is_the_connected_member_with_the_strongest_claim() {
        let dispatch = Dispatch::KeyOrdered(Key::Publisher);
        let connection = ConnectionId { slot: 1, generation: 0 };
        let member = |number: u32| {
            let name: Arc<str> = format!("member-{number}").into();
            let subscriber = Arc::new(Subscriber::lasting(name, QueueId { slot: number, generation: 0 }));
            subscriber.move_to((number > 0).then_some(Place { shard: ShardId::new(0), connection }));
            Member { subscriber, interest: Interest::new(Qos::AtLeastOnce) }
        };
        let members: Vec<Member> = (0..4).map(member).collect();
        let owners: Vec<Box<str>> = (0..100)
            .map(|number| owner(&dispatch, &members, &format!("toad-{number}")).expect("one is connected"))
            .collect();
        for number in 1..4 {
            assert!(owners.contains(&format!("member-{number}").into()));
        }
        assert!(!owners.contains(&"member-0".into()), "it is not connected");
        assert_eq!(owner(&Dispatch::RoundRobin, &members, "toad"), None);
    }
}
