//! Features for operators: limits, the log, `$SYS`, and an orderly end.

mod descriptors;
mod limits;
mod listeners;
mod log;
mod passed;
mod pause;
mod stop;
mod sys;
mod version1;

use pondhawk_tests::{Broker, Options};

/// A new broker with these settings, with one shard and with four.
fn brokers(settings: &str) -> impl Iterator<Item = Broker> + use<> {
    let settings = settings.to_owned();
    [1, 4].into_iter().map(move |shards| {
        Broker::start(&Options { shards, settings: settings.clone(), ..Options::default() })
    })
}
