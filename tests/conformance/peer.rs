//! Clients that do what a test says, packet by packet, and brokers for them.

use std::thread;

use pondhawk_tests::{Broker, Client, Options, Version};

pub(crate) use pondhawk_tests::conversation::{
    AN_HOUR, Conversation, Message, PUBACK, PUBCOMP, PUBREC, PUBREL, ack, filter, lasting, lose,
    pass_seconds, publish, request, resume, session_present,
};

/// The versions whose statements have numbers.
pub(crate) const BOTH: &[Version] = &[Version::V3_1_1, Version::V5];
pub(crate) const V5: &[Version] = &[Version::V5];
pub(crate) const V3_1_1: &[Version] = &[Version::V3_1_1];

/// Runs a test in each version, with a broker of one shard and with one of four, all at the same time.
pub(crate) fn in_each(versions: &[Version], test: impl Fn(&Broker, Version) + Sync) {
    in_each_with("", versions, test);
}

/// The same with settings for the broker.
pub(crate) fn in_each_with(settings: &str, versions: &[Version], test: impl Fn(&Broker, Version) + Sync) {
    thread::scope(|scope| {
        for (shards, version) in
            [1, 4].into_iter().flat_map(|shards| versions.iter().map(move |v| (shards, *v)))
        {
            let test = &test;
            scope.spawn(move || {
                let _named = Named(shards, version);
                let options = Options { shards, settings: settings.to_owned(), ..Options::default() };
                let broker = Broker::start(&options);
                test(&broker, version);
                assert!(broker.log_lines("panicked").is_empty());
            });
        }
    });
}

/// Says where a test failed.
struct Named(u16, Version);

impl Drop for Named {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("failed with {} shard(s) in MQTT {}", self.0, self.1);
        }
    }
}

/// Somebody publishes to a topic, and that is the first that arrives: what was published to it before would come first.
pub(crate) fn expect_nothing_before(client: &mut Client, publisher: &mut Client, topic: &str) {
    publisher.deliver(0, topic, b"the end");
    let message = client.message();
    assert_eq!((message.topic.as_str(), &message.payload[..]), (topic, &b"the end"[..]), "{message:?}");
}
