//! Out of file descriptors.

use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{Broker, Innocents, Options, RawClient, Version};

/// Enough for the broker itself and some clients.
const OPEN_FILES_MAX: u16 = 48;
const SETTINGS: &str = "[limits]\nconnections = 1000\nconnect_timeout = \"1 h\"\n";

#[test]
fn accepting_pauses_and_goes_on_while_served_clients_are_unharmed() {
    for shards in [1, 4] {
        let broker = Broker::start(&Options {
            shards,
            settings: SETTINGS.to_owned(),
            open_files_max: Some(OPEN_FILES_MAX),
            ..Options::default()
        });
        let mut innocents = Innocents::connect(&broker, "served");
        // The kernel makes these connections; the broker has no descriptors for the last of them.
        let crowd: Vec<RawClient> = (0..OPEN_FILES_MAX).map(|_| broker.connect()).collect();
        innocents.notice_nothing_of(|| broker.wait_for_log("accepting pauses"));
        let mut waiting = broker.connect();
        waiting.send(&Connect::new(Version::V5, "patient").bytes());
        innocents.notice_nothing_of(|| ());

        drop(crowd);
        assert!(packet::is_accepted(&waiting.read_packet()), "it is its turn");
        innocents.notice_nothing_of(|| ());
        assert!(broker.stop().success());
    }
}
