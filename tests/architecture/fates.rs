//! The counters of what becomes of messages: one file of a shard, and one of the ledger, writes them.

use std::collections::BTreeSet;

use crate::source::{Member, Source};

/// Counters that one file alone may write.
struct Home {
    crate_name: &'static str,
    path: &'static str,
    /// Names of the values whose fields the counters are.
    holders: &'static [&'static str],
    counters: &'static [&'static str],
}

const HOMES: &[Home] = &[
    Home {
        crate_name: "broker",
        path: "crates/broker/src/fates.rs",
        holders: &["counters", "counts", "counts_of", "nobody"],
        counters: &[
            "routed",
            "sent_once",
            "acknowledged",
            "in_flight",
            "waiting",
            "discarded_session",
            "dropped_absent",
            "dropped_queue_full",
            "dropped_slow",
            "dropped_budget",
            "dropped_too_large",
            "dropped_expired",
            "dropped_denied",
            "dropped_topic",
            "publish_dropped",
            "denied_publish",
            "denied_level",
            "denied_receive",
            "refused_publish",
            "refused_control",
            "no_subscribers",
        ],
    },
    Home {
        crate_name: "ledger",
        path: "crates/ledger/src/lines/fates.rs",
        holders: &["gauges"],
        counters: &[
            "routed",
            "acknowledged",
            "refused_by_client",
            "in_flight",
            "queued",
            "queued_bytes",
            "expired",
            "too_large",
            "dropped_oldest",
            "dropped_newest",
            "discarded",
            "discarded_by_operator",
            "moved_by_operator",
        ],
    },
];

/// Every place outside of its home that reaches such a counter, other than to read its value.
pub(crate) fn findings(sources: &[Source]) -> Vec<String> {
    let code = sources.iter().filter(|source| !source.is_of_tests());
    let homes = code.filter_map(|source| Some((source, home(source)?)));
    homes
        .filter(|(source, home)| source.path != home.path)
        .flat_map(|(source, home)| {
            let finding =
                |(line, name)| source.finding(line, format!("{name} is written in {} alone", home.path));
            writes(source, home).into_iter().map(finding).collect::<Vec<_>>()
        })
        .collect()
}

fn home(source: &Source) -> Option<&'static Home> {
    HOMES.iter().find(|home| Some(home.crate_name) == source.crate_name())
}

/// The lines and names of the counters that a file changes, or lends to code that may change them.
fn writes(source: &Source, home: &Home) -> BTreeSet<(usize, String)> {
    let members = source.members().into_iter().filter(|member| is_written(home, member));
    // The ledger changes its counters by functions, whose argument may be borrowed or taken from a pattern.
    let arguments = source.first_arguments().into_iter();
    let arguments = arguments.filter(|argument| {
        let is_change = ["add", "subtract", "shift"].contains(&&*argument.function);
        home.crate_name == "ledger" && is_change && home.counters.contains(&&*argument.name)
    });
    let members = members.map(|member| (member.line, member.name));
    members.chain(arguments.map(|argument| (argument.line, argument.name))).collect()
}

fn is_written(home: &Home, member: &Member) -> bool {
    let is_held = home.holders.contains(&&*member.of) && member.then != "value";
    // Any value of the broker may hold counters. Other values of the ledger have other fields of these names.
    let is_lent = home.crate_name == "broker" && member.is_borrowed && member.then != "value";
    let is_changed = ["add", "sub", "store"].contains(&&*member.then);
    // A shard has other fields of these names.
    let is_counter = is_held || (member.of != "self" && (is_lent || is_changed));
    home.counters.contains(&&*member.name) && is_counter
}

#[test]
fn a_counter_that_is_written_elsewhere_is_found_and_one_that_is_read_is_not() {
    let broker = "fn a() {\n self.counters.dropped_slow.add(1);\n self.counts_of(id)\n .waiting.sub(1);\n\
        let c = [&counters.routed];\n counter.in_flight.add(1);\n}\n\
        fn b() { counters.waiting.value(); shares.in_flight += 1; counters.connects.add(1); }\n\
        fn c() {\n let own = &*client.counts;\n [&own.dropped_slow,\n &all.dropped_absent].iter().for_each(f);\n}\n\
        fn d() { let read = [&own.dropped_slow.value(), &self.waiting]; a && shares.waiting == 0; }";
    let ledger = "fn a() {\n add(&self.gauges.expired, 1);\n add(&gauges.sessions, 1);\n line.queued.len();\n}\n\
        fn b() {\n let all = &*self.lines.gauges;\n add(&all.expired, 1);\n subtract(&all.queued, 1);\n}\n\
        fn c(Gauges { too_large, .. }: &Gauges) {\n add(too_large, line.queued);\n queue.add(queued, 1);\n}";
    let sources = [
        Source::parse("crates/broker/src/deliver.rs", broker),
        Source::parse("crates/broker/src/fates.rs", broker),
        Source::parse("crates/broker/src/fates/tests.rs", broker),
        Source::parse("crates/net/src/listener.rs", broker),
        Source::parse("crates/ledger/src/lib.rs", ledger),
    ];
    let of_broker = [
        (2, "dropped_slow"),
        (4, "waiting"),
        (5, "routed"),
        (6, "in_flight"),
        (11, "dropped_slow"),
        (12, "dropped_absent"),
    ]
    .map(|(line, name)| {
        format!("crates/broker/src/deliver.rs:{line}: {name} is written in crates/broker/src/fates.rs alone")
    });
    let of_ledger = [(2, "expired"), (8, "expired"), (9, "queued"), (12, "too_large")].map(|(line, name)| {
        format!(
            "crates/ledger/src/lib.rs:{line}: {name} is written in crates/ledger/src/lines/fates.rs alone"
        )
    });
    assert_eq!(findings(&sources), [&of_broker[..], &of_ledger[..]].concat());
}
