//! Features for operators: limits, the log, `$SYS`, and an orderly end.

mod acme;
mod admin;
mod audit;
mod backups;
mod bans;
mod busiest;
mod counts;
mod dashboard;
mod descriptors;
mod drain;
mod explain;
mod guessing;
mod include;
mod limits;
mod listeners;
mod log;
mod lookups;
mod mounted;
mod names;
mod operators;
mod otlp;
mod outcomes;
mod packaging;
mod passed;
mod pause;
mod prometheus;
mod queues;
mod ready;
mod reload;
mod rights;
mod scan;
mod schema;
mod secrets;
mod service;
mod stop;
mod sys;
mod terminal;
mod top;
mod top_live;
mod trace;
mod traced_topic;
mod users;
mod version1;
mod watch;

use std::net::SocketAddr;

use pondhawk_tests::{Broker, Options, until};

/// A new broker with these settings, with one shard and with four.
fn brokers(settings: &str) -> impl Iterator<Item = Broker> + use<> {
    let settings = settings.to_owned();
    [1, 4].into_iter().map(move |shards| {
        Broker::start(&Options { shards, settings: settings.clone(), ..Options::default() })
    })
}

/// The addresses of a broker with so many listeners, in their order.
fn addresses<const COUNT: usize>(broker: &Broker) -> [SocketAddr; COUNT] {
    let lines = until("all listen", || broker.log_lines("listening on ").try_into().ok());
    <[String; COUNT]>::map(lines, |line| {
        let address = line.split_whitespace().nth(2).and_then(|address| address.parse().ok());
        address.expect("the line names an address")
    })
}
