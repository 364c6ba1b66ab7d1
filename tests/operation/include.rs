//! A running broker whose configuration includes other files.

use std::fs;
use std::net::TcpStream;

use pondhawk_tests::{Version, free_ports, until};

use crate::admin::Server;
use crate::reload::{DONE, Place, REFUSED, client, listener, packet_bytes};

#[test]
fn included_files_are_read_again_on_reload_and_when_they_change() {
    let [first, second, third] = free_ports();
    let ours = |interval: &str| {
        let top = format!("include = \"conf.d/*.toml\"\nwatch_interval = {interval:?}\n");
        top + &listener(first, "") + "[admin]\naddress = \"127.0.0.1:0\"\n"
    };
    let place = Place::new(2, &listener(first, ""));
    fs::create_dir(place.path("conf.d")).expect("it is ours");
    place.write("conf.d/limits.toml", "[limits]\npacket_bytes = 3000\n");
    place.write("pond.toml", &ours("off"));
    place.hang_up(DONE);
    assert_eq!(packet_bytes(first), 3_000);
    let mut stays = client(first, Version::V5, "stays");
    // A mistake in any of the files changes nothing.
    place.write("conf.d/listener.toml", &(listener(second, "") + "no_such_key = 1\n"));
    place.hang_up(REFUSED);
    place.broker.wait_for_log("conf.d/listener.toml:4:1");
    assert!(TcpStream::connect(("127.0.0.1", second)).is_err());
    place.write("conf.d/listener.toml", &listener(second, ""));
    place.write("pond.toml", &ours("100 ms"));
    place.hang_up(DONE);
    client(second, Version::V5, "new").expect_only_pong();
    // From here on without a signal: a file that is new, one that changes, one that is empty, and one that goes.
    let wait_for = |said: &str, count: usize| {
        until(said, || (place.broker.log_lines(said).len() >= count).then_some(()));
    };
    place.write("conf.d/more.toml", &listener(third, ""));
    wait_for(DONE, 3);
    client(third, Version::V5, "new").expect_only_pong();
    place.write("conf.d/limits.toml", "[limits]\npacket_bytes = 4000\n");
    wait_for(DONE, 4);
    assert_eq!(packet_bytes(first), 4_000);
    place.write("conf.d/limits.toml", "");
    wait_for(REFUSED, 2);
    place.broker.wait_for_log("limits.toml is empty");
    assert_eq!(packet_bytes(first), 4_000);
    place.write("conf.d/limits.toml", "[limits]\npacket_bytes = 5000\n");
    wait_for(DONE, 5);
    fs::remove_file(place.path("conf.d/more.toml")).expect("it is there");
    wait_for(DONE, 6);
    assert!(TcpStream::connect(("127.0.0.1", third)).is_err());
    stays.expect_only_pong();
}

#[test]
fn the_server_for_operators_shows_and_reads_all_files() {
    let [first, second] = free_ports();
    let place = Place::new(1, &(listener(first, "") + "[admin]\naddress = \"127.0.0.1:0\"\n"));
    let server = Server::of(&place.broker);
    place.write("more.toml", &(listener(second, "") + "[sessions]\nqueue_messages = 77\n"));
    let main = "include = \"more.toml\"\n".to_owned()
        + &listener(first, "")
        + "[admin]\naddress = \"127.0.0.1:0\"\n";
    place.write("pond.toml", &main);
    assert_eq!(server.send("POST", "/api/v1/reload", "", "").status, 200);
    place.broker.wait_for_log(DONE);
    client(second, Version::V5, "new").expect_only_pong();
    let configuration = server.value("/api/v1/configuration").to_string();
    for text in ["queue_messages = 77", &format!("127.0.0.1:{second}")] {
        assert!(configuration.contains(text), "{text}: {configuration}");
    }
}
