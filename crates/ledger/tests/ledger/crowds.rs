//! Many groups and many members: what they cost is bounded, and spread over turns.

use std::sync::Arc;

use base::{Dispatch, Key};
use ledger::Settings;
use protocol::{Cause, Command, Reply};
use wire::ReasonCode;

use crate::stage::{Ask, Client, QOS_0, QOS_1, Stage, at_qos, count, message, packet_id, payloads};

/// One SUBSCRIBE to shared filters. Returns which of them are refused.
fn subscribe(stage: &mut Stage, client: &Client, filters: &[String]) -> Vec<String> {
    let command = Command::Subscribe {
        subscriber: Arc::clone(&client.subscriber),
        connection: client.place.connection,
        packet_id: packet_id(77),
        subscriptions: filters.iter().map(|filter| (filter.as_str().into(), at_qos(QOS_1))).collect(),
        retained: Vec::new(),
    };
    stage.handle(client.place.shard, command);
    let is_it = |(_, reply): &(_, Reply)| matches!(reply, Reply::Recorded { .. });
    let place = stage.sink.replies.iter().rposition(is_it).expect("it is answered");
    let (_, Reply::Recorded { reason, refused, .. }) = stage.sink.replies.remove(place) else { panic!() };
    assert_eq!(reason, ReasonCode::Success);
    refused.iter().for_each(|(place, filter)| assert_eq!(filters[*place], **filter));
    refused.into_iter().map(|(_, filter)| filter.into()).collect()
}

/// `$share/NAME1/t`, `$share/NAME2/t`, …
fn groups(name: &str, count: usize, filter: &str) -> Vec<String> {
    (1..=count).map(|number| format!("$share/{name}{number}/{filter}")).collect()
}

/// How often the ledger works until it has nothing to do.
fn turns(stage: &mut Stage) -> usize {
    (0..)
        .take_while(|_| {
            let has_work = stage.ledger.has_work();
            stage.ledger.work(stage.now, &mut stage.sink);
            stage.sync();
            has_work
        })
        .count()
}

/// One client must not make a message cost more than its share, whatever the groups are called.
#[test]
fn a_client_is_a_member_of_a_bounded_number_of_groups() {
    for ask in [Ask::clean(), Ask::lasting(60)] {
        let mut stage = Stage::with(Settings { shared_subscriptions_max: 3, ..Settings::default() });
        let greedy = stage.client("greedy", &ask);
        let all = groups("g", 5, "t");
        assert_eq!(subscribe(&mut stage, &greedy, &all), all[3..]);
        assert_eq!(stage.targets("t").groups.len(), 3);
        assert_eq!(count(&stage.gauges().shared_subscriptions_refused), 2);
        assert_eq!(count(&stage.gauges().groups), 3, "no group without members is left");
        // Existing subscriptions can be requested again, and twice in one packet.
        assert!(subscribe(&mut stage, &greedy, &[all[0].clone(), all[0].clone()]).is_empty());
        stage.unsubscribe(&greedy, &all[0]);
        assert!(subscribe(&mut stage, &greedy, &all[3..4]).is_empty(), "there is room again");
        assert_eq!(subscribe(&mut stage, &greedy, &all[4..]), all[4..]);
        stage.leave_with(&greedy, Cause::Normal, Some(0));
        stage.work();
        assert_eq!((count(&stage.gauges().groups), stage.targets("t").groups.len()), (0, 0));
        stage.check_account();
    }
}

/// However many clients ask for them; and one client cannot lock out the others.
#[test]
fn there_is_a_bounded_number_of_groups_on_one_filter() {
    let settings =
        Settings { groups_per_filter_max: 10, shared_subscriptions_max: 100, ..Settings::default() };
    let mut stage = Stage::with(settings);
    let greedy = stage.client("greedy", &Ask::clean());
    assert_eq!(subscribe(&mut stage, &greedy, &groups("g", 20, "t")).len(), 15, "it gets half of them");
    assert!(subscribe(&mut stage, &greedy, &groups("g", 5, "u")).is_empty(), "another filter is another one");
    let other = stage.client("other", &Ask::lasting(60));
    assert_eq!(subscribe(&mut stage, &other, &groups("h", 6, "t")), ["$share/h6/t"]);
    let third = stage.client("third", &Ask::clean());
    assert_eq!(subscribe(&mut stage, &third, &groups("i", 1, "t")), ["$share/i1/t"]);
    assert!(subscribe(&mut stage, &third, &groups("h", 5, "t")).is_empty(), "whoever joins is welcome");
    assert_eq!(stage.targets("t").groups.len(), 10);
    stage.leave(&greedy, Cause::Normal);
    stage.work();
    assert!(subscribe(&mut stage, &third, &groups("i", 5, "t")).is_empty());
    assert_eq!(stage.targets("t").groups.len(), 10);
    // Neither bound undoes what was recorded before it was lowered.
    let records: Vec<_> = stage.sink.groups.drain(..).flat_map(|(_, group)| group).collect();
    let (index, last) = (Arc::new(index::Subscriptions::new([3, 4])), stage.last());
    let lowered = Settings { groups_per_filter_max: 1, shared_subscriptions_max: 1, ..Settings::default() };
    let ledger = ledger::Ledger::recover(lowered, Arc::clone(&index), records, stage.now);
    stage.restart(ledger, index, last);
    assert_eq!(stage.targets("t").groups.len(), 5);
}

/// A client that leaves its groups may begin as many new ones.
#[test]
fn a_client_that_leaves_its_groups_may_begin_others() {
    let settings =
        Settings { groups_per_filter_max: 10, shared_subscriptions_max: 100, ..Settings::default() };
    let mut stage = Stage::with(settings);
    let client = stage.client("client", &Ask::clean());
    for name in ["g", "h", "i"] {
        let all = groups(name, 5, "t");
        assert!(subscribe(&mut stage, &client, &all).is_empty(), "{name}: half of the groups are its own");
        // One group stays, so that the ledger still counts for this client.
        all[1..].iter().for_each(|filter| stage.unsubscribe(&client, filter));
        assert_eq!(subscribe(&mut stage, &client, &groups("another", 5, "t")).len(), 1);
        groups("another", 4, "t")
            .iter()
            .chain(&all[..1])
            .for_each(|filter| stage.unsubscribe(&client, filter));
    }
}

/// Keys get their members bit by bit: who joins many groups holds up nobody for long.
#[test]
fn joining_many_groups_with_keys_is_spread_over_turns() {
    const GROUPS: usize = 200;
    let dispatch = Dispatch::KeyOrdered(Key::Publisher);
    let mut stage =
        Stage::with(Settings { dispatch, shared_subscriptions_max: GROUPS, ..Settings::default() });
    let all: Vec<String> = (0..GROUPS).map(|number| format!("$share/g/{number}")).collect();
    let names = ["first", "second"];
    let members = names.map(|name| stage.client(name, &Ask::lasting(60).window(1_000)));
    for (number, member) in members.iter().enumerate() {
        assert!(subscribe(&mut stage, member, &all).is_empty());
        assert!(turns(&mut stage) >= 20 * (number + 1), "a turn works out a bounded number of claims");
    }
    for number in 0..GROUPS {
        stage.emit(&message(&number.to_string(), b"for the owner of its key", QOS_1));
    }
    let got: Vec<usize> = members.iter().map(|member| stage.delivered(member).len()).collect();
    assert!(got == [GROUPS, 0] || got == [0, GROUPS], "one publisher has one member in each group: {got:?}");
    let owner = usize::from(got[0] == 0);
    stage.leave(&members[owner], Cause::Normal);
    assert!(turns(&mut stage) >= 20);
    assert_eq!(stage.delivered(&members[1 - owner]).len(), GROUPS);
    stage.check_account();
}

/// A group whose members come all at once is one of the groups to be looked at, however many come.
#[test]
fn a_crowd_that_joins_one_group_does_not_put_off_the_keys_of_another() {
    const CROWD: usize = 100;
    let dispatch = Dispatch::KeyOrdered(Key::Publisher);
    let mut stage = Stage::with(Settings { dispatch, ..Settings::default() });
    let names = (0..CROWD).map(|number| number.to_string());
    let crowd: Vec<Client> = names.map(|name| stage.client(&name, &Ask::lasting(60))).collect();
    let alone = stage.client("alone", &Ask::lasting(60));
    for member in &crowd {
        assert!(subscribe(&mut stage, member, &groups("g", 1, "t")).is_empty());
    }
    assert!(subscribe(&mut stage, &alone, &groups("h", 1, "u")).is_empty());
    stage.emit(&message("u", b"for one", QOS_1));
    for _ in 0..4 {
        stage.ledger.work(stage.now, &mut stage.sink);
        stage.sync();
    }
    assert!(stage.ledger.has_work(), "the crowd takes longer");
    let is_it = |(_, reply): &(_, Reply)| matches!(reply, Reply::Deliver(deliver) if deliver.connection == alone.place.connection);
    assert_eq!(stage.sink.replies.iter().filter(|reply| is_it(reply)).count(), 1);
    stage.check_account();
}

/// Members that take nothing are found out in their turn, and no turn asks all of them.
#[test]
fn a_crowd_without_room_is_asked_bit_by_bit() {
    const MEMBERS: usize = 3_000;
    let mut stage = Stage::new();
    let members: Vec<Client> = (0..MEMBERS)
        .map(|number| {
            let member = stage.client(&number.to_string(), &Ask::clean().window(1));
            assert!(subscribe(&mut stage, &member, &groups("g", 1, "t")).is_empty());
            member
        })
        .collect();
    (0..MEMBERS).for_each(|_| stage.emit(&message("t", b"one for each", QOS_1)));
    stage.work();
    assert_eq!(count(&stage.gauges().in_flight), MEMBERS);
    stage.emit(&message("t", b"one more", QOS_1));
    assert!(turns(&mut stage) >= MEMBERS / 1_000);
    assert_eq!(count(&stage.gauges().queued), 1);
    let last = stage.delivered(&members[7]);
    stage.acknowledge(&members[7], last[0].what, ReasonCode::Success);
    assert_eq!(payloads(&stage.delivered(&members[7])), ["one more"]);
    stage.check_account();
}

/// A member without room has a place in a line for each of its groups, which it gives up when it leaves them.
#[test]
fn room_goes_to_the_groups_that_a_member_has_not_left() {
    let mut stage = Stage::new();
    let member = stage.client("member", &Ask::lasting(60).window(1));
    let all = groups("g", 50, "t");
    assert!(subscribe(&mut stage, &member, &all).is_empty());
    let keeper = stage.client("keeper", &Ask::lasting(60));
    assert!(subscribe(&mut stage, &keeper, &all).is_empty());
    stage.leave(&keeper, Cause::Normal);
    stage.emit(&message("t", b"for each group", QOS_1));
    let first = stage.delivered(&member);
    assert_eq!(first.len(), 1);
    for filter in &all[..48] {
        stage.unsubscribe(&member, filter);
    }
    // One that it joins again has a place behind the others, and one only.
    assert!(subscribe(&mut stage, &member, &all[..1]).is_empty());
    let mut what = first[0].what;
    for _ in 0..3 {
        stage.acknowledge(&member, what, ReasonCode::Success);
        let delivered = stage.delivered(&member);
        let [deliver] = &delivered[..] else { break };
        what = deliver.what;
    }
    stage.acknowledge(&member, what, ReasonCode::Success);
    assert!(stage.delivered(&member).is_empty());
    assert_eq!(count(&stage.gauges().queued), 47);
    stage.check_account();
}

/// Groups that a member has left cost nothing when it has room again, however many had something for it.
#[test]
fn a_member_with_room_does_not_look_at_groups_that_it_has_left() {
    const GROUPS: usize = 5_000;
    let mut stage = Stage::with(Settings { shared_subscriptions_max: GROUPS, ..Settings::default() });
    let all: Vec<String> = (0..GROUPS).map(|number| format!("$share/g{number}/{}", number % 10)).collect();
    let [keeper, member] = ["keeper", "member"].map(|name| stage.client(name, &Ask::lasting(60).window(1)));
    assert!(subscribe(&mut stage, &keeper, &all).is_empty());
    stage.leave(&keeper, Cause::Normal);
    assert!(subscribe(&mut stage, &member, &all).is_empty());
    (0..10).for_each(|number| stage.emit(&message(&number.to_string(), b"for each group", QOS_1)));
    let held = stage.delivered(&member);
    let filters = all[..GROUPS - 1].iter().map(|filter| filter.as_str().into()).collect();
    let (subscriber, connection) = (Arc::clone(&member.subscriber), member.place.connection);
    let packet_id = packet_id(78);
    stage.handle(member.place.shard, Command::Unsubscribe { subscriber, connection, packet_id, filters });
    turns(&mut stage);
    stage.acknowledge(&member, held[0].what, ReasonCode::Success);
    assert!(turns(&mut stage) <= 2);
    assert_eq!(stage.delivered(&member).len(), 1);
    stage.check_account();
}

/// QoS 0 goes to members that are connected, as they come and go.
#[test]
fn qos_0_follows_members_that_go_and_come_back() {
    let mut stage = Stage::new();
    let filter = groups("g", 1, "t");
    let stays = stage.client("stays", &Ask::clean());
    assert!(subscribe(&mut stage, &stays, &filter).is_empty());
    for round in 0..3 {
        let (lasting, clean) =
            (stage.client("lasting", &Ask::lasting(60)), stage.client("clean", &Ask::clean()));
        if round == 0 {
            assert!(subscribe(&mut stage, &lasting, &filter).is_empty());
        }
        assert!(subscribe(&mut stage, &clean, &filter).is_empty());
        stage.replies();
        (0..30).for_each(|_| stage.emit(&message("t", b"in turn", QOS_0)));
        for member in [&stays, &lasting, &clean] {
            assert_eq!(stage.live(member).len(), 10);
        }
        stage.leave(&lasting, Cause::Normal);
        stage.leave(&clean, Cause::Normal);
        stage.replies();
        (0..30).for_each(|_| stage.emit(&message("t", b"for one", QOS_0)));
        assert_eq!(stage.live(&stays).len(), 30);
    }
}
